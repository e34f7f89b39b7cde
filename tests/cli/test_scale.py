"""What a look costs does not grow with what was done: counted in steps of SQLite's machine, not in time."""

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner

from bench.cli import COMMANDS, fill
from keep_actors.cli.main import main

SMALL, LARGE = 10_000, 40_000
"""Both have more events waiting than are counted."""

STEPS = 10


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("files")
    for rows in (SMALL, LARGE):
        fill(folder / f"{rows}.db", rows)
    return folder / f"{SMALL}.db", folder / f"{LARGE}.db"


@pytest.fixture
def counted() -> Iterator[list[int]]:
    """One entry for every few steps of any connection that is opened."""
    counted: list[int] = []

    def count() -> bool:
        counted.append(1)
        return False

    def hook(connection: apsw.Connection) -> None:
        connection.set_progress_handler(count, STEPS)

    apsw.connection_hooks.append(hook)
    yield counted
    apsw.connection_hooks.remove(hook)


LOOKS = [
    *(words for words in COMMANDS.values() if words != ("--version",)),
    ("status", "busy"),
    ("explain", "order-7"),
    ("items", "busy", "item-7"),
]


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_a_look_reads_no_more_when_there_is_more(
    files: tuple[Path, Path], counted: list[int], words: tuple[str, ...]
) -> None:
    taken: list[int] = []
    for file in files:
        counted.clear()
        done = CliRunner().invoke(main, [*words, "--db", str(file)], catch_exceptions=False)
        assert done.exit_code in (0, 4)
        taken.append(len(counted))
    small, large = taken
    assert 0 < small < 10_000, "up to 1,000 waiting events of a topic, and 1,000 items in each state, are counted"
    assert large <= small * 1.1 + 10
