"""Each test that awaits runs on asyncio and on trio."""

import pytest


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    """The event loop of a process that is started."""
    return str(request.param)
