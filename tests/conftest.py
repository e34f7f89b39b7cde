"""For all tests: Hypothesis measures no time, since a loaded machine is no bug; who is interrupted, ends."""

import gc
import signal
from typing import Final

import pytest
from hypothesis import settings

settings.register_profile("house", deadline=None)
settings.load_profile("house")

# A shell has what it starts in the background ignore this signal, and so would everything that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

LONG: Final = ("tests/test_house.py", "tests/sandbox/test_soak.py", "tests/bench/", "tests/docs/", "tests/simulation/")
"""These begin first: at the end a core would have nothing to do while another one is at the last of them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


def pytest_collection_finish() -> None:
    """Spare every collection of garbage the walk through thousands of tests that stay until the end."""
    gc.collect()
    gc.freeze()
