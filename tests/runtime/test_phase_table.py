"""What a script may ask for where, what it may hand over and return, and what it is told when it may not.

Every request here is made by a script that runs. A refusal ends the run as a logic error, the script cannot catch it,
and nothing of the run stays: nothing published, nothing reserved, nothing called.
"""

import json
from itertools import product
from typing import Literal, NamedTuple, TypeAlias

import pytest

from keep_actors import Policy
from keep_actors.connectors import Uncertain
from keep_actors.run.gate import ALLOWED, Ask, ScriptPhase, refusal
from keep_storage.limits import PEEK_DEFAULT
from keep_storage.model import Run
from tests.runtime.fakes import Fake, applies_and_raises
from tests.runtime.world import DAY, SECOND, START, TAKE, TimedBox, script, world

pytestmark = pytest.mark.anyio

# The table of docs/scripts.md. `by_id`: with the policy mutate_reads="by_id" only.
TABLE = """
              producer  prepare  mutate  next  job  item
  peek        -         yes      -       -     -    -
  getByIds    -         yes      -       -     -    -
  publish     yes       -        -       yes   yes  yes
  read        yes       yes      -       -     yes  yes
  read by id  yes       yes      by_id   -     yes  yes
  mutation    -         -        yes     -     -    yes
  withItem    -         -        -       -     yes  -
"""

MutateReads: TypeAlias = Literal["none", "by_id"]

STAGES = {
    "producer": ScriptPhase.PRODUCER,
    "prepare": ScriptPhase.PREPARE,
    "mutate": ScriptPhase.MUTATE,
    "next": ScriptPhase.NEXT,
    "job": ScriptPhase.JOB,
    "item": ScriptPhase.ITEM,
}


class Call(NamedTuple):
    """A request as a script makes it, how a refusal names it, and what a refusal says to do."""

    javascript: str
    name: str
    instead: str


CALLS = {
    "peek": Call('c.peek("in")', "ctx.peek", "Read topics in `prepare`"),
    "getByIds": Call('c.getByIds("in", ["a"])', "ctx.getByIds", "Read topics in `prepare`"),
    "publish": Call(
        'c.publish("out", { messageId: "asked", title: "Asked for" })',
        "ctx.publish",
        "Publish from a producer, from a job or from `next`",
    ),
    "read": Call("c.fake.search({})", "ctx.fake.search", "Read in a producer or in `prepare`"),
    "read by id": Call('c.fake.get({ entryId: "x" })', "ctx.fake.get", "Read in `prepare`"),
    "mutation": Call('c.fake.add({ text: "done" })', "ctx.fake.add", "in `mutate` of a consumer, or inside"),
    "withItem": Call('c.withItem("i", "Item", () => 1)', "ctx.withItem", "in a job, one after the other"),
}


def rows() -> dict[str, dict[str, str]]:
    """The table, by what is asked for and then by stage."""
    lines = [line for line in TABLE.splitlines() if line.strip()]
    starts = [lines[0].index(stage) for stage in STAGES]
    cells = {line[: starts[0]].strip(): [line[at:].split()[0] for at in starts] for line in lines[1:]}
    return {ask: dict(zip(STAGES, row, strict=True)) for ask, row in cells.items()}


def expected(ask: str, stage: str, mutate_reads: MutateReads) -> bool:
    cell = rows()[ask][stage]
    return cell == "yes" or (cell == "by_id" and mutate_reads == "by_id")


def asking(ask: str, stage: str) -> str:
    """A script that asks in this stage, and does what it can to survive a refusal."""
    body = f"""
      console.log("before");
      try {{ console.log("got", await {CALLS[ask].javascript}); }}
      catch (error) {{ console.log("caught", error); }}
      finally {{ console.log("finally"); }}
    """
    if rows()["publish"][stage] == "yes":
        body = 'await c.publish("out", { messageId: "early", title: "Published before" });' + body
    match stage:
        case "producer":
            return script(producer=body)
        case "prepare":
            return script(prepare=body + TAKE)
        case "mutate":
            return script(mutate=body)
        case "next":
            return script(next_=body)
        case "job":
            return script(job=body)
        case _:
            return script(job=f'await c.withItem("outer", "Outer", async () => {{ {body} }});')


