"""For pytest: `pytest_plugins = ["keep_actors.testing.fixtures"]`, and a test can ask for `keep_box`."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from keep_actors.testing.box import Box

OpenBox = Callable[..., AbstractAsyncContextManager[Box]]


@pytest.fixture
def keep_box() -> OpenBox:
    """Opens a box: `async with keep_box(Fake(Bank)) as box:`, on whatever event loop the test runs on."""
    return Box.open
