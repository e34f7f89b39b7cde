"""Workers that do what each message says, under a supervisor whose time moves by hand."""

import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

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
    Escalated,
    Mailbox,
    RestartPolicy,
    Supervisor,
)
from tests.actors.test_time import settle
from tests.actors.workplace import Boom, Do, Workplace

pytestmark = pytest.mark.anyio

DOCS = Path(__file__).parents[2] / "docs" / "kernel.md"
NEVER = RestartPolicy(restarts_max=0)


class Worker(Actor[Do]):
    def __init__(self, world: "Crew", name: str, restarts: int) -> None:
        super().__init__(name)
        self.world = world
        self.restarts = restarts
        self.kept: list[Do] = []
        if world.tells_itself:
            self.ref.tell(Do("begin"))

    async def receive(self, message: Do) -> None:
        self.world.received.append((self.name, self.restarts, message.what))
        match message.what:
            case "crash":
                raise Boom("crashed")
            case "keep":
                self.kept.append(message)
                return
            case "hold":
                await self.world.freedom.wait()
            case "stop and crash":
                self.stop()
                raise Boom("crashed at the end")
            case "stop":
                self.stop()
        message.answer(message.what)


class Asker:
    """Asks one question in a task of its own and keeps what came back."""

    def __init__(self, ref: ActorRef[Do], what: str) -> None:
        self.ref = ref
        self.question = Do(what)
        self.result: str | Exception | None = None

    async def __call__(self) -> None:
        try:
            self.result = await self.ref.ask(self.question)
        except ActorError as error:
            self.result = error


class Crew(Workplace):
    """A workplace whose workers are started by name."""

    def __init__(self) -> None:
        super().__init__()
        self.tells_itself = False

    def worker(self, name: str) -> Callable[[int], Worker]:
        def make(restarts: int) -> Worker:
            self.made.append((name, restarts))
            return Worker(self, name, restarts)

        return make

    def start(self, name: str, policy: RestartPolicy | None = None) -> ActorRef[Do]:
        return self.supervisor.start(name, self.worker(name), policy=policy)


@pytest.fixture(name="world")
async def _world() -> Crew:
    return Crew()


def told(ref: ActorRef[Do], *whats: str) -> None:
    for what in whats:
        ref.tell(Do(what))


async def ask_in_order(tasks: TaskGroup, ref: ActorRef[Do], *whats: str) -> list[Asker]:
    askers = [Asker(ref, what) for what in whats]
    for asker in askers:
        tasks.start_soon(asker)
        await settle()
    return askers


async def test_a_child_runs_and_answers_through_the_reference(world: Crew) -> None:
    async with anyio.create_task_group() as tasks:
        await tasks.start(world.supervisor.run)
        ref = world.start("a")

        assert await ref.ask(Do("work")) == "work"
        assert ref.name == "a"

        tasks.cancel_scope.cancel()


async def test_a_child_that_is_started_before_the_supervisor_runs_waits_for_it(world: Crew) -> None:
    ref = world.start("a")
    told(ref, "work")
    async with world.running():
        assert world.received == [("a", 0, "work")]


async def test_a_supervisor_without_children_runs_until_it_is_cancelled(world: Crew) -> None:
    async with world.running():
        assert not world.ended

    assert world.scope.cancelled_caught


async def test_a_supervisor_runs_once(world: Crew) -> None:
    async with world.running():
        with pytest.raises(AssertionError, match="runs once"):
            await world.supervisor.run()


async def test_what_was_in_hand_is_answered_with_actor_died_and_the_crash(world: Crew) -> None:
    async with world.running() as tasks:
        (asker,) = await ask_in_order(tasks, world.start("a"), "crash")

    assert isinstance(asker.result, ActorDied)
    assert isinstance(asker.result.__cause__, Boom)
    assert asker.result.actor == "a"


async def test_what_was_kept_for_a_later_turn_is_answered_with_actor_died_and_the_crash(
    world: Crew,
) -> None:
    async with world.running() as tasks:
        ref = world.start("a")
        keepers = await ask_in_order(tasks, ref, "keep", "keep")
        told(ref, "crash")
        await settle()

    assert [type(keeper.result) for keeper in keepers] == [ActorDied, ActorDied]
    assert keepers[0].result is not keepers[1].result
    assert all(isinstance(keeper.result.__cause__, Boom) for keeper in keepers if isinstance(keeper.result, ActorDied))


