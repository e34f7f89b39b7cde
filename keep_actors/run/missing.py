"""Errors about methods that no connector here has. Pure, and light: commands that only read load it."""

from typing import Final

_MISSING: Final = "missing:"


def about_missing(methods: list[str]) -> str:
    """The mark of an error that is over when these methods are there again: see `Workflow.error_about`."""
    return f"{_MISSING}{' '.join(sorted(methods))}"


def missing_methods(about: str) -> list[str]:
    """The methods that an error waits for; none if it is about something else."""
    return about.removeprefix(_MISSING).split() if about.startswith(_MISSING) else []
