"""Several calls in one worker: each goes on when it is answered, and has one end, whatever becomes of the worker."""

import logging
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from keep_actors.sandbox_pool import Call, PoolPolicy, SandboxPool
from keep_actors.sandbox_pool.policy import Sharing
from keep_sandbox import (
    CpuLimit,
    EngineCrash,
    Invocation,
    Limits,
    Outcome,
    ProtocolViolation,
    Request,
    Value,
    WallLimit,
    WorkerLost,
)
from tests.sandbox import compromised
from tests.sandbox.world import drive, invocation, needs_jail, prepare, run

pytestmark = [pytest.mark.anyio, needs_jail]

ONE = PoolPolicy(workers=1)
ENDLESS = Limits(fuel=160_000_000_000, cpu_hard_ms=20_000)
ASKS = prepare("return [ev.n, await ctx.gmail.search({n: ev.n})]", args='[{"n":1}]')
LOOP = prepare("for(;;);")
QUICK = prepare("return 1")


def asks(number: int) -> Invocation:
    return prepare("return [ev.n, await ctx.gmail.search({n: ev.n})]", args=f'[{{"n":{number}}}]')


def pid_of(call: Call) -> int:
    pid: int = call.worker.pid  # type: ignore[attr-defined]  # which worker is not for drivers
    return pid


async def asked(call: Call) -> Request:
    request = await call.next()
    assert isinstance(request, Request)
    return request


async def waiting(
    stack: AsyncExitStack, pool: SandboxPool, number: int, workflow_id: str = "", owner: str = ""
) -> Call:
    """A call that has asked for something."""
    call = await stack.enter_async_context(pool.invoke(workflow_id or f"w{number}", asks(number), owner=owner))
    assert (await asked(call)).params == f'{{"n":{number}}}'
    return call


@pytest.mark.parametrize("mode", ["jailed", "wasm"])
async def test_calls_that_wait_in_one_worker_go_on_in_any_order(mode: str) -> None:
    async with SandboxPool.open(mode=mode, policy=ONE) as pool, AsyncExitStack() as stack:  # type: ignore[arg-type]
        calls = [await waiting(stack, pool, number) for number in range(6)]
        assert len({pid_of(call) for call in calls}) == 1
        assert (pool.stats.calls, pool.stats.busy) == (6, 1)
        for number in (3, 0, 5, 1, 4, 2):
            await calls[number].answer(1, f'"{number}"')
            assert await calls[number].next() == Value(value=f'[{number},"{number}"]')
        assert (pool.stats.calls, pool.stats.kept) == (0, 1)


async def test_answers_to_many_calls_at_once_reach_each_of_them() -> None:
    async with SandboxPool.open(policy=ONE) as pool, AsyncExitStack() as stack:
        calls = [await waiting(stack, pool, number) for number in range(20)]
        for number, call in enumerate(calls):
            await call.answer(1, f'"{number}"')
        for number, call in enumerate(calls):
            assert await call.next() == Value(value=f'[{number},"{number}"]')


async def test_a_call_waits_for_one_that_computes_and_its_own_time_does_not_count_meanwhile() -> None:
    async with SandboxPool.open(policy=ONE) as pool:
        busy = Limits(fuel=4_000_000_000, cpu_hard_ms=10_000)  # about half a second
        hurried = Limits(wall_ms=150)
        async with pool.invoke("busy", LOOP, busy) as loop, pool.invoke("w", QUICK, hurried) as quick:
            assert await quick.next() == Value(value="1")
            assert pid_of(loop) == pid_of(quick)
            # It had ended before the other began.
            assert isinstance(await loop.next(), CpuLimit)


async def test_a_call_does_not_wait_for_one_that_computes_in_another_worker() -> None:
    policy = PoolPolicy(workers=2)
    async with SandboxPool.open(limits=ENDLESS, policy=policy) as pool, pool.invoke("busy", LOOP) as loop:
        for number in range(5):
            async with pool.invoke("w", asks(number)) as call:
                assert pid_of(call) != pid_of(loop)
                assert isinstance(await drive(call), Value)


