"""Many operations in one commit: one outcome each, all or nothing where that was asked for, and a journal of it."""

from typing import Any

import pytest

from keep_storage import Reason, Rejected, StorageUnavailable, Store, Together
from keep_storage.operations import (
    CreateSession,
    CreateWorkflow,
    Done,
    Operation,
    OperationRefused,
    PauseWorkflow,
    PublishEvents,
)
from keep_storage.sqlite import SqliteDatabase
from keep_storage.transaction import SqlParams, Transaction
from tests.passing import PassingDatabase
from tests.storage.world import WORKFLOW, CountingClock, World


def publish(world: World, message_id: str) -> PublishEvents:
    return PublishEvents(WORKFLOW, (world.mail(message_id),))


def test_a_batch_gives_one_outcome_per_operation_in_order(world: World) -> None:
    outcomes = world.store.commit([publish(world, "m1"), PauseWorkflow("wf_none"), publish(world, "m2")])

    first, second, third = outcomes
    assert isinstance(first, Done)
    assert isinstance(second, OperationRefused)
    assert isinstance(second.error, Rejected)
    assert second.error.reason is Reason.WORKFLOW_NOT_FOUND
    assert isinstance(third, Done)
    assert world.states() == {"m1": "pending", "m2": "pending"}, "the others are untouched"


def test_later_operations_of_a_batch_see_what_earlier_ones_did(world: World) -> None:
    first, second = world.store.commit([CreateSession("ses_1", WORKFLOW), CreateSession("ses_2", WORKFLOW)])
    assert isinstance(first, Done)
    assert isinstance(second, OperationRefused)


def test_an_operation_that_raises_in_the_middle_is_undone_alone(world: World) -> None:
    bug = PublishEvents(WORKFLOW, (world.mail("half"), world.mail("other", payload=object())))  # type: ignore[arg-type]

    good, bad, also_good = world.store.commit([publish(world, "m1"), bug, publish(world, "m2")])

    assert isinstance(bad, OperationRefused)
    assert not isinstance(bad.error, Rejected)
    assert (type(good), type(also_good)) == (Done, Done)
    assert world.states() == {"m1": "pending", "m2": "pending"}


REFUSED_AT_ONCE = CreateSession("ses_2", "wf_none")
REFUSED_HALF_DONE = Together((CreateWorkflow("wf_half", "half"), REFUSED_AT_ONCE))


@pytest.mark.parametrize("bad", [REFUSED_AT_ONCE, REFUSED_HALF_DONE], ids=["at once", "half done"])
def test_a_refusal_changes_nothing_about_the_others_of_its_batch(world: World, bad: Operation[Any]) -> None:
    good: list[Operation[Any]] = [publish(world, "m1"), CreateSession("ses_1", WORKFLOW), PauseWorkflow(WORKFLOW)]
    other = World(Store(SqliteDatabase.open(":memory:", now=0), CountingClock()))
    alone = other.store.commit(good)

    first, refused, *others = world.store.commit([good[0], bad, *good[1:]])

    assert isinstance(refused, OperationRefused)
    assert [first, *others] == alone, "the same answers, with the same times"
    assert world.journal() == other.journal(), "the same entries, under the same numbers"
    other.store.close()


def test_savepoints_are_made_only_for_a_batch_of_which_something_must_be_undone() -> None:
    database = Watched()
    store = Store(database, lambda: 0)
    store.commit([CreateWorkflow("wf_1", "one"), CreateWorkflow("wf_2", "two")])
    assert database.said == ["begin", "commit"]

    database.said.clear()
    store.commit([CreateWorkflow("wf_3", "three"), REFUSED_AT_ONCE])
    assert database.said == ["begin", "commit"]

    database.said.clear()
    store.commit([CreateWorkflow("wf_4", "four"), REFUSED_HALF_DONE])
    again = ["begin", "savepoint", "release", "savepoint", "undo", "commit"]
    assert database.said == ["begin", "rollback", *again]
    store.close()


def test_a_disk_that_fails_in_the_first_try_fails_the_batch_without_a_second() -> None:
    database = Watched(is_full=True)
    store = Store(database, lambda: 0)
    with pytest.raises(StorageUnavailable):
        store.commit([CreateWorkflow("wf_1", "one")])
    assert database.said == ["begin", "rollback"]
    store.close()


def test_what_a_failed_batch_would_have_changed_is_not_believed() -> None:
    database = Watched()
    store = Store(database, lambda: 0)
    store.commit([CreateWorkflow("wf_1", "one"), CreateSession("ses_1", "wf_1")])
    database.is_full = True
    with pytest.raises(StorageUnavailable):
        store.commit([CreateSession("ses_2", "wf_1"), CreateWorkflow("wf_2", "two")])
    assert list(store.queries().kept.all()) == []
    store.close()


def test_an_empty_batch_is_nothing(world: World) -> None:
    assert world.store.commit([]) == []


def test_together_is_all_or_nothing(world: World) -> None:
    both: Operation[tuple[object, ...]] = Together((publish(world, "m1"), PauseWorkflow("wf_none")))
    with pytest.raises(Rejected):
        world.model.execute(both)
    assert world.states() == {}

    answers = world.model.execute(Together((publish(world, "m1"), PauseWorkflow(WORKFLOW))))
    assert len(answers) == 2
    assert (world.states(), world.workflow().status) == ({"m1": "pending"}, "paused")


def test_every_operation_leaves_one_journal_entry_and_a_refused_one_none(world: World) -> None:
    before = len(world.journal())
    world.store.commit([publish(world, "m1"), PauseWorkflow("wf_none"), PauseWorkflow(WORKFLOW, by="ada")])
    entries = world.journal()[before:]
    assert [entry.operation for entry in entries] == ["publish_events", "pause_workflow"]
    assert entries[1].changed == '{"status":["active","paused"],"by":"ada"}'


class Watched(PassingDatabase):
    """A database in memory that says how its transactions go."""

    def __init__(self, *, is_full: bool = False) -> None:
        super().__init__(SqliteDatabase.open(":memory:", now=0))
        self.said: list[str] = []
        self.is_full = is_full

    def begin(self) -> Transaction:
        self.said.append("begin")
        return WatchedTransaction(self._database.begin(), self.said, is_full=self.is_full)

    def commit(self) -> None:
        self.said.append("commit")
        self._database.commit()

    def rollback(self) -> None:
        self.said.append("rollback")
        self._database.rollback()


class WatchedTransaction:
    def __init__(self, tx: Transaction, said: list[str], *, is_full: bool) -> None:
        self._tx = tx
        self._said = said
        self._is_full = is_full
        self.one, self.all, self.rows_changed = tx.one, tx.all, tx.rows_changed
        self.run_each, self.kept = tx.run_each, tx.kept

    def run(self, query: str, params: SqlParams) -> None:
        if self._is_full:
            raise StorageUnavailable("the disk is full")
        self._tx.run(query, params)

    def savepoint(self) -> None:
        self._said.append("savepoint")
        self._tx.savepoint()

    def release(self) -> None:
        self._said.append("release")
        self._tx.release()

    def undo(self) -> None:
        self._said.append("undo")
        self._tx.undo()
