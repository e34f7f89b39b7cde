"""The bill of materials: in the wheel, right in form, and true."""

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import apsw
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from keep_sandbox.compiled import engine_wasm
from keep_sandbox.engine import ENGINE_VERSION
from tests.supply.bom import FILE, LICENCES, NOT_FOR_USERS, REQUIRES, ROOT, bill, project


def components() -> dict[str, dict[str, Any]]:
    """Those of the file, by name, with what is inside of them."""
    listed = json.loads(FILE.read_text("utf-8"))["components"]
    return {each["name"]: each for whole in listed for each in [whole, *whole.get("components", [])]}


def allowed(component: dict[str, Any]) -> SpecifierSet:
    [found] = [each["value"] for each in component["properties"] if each["name"] == REQUIRES]
    return SpecifierSet(found)


def test_the_bill_is_the_one_that_would_be_written_now() -> None:
    assert FILE.read_text("utf-8") == bill(), "run `python -m tests.supply.bom`"


def test_the_bill_is_right_in_form() -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(FILE.read_text("utf-8")) is None


def test_the_wheel_has_the_bill_and_every_dependency_that_it_declares_is_in_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    inside = f"keep_actors-{project()['version']}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read(f"{inside}/sboms/{FILE.name}") == FILE.read_bytes()
        declared = archive.read(f"{inside}/METADATA").decode()
    lines = re.findall(r"^Requires-Dist: (.*)$", declared, re.MULTILINE)
    users = [
        each
        for each in map(Requirement, lines)
        if each.name != project()["name"] and not any(f'"{extra}"' in str(each.marker) for extra in NOT_FOR_USERS)
    ]
    assert len(users) > len(project()["dependencies"])
    bills = components()
    assert {each.name: each.specifier for each in users} == {
        name: allowed(each) for name, each in bills.items() if each["purl"].startswith("pkg:pypi/")
    }


def compiled_in() -> dict[str, dict[str, Any]]:
    """The parts of the engine in the wheel, by name, and the engine itself."""
    [engine] = json.loads(FILE.read_text("utf-8"))["metadata"]["component"]["components"]
    return {each["name"]: each for each in [engine, *engine["components"]]}


def test_nothing_in_the_bill_is_another_one_tomorrow_or_elsewhere() -> None:
    text = FILE.read_text("utf-8")
    assert not re.search(r"serialNumber|timestamp|urn:uuid|https?://(?!cyclonedx\.org/schema/)", text)


@pytest.mark.parametrize("name", LICENCES)
def test_a_licence_is_the_one_that_the_package_names(name: str) -> None:
    """Compare the first word: packages write one licence in several ways, and some only bring its text."""
    said = metadata(name)
    kinds = [each for each in said.get_all("Classifier") or [] if each.startswith("License ::")]
    named = [each for each in (said["License-Expression"], said["License"], *kinds) if each]
    assert not named or any(LICENCES[name].partition("-")[0] in each for each in named), named


def test_the_engine_in_the_bill_is_the_one_that_runs_scripts() -> None:
    parts = compiled_in()
    assert set(parts) == {"keep_sandbox/engine.wasm", "QuickJS-ng", "wasi-libc", "compiler-rt"}
    engine = engine_wasm()
    assert parts["keep_sandbox/engine.wasm"]["hashes"] == [
        {"alg": "SHA-256", "content": hashlib.sha256(engine).hexdigest()}
    ]
    # The module itself has no version in it; that it is made of this source is for tests/engine to show.
    assert ENGINE_VERSION.rpartition(".")[0] == parts["QuickJS-ng"]["version"]


def test_the_sqlite_in_the_bill_is_the_one_that_keeps_the_file() -> None:
    assert apsw.sqlite_lib_version() in allowed(components()["SQLite"])
