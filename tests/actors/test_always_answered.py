"""Random plans of asking, giving up, stopping, cancelling, raising: nobody waits for ever, no error lies."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, TypeVarTuple

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from keep_actors.host.storage_actor import StorageActor
from keep_actors.kernel import Actor, ActorDied, ActorError, ActorStopped, AskTimeout, MailboxFull, Question
from keep_storage.errors import StorageError, StorageLost, StorageUnavailable
from keep_storage.operations import Done, Operation, OperationOutcome, OperationRefused
from tests.actors.workplace import Boom

pytestmark = pytest.mark.anyio

A = TypeVarTuple("A")
R = TypeVar("R")


class Ask:
    """One asker in a task of its own: what it asked, and what came back."""

    def __init__(self, subject: object, send: Callable[[], Awaitable[object]]) -> None:
        self.subject = subject
        self.send = send
        self.scope = anyio.CancelScope()
        self.outcome: type | None = None
        """`Done`, or the class of the error; None for an asker that was cancelled."""

    async def __call__(self) -> None:
        with self.scope:
            try:
                await self.send()
                self.outcome = Done
            except (ActorError, StorageError, Boom) as error:
                self.outcome = type(error)


async def play(
    actor: Actor[Any], steps: Sequence[str], ending: str, ask: Callable[[str], Ask], free: Callable[[], None]
) -> list[Ask]:
    """Carry out the plan against the actor and end it. Returns when everybody has an answer, or fails."""
    asks: list[Ask] = []
    scope = anyio.CancelScope()

    async def own() -> None:
        with scope, suppress(Boom):
            await actor.run()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for step in [*steps, ending, "free", "stop"]:
                match step:
                    case "start":
                        tasks.start_soon(own)
                    case "turn":
                        await checkpoint()
                    case "free":
                        free()
                    case "give up":
                        give_up(asks[::2])
                    case "stop":
                        actor.stop()
                    case "cancel":
                        scope.cancel()
                    case _:
                        asks.append(ask(step))
                        tasks.start_soon(asks[-1])
    return asks


def give_up(asks: Sequence[Ask]) -> None:
    for ask in asks:
        ask.scope.cancel()


def plans(*kinds: str) -> st.SearchStrategy[list[str]]:
    """Plans in which the actor starts at any point and anything happens before and after."""
    step = st.sampled_from([*kinds, "free", "give up", "stop", "cancel", "turn", "turn", "turn"])
    part = st.lists(step, max_size=20)
    return st.tuples(part, part).map(lambda parts: [*parts[0], "start", *parts[1]])


class Do(Question[None]):
    def __init__(self, what: str) -> None:
        self.what = what


class Obedient(Actor[Do]):
    """Does what each message says."""

    def __init__(self) -> None:
        super().__init__("obedient", mailbox_capacity=6)
        self.received: list[object] = []
        self.kept: list[Do] = []
        self.freedom = anyio.Event()

    async def receive(self, message: Do) -> None:
        self.received.append(message)
        match message.what:
            case "keep":
                self.kept.append(message)
            case "forget":
                pass
            case "refuse":
                message.fail(Boom())
            case "raise":
                raise Boom
            case "hold":
                await self.freedom.wait()
                message.answer(None)
            case _:
                message.answer(None)
                while self.kept:
                    self.kept.pop().answer(None)


@given(
    steps=plans("answer", "answer", "hurry", "keep", "forget", "refuse", "raise", "hold"),
    ending=st.sampled_from(["stop", "cancel", "raise"]),
)
@settings(max_examples=200, deadline=None)
async def test_no_ask_is_left_unanswered_whatever_happens_to_an_actor(steps: list[str], ending: str) -> None:
    actor = Obedient()

    def ask(what: str) -> Ask:
        question = Do(what)
        timeout_ms = 0 if what == "hurry" else None
        return Ask(question, lambda: actor.ref.ask(question, timeout_ms=timeout_ms))

    asks = await play(actor, steps, ending, ask, free=actor.freedom.set)

    for one in asks:
        times = sum(message is one.subject for message in actor.received)
        if one.outcome in (Done, Boom, ActorDied):
            assert times == 1
        elif one.outcome in (ActorStopped, MailboxFull):
            assert times == 0
        else:
            assert one.outcome is AskTimeout or one.scope.cancelled_caught
            assert times <= 1


class Write(Operation[None], frozen=True, eq=False):
    what: str


class ObedientStore:
    """Does what the first operation of a batch says about the commit, and each about itself."""

    def __init__(self) -> None:
        self.durable: list[object] = []

    def commit(self, batch: Sequence[Operation[Any]]) -> list[OperationOutcome]:
        writes = [operation for operation in batch if isinstance(operation, Write)]
        if writes[0].what == "unavailable":
            raise StorageUnavailable("nothing happened")
        accepted = [write for write in writes if write.what != "refuse"]
        self.durable.extend(accepted)
        if writes[0].what == "lost":
            raise StorageLost("who knows")
        if writes[0].what == "raise":
            raise Boom
        return [Done(None) if write in accepted else OperationRefused(Boom()) for write in writes]


class TurnsInsteadOfAThread:
    """A thread that hypothesis can repeat: the call takes some turns of the event loop."""

    def __init__(self, turns: int) -> None:
        self.turns = turns

    async def run(self, function: Callable[[*A], R], *arguments: *A) -> R:
        with anyio.CancelScope(shield=True):
            for _ in range(self.turns):
                await checkpoint()
        return function(*arguments)


@given(
    steps=plans("write", "write", "write", "refuse", "unavailable", "lost", "raise"),
    ending=st.sampled_from(["stop", "cancel", "raise"]),
    turns=st.integers(0, 4),
    batch_ops_max=st.integers(1, 4),
)
@settings(max_examples=200, deadline=None)
async def test_no_operation_is_left_unanswered_and_every_answer_is_true(
    steps: list[str], ending: str, turns: int, batch_ops_max: int
) -> None:
    store = ObedientStore()
    actor = StorageActor(store, mailbox_capacity=6, batch_ops_max=batch_ops_max, thread=TurnsInsteadOfAThread(turns))

    def ask(what: str) -> Ask:
        write = Write(what)
        return Ask(write, lambda: actor.ref.apply(write))

    asks = await play(actor, steps, ending, ask, free=lambda: None)

    for one in asks:
        times = sum(write is one.subject for write in store.durable)
        if one.outcome is Done:
            assert times == 1
        elif one.outcome in (Boom, StorageUnavailable, ActorStopped, MailboxFull):
            assert times == 0
        else:
            assert one.outcome in (StorageLost, ActorDied) or one.scope.cancelled_caught
            assert times <= 1
