"""A maintainer that knows a few more orders each time. What it does not call safe waits for a person."""

import random

import anyio

from keep_actors.maintenance import Proposal, RepairFailed, RepairTask
from tests.torture.stories import repaired

SLOW_S = 0.05


class Mender:
    """Proposes the repaired script, and now and then nothing."""

    is_automatic = True

    def __init__(self, chaos: random.Random) -> None:
        self._chaos = chaos

    async def repair(self, task: RepairTask) -> Proposal:
        await anyio.sleep(self._chaos.uniform(0, SLOW_S))
        if self._chaos.random() < 0.1:
            raise RepairFailed("no idea today")
        source, known = repaired(task.source)
        if task.attempt > 1:
            # What a person has refused may not come back word for word.
            source = f"// tried again, {self._chaos.getrandbits(32)}\n{source}"
        return Proposal(source, "safe" if known % 2 == 0 else "potentially_impactful", f"knows {known} orders")
