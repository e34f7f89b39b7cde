"""All targets, by name."""

from importlib import import_module
from typing import Final

from tests.fuzz.target import Target

_NAMES: Final = ("frames", "control", "declaration", "maintainer_answer", "engine_json", "plain_text", "hostile_worker")


def targets() -> dict[str, Target]:
    """Every target there is. A module of `tests/fuzz` that is named here has one."""
    return {name: target(name) for name in _NAMES}


def target(name: str) -> Target:
    """The target of one module, which has its name."""
    found: Target = import_module(f"tests.fuzz.{name}").TARGET
    assert found.name == name
    return found
