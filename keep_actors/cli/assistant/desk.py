"""The desk of an assistant: one database, the connectors that are named, and the only ways from a tool to either.

`read` opens the file read-only. `propose` has a proposal written, and no other command: `PROPOSING` is closed.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import click

from keep_actors.api.command import StorageCommand
from keep_actors.api.commands import Propose
from keep_actors.cli.exit_codes import Exit, Stopped
from keep_actors.cli.reader import FileReader, reading
from keep_actors.cli.write_path import WritePath
from keep_actors.connectors import Catalog, Connector
from keep_actors.kernel.blocking import Blocking
from keep_actors.outbound.secret import Secret
from keep_actors.sandbox_pool.pool import PoolMode
from keep_storage import proposal_reads
from keep_storage.errors import Rejected
from keep_storage.model import ScriptProposal

T = TypeVar("T")

PROPOSING: Final[tuple[type[StorageCommand[Any]], ...]] = (Propose,)
"""Every command that a tool leads to."""
_READS_AT_ONCE: Final = 4
_ANSWER_S: Final = 60


class ToolRefused(Exception):
    """The tool cannot do this. The text says why, in our own words; `quoted` has words in which others have a part."""

    def __init__(self, words: str, quoted: str = "") -> None:
        super().__init__(words)
        self.quoted = quoted


class Desk:
    """All that the tools of one server have."""

    def __init__(
        self,
        db: Path,
        connectors: Iterable[Connector],
        *,
        name: str = "assistant",
        control: Path | None = None,
        sandbox: PoolMode = "jailed",
        call_reads: bool = False,
    ) -> None:
        self.db = db
        self.name = name
        """The name under which proposals are made."""
        self.connectors = tuple(connectors)
        self.catalog = Catalog(self.connectors)
        self.sandbox: PoolMode = sandbox
        self.call_reads = call_reads
        self._control = control
        self._threads = Blocking(_READS_AT_ONCE)
        self._proposing = anyio.Lock()

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
            raise ToolRefused("This cannot be read as asked.", error.format_message()) from None
        except Rejected as rejected:
            raise ToolRefused("This cannot be read as asked.", rejected.message) from None

    async def propose(self, command: Propose) -> ScriptProposal:
        """Have it written: by the runtime that has the file, or into the file if none has. Raises `ToolRefused`."""
        assert type(command) in PROPOSING, "an assistant decides nothing"

        def inside() -> ScriptProposal:
            return WritePath(self.db, self._control).ask(command, timeout_s=_ANSWER_S)

        try:
            # One after another: without a runtime, each has the file for itself.
            async with self._proposing:
                return await self._threads.run(inside)
        except Stopped as stopped:
            if stopped.exit_code != Exit.UNKNOWN:
                raise ToolRefused(stopped.message) from None
        # The answer was lost, and the proposal may be there: its id says so.
        found = await self.read(lambda reader: proposal_reads.proposal(reader.q, command.proposal_id))
        if found is None:
            raise ToolRefused(
                "The runtime ended, or did not answer in time. The proposal is not there now: see list_proposals "
                "before you propose again."
            )
        return found