async def test_who_waits_for_what_was_taken_is_answered_before_the_restart(world: Crew) -> None:
    async with world.running() as tasks:
        (asker,) = await ask_in_order(tasks, world.start("a"), "crash")

        assert isinstance(asker.result, ActorDied)
        assert world.made == [("a", 0)]


async def test_what_was_not_taken_survives_a_crash_in_its_order(world: Crew) -> None:
    async with world.running() as tasks:
        ref = world.start("a")
        (holder,) = await ask_in_order(tasks, ref, "hold")
        told(ref, "crash", "1", "2")
        askers = await ask_in_order(tasks, ref, "3", "4")
        world.freedom.set()
        await settle()
        before = [asker.result for asker in askers]
        await world.advance(100)

    assert before == [None, None]
    assert holder.result == "hold"
    assert [asker.result for asker in askers] == ["3", "4"]
    assert world.received[2:] == [("a", 1, what) for what in "1234"]


async def test_what_is_sent_during_the_backoff_waits_in_the_mailbox(world: Crew) -> None:
    async with world.running() as tasks:
        ref = world.start("a")
        told(ref, "crash")
        await settle()
        told(ref, "1")
        (asker,) = await ask_in_order(tasks, ref, "2")
        await world.advance(99)
        before = len(world.received)
        await world.advance(1)

    assert before == 1
    assert world.received[1:] == [("a", 1, "1"), ("a", 1, "2")]
    assert asker.result == "2"


async def test_the_reference_of_any_incarnation_reaches_the_one_that_lives(world: Crew) -> None:
    refs: list[ActorRef[Do]] = []

    def make(restarts: int) -> Worker:
        worker = Worker(world, "a", restarts)
        refs.append(worker.ref)
        return worker

    async with world.running():
        refs.append(world.supervisor.start("a", make))
        for _ in range(2):
            told(refs[0], "crash")
            await settle()
            await world.advance(1000)

        assert len(refs) == 4
        assert [await ref.ask(Do("work")) for ref in refs] == ["work"] * 4
        assert world.received[-4:] == [("a", 2, "work")] * 4


async def test_make_is_called_with_the_number_of_restarts(world: Crew) -> None:
    async with world.running():
        told(world.start("a"), "crash", "crash", "work")
        for _ in range(3):
            await world.advance(1000)

    assert world.made == [("a", 0), ("a", 1), ("a", 2)]


async def test_what_an_actor_tells_itself_while_it_is_made_comes_before_what_waits(world: Crew) -> None:
    world.tells_itself = True
    async with world.running():
        told(world.start("a"), "crash", "work")
        await settle()
        await world.advance(100)

    assert [what for _, _, what in world.received] == ["begin", "crash", "begin", "work"]


async def test_what_an_actor_tells_itself_while_it_is_made_finds_room_in_a_full_mailbox(
    world: Crew,
) -> None:
    def make(restarts: int) -> Worker:
        worker = Worker(world, "a", restarts)
        worker.mailbox = Mailbox("a", capacity=1)
        if restarts:
            told(worker.ref, "begin")
        return worker

    async with world.running():
        ref = world.supervisor.start("a", make)
        told(ref, "crash")
        await settle()
        told(ref, "work")
        await world.advance(100)

    assert world.received[1:] == [("a", 1, "begin"), ("a", 1, "work")]


async def test_the_owner_is_told_of_every_crash(world: Crew) -> None:
    async with world.running():
        told(world.start("a"), "crash", "crash")
        await settle()
        await world.advance(100)

    assert [(name, restarts) for name, _, restarts in world.crashes] == [("a", 0), ("a", 1)]
    assert all(isinstance(error, Boom) for _, error, _ in world.crashes)


