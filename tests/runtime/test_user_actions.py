"""Whatever a person asks for, and whatever the run is doing when it arrives: who is refused is told why, nothing is
lost, and nothing is called outside twice."""

from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import pytest

from keep_actors import Reason, Rejected
from keep_actors.connectors import AuthRequired, InvalidCall, Transient, Uncertain
from keep_storage.model import RunStatus
from tests.runtime.fakes import Fake, Hang, Step, applies_and_raises, raises
from tests.runtime.world import DAY, START, TAKE, TimedBox, script, world

pytestmark = pytest.mark.anyio


def flow(words: str = "") -> str:
    """A workflow that polls once a day and, for each event, reads outside and then does one thing outside."""
    return script(
        producer="return { polls: (state?.polls ?? 0) + 1 };",
        prepare=f"const take = async () => {{ {TAKE} }}; return [await take(), await c.fake.search({{}})][0];",
        mutate=f'await c.fake.add({{ text: "{words}" + prepared.data.id }});',
    )


# The states in which an action may find a workflow. Each is brought about with the event `a`; `b` came later.


class Stage:
    """A workflow, and the call outside that its run waits for, if it does."""

    def __init__(self, box: TimedBox, fake: Fake) -> None:
        self.box = box
        self.keep = box.keep
        self.fake = fake
        self.id = ""
        self.hang: Hang | None = None

    async def deploy(self) -> None:
        self.id = (await self.keep.deploy(flow())).workflow_id
        await self.box.settle()

    async def hangs_in(self, method: str) -> None:
        self.hang = self.fake.hang(method)
        await self.box.publish(self.id, "in", "a")
        await self.hang.reached.wait()
        await self.box.publish(self.id, "in", "b")

    async def stops_with(self, step: Step) -> None:
        self.fake.plan("add", step)
        await self.box.publish(self.id, "in", "a")
        await self.box.settle()
        await self.box.publish(self.id, "in", "b")
        await self.box.settle()

    async def end(self) -> None:
        """Let what hangs go on, and everything that is due happen."""
        if self.hang is not None:
            self.hang.release()
        await self.box.settle()

    async def seen(self) -> str:
        """What the workflow looks like: status | runs of the consumer | events | what was done outside | polls."""
        workflow = await self.keep.workflow(self.id)
        status = [str(workflow.status), *["error"] * bool(workflow.error), *["repair"] * workflow.maintenance]
        runs = [str(run.status) for run in await self.box.runs(self.id, "file")]
        events = [f"{key} {status}" for key, status in (await self.box.statuses(self.id, "in")).items()]
        polls = len(await self.box.runs(self.id, "poll"))
        return " | ".join(
            [" ".join(status), ", ".join(runs), ", ".join(events), ", ".join(self.fake.texts), str(polls)]
        )


async def in_state(stage: Stage, state: str) -> None:
    """Bring the workflow into the state."""
    await stage.deploy()
    match state:
        case "none":
            pass
        case "reading":
            await stage.hangs_in("search")
        case "calling":
            await stage.hangs_in("add")
        case "transient":
            await stage.stops_with(raises(Transient("503")))
        case "approval":
            await stage.stops_with(raises(AuthRequired("sign in")))
        case "doubt":
            await stage.stops_with(applies_and_raises(Uncertain("connection lost")))
        case "logic":
            await stage.stops_with(raises(InvalidCall("no such sheet")))
        case "committed":
            await stage.box.publish(stage.id, "in", "a", "b")
            await stage.box.settle()
        case "paused":
            await stage.keep.pause(stage.id)
            await stage.box.publish(stage.id, "in", "a", "b")
        case _:
            await stage.box.publish(stage.id, "in", "a")
            await stage.box.settle()
            await stage.keep.pause(stage.id)
            await stage.box.publish(stage.id, "in", "b")
            await stage.keep.archive(stage.id)


BOTH = "committed, committed | a consumed, b consumed"

# What comes of a workflow that is left alone in each state: see `Stage.seen`.
ALONE = {
    "none": "active |  |  |  | 1",
    "reading": f"active | {BOTH} | a, b | 1",
    "calling": f"active | {BOTH} | a, b | 1",
    "transient": "active | paused:transient | a pending, b pending |  | 1",
    "approval": "active error | paused:approval | a pending, b pending |  | 1",
    "doubt": "active error | paused:reconciliation | a reserved, b pending | a | 1",
    "logic": "active repair | failed:logic | a pending, b pending |  | 1",
    "committed": f"active | {BOTH} | a, b | 1",
    "paused": "paused |  | a pending, b pending |  | 1",
    "archived": "archived | committed | a consumed, b pending | a | 1",
}

