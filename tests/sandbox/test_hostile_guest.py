"""A guest that was taken over can end its own invocation, and nothing else."""

import pytest

from keep_sandbox import CpuLimit, Limits, StackLimit, Value
from keep_sandbox.engine import Engine, Guest, UnexpectedTrap
from tests.sandbox.hostile_guest import SEEN, hostile, outbox, said
from tests.sandbox.test_images import Heard
from tests.sandbox.world import prepare

LIMITS = Limits(fuel=50_000_000)
STORE_EVERYWHERE = """
  (local $at i32)
  (loop $next
    (i32.store (local.get $at) (i32.const -1))
    (local.set $at (i32.add (local.get $at) (i32.const 16384)))
    (br_if $next (i32.lt_u (local.get $at) (i32.const 83886080))))
"""


def run(code: bytes) -> tuple[Engine, Guest, Heard]:
    engine = Engine(code)
    guest, heard = Guest(engine, LIMITS), Heard()
    guest.run(prepare("return 1"), heard)
    return engine, guest, heard


@pytest.mark.parametrize(
    "begin",
    [
        f"{outbox(83_886_000, 4_000)} (i32.const 0)",
        f"{outbox(0xFFFFFFF0 - (1 << 32), 0x7FFFFFFF)} (i32.const 0)",
        f"{outbox(2_097_152, 20)} (i32.store (i32.const 2097160) (i32.const -1)) (i32.const 0)",
        f"{outbox(2_097_152, 19)} (i32.const 0)",
        f"{outbox(2_097_152, 24)} (i32.const 0)",
        f"{outbox(2_097_152, 24)} (i32.store (i32.const 2097152) (i32.const 77)) (i32.const 0)",
        f"{outbox(2_097_152, 24)} (i32.store (i32.const 2097152) (i32.const 1)) (i32.const 0)",
        f"{outbox(2_097_152, 24)} (i32.store (i32.const 2097152) (i32.const 4)) (i32.const 0)",
        "(i32.const 0)",
        "unreachable",
        "(i32.load (i32.const -4))",
        "(i32.div_s (i32.const 1) (i32.const 0))",
        f"(i32.store (i32.const {SEEN + 4}) (i32.const 1)) (i32.load (i32.const -4))",
    ],
)
def test_what_the_engine_never_does_is_an_alarm(begin: str) -> None:
    with pytest.raises(UnexpectedTrap):
        run(hostile(begin))


def test_a_guest_that_never_ends_uses_up_its_fuel() -> None:
    _, _, heard = run(hostile("(loop $for (br $for)) (i32.const 0)", where="(loop $for (br $for)) (i32.const 0)"))
    assert heard.said == [CpuLimit()]


def test_a_guest_that_calls_itself_uses_up_its_stack() -> None:
    _, _, heard = run(hostile("(i32.add (call $begin) (call $begin))", where="unreachable"))
    assert heard.said == [StackLimit()]


def test_a_guest_that_writes_everywhere_leaves_no_byte_behind() -> None:
    end, data = said((3, 1, b"1", b"", b""))
    code = hostile(f"{STORE_EVERYWHERE} {end} (global.set $stack (i32.const 77)) (i32.const 0)", more=data)
    engine, guest, heard = run(code)
    assert heard.said == [Value(value="1")]
    guest.close()
    for instance, image in engine._idle:
        assert image.is_in(instance)
        assert instance.stack_pointer == instance.stack_top


def test_what_it_says_is_text_within_the_limits_whoever_says_it() -> None:
    begin, data = said(
        (2, 0, b"\xff\xfe not text", b"", b""),
        (1, 4_000_000_000, b"read", b"no.such", b"not json"),
        (3, 9, b"\xed\xa0\x80", b"", b""),
    )
    _, guest, heard = run(hostile(f"{begin} (i32.const 0)", more=data))
    assert heard.said[:2] == ["\ufffd\ufffd not text", (4_000_000_000, "read", "no.such", "not json")]
    assert isinstance(heard.ending, Value)
    assert guest.ended


def test_an_inbox_outside_of_the_memory_is_not_written() -> None:
    _, _, heard = run(hostile("(i32.const 0)", inbox="(i32.const 83886079)"))
    assert type(heard.ending).__name__ == "MemoryLimit"
