"""The maintainer of a story."""

import random

import anyio

from keep_actors.maintenance import Proposal, RepairFailed, RepairTask
from tests.simulation import scripts
from tests.simulation.oracle import Oracle


class Mender:
    """A maintainer that mostly knows what is wrong."""

    is_automatic = True

    def __init__(self, seed: int, oracle: Oracle) -> None:
        self._rng = random.Random(f"{seed}:mender")
        self._oracle = oracle

    async def repair(self, task: RepairTask) -> Proposal:
        """A script that does not throw, or nothing."""
        await anyio.sleep(self._rng.choice([1, 30]))
        if self._rng.random() < 0.3:
            raise RepairFailed("simulated: no idea")
        mended = scripts.source(scripts.changed(self._rng, scripts.spec_of(task.source), mended=True))
        is_safe = self._rng.random() < 0.5
        self._oracle.proposed(mended, is_safe=is_safe)
        return Proposal(mended, "safe" if is_safe else "potentially_impactful")
