"""What becomes of a run, its events and its workflow when something fails: outside, in the script, or in doubt.

What did not happen may be tried again; what happened is never repeated; what nobody knows is left alone.
"""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from keep_actors import Backoff, DeployRefused, Policy, Reason, Rejected
from keep_actors.connectors import (
    AuthRequired,
    ConnectorBug,
    InvalidCall,
    PermissionDenied,
    PreconditionFailed,
    Retry,
    Transient,
    Uncertain,
)
from keep_actors.kernel import VirtualTime
from keep_storage import reads
from keep_storage.model import Resolver
from tests.runtime.fakes import Fake, Hang, Step, answers_wrongly, applies_and_raises, raises
from tests.runtime.world import DAY, MINUTE, SECOND, START, TAKE, TimedBox, by_hand, left_in, opened, script, world

pytestmark = pytest.mark.anyio

ADD = "await c.fake.add({ text: prepared.data.id });"
READ = "await c.fake.search({});"
STEADY = Policy(retry=Backoff(jitter=0))


class Stop(NamedTuple):
    """How a run stops: its status, the class of the error, and what keeps the workflow from going on."""

    status: str
    cls: str
    blocked: str


LATER = Stop("paused:transient", "transient", "")
SIGN_IN = Stop("paused:approval", "auth", "error")
GRANT = Stop("paused:approval", "permission", "error")
DECIDE = Stop("paused:approval", "precondition", "error")
REPAIR = Stop("failed:logic", "logic", "repair")
BUG = Stop("failed:internal", "internal", "error")
DOUBT = Stop("paused:reconciliation", "indeterminate", "error")

# What happens at the call: how a read stops the run, and how a mutation does.
STEPS: dict[str, tuple[Step, Stop, Stop]] = {
    "Transient": (raises(Transient("out of order")), LATER, LATER),
    "AuthRequired": (raises(AuthRequired("out of order")), SIGN_IN, SIGN_IN),
    "PermissionDenied": (raises(PermissionDenied("out of order")), GRANT, GRANT),
    "PreconditionFailed": (raises(PreconditionFailed("out of order")), DECIDE, DECIDE),
    "InvalidCall": (raises(InvalidCall("out of order")), REPAIR, REPAIR),
    "ConnectorBug": (raises(ConnectorBug("out of order")), BUG, BUG),
    "Uncertain": (raises(Uncertain("out of order")), BUG, DOUBT),
    "ConnectionError": (raises(ConnectionError("out of order")), LATER, DOUBT),
    "TimeoutError": (raises(TimeoutError("out of order")), LATER, DOUBT),
    "another error": (raises(LookupError("out of order")), BUG, DOUBT),
    "a group": (raises(ExceptionGroup("out of order", [Transient("no")])), BUG, DOUBT),
    "a lost answer": (applies_and_raises(ConnectionError("out of order")), LATER, DOUBT),
    "a wrong answer": (answers_wrongly, BUG, DOUBT),
}


async def stopped(box: TimedBox, handler: str) -> Stop:
    """How the last run of a handler stopped."""
    run, workflow = await box.last_run("flow", handler), await box.keep.workflow("flow")
    assert bool(workflow.error) == (workflow.error_run_id == run.id)
    blocked = "error" * bool(workflow.error) + "repair" * workflow.maintenance
    return Stop(run.status, str(run.error_class), blocked)


async def made_to_go_on(box: TimedBox, repaired: str) -> None:
    """Do what a person, a repair or time does about a run that stopped."""
    workflow = await box.keep.workflow("flow")
    if workflow.error:
        await box.keep.clear_error("flow", by="alice", why="fixed")
    if workflow.maintenance:
        await box.keep.deploy(repaired, workflow="flow")
    await box.advance(15 * SECOND)


# Each failure, in a read and in a mutation.


