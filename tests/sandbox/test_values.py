"""Values between a script and its host, and the errors for those that are refused."""

import json
import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keep_sandbox import Capabilities, InvalidValue, Limits, Place, ScriptError, SizeLimit, Value
from keep_sandbox.json_text import UnfitText, check_json
from tests.sandbox.world import GMAIL, gmail, invocation, prepare, trusted


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ("return {data:{items:[1,2,3,{when:1n}]}}", "data.items[3].when"),
        ("return {'a b':[{c:NaN}]}", '["a b"][0].c'),
        ("return ()=>1", ""),
        ("const o={a:{b:[]}}; o.a.b.push({c:o.a}); return o", "a.b[0].c"),
        ("return {first:{deep:{er:1}}, second:{third:[new Date(0)]}}", "second.third[0]"),
        ("return {a:{c:{y:1}}, b:Infinity}", "b"),
        ("return {a:[{b:'fine'},{b:'\\ud800'}]}", "a[1].b"),
        ("return [[1],[2,Symbol('x')]]", "[1][1]"),
        ("await ctx.gmail.search({query:{after:undefined, ids:[()=>1]}})", "query.ids[0]"),
    ],
)
def test_a_value_that_json_cannot_carry_is_named_by_its_path(body: str, path: str) -> None:
    outcome = trusted(prepare(body)).outcome
    assert isinstance(outcome, InvalidValue)
    assert outcome.path == path


def test_an_argument_that_json_cannot_carry_is_shown_at_its_line() -> None:
    outcome = trusted(prepare("\n\n  await ctx.gmail.search({a:1n})")).outcome
    assert isinstance(outcome, InvalidValue)
    assert outcome.place is not None
    assert outcome.place.line == 4


def test_a_large_value_crosses_within_the_cpu_limit() -> None:
    outcome = trusted(
        prepare("return Array.from({length:20000},(_, i)=>({i,a:'xxxxxxxxxx'}))"), limits=Limits()
    ).outcome
    assert isinstance(outcome, Value)
    assert len(outcome.value) > 500_000


def test_a_value_is_measured_in_bytes() -> None:
    fits = trusted(prepare("return 'é'.repeat(500)"), limits=Limits(value_bytes=1_100)).outcome
    does_not = trusted(prepare("return 'é'.repeat(600)"), limits=Limits(value_bytes=1_100)).outcome
    assert isinstance(fits, Value)
    assert isinstance(does_not, SizeLimit)


@pytest.mark.parametrize("depth", [1, 63, 64])
def test_a_value_may_be_as_deep_as_the_limit(depth: int) -> None:
    outcome = trusted(prepare(f"let o=1; for(let i=0;i<{depth};i++) o=[o]; return o")).outcome
    assert outcome == Value(value="[" * depth + "1" + "]" * depth)


def test_a_value_deeper_than_the_limit_is_refused_however_deep_the_script_stands() -> None:
    body = "const f=(n)=>n>0 ? f(n-1) : (()=>{ let o=1; for(let i=0;i<65;i++) o=[o]; return o })(); return f(500)"
    assert isinstance(trusted(prepare(body)).outcome, InvalidValue)


def test_the_answers_of_the_host_arrive_as_they_were_sent() -> None:
    answer = '{"a":[1,-0.5,1e21,true,null,"\\u0000é😀"],"__proto__":{"b":2},"then":1}'
    body = (
        "const r=await ctx.gmail.search({}); return [Object.keys(r), r.a, Object.getPrototypeOf(r)===Object.prototype]"
    )
    outcome = trusted(prepare(body), lambda _: answer).outcome
    assert outcome == Value(value='[["a","__proto__","then"],[1,-0.5,1e+21,true,null,"\\u0000é😀"],true]')


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=15,
)


