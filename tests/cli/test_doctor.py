"""`keep doctor` and `keep --version`, run as a person runs them."""

import json
import os
import subprocess
from pathlib import Path

import apsw
import pytest

import keep_actors
from keep_storage import Store
from keep_storage.statements import migrations
from tests.cli.operating import KEEP
from tests.storage.world import World


def keep(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([KEEP, *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A healthy file with some history."""
    path = tmp_path / "keep.db"
    with Store.open(path) as store:
        world = World(store)
        world.publish("m1", "m2")
        world.model.commit_consumer(world.emitting("m1").id)
        world.uncertain("m2")
    return path


def break_it(path: Path) -> None:
    """An event that nobody will ever let go of."""
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE workflows SET pending_retry_run_id = NULL")
    connection.close()


def test_the_version_is_printed() -> None:
    done = keep("--version")
    assert (done.returncode, done.stdout) == (0, f"keep, version {keep_actors.__version__}\n")


def test_a_healthy_file_is_said_to_be_healthy(file: Path) -> None:
    done = keep("doctor", file)
    assert done.returncode == 0, done.stdout
    assert f"schema version   {len(migrations())}" in done.stdout
    assert "healthy" in done.stdout
    assert "\x1b" not in done.stdout, "no colours outside a terminal"


def test_a_broken_invariant_is_named_and_the_exit_code_says_so(file: Path) -> None:
    break_it(file)
    done = keep("doctor", file)
    assert done.returncode == 1
    assert "reserved_event_has_a_living_holder" in done.stdout
    assert "m2" in done.stdout


def test_json_has_the_same_facts(file: Path) -> None:
    healthy = json.loads(keep("doctor", file, "--json").stdout)
    assert (healthy["healthy"], healthy["schema_version"], healthy["problems"]) == (True, len(migrations()), [])
    break_it(file)
    done = keep("doctor", file, "--json")
    broken = json.loads(done.stdout)
    assert (done.returncode, broken["healthy"]) == (1, False)


def test_the_doctor_looks_while_a_runtime_is_at_work(file: Path) -> None:
    with Store.open(file):
        assert keep("doctor", file).returncode == 0


def test_the_doctor_changes_nothing(file: Path) -> None:
    before = file.read_bytes()
    keep("doctor", file)
    assert file.read_bytes() == before


def test_a_damaged_file_is_reported(file: Path) -> None:
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 8192] = os.urandom(8192)
    file.write_bytes(content)
    done = keep("doctor", file)
    assert done.returncode == 1
    assert "problem" in done.stdout


@pytest.mark.parametrize("content", [b"", b"not a database at all " * 300])
def test_what_is_no_database_of_ours_is_reported(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.db"
    path.write_bytes(content)
    done = keep("doctor", path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_a_newer_file_is_reported(file: Path) -> None:
    connection = apsw.Connection(str(file))
    connection.pragma("user_version", 12)
    connection.close()
    done = keep("doctor", file)
    assert done.returncode == 1
    assert "12" in done.stdout


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    done = keep("doctor", tmp_path / "none.db")
    assert done.returncode == 1
    assert "there is no such file" in done.stdout


def test_wrong_usage_exits_with_2() -> None:
    assert keep("doctor").returncode == 2
