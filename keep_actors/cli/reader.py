"""A reader of a database file, with or without a runtime: read-only, of one moment, never in a writer's way."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import click
import msgspec

from keep_actors.cli.exit_codes import Exit, Stopped
from keep_actors.cli.typed import line
from keep_storage import lookups, reads
from keep_storage.errors import StorageError
from keep_storage.ids import Millis, wall_clock
from keep_storage.lookups import LookupKind
from keep_storage.model import Workflow, WorkflowStatus
from keep_storage.ownership import owner_of
from keep_storage.sqlite import open_reader
from keep_storage.transaction import Queries

_NAMES_SHOWN = 10
_WORDS_MAX: Final = 200

UNREADABLE: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
)
"""Errors from values in a file that are not what its schema says: the schema is checked before, its rows are not."""


class FileReader:
    """The content of a file at one moment, the process that owns it, and the form in which it is shown."""

    def __init__(
        self, q: Queries, db: Path, owner: str | None, control: Path | None = None, *, as_json: bool = False
    ) -> None:
        self.q = q
        self.db = db
        self.owner = owner
        self.control = control
        self.as_json = as_json
        self.now: Millis = wall_clock()

    @property
    def is_owned(self) -> bool:
        return self.owner is not None

    @property
    def runtime(self) -> str:
        """In words: is a runtime running?"""
        return f"running (process {self.owner})" if self.owner is not None else "not running"

    def workflow(self, named: str | None) -> Workflow:
        """By its name, its id or the beginning of its id; the only one there is, if nothing is named. An archived one
        by its name too, as long as no other has it."""
        if named is None:
            return self._only_one()
        found = reads.workflow(self.q, named) or reads.workflow_by_name(self.q, named)
        return found or reads.archived_by_name(self.q, named) or self._beginning_with(named)

    def living(self, named: str) -> Workflow:
        """One to which something can be added: an archived one is refused, with what to type."""
        found = self.workflow(named)
        if found.status is WorkflowStatus.ARCHIVED:
            back = line(self.db, "unarchive", found.id)
            words = f"Workflow {found.name!r} ({found.id}) is archived: it does not run, and takes nothing new."
            raise Stopped(Exit.WRONG, f"{words} Bring it back first: {back}")
        return found

    def archived(self, named: str) -> Workflow:
        """One that is meant to be brought back: of those with this name, the newest archived one."""
        return reads.workflow(self.q, named) or reads.archived_by_name(self.q, named) or self.workflow(named)

    def _beginning_with(self, named: str) -> Workflow:
        ids = lookups.beginning_with(self.q, "workflow", named)
        found = reads.workflow(self.q, ids[0]) if len(ids) == 1 else None
        if found is None:
            raise Stopped(Exit.WRONG, f"There is no workflow {named!r} in {self.db}. {self._names(named)}")
        return found

    def one_id(self, kind: LookupKind, typed: str, prefix: str) -> str:
        """The one id that begins as it was typed, with or without its prefix."""
        found = lookups.beginning_with(self.q, kind, typed) or lookups.beginning_with(self.q, kind, f"{prefix}_{typed}")
        if not found:
            raise Stopped(Exit.WRONG, f"There is no {kind} {typed!r} in {self.db}.")
        if len(found) > 1:
            raise Stopped(Exit.WRONG, f"{typed!r} is the beginning of more than one {kind}. Type more characters.")
        return found[0]

    def _only_one(self) -> Workflow:
        there = [each for each in reads.workflows(self.q) if each.status is not WorkflowStatus.ARCHIVED]
        if len(there) != 1:
            raise click.UsageError(f"Which workflow? {self._names('')}")
        return there[0]

    def _names(self, near: str) -> str:
        names = [each.name for each in reads.workflows(self.q) if each.status is not WorkflowStatus.ARCHIVED]
        if not names:
            return "There are no workflows yet."
        import difflib  # here: only a wrong name needs it

        close = difflib.get_close_matches(near, names, _NAMES_SHOWN) or names[:_NAMES_SHOWN]
        more = f" and {len(names) - len(close)} more" if len(names) > len(close) else ""
        return f"There are: {', '.join(map(repr, close))}{more}."


@contextmanager
def readable(db: Path) -> Iterator[None]:
    """End the command with words if something in the file cannot be read or shown."""
    try:
        yield
    except UNREADABLE as error:
        raise Stopped(
            Exit.WRONG,
            f"{db}: something in it cannot be read ({type(error).__name__}: {str(error)[:_WORDS_MAX]}). See what `keep "
            "doctor` finds. If it finds nothing, this is a bug in keep-actors: keep the file and report it.",
        ) from error


@contextmanager
def reading(db: Path, control: Path | None = None, *, as_json: bool = False) -> Iterator[FileReader]:
    """Open a file to read. A problem with it ends the command, with words."""
    if not db.is_file():
        raise Stopped(Exit.WRONG, f"{db}: there is no such file.")
    try:
        with readable(db), closing(open_reader(str(db))) as reader, reader.snapshot():
            yield FileReader(reader, db, owner_of(db), control, as_json=as_json)
    except StorageError as error:
        raise Stopped(Exit.WRONG, str(error)) from None
