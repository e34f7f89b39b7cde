"""Jobs and their items: each effect once, whatever fails around it, and never again in an item that is done."""

import json
from functools import partial
from itertools import pairwise
from pathlib import Path

import anyio
import pytest

from keep_actors import Backoff, Policy, Reason, Rejected
from keep_actors.connectors import AuthRequired, Transient, Uncertain
from keep_actors.kernel import VirtualTime
from keep_storage import reads
from keep_storage.model import Resolver, Run
from tests.runtime.fakes import Fake, applies_and_raises, raises
from tests.runtime.world import DAY, MINUTE, SECOND, START, TimedBox, by_hand, left_in, opened, script, world
from tests.sandbox.world import needs_jail

pytestmark = pytest.mark.anyio

STEADY = Policy(retry=Backoff(jitter=0))


def item(body: str, item_id: str = "7") -> str:
    """A job's code that works on one item."""
    return f'await c.withItem("{item_id}", "Invoice {item_id}", async () => {{ {body} }});'


async def swept(box: TimedBox, body: str) -> Run:
    """The run of a job with this code: the first, or one more at once with a repaired script."""
    await box.keep.deploy(script(job=body), workflow="flow")
    await box.settle()
    return await box.last_run("flow", "sweep")


def logs(run: Run) -> list[str]:
    lines: list[str] = json.loads(run.logs)
    return lines


def states(path: Path, *item_ids: str) -> list[str]:
    """The states of items that a runtime left in its file."""
    with left_in(path) as q:
        [workflow] = reads.workflows(q)
        found = [reads.item(q, workflow.id, item_id) for item_id in item_ids]
        return [f"{each.state} {each.error}".strip() if each else "" for each in found]


# One item after the other.


async def test_a_job_works_on_its_items_and_finds_them_done_the_next_time(tmp_path: Path) -> None:
    fake = Fake()
    body = """
      for (const id of ["7", "8"])
        await c.withItem(id, `Invoice ${id}`, async () => {
          console.log(c.item.id, c.item.title, c.item.isDone);
          if (!c.item.isDone) console.log(await c.fake.add({ text: id }));
        });
    """
    async with world(fake, path=tmp_path / "keep.db") as box:
        first = await swept(box, body)
        assert logs(first) == [
            "7 Invoice 7 false",
            '{"id":"add_1","text":"7"}',
            "8 Invoice 8 false",
            '{"id":"add_2","text":"8"}',
        ]
        await box.advance(DAY)
        assert logs(await box.last_run("flow", "sweep")) == ["7 Invoice 7 true", "8 Invoice 8 true"]
        done = await box.keep.outputs("flow")
        assert [(each.title, each.call, each.status) for each in reversed(done)] == [
            ("Invoice 7", "fake.add", "applied"),
            ("Invoice 8", "fake.add", "applied"),
        ]
        assert fake.texts == ["7", "8"]
    assert states(tmp_path / "keep.db", "7", "8") == ["done", "done"]


async def test_an_item_may_have_many_mutations_reads_and_events() -> None:
    fake = Fake()
    body = item("""
      const one = await c.fake.add({ text: "one" });
      const two = await c.fake.put({ text: `after ${one.id}` });
      console.log(await c.fake.search({}), await c.fake.get({ entryId: two.id }));
      await c.publish("out", { messageId: two.id, title: "Both" });
      return 5;
    """)
    async with world(fake) as box:
        run = await swept(box, body.replace("await c.withItem", "const n = await c.withItem") + "return { n };")
        assert (run.status, run.output_state) == ("committed", '{"n":5}')
        assert logs(run) == ['["one","after add_1"] after add_1']
        assert await box.statuses("flow", "out") == {"put_2": "pending"}


