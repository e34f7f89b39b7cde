"""SQLite under the execution model, through APSW: write-ahead log, every commit synced.

The only module that knows the driver, with `wary`. One connection writes; readers have their own, read-only ones. Reads
of a file that others may have made are bounded, and happen only if its schema is ours.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import NoneType
from typing import Any, Final, Self

import apsw

from keep_storage import statements
from keep_storage.errors import StorageCorrupt, StorageError, StorageLost, StorageUnavailable
from keep_storage.ids import Millis
from keep_storage.kept import Kept, nothing_kept
from keep_storage.schema import APPLICATION_ID, another_schema, foreign_in, schema_version
from keep_storage.transaction import Reader, Row, SqlParams, Transaction
from keep_storage.wary import TOO_MUCH, Allowance, refuse_what_is_no_file, size_of

_BUSY_MS: Final = 5_000
_CACHE_KIB: Final = 65_536
_WAL_BYTES_KEPT: Final = 64 * 1024 * 1024
_PAGE_BYTES: Final = 2_048
"""Of a new file. A commit writes whole pages to the log, however little it changes on each."""
_CHECKPOINT_BYTES: Final = 16 * 1024 * 1024
"""The log between two checkpoints: each costs two more syncs."""
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
    apsw.InterruptError: (StorageCorrupt, TOO_MUCH),
    apsw.CorruptError: (StorageCorrupt, "the file is damaged; restore a backup, and see `keep doctor`"),
    apsw.NotADBError: (StorageCorrupt, "the file is not a database, or its header is damaged"),
    apsw.TooBigError: (StorageCorrupt, "a value in it is larger than the file can hold; the file is damaged"),
}
"""Advice for each way a disk can fail. Any other error of the driver is a bug in our SQL."""


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
        connection.pragma("temp_store", "MEMORY")
        # A plan that does not depend on what is bound: else this SQLite parses a join again at every execution.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        # No view in the file is opened, and nothing in its schema calls a function that could do
        # harm. Our own views are temporary.
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        yield connection
        undo.pop_all()


@contextmanager
def _wary(path: str) -> Iterator[None]:
    """Blame the file for every error: nothing of ours has been asked of it yet, or nothing could be."""
    try:
        yield
    except apsw.Error as error:
        explained = _explain(error, path)
        raise explained if isinstance(explained, StorageError) else _unreadable(error, path) from error
    except UnicodeDecodeError as error:
        raise _unreadable(error, path) from error


def _unreadable(error: Exception, path: str) -> StorageCorrupt:
    return StorageCorrupt(f"{path}: it cannot be read as a database of keep-actors: {str(error)[:300]!r}.")


def _explain(error: apsw.Error, path: str) -> Exception:
    for kind, (meaning, advice) in _ADVICE.items():
        if isinstance(error, kind):
            return meaning(f"{path}: {advice} (SQLite says: {error}).")
    return error


class _Connection:
    """Named queries on one connection."""

    def __init__(self, connection: apsw.Connection, path: str, kept: Kept | None = None) -> None:
        self.kept = kept or nothing_kept()
        self._connection = connection
        self._path = path
        cursor = connection.cursor()
        self._execute, self._execute_each = cursor.execute, cursor.executemany
        both = {**statements.queries(), **statements.invariants()}
        self._sql = {name: statement.sql for name, statement in both.items()}

    def one(self, query: str, params: SqlParams) -> Row | None:
        try:
            rows = self._execute(self._sql[query], params).fetchall()
        except apsw.Error as error:
            raise _explain(error, self._path) from error
        return rows[0] if rows else None

    def all(self, query: str, params: SqlParams) -> list[Row]:
        try:
            return self._execute(self._sql[query], params).fetchall()
        except apsw.Error as error:
            raise _explain(error, self._path) from error

    def run(self, query: str, params: SqlParams) -> None:
        try:
            self._execute(self._sql[query], params)
        except apsw.Error as error:
            raise _explain(error, self._path) from error

    def run_each(self, query: str, params: Iterable[SqlParams]) -> None:
        try:
            self._execute_each(self._sql[query], params)
        except apsw.Error as error:
            raise _explain(error, self._path) from error

    def rows_changed(self) -> int:
        return self._connection.total_changes()

    def savepoint(self) -> None:
        self._plain("SAVEPOINT operation")

    def release(self) -> None:
        self._plain("RELEASE operation")

    def undo(self) -> None:
        self.kept.clear()
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


_KINDS: Final[Mapping[str | None, tuple[type, ...]]] = {
    "TEXT": (str, NoneType),
    "INTEGER": (int, NoneType),
    "REAL": (float, NoneType),
}
"""The types of the columns of our tables. `STRICT` holds for writes: a crafted file may hold anything else."""


class _WaryConnection(_Connection):
    """Named queries of a file that others may have made: none takes more than such a file can need."""

    def __init__(self, connection: apsw.Connection, path: str) -> None:
        super().__init__(connection, path)
        self._allowance = Allowance(connection, path)

    def one(self, query: str, params: SqlParams) -> Row | None:
        rows = self.all(query, params)
        return rows[0] if rows else None

    def all(self, query: str, params: SqlParams) -> list[Row]:
        return self.read(self._sql[query], params)

    def read(self, sql: str, params: SqlParams | None = None) -> list[Row]:
        """The rows of a statement. Raises `StorageCorrupt` and its kin, and nothing else about the file."""
        self._allowance.renew()
        rows: list[Row] = []
        with _wary(self._path):
            cursor = self._execute(sql, params)
            kinds: tuple[tuple[type, ...], ...] | None = None
            for row in cursor:
                self._allowance.take(row)
                if kinds is None:
                    kinds = tuple(_KINDS.get(declared, (object,)) for _, declared in cursor.getdescription())
                if not all(map(isinstance, row, kinds)):
                    raise _unreadable(TypeError("a value is not of the type that its column has"), self._path)
                rows.append(row)
        return rows

    def make_views(self) -> None:
        _make_views(self._connection)

    def version(self) -> int:
        return schema_version(self._connection, self._path)

    def foreign(self) -> list[str]:
        """Parts of its schema that are not ours, or missing."""
        return foreign_in(self._connection, self.version())


class SqliteDatabase:
    """One file, one writer. `docs/architecture.md` says why each setting is as it is."""

    def __init__(self, connection: apsw.Connection, path: str) -> None:
        self._connection = connection
        self._path = path
        _make_views(connection)
        self._queries = _Connection(connection, path, Kept())
        self._unfenced = False

    @classmethod
    def open(cls, path: str, *, now: Millis, vfs: str | None = None, exclusive: bool = False) -> Self:
        """Open or create a file and bring its schema up to date. A file that is not ours is left as it is.

        `exclusive` is for file systems without shared memory: it works without, and there are no readers.
        """
        with _opening(path, vfs=vfs) as connection:
            if exclusive:
                connection.pragma("locking_mode", "EXCLUSIVE")
            with _wary(path):
                version = schema_version(connection, path)
                if foreign := foreign_in(connection, version):
                    raise another_schema(path, version, foreign)
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
        if self._connection.in_transaction:
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
        self._queries.kept.clear()
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
        with _opening(self._path, flags=apsw.SQLITE_OPEN_READONLY) as connection:
            _make_views(connection)
            return _Connection(connection, self._path)

    def close(self) -> None:
        with _translated(self._path):
            self._connection.close()


class _SharedReader(_Connection):
    """A database in memory has one connection; its readers share it."""

    def close(self) -> None:
        pass


@contextmanager
def _opening_warily(path: str) -> Iterator[_WaryConnection]:
    """A connection that only reads, to a file of which nothing is believed. Stays open unless something is wrong."""
    refuse_what_is_no_file(path)
    with _wary(path), _opening(path, flags=apsw.SQLITE_OPEN_READONLY) as connection:
        yield _WaryConnection(connection, path)


def open_reader(path: str) -> Reader:
    """A read-only connection to a file that others have, or have made.

    Raises `StorageForeign` and its kin, before anything is read, if it is not as a runtime of this version leaves it.
    """
    with _opening_warily(path) as reader:
        version, newest = reader.version(), len(statements.migrations())
        if version < newest:
            raise StorageUnavailable(
                f"{path}: an empty database; no runtime has ever opened it."
                if version == 0
                else f"{path}: schema version {version}, and this library reads version {newest}. "
                "Start a runtime on it once: that brings it up to date."
            )
        if foreign := reader.foreign():
            raise another_schema(path, version, foreign)
        reader.make_views()
        return reader


def copy_to(source: str, target: str, told: Callable[[int, int], None]) -> None:
    """Copy a file as it is at this moment, page by page, while its runtime goes on. `told` hears pages done and all.

    `target` is an empty file. What becomes of it is one file, without a log beside it.
    """
    refuse_what_is_no_file(source)
    with (
        _wary(source),
        _opening(source, flags=apsw.SQLITE_OPEN_READONLY) as here,
        _opening(target, flags=apsw.SQLITE_OPEN_READWRITE) as there,
    ):
        version = schema_version(here, source)
        # One moment for all pages: without a transaction of ours, every commit of the runtime would restart it.
        here.execute("BEGIN")
        if foreign := foreign_in(here, version):
            raise another_schema(source, version, foreign)
        pages, bytes_each = (int(str(here.pragma(name))) for name in ("page_count", "page_size"))
        if pages * bytes_each > size_of(source):
            raise StorageCorrupt(f"{source}: it says that it is larger than it is; it is damaged. Restore a backup.")
        with there.backup("main", here, "main") as copy:
            while not copy.done:
                copy.step(_BACKUP_PAGES)
                told(copy.page_count - copy.remaining, copy.page_count)
        here.execute("COMMIT")
        there.pragma("journal_mode", "DELETE")
        there.close()
        here.close()


def look_at(path: str) -> tuple[int, list[str], bool]:
    """The schema version of a file, what SQLite finds wrong with it, and whether its schema is ours. Changes nothing.

    In a file with another schema nothing else is looked at.
    """
    with _opening_warily(path) as reader:
        version, foreign = reader.version(), reader.foreign()
        if foreign:
            reader.close()
            return version, [str(another_schema(path, version, foreign))], False
        said = [str(row[0]) for row in reader.read("PRAGMA integrity_check")]
        strays = reader.read("PRAGMA foreign_key_check")
        reader.close()
    broken = [f"row {row[1]} of {row[0]} refers to a row of {row[2]} that does not exist" for row in strays]
    return version, [line for line in said if line != "ok"] + broken, True


def _configure(connection: apsw.Connection, path: str) -> None:
    connection.pragma("page_size", _PAGE_BYTES)  # a file that is not empty keeps its own
    mode = connection.pragma("journal_mode", "WAL")
    if mode not in ("wal", "memory"):
        raise StorageUnavailable(f"{path}: its file system has no write-ahead log (SQLite chose {mode!r}).")
    connection.pragma("synchronous", "FULL")
    connection.pragma("fullfsync", True)
    connection.pragma("checkpoint_fullfsync", True)
    connection.pragma("foreign_keys", True)
    connection.pragma("cache_size", -_CACHE_KIB)
    connection.pragma("wal_autocheckpoint", _CHECKPOINT_BYTES // int(str(connection.pragma("page_size"))))
    connection.pragma("journal_size_limit", _WAL_BYTES_KEPT)


def _make_views(connection: apsw.Connection) -> None:
    """Make our views, for this connection only."""
    for view in statements.views().values():
        connection.execute(f"CREATE TEMP VIEW {view.name} AS {view.sql}")


def _migrate(connection: apsw.Connection, version: int, now: Millis) -> None:
    """Apply what is missing, in one transaction: who is killed meanwhile leaves the file as it was. References are
    checked after each migration: a table that is made again is gone for a moment."""
    connection.pragma("foreign_keys", False)
    missing = list(enumerate(statements.migrations()[version:], start=version + 1))
    # If one fails, the connection is closed, and with it the transaction is gone.
    if missing:
        connection.execute("BEGIN IMMEDIATE")
    for number, script in missing:
        connection.execute(script)
        if number == 1:
            connection.execute(statements.queries()["insert_store"].sql, {"created_at": now})
            connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", number)
        astray = connection.execute("PRAGMA foreign_key_check").fetchall()
        assert not astray, f"migration {number} leaves rows behind that refer to nothing: {astray[:3]}"
    if missing:
        connection.execute("COMMIT")
    connection.pragma("foreign_keys", True)
