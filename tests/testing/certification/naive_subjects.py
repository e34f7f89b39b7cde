"""Certifications that are wrong themselves, or have nothing to try."""

from typing import Any, ClassVar

import anyio

from keep_actors.connectors import Connector, read
from keep_actors.testing.certification import RunningService
from tests.testing.certification.till import TillCertification


class ReadsOnly(Connector):
    """It has no mutation."""

    name = "till"

    @read
    async def count(self) -> int:
        """No entries."""
        return 0


class ReadsOnlyCertification(TillCertification):
    def connector(self, _: RunningService) -> Connector:
        return ReadsOnly()


class DoesNotStartCertification(TillCertification):
    """Its service does not start."""

    def service(self) -> Any:
        raise ConnectionRefusedError("the till is closed today")


class HangsCertification(TillCertification):
    """Its service cannot be counted in."""

    row_s = 0.5

    async def effects(self, *_: object) -> int:
        await anyio.sleep_forever()
        raise AssertionError("it sleeps for ever")


class ForgetsCertification(TillCertification):
    """Its effects are not those of the service."""

    async def effects(self, *_: object) -> int:
        return 0


class SharesEffectsCertification(TillCertification):
    """Its examples are all the same."""

    def example(self, *_: object) -> dict[str, Any]:
        return {"text": "entry"}


class MisspelledCertification(TillCertification):
    """Its decisive bytes are sent by no connector."""

    decisive: ClassVar = {"add": b"PUT "}


class NeedsArgumentsCertification(TillCertification):
    """It cannot be made without arguments."""

    def __init__(self, address: str) -> None:
        self.address = address