async def test_while_the_time_of_a_computing_call_is_up_the_others_are_lost_or_moved() -> None:
    async with SandboxPool.open(limits=ENDLESS, policy=ONE) as pool, AsyncExitStack() as stack:
        waits = await waiting(stack, pool, 1)
        loop = await stack.enter_async_context(pool.invoke("busy", LOOP, Limits(fuel=ENDLESS.fuel, wall_ms=200)))
        behind = await stack.enter_async_context(pool.invoke("behind", QUICK))
        assert await loop.next() == WallLimit()
        assert await waits.next() == WorkerLost()
        # Nothing of its script had happened.
        assert await behind.next() == Value(value="1")


@pytest.mark.parametrize("mode", ["jailed", "wasm"])
async def test_each_call_of_a_worker_that_is_killed_has_one_end(mode: str) -> None:
    async with SandboxPool.open(mode=mode, policy=ONE) as pool:  # type: ignore[arg-type]
        async with AsyncExitStack() as stack:
            calls = [await waiting(stack, pool, number) for number in range(8)]
            ended = await stack.enter_async_context(pool.invoke("ended", QUICK))
            assert await ended.next() == Value(value="1")
            os.kill(pid_of(calls[0]), signal.SIGKILL)
            ends = [await call.next() for call in calls]
            assert ends == [WorkerLost()] * 8
            assert [call.terminal for call in calls] == ends
            # Too late, and no error.
            await calls[0].answer(1, "1")
        assert pool.stats.calls == 0
        assert await run(pool, QUICK) == Value(value="1")


async def test_calls_of_one_script_stay_in_one_worker_and_others_may_not() -> None:
    async with SandboxPool.open(policy=PoolPolicy(workers=2)) as pool:
        pids: set[int] = set()
        for _ in range(10):
            async with pool.invoke("w", ASKS) as call:
                assert isinstance(await drive(call), Value)
                pids.add(pid_of(call))
        assert len(pids) == 1


async def pids_by_call(sharing: Sharing) -> dict[tuple[str, str], int]:
    """The processes of two workflows for each of two owners, all active at a time."""
    found: dict[tuple[str, str], int] = {}
    policy = PoolPolicy(sharing=sharing, workers=1)
    async with SandboxPool.open(policy=policy) as pool, AsyncExitStack() as stack:
        for owner in ("ann", "bob"):
            for workflow_id in ("v", "w"):
                call = await waiting(stack, pool, 1, f"{owner} {workflow_id}", owner)
                found[owner, workflow_id] = pid_of(call)
    return found


async def test_with_all_sharing_there_is_one_process() -> None:
    assert len(set((await pids_by_call("all")).values())) == 1


async def test_with_owners_sharing_nobody_meets_another_owner() -> None:
    pids = await pids_by_call("owner")
    assert pids["ann", "v"] == pids["ann", "w"] != pids["bob", "v"] == pids["bob", "w"]


async def test_with_none_sharing_each_workflow_has_a_process() -> None:
    assert len(set((await pids_by_call("none")).values())) == 4


async def test_a_group_has_no_more_workers_than_the_policy_says() -> None:
    async with SandboxPool.open(policy=PoolPolicy(workers=2)) as pool, anyio.create_task_group() as tasks:
        pids: set[int] = set()

        async def one(number: int) -> None:
            async with pool.invoke("w", asks(number)) as call:
                assert isinstance(await drive(call), Value)
                pids.add(pid_of(call))

        for number in range(40):
            tasks.start_soon(one, number)
    assert 1 <= len(pids) <= 2


async def test_a_worker_that_is_full_takes_no_call_until_one_has_ended() -> None:
    policy = PoolPolicy(workers=1, calls_per_worker_max=2)
    async with SandboxPool.open(policy=policy) as pool, AsyncExitStack() as stack:
        calls = [await waiting(stack, pool, number) for number in range(2)]
        outcomes: list[Outcome] = []

        async def third() -> None:
            outcomes.append(await run(pool, QUICK))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(third)
            await anyio.wait_all_tasks_blocked()
            assert (outcomes, pool.stats.calls) == ([], 2)
            await calls[0].answer(1, "1")
            assert isinstance(await calls[0].next(), Value)
        assert outcomes == [Value(value="1")]


