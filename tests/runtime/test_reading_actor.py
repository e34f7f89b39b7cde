"""Reads away from the event loop: batched, of one moment, of all that was committed before, and each for itself."""

import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from keep_actors.host.reading_actor import ReadingActor, ReadingRef
from keep_actors.host.storage_actor import StorageActor
from keep_actors.kernel import ActorStopped, Thread, WorkerThread
from keep_storage import Store, reads
from keep_storage.errors import StorageUnavailable
from keep_storage.operations import CreateWorkflow
from keep_storage.transaction import Queries, Reader

pytestmark = pytest.mark.anyio

A = TypeVarTuple("A")
R = TypeVar("R")


class Gate:
    """A thread that does not begin before it is let. Counts what it was given."""

    def __init__(self) -> None:
        self.opened = anyio.Event()
        self.calls = 0

    async def run(self, function: Callable[[*A], R], *arguments: *A) -> R:
        self.calls += 1
        await self.opened.wait()
        return function(*arguments)


class Unsteady:
    """A real reader whose next moments cannot be begun."""

    def __init__(self, reader: Reader, failures: int) -> None:
        self.failures = failures
        self.one = reader.one
        self.all = reader.all
        self.kept = reader.kept
        self.close = reader.close
        self._reader = reader

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        if self.failures:
            self.failures -= 1
            raise StorageUnavailable("the disk failed to read")
        with self._reader.snapshot():
            yield


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "keep.db") as opened:
        yield opened


@asynccontextmanager
async def reading(reader: Reader, thread: Thread | None = None) -> AsyncIterator[ReadingRef]:
    """An actor that reads for the block."""
    actor = ReadingActor(reader, thread=thread)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(actor.run)
        yield actor.ref
        actor.stop()
    reader.close()


def create(store: Store, *ids: str) -> None:
    for outcome in store.commit([CreateWorkflow(each, each) for each in ids]):
        outcome.unwrap()


def known(q: Queries) -> list[str]:
    return [workflow.id for workflow in reads.workflows(q)]


class Asker:
    """Reads in a task of its own, and keeps what came back."""

    def __init__(self, ref: ReadingRef, function: Callable[[Queries], Any]) -> None:
        self.scope = anyio.CancelScope()
        self.result: object = None
        self._ref = ref
        self._function = function

    async def __call__(self) -> None:
        with self.scope:
            try:
                self.result = await self._ref.read(self._function)
            except (ArithmeticError, LookupError, StorageUnavailable, ActorStopped) as error:
                self.result = error


async def ask(tasks: TaskGroup, ref: ReadingRef, *functions: Callable[[Queries], Any]) -> list[Asker]:
    """They ask one after the other."""
    askers = [Asker(ref, function) for function in functions]
    for asker in askers:
        tasks.start_soon(asker)
        await anyio.wait_all_tasks_blocked()
    return askers


async def test_a_read_is_answered_with_what_its_function_returned(store: Store) -> None:
    create(store, "wf_1")
    async with reading(store.reader()) as ref:
        assert await ref.read(known) == ["wf_1"]
        assert await ref.read(lambda q: reads.workflow(q, "wf_2")) is None


async def test_what_was_committed_before_it_was_asked_is_seen(store: Store) -> None:
    async with reading(store.reader()) as ref:
        for number in range(1, 21):
            create(store, f"wf_{number:02}")
            assert len(await ref.read(known)) == number


async def test_a_read_that_was_asked_while_another_was_under_way_sees_what_was_committed_meanwhile(
    store: Store,
) -> None:
    gate = Gate()
    async with reading(store.reader(), gate) as ref, anyio.create_task_group() as tasks:
        await ask(tasks, ref, known)
        create(store, "wf_1")
        [later] = await ask(tasks, ref, known)
        gate.opened.set()
        await anyio.wait_all_tasks_blocked()
        assert later.result == ["wf_1"]


async def test_what_is_asked_meanwhile_crosses_as_one_batch_in_order(store: Store) -> None:
    gate, order = Gate(), list[int]()

    def note(number: int) -> Callable[[Queries], int]:
        def function(_: Queries) -> int:
            order.append(number)
            return number

        return function

    async with reading(store.reader(), gate) as ref, anyio.create_task_group() as tasks:
        askers = await ask(tasks, ref, *map(note, range(6)))
        assert gate.calls == 1
        gate.opened.set()
        await anyio.wait_all_tasks_blocked()
        assert gate.calls == 2
    assert [asker.result for asker in askers] == order == list(range(6))