async def test_every_crash_is_logged_with_name_restarts_and_error(
    world: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.running():
        told(world.start("a"), "crash", "crash")
        await settle()
        await world.advance(100)

    assert [(record.name, record.levelno) for record in caplog.records] == [("keep_actors.kernel", logging.ERROR)] * 2
    assert [record.getMessage() for record in caplog.records] == [
        "actor 'a' crashed after 0 restarts: Boom('crashed')",
        "actor 'a' crashed after 1 restarts: Boom('crashed')",
    ]


async def test_the_backoff_doubles_with_every_crash_up_to_its_maximum(world: Crew) -> None:
    policy = RestartPolicy(restarts_max=10, backoff_ms=100, backoff_max_ms=500)
    waits: list[int] = []
    async with world.running():
        told(world.start("a", policy), *["crash"] * 5)
        await settle()
        for _ in range(5):
            due = world.time.next_due
            assert due is not None
            waits.append(due - world.time.now())
            await world.advance(waits[-1])

    assert waits == [100, 200, 400, 500, 500]


async def test_crashes_outside_the_window_are_forgotten(world: Crew) -> None:
    async with world.running():
        ref = world.start("a", RestartPolicy(restarts_max=1, within_ms=1000))
        for _ in range(5):
            told(ref, "crash")
            await settle()
            assert world.time.next_due == world.time.now() + 100
            await world.advance(1001)

    assert world.escalated is None
    assert len(world.made) == 6


async def test_as_many_crashes_as_restarts_max_are_borne_and_one_more_escalates(world: Crew) -> None:
    async with world.running():
        told(world.start("a", RestartPolicy(restarts_max=2)), "crash", "crash", "crash")
        await settle()
        await world.advance(100)
        borne = world.escalated is None
        await world.advance(200)

    assert borne
    assert world.escalated is not None


async def test_an_escalation_names_the_child_and_has_the_crash_as_its_cause(world: Crew) -> None:
    async with world.running():
        world.start("calm")
        told(world.start("a", NEVER), "crash")
        await settle()

    assert world.escalated is not None
    assert (world.escalated.supervisor, world.escalated.child) == ("tests", "a")
    assert str(world.escalated) == "supervisor 'tests' has ended, because it could not go on with its child 'a'"
    assert world.escalated.__cause__ is world.crashes[0][1]


async def test_an_escalation_ends_all_children_and_answers_their_questions(world: Crew) -> None:
    async with world.running() as tasks:
        other, ref = world.start("other"), world.start("a", NEVER)
        in_hand, behind = await ask_in_order(tasks, other, "hold", "work")
        kept, holder, crasher, last = await ask_in_order(tasks, ref, "keep", "hold", "crash", "work")
        await settle()
        told(world.start("trigger", NEVER), "crash")
        await settle()

        assert world.ended
        with pytest.raises(ActorStopped):
            told(other, "late")
        with pytest.raises(ActorStopped):
            world.start("late")

    assert [type(asker.result) for asker in (in_hand, kept, holder)] == [ActorDied] * 3
    assert [type(asker.result) for asker in (behind, crasher, last)] == [ActorStopped] * 3


async def test_what_waited_for_a_child_that_escalated_is_answered_with_the_crash(world: Crew) -> None:
    async with world.running() as tasks:
        ref = world.start("a", NEVER)
        _, _, behind = await ask_in_order(tasks, ref, "hold", "crash", "work")
        world.freedom.set()
        await settle()

    assert isinstance(behind.result, ActorStopped)
    assert isinstance(behind.result.__cause__, Boom)


async def test_the_first_of_two_escalations_is_raised(world: Crew) -> None:
    told(world.start("a", NEVER), "crash")
    told(world.start("b", NEVER), "crash")
    async with world.running():
        pass

    assert world.escalated is not None
    assert world.escalated.__cause__ is world.crashes[0][1]


async def test_a_child_that_is_given_up_accepts_messages_meanwhile_and_then_ends_alone(
    world: Crew,
) -> None:
    begun, go_on = anyio.Event(), anyio.Event()
    done: list[str] = []

    async def given_up(error: Exception) -> None:
        assert isinstance(error, Boom)
        begun.set()
        await go_on.wait()

    async with world.running() as tasks:
        calm = world.start("calm")
        ref = world.supervisor.start(
            "a", world.worker("a"), policy=NEVER, given_up=given_up, done=lambda: done.append("a")
        )
        told(ref, "crash")
        await begun.wait()
        (asker,) = await ask_in_order(tasks, ref, "work")
        meanwhile = asker.result
        go_on.set()
        await settle()

        with pytest.raises(ActorStopped):
            told(ref, "late")
        assert await calm.ask(Do("work")) == "work"

    assert meanwhile is None
    assert isinstance(asker.result, ActorStopped)
    assert isinstance(asker.result.__cause__, Boom)
    assert ("a", 1) not in world.made
    assert done == []


async def test_what_giving_up_raises_escalates(world: Crew) -> None:
    async def given_up(error: Exception) -> None:
        async with anyio.create_task_group():
            raise LookupError

    async with world.running():
        told(world.supervisor.start("a", world.worker("a"), policy=NEVER, given_up=given_up), "crash")
        await settle()

    assert world.escalated is not None
    assert isinstance(world.escalated.__cause__, LookupError)


@pytest.mark.parametrize("what", ["crash", "stop"])
async def test_what_the_owner_raises_when_it_is_told_escalates(world: Crew, what: str) -> None:
    def fail(*_: object) -> None:
        raise LookupError

    world.supervisor = Supervisor("tests", world.time, on_crash=fail)
    async with world.running() as tasks:
        ref = world.supervisor.start("a", world.worker("a"), done=fail)
        (asker,) = await ask_in_order(tasks, ref, what)

    assert world.escalated is not None
    assert isinstance(world.escalated.__cause__, LookupError)
    assert asker.result is not None


async def test_a_child_that_stops_is_done_and_did_not_crash(world: Crew) -> None:
    done: list[str] = []
    async with world.running():
        ref = world.supervisor.start("a", world.worker("a"), done=lambda: done.append("a"))
        told(ref, "stop")
        await settle()

        with pytest.raises(ActorStopped):
            told(ref, "late")
        assert done == ["a"]
        assert world.crashes == []
        assert not world.ended


async def test_a_child_that_crashes_with_nothing_left_to_do_is_done_and_not_made_again(
    world: Crew,
) -> None:
    done: list[str] = []
    async with world.running() as tasks:
        ref = world.supervisor.start("a", world.worker("a"), policy=NEVER, done=lambda: done.append("a"))
        (asker,) = await ask_in_order(tasks, ref, "stop and crash")

        assert isinstance(asker.result, ActorDied)
        assert done == ["a"]
        assert len(world.crashes) == 1
        assert world.made == [("a", 0)]
        assert not world.ended


async def test_a_child_that_crashes_while_it_stops_still_processes_the_rest(world: Crew) -> None:
    done: list[str] = []
    async with world.running():
        ref = world.supervisor.start("a", world.worker("a"), done=lambda: done.append("a"))
        told(ref, "stop and crash", "work")
        await settle()
        await world.advance(100)

    assert world.received == [("a", 0, "stop and crash"), ("a", 1, "work")]
    assert done == ["a"]


async def test_what_make_raises_at_the_start_is_raised_to_who_starts(world: Crew) -> None:
    def make(restarts: int) -> Worker:
        raise Boom

    async with world.running():
        with pytest.raises(Boom):
            world.supervisor.start("a", make)

        assert not world.ended


async def test_what_make_raises_at_a_restart_is_a_crash(world: Crew) -> None:
    def make(restarts: int) -> Worker:
        if restarts == 1:
            raise Boom("not made")
        return Worker(world, "a", restarts)

    async with world.running() as tasks:
        ref = world.supervisor.start("a", make)
        told(ref, "crash")
        (asker,) = await ask_in_order(tasks, ref, "work")
        await world.advance(100)
        assert [restarts for _, _, restarts in world.crashes] == [0, 1]
        await world.advance(200)

    assert asker.result == "work"


class Grouped(Worker):
    """Has a task group of its own. `raised` is raised in its tasks when it is told to work."""

    raised: tuple[Exception, ...] = ()

    async def run(self) -> None:
        async with anyio.create_task_group() as self.outer, anyio.create_task_group() as self.inner:
            await super().run()

    async def receive(self, _: Do) -> None:
        for error in self.raised:
            self.inner.start_soon(self.fail, error)
        await anyio.sleep_forever()

    async def fail(self, error: Exception) -> None:
        raise error


async def crash_of_grouped(world: Crew, *raised: Exception) -> tuple[Exception, str | Exception | None]:
    """What was noted when those were raised in the tasks of an actor, and what its asker was told."""

    def make(restarts: int) -> Grouped:
        grouped = Grouped(world, "a", restarts)
        grouped.raised = raised
        return grouped

    async with world.running() as tasks:
        (asker,) = await ask_in_order(tasks, world.supervisor.start("a", make), "work")
    ((_, crash, _),) = world.crashes
    return crash, asker.result


async def test_a_crash_in_a_task_of_the_actor_is_unwrapped_for_everyone(world: Crew) -> None:
    boom = Boom()

    crash, answer = await crash_of_grouped(world, boom)

    assert crash is boom
    assert isinstance(answer, ActorDied)
    assert answer.__cause__ is boom


async def test_crashes_in_two_tasks_of_the_actor_stay_a_group(world: Crew) -> None:
    crash, answer = await crash_of_grouped(world, Boom(), LookupError())

    assert isinstance(crash, ExceptionGroup)
    assert {type(error) for error in crash.exceptions} == {Boom, LookupError}
    assert isinstance(answer, ActorDied)
    assert answer.__cause__ is crash


class FailsWhenCancelled(Worker):
    """A task of its own raises while it is cancelled."""

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.fail_at_the_end)
            await super().run()

    async def fail_at_the_end(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise Boom


async def test_a_crash_that_meets_a_cancellation_is_noted_and_the_cancellation_goes_on(
    world: Crew,
) -> None:
    async with world.running() as tasks:
        ref = world.supervisor.start("a", lambda restarts: FailsWhenCancelled(world, "a", restarts))
        (asker,) = await ask_in_order(tasks, ref, "hold")

    assert world.scope.cancelled_caught
    assert [type(error) for _, error, _ in world.crashes] == [Boom]
    assert isinstance(asker.result, ActorDied)
    assert isinstance(asker.result.__cause__, Boom)


async def test_a_crash_that_meets_the_end_of_the_grace_does_not_come_out_of_run(world: Crew) -> None:
    async with world.running():
        ref = world.supervisor.start("a", lambda restarts: FailsWhenCancelled(world, "a", restarts))
        told(ref, "hold")
        await settle()
        await world.supervisor.stop(0)
        await settle()

        assert world.ended
        assert world.escalated is None


class Interrupt(BaseException):
    pass


async def test_an_interrupt_is_not_a_crash_and_leaves_run(world: Crew) -> None:
    class Interrupted(Worker):
        async def receive(self, _: Do) -> None:
            raise Interrupt

    told(world.supervisor.start("a", lambda restarts: Interrupted(world, "a", restarts)), "work")

    with pytest.raises(BaseExceptionGroup) as raised:
        await world.supervisor.run()

    assert raised.group_contains(Interrupt)
    assert world.crashes == []


async def test_a_cancelled_supervisor_answers_what_its_children_had_and_had_not_taken(world: Crew) -> None:
    async with world.running() as tasks:
        running, waiting = world.start("running"), world.start("waiting")
        in_hand, behind = await ask_in_order(tasks, running, "hold", "work")
        (_, in_backoff) = await ask_in_order(tasks, waiting, "crash", "work")

    assert isinstance(in_hand.result, ActorDied)
    assert in_hand.result.__cause__ is None
    assert isinstance(behind.result, ActorStopped)
    assert isinstance(in_backoff.result, ActorStopped)
    assert world.scope.cancelled_caught


@pytest.mark.parametrize("turns", range(12))
async def test_at_any_turn_of_a_cancellation_a_child_is_refused_or_answers(world: Crew, turns: int) -> None:
    async with world.running() as tasks:
        world.start("other")
        await settle()
        world.scope.cancel()
        for _ in range(turns):
            await checkpoint()
        try:
            asker = Asker(world.start("late"), "work")
        except ActorStopped:
            return
        tasks.start_soon(asker)

    assert asker.result is not None


async def test_a_child_in_its_backoff_disturbs_no_other(world: Crew) -> None:
    async with world.running():
        told(world.start("a"), "crash")
        calm = world.start("calm")
        await settle()

        assert await calm.ask(Do("work")) == "work"
        assert world.made == [("a", 0), ("calm", 0)]


async def test_a_stop_processes_what_is_in_the_mailboxes_and_run_returns(world: Crew) -> None:
    async with world.running() as tasks:
        a, b = world.start("a"), world.start("b")
        held = await ask_in_order(tasks, a, "hold", "1", "2")
        told(b, "3")
        tasks.start_soon(world.supervisor.stop, 1000)
        await settle()
        with pytest.raises(ActorStopped):
            told(a, "late")
        with pytest.raises(ActorStopped):
            world.start("late")
        before = world.ended
        world.freedom.set()
        await settle()

        assert world.ended
        assert world.escalated is None
    assert not before
    assert [asker.result for asker in held] == ["hold", "1", "2"]
    assert ("b", 0, "3") in world.received
    assert not world.scope.cancelled_caught


async def test_a_stop_cancels_what_is_left_after_the_grace(world: Crew) -> None:
    async with world.running() as tasks:
        in_hand, behind = await ask_in_order(tasks, world.start("a"), "hold", "work")
        tasks.start_soon(world.supervisor.stop, 1000)
        await settle()
        await world.advance(999)
        before = world.ended
        await world.advance(1)

        assert world.ended
    assert not before
    assert isinstance(in_hand.result, ActorDied)
    assert isinstance(behind.result, ActorStopped)


async def test_a_stop_cuts_a_backoff_short(world: Crew) -> None:
    async with world.running():
        idle, busy = world.start("idle"), world.start("busy")
        told(idle, "crash")
        told(busy, "crash", "work")
        await settle()
        await world.supervisor.stop(1000)

    assert world.received[-1] == ("busy", 1, "work")
    assert ("idle", 1) not in world.made


async def test_a_stop_waits_for_a_supervisor_that_is_about_to_run(world: Crew) -> None:
    ref = world.start("a")
    told(ref, "work")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.supervisor.run)
        await world.supervisor.stop(1000)

    assert world.received == [("a", 0, "work")]


