"""The database of a story: it outlives processes, fails when it is told to, and says what every commit changed."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final, Literal, NamedTuple

import apsw

from keep_actors.testing.life import Died
from keep_storage import Store, statements
from keep_storage.errors import StorageLost, StorageUnavailable
from keep_storage.ids import Now
from keep_storage.operations import Operation, OperationOutcome
from keep_storage.sqlite import SqliteDatabase
from keep_storage.transaction import Reader, Row, SqlParams, Transaction
from tests.passing import PassingDatabase

Trouble = Literal["", "full", "torn", "failed", "lost", "died"]
"""Nothing; no room at all; no room in the middle; the commit fails; it fails and nobody knows; the process ends."""

_WATCH: Final = """
CREATE TEMP TABLE moved (workflow TEXT, kind TEXT, what TEXT, before TEXT, after TEXT);
CREATE TEMP TRIGGER phase_made AFTER INSERT ON main.runs BEGIN
  INSERT INTO moved VALUES (NEW.workflow_id, 'status', NEW.id, NULL, NEW.status);
  INSERT INTO moved VALUES (NEW.workflow_id, 'phase', NEW.id, NULL, NEW.phase); END;
CREATE TEMP TRIGGER phase_moved AFTER UPDATE OF phase ON main.runs WHEN OLD.phase <> NEW.phase BEGIN
  INSERT INTO moved VALUES (NEW.workflow_id, 'phase', NEW.id, OLD.phase, NEW.phase); END;
CREATE TEMP TRIGGER status_moved AFTER UPDATE OF status ON main.runs WHEN OLD.status <> NEW.status BEGIN
  INSERT INTO moved VALUES (NEW.workflow_id, 'status', NEW.id, OLD.status, NEW.status); END;
CREATE TEMP TRIGGER mutation_made AFTER INSERT ON main.mutations BEGIN
  INSERT INTO moved VALUES (NEW.workflow_id, 'mutation', NEW.id, NULL, NEW.status); END;
CREATE TEMP TRIGGER mutation_moved AFTER UPDATE OF version ON main.mutations WHEN OLD.version <> NEW.version BEGIN
  INSERT INTO moved VALUES (NEW.workflow_id, 'mutation', NEW.id, OLD.status, NEW.status); END;
CREATE TEMP TRIGGER event_made AFTER INSERT ON main.events BEGIN
  INSERT INTO moved VALUES ((SELECT workflow_id FROM main.topics WHERE id = NEW.topic_id), 'event', NEW.id, NULL,
    NEW.status); END;
CREATE TEMP TRIGGER event_moved AFTER UPDATE OF status ON main.events WHEN OLD.status <> NEW.status BEGIN
  INSERT INTO moved VALUES ((SELECT workflow_id FROM main.topics WHERE id = NEW.topic_id), 'event', NEW.id, OLD.status,
    NEW.status); END;
CREATE TEMP TRIGGER workflow_made AFTER INSERT ON main.workflows BEGIN
  INSERT INTO moved VALUES (NEW.id, 'workflow', NEW.id, NULL, NEW.status); END;
CREATE TEMP TRIGGER workflow_moved AFTER UPDATE OF status ON main.workflows WHEN OLD.status <> NEW.status BEGIN
  INSERT INTO moved VALUES (NEW.id, 'workflow', NEW.id, OLD.status, NEW.status); END;
CREATE TEMP TRIGGER began_although_stopped AFTER INSERT ON main.runs WHEN EXISTS (
  SELECT 1 FROM main.workflows WHERE id = NEW.workflow_id AND (status <> 'active' OR error <> '' OR maintenance = 1))
BEGIN INSERT INTO moved VALUES (NEW.workflow_id, 'wrong', NEW.id, NULL, 'began in a workflow that is stopped'); END;
CREATE TEMP TRIGGER began_out_of_turn AFTER INSERT ON main.runs WHEN NEW.retry_of IS NULL AND EXISTS (
  SELECT 1 FROM main.workflows WHERE id = NEW.workflow_id AND pending_retry_run_id IS NOT NULL)
