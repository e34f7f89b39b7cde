"""A change, made by whoever has the file: the runtime, over its control socket, or this command, if nobody has it.

Only what is a single operation of the storage is done without a runtime, and after the same recovery that a start
begins with: the next start goes on from there.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from keep_actors.cli.exits import Exit, Stopped
from keep_actors.cli.terminal import json_line, plain, remark, show
from keep_actors.control.client import Client, Lost, Refused
from keep_actors.control.place import place_of
from keep_actors.control.protocol import Request
from keep_storage.errors import Rejected, StorageError, StorageLost, StorageOwned
from keep_storage.operations import Operation
from keep_storage.ownership import owner_of

T = TypeVar("T")

ANSWER_S: Final = 120
"""A request that waits for nothing is answered at once; a disk that is full may take this long to be said."""


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
        """How many, by topic."""
        self.declared = declared
        """The topics that the script has."""


class Runtime:
    """How a database is changed from here."""

    def __init__(self, db: Path, control: Path | None) -> None:
        if not db.is_file():
            raise Stopped(Exit.WRONG, f"{db}: there is no such file.")
        self.db = db
        self._place = control or place_of(db)
        self._has_written = False

    def client(self) -> Client | None:
        """A connection; None if nobody listens."""
        try:
            return Client.connect(self._place, self.db)
        except TimeoutError:
            raise Stopped(Exit.NO_RUNTIME, f"The runtime of {self.db} does not answer at {self._place}.") from None
        except OSError as error:
            words = (
                f"This user cannot talk to the runtime at {self._place}: {error.strerror}. Ask as its user, or as root."
            )
            raise Stopped(Exit.NO_RUNTIME, words) from None

    def ask(self, request: Request[T], answer: Any, *, timeout_s: float | None = ANSWER_S) -> T:
        """Have the running runtime do it."""
        client = self.client()
        if client is None:
            raise Stopped(Exit.NO_RUNTIME, self.nobody())
        with client:
            return self._asked(client, request, answer, timeout_s)

    def ask_or_write(self, request: Request[T], answer: Any, operation: Callable[[], Operation[T]]) -> T:
        """Have the runtime do it; if there is none, write it into the file."""
        client = self.client()
        if client is None:
            return self._write(operation())
        with client:
            return self._asked(client, request, answer, ANSWER_S)

    def _asked(self, client: Client, request: Request[T], answer: Any, timeout_s: float | None) -> T:
        try:
            return client.ask(request, answer, timeout_s)
        except Refused as refused:
            if refused.error.kind == "result":
                raise Unfit(refused.error.words, refused.error.example) from None
            reason = f" [{refused.error.reason}]" if refused.error.reason else ""
            if refused.error.topics:
                words = f"{refused.error.words}{reason}"
                raise EventsWait(words, refused.error.topics, refused.error.declared) from None
            code = Exit.UNKNOWN if refused.error.kind == "unknown" else Exit.WRONG
            raise Stopped(code, f"{refused.error.words}{reason}") from None
        except Lost as lost:
            words = (
                f"{lost} Nobody here knows whether it was done: look (`keep status`, `keep log`) before you ask again."
            )
            raise Stopped(Exit.UNKNOWN, words) from None

    def _write(self, operation: Operation[T]) -> T:
        # Only who gets here loads what changes a file.
        from keep_storage.recovery import recovery
        from keep_storage.store import Store

        try:
            with Store.open(self.db) as store:
                _, written = store.commit([recovery(), operation])
                answer: T = written.unwrap()
        except StorageOwned:
            raise Stopped(Exit.NO_RUNTIME, self.nobody()) from None
        except Rejected as rejected:
            raise Stopped(Exit.WRONG, str(rejected)) from None
        except StorageLost as error:
            raise Stopped(Exit.UNKNOWN, str(error)) from None
        except StorageError as error:
            raise Stopped(Exit.WRONG, str(error)) from None
        if not self._has_written:
            remark(f"No runtime is running: this was written into {self.db}, and the next start goes on from there.")
        self._has_written = True
        return answer

    def nobody(self) -> str:
        """Why nobody can be talked to, and what to do."""
        owner = owner_of(self.db)
        if owner is None:
            return f"No runtime is running on {self.db}. Start one: keep run --db {self.db} --connectors MODULE:NAME"
        return (
            f"The runtime of {self.db} (process {owner}) cannot be talked to: nobody listens at {self._place}. It "
            "has to be opened with control=True; if its socket is elsewhere, say where with --control."
        )


def done(answer: msgspec.Struct, as_json: bool, words: str) -> None:
    """Tell what was done: a line for people, or the answer as it is."""
    show(json_line(answer) if as_json else plain(words))
