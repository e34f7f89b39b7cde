"""The write path of a command: through the runtime that owns the file, or straight into the file if none does.

Only a command that is a single operation of the storage, and says so (`needs_runtime`), is written without a runtime,
after the same recovery that a start begins with: the next start goes on from there.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from keep_actors.api.command import Command, StorageCommand
from keep_actors.cli.exit_codes import Exit, Stopped
from keep_actors.cli.terminal import json_line, plain, remark, show
from keep_actors.control.client import CommandRefused, ControlClient, Lost
from keep_actors.control.place import NO_SOCKETS, has_sockets, place_of
from keep_storage.errors import Rejected, StorageError, StorageLost, StorageOwned
from keep_storage.ids import wall_clock
from keep_storage.ownership import owner_of

T = TypeVar("T")

ANSWER_S: Final = 120
"""A command that waits for nothing is answered at once; a full disk may take this long to report."""


ACCEPT_PERMISSIONS: Final = "Accept them all with --accept, or one by one with --grant NAME."
SETTLE_EVENTS: Final = (
    "Say what becomes of them: --drop TOPIC skips them, --move OLD=NEW moves them to a topic of the script."
)


class Unfit(Stopped):
    """A result that a person gave is not what the call returns. `example` is JSON that would be; empty if unknown."""

    def __init__(self, words: str, example: str = "") -> None:
        super().__init__(Exit.WRONG, words)
        self.example = example


class EventsWait(Stopped):
    """A script was refused: events wait in topics that it does not declare."""

    def __init__(self, words: str, topics: dict[str, int], declared: list[str]) -> None:
        super().__init__(Exit.WRONG, words)
        self.topics = topics
        """The number of events, by topic."""
        self.declared = declared
        """The topics that the script has."""


class WritePath:
    """A database to change, the person who changes it, and the form in which answers are shown."""

    def __init__(self, db: Path, control: Path | None, by: str = "", as_json: bool = False) -> None:
        if not db.is_file():
            raise Stopped(Exit.WRONG, f"{db}: there is no such file.")
        self.db = db
        self.by = by
        self.as_json = as_json
        self._place = control or place_of(db)
        self._has_written = False

    def client(self) -> ControlClient | None:
        """A connection to the runtime; None if none listens."""
        try:
            return ControlClient.connect(self._place, self.db)
        except TimeoutError:
            raise Stopped(Exit.NO_RUNTIME, f"The runtime of {self.db} does not answer at {self._place}.") from None
        except OSError as error:
            words = (
                f"This user may not use the runtime at {self._place}: {error.strerror}. Run the command as the "
                "runtime's user, or as root."
            )
            raise Stopped(Exit.NO_RUNTIME, words) from None

    def ask(
        self,
        command: Command[T],
        *,
        timeout_s: float | None = ANSWER_S,
        prepared: Callable[[Any], StorageCommand[T]] = lambda command: command,
    ) -> T:
        """Have the runtime carry it out; if there is none, write it into the file where the command allows that.

        `prepared` makes of it the command that is written without a runtime.
        """
        client = self.client()
        if client is not None:
            with client, _refusals():
                return client.ask(command, timeout_s)
        if command.needs_runtime or not isinstance(command, StorageCommand):
            raise Stopped(Exit.NO_RUNTIME, self.no_runtime())
        return self._write(prepared(command))

    def _write(self, command: StorageCommand[T]) -> T:
        # Here: only this loads what changes a file.
        from keep_storage.recovery import recovery
        from keep_storage.store import Store

        try:
            with Store.open(self.db) as store:
                _, written = store.commit([recovery(), command.operation(wall_clock())])
                answer: T = written.unwrap()
        except StorageOwned:
            raise Stopped(Exit.NO_RUNTIME, self.no_runtime()) from None
        except (Rejected, StorageError) as error:
            raise Stopped(Exit.UNKNOWN if isinstance(error, StorageLost) else Exit.WRONG, str(error)) from None
        if not self._has_written:
            remark(f"No runtime is running: this was written into {self.db}, and the next start continues from there.")
        self._has_written = True
        return answer

    def no_runtime(self) -> str:
        """The reason why no runtime can be asked, and what to do."""
        owner = owner_of(self.db)
        if owner is None:
            return f"No runtime is running on {self.db}. Start one: keep run --db {self.db} --connectors MODULE:NAME"
        if not has_sockets():
            return f"The runtime of {self.db} (process {owner}) cannot be reached: {NO_SOCKETS}."
        return (
            f"The runtime of {self.db} (process {owner}) cannot be reached: it does not listen at {self._place}. "
            "Open it with control=True; if its socket is elsewhere, name it with --control."
        )

    def done(self, answer: msgspec.Struct, words: str) -> None:
        """Tell what was done: a line for people, or the answer as it is."""
        show(json_line(answer) if self.as_json else plain(words))


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn what a runtime refuses, or leaves unanswered, into the end of the command."""
    try:
        yield
    except CommandRefused as refused:
        error = refused.error
        words = f"{error.words} [{error.reason}]" if error.reason else error.words
        if error.kind == "result":
            raise Unfit(error.words, error.example) from None
        if error.topics:
            raise EventsWait(f"{words}\n{SETTLE_EVENTS}", error.topics, error.declared) from None
        if error.kind == "permissions":
            words = f"{words}\n{ACCEPT_PERMISSIONS}"
        raise Stopped(Exit.UNKNOWN if error.kind == "unknown" else Exit.WRONG, words) from None
    except Lost as lost:
        words = f"{lost} The change may have been made: check (`keep status`, `keep log`) before you try again."
        raise Stopped(Exit.UNKNOWN, words) from None
