"""The desk of an assistant: one database, the connectors that are named, and the only ways from a tool to either.

`read` opens the file read-only. `propose` has a proposal written, and no other command: `PROPOSING` is closed.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import click

from keep_actors.cli.reader import FileReader, reading
from keep_actors.connectors import Catalog, Connector
from keep_actors.kernel.blocking import Blocking
from keep_actors.outbound.secret import Secret
from keep_actors.sandbox_pool.pool import PoolMode
from keep_storage.errors import Rejected

T = TypeVar("T")

_READS_AT_ONCE = 4


class ToolRefused(Exception):
    """The tool cannot do this. The text says why, and what to do."""


class Desk:
    """All that the tools of one server have."""

    def __init__(
        self, db: Path, connectors: Iterable[Connector], *, sandbox: PoolMode = "jailed", call_reads: bool = False
    ) -> None:
        self.db = db
        self.connectors = tuple(connectors)
        self.catalog = Catalog(self.connectors)
        self.sandbox: PoolMode = sandbox
        self.call_reads = call_reads
        self._threads = Blocking(_READS_AT_ONCE)

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The secrets of the connectors: none of them is in anything that leaves."""
        return tuple(secret for each in self.connectors for secret in each.__hidden__)

    async def read(self, look: Callable[[FileReader], T]) -> T:
        """Look at one moment of the file. Raises `ToolRefused`."""

        def inside() -> T:
            with reading(self.db) as reader:
                return look(reader)

        try:
            return await self._threads.run(inside)
        except click.ClickException as error:
            raise ToolRefused(error.format_message()) from None
        except Rejected as rejected:
            raise ToolRefused(str(rejected)) from None