@settings(max_examples=150, deadline=None)
@given(json_values)
def test_every_json_value_crosses_and_comes_back_the_same(value: object) -> None:
    outcome = trusted(
        prepare("return await ctx.gmail.search(ev)", args=json.dumps([value])), lambda r: r.params
    ).outcome
    assert isinstance(outcome, Value)
    # As floats: the engine writes 1.0 as 1, and a large number with all its digits.
    assert json.loads(outcome.value, parse_int=float) == json.loads(json.dumps(value), parse_int=float)
    check_json(outcome.value, Limits())


def test_large_integers_are_neither_cut_nor_rounded_on_the_way() -> None:
    body = "const r=await ctx.gmail.search({n:9007199254740991}); return [r, 4294967296, -2147483649]"
    trace = trusted(prepare(body), lambda _: "9007199254740991")
    assert trace.requests[0].params == '{"n":9007199254740991}'
    assert trace.outcome == Value(value="[9007199254740991,4294967296,-2147483649]")


@pytest.mark.parametrize(
    "body",
    [
        "return JSON.rawJSON('1e400')",
        "await ctx.gmail.search({n:JSON.rawJSON('1e400')})",
        "return Object.getOwnPropertyDescriptor(JSON, 'rawJSON').value('1e400')",
        "return JSON.isRawJSON({})",
    ],
)
def test_a_script_writes_no_number_that_no_value_has(body: str) -> None:
    trace = trusted(prepare(body))
    assert isinstance(trace.outcome, ScriptError)
    assert trace.outcome.name == "TypeError"
    assert trace.requests == []


def test_a_reviver_is_given_values_and_not_their_text() -> None:
    body = "const seen=[]; JSON.parse('[1e400]', function(...all){ seen.push(all.length); return all[1] }); return seen"
    assert trusted(prepare(body)).outcome == Value(value="[2,2]")


def test_a_reviver_works_as_everywhere() -> None:
    body = (
        'const read=JSON.parse(\'{"a":{"b":1},"c":2}\','
        " function(k, v) { return k==='b' ? v+this.b : k==='c' ? undefined : v });"
        "return [read, JSON.parse('[1]', 'no function'), JSON.parse.length, JSON.parse.name]"
    )
    assert trusted(prepare(body)).outcome == Value(value='[{"a":{"b":2}},[1],2,"parse"]')


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1E+309", "10e308", "0.1e99999999", "1e0000400", "9" * 201])
@pytest.mark.parametrize("around", ["{}", "[1,{}]", '{{"a\\"1":{}}}', '["1e5",{}]', " {} "])
def test_a_number_that_nobody_can_hold_is_not_taken(number: str, around: str) -> None:
    with pytest.raises(UnfitText, match="number"):
        check_json(around.format(number), Limits())


@pytest.mark.parametrize(
    "text",
    [
        "1e308",
        "-1.7976931348623157e+308",
        "1e-400",
        "0e999",
        "5e-324",
        "18446744073709552000",
        "9" * 200,
        '"1e400"',
        '{"1e400":1}',
        f'"{"9" * 5000}"',
        '["\\\\","1e400","\\""]',
    ],
)
def test_a_number_that_can_be_held_is_taken_and_so_is_text_that_looks_like_another(text: str) -> None:
    check_json(text, Limits())


numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,5})(\.[0-9]{1,4})?([eE][+-]?[0-9]{1,6})?", fullmatch=True)
texts = st.recursive(
    numbers | st.sampled_from(["9" * 200, "9" * 201, "9" * 5000, '"1e400"', "null"]) | st.text().map(json.dumps),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda each: f"[{','.join(each)}]")
        | st.lists(st.tuples(st.sampled_from(['"a"', '"\\""', '"1e999"']), inner), max_size=3).map(
            lambda each: f"{{{','.join(f'{key}:{value}' for key, value in each)}}}"
        )
    ),
    max_leaves=8,
)


