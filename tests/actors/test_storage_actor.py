import threading
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from keep_actors.host.storage_actor import StorageActor, StorageRef
from keep_actors.kernel import ActorDied, ActorError, ActorStopped, MailboxFull
from keep_actors.kernel.waiter import wake_up_caller
from keep_storage import Store
from keep_storage.errors import Reason, Rejected, StorageError, StorageLost, StorageUnavailable
from keep_storage.operations import CreateWorkflow, Done, Operation, OperationOutcome, OperationRefused

pytestmark = pytest.mark.anyio


class Note(Operation[str], frozen=True):
    """Answered with its text in capitals."""

    text: str


Commit = Callable[[Sequence[Note]], list[OperationOutcome]]


def ok(batch: Sequence[Note]) -> list[OperationOutcome]:
    return [Done(note.text.upper()) for note in batch]


def refuse_bad(batch: Sequence[Note]) -> list[OperationOutcome]:
    refused = OperationRefused(Rejected(Reason.ITEM_NOT_OPEN, "bad note"))
    return [refused if note.text == "bad" else Done(note.text.upper()) for note in batch]


def unavailable(batch: Sequence[Note]) -> list[OperationOutcome]:
    raise StorageUnavailable("disk full")


def lost(batch: Sequence[Note]) -> list[OperationOutcome]:
    raise StorageLost("disk gone")


def bug(batch: Sequence[Note]) -> list[OperationOutcome]:
    raise ZeroDivisionError


class Held:
    """A commit that stays in the thread until it is released. To be made inside the event loop."""

    def __init__(self, commit: Commit = ok) -> None:
        self.commit = commit
        self.begun = anyio.Event()
        self._call_soon = wake_up_caller()
        self.release = threading.Event()

    def __call__(self, batch: Sequence[Note]) -> list[OperationOutcome]:
        self._call_soon(self.begun.set)
        assert self.release.wait(timeout=60), "the test forgot to release the commit"
        return self.commit(batch)


class PlannedStore:
    """Follows its plan, one step per commit, and then says ok. `batches` has the texts that reached it."""

    def __init__(self, *plan: Commit) -> None:
        self.plan = list(plan)
        self.batches: list[list[str]] = []

    def commit(self, batch: Sequence[Operation[Any]]) -> list[OperationOutcome]:
        notes = [operation for operation in batch if isinstance(operation, Note)]
        self.batches.append([note.text for note in notes])
        commit = self.plan.pop(0) if self.plan else ok
        return commit(notes)


class Caller:
    """Applies one note in a task of its own and keeps what came back."""

    def __init__(self, ref: StorageRef, text: str) -> None:
        self.ref = ref
        self.text = text
        self.scope = anyio.CancelScope()
        self.result: str | Exception | None = None

    async def __call__(self) -> None:
        with self.scope:
            try:
                self.result = await self.ref.apply(Note(self.text))
            except (ActorError, StorageError, Rejected) as error:
                self.result = error


async def start_in_order(tasks: TaskGroup, ref: StorageRef, *texts: str) -> list[Caller]:
    callers = [Caller(ref, text) for text in texts]
    for caller in callers:
        tasks.start_soon(caller)
        await anyio.wait_all_tasks_blocked()
    return callers


def results(callers: Sequence[Caller]) -> list[str | Exception | None]:
    return [caller.result for caller in callers]


async def test_an_operation_is_answered_with_what_the_store_said() -> None:
    storage = StorageActor(PlannedStore())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(storage.run)

        assert await storage.ref.apply(Note("a")) == "A"

        storage.stop()