async def test_a_stop_answers_everyone_even_if_the_supervisor_never_runs(world: Crew) -> None:
    async with anyio.create_task_group() as tasks:
        (asker,) = await ask_in_order(tasks, world.start("a"), "work")
        await world.supervisor.stop(0)
        await world.supervisor.run()

    assert isinstance(asker.result, ActorStopped)


async def test_a_stop_after_the_end_returns(world: Crew) -> None:
    async with world.running():
        await world.supervisor.stop(1000)
        await world.supervisor.stop(1000)


async def test_an_actor_whose_supervisor_escalates_is_restarted_by_its_own(world: Crew) -> None:
    class Manager(Worker):
        async def run(self) -> None:
            below = Supervisor("below", world.time)
            async with anyio.create_task_group() as tasks:
                await tasks.start(below.run)
                self.child = below.start("child", world.worker("child"), policy=NEVER)
                await super().run()

        async def receive(self, message: Do) -> None:
            told(self.child, message.what)

    async with world.running():
        ref = world.supervisor.start("manager", lambda restarts: Manager(world, "manager", restarts))
        told(ref, "crash")
        await settle()
        told(ref, "work")
        await world.advance(100)

    ((name, error, _),) = world.crashes
    assert (name, type(error)) == ("manager", Escalated)
    assert isinstance(error.__cause__, Boom)
    assert world.received[1:] == [("child", 0, "work")]


BLOCKS = re.findall(r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?", DOCS.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_code_in_the_documentation_runs_and_prints_what_it_says(number: int) -> None:
    code, printed = BLOCKS[number]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False, cwd=DOCS.parents[1]
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed


def test_the_documentation_has_code() -> None:
    assert len(BLOCKS) >= 3
    assert len(BLOCKS[0][0].splitlines()) <= 40