@settings(max_examples=400, deadline=None)
@given(texts)
def test_what_is_taken_can_be_decoded_by_every_reader_to_the_same(text: str) -> None:
    try:
        check_json(text, Limits())
    except UnfitText:
        return
    # Of two members with one name every reader takes the last.
    decoded = msgspec.json.decode(text)
    assert decoded == json.loads(text)
    assert msgspec.json.decode(msgspec.json.encode(decoded)) == decoded
    json.loads(text, parse_int=finite, parse_float=finite)


def finite(number: str) -> float:
    assert math.isfinite(float(number))
    return float(number)


def test_arguments_that_are_left_out_are_undefined() -> None:
    body = "return [ev === undefined, arguments.length]"
    outcome = trusted(prepare(body, args="[]")).outcome
    assert outcome == Value(value="[true,1]")


def test_log_lines_are_captured_counted_and_cut() -> None:
    limits = Limits(log_lines=3, log_line_chars=20)
    body = "console.log('a', {b:[1]}, null); console.warn('x'.repeat(100)); for(let i=0;i<9;i++) console.error(1)"
    trace = trusted(prepare(body), limits=limits)
    assert trace.logs == ['a {"b":[1]} null', "x" * 19 + "…", "1"]


def test_a_script_that_is_too_large_is_not_loaded() -> None:
    outcome = trusted(invocation("//" + "x" * 300_000)).outcome
    assert isinstance(outcome, SizeLimit)
    assert outcome.what == "script"
    assert isinstance(trusted(invocation("\n" * 20_001)).outcome, SizeLimit)


def test_the_last_line_that_a_script_may_have_is_still_the_authors() -> None:
    source = "\n" * 19_999 + "export default Keep.workflow({consumers:{c:{prepare(){ return [1n] }}}});"
    outcome = trusted(invocation(source)).outcome
    assert isinstance(outcome, InvalidValue)
    thrown = trusted(invocation(source.replace("return [1n]", "null.x"))).outcome
    assert getattr(thrown, "place", None) == Place(20_000, 56)


def test_what_was_not_offered_does_not_exist() -> None:
    body = "return [Reflect.ownKeys(ctx), typeof ctx.peek, typeof ctx.gmail]"
    assert trusted(prepare(body, capabilities=Capabilities())).outcome == Value(value='[[],"undefined","undefined"]')
    everything = Capabilities(peek=True, get_by_ids=True, publish=True, with_item=True, connectors=GMAIL.connectors)
    assert trusted(prepare("return Reflect.ownKeys(ctx)", capabilities=everything), gmail).outcome == Value(
        value='["peek","getByIds","publish","withItem","item","gmail"]'
    )


def test_topic_calls_say_what_they_are_about() -> None:
    capabilities = Capabilities(peek=True, get_by_ids=True, publish=True)
    body = (
        "await ctx.peek('t'); await ctx.peek('t',{limit:5}); await ctx.getByIds('t',['1']);"
        "await ctx.publish('t',{messageId:'1',title:'T',payload:{a:1}}); return 1"
    )
    trace = trusted(prepare(body, capabilities=capabilities), lambda _: "[]")
    assert [(request.kind, request.name, request.params) for request in trace.requests] == [
        ("peek", "peek", '{"topic":"t"}'),
        ("peek", "peek", '{"topic":"t","options":{"limit":5}}'),
        ("get_by_ids", "getByIds", '{"topic":"t","ids":["1"]}'),
        ("publish", "publish", '{"topic":"t","event":{"messageId":"1","title":"T","payload":{"a":1}}}'),
    ]


@pytest.mark.parametrize("call", ["ctx.peek()", "ctx.peek(1)", "ctx.publish('t')", "ctx.getByIds('t')"])
def test_a_topic_call_without_its_arguments_throws(call: str) -> None:
    capabilities = Capabilities(peek=True, get_by_ids=True, publish=True)
    body = f"try {{ {call} }} catch (e) {{ return e.name }}"
    assert trusted(prepare(body, capabilities=capabilities)).outcome == Value(value='"TypeError"')