async def deployed(box: TimedBox, source: str, *events: str) -> Run:
    """The run that comes of this script and these events."""
    await box.keep.deploy(source)
    await box.publish("flow", "in", *events)
    await box.settle()
    return (await box.keep.runs("flow"))[0]


def test_the_table_is_the_one_that_the_host_asks() -> None:
    assert set(rows()) == set(CALLS) == set(Ask)
    assert set(STAGES.values()) == set(ScriptPhase)
    for ask, stage in product(rows(), STAGES):
        assert (Ask(ask) in ALLOWED[STAGES[stage]]) == expected(ask, stage, "none"), (ask, stage)
        for policy in (Policy(), Policy(mutate_reads="by_id")):
            allowed = not refusal(STAGES[stage], Ask(ask), "x", policy)
            assert allowed == expected(ask, stage, policy.mutate_reads), (ask, stage, policy.mutate_reads)


CELLS: list[tuple[str, str, MutateReads]] = [(ask, stage, "none") for ask, stage in product(rows(), STAGES)]
CELLS += [(ask, "mutate", "by_id") for ask in rows()]


@pytest.mark.parametrize(
    ("ask", "stage", "mutate_reads"), [cell for cell in CELLS if expected(*cell)], ids=lambda each: each
)
async def test_what_is_allowed_succeeds_and_has_its_effect(ask: str, stage: str, mutate_reads: MutateReads) -> None:
    fake = Fake()
    async with world(fake, policy=Policy(mutate_reads=mutate_reads)) as box:
        run = await deployed(box, asking(ask, stage), "a")
        assert (run.status, run.error_message) == ("committed", "")
        logs = json.loads(run.logs)
        # A mutation in `mutate` is the last word of the script; everything else is answered.
        assert [line.split()[0] for line in logs] == (
            ["before"] if (ask, stage) == ("mutation", "mutate") else ["before", "got", "finally"]
        )
        published = {"early"} if rows()["publish"][stage] == "yes" else set()
        match ask:
            case "peek" | "getByIds":
                assert '"messageId":"a"' in logs[1]
            case "publish":
                published.add("asked")
            case "read":
                assert fake.calls == ["search"]
            case "read by id":
                assert fake.calls == ["get x"]
            case "mutation":
                assert (fake.calls, fake.texts) == (["add done"], ["done"])
            case _:
                done = [entry.operation for entry in (await box.keep.explain(run.id)).journal]
                assert done.count("open_item") == done.count("close_item") == 1
        assert set(await box.statuses("flow", "out")) == published


@pytest.mark.parametrize(
    ("ask", "stage", "mutate_reads"), [cell for cell in CELLS if not expected(*cell)], ids=lambda each: each
)
async def test_what_is_refused_ends_the_run_cannot_be_caught_and_leaves_nothing(
    ask: str, stage: str, mutate_reads: MutateReads
) -> None:
    fake = Fake()
    async with world(fake, policy=Policy(mutate_reads=mutate_reads)) as box:
        run = await deployed(box, asking(ask, stage), "a")
        assert (run.status, run.error_class) == ("failed:logic", "logic")
        assert CALLS[ask].name in run.error_message
        if (ask, stage) == ("withItem", "item"):
            assert "cannot be nested" in run.error_message
        else:
            assert f"is not allowed in {STAGES[stage]}" in run.error_message
            assert CALLS[ask].instead in run.error_message
        assert json.loads(run.logs) == ["before"]
        assert (fake.calls, await box.keep.outputs("flow")) == ([], [])
        assert await box.statuses("flow", "out") == {}
        assert await box.statuses("flow", "in") == {"a": "pending"}
        assert (await box.keep.workflow("flow")).maintenance


# Topics.


async def ended(policy: Policy | None = None, **handlers: str) -> Run:
    """The run of a script that was given the event `a`."""
    async with world(Fake(), policy=policy) as box:
        return await deployed(box, script(**handlers), "a")


async def refused(policy: Policy | None = None, **handlers: str) -> str:
    """Why the run of a script that was given the event `a` ended. Nothing of it stayed."""
    fake = Fake()
    async with world(fake, policy=policy) as box:
        run = await deployed(box, script(**handlers), "a")
        assert run.status == "failed:logic"
        assert (fake.calls, await box.statuses("flow", "out")) == ([], {})
        assert await box.statuses("flow", "in") == {"a": "pending"}
        return run.error_message