async def test_items_that_are_opened_together_are_worked_on_one_after_the_other() -> None:
    fake = Fake()
    body = """
      await Promise.all(["1", "2", "3"].map((id) => c.withItem(id, "T", async () => {
        console.log("in", id);
        await Promise.all(["a", "b"].map((subkey) => c.fake.add({ text: id + subkey, subkey })));
        console.log("out", id);
      })));
    """
    async with world(fake) as box:
        run = await swept(box, body)
        assert (run.status, logs(run)) == ("committed", ["in 1", "out 1", "in 2", "out 2", "in 3", "out 3"])
        assert fake.texts == ["1a", "1b", "2a", "2b", "3a", "3b"]


async def test_what_an_item_asked_for_and_did_not_wait_for_belongs_to_it() -> None:
    fake = Fake()
    async with world(fake) as box:
        run = await swept(box, 'await c.withItem("7", "T", () => { c.fake.add({ text: "one" }); });')
        assert (run.status, fake.texts) == ("committed", ["one"])


# What is refused.


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('await c.fake.add({ text: "x" });', "`ctx.fake.add` (mutation) is not allowed in a job"),
        (item("") + 'await c.fake.add({ text: "x" });', "`ctx.fake.add` (mutation) is not allowed in a job"),
        ('const p = c.withItem("7", "T", () => 1); await c.fake.add({ text: "x" }); await p;', "not allowed in a job"),
        (item('await c.withItem("8", "T", () => 1);'), 'ctx.withItem cannot be nested: "7" waits for "8"'),
        (item('await c.withItem("7", "T", () => 1);'), 'ctx.withItem cannot be nested: "7" waits for "7"'),
        (item("await c.fake.add({ text: 5 });"), "fake.add: text: expected string, got number"),
        (item('await c.fake.add({ text: "x", subkey: 5 });'), "fake.add: subkey: "),
        ('await c.withItem("", "T", () => 1);', "ctx.withItem: the id must be a non-empty string"),
        ('await c.withItem(7, "T", () => 1);', "ctx.withItem: the id must be a non-empty string"),
        ('await c.withItem("7", "", () => 1);', "ctx.withItem: the title must be a non-empty string"),
        ('await c.withItem("7", "  ", () => 1);', "`ctx.withItem`: "),
        ('await c.withItem("7", "T".repeat(501), () => 1);', "`ctx.withItem`: "),
        ('await c.withItem("7".repeat(513), "T", () => 1);', "`ctx.withItem`: "),
        ('await c.withItem("7\\0", "T", () => 1);', "`ctx.withItem`: "),
        ('await c.withItem("7", "T\\0", () => 1);', "`ctx.withItem`: "),
        ('await c.withItem("7", "T");', "ctx.withItem: the third argument must be a function"),
    ],
)
async def test_what_a_job_may_not_do_ends_it_as_a_logic_error_and_nothing_is_called(body: str, words: str) -> None:
    fake = Fake()
    async with world(fake) as box:
        run = await swept(box, 'await c.publish("out", { title: "T" });' + body)
        assert run.status == "failed:logic"
        assert words in run.error_message
        assert (fake.calls, await box.keep.outputs("flow"), await box.statuses("flow", "out")) == ([], [], {})


FORGOTTEN = {
    "for each": '["1", "2"].forEach(async (id) => { await c.withItem(id, "T", () => c.fake.add({ text: id })); });',
    "a bare call": 'c.withItem("1", "T", () => c.fake.add({ text: "1" }));',
    "a promise that is kept and not awaited": """
      const kept = [c.withItem("1", "T", () => c.fake.add({ text: "1" }))];
      await c.fake.search({});
      return kept.length;
    """,
    "a race": 'await Promise.race([c.withItem("1", "T", () => c.fake.add({ text: "1" })), c.fake.search({})]);',
    "any": 'await Promise.any([c.withItem("1", "T", () => c.fake.add({ text: "1" })), Promise.resolve(1)]);',
    "a nested helper": """
      async function each(ids, work) { for (const id of ids) work(id); }
      await each(["1", "2"], async (id) => c.withItem(id, "T", () => c.fake.add({ text: id })));
    """,
    "a timer of promises": """
      Promise.resolve().then(() => c.withItem("1", "T", () => c.fake.add({ text: "1" })));
      await c.fake.search({});
    """,
    "a promise whose end is caught": 'c.withItem("1", "T", () => c.fake.add({ text: "1" })).catch(() => {});',
    "an item inside a promise that is not awaited": """
      (async () => { await c.withItem("1", "T", async () => { await c.fake.add({ text: "1" }); }); })();
    """,
    "after a read": """
      ["1", "2"].forEach(async (id) => {
        await c.fake.search({});
        await c.withItem(id, "T", () => c.fake.add({ text: id }));
      });
    """,
}


