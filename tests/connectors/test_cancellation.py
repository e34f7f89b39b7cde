"""Time limits and cancellation: the host may give up, and then nobody claims to know."""

import asyncio

import anyio
import anyio.lowlevel
import pytest

from keep_actors.connectors import (
    Answer,
    Applied,
    Failed,
    Happened,
    Method,
    Retry,
    Transient,
    Unknown,
)
from keep_storage.model import FailureClass
from tests.connectors.world import Receipt, Step, mutation_call, nothing, planned, raising, read_call

pytestmark = pytest.mark.anyio

LONG = 60_000
RECEIPT = Receipt("r1")


async def hang() -> object:
    await anyio.sleep_forever()
    raise AssertionError


async def hang_and_promise() -> object:
    """Takes every way of ending for a failure that changed nothing."""
    try:
        await anyio.sleep_forever()
    except BaseException:
        raise Transient("surely nothing happened") from None
    raise AssertionError


async def finish_regardless() -> object:
    with anyio.CancelScope(shield=True):
        await anyio.lowlevel.checkpoint()
    return RECEIPT


@pytest.mark.parametrize("step", [hang, hang_and_promise])
async def test_a_call_that_takes_too_long_is_given_up(step: Step) -> None:
    look, act = planned("look", step), planned("act", step)
    late = Failed(FailureClass.TRANSIENT, "no answer within 1 ms")
    assert await look.read(nothing(look), read_call(), 1) == late
    assert await act.mutate(nothing(act), mutation_call(), 1) == Unknown("no answer within 1 ms")
    assert await act.reconcile(mutation_call(), 1) == Retry("no answer within 1 ms")


async def test_a_result_counts_even_when_it_comes_late() -> None:
    look, act = planned("look", finish_regardless), planned("act", finish_regardless)
    assert await look.read(nothing(look), read_call(), 0) == Answer('{"rowId":"r1"}')
    assert await act.mutate(nothing(act), mutation_call(), 0) == Happened('{"rowId":"r1"}')


class Caller:
    """Makes one call in a task of its own, and keeps what came of it."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.outcome: object = None
        self.cancelled = False

    async def make(self, kind: str, method: Method) -> None:
        with self.scope:
            try:
                match kind:
                    case "look":
                        self.outcome = await method.read(nothing(method), read_call(), LONG)
                    case "act":
                        self.outcome = await method.mutate(nothing(method), mutation_call(), LONG)
                    case _:
                        self.outcome = await method.reconcile(mutation_call(), LONG)
            except anyio.get_cancelled_exc_class():
                self.cancelled = True
                raise


@pytest.mark.parametrize("step", [hang, hang_and_promise])
@pytest.mark.parametrize("kind", ["look", "act", "reconcile"])
async def test_a_cancellation_from_outside_goes_on_whatever_the_connector_makes_of_it(kind: str, step: Step) -> None:
    begun = anyio.Event()

    async def begin() -> object:
        begun.set()
        return await step()

    caller = Caller()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(caller.make, kind, planned("look" if kind == "look" else "act", begin))
        await begun.wait()
        caller.scope.cancel()
    assert caller.cancelled
    assert caller.outcome is None


async def test_a_result_that_a_cancelled_call_still_brought_is_not_thrown_away() -> None:
    act = planned("act", finish_regardless)
    with anyio.CancelScope() as scope:
        scope.cancel()
        outcome = await act.mutate(nothing(act), mutation_call(), LONG)
        assert outcome == Happened('{"rowId":"r1"}')


class Halt(BaseException):
    """Not an `Exception`: meant for somebody further out."""


async def test_what_is_no_ordinary_exception_goes_through() -> None:
    look, act = planned("look", raising(Halt())), planned("act", raising(Halt()))
    with pytest.raises(Halt):
        await look.read(nothing(look), read_call(), LONG)
    with pytest.raises(Halt):
        await act.mutate(nothing(act), mutation_call(), LONG)
    with pytest.raises(Halt):
        await act.reconcile(mutation_call(), LONG)


async def test_a_found_effect_counts_even_when_the_search_was_slow() -> None:
    async def find() -> object:
        await finish_regardless()
        return Applied(RECEIPT)

    assert await planned("act", find).reconcile(mutation_call(), 0) == Applied('{"rowId":"r1"}')


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancellation_that_nobody_asked_for_is_an_error_of_the_connector() -> None:
    # Only asyncio lets code raise one by itself: a client that cancelled a task of its own, and awaited it.
    stray = raising(asyncio.CancelledError())
    look, act = planned("look", stray), planned("act", stray)
    failed = await look.read(nothing(look), read_call(), LONG)
    assert isinstance(failed, Failed)
    assert failed.cls is FailureClass.INTERNAL
    assert "cancelled" in failed.message
    assert isinstance(await act.mutate(nothing(act), mutation_call(), LONG), Unknown)
    assert isinstance(await act.reconcile(mutation_call(), LONG), Retry)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_group_of_errors_and_cancellations_of_the_connectors_own_is_an_error() -> None:
    """Trio lets nobody make a cancellation of their own."""

    async def mixed() -> object:
        raise BaseExceptionGroup("mixed", [asyncio.CancelledError(), OSError("no")])

    act = planned("act", mixed)
    assert isinstance(await act.mutate(nothing(act), mutation_call(), LONG), Unknown)


async def test_an_interrupt_in_a_group_is_nobodys_failure() -> None:
    async def interrupted() -> object:
        raise BaseExceptionGroup("mixed", [KeyboardInterrupt(), OSError("no")])

    act = planned("act", interrupted)
    with pytest.raises(BaseExceptionGroup):
        await act.mutate(nothing(act), mutation_call(), LONG)
