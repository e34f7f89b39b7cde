"""A reader with two mistakes, for the tests of fuzzing itself: it fails at 1,000, and ends its process at -1."""

import os

from hypothesis import strategies as st

from tests.fuzz.target import Target


def check(number: int) -> None:
    """Make the mistakes."""
    assert number < 1_000, "it is too large"
    if number == -1:
        os._exit(3)


TARGET = Target(
    "planted", "numbers", st.integers(0), check, read=int, write=lambda number: b"%d" % number, suffix=".txt"
)
