"""Log lines: whose work they are about, what is news, and what is never in them."""

import io
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import anyio
import msgspec
import pytest

from keep_actors import Grant, Policy
from keep_actors.connectors import Connector, ReadCall, Uncertain, read
from keep_actors.maintenance import Proposal, RepairFailed, RepairTask
from keep_actors.secret import Secret
from keep_actors.telemetry import json_handler
from tests.runtime.fakes import Fake, applies_and_raises
from tests.runtime.world import MINUTE, TimedBox, script, world

pytestmark = pytest.mark.anyio

PRIVATE = "private-words"
ADD = f'await c.fake.add({{ text: prepared.data.id + "{PRIVATE}" }});'
log = logging.getLogger("tests.telemetry")


class Lines:
    """What was written, one object per line."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    @property
    def all(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    def of(self, logger: str) -> list[dict[str, Any]]:
        return [line for line in self.all if line["logger"] == logger]

    @property
    def news(self) -> list[tuple[str, str]]:
        return [(line["level"], line["message"]) for line in self.of("keep_actors.news")]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Everything that is logged, at any level."""
    found, root, news = Lines(), logging.getLogger(), logging.getLogger("keep_actors.news")
    handler, level, level_of_news = json_handler(found.stream), root.level, news.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    # `keep run` says the news in its own words, and silences this logger for its process: perhaps for this one.
    news.setLevel(logging.NOTSET)
    yield found
    root.removeHandler(handler)
    root.setLevel(level)
    news.setLevel(level_of_news)


@pytest.fixture
def apart(lines: Lines) -> logging.Logger:
    """A logger whose records pytest does not see: its own handlers raise what ours must not."""
    logger = logging.Logger("tests.apart")
    logger.addHandler(json_handler(lines.stream))
    return logger


class Chatty(Connector):
    """Logs inside its read, and waits there until all have come."""

    name = "chatty"

    def __init__(self, expected: int = 1) -> None:
        self._missing = expected
        self._all_here = anyio.Event()

    @read
    async def look(self, call: ReadCall) -> str:
        log.info("before", extra={"mine": call.run_id})
        self._missing -= 1
        if self._missing <= 0:
            self._all_here.set()
        await self._all_here.wait()
        log.info("after", extra={"mine": call.run_id})
        return ""


async def one(box: TimedBox, source: str, name: str = "flow", **options: Any) -> None:
    await box.keep.deploy(source, **options)
    await box.publish(name, "in", f"one-{PRIVATE}", payload=PRIVATE)
    await box.settle()


async def test_ids_are_there_in_a_run_and_absent_outside(lines: Lines) -> None:
    async with world(Chatty()) as box:
        log.info("outside")
        await box.keep.deploy(script(producer="await c.chatty.look({});"))
        await box.settle()
        run = await box.last_run("flow", "poll")
        log.info("outside again")
    first, before, after, last = lines.of("tests.telemetry")
    for line in (before, after):
        assert (line["workflow_id"], line["run_id"], line["handler"]) == (run.workflow_id, run.id, "poll")
    for line in (first, last):
        assert set(line) == {"time", "level", "logger", "message"}


async def test_two_workflows_at_once_do_not_mix(lines: Lines) -> None:
    async with world(Chatty(2)) as box:
        for name in ("a", "b"):
            await box.keep.deploy(script(name=name, producer="await c.chatty.look({});"))
        await box.settle()
        owners = {run.id: run.workflow_id for name in ("a", "b") for run in await box.keep.runs(name)}
    said = lines.of("tests.telemetry")
    assert [line["message"] for line in said] == ["before", "before", "after", "after"]
    assert {line["run_id"]: line["workflow_id"] for line in said} == owners
    assert all(line["run_id"] == line["extra"]["mine"] for line in said)


async def test_a_workflow_that_a_run_of_another_wakes_is_not_taken_for_it(lines: Lines) -> None:
    class Waking(Connector):
        """Publishes into another workflow, as a connector of the embedding service may."""

        name = "waking"

        @read
        async def wake(self) -> str:
            await box.publish("b", "in", "one")
            return ""

    async with world(Waking()) as box:
        await box.keep.deploy(script(name="b", prepare="null.x;"))
        await box.settle()
        await box.keep.deploy(script(name="a", producer="await c.waking.wake({});"))
        await box.settle()
        run = await box.last_run("b", "file")
    stopped = [line for line in lines.of("keep_actors.news") if "stopped" in line["message"]]
    assert [(line["run_id"], line["workflow_id"], line["handler"]) for line in stopped] == [
        (run.id, run.workflow_id, "file")
    ]


async def test_a_run_that_stops_is_told_once_without_its_words(lines: Lines) -> None:
    async with world() as box:
        await one(box, script(prepare=f'throw new Error("{PRIVATE}");'))
        run = await box.last_run("flow", "file")
    [(level, message)] = lines.news
    assert level == "WARNING"
    assert message == (
        f"Run {run.id} of 'file' in workflow {run.workflow_id} stopped: failed:logic (logic) at {run.error_place}"
    )
    assert lines.of("keep_actors.news")[0]["run_id"] == run.id


async def test_an_unknown_outcome_is_an_error(lines: Lines) -> None:
    fake = Fake()
    fake.plan("add", applies_and_raises(Uncertain(PRIVATE)))
    async with world(fake) as box:
        await one(box, script(mutate=ADD))
    assert [level for level, _ in lines.news] == ["ERROR", "WARNING"]
    assert lines.news[0][1].startswith("The outcome of fake.add is unknown")