BEGIN INSERT INTO moved VALUES (NEW.workflow_id, 'wrong', NEW.id, NULL, 'began before the run that waits'); END;
CREATE TEMP TRIGGER began_too_soon AFTER INSERT ON main.runs WHEN EXISTS (
  SELECT 1 FROM main.handlers WHERE workflow_id = NEW.workflow_id AND name = NEW.handler AND retry_at > NEW.created_at)
BEGIN INSERT INTO moved VALUES (NEW.workflow_id, 'early', NEW.id, NULL, 'began before its handler tries again'); END;
"""


class Move(NamedTuple):
    """A row that a commit made, or whose state it changed."""

    workflow_id: str
    kind: str
    what: str
    before: str | None
    after: str


@cache
def _empty() -> bytes:
    """A database with its schema and nothing in it."""
    connection = apsw.Connection(":memory:")
    connection.execute(statements.text("schema.sql"))
    connection.execute(statements.queries()["insert_store"].sql, {"created_at": 0})
    return connection.serialize("main")


class Disk(PassingDatabase):
    """One database in memory. `trouble` is asked at every commit; `on_commit` is told of those that happened."""

    def __init__(self, clock: Now, trouble: Callable[[], Trouble], on_commit: Callable[[], None]) -> None:
        self.connection = apsw.Connection(":memory:", statementcachesize=512)
        self.connection.deserialize("main", _empty())
        self.connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        self.connection.pragma("foreign_keys", True)
        self.connection.execute(_WATCH)
        super().__init__(SqliteDatabase(self.connection, ":memory:"))
        self.store = Store(self, clock)
        self._trouble = trouble
        self._on_commit = on_commit
        self._now: Trouble = ""
        self._batch: Sequence[Operation[Any]] = ()
        self._limbo: Sequence[Operation[Any]] = ()

    def rows(self, sql: str, *params: Any) -> list[Row]:
        """Look, without asking anybody."""
        return self.connection.execute(sql, params).fetchall()

    def moves(self) -> list[Move]:
        """What has changed since this was asked the last time."""
        found = [Move(*row) for row in self.rows("SELECT * FROM temp.moved ORDER BY rowid")]
        self.connection.execute("DELETE FROM temp.moved")
        return found

    def after_the_end_of_a_process(self, *, comes_back: bool) -> None:
        """A commit of which nobody knew whether it failed is there after all, or is not."""
        limbo, self._limbo = self._limbo, ()
        if limbo and comes_back:
            trouble, self._trouble = self._trouble, lambda: ""
            self.commit_batch(limbo)
            self._trouble = trouble

    # What a process has of it.

    def commit_batch(self, batch: Sequence[Operation[Any]]) -> Sequence[OperationOutcome]:
        """Apply the batch, as `Store.commit` does."""
        self._batch = batch
        outcomes = self.store.commit(batch)
        self._on_commit()
        return outcomes

    def begin(self) -> Transaction:
        self._limbo = ()
        self._now = self._trouble()
        if self._now == "full":
            raise StorageUnavailable("simulated: the disk is full")
        tx = self._database.begin()
        return _Torn(tx) if self._now == "torn" else tx

    def commit(self) -> None:
        match self._now:
            case "failed":
                raise StorageUnavailable("simulated: the commit failed")
            case "lost":
                self._limbo = self._batch
                raise StorageLost("simulated: the commit failed, and nobody knows how")
            case "died":
                raise Died
        self._database.commit()


class DiskOfAProcess:
    """What a process is given."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def commit(self, batch: Sequence[Operation[Any]], /) -> Sequence[OperationOutcome]:
        return self._disk.commit_batch(batch)

    def reader(self) -> Reader:
        return self._disk.reader()


class _Torn:
    """A transaction in the middle of which the disk is full."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._writes = 0
        self.kept = tx.kept
        self.one, self.all, self.rows_changed = tx.one, tx.all, tx.rows_changed
        self.savepoint, self.release, self.undo = tx.savepoint, tx.release, tx.undo

    def run(self, query: str, params: SqlParams) -> None:
        self._writes += 1
        if self._writes > 2:
            raise StorageUnavailable("simulated: the disk is full now")
        self._tx.run(query, params)

    def run_each(self, query: str, params: Iterable[SqlParams]) -> None:
        for each in params:
            self.run(query, each)
