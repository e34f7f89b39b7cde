"""Every way in which an invocation can end, and what is said about it."""

import signal

import pytest

from keep_sandbox import (
    CallLimit,
    CpuLimit,
    Deadlock,
    EngineCrash,
    InvalidValue,
    IssuedMutation,
    JailViolation,
    Limits,
    MemoryLimit,
    Place,
    Refused,
    ScriptError,
    StackLimit,
    Value,
    WallLimit,
    WorkerLost,
)
from keep_sandbox.outcomes import EXIT_MEMORY, outcome_of_exit
from tests.sandbox.world import GMAIL, invocation, prepare, trusted

AUTHORS_SCRIPT = """\
const limit = 3;

function check(event) {
  if (event.n > limit) {
    throw new RangeError(`too many: ${event.n}`);
  }
}

export default Keep.workflow({
  consumers: {
    c: Keep.consumer({
      async prepare(ctx, event) {
        await ctx.gmail.search({});
        check(event);
      },
    }),
  },
});
"""


def test_an_error_carries_class_message_and_a_stack_in_the_authors_coordinates() -> None:
    outcome = trusted(invocation(AUTHORS_SCRIPT, args='[{"n":4}]')).outcome
    assert isinstance(outcome, ScriptError)
    assert (outcome.phase, outcome.name, outcome.message) == ("run", "RangeError", "too many: 4")
    assert outcome.place is not None
    assert outcome.place.line == 5
    assert [line.rpartition(":")[0] for line in outcome.stack.split("\n")] == [
        "at check (script.js:5",
        "at prepare (script.js:14",
    ]


def test_a_class_of_the_authors_own_keeps_its_name() -> None:
    top = "class Broken extends Error { constructor(m) { super(m); this.name = 'Broken' } }"
    outcome = trusted(invocation(top + AUTHORS_SCRIPT.replace("RangeError", "Broken"), args='[{"n":4}]')).outcome
    assert isinstance(outcome, ScriptError)
    assert outcome.name == "Broken"


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("export default Keep.workflow({\n  consumers: {;\n});", Place(2, 15)),
        ("const a = 1;\n\n  null.x;\nexport default Keep.workflow({});", Place(3, 3)),
    ],
)
def test_a_script_that_does_not_load_says_where(source: str, place: Place) -> None:
    outcome = trusted(invocation(source)).outcome
    assert isinstance(outcome, ScriptError)
    assert outcome.phase == "load"
    assert outcome.place == place


@pytest.mark.parametrize("source", ["a\0b", "'\ud800'", "export default 1", "export default Keep.workflow({})"])
def test_what_is_not_a_script_with_this_handler_is_a_load_error(source: str) -> None:
    outcome = trusted(invocation(source)).outcome
    assert isinstance(outcome, ScriptError)
    assert outcome.phase == "load"


def test_a_script_that_computes_too_long_is_stopped_and_the_place_is_known() -> None:
    body = "\n\nfunction spin() { for (;;) Math.sqrt(2) }\nspin()"
    outcome = trusted(prepare(body), limits=Limits(fuel=400_000_000)).outcome
    assert isinstance(outcome, CpuLimit)
    assert not outcome.hard
    assert outcome.place is not None
    assert outcome.place.line == 4


def test_a_script_that_computes_too_long_while_it_loads_is_stopped() -> None:
    outcome = trusted(invocation("\n\nfor (;;);\nexport default 1"), limits=Limits(fuel=400_000_000)).outcome
    assert isinstance(outcome, CpuLimit)


def test_a_script_that_uses_too_much_memory_is_stopped() -> None:
    limits = Limits(heap_bytes=8 * 1024 * 1024, fuel=40_000_000_000, cpu_hard_ms=5_000)
    outcome = trusted(prepare("const a=[]; for(;;) a.push(new Array(10000).fill(1))"), limits=limits).outcome
    assert isinstance(outcome, MemoryLimit)


def test_a_script_that_calls_too_deeply_is_stopped_and_the_place_is_known() -> None:
    outcome = trusted(prepare("\nconst f = () => f() + 1;\nreturn f()")).outcome
    assert isinstance(outcome, StackLimit)
    assert outcome.place is not None
    assert outcome.place.line == 3