@pytest.mark.parametrize("call", ['c.peek("out")', 'c.getByIds("out", ["x"])', 'c.peek("nowhere")'])
async def test_only_what_is_subscribed_to_can_be_read(call: str) -> None:
    message = await refused(prepare=f"await {call}; {TAKE}")
    assert "not subscribed to" in message
    assert "it subscribes to 'in'" in message


@pytest.mark.parametrize("handler", ["producer", "next_", "job"])
async def test_only_to_a_declared_topic_can_be_published(handler: str) -> None:
    message = await refused(None, **{handler: 'await c.publish("nowhere", { title: "T" });'})
    assert "`ctx.publish`: may not publish to 'nowhere'; it may to 'in', 'out'" in message


@pytest.mark.parametrize("handler", ["producer", "next_", "job"])
async def test_publishes_restricts_where_a_handler_may_publish(handler: str) -> None:
    body = 'await c.publish("in", { messageId: "b", title: "T" }); await c.publish("out", { title: "T" });'
    async with world(Fake()) as box:
        run = await deployed(box, script(**{handler: body}, publishes=["in"]), "a")
        assert "may not publish to 'out'; it may to 'in'" in run.error_message
        assert await box.statuses("flow", "in") == {"a": "pending"}


async def test_a_peek_returns_a_hundred_unless_told_oldest_first_and_goes_on_after_a_cursor() -> None:
    publish = f"""
      for (let i = 0; i <= {PEEK_DEFAULT}; i++)
        await c.publish("in", {{ messageId: `m${{i}}`, title: `Event ${{i}}`, payload: {{ i }} }});
    """
    prepare = """
      const all = await c.peek("in");
      const few = await c.peek("in", { limit: 2 });
      const more = await c.peek("in", { limit: 2, after: few[1].cursor });
      const rest = await c.peek("in", { limit: 1000, after: all[all.length - 1].cursor });
      console.log(all.length, few.map((e) => e.messageId), more.map((e) => e.messageId), rest.map((e) => e.title));
      console.log(Object.keys(all[0]).sort(), all[7].payload, all[0].createdAt);
      return { reservations: [] };
    """
    async with world(Fake()) as box:
        await box.keep.deploy(script(producer=publish, prepare=prepare))
        await box.settle()
        first, second = json.loads((await box.last_run("flow", "file")).logs)
        assert first == '100 ["m0","m1"] ["m2","m3"] ["Event 100"]'
        assert (
            second == '["createdAt","cursor","messageId","payload","status","title"] {"i":7} 2023-11-14T22:13:20.000Z'
        )


@pytest.mark.parametrize(
    "options", ["{ limit: 0 }", "{ limit: 1001 }", "{ limit: -1 }", "{ after: -1 }", "{ after: 2 ** 63 }"]
)
async def test_a_peek_outside_its_bounds_is_refused(options: str) -> None:
    message = await refused(prepare=f'await c.peek("in", {options}); {TAKE}')
    assert "`ctx.peek`: a limit is 1 to 1000, and `after` is the cursor of an event" in message


@pytest.mark.parametrize(
    ("options", "words"),
    [("{ limit: 1.5 }", "options.limit"), ('{ limit: "all" }', "options.limit"), ("{ first: 3 }", "first")],
)
async def test_an_option_of_peek_that_does_not_fit_is_named(options: str, words: str) -> None:
    message = await refused(prepare=f'await c.peek("in", {options}); {TAKE}')
    assert message.startswith("file: `ctx.peek`: ")
    assert words in message


async def test_events_by_id_are_given_in_any_state_each_once_and_unknown_ids_are_left_out() -> None:
    prepare = """
      const found = await c.getByIds("in", ["b", "unknown", "taken", "a", "b", "done"]);
      console.log(found.map((e) => `${e.messageId} ${e.status} ${e.payload}`));
      const [first] = await c.peek("in");
      const ids = first.messageId === "taken" ? ["taken"] : [];
      return { reservations: [{ topic: "in", ids }] };
    """
    async with world(Fake()) as box:
        await box.keep.deploy(script(prepare=prepare))
        await box.keep.pause("flow")
        await box.publish("flow", "in", "taken", "a", "b", "done", payload=7)
        await box.keep.skip_event("flow", "in", "done")
        await box.keep.resume("flow")
        await box.settle()
        assert [json.loads(run.logs) for run in await box.runs("flow", "file")] == [
            ['["b pending 7","taken pending 7","a pending 7","done skipped 7"]'],
            ['["b pending 7","taken consumed 7","a pending 7","done skipped 7"]'],
        ]


