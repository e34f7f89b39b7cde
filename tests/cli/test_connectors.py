"""`keep connectors` lists what scripts can call; `keep connector new` writes a connector that works as it stands."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from keep_actors.services.configuration import KINDS
from tests.cli.operating import KEEP


def keep(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([KEEP, *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_without_connectors_the_kinds_are_listed(tmp_path: Path) -> None:
    done = keep("connectors", "--json", folder=tmp_path)
    assert [json.loads(line)["kind"] for line in done.stdout.splitlines()] == list(KINDS)


def test_a_new_connector_passes_its_own_test_and_is_listed_with_permissions_and_risks(tmp_path: Path) -> None:
    done = keep("connector", "new", "parcels", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_parcels.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_ADDOPTS": "-p no:cacheprovider"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout
    assert "3 passed" in tested.stdout
    done = keep("connectors", "--config", "parcels.toml", "--json", folder=tmp_path)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {
            "name": "parcels.listEntries",
            "kind": "read",
            "permission": "parcels.listEntries",
            "risk": "low",
            "unknown_outcome": "",
            "about": "The entries, oldest first.",
        },
        {
            "name": "parcels.add",
            "kind": "mutation",
            "permission": "parcels.add",
            "risk": "low",
            "unknown_outcome": "is asked",
            "about": "Add an entry.",
        },
    ]
    shown = keep("connectors", "--config", "parcels.toml", folder=tmp_path).stdout.splitlines()
    assert shown[2].split()[:5] == ["parcels.add", "mutation", "low", "is", "asked"]


@pytest.mark.parametrize("name", ["parcels:Parcels", "test_parcels:ParcelsCertification"])
def test_a_new_connector_is_certified_as_it_stands(name: str, tmp_path: Path) -> None:
    done = keep("connector", "new", "parcels", folder=tmp_path)
    assert "keep certify parcels:Parcels" in done.stdout
    done = keep("certify", name, "--only", "found", "--only", "too-late", "--only", "killed-answered", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "parcels: 3 held, 0 failed" in done.stdout


def test_the_code_of_a_new_connector_is_in_order(tmp_path: Path) -> None:
    keep("connector", "new", "parcels", folder=tmp_path)
    ruff = Path(sys.executable).parent / "ruff"
    for check in (["check", "--isolated", "--line-length", "120"], ["format", "--check", "--line-length", "120"]):
        done = subprocess.run([ruff, *check, "."], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
    mypy = Path(sys.executable).parent / "mypy"
    done = subprocess.run(
        [mypy, "--strict", "parcels.py", "test_parcels.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_a_file_that_exists_is_never_changed(tmp_path: Path) -> None:
    (tmp_path / "test_parcels.py").write_text("mine", "utf-8")
    done = keep("connector", "new", "parcels", folder=tmp_path)
    assert done.returncode == 2
    assert "There is already test_parcels.py" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["test_parcels.py"]
    assert (tmp_path / "test_parcels.py").read_text("utf-8") == "mine"


@pytest.mark.parametrize("name", ["Parcels", "my-parcels", "import", "9lives", "../up", "", "peek", "then", "a" * 41])
def test_a_name_that_no_connector_can_have_is_refused(name: str, tmp_path: Path) -> None:
    done = keep("connector", "new", "--", name, folder=tmp_path)
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_settings_that_cannot_be_used_are_a_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "keep.toml").write_text('[connectors.mine]\nkind = "nothing"\n', "utf-8")
    done = keep("connectors", "--config", "keep.toml", folder=tmp_path)
    assert done.returncode == 2
    assert "there is no kind 'nothing'" in done.stderr


def test_a_file_of_settings_is_also_named_by_the_environment(tmp_path: Path) -> None:
    keep("connector", "new", "parcels", folder=tmp_path)
    done = subprocess.run(
        [KEEP, "types"],
        cwd=tmp_path,
        env={**os.environ, "KEEP_CONFIG": "parcels.toml"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "parcels" in done.stdout
