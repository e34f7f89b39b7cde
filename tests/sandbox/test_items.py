"""Item scopes: opened and closed through the host, one at a time, and no error inside can be caught."""

import json

import pytest

from keep_sandbox import Invocation, Kind, Place, Request, ScriptError, Value
from tests.sandbox.world import ITEMS, Trace, invocation, trusted


def job(body: str) -> Invocation:
    return invocation(
        f"export default Keep.workflow({{jobs:{{j: async (ctx) => {{ {body} }}}}}})",
        "jobs.j",
        capabilities=ITEMS,
        args="[]",
    )


def host(request: Request) -> str:
    """Item `done` is done; a mail that was sent has an id."""
    params = json.loads(request.params)
    if request.kind is Kind.ITEM_OPEN:
        return json.dumps({"isDone": params["id"] == "done"})
    return '{"messageId":"m1"}'


def seen(trace: Trace) -> list[str]:
    return [f"{request.kind} {request.params}" for request in trace.requests]


def test_a_mutation_inside_a_scope_returns_its_result() -> None:
    trace = trusted(
        job("return await ctx.withItem('1', 'First', async () => (await ctx.gmail.send({to:'a'})).messageId)"), host
    )
    assert trace.outcome == Value(value='"m1"')
    assert seen(trace) == ['item_open {"id":"1","title":"First"}', 'mutation {"to":"a"}', 'item_close {"id":"1"}']


def test_the_item_is_there_inside_its_scope_only() -> None:
    body = """
      const all = [ctx.item === undefined];
      await ctx.withItem('done', 'D', async (inner) => { all.push(ctx.item.isDone, ctx.item.id, inner === ctx) });
      await ctx.withItem('new', 'N', () => { all.push(ctx.item.isDone, ctx.item.title) });
      all.push(ctx.item === undefined);
      return all"""
    assert trusted(job(body), host).outcome == Value(value='[true,true,"done",true,false,"N",true]')


def test_scopes_that_are_opened_together_run_one_after_another() -> None:
    body = """
      const order = [];
      await Promise.all(['1','2','3'].map(id => ctx.withItem(id, 'T', async () => {
        order.push('in ' + ctx.item.id); await ctx.gmail.search({}); order.push('out ' + ctx.item.id) })));
      return order"""
    assert trusted(job(body), host).outcome == Value(value='["in 1","out 1","in 2","out 2","in 3","out 3"]')


def test_a_nested_scope_is_an_error_that_says_so() -> None:
    outcome = trusted(
        job("await ctx.withItem('1','A', async () => { await ctx.withItem('2','B', () => 1) })"), host
    ).outcome
    assert isinstance(outcome, ScriptError)
    assert "nested" in outcome.message


def test_an_error_inside_a_scope_ends_the_script_and_cannot_be_caught() -> None:
    body = """
      try { await ctx.withItem('1', 'A', async () => { throw new RangeError('x') }) } catch { console.log('AFTER') }
      await ctx.withItem('2', 'B', () => 1)"""
    trace = trusted(job(body), host)
    assert isinstance(trace.outcome, ScriptError)
    assert trace.outcome.name == "RangeError"
    assert trace.logs == []
    assert seen(trace) == ['item_open {"id":"1","title":"A"}']


def test_what_a_scope_did_not_wait_for_still_belongs_to_it() -> None:
    trace = trusted(job("await ctx.withItem('1', 'A', () => { ctx.gmail.send({to:'a'}) }); return 1"), host)
    assert seen(trace)[-1].startswith("item_close")
    assert seen(trace)[-2].startswith("mutation")


def test_a_scope_needs_an_id_a_title_and_a_function() -> None:
    body = """
      const names = [];
      for (const args of [[], [1,'t',()=>1], ['','t',()=>1], ['1','',()=>1], ['1','t']])
        try { await ctx.withItem(...args) } catch (e) { names.push(e.name) }
      return names"""
    assert trusted(job(body), host).outcome == Value(
        value='["TypeError","TypeError","TypeError","TypeError","TypeError"]'
    )


ONE = "async () => { await ctx.gmail.send({}) }"
FORGOTTEN = {
    "a bare call": (f"ctx.withItem('a', 'A', {ONE})", "a"),
    "in forEach": (f"['a','b'].forEach(async id => {{ await ctx.withItem(id, 'T', {ONE}) }})", "a"),
    "without braces": (f"['a','b'].forEach(id => ctx.withItem(id, 'T', {ONE}))", "a"),
    "the winner of a race": (f"await Promise.race(['a','b'].map(id => ctx.withItem(id, 'T', {ONE})))", "b"),
    "any": (f"await Promise.any(['a','b'].map(id => ctx.withItem(id, 'T', {ONE})))", "b"),
    "after a finished one": (f"await ctx.withItem('a', 'A', {ONE}); ctx.withItem('b', 'B', {ONE}); return 1", "b"),
    "inside another": ("await ctx.withItem('a', 'A', () => { ctx.withItem('b', 'B', () => 1) })", "b"),
    "after a read": (
        f"['a','b'].forEach(async id => {{ await ctx.gmail.search({{}}); await ctx.withItem(id, 'T', {ONE}) }})",
        "a",
    ),
    "after a while": (
        f"(async () => {{ for (let i = 0; i < 99; i++) await null; await ctx.withItem('a', 'T', {ONE}) }})()",
        "a",
    ),
}


@pytest.mark.parametrize(("body", "item"), FORGOTTEN.values(), ids=FORGOTTEN)
def test_a_handler_that_returns_before_an_item_is_finished_is_an_error_that_says_so(body: str, item: str) -> None:
    outcome = trusted(job(body), host).outcome
    assert isinstance(outcome, ScriptError)
    assert f'the handler returned before item "{item}" was finished' in outcome.message
    assert "`await` every `ctx.withItem` (use `for … of`, not `forEach`)" in outcome.message


def test_an_item_that_nobody_waited_for_is_shown_where_it_was_opened() -> None:
    outcome = trusted(job("\n\n  ctx.withItem('a', 'A', () => 1)"), host).outcome
    assert isinstance(outcome, ScriptError)
    assert outcome.place == Place(3, 7)


@pytest.mark.parametrize(
    "body",
    [
        "return ctx.withItem('a', 'A', () => 1)",
        "const p = ctx.withItem('a', 'A', () => 1); return await p",
        "ctx.withItem('a', 'A', () => 1); return await ctx.withItem('b', 'B', () => 1)",
        "return (await Promise.all(['a','b'].map(id => ctx.withItem(id, 'T', () => 1))))[1]",
        "let n; await ctx.withItem('a', 'A', () => 1).then(value => { n = value }); return n",
        "ctx.gmail.search({}).then(() => ctx.gmail.search({})); return 1",
    ],
)
def test_items_that_are_waited_for_in_whatever_way_are_all_right(body: str) -> None:
    assert trusted(job(body), host).outcome == Value(value="1")