async def test_what_arrives_while_a_commit_runs_becomes_the_next_commit() -> None:
    held = Held()
    store = PlannedStore(held)
    storage = StorageActor(store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(storage.run)
        first = await start_in_order(tasks, storage.ref, "first")
        await held.begun.wait()
        rest = await start_in_order(tasks, storage.ref, *"abcdefghij")
        held.release.set()
        storage.stop()

    assert store.batches == [["first"], list("abcdefghij")]
    assert results(first) == ["FIRST"]
    assert results(rest) == list("ABCDEFGHIJ")
    assert (storage.commits, storage.operations) == (2, 11)


async def test_nothing_is_answered_before_its_commit_returned() -> None:
    held = Held()
    storage = StorageActor(PlannedStore(held))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(storage.run)
        (caller,) = await start_in_order(tasks, storage.ref, "a")
        await held.begun.wait()
        await anyio.wait_all_tasks_blocked()
        before = caller.result
        held.release.set()
        storage.stop()

    assert before is None
    assert caller.result == "A"


async def test_a_batch_has_at_most_batch_ops_max_operations() -> None:
    store = PlannedStore()
    storage = StorageActor(store, batch_ops_max=2)
    async with anyio.create_task_group() as tasks:
        callers = await start_in_order(tasks, storage.ref, *"abcde")
        storage.stop()
        tasks.start_soon(storage.run)

    assert store.batches == [["a", "b"], ["c", "d"], ["e"]]
    assert results(callers) == list("ABCDE")


async def test_a_refused_operation_hits_its_own_caller_only() -> None:
    storage = StorageActor(PlannedStore(refuse_bad))
    async with anyio.create_task_group() as tasks:
        callers = await start_in_order(tasks, storage.ref, "a", "bad", "b")
        storage.stop()
        tasks.start_soon(storage.run)

    first, bad, last = results(callers)
    assert (first, last) == ("A", "B")
    assert isinstance(bad, Rejected)
    assert bad.reason is Reason.ITEM_NOT_OPEN


async def test_a_failed_commit_is_told_to_every_caller_and_the_next_one_works() -> None:
    storage = StorageActor(PlannedStore(unavailable))
    async with anyio.create_task_group() as tasks:
        callers = await start_in_order(tasks, storage.ref, "a", "b")
        tasks.start_soon(storage.run)
        await anyio.wait_all_tasks_blocked()

        assert await storage.ref.apply(Note("c")) == "C"

        storage.stop()

    first, second = results(callers)
    assert isinstance(first, StorageUnavailable)
    assert isinstance(second, StorageUnavailable)
    assert str(first) == str(second) == "disk full"
    assert first is not second, "callers must not share an exception: each adds its own traceback"
    assert (storage.commits, storage.operations) == (1, 1)


async def test_a_lost_storage_is_told_as_such() -> None:
    storage = StorageActor(PlannedStore(lost))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(storage.run)

        with pytest.raises(StorageLost, match="disk gone"):
            await storage.ref.apply(Note("a"))

        storage.stop()


async def test_a_bug_in_the_store_ends_the_actor_and_leaves_the_outcome_open() -> None:
    held = Held(bug)
    storage = StorageActor(PlannedStore(held))
    ended_by: list[Exception] = []

    async def own() -> None:
        try:
            await storage.run()
        except ZeroDivisionError as error:
            ended_by.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(own)
        in_hand = await start_in_order(tasks, storage.ref, "a")
        await held.begun.wait()
        behind = await start_in_order(tasks, storage.ref, "b")
        held.release.set()

    assert isinstance(in_hand[0].result, ActorDied)
    assert in_hand[0].result.__cause__ is ended_by[0]
    assert isinstance(behind[0].result, ActorStopped)


async def test_a_cancelled_caller_leaves_its_operation_to_be_applied() -> None:
    held = Held()
    store = PlannedStore(held)
    storage = StorageActor(store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(storage.run)
        in_thread = await start_in_order(tasks, storage.ref, "first")
        await held.begun.wait()
        waiting = await start_in_order(tasks, storage.ref, "a", "b")
        in_thread[0].scope.cancel()
        waiting[0].scope.cancel()
        await anyio.wait_all_tasks_blocked()
        held.release.set()
        storage.stop()

    assert store.batches == [["first"], ["a", "b"]]
    assert results([*in_thread, *waiting]) == [None, None, "B"]


async def test_a_graceful_stop_commits_and_answers_everything_that_was_accepted() -> None:
    held = Held()
    store = PlannedStore(held)
    storage = StorageActor(store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(storage.run)
        first = await start_in_order(tasks, storage.ref, "first")
        await held.begun.wait()
        rest = await start_in_order(tasks, storage.ref, "a", "b")
        storage.stop()
        with pytest.raises(ActorStopped):
            await storage.ref.apply(Note("too late"))
        held.release.set()

    assert store.batches == [["first"], ["a", "b"]]
    assert results([*first, *rest]) == ["FIRST", "A", "B"]


async def test_cancellation_finishes_the_commit_in_the_thread_and_begins_no_other() -> None:
    held = Held()
    store = PlannedStore(held)
    storage = StorageActor(store)
    scope = anyio.CancelScope()

    async def own() -> None:
        with scope:
            await storage.run()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(own)
        in_thread = await start_in_order(tasks, storage.ref, "first")
        await held.begun.wait()
        behind = await start_in_order(tasks, storage.ref, "a", "b")
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
        held.release.set()

    assert store.batches == [["first"]]
    assert results(in_thread) == ["FIRST"]
    assert [type(result) for result in results(behind)] == [ActorStopped, ActorStopped]


async def test_a_full_mailbox_is_raised_to_the_caller_and_the_others_are_served() -> None:
    store = PlannedStore()
    storage = StorageActor(store, mailbox_capacity=2)
    async with anyio.create_task_group() as tasks:
        callers = await start_in_order(tasks, storage.ref, "a", "b")
        with pytest.raises(MailboxFull, match="'storage'"):
            await storage.ref.apply(Note("c"))
        storage.stop()
        tasks.start_soon(storage.run)

    assert store.batches == [["a", "b"]]
    assert results(callers) == ["A", "B"]


async def test_it_serves_the_real_store() -> None:
    with Store.in_memory() as store:
        storage = StorageActor(store)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(storage.run)

            workflow = await storage.ref.apply(CreateWorkflow("wf_1", "Mail"))
            with pytest.raises(Rejected) as rejected:
                await storage.ref.apply(CreateWorkflow("wf_1", "Mail"))

            storage.stop()

    assert workflow.name == "Mail"
    assert rejected.value.reason is Reason.ID_TAKEN