WHY = {
    "done": None,
    "status": Reason.WORKFLOW_STATUS_REFUSED,
    "busy": Reason.RUN_ALREADY_ACTIVE,
    "stopped": Reason.WORKFLOW_NOT_ACTIVE,
    "error": Reason.WORKFLOW_HAS_ERROR,
    "no-error": Reason.WORKFLOW_HAS_NO_ERROR,
    "repair": Reason.WORKFLOW_IN_MAINTENANCE,
    "question": Reason.MUTATION_OUTCOME_UNKNOWN,
    "held": Reason.EVENT_ALREADY_RESERVED,
    "finished": Reason.EVENT_ALREADY_FINISHED,
    "no-event": Reason.EVENT_NOT_FOUND,
    "no-run": Reason.RUN_NOT_ACTIVE,
}

# How each action is answered in each state.
ANSWERS = """
              none      reading   calling   transient  approval  doubt     logic     committed  paused    archived
  pause       done      done      done      done       done      done      done      done       status    status
  resume      status    status    status    status     status    status    status    status     done      status
  archive     done      done      done      done       done      done      done      done       done      status
  unarchive   status    status    status    status     status    status    status    status     status    done
  stop        no-run    done      done      no-run     no-run    no-run    no-run    no-run     no-run    no-run
  run_now     done      busy      busy      done       error     error     repair    done       stopped   stopped
  skip_a      no-event  done      held      done       done      held      done      finished   done      finished
  skip_b      no-event  done      done      done       done      done      done      finished   done      done
  deploy      done      done      done      done       done      done      done      done       done      status
  publish     done      done      done      done       done      done      done      done       done      status
  clear       no-error  no-error  no-error  no-error   done      question  no-error  no-error   no-error  no-error
  look        done      done      done      done       done      done      done      done       done      done
"""

ACTIONS: dict[str, Callable[[Stage], Awaitable[object]]] = {
    "pause": lambda on: on.keep.pause(on.id, by="alice"),
    "resume": lambda on: on.keep.resume(on.id, by="alice"),
    "archive": lambda on: on.keep.archive(on.id, by="alice"),
    "unarchive": lambda on: on.keep.unarchive(on.id, by="alice"),
    "stop": lambda on: on.keep.stop_run(on.id, by="alice"),
    "run_now": lambda on: on.keep.run_now(on.id, by="alice"),
    "skip_a": lambda on: on.keep.skip_event(on.id, "in", "a", by="alice"),
    "skip_b": lambda on: on.keep.skip_event(on.id, "in", "b", by="alice"),
    "deploy": lambda on: on.keep.deploy(flow("new "), workflow=on.id, by="alice"),
    "publish": lambda on: on.box.publish(on.id, "in", "c"),
    "clear": lambda on: on.keep.clear_error(on.id, by="alice"),
    "look": lambda on: look_at_everything(on),
}