@pytest.mark.parametrize("what", STEPS)
@pytest.mark.parametrize("handler", ["poll", "file"])
async def test_a_failed_read_stops_the_run_changes_nothing_and_is_tried_again_when_it_may_be(
    handler: str, what: str
) -> None:
    step, expected, _ = STEPS[what]
    fake = Fake()
    fake.plan("search", step)
    source = script(producer=READ) if handler == "poll" else script(prepare=READ + TAKE, mutate=ADD)
    async with world(fake) as box:
        await box.keep.deploy(source)
        await box.publish("flow", "in", "a")
        await box.settle()
        assert await stopped(box, handler) == expected
        run = await box.last_run("flow", handler)
        assert "fake.search" in run.error_message
        assert ("out of order" in run.error_message) == (what != "a wrong answer")
        assert (await box.statuses("flow", "in"), await box.keep.outputs("flow")) == ({"a": "pending"}, [])
        await made_to_go_on(box, source + "\n// repaired")
        assert (await box.last_run("flow", handler)).status == "committed"
        assert fake.calls == ["search", "search", *["add a"] * (handler == "file")]


@pytest.mark.parametrize("what", [what for what, (_, _, stop) in STEPS.items() if stop != DOUBT])
async def test_a_mutation_that_did_not_happen_releases_its_events_and_may_be_made_again(what: str) -> None:
    step, _, expected = STEPS[what]
    fake = Fake()
    fake.plan("add", step)
    async with world(fake) as box:
        await box.keep.deploy(script(mutate=ADD))
        await box.publish("flow", "in", "a")
        await box.settle()
        assert await stopped(box, "file") == expected
        assert "fake.add: out of order" in (await box.last_run("flow", "file")).error_message
        [failed] = await box.keep.outputs("flow")
        assert (failed.status, failed.error) == ("failed", "fake.add: out of order")
        assert (await box.statuses("flow", "in"), fake.texts) == ({"a": "pending"}, [])
        await made_to_go_on(box, script(mutate=ADD, next_="return 1;"))
        assert (await box.statuses("flow", "in"), fake.texts) == ({"a": "consumed"}, ["a"])
        assert len(set(fake.keys)) == 2


@pytest.mark.parametrize("what", [what for what, (_, _, stop) in STEPS.items() if stop == DOUBT])
async def test_a_mutation_that_may_have_happened_holds_its_events_and_is_never_made_again(what: str) -> None:
    fake = Fake()
    fake.plan("add", STEPS[what][0])
    async with world(fake) as box:
        await box.keep.deploy(script(mutate=ADD))
        await box.publish("flow", "in", "a")
        await box.settle()
        assert await stopped(box, "file") == DOUBT
        await box.publish("flow", "in", "b")
        await box.advance(DAY)
        [doubt] = await box.keep.outputs("flow")
        assert (doubt.status, fake.calls) == ("indeterminate", ["add a"])
        assert await box.statuses("flow", "in") == {"a": "reserved", "b": "pending"}


async def test_a_doubt_that_the_connector_may_settle_is_kept_as_such() -> None:
    fake = Fake()
    fake.plan("put", applies_and_raises(Uncertain("lost")))
    fake.plan("reconcile", *[answering(Retry("cannot tell"))] * 1000)
    async with world(fake) as box:
        await box.keep.deploy(script(mutate="await c.fake.put({ text: prepared.data.id });"))
        await box.publish("flow", "in", "a")
        await box.settle()
        assert await stopped(box, "file") == DOUBT
        [doubt] = await box.keep.outputs("flow")
        assert (doubt.status, await box.statuses("flow", "in")) == ("needs_reconcile", {"a": "reserved"})
        assert fake.calls.count("put a") == 1


def answering(value: object) -> Step:
    async def step(_: object) -> object:
        return value

    return step


# Time limits: real ones, and tiny.


