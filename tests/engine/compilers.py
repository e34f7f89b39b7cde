"""The compilers that the engine's tests need. Without them a test is skipped, but never where CI has installed them."""

import os
import shutil
from typing import Final

import pytest

from engine.build import other_compilers

ARE_REQUIRED: Final = bool(os.environ.get("KEEP_COMPILERS"))
"""Set by `.ci/run`, after it has installed them."""


def missing() -> str:
    """Why native code cannot be built here; nothing, if it can."""
    if ARE_REQUIRED or shutil.which("clang-14"):
        return ""
    return "clang-14 is not installed (sandbox/engine/README.md)"


def others() -> str:
    """Why the engine cannot be built here with the same bytes; nothing, if it can."""
    found = other_compilers()
    if ARE_REQUIRED or not found:
        return ""
    named = ", ".join(f"{name} {version or 'is missing'}" for name, version in found.items())
    return f"other compilers than those of engine.lock.toml: {named}"


def skip_for(reason: str) -> None:
    """Skip the test, if there is a reason."""
    if reason:
        pytest.skip(reason)
