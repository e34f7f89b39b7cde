"""Code in the folder that one is in runs only if it was named, and never in place of what is installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.operating import KEEP

SHADOWED = ("asyncio", "anyio", "msgspec", "apsw", "json", "random", "sqlite3", "keep_storage")
SCRIPT = """
export default Keep.workflow({ name: "w", topics: { t: {} }, producers: { p: async (ctx) => {} } });
"""
SHOP = """
from keep_actors import Connector, read


class Shop(Connector):
    name = "shop"

    @read
    async def orders(self) -> list[str]:
        return []
"""

COMMANDS = {
    "run": ("run", "script.js", "--db", "keep.db", "--once"),
    "dry-run": ("dry-run", "script.js", "--db", "keep.db"),
    "check": ("check", "script.js"),
    "prompt": ("prompt",),
    "types": ("types",),
    "status": ("status", "--db", "keep.db"),
    "doctor": ("doctor", "keep.db"),
    "demo": ("demo", "--fast", "--json"),
}


@pytest.fixture
def downloads(tmp_path: Path) -> Path:
    """A folder with a script that somebody sent, and with modules that nobody asked for."""
    folder = tmp_path / "downloads"
    folder.mkdir()
    (folder / "script.js").write_text(SCRIPT)
    for name in SHADOWED:
        (folder / f"{name}.py").write_text(
            f"from pathlib import Path; Path({str(tmp_path / 'ran')!r}).write_text({name!r})\n"
        )
    return folder


def started(folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    # The folder is not named by the environment either.
    path = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    return subprocess.run(
        list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_a_module_in_the_folder_that_one_is_in_is_not_executed(downloads: Path, command: str) -> None:
    started(downloads, KEEP, *COMMANDS["run"])
    done = started(downloads, KEEP, *COMMANDS[command])
    assert not (downloads.parent / "ran").exists(), (downloads.parent / "ran").read_text()
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["run", "types"])
def test_nor_is_it_when_the_command_is_run_as_a_module(downloads: Path, command: str) -> None:
    done = started(downloads, sys.executable, "-m", "keep_actors", *COMMANDS[command])
    assert not (downloads.parent / "ran").exists(), (downloads.parent / "ran").read_text()
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("how", [(KEEP,), (sys.executable, "-m", "keep_actors")], ids=["keep", "module"])
@pytest.mark.parametrize("command", ["run", "dry-run", "types", "prompt"])
def test_a_connector_in_the_folder_is_found_and_takes_nobodys_place(
    downloads: Path, command: str, how: tuple[str | Path, ...]
) -> None:
    (downloads / "shop.py").write_text(SHOP)
    started(downloads, KEEP, *COMMANDS["run"])
    done = started(downloads, *how, *COMMANDS[command], "--connectors", "shop:Shop")
    assert done.returncode == 0, done.stderr
    assert not (downloads.parent / "ran").exists(), (downloads.parent / "ran").read_text()