@pytest.mark.parametrize("body", FORGOTTEN.values(), ids=FORGOTTEN)
async def test_a_forgotten_await_on_an_item_is_a_logic_error_with_a_hint_and_crashes_nobody(
    body: str, caplog: pytest.LogCaptureFixture
) -> None:
    fake = Fake()
    async with world(fake) as box:
        run = await swept(box, body)
        assert run.status == "failed:logic"
        assert 'the handler returned before item "1" was finished' in run.error_message
        assert "`await` every `ctx.withItem` (use `for … of`, not `forEach`)" in run.error_message
        assert [each.status for each in await box.keep.runs("flow")] == ["failed:logic"]
        assert (await box.keep.workflow("flow")).maintenance
        mended = await swept(box, item('await c.fake.add({ text: "1" });', "1"))
        assert (mended.status, fake.texts) == ("committed", ["1"])
    assert "crashed" not in caplog.text


async def test_a_script_that_is_only_warned_of_can_be_deployed() -> None:
    body = """
      ctx.withItem("1", "T", async () => { await ctx.fake.add({ text: "1" }); });
      await ctx.withItem("2", "T", async () => { await ctx.fake.add({ text: "2" }); });
    """
    fake = Fake()
    async with world(fake) as box:
        # Items are worked on in turn: who waits for the last one has waited for all.
        assert (await swept(box, body)).status == "committed"
        assert fake.texts == ["1", "2"]


async def test_what_was_done_in_a_finished_item_stays_when_the_next_one_is_not_waited_for(tmp_path: Path) -> None:
    fake = Fake()
    work = "async () => { if (!c.item.isDone) await c.fake.add({ text: c.item.id }); }"
    race = f'await Promise.race(["1", "2"].map((id) => c.withItem(id, "T", {work})));'
    async with world(fake, path=tmp_path / "keep.db") as box:
        run = await swept(box, race)
        assert (run.status, fake.texts) == ("failed:logic", ["1"])
        with_all = race.replace("race", "all")
        assert ((await swept(box, with_all)).status, fake.texts) == ("committed", ["1", "2"])
    assert states(tmp_path / "keep.db", "1", "2") == ["done", "done"]


async def test_an_item_that_was_open_when_its_handler_returned_is_left_failed(tmp_path: Path) -> None:
    async with world(Fake(), path=tmp_path / "keep.db") as box:
        run = await swept(box, 'c.withItem("1", "T", () => 1);')
    assert states(tmp_path / "keep.db", "1") == [f"failed {run.error_message}"]


RETURNS_INSIDE_AN_ITEM = """
import keep_sandbox.worker
from keep_sandbox.outcomes import Kind, Value
from keep_sandbox.protocol import EndedFrame, RequestFrame, RunFrame, encode


class Compromised(keep_sandbox.worker._Worker):
    def _receive(self, frame):
        if not isinstance(frame, RunFrame):
            return super()._receive(frame)
        self._write(encode(RequestFrame(frame.call, 1, Kind.ITEM_OPEN, "withItem", '{"id":"1","title":"One"}')))
        self._write(encode(EndedFrame(frame.call, Value(value="1"))))


keep_sandbox.worker._Worker = Compromised
"""


