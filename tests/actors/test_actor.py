"""A counter that can be told to do everything an actor may do, and everything that may go wrong with it."""

import gc
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from keep_actors.kernel import (
    Actor,
    ActorDied,
    ActorError,
    ActorRef,
    ActorStopped,
    AskTimeout,
    MailboxFull,
    Question,
)
from tests.actors.workplace import Boom

pytestmark = pytest.mark.anyio


@dataclass
class Add(Question[int]):
    """Answered with the new total."""

    amount: int


class Keep(Question[int]):
    """Answered by `Release`, in a later turn."""


class Release:
    pass


class Ignore(Question[int]):
    """Never answered."""


class Refuse(Question[int]):
    pass


class Crash(Question[int]):
    pass


@dataclass
class Hold(Question[int]):
    """Stays in hand until `release` is set."""

    begun: anyio.Event = field(default_factory=anyio.Event)
    release: anyio.Event = field(default_factory=anyio.Event)


Message = Add | Keep | Release | Ignore | Refuse | Crash | Hold


class Counter(Actor[Message]):
    def __init__(self, *, mailbox_capacity: int = 100) -> None:
        super().__init__("counter", mailbox_capacity=mailbox_capacity)
        self.total = 0
        self.kept: list[Keep] = []
        self.received: list[Message] = []
        self.ended = anyio.Event()
        self.error: Exception | None = None
        self.scope = anyio.CancelScope()

    async def receive(self, message: Message) -> None:
        self.received.append(message)
        match message:
            case Add(amount=amount):
                self.total += amount
                message.answer(self.total)
            case Keep():
                self.kept.append(message)
            case Release():
                while self.kept:
                    self.kept.pop().answer(self.total)
            case Ignore():
                pass
            case Refuse():
                message.fail(Boom("refused"))
            case Crash():
                raise Boom("crashed")
            case Hold():
                message.begun.set()
                await message.release.wait()
                message.answer(self.total)
            case _:
                assert_never(message)

    async def run_to_its_end(self) -> None:
        """Play the owner: run, and keep what came out of it."""
        try:
            with self.scope:
                await self.run()
        except Boom as error:
            self.error = error
        self.ended.set()


class Asker:
    """Asks one question in a task of its own and keeps what came back."""

    def __init__(self, ref: ActorRef[Message], question: Question[int], timeout_ms: int | None = None) -> None:
        self.ref = ref
        self.question = question
        self.timeout_ms = timeout_ms
        self.scope = anyio.CancelScope()
        self.result: int | Exception | None = None

    async def __call__(self) -> None:
        with self.scope:
            try:
                self.result = await self.ref.ask(self.question, timeout_ms=self.timeout_ms)
            except (ActorError, Boom) as error:
                self.result = error


async def start_in_order(tasks: TaskGroup, askers: Iterable[Asker]) -> None:
    for asker in askers:
        tasks.start_soon(asker)
        await anyio.wait_all_tasks_blocked()


async def test_an_ask_returns_the_answer() -> None:
    counter = Counter()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(counter.run)

        assert await counter.ref.ask(Add(3)) == 3
        assert await counter.ref.ask(Add(4)) == 7

        counter.stop()


async def test_what_was_told_before_is_processed_before() -> None:
    counter = Counter()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(counter.run)
        counter.ref.tell(Add(1))
        counter.ref.tell(Add(2))

        assert await counter.ref.ask(Add(4)) == 7

        counter.stop()


