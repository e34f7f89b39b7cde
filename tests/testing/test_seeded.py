"""Seeded loops and clocks: the same seed, the same order; time passes by itself, and can be set."""

import subprocess
import sys

import anyio
import pytest
from anyio.lowlevel import checkpoint

from keep_actors.testing import LoopTime, run_seeded


def order(seed: int) -> list[int]:
    seen: list[int] = []

    async def one(number: int) -> None:
        for _ in range(3):
            await checkpoint()
            seen.append(number)

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(one, number)

    run_seeded(main, seed)
    return seen


def test_the_seed_decides_the_order() -> None:
    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(20)}) > 1


def test_waiting_costs_nothing_and_both_clocks_are_one() -> None:
    async def main() -> tuple[int, int]:
        time = LoopTime(start=0)
        with anyio.move_on_after(3600):
            await time.sleep_until(10_000_000_000)
        await time.sleep_until(7_200_000)
        return time.now(), round(anyio.current_time())

    assert run_seeded(main, 0) == (7_200_000, 7200)


@pytest.mark.parametrize(("jump_ms", "waited_s"), [(50_000, 10), (-50_000, 110)])
def test_who_sleeps_notices_that_the_clock_was_set(jump_ms: int, waited_s: int) -> None:
    async def main() -> tuple[int, int]:
        time = LoopTime(start=0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(time.sleep_until, 60_000)
            await anyio.sleep(10)
            time.jump(jump_ms)
        return round(anyio.current_time()), time.elapsed()

    assert run_seeded(main, 0) == (waited_s, 1_000 * waited_s)


@pytest.mark.parametrize("module", ["pytest", "trio"])
def test_the_kit_can_be_imported_without(module: str) -> None:
    program = f"import sys; import keep_actors.testing; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