@pytest.mark.parametrize("handler", ["poll", "file"])
@pytest.mark.parametrize(
    "policy", [Policy(read_timeout_ms=5), Policy(timeouts={"fake": 5}), Policy(timeouts={"fake.search": 5})]
)
async def test_a_read_without_an_answer_is_given_up_and_tried_again(handler: str, policy: Policy) -> None:
    fake = Fake()
    fake.plan("search", Hang())
    async with world(fake, policy=policy) as box:
        await box.keep.deploy(script(producer=READ) if handler == "poll" else script(prepare=READ + TAKE))
        await box.publish("flow", "in", "a")
        await box.settle()
        assert await stopped(box, handler) == LATER
        assert "fake.search: no answer within 5 ms" in (await box.last_run("flow", handler)).error_message
        await box.advance(15 * SECOND)
        assert (await box.last_run("flow", handler)).status == "committed"


async def test_a_mutation_without_an_answer_is_a_doubt() -> None:
    fake = Fake()
    fake.plan("add", Hang())
    async with world(fake, policy=Policy(mutation_timeout_ms=5)) as box:
        await box.keep.deploy(script(mutate=ADD))
        await box.publish("flow", "in", "a")
        await box.settle()
        assert await stopped(box, "file") == DOUBT
        workflow = await box.keep.workflow("flow")
        assert workflow.error == "Mutation outcome uncertain: fake.add: no answer within 5 ms"
        await box.advance(DAY)
        assert (fake.calls, await box.statuses("flow", "in")) == (["add a"], {"a": "reserved"})


# A doubt stays, whatever is done.


async def assert_in_doubt(box: TimedBox, fake: Fake) -> None:
    assert await stopped(box, "file") == DOUBT
    assert (await box.statuses("flow", "in"), fake.calls) == ({"a": "reserved", "b": "pending"}, ["add a"])
    workflow = await box.keep.workflow("flow")
    assert workflow.error.startswith("Mutation outcome uncertain: fake.add: the result does not fit")
    [doubt] = await box.keep.outputs("flow")
    assert (doubt.status, doubt.params, doubt.result) == ("indeterminate", '{"text":"a"}', None)
    explained = await box.keep.explain(doubt.run_id)
    assert workflow.error in explained.why
    assert explained.can_do == ["Find out whether the call took effect, and say so. Its events are held."]
    assert [event.message_id for event in explained.selected] == ["a"]


async def test_a_wrong_answer_of_a_mutation_is_a_doubt_that_nothing_but_an_answer_ends(tmp_path: Path) -> None:
    fake = Fake()
    fake.plan("add", answers_wrongly)
    path = tmp_path / "keep.db"
    async with world(fake, path=path) as box:
        await box.keep.deploy(script(producer="return 1;", mutate=ADD))
        await box.publish("flow", "in", "a")
        await box.settle()
        await box.publish("flow", "in", "b")
        await assert_in_doubt(box, fake)
        with pytest.raises(Rejected) as refused:
            await box.keep.clear_error("flow", by="alice")
        assert refused.value.reason is Reason.MUTATION_OUTCOME_UNKNOWN
        await box.keep.pause("flow")
        await box.keep.resume("flow")
        await box.keep.deploy(script(producer="return 2;", mutate=ADD), workflow="flow")
        await box.advance(2 * DAY)
        await assert_in_doubt(box, fake)
        for refuse in (box.keep.run_now("flow"), box.keep.skip_event("flow", "in", "a")):
            with pytest.raises(Rejected):
                await refuse
        assert len(await box.runs("flow", "poll")) == 1
    async with world(fake, path=path, time=VirtualTime(START + 3 * DAY)) as box:
        await box.settle()
        await assert_in_doubt(box, fake)
        with pytest.raises(Rejected) as refused:
            await box.keep.clear_error("flow", by="alice")
        assert refused.value.reason is Reason.MUTATION_OUTCOME_UNKNOWN
        await box.advance(2 * DAY)
        await assert_in_doubt(box, fake)
    assert fake.texts == ["a"]


