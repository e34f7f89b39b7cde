"""The versions that may be installed: none older than what was tried, none newer where behaviour is relied on."""

from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from keep_sandbox.engine import ENGINE_VERSION
from tests.supply.bom import project, requirements

NEEDED: Final = {each.name: each for each in map(Requirement, project()["dependencies"])}
RELIED_ON: Final = {"anyio", "apsw", "msgspec", "platformdirs", "tree-sitter", "tree-sitter-javascript", "wasmtime"}
"""The scheduler, the storage, the decoder of untrusted bytes, the cache's folder, the parser, the sandbox's wall."""
LOOSE: Final = {"click", "cronsim", "tzdata"}
"""Whatever a later one does, nothing untrusted is let through: a newer list of time zones is even wanted."""


def test_every_dependency_is_relied_on_or_is_not() -> None:
    assert set(NEEDED) == RELIED_ON | LOOSE


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_nothing_older_than_what_was_tried_is_installed(requirement: Requirement) -> None:
    assert {each.operator for each in requirement.specifier} & {">=", "=="}


@pytest.mark.parametrize("name", sorted(RELIED_ON))
def test_what_is_relied_on_has_a_newest_version(name: str) -> None:
    bounds = {each.operator: Version(each.version) for each in NEEDED[name].specifier}
    assert {"<", "=="} & set(bounds)


def test_the_other_engine_of_the_tests_has_the_version_of_ours() -> None:
    [other] = [each for each in project()["optional-dependencies"]["test"] if each.startswith("quickjs-ng")]
    assert other == f"quickjs-ng=={ENGINE_VERSION}"
