"""Every row of a certification holds or does not apply: with a tool that looks, by repetition, without both."""

import pytest

from keep_actors.testing.certification import Certification, certify
from tests.services.mcp.subject import (
    McpCertification,
    McpNeitherCertification,
    McpProgramCertification,
    McpRepeatCertification,
)

pytestmark = pytest.mark.anyio


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("subject", "anyio_backend"),
    [
        (McpCertification, "trio"),
        (McpRepeatCertification, "asyncio"),
        (McpNeitherCertification, "trio"),
        (McpProgramCertification, "asyncio"),
    ],
)
async def test_no_row_fails(subject: type[Certification], anyio_backend: str) -> None:
    table = await certify(subject())
    assert [f"{each.row}: {each.seen}" for each in table.failed] == []