@pytest.mark.parametrize("verdict", ["it happened", "it did not", "skip"])
async def test_once_a_person_has_settled_the_doubt_the_run_is_carried_on(tmp_path: Path, verdict: str) -> None:
    fake = Fake()
    fake.plan("add", raises(Uncertain("lost")))
    path = tmp_path / "keep.db"
    async with world(fake, path=path) as box:
        await box.keep.deploy(script(mutate=ADD, next_="console.log(prepared.data, result);"))
        await box.publish("flow", "in", "a")
        await box.settle()
        [doubt] = await box.keep.outputs("flow")
    with by_hand(path) as model:
        match verdict:
            case "it happened":
                model.apply_mutation(doubt.mutation_id, '{"id":"told"}', Resolver.USER_ASSERT_APPLIED, by="alice")
            case "it did not":
                model.fail_mutation(doubt.mutation_id, "", Resolver.USER_ASSERT_FAILED, by="alice")
            case _:
                model.skip_mutation(doubt.mutation_id, by="alice")
    async with world(fake, path=path, time=VirtualTime(START + MINUTE)) as box:
        await box.settle()
        run = await box.last_run("flow", "file")
        result, calls, status = {
            "it happened": ('{"status":"applied","result":{"id":"told"}}', 1, "consumed"),
            "it did not": ('{"status":"applied","result":{"id":"add_1","text":"a"}}', 2, "consumed"),
            "skip": ('{"status":"skipped"}', 1, "skipped"),
        }[verdict]
        assert (run.status, json.loads(run.logs)) == ("committed", [f'{{"id":"a"}} {result}'])
        assert run.retry_of == (None if verdict == "it did not" else doubt.run_id)
        assert (await box.statuses("flow", "in"), fake.calls) == ({"a": status}, ["add a"] * calls)
        assert (await box.keep.workflow("flow")).error == ""


# Parameters that do not fit.


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("c.fake.add({ text: 5 })", "fake.add: text: expected string, got number"),
        ("c.fake.add({})", "fake.add: text: is required and missing"),
        ("c.fake.add()", "fake.add: text: is required and missing"),
        ("c.fake.add({ text: 'a', to: 'b' })", "fake.add: to: is not a known field; there are: text"),
        ("c.fake.add({ text: 'a', subkey: 'b' })", "fake.add: subkey: is not a known field; there are: text"),
        ("c.fake.add('text')", "fake.add: expected object"),
        ("c.fake.add({ text: ['a'] })", "fake.add: text: expected string, got array"),
    ],
)
async def test_parameters_of_a_mutation_that_do_not_fit_are_named_and_nothing_is_in_the_ledger(
    call: str, words: str
) -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(script(mutate=f"await {call};"))
        await box.publish("flow", "in", "a")
        await box.settle()
        assert await stopped(box, "file") == REPAIR
        assert words in (await box.last_run("flow", "file")).error_message
        assert (fake.calls, await box.keep.outputs("flow")) == ([], [])
        assert await box.statuses("flow", "in") == {"a": "pending"}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("c.fake.search({ query: 5 })", "fake.search: query: expected string, got number"),
        ("c.fake.get({ id: 'x' })", "fake.get: "),
    ],
)
async def test_parameters_of_a_read_that_do_not_fit_are_named_and_nothing_is_asked(call: str, words: str) -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(script(producer=f"try {{ await {call}; }} catch {{ console.log('caught'); }}"))
        await box.settle()
        run = await box.last_run("flow", "poll")
        assert (await stopped(box, "poll"), fake.calls, run.logs) == (REPAIR, [], "[]")
        assert words in run.error_message


# What may pass is tried again.