# What an action that was answered with "done" changes in what the workflow looks like when its run has ended.
AFTER = {
    ("pause", "none"): "paused |  |  |  | 1",
    # It reads, so it has done nothing yet, and does nothing any more.
    ("pause", "reading"): "paused | paused:transient | a pending, b pending |  | 1",
    ("pause", "calling"): "paused | committed | a consumed, b pending | a | 1",
    ("pause", "transient"): "paused | paused:transient | a pending, b pending |  | 1",
    ("pause", "approval"): "paused error | paused:approval | a pending, b pending |  | 1",
    ("pause", "doubt"): "paused error | paused:reconciliation | a reserved, b pending | a | 1",
    ("pause", "logic"): "paused repair | failed:logic | a pending, b pending |  | 1",
    ("pause", "committed"): f"paused | {BOTH} | a, b | 1",
    ("resume", "paused"): f"active | {BOTH} | a, b | 1",
    ("archive", "none"): "archived |  |  |  | 1",
    ("archive", "reading"): "archived | paused:transient | a pending, b pending |  | 1",
    ("archive", "calling"): "archived | committed | a consumed, b pending | a | 1",
    ("archive", "transient"): "archived | paused:transient | a pending, b pending |  | 1",
    ("archive", "approval"): "archived error | paused:approval | a pending, b pending |  | 1",
    ("archive", "doubt"): "archived error | paused:reconciliation | a reserved, b pending | a | 1",
    ("archive", "logic"): "archived repair | failed:logic | a pending, b pending |  | 1",
    ("archive", "committed"): f"archived | {BOTH} | a, b | 1",
    ("archive", "paused"): "archived |  | a pending, b pending |  | 1",
    ("unarchive", "archived"): "paused | committed | a consumed, b pending | a | 1",
    # The handler is put off. A call that is on its way is the last one of its run in any case.
    ("stop", "reading"): "active | paused:transient | a pending, b pending |  | 1",
    ("stop", "calling"): f"active | {BOTH} | a, b | 1",
    ("run_now", "none"): "active |  |  |  | 2",
    ("run_now", "transient"): "active | paused:transient | a pending, b pending |  | 2",
    ("run_now", "committed"): f"active | {BOTH} | a, b | 2",
    # The run had looked at `a` and not reserved it yet: that is no failure, and it looks again at once.
    ("skip_a", "reading"): "active | paused:transient, committed | a skipped, b consumed | b | 1",
    ("skip_a", "transient"): "active | paused:transient | a skipped, b pending |  | 1",
    ("skip_a", "approval"): "active error | paused:approval | a skipped, b pending |  | 1",
    ("skip_a", "logic"): "active repair | failed:logic | a skipped, b pending |  | 1",
    ("skip_a", "paused"): "paused |  | a skipped, b pending |  | 1",
    ("skip_b", "reading"): "active | committed | a consumed, b skipped | a | 1",
    ("skip_b", "calling"): "active | committed | a consumed, b skipped | a | 1",
    ("skip_b", "transient"): "active | paused:transient | a pending, b skipped |  | 1",
    ("skip_b", "approval"): "active error | paused:approval | a pending, b skipped |  | 1",
    ("skip_b", "doubt"): "active error | paused:reconciliation | a reserved, b skipped | a | 1",
    ("skip_b", "logic"): "active repair | failed:logic | a pending, b skipped |  | 1",
    ("skip_b", "paused"): "paused |  | a pending, b skipped |  | 1",
    ("skip_b", "archived"): "archived | committed | a consumed, b skipped | a | 1",
    # The script is exchanged between two runs; a new one is tried at once, and clears no error.
    ("deploy", "reading"): f"active | {BOTH} | a, new b | 1",
    ("deploy", "calling"): f"active | {BOTH} | a, new b | 1",
    ("deploy", "transient"): f"active | paused:transient, {BOTH} | new a, new b | 1",
    ("deploy", "logic"): f"active | failed:logic, {BOTH} | new a, new b | 1",
    ("publish", "none"): "active | committed | c consumed | c | 1",
    ("publish", "reading"): f"active | committed, {BOTH}, c consumed | a, b, c | 1",
    ("publish", "calling"): f"active | committed, {BOTH}, c consumed | a, b, c | 1",
    ("publish", "transient"): "active | paused:transient | a pending, b pending, c pending |  | 1",
    ("publish", "approval"): "active error | paused:approval | a pending, b pending, c pending |  | 1",
    ("publish", "doubt"): "active error | paused:reconciliation | a reserved, b pending, c pending | a | 1",
    ("publish", "logic"): "active repair | failed:logic | a pending, b pending, c pending |  | 1",
    ("publish", "committed"): f"active | committed, {BOTH}, c consumed | a, b, c | 1",
    ("publish", "paused"): "paused |  | a pending, b pending, c pending |  | 1",
    ("clear", "approval"): f"active | paused:approval, {BOTH} | a, b | 1",
}


def answers() -> dict[tuple[str, str], str]:
    lines = [line.split() for line in ANSWERS.splitlines() if line.strip()]
    return {(row[0], state): answer for row in lines[1:] for state, answer in zip(lines[0], row[1:], strict=True)}


async def look_at_everything(on: Stage) -> None:
    """What people can see, in every state."""
    runs = await on.keep.runs(on.id)
    outputs = await on.keep.outputs(on.id)
    inputs = {each.message_id: each for each in await on.keep.inputs(on.id)}
    workflow = await on.keep.workflow(on.id)
    assert list(inputs) == list(reversed(await on.box.statuses(on.id, "in")))
    assert {output.mutation_id for each in inputs.values() for output in each.outputs} == {
        output.mutation_id for output in outputs
    }
    for run in runs:
        explained = await on.keep.explain(run.id)
        assert (explained.run, explained.workflow) == (run, workflow)
        assert bool(explained.why) == (run.status not in (RunStatus.ACTIVE, RunStatus.COMMITTED))
        assert bool(explained.can_do) == (run.status is not RunStatus.COMMITTED)
        assert len(explained.attempted) == sum(output.run_id == run.id for output in outputs)
        held = {each.message_id for each in inputs.values() if each.held_by == run.id}
        assert held <= {event.message_id for event in explained.selected}


