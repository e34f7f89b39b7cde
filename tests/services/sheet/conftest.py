from pathlib import Path

import pytest

from tests.services.sheet.sheets import KINDS, made


@pytest.fixture(params=KINDS)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A sheet of each format, with two rows."""
    return made(tmp_path / f"sheet.{request.param}")