async def times(box: TimedBox, handler: str) -> list[int]:
    """When the runs of a handler began, in seconds."""
    return [(run.created_at - START) // SECOND for run in await box.runs("flow", handler)]


KINDS = {
    "a producer": ("poll", "search", script(producer=READ)),
    "prepare": ("file", "search", script(prepare=READ + TAKE, mutate=ADD)),
    "a mutation": ("file", "add", script(mutate=ADD)),
    "a job": ("sweep", "search", script(job=READ)),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_failure_that_may_pass_is_tried_again_later_and_later_for_a_day_until_a_person_is_asked(
    kind: str,
) -> None:
    handler, method, source = KINDS[kind]
    fake = Fake()
    fake.plan(method, *[raises(Transient("503"))] * 7)
    async with world(fake, policy=STEADY) as box:
        await box.keep.deploy(source)
        await box.publish("flow", "in", "a")
        await box.settle()
        for wait_s in (10, 20, 40, 80):
            assert await stopped(box, handler) == LATER
            await box.advance(wait_s * SECOND - 1)
            before = len(fake.calls)
            await box.advance(1)
            assert len(fake.calls) == before + 1
        assert await stopped(box, handler) == LATER
        await box.leap(DAY - 150 * SECOND)
        assert await times(box, handler) == [0, 10, 30, 70, 150, DAY // SECOND]
        assert await stopped(box, handler) == Stop("paused:approval", "transient", "error")
        workflow = await box.keep.workflow("flow")
        assert workflow.error.startswith("Failed 6 times in a row, for 24 hours, the last time with: ")
        assert "503" in workflow.error
        await box.advance(DAY)
        assert len(await times(box, handler)) == 6

        # "I fixed it" starts over: at once, and then after the shortest wait.
        await box.keep.clear_error("flow", by="alice")
        await box.settle()
        assert await stopped(box, handler) == LATER
        await box.advance(10 * SECOND)
        assert (await box.last_run("flow", handler)).status == "committed"
        assert fake.texts == (["a"] if handler == "file" else [])


async def test_a_success_forgets_the_failures_before_it() -> None:
    fake = Fake()
    step = raises(Transient("503"))
    async with world(fake, policy=STEADY) as box:
        await box.keep.deploy(script(mutate=ADD))
        fake.plan("add", step, step)
        await box.publish("flow", "in", "a")
        await box.settle()
        await box.advance(10 * SECOND)
        await box.advance(20 * SECOND)
        assert await box.statuses("flow", "in") == {"a": "consumed"}
        fake.plan("add", step)
        await box.publish("flow", "in", "b")
        await box.settle()
        await box.advance(10 * SECOND)
        assert await times(box, "file") == [0, 10, 30, 30, 40]
        assert fake.texts == ["a", "b"]


async def test_the_other_side_may_ask_for_more_patience() -> None:
    fake = Fake()
    fake.plan("search", raises(Transient("429", retry_after_ms=MINUTE)))
    async with world(fake, policy=STEADY) as box:
        await box.keep.deploy(script(producer=READ))
        await box.settle()
        await box.advance(MINUTE - 1)
        await box.advance(1)
        assert await times(box, "poll") == [0, 60]


async def test_a_wait_outlasts_the_process(tmp_path: Path) -> None:
    fake = Fake()
    fake.plan("add", *[raises(Transient("503"))] * 2)
    path = tmp_path / "keep.db"
    async with world(fake, path=path, policy=STEADY) as box:
        await box.keep.deploy(script(mutate=ADD))
        await box.publish("flow", "in", "a")
        await box.settle()
        await box.advance(10 * SECOND)
    async with world(fake, path=path, policy=STEADY, time=VirtualTime(START + 15 * SECOND)) as box:
        await box.settle()
        assert await times(box, "file") == [0, 10]
        await box.advance(15 * SECOND)
        assert await times(box, "file") == [0, 10, 30]
        assert fake.texts == ["a"]


async def test_while_one_handler_waits_the_others_go_on() -> None:
    fake = Fake()
    fake.plan("search", *[raises(Transient("503"))] * 2)
    async with world(fake, policy=STEADY) as box:
        await box.keep.deploy(script(producer=READ, mutate=ADD))
        await box.publish("flow", "in", "a")
        await box.settle()
        assert await stopped(box, "poll") == LATER
        assert (await box.statuses("flow", "in"), fake.texts) == ({"a": "consumed"}, ["a"])


# The script fails.


@pytest.mark.parametrize("group", ["producers", "jobs", "consumers"])
async def test_a_handler_without_a_name_is_refused_before_it_can_fail(group: str) -> None:
    handler = "async () => 1" if group != "consumers" else "{ subscribe: ['in'], prepare: async () => null }"
    source = f'export default Keep.workflow({{ name: "flow", topics: ["in"], {group}: {{ "": {handler} }} }});'
    async with world(Fake()) as box:
        with pytest.raises(DeployRefused, match=f"a handler in `{group}` has no name"):
            await box.keep.deploy(source)
        assert await box.keep.workflows() == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('throw new RangeError("too far");', "RangeError: too far"),
        ('throw "words";', "words"),
        ("null.x;", "TypeError: "),
        ("await new Promise(() => {});", "waits for a promise that nothing will ever settle"),
        ("return 1n;", "a BigInt is not JSON"),
        ("return { when: new Date() };", "at when: a Date is not JSON"),
    ],
)
async def test_an_error_of_the_script_is_a_logic_error_that_says_where(body: str, words: str) -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(script(producer=f'await c.publish("out", {{ title: "T" }}); {body}'))
        await box.settle()
        run = await box.last_run("flow", "poll")
        assert await stopped(box, "poll") == REPAIR
        assert run.error_message.startswith("producers.poll: ")
        assert words in run.error_message
        assert await box.statuses("flow", "out") == {}


@pytest.mark.parametrize("phase", ["prepare", "mutate", "next_"])
async def test_a_run_that_fails_before_its_mutation_releases_its_events(phase: str) -> None:
    fake = Fake()
    async with world(fake) as box:
        bodies = {"next_": "return 1;", phase: 'throw new Error("no");'}
        await box.keep.deploy(script(**bodies))
        await box.publish("flow", "in", "a", "b")
        await box.settle()
        assert await stopped(box, "file") == REPAIR
        assert await box.statuses("flow", "in") == {"a": "pending", "b": "pending"}
        assert (await box.keep.workflow("flow")).pending_retry_run_id is None
        await box.keep.deploy(script(mutate=ADD), workflow="flow")
        await box.settle()
        assert await box.statuses("flow", "in") == {"a": "consumed", "b": "consumed"}
        assert fake.texts == ["a", "b"]


NEXT_FAILS = {
    "throws": 'throw new Error("no");',
    "is refused": "try { await c.fake.search({}); } catch {}",
    "publishes badly": 'await c.publish("out", {});',
    "returns badly": "return 1n;",
    "never ends": "await new Promise(() => {});",
}


@pytest.mark.parametrize("how", NEXT_FAILS)
async def test_after_an_applied_mutation_a_repaired_next_goes_on_with_exactly_what_was_stored(how: str) -> None:
    fake = Fake()
    prepare = 'console.log("prepare");' + TAKE.replace("data: {", "data: { n: 1.50, text: 'ä\\u2028',")
    async with opened(fake) as box:
        await box.keep.deploy(
            script(prepare=prepare, mutate=ADD, next_=f'await c.publish("out", {{ title: "lost" }}); {NEXT_FAILS[how]}')
        )
        await box.publish("flow", "in", "a")
        await box.settle()
        await box.publish("flow", "in", "b")
        await box.advance(DAY)
        failed = await box.last_run("flow", "file")
        assert (await stopped(box, "file"), failed.phase) == (REPAIR, "emitting")
        assert await box.statuses("flow", "in") == {"a": "reserved", "b": "pending"}
        assert (await box.keep.workflow("flow")).pending_retry_run_id == failed.id
        assert "It waits for its `next`." in (await box.keep.explain(failed.id)).why
        assert (await box.statuses("flow", "out"), fake.texts) == ({}, ["a"])

        repaired = 'console.log(prepared, result); await c.publish("out", { messageId: result.result.id, title: "T" });'
        await box.keep.deploy(script(prepare=prepare, mutate=ADD, next_=repaired), workflow="flow")
        await box.settle()
        _, retry, after = await box.runs("flow", "file")
        assert (retry.status, retry.retry_of, retry.phase) == ("committed", failed.id, "committed")
        assert json.loads(retry.logs) == [
            f'{failed.prepare_result} {{"status":"applied","result":{{"id":"add_1","text":"a"}}}}'
        ]
        assert json.loads(after.logs)[0] == "prepare"
        assert fake.calls == ["add a", "add b"]
        assert await box.statuses("flow", "in") == {"a": "consumed", "b": "consumed"}
        assert await box.statuses("flow", "out") == {"add_1": "pending", "add_2": "pending"}


async def test_a_next_may_fail_again_and_again_and_over_a_restart_and_the_effect_stays_one(tmp_path: Path) -> None:
    fake = Fake()
    path = tmp_path / "keep.db"
    async with world(fake, path=path) as box:
        for words in ("one", "two"):
            await box.keep.deploy(script(mutate=ADD, next_=f'throw new Error("{words}");'), workflow="flow")
            await box.publish("flow", "in", "a")
            await box.settle()
            run = await box.last_run("flow", "file")
            assert (run.status, words in run.error_message) == ("failed:logic", True)
    async with world(fake, path=path, time=VirtualTime(START + MINUTE)) as box:
        await box.settle()
        assert await box.statuses("flow", "in") == {"a": "reserved"}
        await box.keep.deploy(script(mutate=ADD, next_="console.log(result.result); return 3;"), workflow="flow")
        await box.settle()
        first, second, third = await box.runs("flow", "file")
        assert (second.retry_of, third.retry_of) == (first.id, second.id)
        assert (third.logs, third.output_state) == ('["{\\"id\\":\\"add_1\\",\\"text\\":\\"a\\"}"]', "3")
        assert (await box.statuses("flow", "in"), fake.calls) == ({"a": "consumed"}, ["add a"])


async def test_a_script_without_the_consumer_that_waits_is_refused_and_one_without_its_next_is_not() -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(script(mutate=ADD, next_='throw new Error("no");'))
        await box.publish("flow", "in", "a")
        await box.settle()
        with pytest.raises(Rejected) as refused:
            await box.keep.deploy(script(producer="return 1;"), workflow="flow")
        assert refused.value.reason is Reason.HANDLER_NOT_DECLARED
        assert await stopped(box, "file") == REPAIR
        await box.keep.deploy(script(mutate=ADD), workflow="flow")
        await box.settle()
        assert (await box.statuses("flow", "in"), fake.texts) == ({"a": "consumed"}, ["a"])


async def test_the_evidence_for_a_repair_has_all_that_was_seen(tmp_path: Path) -> None:
    fake = Fake()
    path = tmp_path / "keep.db"
    async with world(fake, path=path) as box:
        prepare = f'console.log("looking"); await c.fake.search({{ query: "x" }}); {TAKE}'
        source = script(prepare=prepare, mutate=ADD, next_='console.log("next");\n throw new Error("no");')
        deployed = await box.keep.deploy(source)
        await box.publish("flow", "in", "a")
        await box.settle()
        run = await box.last_run("flow", "file")
    with left_in(path) as q:
        task = reads.open_task(q, deployed.workflow_id)
        assert task is not None
        evidence = json.loads(task.evidence)
        assert task.run_id == run.id
    assert evidence == {
        "version": run.version_id,
        "handler": "file",
        "error": "consumers.file.next: Error: no",
        "place": run.error_place,
        "logs": ["looking", "next"],
        "requests": ['fake.search {"query":"x"}', 'peek {"topic":"in"}', 'fake.add {"text":"a"}'],
    }
    line, _, column = evidence["place"].partition(":")
    assert source.splitlines()[int(line) - 1][int(column) - 1 :].startswith(("new Error", "Error"))


async def test_what_calls_cost_is_counted_whatever_became_of_them() -> None:
    fake = Fake()
    fake.cost_micros = 7
    fake.plan("add", raises(Transient("503")))
    async with world(fake, policy=STEADY) as box:
        await box.keep.deploy(script(prepare=READ + TAKE, mutate=ADD))
        await box.publish("flow", "in", "a")
        await box.settle()
        await box.advance(10 * SECOND)
        assert [run.cost_micros for run in await box.runs("flow", "file")] == [14, 14]