def test_the_tables_are_complete() -> None:
    assert set(answers()) == {(action, state) for action in ACTIONS for state in ALONE}
    done = {cell for cell, answer in answers().items() if answer == "done" and cell[0] != "look"}
    # A new script is in place after these; that is all.
    assert done - set(AFTER) == {("deploy", state) for state in ("none", "approval", "doubt", "committed", "paused")}
    assert set(AFTER) <= done


@pytest.mark.parametrize(("action", "state"), AFTER)
async def test_an_action_is_answered_and_the_run_ends_as_the_table_says(action: str, state: str) -> None:
    fake = Fake()
    async with world(fake) as box:
        stage = Stage(box, fake)
        await in_state(stage, state)
        if stage.hang is not None and action == "deploy":
            await deploy_in_the_meantime(stage)
        else:
            assert await reason(ACTIONS[action](stage)) is None
            await stage.end()
        assert await stage.seen() == AFTER[action, state]
        assert fake.done_twice == []


@pytest.mark.parametrize("state", ALONE)
async def test_what_is_refused_or_only_looks_changes_nothing(state: str) -> None:
    fake = Fake()
    async with world(fake) as box:
        stage = Stage(box, fake)
        await in_state(stage, state)
        for action in ACTIONS:
            if (action, state) not in AFTER:
                assert await reason(ACTIONS[action](stage)) == WHY[answers()[action, state]], action
        await stage.end()
        assert await stage.seen() == ALONE[state]
        await look_at_everything(stage)
        assert fake.done_twice == []


async def reason(action: Awaitable[object]) -> Reason | None:
    """Why the action was refused; None if it was not."""
    try:
        await action
    except Rejected as refused:
        return refused.reason
    return None


