import shutil
from pathlib import Path

import anyio
import pytest

import keep_actors
from tests.cli.assistant.office import OLD
from tests.cli.hostile import JOB, Shop, craft
from tests.cli.operating import script as shop_script
from tests.runtime.fakes import Fake


async def _fill(db: Path) -> None:
    async with keep_actors.open(db, connectors=[Fake(), Shop()], sandbox="thread", grants="declared") as keep:
        await keep.deploy(OLD, start=False, grants=["fake.add", "fake.search"])
        await keep.deploy(shop_script("lost"))
        await keep.deploy(JOB)
        await keep.publish("lost", "orders", message_id="o-1", title="Order 1", payload="lost1")
        await keep.wait_idle()
        await keep.publish("flow", "in", message_id="m-1", title="One", payload="one")


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    db = tmp_path_factory.mktemp("filled") / "keep.db"
    anyio.run(_fill, db)
    return db


@pytest.fixture
def db(filled: Path, tmp_path: Path) -> Path:
    """Workflows `flow`, `lost` and `job`: events, runs, calls, items, a call whose outcome is unknown."""
    shutil.copy(filled, tmp_path)
    return tmp_path / "keep.db"


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A file whose every text is an attack, and an id of everything in it."""
    db = tmp_path_factory.mktemp("hostile") / "keep.db"
    return db, craft(db)