async def test_every_read_of_a_batch_sees_the_same_moment(store: Store) -> None:
    gate = Gate()

    def look_and_write(q: Queries) -> list[str]:
        found = known(q)
        create(store, "wf_meanwhile")
        return found

    async with reading(store.reader(), gate) as ref, anyio.create_task_group() as tasks:
        _, first, second = await ask(tasks, ref, known, look_and_write, known)
        gate.opened.set()
        await anyio.wait_all_tasks_blocked()
        assert (first.result, second.result) == ([], [])
        assert await ref.read(known) == ["wf_meanwhile"]


async def test_a_read_that_fails_concerns_nobody_but_its_asker(store: Store) -> None:
    create(store, "wf_1")
    gate = Gate()

    def bad(q: Queries) -> list[str]:
        known(q)
        raise ZeroDivisionError("a bug of the asker")

    def missing(q: Queries) -> Any:
        return q.one("no such query", {})

    async with reading(store.reader(), gate) as ref, anyio.create_task_group() as tasks:
        _, before, one, other, after = await ask(tasks, ref, known, known, bad, missing, known)
        gate.opened.set()
        await anyio.wait_all_tasks_blocked()
        assert (before.result, after.result) == (["wf_1"], ["wf_1"])
        assert isinstance(one.result, ZeroDivisionError)
        assert isinstance(other.result, KeyError)
        assert await ref.read(known) == ["wf_1"]


async def test_a_moment_that_cannot_be_read_is_told_to_each_of_the_batch_and_the_next_one_is_tried(
    store: Store,
) -> None:
    create(store, "wf_1")
    gate, reader = Gate(), Unsteady(store.reader(), failures=2)
    async with reading(reader, gate) as ref, anyio.create_task_group() as tasks:
        askers = await ask(tasks, ref, known, known, known)
        gate.opened.set()
        await anyio.wait_all_tasks_blocked()
        assert await ref.read(known) == ["wf_1"]
    errors = [asker.result for asker in askers]
    assert [type(error) for error in errors] == [StorageUnavailable] * 3
    assert len({id(error) for error in errors}) == 3, "an exception belongs to who raises it"


async def test_one_who_gives_up_spoils_nothing(store: Store) -> None:
    create(store, "wf_1")
    gate = Gate()
    async with reading(store.reader(), gate) as ref, anyio.create_task_group() as tasks:
        first, second, third = await ask(tasks, ref, known, known, known)
        first.scope.cancel()
        second.scope.cancel()
        await anyio.wait_all_tasks_blocked()
        gate.opened.set()
        await anyio.wait_all_tasks_blocked()
        assert (first.result, second.result, third.result) == (None, None, ["wf_1"])


async def test_a_crowd_is_answered_in_batches_each_with_its_own(store: Store) -> None:
    gate = Gate()

    def number(n: int) -> Callable[[Queries], int]:
        return lambda _: n

    async with reading(store.reader(), gate) as ref, anyio.create_task_group() as tasks:
        askers = [Asker(ref, number(n)) for n in range(600)]
        for asker in askers:
            tasks.start_soon(asker)
        await anyio.wait_all_tasks_blocked()
        gate.opened.set()
        await anyio.wait_all_tasks_blocked()
        assert [asker.result for asker in askers] == list(range(600))
        assert 3 <= gate.calls <= 4


async def test_what_is_asked_before_it_stops_is_answered_and_nothing_after(store: Store) -> None:
    async with reading(store.reader(), Gate()) as ref:
        pass
    with pytest.raises(ActorStopped):
        await ref.read(known)


async def test_a_database_in_memory_is_read_and_written_in_turns() -> None:
    rng = random.Random(3)
    counts: list[int] = []
    with Store.in_memory() as store:
        thread = WorkerThread()
        storage = StorageActor(store, thread=thread)
        async with anyio.create_task_group() as tasks, reading(store.reader(), thread) as ref:
            tasks.start_soon(storage.run)

            async def write(number: int) -> None:
                await storage.ref.apply(CreateWorkflow(f"wf_{number}", "one of many"))
                counts.append(len(await ref.read(known)))

            async with anyio.create_task_group() as writers:
                for number in rng.sample(range(60), 60):
                    writers.start_soon(write, number)
                    if rng.random() < 0.5:
                        await checkpoint()
            assert len(await ref.read(known)) == 60
            storage.stop()
    assert counts == sorted(counts)
    assert min(counts) >= 1
