"""SQLite under the execution model, through APSW: write-ahead log, every commit synced.

The only module that knows the driver. One connection writes; readers have their own, read-only ones.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Self

import apsw

from keep_storage import statements
from keep_storage.errors import (
    StorageCorrupt,
    StorageError,
    StorageForeign,
    StorageLost,
    StorageTooNew,
    StorageUnavailable,
)
from keep_storage.ids import Millis
from keep_storage.transaction import Params, Reader, Row, Transaction

APPLICATION_ID: Final = 0x4B454550
"""`KEEP`, in the header of every file of ours."""

_BUSY_MS: Final = 5_000
_CACHE_KIB: Final = 65_536
_WAL_BYTES_KEPT: Final = 64 * 1024 * 1024
_CHECKPOINT_PAGES: Final = 4_000
"""16 MiB of log between two checkpoints: each costs two more syncs."""
_STATEMENTS_CACHED: Final = 256
_BACKUP_PAGES: Final = 1_000

_ADVICE: Final[Mapping[type[apsw.Error], tuple[type[StorageError], str]]] = {
    apsw.FullError: (StorageUnavailable, "the disk is full; make room and try again"),
    apsw.ReadOnlyError: (StorageUnavailable, "the file or its disk is read-only; make it writable"),
    apsw.CantOpenError: (
        StorageUnavailable,
        "the file cannot be opened; check that its folder exists and may be used",
    ),
    apsw.BusyError: (StorageUnavailable, "another program keeps the file locked; close it"),
    apsw.LockedError: (StorageUnavailable, "another program keeps the file locked; close it"),
    apsw.PermissionsError: (StorageUnavailable, "access to the file is denied; check its permissions"),
    apsw.IOError: (StorageUnavailable, "the disk failed to read or write; check it"),
    apsw.NoMemError: (StorageUnavailable, "there is not enough memory"),
    apsw.InterruptError: (StorageUnavailable, "the work was interrupted"),
    apsw.CorruptError: (StorageCorrupt, "the file is damaged; restore a backup, and see `keep doctor`"),
    apsw.NotADBError: (StorageCorrupt, "the file is not a database, or its header is damaged"),
}
"""What to tell a person about each way a disk can fail. Any other error of the driver is a bug in our SQL."""


@contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise _explain(error, path) from error


@contextmanager
def _opening(path: str, **options: Any) -> Iterator[apsw.Connection]:
    """A connection that stays open unless something goes wrong while it is being prepared."""
    with _translated(path), ExitStack() as undo:
        connection = apsw.Connection(path, statementcachesize=_STATEMENTS_CACHED, **options)
        undo.callback(connection.close)
        connection.set_busy_timeout(_BUSY_MS)
        # A plan that does not depend on what is bound: else this SQLite parses a join anew at every execution.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        yield connection
        undo.pop_all()


def _explain(error: apsw.Error, path: str) -> Exception:
    for kind, (meaning, advice) in _ADVICE.items():
        if isinstance(error, kind):
            return meaning(f"{path}: {advice} (SQLite says: {error}).")
    return error


class _Connection:
    """Named queries on one connection."""

    def __init__(self, connection: apsw.Connection, path: str) -> None:
        self._connection = connection
        self._path = path
        self._execute = connection.cursor().execute
        both = {**statements.queries(), **statements.invariants()}
        self._sql = {name: statement.sql for name, statement in both.items()}

    def one(self, query: str, params: Params) -> Row | None:
        try:
            rows = self._execute(self._sql[query], params).fetchall()
        except apsw.Error as error:
            raise _explain(error, self._path) from error
        return rows[0] if rows else None

    def all(self, query: str, params: Params) -> list[Row]:
        try:
            return self._execute(self._sql[query], params).fetchall()
        except apsw.Error as error:
            raise _explain(error, self._path) from error

    def run(self, query: str, params: Params) -> None:
        try:
            self._execute(self._sql[query], params)
        except apsw.Error as error:
            raise _explain(error, self._path) from error

    def savepoint(self) -> None:
        self._plain("SAVEPOINT operation")

    def release(self) -> None:
        self._plain("RELEASE operation")

    def undo(self) -> None:
        self._plain("ROLLBACK TO operation")
        self._plain("RELEASE operation")

    def _plain(self, sql: str) -> None:
        try:
            self._execute(sql)
        except apsw.Error as error:
            # SQLite ends the whole transaction by itself when the disk fails; then there is no savepoint left.
            raise _explain(error, self._path) from error

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        self._plain("BEGIN")
        try:
            yield
        finally:
            self._plain("COMMIT")

    def close(self) -> None:
        with _translated(self._path):
            self._connection.close()


class SqliteDatabase:
    """One file, one writer. `docs/architecture.md` says why each setting is as it is."""

    def __init__(self, connection: apsw.Connection, path: str) -> None:
        self._connection = connection
        self._path = path
        self._queries = _Connection(connection, path)
        self._unfenced = False

    @classmethod
    def open(cls, path: str, *, now: Millis, vfs: str | None = None, exclusive: bool = False) -> Self:
        """Open or create a file and bring its schema up to date. A file that is not ours is left as it is.

        `exclusive` is for file systems without shared memory: it works without, and there are no readers.
        """
        with _opening(path, vfs=vfs) as connection:
            if exclusive:
                connection.pragma("locking_mode", "EXCLUSIVE")
            version = schema_version(connection, path)
            if connection.readonly("main"):
                raise StorageUnavailable(f"{path}: the file is read-only; make it writable.")
            _configure(connection, path)
            _migrate(connection, version, now)
            database = cls(connection, path)
            # The process before this one may have died over a failed commit. What is read now must stay true.
            database._fence()
            return database

    def begin(self) -> Transaction:
        if self._unfenced:
            self._make_sure_it_failed("An earlier commit failed.")
        self.rollback()
        with _translated(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
        return self._queries

    def commit(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except apsw.Error as error:
            self._unfenced = True
            failure = _explain(error, self._path)
            self._make_sure_it_failed(str(failure))
            raise failure from error

    def rollback(self) -> None:
        # SQLite rolls back by itself when the disk fails; rolling back again would hide the first error.
        if self._connection.in_transaction:
            with _translated(self._path):
                self._connection.execute("ROLLBACK")

    def _make_sure_it_failed(self, failure: str) -> None:
        """A commit that failed can still lie whole in the log, and come back when the file is opened again."""
        try:
            self._fence()
        except (apsw.Error, StorageError) as error:
            raise StorageLost(
                f"{failure} It could not be made sure that nothing of it is left ({error}); the next commit tries that "
                "again."
            ) from error

    def _fence(self) -> None:
        """A commit that succeeds. It overwrites what a failed one may have left in the log."""
        self.rollback()
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute(statements.queries()["fence"].sql)
        self._connection.execute("COMMIT")
        self._unfenced = False

    def queries(self) -> _Connection:
        return self._queries

    def reader(self) -> Reader:
        if self._path == ":memory:":
            return _SharedReader(self._connection, self._path)
        return open_reader(self._path)

    def close(self) -> None:
        with _translated(self._path):
            self._connection.close()


class _SharedReader(_Connection):
    """A database in memory has one connection; its readers share it."""

    def close(self) -> None:
        pass


def open_reader(path: str) -> _Connection:
    """A read-only connection to a file, for its runtime and for anyone else who wants to look."""
    with _opening(path, flags=apsw.SQLITE_OPEN_READONLY) as connection:
        version, newest = schema_version(connection, path), len(statements.migrations())
        if version < newest:
            raise StorageUnavailable(
                f"{path}: an empty database; no runtime has ever opened it."
                if version == 0
                else f"{path}: schema version {version}, and this library reads version {newest}. "
                "Start a runtime on it once: that brings it up to date."
            )
        return _Connection(connection, path)


def copy_to(source: str, target: str, told: Callable[[int, int], None]) -> None:
    """Copy a file as it is at this moment, page by page, while its runtime goes on. `told` hears pages done and all.

    `target` is an empty file. What becomes of it is one file, without a log beside it.
    """
    with (
        _opening(source, flags=apsw.SQLITE_OPEN_READONLY) as here,
        _opening(target, flags=apsw.SQLITE_OPEN_READWRITE) as there,
    ):
        schema_version(here, source)
        # One moment for all pages: without a transaction of ours, every commit of the runtime would start it anew.
        here.execute("BEGIN")
        here.execute("SELECT COUNT(*) FROM sqlite_schema").fetchall()
        with there.backup("main", here, "main") as copy:
            while not copy.done:
                copy.step(_BACKUP_PAGES)
                told(copy.page_count - copy.remaining, copy.page_count)
        here.execute("COMMIT")
        there.pragma("journal_mode", "DELETE")
        there.close()
        here.close()


def look_at(path: str) -> tuple[int, list[str]]:
    """The schema version of a file, and what SQLite finds wrong with the file itself. Changes nothing."""
    with _translated(path):
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            version = schema_version(connection, path)
            said = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
            strays = connection.execute("PRAGMA foreign_key_check").fetchall()
        finally:
            connection.close()
    broken = [f"row {row[1]} of {row[0]} refers to a row of {row[2]} that does not exist" for row in strays]
    return version, [line for line in said if line != "ok"] + broken


def schema_version(connection: apsw.Connection, path: str) -> int:
    """The version of the schema in a file; 0 in an empty one. Refuses files that are not ours, or too new."""
    application = connection.pragma("application_id")
    version = int(str(connection.pragma("user_version")))
    tables = connection.execute("SELECT COUNT(*) FROM sqlite_schema").fetchall()[0][0]
    if application != APPLICATION_ID and (application or version or tables):
        raise StorageForeign(f"{path}: a database, but not one of keep-actors. It was left as it is.")
    newest = len(statements.migrations())
    if version > newest:
        raise StorageTooNew(
            f"{path}: schema version {version}, and this library knows versions up to {newest}. "
            "Use the version of keep-actors that wrote it, or a newer one."
        )
    return version


def _configure(connection: apsw.Connection, path: str) -> None:
    mode = connection.pragma("journal_mode", "WAL")
    if mode not in ("wal", "memory"):
        raise StorageUnavailable(f"{path}: its file system has no write-ahead log (SQLite chose {mode!r}).")
    connection.pragma("synchronous", "FULL")
    connection.pragma("fullfsync", True)
    connection.pragma("checkpoint_fullfsync", True)
    connection.pragma("foreign_keys", True)
    connection.pragma("cache_size", -_CACHE_KIB)
    connection.pragma("temp_store", "MEMORY")
    connection.pragma("wal_autocheckpoint", _CHECKPOINT_PAGES)
    connection.pragma("journal_size_limit", _WAL_BYTES_KEPT)


def _migrate(connection: apsw.Connection, version: int, now: Millis) -> None:
    """Apply what is missing, each migration in a transaction of its own."""
    for number, script in enumerate(statements.migrations()[version:], start=version + 1):
        # If one fails, the connection is closed, and with it the transaction is gone.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(script)
        if number == 1:
            connection.execute(statements.queries()["insert_store"].sql, {"created_at": now})
            connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", number)
        connection.execute("COMMIT")
