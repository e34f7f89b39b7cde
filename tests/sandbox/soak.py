"""`python -m tests.sandbox.soak`: a million invocations in two workers that are never recycled; nothing may grow.

Scripts that return, throw, ask, log, mutate, run out of memory, stack or fuel, and some that are seen once only. Prints
the memory of the host, the zygote and the workers after each tenth, and ends with 1 if one of them has grown. With
`--in-process` one engine in this process does it all, which takes a third of the time; at the end every idle memory is
compared with its image.
"""

import argparse
import gc
import itertools
import sys
import time
from dataclasses import dataclass

import anyio

from keep_actors.sandbox_pool import PoolPolicy, SandboxPool
from keep_sandbox import Invocation, Limits
from keep_sandbox.compiled import machine_code
from keep_sandbox.engine import Engine
from keep_sandbox.guest import Guest
from keep_sandbox.seccomp import is_supported
from tests.sandbox.test_images import Heard
from tests.sandbox.test_soak import GROWTH_MAX_BYTES, KINDS, descriptors, resident_bytes
from tests.sandbox.world import prepare, run

AT_A_TIME = 8
LIMITS = Limits(fuel=40_000_000)
COSTLY = [
    prepare("for (;;) Math.sqrt(2)"),
    prepare("const f = () => f() + 1; return f()"),
    prepare("return new Array(1e7).fill(1).length"),
    prepare("return 'x'.repeat(2_000_000)"),
]
ONCE_EVERY = 40
"""A costly script, and one that was never seen before, among this many others."""


@dataclass(frozen=True)
class Reading:
    """The memory and the descriptors of all processes at one moment."""

    invocations: int
    seconds: float
    resident: dict[str, int]
    descriptors: int

    def __str__(self) -> str:
        sizes = "  ".join(f"{name} {size / 2**20:7.1f} MB" for name, size in self.resident.items())
        return f"{self.invocations:>9,}  {self.seconds:7.0f} s  {sizes}  {self.descriptors} descriptors"


async def soak(invocations: int, steps: int = 10) -> list[Reading]:
    """Make the invocations; return a reading after each part of them."""
    policy = PoolPolicy(sharing="all", workers=2, spares=0, invocations_max=2 * invocations + 1)
    readings: list[Reading] = []
    numbers = itertools.count()
    async with SandboxPool.open(mode="jailed" if is_supported() else "wasm", limits=LIMITS, policy=policy) as pool:

        async def invoke(until: int) -> None:
            while (number := next(numbers)) < until:
                await run(pool, one(number), workflow_id=f"w{number % 50}")

        started = time.monotonic()
        for step in range(1, steps + 1):
            until = invocations * step // steps
            async with anyio.create_task_group() as tasks:
                for _ in range(AT_A_TIME):
                    tasks.start_soon(invoke, until)
            numbers = itertools.count(until)
            gc.collect()
            readings.append(reading(pool, until, time.monotonic() - started))
    return readings


def soak_in_process(invocations: int, steps: int = 10) -> list[Reading]:
    """Make the invocations in one engine, one after another."""
    engine = Engine(machine_code())
    readings: list[Reading] = []
    started = time.monotonic()
    for number in range(invocations):
        guest, heard = Guest(engine, LIMITS), Heard()
        guest.run(one(number), heard)
        while not guest.ended and heard.open:
            guest.answer(heard.open.pop(), "[1,2]")
        assert guest.ended or not heard.open, "a script ends, or waits for an answer"
        guest.close()
        if (number + 1) % (invocations // steps) == 0:
            gc.collect()
            resident = {"this process": resident_bytes()}
            readings.append(Reading(number + 1, time.monotonic() - started, resident, descriptors()))
    for instance in engine._idle:
        assert engine.prelude.is_in(instance), "an idle memory is that of the prelude"
    return readings


def one(number: int) -> Invocation:
    """The invocation with this number."""
    if number % ONCE_EVERY == 0:
        return COSTLY[number // ONCE_EVERY % len(COSTLY)]
    if number % ONCE_EVERY == 1:
        return prepare(f"return {number}")
    return KINDS[number % len(KINDS)]


def reading(pool: SandboxPool, invocations: int, seconds: float) -> Reading:
    """Look at all processes."""
    stats = pool.stats
    resident = {"host": resident_bytes()}
    if stats.zygote_pid is not None:
        resident["zygote"] = resident_bytes(stats.zygote_pid)
    for number, pid in enumerate(sorted(stats.worker_pids), 1):
        resident[f"worker {number}"] = resident_bytes(pid)
    return Reading(invocations, seconds, resident, descriptors())


def growth(readings: list[Reading]) -> dict[str, int]:
    """How much each process grew in the second half, when every worker has as many images as it keeps."""
    first, last = readings[len(readings) // 2 - 1], readings[-1]
    return {name: last.resident[name] - first.resident.get(name, 0) for name in last.resident}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--invocations", type=int, default=1_000_000)
    parser.add_argument("--in-process", action="store_true")
    given = parser.parse_args()
    readings = soak_in_process(given.invocations) if given.in_process else anyio.run(soak, given.invocations)
    for each in readings:
        sys.stdout.write(f"{each}\n")
    grown = {name: size for name, size in growth(readings).items() if size >= GROWTH_MAX_BYTES}
    sys.stdout.write(f"grown: {grown or 'nothing'}\n")
    sys.exit(1 if grown else 0)


if __name__ == "__main__":
    main()