@needs_jail
async def test_a_worker_that_returns_inside_an_item_ends_the_run_as_a_script_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(RETURNS_INSIDE_AN_ITEM, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    async with opened(Fake(), path=tmp_path / "keep.db", sandbox="jailed") as box:
        run = await swept(box, item(""))
        assert (run.status, (await box.keep.workflow("flow")).maintenance) == ("failed:logic", True)
        assert "the handler returned while an item was not finished" in run.error_message
        assert len(await box.keep.runs("flow")) == 1
    assert states(tmp_path / "keep.db", "1") == [f"failed {run.error_message}"]


async def test_a_mutation_in_an_item_that_is_done_is_a_logic_error_that_says_what_to_check(tmp_path: Path) -> None:
    fake = Fake()
    body = item('try { await c.fake.add({ text: "one" }); } catch {} finally { console.log("after"); }')
    async with world(fake, path=tmp_path / "keep.db") as box:
        await swept(box, body)
        await box.advance(DAY)
        run = await box.last_run("flow", "sweep")
        assert (run.status, logs(run)) == ("failed:logic", [])
        assert "Item '7' is done and may not change the outside again" in run.error_message
        assert "Check `ctx.item.isDone` before the call." in run.error_message
        repaired = await swept(box, item('if (!c.item.isDone) await c.fake.add({ text: "one" });'))
        assert (repaired.status, fake.calls) == ("committed", ["add one"])
    assert states(tmp_path / "keep.db", "7") == ["done"]


async def test_another_mutation_in_an_item_that_is_done_is_refused_too() -> None:
    fake = Fake()
    async with world(fake) as box:
        await swept(box, item('await c.fake.add({ text: "one" });'))
        await box.keep.deploy(script(job=item('await c.fake.add({ text: "two" });')), workflow="flow")
        await box.advance(DAY)
        assert (await box.last_run("flow", "sweep")).status == "failed:logic"
        assert fake.calls == ["add one"]


# What was done is not done again.


async def test_after_a_failure_later_in_the_job_what_was_done_is_answered_from_the_ledger(tmp_path: Path) -> None:
    fake = Fake()
    done = item('if (!c.item.isDone) await c.fake.add({ text: "zero" });', "6")
    half = 'await c.publish("out", { messageId: "p", title: "T" }); const one = await c.fake.add({ text: "one" });'
    async with world(fake, path=tmp_path / "keep.db") as box:
        run = await swept(box, done + item(f'{half} throw new Error("no");') + item("", "8"))
        assert (run.status, await box.statuses("flow", "out")) == ("failed:logic", {})
        whole = f"{half} console.log(one); await c.fake.add({{ text: `after ${{one.id}}`, subkey: 'after' }});"
        repaired = await swept(box, done + item(whole) + item("", "8"))
        assert (repaired.status, logs(repaired)) == ("committed", ['{"id":"add_2","text":"one"}'])
        assert fake.calls == ["add zero", "add one", "add after add_2"]
        assert await box.statuses("flow", "out") == {"p": "pending"}
    assert states(tmp_path / "keep.db", "6", "7", "8") == ["done", "done", "done"]


async def test_an_item_is_failed_until_its_code_comes_to_its_end(tmp_path: Path) -> None:
    fake = Fake()
    fake.plan("add", raises(AuthRequired("sign in")))
    async with world(fake, path=tmp_path / "keep.db") as box:
        run = await swept(box, item('await c.fake.add({ text: "one" });') + item("", "8"))
        assert run.status == "paused:approval"
    assert states(tmp_path / "keep.db", "7", "8") == ["failed fake.add: sign in", ""]
    async with world(fake, path=tmp_path / "keep.db", time=VirtualTime(START + MINUTE)) as box:
        await box.keep.clear_error("flow", by="alice")
        await box.settle()
        assert fake.texts == ["one"]
    assert states(tmp_path / "keep.db", "7", "8") == ["done", "done"]


async def test_a_mutation_that_did_not_happen_is_made_again_with_the_same_key_and_those_before_it_are_not() -> None:
    fake = Fake()
    fake.plan("put", raises(Transient("503")))
    body = item('const one = await c.fake.add({ text: "one" }); console.log(await c.fake.put({ text: one.id }));')
    async with world(fake, policy=STEADY) as box:
        assert (await swept(box, body)).status == "paused:transient"
        await box.advance(10 * SECOND)
        run = await box.last_run("flow", "sweep")
        assert (run.status, logs(run)) == ("committed", ['{"id":"put_2","text":"add_1"}'])
        assert fake.calls == ["add one", "put add_1", "put add_1"]
        assert fake.keys[1] == fake.keys[2] != fake.keys[0]
        assert len(await box.keep.outputs("flow")) == 2


async def test_the_same_call_twice_in_one_item_is_one_effect_and_the_same_answer() -> None:
    fake = Fake()
    body = item('for (let i = 0; i < 2; i++) console.log(await c.fake.add({ text: "one" }));')
    async with world(fake) as box:
        run = await swept(box, body)
        assert (run.status, logs(run)) == ("committed", ['{"id":"add_1","text":"one"}'] * 2)
        assert fake.calls == ["add one"]


async def test_equal_calls_are_told_apart_by_item_method_target_and_subkey() -> None:
    fake = Fake()
    calls = 'const call = async (method, more) => { await c.fake[method]({ target: "ann", text: "hi", ...more }); };'
    each = """
      await call("note", {}); await call("note", {}); await call("note", { subkey: "welcome" });
      await call("note", { subkey: "welcome" }); await call("note", { subkey: "" }); await call("mark", {});
      await call("note", { target: "bob" });
    """
    async with world(fake) as box:
        run = await swept(box, calls + item(each) + item(each, "8"))
        assert run.status == "committed"
        assert fake.calls == ["note ann: hi", "note ann: hi", "mark ann: hi", "note bob: hi"] * 2
        assert len(set(fake.keys)) == 8
        # The connector and the ledger have what the connector was asked, and not what is the host's.
        assert {each.params for each in await box.keep.outputs("flow")} == {
            '{"target":"ann","text":"hi"}',
            '{"target":"bob","text":"hi"}',
        }


@pytest.mark.parametrize(
    ("method", "before", "after", "is_same"),
    [
        ("note", "hi ann", "hi   ann", True),
        ("note", "hi ann", "Hi Ann", True),
        ("note", "hi ann", "bye ann", False),
        ("mark", "hi ann", "hi ann", True),
        ("mark", "hi ann", "hi  ann", False),
    ],
)
async def test_other_content_for_the_same_target_is_not_sent_and_asks_a_person_if_it_matters(
    tmp_path: Path, method: str, before: str, after: str, is_same: bool
) -> None:
    def body(text: str, end: str) -> str:
        call = f'console.log(await c.fake.{method}({{ target: "ann", text: "{text}" }}));'
        return item(f"try {{ {call} }} finally {{ console.log('after'); }} {end}")

    fake = Fake()
    async with world(fake, path=tmp_path / "keep.db") as box:
        await swept(box, body(before, 'throw new Error("no");'))
        run = await swept(box, body(after, "") + 'await c.publish("out", { messageId: "p", title: "T" });')
        assert fake.texts == [f"ann: {before}"]
        workflow = await box.keep.workflow("flow")
        if is_same:
            assert (run.status, workflow.error) == ("committed", "")
            assert logs(run) == [f'{{"id":"{method}_1","text":"ann: {before}"}}', "after"]
        else:
            assert (run.status, run.error_class, logs(run)) == ("paused:approval", "precondition", [])
            assert f"item '7': fake.{method} has already been done with other content" in workflow.error
            assert await box.statuses("flow", "out") == {}
            await box.advance(DAY)
            assert len(await box.runs("flow", "sweep")) == 2
    [state] = states(tmp_path / "keep.db", "7")
    assert state.split()[0] == ("done" if is_same else "needs_attention")


@pytest.mark.parametrize("decision", ["skip", "reprocess"])
async def test_a_person_who_has_looked_at_both_contents_skips_the_item_or_has_it_processed_anew(
    tmp_path: Path, decision: str
) -> None:
    fake = Fake()
    path = tmp_path / "keep.db"
    call = 'if (!c.item.isDone) await c.fake.note({ target: "ann", text: "WORDS" });'
    async with world(fake, path=path) as box:
        await swept(box, item(call.replace("WORDS", "hi") + 'throw new Error("no");'))
        await swept(box, item(call.replace("WORDS", "bye")))
        workflow = await box.keep.workflow("flow")
    with by_hand(path) as model:
        if decision == "skip":
            model.skip_item(workflow.id, "7", by="alice")
        else:
            model.reprocess_item(workflow.id, "7", by="alice")
    async with world(fake, path=path, time=VirtualTime(START + MINUTE)) as box:
        await box.keep.clear_error("flow", by="alice")
        await box.settle()
        assert (await box.last_run("flow", "sweep")).status == "committed"
        assert fake.texts == (["ann: hi"] if decision == "skip" else ["ann: hi", "ann: bye"])
    assert states(path, "7") == ["skipped" if decision == "skip" else "done"]


# Doubts.


async def test_a_doubt_in_an_item_stops_the_workflow_and_is_never_called_again(tmp_path: Path) -> None:
    fake = Fake()
    fake.plan("add", applies_and_raises(Uncertain("lost")))
    path = tmp_path / "keep.db"
    body = 'await c.publish("out", { title: "T" });' + item('await c.fake.add({ text: "one" });') + item("", "8")
    async with world(fake, path=path) as box:
        run = await swept(box, body)
        assert (run.status, run.error_class) == ("paused:reconciliation", "indeterminate")
        [doubt] = await box.keep.outputs("flow")
        assert (doubt.status, doubt.title) == ("indeterminate", "Invoice 7")
        assert (await box.keep.workflow("flow")).error == "Mutation outcome uncertain: fake.add: lost"
        with pytest.raises(Rejected) as refused:
            await box.keep.clear_error("flow", by="alice")
        assert refused.value.reason is Reason.MUTATION_OUTCOME_UNKNOWN
        await box.keep.deploy(script(job=body + "/* another */"), workflow="flow")
        await box.advance(2 * DAY)
        assert (len(await box.runs("flow", "sweep")), await box.statuses("flow", "out")) == (1, {})
    [left, other] = states(path, "7", "8")
    assert (left, other) == ("failed Mutation outcome uncertain: fake.add: lost", "")
    async with world(fake, path=path, time=VirtualTime(START + 3 * DAY)) as box:
        await box.advance(2 * DAY)
        assert (await box.keep.workflow("flow")).error == "Mutation outcome uncertain: fake.add: lost"
        assert len(await box.runs("flow", "sweep")) == 1
    assert fake.calls == ["add one"]


@pytest.mark.parametrize("verdict", ["it happened", "it did not", "skip"])
async def test_once_a_person_has_settled_the_doubt_the_job_goes_on_from_there(tmp_path: Path, verdict: str) -> None:
    fake = Fake()
    fake.plan("add", raises(Uncertain("lost")))
    path = tmp_path / "keep.db"
    body = item('console.log(c.item.isDone); if (!c.item.isDone) console.log(await c.fake.add({ text: "one" }));')
    async with world(fake, path=path) as box:
        assert (await swept(box, body)).status == "paused:reconciliation"
        [doubt] = await box.keep.outputs("flow")
    with by_hand(path) as model:
        match verdict:
            case "it happened":
                told = '{"id":"told","text":"one"}'
                model.apply_mutation(doubt.mutation_id, told, Resolver.USER_ASSERT_APPLIED, by="alice")
            case "it did not":
                model.fail_mutation(doubt.mutation_id, "", Resolver.USER_ASSERT_FAILED, by="alice")
            case _:
                model.skip_mutation(doubt.mutation_id, by="alice")
    async with world(fake, path=path, time=VirtualTime(START + MINUTE)) as box:
        await box.settle()
        run = await box.last_run("flow", "sweep")
        assert run.status == "committed"
        assert (
            logs(run)
            == {
                "it happened": ["false", '{"id":"told","text":"one"}'],
                "it did not": ["false", '{"id":"add_1","text":"one"}'],
                "skip": ["true"],
            }[verdict]
        )
        assert fake.calls == ["add one"] * (2 if verdict == "it did not" else 1)
        await box.advance(DAY)
        assert logs(await box.last_run("flow", "sweep")) == ["true"]
    assert states(path, "7") == ["skipped" if verdict == "skip" else "done"]


TWO_ITEMS = "".join(item(f'if (!c.item.isDone) await c.fake.add({{ text: "{each}" }});', each) for each in "78")


async def test_a_job_whose_call_is_pending_comes_to_its_end_when_a_script_is_deployed() -> None:
    fake = Fake()
    hang = fake.hang("add")
    async with world(fake) as box:
        workflow_id = (await box.keep.deploy(script(job=TWO_ITEMS))).workflow_id
        await hang.reached.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(box.keep.deploy, script(job=TWO_ITEMS + "/* repaired */"), workflow="flow"))
            await box.until_idle()
            hang.release()
        await box.settle()
        [run] = await box.keep.runs(workflow_id)
        assert (run.status, fake.texts) == ("committed", ["7", "8"])


