"""The versions that may be installed: none older than what was tried, none newer where behaviour is relied on."""

from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from keep_sandbox.engine import ENGINE_VERSION
from tests.supply.bom import project, requirements

NEEDED: Final = {each.name: each for each in map(Requirement, project()["dependencies"])}
RELIED_ON: Final = {"anyio", "apsw", "msgspec", "quickjs-ng", "tree-sitter", "tree-sitter-javascript"}
"""The scheduler, the storage, the decoder of untrusted bytes, the engine, the parser."""
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


def test_the_engine_that_is_installed_is_the_one_that_is_asked_for_at_start() -> None:
    assert str(NEEDED["quickjs-ng"].specifier) == f"=={ENGINE_VERSION}"
