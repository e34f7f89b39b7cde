from collections.abc import Iterator
from pathlib import Path

import pytest

from keep_storage import Store
from tests.storage.world import CountingClock, World


@pytest.fixture(params=["memory", "file"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """The small world, on every database there is. Whatever a test does, the invariants hold at its end."""
    clock = CountingClock()
    store = Store.in_memory(clock) if request.param == "memory" else Store.open(tmp_path / "keep.db", clock)
    with store:
        world = World(store)
        yield world
        world.check()
