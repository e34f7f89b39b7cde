from collections.abc import Iterator
from pathlib import Path

import pytest

from keep_storage import Store
from keep_storage.transaction import Database
from tests.storage.databases import DATABASES
from tests.storage.world import CountingClock, World


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty database, of every kind there is."""
    database = DATABASES[request.param](tmp_path)
    yield database
    database.close()


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    """The small world, on every database. Whatever a test does, the invariants hold at its end."""
    world = World(Store(database, CountingClock()))
    yield world
    world.check()