async def test_an_event_that_a_parked_run_holds_is_given_by_its_id_as_reserved() -> None:
    fake = Fake()
    fake.plan("add", applies_and_raises(Uncertain("lost")))
    prepare = f'console.log((await c.getByIds("in", ["a", "b"])).map((e) => `${{e.messageId}} ${{e.status}}`)); {TAKE}'
    async with world(fake, policy=Policy(on_unknown="park")) as box:
        await box.keep.deploy(script(prepare=prepare, mutate="await c.fake.add({ text: prepared.data.id });"))
        await box.publish("flow", "in", "a", "b")
        await box.settle()
        second = (await box.runs("flow", "file"))[1]
        assert json.loads(second.logs) == ['["a reserved","b pending"]']


async def test_a_thousand_ids_are_the_most_at_once() -> None:
    body = "const ids = (n) => Array.from({ length: n }, (_, i) => `m${i}`);"
    fits = await ended(prepare=f'{body} console.log(await c.getByIds("in", ids(1000))); {TAKE}')
    assert (fits.status, json.loads(fits.logs)) == ("committed", ["[]"])
    message = await refused(prepare=f'{body} await c.getByIds("in", ids(1001)); {TAKE}')
    assert "`ctx.getByIds`: 1001 ids; 1000 are the most at once" in message


# Publishing.


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ("{}", "title"),
        ("{ title: 5 }", "event.title"),
        ('{ title: "" }', "needs a title of 1 to 500 characters that a person can read"),
        ('{ title: "  " }', "needs a title of 1 to 500 characters that a person can read"),
        ('{ title: "t".repeat(501) }', "needs a title of 1 to 500 characters that a person can read"),
        ('{ title: "T", messageId: "" }', "a messageId has 1 to 512 characters that can be seen"),
        ('{ title: "T", messageId: "m".repeat(513) }', "a messageId has 1 to 512 characters that can be seen"),
        ('{ title: "T", messageId: "a\\u202eb" }', "a messageId has 1 to 512 characters that can be seen"),
        ('{ title: "T", messageId: "a\\0b" }', "a messageId has 1 to 512 characters that can be seen"),
        ('{ title: "T", messageId: 7 }', "event.messageId"),
        ('{ title: "T", id: "m" }', "`id`"),
        ('{ title: "T", payload: "x".repeat(99) }', "the payload of 'T' has 101 bytes; 100 are the most"),
    ],
)
async def test_an_event_that_cannot_be_published_is_refused_in_words(event: str, words: str) -> None:
    body = f'await c.publish("out", {{ title: "Fine" }}); await c.publish("out", {event});'
    message = await refused(Policy(payload_bytes_max=100), producer=body)
    assert "`ctx.publish`: " in message
    assert words in message


async def test_what_is_as_large_as_allowed_is_published() -> None:
    event = '{ title: "t".repeat(500), messageId: "m".repeat(512), payload: "x".repeat(98) }'
    async with world(Fake(), policy=Policy(payload_bytes_max=100, publishes_max=1)) as box:
        run = await deployed(box, script(producer=f'await c.publish("out", {event});'))
        assert run.status == "committed"
        [published] = await box.keep.events("flow", "out")
        assert (len(published.title), len(published.message_id), len(published.payload)) == (500, 512, 100)


async def test_a_run_publishes_so_many_events_and_no_more() -> None:
    body = 'for (let i = 0; i < 4; i++) await c.publish("out", { title: "T" });'
    assert "`ctx.publish`: more than 3 events in one run" in await refused(Policy(publishes_max=3), producer=body)


async def test_an_event_without_a_message_id_gets_one_from_the_host() -> None:
    async with world(Fake()) as box:
        body = 'for (const title of ["A", "B"]) console.log(await c.publish("out", { title }));'
        run = await deployed(box, script(producer=body))
        events = await box.keep.events("flow", "out")
        assert [event.message_id for event in events] == json.loads(run.logs)
        assert len({event.message_id for event in events}) == 2


