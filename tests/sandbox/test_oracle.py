"""The engine in WebAssembly and the native one: the same scripts, the same outcomes, requests and log lines."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keep_sandbox import Deadlock, InvalidValue, Invocation, ScriptError, Value
from keep_sandbox.outcomes import Outcome
from tests.sandbox.oracle.made_scripts import BODIES, TOPS
from tests.sandbox.oracle.native import NativeCall
from tests.sandbox.test_determinism import BUSY
from tests.sandbox.world import Attack, Trace, attacks, gmail, invocation, prepare_script, trusted

SCRIPTS = [
    *attacks("attacks.json"),
    *attacks("further.json"),
    Attack("busy", prepare_script(BUSY), ()),
    Attack("locale", prepare_script("return new Date().toLocaleString('de', {timeZone: 'Europe/Berlin'})"), ()),
]
DIFFERENT = {"mem-exception-null": "shows what the script catches when memory runs out, where the engines are free"}
"""Scripts that end differently, and why."""
ENDS_BY_ITSELF = (Value, ScriptError, InvalidValue, Deadlock)
"""Hostile scripts that the oracle can be given: it has no limit on CPU, and cannot stop a script inside."""


def native(given: Invocation) -> Trace:
    call = NativeCall(given)
    outcome = call.run(gmail)
    return Trace(outcome, call.requests, call.logs)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.id)
def test_a_hostile_script_that_ends_does_so_in_both_engines_alike(script: Attack) -> None:
    ours = trusted(invocation(script.source))
    if isinstance(ours.outcome, ENDS_BY_ITSELF) and script.id not in DIFFERENT:
        assert_same(ours, native(invocation(script.source)))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(BODIES, TOPS, st.integers(0, 2**32 - 1))
def test_made_scripts_end_alike_in_both_engines(body: str, top: str, seed: int) -> None:
    source = prepare_script(body, top)
    if "\ud83d" in source:
        return
    one = invocation(source, seed=seed)
    assert_same(trusted(one), native(one))


def test_made_scripts_are_worth_the_comparison() -> None:
    """Most of them load, many return a value, and some throw."""
    kinds: list[str] = []

    @settings(max_examples=200, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(BODIES)
    def run(body: str) -> None:
        outcome = trusted(invocation(prepare_script(body))).outcome
        kinds.append("load" if isinstance(outcome, ScriptError) and outcome.phase == "load" else type(outcome).__name__)

    run()
    assert kinds.count("load") < len(kinds) / 5
    assert kinds.count("Value") > len(kinds) / 10
    assert len(set(kinds)) >= 4


def test_a_difference_would_be_seen() -> None:
    one, other = (trusted(invocation(prepare_script(f"return {number}"))) for number in (1, 2))
    with pytest.raises(AssertionError):
        assert_same(one, other)


def assert_same(ours: Trace, theirs: Trace) -> None:
    assert told(ours.outcome) == told(theirs.outcome)
    assert ours.requests == theirs.requests
    assert ours.logs == theirs.logs


def told(outcome: Outcome) -> object:
    """All of an outcome but its place: the engines may count a column of the same frame from another instruction."""
    if isinstance(outcome, Value):
        return outcome.value, outcome.is_given
    return type(outcome), getattr(outcome, "name", ""), getattr(outcome, "message", ""), getattr(outcome, "path", "")