def test_too_many_host_calls_end_the_script_and_it_cannot_catch_that() -> None:
    body = "for(let i=0;;i++) { try { await ctx.gmail.search({i}) } catch { console.log('AFTER') } }"
    trace = trusted(prepare(body), limits=Limits(host_calls=7))
    assert trace.outcome == CallLimit(limit=7)
    assert len(trace.requests) == 7
    assert trace.logs == []


@pytest.mark.parametrize(
    "body",
    [
        "await new Promise(()=>{})",
        "return { then(){} }",
        "await Promise.race([])",
        "for await (const x of { [Symbol.asyncIterator]: () => ({ next: () => new Promise(()=>{}) }) });",
    ],
)
def test_a_script_that_waits_for_nothing_is_a_deadlock_at_once(body: str) -> None:
    assert trusted(prepare(body)).outcome == Deadlock()


def test_a_script_that_waits_for_the_host_is_no_deadlock() -> None:
    assert trusted(prepare("await null; return (await ctx.gmail.search({})).length")).outcome == Value(value="2")


def test_a_mutation_ends_the_script_with_what_it_asked_for() -> None:
    outcome = trusted(prepare("await ctx.gmail.send({to:'a@example.com'}); return 1")).outcome
    assert outcome == IssuedMutation(id=1, name="gmail.send", params='{"to":"a@example.com"}')


def test_a_refusal_ends_the_script_and_it_cannot_catch_that() -> None:
    body = "try { await ctx.gmail.search({}) } catch { console.log('AFTER') } finally { console.log('AFTER') }"
    trace = trusted(prepare(body), lambda _: None)
    assert isinstance(trace.outcome, Refused)
    assert trace.logs == []


def test_an_error_that_nobody_waits_for_does_not_end_the_script() -> None:
    assert trusted(prepare("Promise.reject(new Error('x')); await null; return 1")).outcome == Value(value="1")


@pytest.mark.parametrize(
    ("returncode", "wall", "expected"),
    [
        (-signal.SIGPROF, False, CpuLimit(hard=True)),
        (-signal.SIGXCPU, False, CpuLimit(hard=True)),
        (-signal.SIGSYS, False, JailViolation()),
        (-signal.SIGSEGV, False, EngineCrash(signal=signal.SIGSEGV)),
        (-signal.SIGABRT, True, EngineCrash(signal=signal.SIGABRT)),
        (-signal.SIGKILL, True, WallLimit()),
        (-signal.SIGKILL, False, WorkerLost()),
        (None, False, WorkerLost()),
        (EXIT_MEMORY, False, MemoryLimit()),
        (0, False, EngineCrash(signal=0)),
    ],
)
def test_the_end_of_a_worker_says_what_happened(returncode: int | None, wall: bool, expected: object) -> None:
    assert outcome_of_exit(returncode, wall=wall) == expected


def test_producers_and_jobs_are_functions_or_have_a_handler() -> None:
    source = """export default Keep.workflow({
      producers: {
        a: async (ctx, s) => ['a', s],
        b: { schedule: {}, async handler(ctx, s) { return ['b', this.schedule] } },
      },
      jobs: { 'with.dots'(ctx) { return 'job' } },
    })"""
    run = [trusted(invocation(source, handler, capabilities=GMAIL, args="[7]")).outcome for handler in HANDLERS]
    assert run == [Value(value='["a",7]'), Value(value='["b",{}]'), Value(value='"job"')]


HANDLERS = ["producers.a", "producers.b", "jobs.with.dots"]


@pytest.mark.parametrize("address", ["", "producers", "producers.", "consumers.a", "consumers.a.b", "x.y", "topics.a"])
def test_an_address_that_is_none_is_refused_before_anything_runs(address: str) -> None:
    with pytest.raises(ValueError, match=r"handler|phase"):
        invocation("", address)


def test_an_invalid_value_and_a_plain_type_error_are_told_apart() -> None:
    assert isinstance(trusted(prepare("return {a:1n}")).outcome, InvalidValue)
    assert isinstance(trusted(prepare("throw new TypeError('a: a BigInt is not JSON')")).outcome, ScriptError)


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("return null", Value(value="null")),
        ("return", Value(value="null", is_given=False)),
        ("return undefined", Value(value="null", is_given=False)),
        ("", Value(value="null", is_given=False)),
        ("return [undefined]", Value(value="[null]")),
    ],
)
def test_nothing_that_is_returned_is_told_apart_from_null(body: str, outcome: Value) -> None:
    assert trusted(prepare(body)).outcome == outcome