async def test_the_same_message_id_twice_in_one_run_is_one_event_with_the_last_words() -> None:
    body = """
      for (const n of [1, 2]) console.log(await c.publish("out", { messageId: "m", title: `T${n}`, payload: n }));
    """
    async with world(Fake()) as box:
        run = await deployed(box, script(producer=body))
        [event] = await box.keep.events("flow", "out")
        assert (event.title, event.payload, json.loads(run.logs)) == ("T2", "2", ["m", "m"])


# The one mutation.


AFTER = 'console.log("after"); await c.publish("out", { title: "T" });'


@pytest.mark.parametrize(
    "mutate",
    [
        f'c.fake.add({{ text: "one" }}); {AFTER}',
        f'await c.fake.add({{ text: "one" }}); await c.fake.add({{ text: "two" }}); {AFTER}',
        f'await Promise.all([c.fake.add({{ text: "one" }}), c.fake.add({{ text: "two" }})]); {AFTER}',
        f'for (const text of ["one", "two"]) await c.fake.add({{ text }}); {AFTER}',
        f'try {{ await c.fake.add({{ text: "one" }}); throw 1; }} catch {{ {AFTER} }} finally {{ {AFTER} }}',
        f'c.fake.add({{ text: "one" }}).then(() => c.fake.add({{ text: "two" }})); {AFTER}',
    ],
)
async def test_the_first_mutation_is_the_last_thing_that_mutate_does(mutate: str) -> None:
    fake = Fake()
    async with world(fake) as box:
        run = await deployed(box, script(mutate=mutate, next_="console.log(result);"), "a")
        assert (run.status, fake.calls) == ("committed", ["add one"])
        assert json.loads(run.logs) == ['{"status":"applied","result":{"id":"add_1","text":"one"}}']
        assert await box.statuses("flow", "out") == {}


async def test_without_a_mutation_next_is_told_so_and_what_mutate_returned_is_dropped() -> None:
    run = await ended(mutate='return { status: "applied", result: 1 };', next_="console.log(prepared.data, result);")
    assert json.loads(run.logs) == ['{"id":"a"} {"status":"none"}']


async def test_next_runs_though_nothing_was_reserved_and_mutate_does_not() -> None:
    run = await ended(
        prepare="return { reservations: [], data: { n: 1 } };",
        mutate='await c.fake.add({ text: "never" });',
        next_="console.log(prepared, result);",
    )
    assert json.loads(run.logs) == ['{"reservations":[],"data":{"n":1}} {"status":"none"}']


async def test_mutate_may_read_by_id_before_its_mutation_if_the_policy_says_so() -> None:
    fake = Fake()
    async with world(fake, policy=Policy(mutate_reads="by_id")) as box:
        mutate = 'if ((await c.fake.get({ entryId: "add_1" })) === null) await c.fake.add({ text: "one" });'
        await deployed(box, script(mutate=mutate), "a", "b")
        assert fake.calls == ["get add_1", "add one", "get add_1"]
        assert await box.statuses("flow", "in") == {"a": "consumed", "b": "consumed"}


@pytest.mark.parametrize(
    ("ui", "title"),
    [
        ('{ title: "Add a row for alice" }', "Add a row for alice"),
        ('{ title: "t".repeat(600) }', "t" * 500),
        ("{}", ""),
        ("undefined", ""),
        ("null", ""),
    ],
)
async def test_the_title_of_the_ui_is_cut_and_attached_to_the_mutation(ui: str, title: str) -> None:
    fake = Fake()
    async with world(fake) as box:
        prepare = f'return {{ reservations: [{{ topic: "in", ids: ["a"] }}], ui: {ui} }};'
        await deployed(box, script(prepare=prepare, mutate='await c.fake.add({ text: "one" });'), "a")
        [done] = await box.keep.outputs("flow")
        assert (done.title, done.call, done.params) == (title, "fake.add", '{"text":"one"}')


