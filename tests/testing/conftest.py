import pytest

from keep_actors.testing.fixtures import keep_box

__all__ = ["anyio_backend", "keep_box"]


@pytest.fixture(scope="session", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Every async test here runs on both."""
    backend: str = request.param
    return backend
