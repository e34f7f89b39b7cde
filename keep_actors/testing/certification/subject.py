"""The subject of a certification: a connector, the real service behind it, and a way to count effects without it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, TypeAlias

import msgspec

from keep_actors.connectors import Connector

ServiceAddress: TypeAlias = tuple[str, int]
"""Host and port."""


class RunningService(msgspec.Struct, frozen=True):
    """A real service that runs now. All of it is JSON: another process makes a connector from it."""

    addresses: Mapping[str, ServiceAddress] = {}
    """By name, where it listens. The suite puts a proxy in front of each. None: a service without a network."""
    places: Mapping[str, str] = {}
    """By name, what else a connector needs to find it: a folder, a database."""


class Certification(ABC):
    """How one connector is tried. Must be importable as `module:name`, and take no arguments."""

    decisive: ClassVar[Mapping[str, bytes]] = {}
    """For each mutation, by its name in JavaScript: bytes that a connector sends and without which nothing happens,
    such as `COMMIT`. The suite loses, delays and holds from there. Without: the first bytes of a connection."""

    refuses_repetition: ClassVar[bool] = True
    """The service, or the connector, makes one effect of two calls with one key. False: two calls are two effects, and
    only the runtime sees to it that there are not two."""

    reconcile_repeats: ClassVar[bool] = False
    """`reconcile` makes the same call again, with its key, where the service has promised to replay the first answer: a
    call that never came is made by that, once."""

    timeout_ms: ClassVar[int] = 1_000
    """The time of a call that the suite disturbs. Longer than any call takes, and short: it is waited for often."""

    patience_ms: ClassVar[int] = 6_000
    """The time of a call that the connector ends by a time-out of its own. Longer than those; it is waited for once."""

    row_s: ClassVar[float] = 60
    """The time of one try of a row. A service that hangs is waited for only so long."""

    @abstractmethod
    def service(self) -> AbstractAsyncContextManager[RunningService]:
        """Start the service, and end it."""

    @abstractmethod
    def connector(self, service: RunningService) -> Connector:
        """A connector that talks to the service at these addresses. Called in other processes too."""

    @abstractmethod
    def example(self, method: str, number: int) -> Mapping[str, Any]:
        """The one object that a script passes to this mutation, another for each number: no two share an effect."""

    @abstractmethod
    async def effects(self, service: RunningService, method: str, params: Mapping[str, Any]) -> int:
        """How often the effect of the call with these parameters is there, found without the connector."""

    @classmethod
    def spec(cls) -> str:
        """Its name as `module:name`, for other processes."""
        return f"{cls.__module__}:{cls.__qualname__}"