# What `prepare` returns.


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("undefined", "`prepare` returned nothing; return {reservations: [{topic, ids}], data}"),
        ("null", "`prepare` returned nothing"),
        ("[]", "the result of `prepare` does not fit"),
        ('"yes"', "the result of `prepare` does not fit"),
        ("{}", "reservations"),
        ("{ reservations: {} }", "reservations"),
        ("{ reservations: [{ topic: 'in' }] }", "ids"),
        ("{ reservations: [{ topic: 'in', ids: 'a' }] }", "reservations[0].ids"),
        ("{ reservations: [{ topic: 'in', ids: [7] }] }", "reservations[0].ids[0]"),
        ("{ reservations: [{ topic: 'in', id: 'a', ids: [] }] }", "`id`"),
        ("{ reservations: [], wakeat: 'soon' }", "`wakeat`"),
        ("{ reservations: [], ui: { title: 5 } }", "ui.title"),
        ("{ reservations: [], ui: 'Title' }", "ui"),
        ("{ reservations: [], wakeAt: 1700000000000 }", "wakeAt"),
        ("{ reservations: [], wakeAt: 'tomorrow' }", "`wakeAt` is 'tomorrow'; write an ISO 8601 instant"),
        ("{ reservations: [], wakeAt: '2026-01-01' }", "without a time zone; end it with Z"),
        ("{ reservations: [], wakeAt: '2026-01-01T10:00:00' }", "without a time zone; end it with Z"),
        ("{ reservations: [], data: new Map() }", "at data: a Map is not JSON"),
        ("{ reservations: [{ topic: 'in', ids: ['a', 'b', 'c'] }] }", "reserves 3 events; 2 are the most in one run"),
    ],
)
async def test_a_prepare_result_that_does_not_fit_is_refused_and_the_place_is_named(returned: str, words: str) -> None:
    message = await refused(Policy(reservations_max=2), prepare=f"return hidden({returned});", mutate="c.fake.add({});")
    assert words in message
    assert message.startswith(("file: ", "consumers.file.prepare: "))


@pytest.mark.parametrize(
    ("reservations", "words"),
    [
        ("[{ topic: 'in', ids: ['b'] }]", "event 'b' of topic 'in', which does not exist"),
        ("[{ topic: 'out', ids: ['a'] }]", "event 'a' of topic 'out', which is in a topic it does not subscribe to"),
        ("[{ topic: 'no', ids: ['a'] }]", "event 'a' of topic 'no', which is in a topic that the script does not decl"),
        ("[{ topic: 'in', ids: ['a', 'a'] }]", "event 'a' of topic 'in', which is reserved twice"),
        ("[{ topic: 'in', ids: ['a'] }, { topic: 'in', ids: ['a'] }]", "event 'a' of topic 'in', which is reserved tw"),
        ("[{ topic: 'in', ids: ['a', 'b'] }]", "event 'b' of topic 'in', which does not exist"),
    ],
)
async def test_what_cannot_be_reserved_is_named_and_nothing_is_reserved_or_called(
    reservations: str, words: str
) -> None:
    prepare = f"return {{ reservations: {reservations} }};"
    assert words in await refused(prepare=prepare, mutate='await c.fake.add({ text: "never" });')


@pytest.mark.parametrize("reads_first", [True, False])
async def test_of_two_mistakes_the_first_is_told(reads_first: bool) -> None:
    """Reservations are written with what comes next, and checked before it: `mutate` runs with what is there."""
    reserve = "return { reservations: [{ topic: 'in', ids: ['b'] }] };"
    fake = Fake()
    async with world(fake) as box:
        prepare = "await c.fake.search({});" * reads_first + reserve
        run = await deployed(box, script(prepare=prepare, mutate='console.log("ran"); throw new Error("no");'), "a")
        assert (run.status, run.logs) == ("failed:logic", "[]")
        assert "event 'b' of topic 'in', which does not exist" in run.error_message
        assert "Error: no" not in run.error_message
        assert await box.statuses("flow", "in") == {"a": "pending"}


async def test_an_event_that_was_consumed_cannot_be_reserved_again() -> None:
    async with world(Fake()) as box:
        prepare = "return { reservations: [{ topic: 'in', ids: ['a'] }] };"
        await deployed(box, script(prepare=prepare), "a")
        await box.publish("flow", "in", "b")
        await box.settle()
        run = await box.last_run("flow", "file")
        assert run.status == "failed:logic"
        assert "event 'a' of topic 'in', which is already consumed" in run.error_message


@pytest.mark.parametrize(
    ("wanted_ms", "woken_ms"),
    [
        (SECOND, 30 * SECOND),
        (-DAY, 30 * SECOND),
        (90 * SECOND, 90 * SECOND),
        (3 * DAY, DAY),
    ],
)
async def test_a_wake_is_moved_into_its_window(wanted_ms: int, woken_ms: int) -> None:
    async with world(Fake()) as box:
        prepare = f"return {{ reservations: [], wakeAt: new Date(Date.now() + {wanted_ms}).toISOString() }};"
        await deployed(box, script(prepare=prepare), "a")
        await box.advance(woken_ms - 1)
        assert len(await box.runs("flow", "file")) == 1
        await box.advance(1)
        assert [run.created_at - START for run in await box.runs("flow", "file")] == [0, woken_ms]


