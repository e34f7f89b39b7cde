from collections.abc import Iterator
from pathlib import Path

import pytest

from keep_storage import Store
from keep_storage.transaction import Database
from tests.storage.databases import DATABASES, Opened
from tests.storage.world import CountingClock, World


@pytest.fixture(params=DATABASES)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """An empty database, of every kind there is, and a look into it."""
    opened = DATABASES[request.param](tmp_path)
    yield opened
    opened.database.close()


@pytest.fixture
def database(opened: Opened) -> Database:
    """An empty database, of every kind there is."""
    return opened.database


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    """The small world, on every database. Whatever a test does, the invariants hold at its end."""
    clock = CountingClock()
    world = World(Store(database, clock))
    world.clock = clock
    yield world
    world.check()
