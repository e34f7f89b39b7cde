"""All targets, by name."""

from importlib import import_module
from typing import Final

from tests.fuzz.target import Target

_MODULES: Final = ("frames", "declaration", "engine_json", "hostile_worker")


def targets() -> dict[str, Target]:
    """Every target there is. A module of `tests/fuzz` that is named here has one."""
    found: list[Target] = [import_module(f"tests.fuzz.{module}").TARGET for module in _MODULES]
    return {each.name: each for each in found}