async def test_a_question_to_a_person_is_told(lines: Lines) -> None:
    async with world(Fake()) as box:
        await one(box, script(mutate=ADD), grants=[Grant("fake.add", policy="ask")])
        [question] = await box.keep.approvals()
    assert [level for level, _ in lines.news] == ["WARNING", "WARNING"]
    assert lines.news[0][1].endswith(f"may call fake.add: {question.approval_id}")
    assert PRIVATE not in lines.stream.getvalue()


class Mechanic:
    is_automatic = True

    def __init__(self, *answers: Proposal | Exception) -> None:
        self._answers = list(answers)

    async def repair(self, _: RepairTask) -> Proposal:
        answer = self._answers.pop(0) if self._answers else RepairFailed(PRIVATE)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_a_repair_is_told_from_its_failure_to_its_end(lines: Lines) -> None:
    mended = script(prepare="return { reservations: [] };")
    mechanic = Mechanic(RepairFailed(PRIVATE), Proposal(mended, "potentially_impactful"))
    async with world(maintainer=mechanic) as box:
        await one(box, script(prepare=f'throw new Error("{PRIVATE}");'))
        for _ in range(5):
            await box.advance(15 * MINUTE)
        await box.keep.accept_repair("flow", "1.1", by="alice")
        await box.settle()
    told = [message.partition(" workflow ")[0] for _, message in lines.news[1:]]
    assert told == ["An attempt to repair", "A repair of", "The repair of"]
    assert lines.news[-1][1].endswith("by a person is activated")
    assert PRIVATE not in lines.stream.getvalue()


async def test_a_workflow_that_is_halted_is_an_error(lines: Lines) -> None:
    async with world(maintainer=Mechanic(), policy=Policy(repairs_max=1)) as box:
        await one(box, script(prepare="null.x;"))
        workflow = await box.keep.workflow("flow")
    assert ("ERROR", f"Workflow {workflow.id} is halted (logic) and waits for a person") in lines.news


async def test_what_a_dead_process_left_is_told_at_the_next_start(lines: Lines, tmp_path: Any) -> None:
    fake = Fake()
    hang = fake.hang("add")
    async with world(fake, path=tmp_path / "keep.db", shutdown_grace_ms=0) as box:
        await box.keep.deploy(script(mutate=ADD))
        await box.publish("flow", "in", "one")
        await hang.reached.wait()
    assert lines.news == []
    async with world(fake, path=tmp_path / "keep.db") as box:
        await box.settle()
    [(level, message)] = lines.news
    assert level == "ERROR"
    assert message.endswith("was cut off in a call whose outcome is unknown")


# The formatter.


class Account(msgspec.Struct):
    name: str
    key: Secret


@dataclass
class Client:
    key: Secret


HIDDEN = "s3cret-value"
SECRET = Secret(HIDDEN)
HOLDERS: dict[str, Any] = {
    "itself": SECRET,
    "a dict": {"key": SECRET, SECRET: 1},
    "a list": [1, [SECRET]],
    "a tuple and a set": (SECRET, {SECRET}),
    "a struct": Account("a", SECRET),
    "a dataclass": Client(SECRET),
    "all at once": {"a": [Account("a", SECRET), (Client(SECRET),)]},
    "an error": ValueError("no", SECRET),
}


@pytest.mark.parametrize("where", HOLDERS)
def test_a_secret_is_never_written_wherever_it_is(lines: Lines, where: str) -> None:
    held = HOLDERS[where]
    log.info("as %s and %r", held, held, extra={"held": held})
    log.info("%(held)s", {"held": held})
    log.info(held)
    try:
        raise RuntimeError(held)
    except RuntimeError:
        log.exception("raised")
    written = lines.stream.getvalue()
    assert HIDDEN not in written
    assert written.count("[secret]") >= 5
    assert len(lines.all) == 4


def test_a_struct_is_written_with_its_fields(lines: Lines) -> None:
    log.info("who", extra={"account": Account("alice", SECRET)})
    assert lines.all[0]["extra"] == {"account": {"name": "alice", "key": "[secret]"}}


class Awkward:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def cyclic() -> list[Any]:
    loop: list[Any] = [1]
    loop.extend([loop, loop])
    return loop


@pytest.mark.parametrize(
    "odd",
    [Awkward(), cyclic(), "\ud800", float("nan"), 10**5000, b"\xff", {1: {2: Awkward()}}, object(), "two\nlines"],
    ids=["no repr", "cycle", "surrogate", "nan", "huge", "bytes", "nested", "object", "lines"],
)
def test_whatever_is_logged_is_one_line_of_json(lines: Lines, apart: logging.Logger, odd: Any) -> None:
    apart.info("it is %s", odd, extra={"odd": odd})
    apart.info("wrong %d", odd)
    apart.info("too few %s %s", odd)
    assert len(lines.all) == 3
    assert all(line["level"] == "INFO" for line in lines.all)


def test_an_exception_is_in_its_line(lines: Lines) -> None:
    try:
        raise ValueError("why")
    except ValueError:
        log.exception("it failed")
    [line] = lines.all
    assert (line["level"], line["message"]) == ("ERROR", "it failed")
    assert line["exception"].endswith("ValueError: why")
