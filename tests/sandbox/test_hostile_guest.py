"""A guest that was taken over can end its own invocation, and nothing else."""

from contextlib import AsyncExitStack

import pytest

from keep_actors.sandbox_pool import Call, PoolPolicy, SandboxPool
from keep_sandbox import (
    CpuLimit,
    EngineCrash,
    Limits,
    Outcome,
    ProtocolViolation,
    Request,
    StackLimit,
    Value,
    WorkerLost,
)
from keep_sandbox.engine import Engine
from keep_sandbox.guest import Guest
from keep_sandbox.shim import UnexpectedTrap
from tests.sandbox.hostile_guest import SEEN, hostile, outbox, said
from tests.sandbox.test_images import Heard
from tests.sandbox.world import invocation, needs_jail, prepare, prepare_script

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
    for instance in engine._idle:
        assert engine.prelude.is_in(instance)
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


# Guests that are all other WebAssembly, told apart by their seed: one asks as it may, the others do what they want.

ASKS = 1
FORGES = 2
TRAPS = 3
ENDS = 4


def two_faced() -> bytes:
    asks, first = said((1, 1, b"read", b"gmail.search", b"{}"), at=3_146_000)
    forges, second = said((1, 1, b"read", b"gmail.steal", b"{}"), at=3_148_000)
    ends, third = said((3, 1, b'"forged"', b"", b""), at=3_150_000)
    seed = "(i32.load (i32.const 2097160))"
    begin = f"""
      (if (result i32) (i32.eq {seed} (i32.const {ASKS})) (then {asks} (i32.const 1))
      (else (if (result i32) (i32.eq {seed} (i32.const {FORGES})) (then {forges} (i32.const 1))
      (else (if (result i32) (i32.eq {seed} (i32.const {TRAPS})) (then (i32.load (i32.const -4)))
      (else {ends} (i32.const 0)))))))
    """
    return hostile(begin, settle=f"{ends} (i32.const 0)", more=f"{first} {second} {third}")


async def begun(stack: AsyncExitStack, pool: SandboxPool, workflow: str, seed: int) -> tuple[Call, Outcome]:
    call = await stack.enter_async_context(
        pool.invoke(workflow, invocation(prepare_script("return 1", f"// {workflow}"), seed=seed))
    )
    return call, await call.next()


@needs_jail
@pytest.mark.anyio
@pytest.mark.parametrize("seed", [FORGES, TRAPS])
@pytest.mark.parametrize("sharing", ["none", "all"])
async def test_a_hostile_guest_ends_its_worker_and_speaks_for_nobody_else(
    sharing: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keep_actors.sandbox_pool.zygote.machine_code", two_faced)
    policy = PoolPolicy(sharing=sharing, workers=1)  # type: ignore[arg-type]  # one of them
    async with SandboxPool.open(policy=policy) as pool, AsyncExitStack() as stack:
        waits, asked = await begun(stack, pool, "waits", ASKS)
        assert isinstance(asked, Request)
        _, said_by_it = await begun(stack, pool, "hostile", seed)
        assert isinstance(said_by_it, ProtocolViolation if seed == FORGES else EngineCrash)
        if sharing == "all":
            # The worker is gone, and nothing was said in the name of the other call.
            assert await waits.next() == WorkerLost()
        else:
            await waits.answer(1, "[]")
            assert await waits.next() == Value(value='"forged"')


@needs_jail
@pytest.mark.anyio
async def test_a_hostile_guest_can_end_only_its_own_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it can do in a worker that it shares with the whole owner, as long as it stays in WebAssembly."""
    monkeypatch.setattr("keep_actors.sandbox_pool.zygote.machine_code", two_faced)
    async with SandboxPool.open(policy=PoolPolicy(workers=1)) as pool, AsyncExitStack() as stack:
        waits, asked = await begun(stack, pool, "waits", ASKS)
        assert isinstance(asked, Request)
        for _ in range(5):
            assert (await begun(stack, pool, "hostile", ENDS))[1] == Value(value='"forged"')
        assert waits.terminal is None
        assert (await begun(stack, pool, "third", ASKS))[1] == asked
        await waits.answer(1, "[]")
        assert isinstance(await waits.next(), Value)