async def test_a_worker_that_is_recycled_finishes_the_calls_that_it_has() -> None:
    async with SandboxPool.open(policy=PoolPolicy(workers=1, invocations_max=3)) as pool, AsyncExitStack() as stack:
        first = await waiting(stack, pool, 1)
        for _ in range(2):
            async with pool.invoke("w", QUICK) as call:
                assert await call.next() == Value(value="1")
                assert pid_of(call) == pid_of(first)
        old = first.worker  # type: ignore[attr-defined]
        async with pool.invoke("w", QUICK) as call:
            assert await call.next() == Value(value="1")
            assert pid_of(call) != old.pid
        await first.answer(1, "2")
        assert await first.next() == Value(value="[1,2]")
        with anyio.fail_after(5):
            await old.exited.wait()
        assert pool.stats.worker_pids.count(old.pid) == 0


async def test_leaving_a_call_that_waits_costs_the_others_nothing() -> None:
    async with SandboxPool.open(policy=ONE) as pool, AsyncExitStack() as stack:
        stays = await waiting(stack, pool, 1)
        async with pool.invoke("leaves", asks(2)) as call:
            await asked(call)
            assert pool.stats.calls == 2
        assert pool.stats.calls == 1
        assert await run(pool, QUICK) == Value(value="1")
        await stays.answer(1, "2")
        assert await stays.next() == Value(value="[1,2]")
        assert pool.stats.spawned == 3  # with the spares


async def test_leaving_a_call_that_computes_lets_the_others_finish_in_its_worker() -> None:
    busy = Limits(fuel=2_000_000_000)
    async with SandboxPool.open(policy=ONE) as pool, AsyncExitStack() as stack:
        stays = await waiting(stack, pool, 1)
        old = stays.worker  # type: ignore[attr-defined]
        async with pool.invoke("leaves", LOOP, busy):
            pass
        # Nothing new is put behind it.
        async with pool.invoke("w", QUICK) as call:
            assert await call.next() == Value(value="1")
            assert pid_of(call) != old.pid
        await stays.answer(1, "2")
        assert await stays.next() == Value(value="[1,2]")
        with anyio.fail_after(5):
            await old.exited.wait()


async def test_a_call_that_is_refused_while_it_computes_is_not_heard_of_again() -> None:
    body = "const a = ctx.gmail.search({}); const b = ctx.gmail.search({}); await a; console.log('AFTER'); await b"
    async with SandboxPool.open(policy=ONE) as pool, AsyncExitStack() as stack:
        stays = await waiting(stack, pool, 1)
        async with pool.invoke("refused", prepare(body)) as call:
            first, _ = await asked(call), await asked(call)
            await call.answer(first.id, "1")
            await call.refuse("no")
        assert await run(pool, QUICK) == Value(value="1")
        assert call.logs in ([], ["AFTER"])
        assert pool.stats.calls == 1
        await stays.answer(1, "2")
        assert await stays.next() == Value(value="[1,2]")
        assert pool.stats.spawned == 3


# A worker that was taken over.

# Asks once and waits, as an honest script does; its honest end is what it is answered.
HONEST = """
say(encode(protocol.RequestFrame(frame.call, 1, Kind.READ, 'gmail.search', '{}')) + encode(protocol.Waits(frame.call)))
def go_on(answer, worker=worker, honest=worker._receive):
    if isinstance(answer, protocol.AnswerFrame):
        say(encode(protocol.EndedFrame(answer.call, Value(value=answer.value))))
    else:
        honest(answer)
worker._receive = go_on
"""
# Ends as if nothing had happened, and from then on ends every other call as it likes.
STAYS = """
def obey(answer):
    if isinstance(answer, protocol.AnswerFrame):
        say(encode(protocol.EndedFrame(answer.call, Value(value='"forged"'))))
worker._receive = obey
say(encode(protocol.EndedFrame(frame.call, Value(value='"nothing to see"'))))
"""
FORGES = "say(encode(protocol.EndedFrame({call}, Value(value='\"forged\"'))))\nos.read(3, 1)"