async def test_what_is_sent_before_the_actor_runs_waits_for_it() -> None:
    counter = Counter()
    counter.ref.tell(Add(1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(counter.run)

        assert await counter.ref.ask(Add(1)) == 2

        counter.stop()


async def test_an_answer_may_come_in_a_later_turn() -> None:
    counter = Counter()
    keeper = Asker(counter.ref, Keep())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(counter.run)
        tasks.start_soon(keeper)
        await anyio.wait_all_tasks_blocked()
        await counter.ref.ask(Add(5))
        counter.ref.tell(Release())
        counter.stop()

    assert keeper.result == 5


async def test_an_error_given_as_an_answer_is_raised_in_the_asker_and_the_actor_goes_on() -> None:
    counter = Counter()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(counter.run)

        with pytest.raises(Boom, match="refused"):
            await counter.ref.ask(Refuse())
        assert await counter.ref.ask(Add(1)) == 1

        counter.stop()


async def test_an_error_that_was_handled_is_freed_without_the_garbage_collector() -> None:
    counter = Counter()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(counter.run)
        handled: list[weakref.ref[Boom]] = []
        gc.disable()
        try:
            await counter.ref.ask(Refuse())
        except Boom as error:
            handled.append(weakref.ref(error))
        finally:
            gc.enable()

        assert [error() for error in handled] == [None]

        counter.stop()


async def test_when_the_body_raises_the_asker_in_hand_learns_that_the_actor_died_and_why() -> None:
    counter = Counter()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(counter.run_to_its_end)

        with pytest.raises(ActorDied, match=r"'counter'.*may have been processed.*Read what it did") as died:
            await counter.ref.ask(Crash())

    assert isinstance(died.value.__cause__, Boom)


async def test_when_the_body_raises_the_exception_leaves_run_unchanged() -> None:
    counter = Counter()
    counter.ref.tell(Crash())

    with pytest.raises(Boom, match="crashed"):
        await counter.run()


async def test_when_the_body_raises_what_was_not_taken_yet_is_answered_as_not_processed() -> None:
    counter = Counter()
    askers = [Asker(counter.ref, question) for question in (Crash(), Add(1), Add(2))]
    async with anyio.create_task_group() as tasks:
        await start_in_order(tasks, askers)
        tasks.start_soon(counter.run_to_its_end)

    crashed, *others = [asker.result for asker in askers]
    assert isinstance(crashed, ActorDied)
    for result in others:
        assert isinstance(result, ActorStopped)
        assert isinstance(result.__cause__, Boom)
    assert counter.total == 0


async def test_when_the_body_raises_a_question_kept_for_later_is_answered_too() -> None:
    counter = Counter()
    keeper = Asker(counter.ref, Keep())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(counter.run_to_its_end)
        tasks.start_soon(keeper)
        await anyio.wait_all_tasks_blocked()
        counter.ref.tell(Crash())

    assert isinstance(keeper.result, ActorDied)


async def test_each_asker_gets_an_exception_of_its_own() -> None:
    counter = Counter()
    askers = [Asker(counter.ref, Add(1)) for _ in range(2)]
    async with anyio.create_task_group() as tasks:
        counter.ref.tell(Crash())
        await start_in_order(tasks, askers)
        tasks.start_soon(counter.run_to_its_end)

    assert askers[0].result is not askers[1].result


async def test_nothing_is_accepted_after_a_crash() -> None:
    counter = Counter()
    counter.ref.tell(Crash())
    await counter.run_to_its_end()

    with pytest.raises(ActorStopped):
        counter.ref.tell(Add(1))
    with pytest.raises(ActorStopped):
        await counter.ref.ask(Add(1))


async def test_a_graceful_stop_processes_what_is_in_the_mailbox_first() -> None:
    counter = Counter()
    askers = [Asker(counter.ref, Add(1)) for _ in range(3)]
    async with anyio.create_task_group() as tasks:
        await start_in_order(tasks, askers)
        counter.stop()
        tasks.start_soon(counter.run)

    assert [asker.result for asker in askers] == [1, 2, 3]


async def test_a_graceful_stop_accepts_nothing_more() -> None:
    counter = Counter()
    counter.stop()

    with pytest.raises(ActorStopped):
        counter.ref.tell(Add(1))


async def test_an_idle_actor_ends_when_it_is_stopped() -> None:
    counter = Counter()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(counter.run_to_its_end)
        await anyio.wait_all_tasks_blocked()
        counter.stop()

    assert counter.error is None


async def test_a_question_that_the_actor_never_answered_is_answered_when_it_stops() -> None:
    counter = Counter()
    asker = Asker(counter.ref, Ignore())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asker)
        tasks.start_soon(counter.run)
        await anyio.wait_all_tasks_blocked()
        counter.stop()

    assert isinstance(asker.result, ActorDied)
    assert asker.result.__cause__ is None


async def test_cancelling_the_actor_answers_the_message_in_hand_and_those_behind_it() -> None:
    counter = Counter()
    hold = Hold()
    in_hand, behind = Asker(counter.ref, hold), Asker(counter.ref, Add(1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(counter.run_to_its_end)
        tasks.start_soon(in_hand)
        await hold.begun.wait()
        tasks.start_soon(behind)
        await anyio.wait_all_tasks_blocked()
        counter.scope.cancel()

    assert isinstance(in_hand.result, ActorDied)
    assert isinstance(behind.result, ActorStopped)
    assert counter.total == 0


async def test_an_actor_that_is_cancelled_before_its_first_turn_answers_everyone() -> None:
    counter = Counter()
    asker = Asker(counter.ref, Add(1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asker)
        await anyio.wait_all_tasks_blocked()
        counter.scope.cancel()
        tasks.start_soon(counter.run_to_its_end)

    assert isinstance(asker.result, ActorStopped)
    assert counter.received == []


async def test_a_timeout_says_that_the_message_may_still_be_processed_and_it_is() -> None:
    counter = Counter()

    with pytest.raises(AskTimeout, match=r"'counter' did not answer within 1 ms; .* may still be processed"):
        await counter.ref.ask(Add(1), timeout_ms=1)

    counter.stop()
    await counter.run()
    assert counter.total == 1


async def test_an_ask_timeout_is_a_timeout_error() -> None:
    with pytest.raises(TimeoutError):
        await Counter().ref.ask(Add(1), timeout_ms=1)


async def test_an_answer_in_time_is_returned() -> None:
    counter = Counter()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(counter.run)

        assert await counter.ref.ask(Add(1), timeout_ms=60_000) == 1

        counter.stop()


async def test_a_cancelled_asker_leaves_its_message_to_be_processed() -> None:
    counter = Counter()
    asker = Asker(counter.ref, Add(1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asker)
        await anyio.wait_all_tasks_blocked()
        asker.scope.cancel()

    counter.stop()
    await counter.run()
    assert asker.result is None
    assert counter.total == 1


async def test_a_full_mailbox_is_the_problem_of_the_sender_only() -> None:
    counter = Counter(mailbox_capacity=1)
    counter.ref.tell(Add(1))

    with pytest.raises(MailboxFull):
        counter.ref.tell(Add(1))
    with pytest.raises(MailboxFull):
        await counter.ref.ask(Add(1))

    counter.stop()
    await counter.run()
    assert counter.total == 1


async def test_a_question_is_not_asked_twice() -> None:
    counter = Counter()
    question = Add(1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(counter.run)
        await counter.ref.ask(question)

        with pytest.raises(AssertionError, match="asked once"):
            await counter.ref.ask(question)

        counter.stop()
    assert counter.total == 1


async def test_a_question_that_somebody_waits_for_is_not_passed_on() -> None:
    counter = Counter()
    question = Add(1)
    with pytest.raises(AskTimeout):
        await counter.ref.ask(question, timeout_ms=1)

    with pytest.raises(AssertionError, match="ask a new one"):
        Counter().ref.tell(question)


async def test_a_question_is_not_answered_twice() -> None:
    question = Add(1)
    question.answer(1)

    with pytest.raises(AssertionError, match="answered once"):
        question.answer(2)
    with pytest.raises(AssertionError, match="answered once"):
        question.fail(Boom())


async def test_an_actor_runs_once() -> None:
    counter = Counter()
    counter.stop()
    await counter.run()

    with pytest.raises(AssertionError, match="runs once"):
        await counter.run()


async def test_an_actor_that_always_has_messages_lets_others_run() -> None:
    counter = Counter()
    for _ in range(50):
        counter.ref.tell(Add(1))
    seen: list[int] = []

    async def bystander() -> None:
        await checkpoint()
        await checkpoint()
        seen.append(counter.total)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(counter.run)
        tasks.start_soon(bystander)
        counter.stop()

    assert seen[0] < 50


class Passes(Actor[Question[int]]):
    """Passes every question on, and owes no answer itself."""

    def __init__(self, to: Actor[Question[int]]) -> None:
        super().__init__("passes")
        self._to = to

    async def receive(self, message: Question[int]) -> None:
        self._to.ref.pass_on(message)


class Answers(Actor[Question[int]]):
    """Answers with 7, or dies of the question."""

    def __init__(self, *, dies: bool = False) -> None:
        super().__init__("answers")
        self._dies = dies

    async def receive(self, message: Question[int]) -> None:
        if self._dies:
            raise ZeroDivisionError
        message.answer(7)


async def test_a_question_that_is_passed_on_is_answered_by_the_actor_that_has_it() -> None:
    answers = Answers()
    passes = Passes(answers)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answers.run)
        tasks.start_soon(passes.run)
        assert await passes.ref.ask(Question[int]()) == 7
        assert answers._waiting == {}
        answers.stop()
        passes.stop()


async def test_a_question_that_is_passed_on_fails_when_the_actor_that_has_it_dies() -> None:
    answers = Answers(dies=True)
    passes = Passes(answers)

    async def die() -> None:
        with pytest.raises(ZeroDivisionError):
            await answers.run()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(die)
        tasks.start_soon(passes.run)
        with pytest.raises(ActorDied, match="answers"):
            await passes.ref.ask(Question[int]())
        passes.stop()


async def test_a_question_that_was_answered_is_not_passed_on() -> None:
    question = Question[int]()
    question.answer(1)
    with pytest.raises(AssertionError, match="answered once"):
        Answers().ref.pass_on(question)