async def deploy_in_the_meantime(stage: Stage) -> None:
    """The only action that waits for the end of the run."""
    answered: list[Reason | None] = []

    async def deploy() -> None:
        answered.append(await reason(ACTIONS["deploy"](stage)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(deploy)
        await stage.box.until_idle()
        assert answered == []
        await stage.end()
    assert answered == [None]


# The same in slow motion, where the order of things matters.


async def test_a_pause_during_a_call_outside_lets_the_run_commit_and_a_resume_goes_on() -> None:
    fake = Fake()
    async with world(fake) as box:
        stage = Stage(box, fake)
        await in_state(stage, "calling")
        assert (await box.keep.pause(stage.id)).status == "paused"
        assert await box.statuses(stage.id, "in") == {"a": "reserved", "b": "pending"}
        await stage.end()
        assert await stage.seen() == AFTER["pause", "calling"]
        await box.advance(DAY)
        assert await stage.seen() == AFTER["pause", "calling"]
        await box.keep.resume(stage.id)
        await box.settle()
        assert await stage.seen() == f"active | {BOTH} | a, b | 2"


async def test_a_pause_that_is_taken_back_during_a_call_changes_nothing() -> None:
    fake = Fake()
    async with world(fake) as box:
        stage = Stage(box, fake)
        await in_state(stage, "calling")
        await box.keep.pause(stage.id)
        await box.keep.resume(stage.id)
        await stage.end()
        assert await stage.seen() == ALONE["calling"]


@pytest.mark.parametrize("ends", [raises(Transient("503")), raises(AuthRequired("sign in")), raises(InvalidCall("no"))])
async def test_what_failed_while_the_workflow_was_paused_goes_on_when_it_may(ends: Step) -> None:
    fake = Fake()
    async with world(fake) as box:
        stage = Stage(box, fake)
        await stage.deploy()
        hang = fake.hang("add", ends)
        await box.publish(stage.id, "in", "a")
        await hang.reached.wait()
        await box.keep.pause(stage.id)
        hang.release()
        await box.settle()
        assert await box.statuses(stage.id, "in") == {"a": "pending"}
        await box.keep.deploy(flow("new "), workflow="flow")
        if (await box.keep.workflow(stage.id)).error:
            await box.keep.clear_error(stage.id, by="alice")
        await box.settle()
        assert fake.texts == []
        await box.keep.resume(stage.id)
        await box.settle()
        assert (await box.statuses(stage.id, "in"), fake.texts) == ({"a": "consumed"}, ["new a"])


async def test_a_doubt_that_arises_while_the_workflow_is_paused_stays_after_a_resume() -> None:
    fake = Fake()
    async with world(fake) as box:
        stage = Stage(box, fake)
        await stage.deploy()
        hang = fake.hang("add", applies_and_raises(Uncertain("lost")))
        await box.publish(stage.id, "in", "a")
        await hang.reached.wait()
        await box.keep.pause(stage.id)
        hang.release()
        await box.settle()
        await box.keep.resume(stage.id)
        await box.advance(2 * DAY)
        assert await stage.seen() == "active error | paused:reconciliation | a reserved | a | 1"


async def test_a_run_that_was_paused_before_it_touched_anything_leaves_no_trace_and_starts_anew() -> None:
    """A consumer that only computes is in the file when it commits: a pause that was quicker finds nothing to keep."""
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(script(mutate="await c.fake.add({ text: prepared.data.id });"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(box.publish, "flow", "in", "a")
            tasks.start_soon(box.keep.pause, "flow")
        await box.settle()
        assert (await box.statuses("flow", "in"), await box.keep.runs("flow")) == ({"a": "pending"}, [])
        await box.keep.resume("flow")
        await box.settle()
        assert (await box.statuses("flow", "in"), fake.texts) == ({"a": "consumed"}, ["a"])


async def test_an_archived_workflow_lets_go_of_its_name_and_its_run_still_ends() -> None:
    fake = Fake()
    async with world(fake) as box:
        stage = Stage(box, fake)
        await in_state(stage, "calling")
        await box.keep.archive(stage.id)
        another = await box.keep.deploy(flow("new "))
        assert (another.version, another.workflow_id != stage.id) == ("1.0", True)
        await stage.end()
        assert await stage.seen() == AFTER["archive", "calling"]
        assert (await box.keep.workflow("flow")).id == another.workflow_id
        await box.publish("flow", "in", "a")
        await box.settle()
        assert fake.texts == ["a", "new a"]


async def test_many_actions_during_one_call_are_all_answered_and_the_last_word_counts() -> None:
    fake = Fake()
    async with world(fake) as box:
        stage = Stage(box, fake)
        await in_state(stage, "calling")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(box.keep.deploy, flow("new "), workflow="flow"))
            tasks.start_soon(partial(box.keep.deploy, flow("newer "), workflow="flow"))
            await box.until_idle()
            for action in ("pause", "resume", "publish", "look", "pause", "skip_b", "resume"):
                assert await reason(ACTIONS[action](stage)) is None
            assert await reason(ACTIONS["run_now"](stage)) is Reason.RUN_ALREADY_ACTIVE
            await stage.end()
        versions = {(await box.keep.explain(run.id)).run.version_id for run in await box.runs(stage.id, "file")}
        assert len(versions) == 2
        assert await box.statuses(stage.id, "in") == {"a": "consumed", "b": "skipped", "c": "consumed"}
        assert fake.texts in (["a", "new c"], ["a", "newer c"])


async def test_what_is_run_now_is_run_at_once_and_its_schedule_goes_on_from_there() -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(flow())
        await box.settle()
        await box.advance(DAY // 2)
        await box.keep.run_now("flow")
        await box.settle()
        await box.advance(DAY - 1)
        await box.advance(1)
        started = [run.created_at - START for run in await box.runs("flow", "poll")]
        assert started == [0, DAY // 2, DAY // 2 + DAY]


async def test_a_producer_that_waits_before_it_tries_again_is_run_now_all_the_same() -> None:
    fake = Fake()
    fake.plan("search", raises(Transient("503", retry_after_ms=DAY)))
    async with world(fake) as box:
        await box.keep.deploy(script(producer="await c.fake.search({});"))
        await box.settle()
        await box.keep.run_now("flow")
        await box.settle()
        assert [run.status for run in await box.runs("flow", "poll")] == ["paused:transient", "committed"]


async def test_who_names_no_workflow_event_or_run_is_told_so() -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(flow())
        assert await reason(box.keep.pause("nobody")) is Reason.WORKFLOW_NOT_FOUND
        assert await reason(box.keep.explain("run_0")) is Reason.RUN_NOT_FOUND
        assert await reason(box.keep.skip_event("flow", "nowhere", "a")) is Reason.EVENT_NOT_FOUND
        assert await reason(box.publish("flow", "nowhere", "a")) is Reason.TOPIC_NOT_DECLARED
        assert await reason(box.keep.deploy(flow(), workflow="nobody")) is Reason.WORKFLOW_NOT_FOUND