@pytest.fixture
def taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on every worker is a compromised one."""
    monkeypatch.syspath_prepend(compromised.install(tmp_path))


async def attacked(sharing: Sharing, victims_owner: str, code: str) -> tuple[Outcome, Outcome]:
    """The ends of an attacker's call, who is owned by ann, and of a victim's that waited meanwhile."""
    policy = PoolPolicy(workers=1, sharing=sharing)
    async with SandboxPool.open(policy=policy) as pool, AsyncExitStack() as stack:
        victim = await stack.enter_async_context(pool.invoke("victim", invocation(HONEST), owner=victims_owner))
        await asked(victim)
        async with pool.invoke("attacker", invocation(code), owner="ann") as attacker:
            attackers = await attacker.next()
        await victim.answer(1, '"honest"')
        return attackers, await victim.next()


@pytest.mark.usefixtures("taken_over")
async def test_a_worker_that_was_taken_over_ends_the_calls_that_share_it() -> None:
    # This is what sharing costs, and to whom: the calls of the same owner.
    assert (await attacked("owner", "ann", STAYS))[1] == Value(value='"forged"')
    assert (await attacked("all", "bob", STAYS))[1] == Value(value='"forged"')


@pytest.mark.usefixtures("taken_over")
@pytest.mark.parametrize(("sharing", "owner"), [("owner", "bob"), ("none", "ann")])
async def test_a_worker_that_was_taken_over_does_not_reach_the_calls_of_others(sharing: Sharing, owner: str) -> None:
    for code in (STAYS, FORGES.format(call=1), FORGES.format(call=2), FORGES.format(call=0)):
        assert (await attacked(sharing, owner, code))[1] == Value(value='"honest"')


@pytest.mark.usefixtures("taken_over")
async def test_a_worker_does_not_speak_for_a_call_whose_turn_it_is_not() -> None:
    # It is killed for it, and what it said does not count.
    attackers, victims = await attacked("owner", "ann", FORGES.format(call=1))
    assert isinstance(attackers, ProtocolViolation)
    assert victims == WorkerLost()


@pytest.mark.usefixtures("taken_over")
async def test_the_call_that_computes_is_blamed_and_the_others_are_lost(caplog: pytest.LogCaptureFixture) -> None:
    trap = "from keep_sandbox.shim import UnexpectedTrap\nraise UnexpectedTrap('bang')"
    for code, expected in [
        ("signal.setitimer(signal.ITIMER_PROF, 0.05)\nwhile True: pass", CpuLimit(hard=True)),
        ("os.abort()", EngineCrash(signal=6)),
        (trap, EngineCrash(signal=-84)),
    ]:
        caplog.clear()
        with caplog.at_level(logging.ERROR):
            assert await attacked("owner", "ann", code) == (expected, WorkerLost())
        if isinstance(expected, EngineCrash):
            assert "workflow attacker: EngineCrash" in caplog.text
            assert "with it 1 other calls" in caplog.text


@pytest.mark.usefixtures("taken_over")
async def test_a_script_is_sent_to_a_worker_once_and_forgotten_for_others() -> None:
    counts = "say(encode(protocol.EndedFrame(frame.call, Value(value=str([frame.script, len(worker._sources)])))))"
    scripts = [invocation(f"{counts} #{number}") for number in range(3)]
    policy = PoolPolicy(workers=1, scripts_bytes_max=2 * len(scripts[0].source))
    async with SandboxPool.open(policy=policy) as pool:
        told = [await run(pool, scripts[number]) for number in (0, 1, 0, 2, 0, 1)]
    # The number, and how many it holds.
    assert [each.value for each in told if isinstance(each, Value)] == [
        "[1, 1]",
        "[2, 2]",
        "[1, 2]",
        "[3, 2]",
        "[1, 2]",
        "[4, 2]",
    ]