@pytest.mark.parametrize("action", ["pause", "archive", "stop_run"])
async def test_a_job_that_a_person_stops_finishes_its_pending_call_and_makes_no_further_one(action: str) -> None:
    fake = Fake()
    hang = fake.hang("add")
    async with world(fake) as box:
        workflow_id = (await box.keep.deploy(script(job=TWO_ITEMS))).workflow_id
        await hang.reached.wait()
        await getattr(box.keep, action)(workflow_id, by="alice")
        hang.release()
        await box.settle()
        [run] = await box.keep.runs(workflow_id)
        assert (run.status, fake.texts) == ("paused:transient", ["7"])
        assert "stopped before its next call" in run.error_message
        assert await box.keep.attention() == []

        # What it did stays done, and the rest is done when it may run again.
        if action == "archive":
            await box.keep.unarchive(workflow_id, by="alice")
        if action != "stop_run":
            await box.keep.resume(workflow_id, by="alice")
        await box.settle()
        await box.advance(DAY)
        last = await box.last_run(workflow_id, "sweep")
        assert (last.status, fake.texts) == ("committed", ["7", "8"])


# When a job runs.


@pytest.mark.parametrize(
    ("schedule", "times_s"),
    [
        ('{ interval: "90s" }', [0, 90, 180]),
        ("undefined", [0, 300, 600]),
    ],
)
async def test_a_job_runs_at_deploy_and_then_by_its_schedule(schedule: str, times_s: list[int]) -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(script(job="return 1;", schedule=schedule))
        await box.settle()
        for earlier, later in pairwise(times_s):
            await box.advance((later - earlier) * SECOND - 1)
            await box.advance(1)
        assert [(run.created_at - START) / SECOND for run in await box.runs("flow", "sweep")] == times_s


async def test_a_job_with_cron_does_not_run_at_deploy_but_at_its_next_time() -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(script(job="return 1;", schedule='{ cron: "15 * * * *" }'))
        await box.settle()
        # START is 22:13:20.
        for wait_ms in (100 * SECOND - 1, 1, 60 * MINUTE - 1, 1):
            await box.advance(wait_ms)
        assert [(run.created_at - START) / SECOND for run in await box.runs("flow", "sweep")] == [100, 3700]


async def test_run_now_reaches_jobs_too() -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(script(producer="return 1;", job="return 1;"))
        await box.settle()
        await box.keep.run_now("flow")
        await box.settle()
        assert (len(await box.runs("flow", "poll")), len(await box.runs("flow", "sweep"))) == (2, 2)


async def test_consumers_and_producers_come_before_jobs() -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(
            script(
                producer='await c.publish("in", { messageId: "a", title: "T" });',
                mutate="await c.fake.add({ text: prepared.data.id });",
                job=item('if (!c.item.isDone) await c.fake.add({ text: "job" });'),
            )
        )
        await box.settle()
        assert [run.handler for run in reversed(await box.keep.runs("flow"))] == ["poll", "file", "sweep"]
        assert fake.texts == ["a", "job"]