async def test_a_wake_is_kept_when_something_was_reserved_too() -> None:
    async with world(Fake()) as box:
        wake = "wakeAt: new Date(Date.now() + 60000).toISOString()"
        prepare = f"const took = async () => {{ {TAKE} }}; return {{ ...(await took()), {wake} }};"
        await deployed(box, script(prepare=prepare), "a")
        await box.advance(60 * SECOND)
        assert [run.reserved_count for run in await box.runs("flow", "file")] == [1, 0]


# State.


@pytest.mark.parametrize("kind", ["producer", "job"])
async def test_a_handler_is_given_the_state_that_it_returned_last(kind: str) -> None:
    body = "console.log(String(state), state?.n); if (state?.n === 2) return; return { n: (state?.n ?? 0) + 1 };"
    async with world(Fake()) as box:
        await box.keep.deploy(script(**{kind: body}))
        for _ in range(4):
            await box.settle()
            box.time.advance(DAY)
        logs = [json.loads(run.logs)[0] for run in reversed(await box.keep.runs("flow"))]
        assert logs == ["undefined undefined", "[object Object] 1", "[object Object] 2", "[object Object] 2"]


@pytest.mark.parametrize("kind", ["producer", "job"])
async def test_a_state_is_set_to_null_by_who_returns_null_and_kept_by_who_returns_nothing(kind: str) -> None:
    returned = "if (state === undefined) return 1; if (state === 1) return null; return undefined;"
    async with world(Fake()) as box:
        await box.keep.deploy(script(**{kind: f"console.log(String(state)); {returned}"}))
        for _ in range(4):
            await box.settle()
            box.time.advance(DAY)
        runs = list(reversed(await box.keep.runs("flow")))
        assert [json.loads(run.logs) for run in runs] == [["undefined"], ["1"], ["null"], ["null"]]
        assert [run.output_state for run in runs] == ["1", "null", None, None]


async def test_next_can_set_the_state_of_its_consumer_to_null() -> None:
    next_ = "return prepared.data.id === 'a' ? 1 : prepared.data.id === 'b' ? null : undefined;"
    async with world(Fake()) as box:
        await box.keep.deploy(script(prepare=f"console.log(String(state)); {TAKE}", next_=next_))
        for event in ("a", "b", "c", "d"):
            await box.publish("flow", "in", event)
            await box.settle()
        logs = [json.loads(run.logs)[0] for run in await box.runs("flow", "file")]
        assert logs == ["undefined", "1", "null", "null"]


async def test_prepare_is_given_what_next_returned_last() -> None:
    next_ = "if (prepared.data.id !== 'b') return { last: prepared.data.id };"
    async with world(Fake()) as box:
        await box.keep.deploy(script(prepare=f"console.log(state === undefined, state?.last); {TAKE}", next_=next_))
        for event in ("a", "b", "c", "d"):
            await box.publish("flow", "in", event)
            await box.settle()
        logs = [json.loads(run.logs)[0] for run in await box.runs("flow", "file")]
        assert logs == ["true undefined", "false a", "false a", "false c"]


@pytest.mark.parametrize("handler", ["producer", "next_", "job"])
async def test_a_state_that_is_too_large_is_refused_with_what_was_published(handler: str) -> None:
    body = 'await c.publish("out", { title: "T" }); return "x".repeat(99);'
    message = await refused(Policy(state_bytes_max=100), **{handler: body})
    assert "has 101 bytes; 100 are the most. Keep a cursor in it, not the data." in message


async def test_a_run_that_fails_keeps_the_last_state() -> None:
    body = "console.log(state); if (state === 1) throw new Error('no'); return 1;"
    async with world(Fake()) as box:
        await deployed(box, script(producer=body))
        await box.advance(DAY)
        assert (await box.last_run("flow", "poll")).status == "failed:logic"
        await box.keep.deploy(script(producer="console.log(state);"), workflow="flow")
        await box.settle()
        assert json.loads((await box.last_run("flow", "poll")).logs) == ["1"]
