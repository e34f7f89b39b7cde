"""The engine's way with JSON: what goes into a script comes out the same or is refused, and all can read it."""

import json
import math

import msgspec

from keep_sandbox import InvalidValue, Limits, SizeLimit, Value
from keep_sandbox.json_text import UnfitText, check_json
from tests.fuzz.json_texts import json_texts
from tests.fuzz.target import Target
from tests.sandbox.world import prepare, trusted

LIMITS = Limits(fuel=40_000_000_000, cpu_hard_ms=5_000)


def check(text: str) -> None:
    """Through a host's answer, if a host may give it, and through `JSON.parse` of the script in any case."""
    reads_itself = "let read; try { read = JSON.parse(ev) } catch { return 'no JSON' } return read"
    outcome = trusted(prepare(reads_itself, args=json.dumps([text])), limits=LIMITS).outcome
    assert isinstance(outcome, Value | InvalidValue | SizeLimit), outcome
    if isinstance(outcome, Value):
        _can_be_read(outcome.value)
    try:
        check_json(text, LIMITS)
    except UnfitText:
        return
    _can_be_read(text)
    trace = trusted(prepare("return await ctx.gmail.search({})"), lambda _: text, limits=LIMITS)
    assert isinstance(trace.outcome, Value), trace.outcome
    _can_be_read(trace.outcome.value)
    assert json.loads(trace.outcome.value, parse_int=float) == json.loads(text, parse_int=float)


def _can_be_read(text: str) -> None:
    check_json(text, LIMITS)
    decoded = msgspec.json.decode(text)
    assert decoded == json.loads(text, parse_float=_finite)
    assert msgspec.json.decode(msgspec.json.encode(decoded)) == decoded


def _finite(number: str) -> float:
    assert math.isfinite(float(number))
    return float(number)


TARGET = Target(
    "engine_json",
    "JSON through the engine and back",
    json_texts,
    check,
    read=bytes.decode,
    write=str.encode,
    suffix=".json",
    examples=150,
)
