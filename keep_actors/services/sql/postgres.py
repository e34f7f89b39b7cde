"""PostgreSQL, by psycopg: each transaction has a connection of its own, limits of its own, and ends by the server too.

psycopg is an extra: this module is imported when a PostgreSQL database is named. A transaction that changes takes a
lock for its call, and so does the one that looks for it: a COMMIT that is still active is waited for.
"""

import hashlib
import logging
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg import IsolationLevel
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.raw_cursor import RawCursor, RawServerCursor
from psycopg.types.string import TextLoader

from keep_actors.outbound.secret import Secret
from keep_actors.services.service import SettingsError
from keep_actors.services.sql.database import (
    ColumnFound,
    DatabaseRow,
    Page,
    SqlFault,
    SqlLimits,
    SqlTransaction,
    TableFound,
)
from keep_actors.services.sql.leaving import Leaving
from keep_actors.services.sql.meanings import CONNECTION_LOST, NOT_CONNECTED, NOT_SIGNED_IN, NOT_SUPPORTED, NOT_TRUSTED
from keep_actors.services.sql.tables import quoted, sql_of

_PARAMETERS: Final = frozenset(
    {
        *("host", "hostaddr", "port", "user", "dbname", "application_name"),
        *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "channel_binding", "require_auth", "gssencmode"),
    }
)
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_REFUSALS: Final = (
    *((part, NOT_SIGNED_IN) for part in ("authentication", "password", "pg_hba.conf", 'role "')),
    ('database "', "3D000"),
    ("certificate", NOT_TRUSTED),
)
"""Codes by a part of the words: libpq hands on no code to a client that is not connected."""
_CANCEL_S: Final = 1.0
_ROWS_AT_ONCE: Final = 20
_NUMERIC_HEADER: Final = 4
_SCALE_BITS: Final = 0x7FF
_SCALE_SIGN: Final = 1024
_SIZE: Final = "keep size"
_PREPARE: Final = """SELECT
  pg_catalog.set_config('statement_timeout', $1::text, true),
  pg_catalog.set_config('idle_in_transaction_session_timeout', $1::text, true),
  pg_catalog.set_config('lock_timeout', $2::text, true),
  pg_catalog.set_config('synchronous_commit', CASE pg_catalog.current_setting('synchronous_commit')
    WHEN 'off' THEN 'on' ELSE pg_catalog.current_setting('synchronous_commit') END, true),
  pg_catalog.set_config('search_path', pg_catalog.concat_ws(', ', pg_catalog.quote_ident($3::text),
    NULLIF(pg_catalog.current_setting('search_path'), '')), true)"""
_COLUMNS: Final = """SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod),
  CASE t.typtype WHEN 'e' THEN 'enum' ELSE pg_catalog.format_type(a.atttypid, NULL) END,
  pg_catalog.format_type(a.atttypid, NULL), a.atttypmod
FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped"""
_UNIQUE: Final = """SELECT i.indexrelid, a.attname
FROM pg_catalog.pg_index AS i
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int2[])
WHERE i.indrelid = $1::oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
  AND i.indnatts = i.indnkeyatts"""
_TABLE: Final = """SELECT c.oid
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1::name AND c.relname = $2::name AND c.relkind IN ('r', 'p')"""
_RECEIPTS: Final = """CREATE TABLE IF NOT EXISTS {table} (
  call text NOT NULL PRIMARY KEY,
  method text NOT NULL,
  digest text NOT NULL,
  result text NOT NULL,
  made_at timestamptz NOT NULL DEFAULT pg_catalog.now()
)"""

logger = logging.getLogger(__name__)


def connection_parameters(url: str) -> dict[str, str]:
    """The parameters in a URL. Raises `SettingsError` for those that weaken or redirect a connection."""
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except psycopg.ProgrammingError as error:
        raise SettingsError("database", f"is not a URL of PostgreSQL: {error}") from None
    if unknown := set(given) - _PARAMETERS:
        there = ", ".join(sorted(_PARAMETERS))
        raise SettingsError("database", f"has the parameter {min(unknown)}; there are: {there}")
    hosts = [*given.get("host", "").split(","), *given.get("hostaddr", "").split(",")]
    if "sslmode" not in given and any(host and host not in _LOOPBACK and not host.startswith("/") for host in hosts):
        what = "is not on this machine; write ?sslmode=verify-full&sslrootcert=FILE, or another sslmode on purpose"
        raise SettingsError("database", what)
    return {"application_name": "keep-actors", "gssencmode": "disable", **given}


class OnPostgres:
    """A database of PostgreSQL."""

    receipts_table = _RECEIPTS

    def __init__(self, url: str, password: Secret | None, schema: str, limits: SqlLimits, *, changes: bool) -> None:
        self.default_schema = schema or "public"
        self._parameters: Mapping[str, Any] = connection_parameters(url)
        self._password = password
        self._limits = limits
        # A standby does not know what the primary has committed.
        self._server = "primary" if changes else "any"

    def place(self, number: int, cast: str) -> str:
        """The place of a bound value. The cast has no size: one with a size would cut a text without a word."""
        return f"${number}::{cast}"

    def stored(self, value: Any, _: str) -> Any:
        """A bound value, which psycopg takes as it is."""
        return value

    @contextmanager
    def changing(self, leaving: Leaving) -> Iterator[SqlTransaction]:
        """A transaction that changes, or looks for a change."""
        with self._connected(leaving, read_only=False) as connection:
            yield _Transaction(connection)

    @contextmanager
    def reading(self, leaving: Leaving) -> Iterator[SqlTransaction]:
        """A transaction in which the server refuses to write."""
        with self._connected(leaving, read_only=True) as connection:
            yield _Transaction(connection)

    def page(self, leaving: Leaving, sql: str, values: Sequence[Any], rows_max: int, bytes_max: int) -> Page:
        """The first rows of a SELECT. A row that is larger than the answer may be stays in the server."""
        with self._connected(leaving, read_only=True) as connection:
            names = self.names_of(_Transaction(connection), sql, values)
            fits = f"s.{quoted(_SIZE)} <= {bytes_max:d}"
            chosen = ", ".join(f"CASE WHEN {fits} THEN s.{quoted(name)} END" for name in names)
            size = f"pg_catalog.octet_length(q::text) AS {quoted(_SIZE)}"
            inner = sql_of("SELECT q.*,", size, "FROM (", sql, "\n) AS q")
            bounded = sql_of("SELECT", f"s.{quoted(_SIZE)},", chosen, "FROM (", inner, ") AS s")
            return _first(connection, names, bounded, values, rows_max, bytes_max)

    def names_of(self, transaction: SqlTransaction, sql: str, values: Sequence[Any]) -> Sequence[str]:
        """The columns of a SELECT."""
        assert isinstance(transaction, _Transaction), "it is one of ours"
        return transaction.names(sql_of("SELECT * FROM (", sql, "\n) AS q LIMIT 0"), values)

    def find(self, transaction: SqlTransaction, table: str) -> TableFound | None:
        """Find an ordinary or partitioned table."""
        found = transaction.run(_TABLE, [self.default_schema, table])
        if not found:
            return None
        [(oid,)] = found
        keys: dict[int, set[str]] = {}
        for index, column in transaction.run(_UNIQUE, [oid]):
            keys.setdefault(index, set()).add(column)
        columns = {name: _column(*about) for name, *about in transaction.run(_COLUMNS, [oid])}
        return TableFound(columns, [frozenset(key) for key in keys.values()])

    @contextmanager
    def _connected(self, leaving: Leaving, *, read_only: bool) -> Iterator[psycopg.Connection[DatabaseRow]]:
        connection = self._connect()
        try:
            with leaving.interruptible(lambda: _interrupt(connection)):
                # The next statement after a lock has to see what its last owner committed.
                connection.isolation_level = IsolationLevel.READ_COMMITTED
                connection.read_only = read_only
                limits = [str(self._limits.timeout_ms), str(self._limits.lock_timeout_ms)]
                # Queries find the tables of the connector by their names; triggers find what they always find.
                first_schema = self.default_schema if read_only else None
                try:
                    _Transaction(connection).run(_PREPARE, [*limits, first_schema])
                    yield connection
                finally:
                    _roll_back(connection)
        finally:
            connection.close()

    def _connect(self) -> psycopg.Connection[DatabaseRow]:
        secret: dict[str, Any] = {} if self._password is None else {"password": self._password.reveal()}
        try:
            connection = psycopg.connect(
                "",
                **self._parameters,
                **secret,
                connect_timeout=max(2, -(-self._limits.connect_timeout_ms // 1000)),
                target_session_attrs=self._server,
                client_encoding="UTF8",
                tcp_user_timeout=self._limits.timeout_ms,
                prepare_threshold=None,  # a pooler between may give each transaction another connection
                cursor_factory=RawCursor,
            )
        except psycopg.Error as error:
            words = _first_line(error)
            code = next((code for part, code in _REFUSALS if part in words), NOT_CONNECTED)
            raise SqlFault(code, f"PostgreSQL: {words}", is_answer=False) from None
        for name in ("json", "jsonb"):
            connection.adapters.register_loader(name, TextLoader)
        return connection


class _Transaction:
    """One transaction of PostgreSQL."""

    def __init__(self, connection: psycopg.Connection[DatabaseRow]) -> None:
        self._connection = connection

    def lock(self, key: str) -> None:
        """Wait for other transactions of this call. The lock ends with the transaction."""
        digest = hashlib.sha256(f"keep-actors call {key}".encode()).digest()
        number = int.from_bytes(digest[:8], "big", signed=True)
        self.run("SELECT pg_catalog.pg_advisory_xact_lock($1::bigint)", [number])

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[DatabaseRow]:
        """Run one statement."""
        with _translated(), self._connection.cursor() as cursor:
            # With parameters, even none, the server takes one statement only.
            cursor.execute(sql.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def names(self, sql: str, values: Sequence[Any]) -> list[str]:
        """The columns that a statement answers."""
        with _translated(), self._connection.cursor() as cursor:
            cursor.execute(sql.encode(), values)
            return [each.name for each in cursor.description or ()]

    def commit(self) -> None:
        """Commit."""
        # A COMMIT of a failed transaction is a rollback that reports success.
        assert self._connection.info.transaction_status is TransactionStatus.INTRANS, "no statement of it failed"
        with _translated():
            self._connection.commit()


def _first(
    connection: psycopg.Connection[DatabaseRow],
    names: Sequence[str],
    sql: str,
    values: Sequence[Any],
    rows_max: int,
    bytes_max: int,
) -> Page:
    rows: list[DatabaseRow] = []
    left = bytes_max
    with _translated(), RawServerCursor(connection, "keep_page") as cursor:
        cursor.itersize = min(_ROWS_AT_ONCE, rows_max + 1)
        cursor.execute(sql.encode(), values)
        for size, *row in cursor:
            left -= size or 0
            if size is not None and size > bytes_max and not rows:
                raise SqlFault("54000", f"PostgreSQL: a row has {size:,} bytes, more than an answer may have")
            if len(rows) == rows_max or left < 0:
                return Page(names, rows, has_more=True)
            rows.append(tuple(row))
    return Page(names, rows, has_more=False)


def _interrupt(connection: psycopg.Connection[DatabaseRow]) -> None:
    """Cancel what the server does, and end the connection, for a thread that waits for an answer."""
    with suppress(psycopg.Error):
        connection.cancel_safe(timeout=_CANCEL_S)
    # A duplicate, because the thread that works closes the connection itself; both are the same socket.
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as ours:
        ours.shutdown(socket.SHUT_RDWR)


def _roll_back(connection: psycopg.Connection[DatabaseRow]) -> None:
    with suppress(psycopg.Error):  # the server does it too, when the connection ends
        connection.rollback()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        # Its detail has values of rows: only the sentence and the name of the constraint are shown.
        if error.sqlstate is None:
            is_lost = isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
            code = CONNECTION_LOST if is_lost else NOT_SUPPORTED
            raise SqlFault(code, f"PostgreSQL: {_first_line(error)}", is_answer=False) from None
        words = error.diag.message_primary or type(error).__name__
        raise SqlFault(
            error.sqlstate, f"PostgreSQL: {words}", is_answer=error.diag.severity_nonlocalized == "ERROR"
        ) from None


def _first_line(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0]


def _column(shown: str, family: str, cast: str, modifier: int) -> ColumnFound:
    if family == "numeric" and modifier >= _NUMERIC_HEADER:
        scale = (((modifier - _NUMERIC_HEADER) & _SCALE_BITS) ^ _SCALE_SIGN) - _SCALE_SIGN
        return ColumnFound(shown, family, cast, scale=scale)
    is_exact = not family.startswith("timestamp") or modifier in (-1, 6)
    return ColumnFound(shown, family, cast, is_exact=is_exact)
