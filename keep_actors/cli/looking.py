"""A look into a database file, whether a runtime has it or not: read-only, one moment, never in anybody's way."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from keep_actors.cli.exits import Exit, Stopped
from keep_storage import lookups, reads
from keep_storage.errors import StorageError
from keep_storage.ids import Millis, wall_clock
from keep_storage.lookups import Kind
from keep_storage.model import Workflow, WorkflowStatus
from keep_storage.ownership import owner_of
from keep_storage.sqlite import open_reader
from keep_storage.transaction import Queries

_NAMES_SHOWN = 10


class Look:
    """What is in the file at one moment, and who has it."""

    def __init__(self, q: Queries, db: Path, owner: str | None) -> None:
        self.q = q
        self.db = db
        self.owner = owner
        self.now: Millis = wall_clock()

    @property
    def runtime(self) -> str:
        """In words: whether a runtime has the file."""
        return f"running (process {self.owner})" if self.owner is not None else "not running"

    def workflow(self, named: str | None) -> Workflow:
        """By its name, its id or the beginning of its id; the only one there is, if nothing is named."""
        if named is None:
            return self._only_one()
        found = reads.workflow(self.q, named) or reads.workflow_by_name(self.q, named)
        if found is None and len(ids := lookups.beginning_with(self.q, "workflow", named)) == 1:
            found = reads.workflow(self.q, ids[0])
        if found is None:
            raise Stopped(Exit.WRONG, f"There is no workflow {named!r} in {self.db}. {self._names(named)}")
        return found

    def one_id(self, kind: Kind, typed: str, prefix: str) -> str:
        """The one id that begins as it was typed, with or without its prefix."""
        found = lookups.beginning_with(self.q, kind, typed) or lookups.beginning_with(self.q, kind, f"{prefix}_{typed}")
        if not found:
            raise Stopped(Exit.WRONG, f"There is no {kind} {typed!r} in {self.db}.")
        if len(found) > 1:
            raise Stopped(Exit.WRONG, f"{typed!r} is the beginning of more than one {kind}. Type more of it.")
        return found[0]

    def _only_one(self) -> Workflow:
        there = [each for each in reads.workflows(self.q) if each.status is not WorkflowStatus.ARCHIVED]
        if len(there) != 1:
            raise click.UsageError(f"Which workflow? {self._names('')}")
        return there[0]

    def _names(self, near: str) -> str:
        names = [each.name for each in reads.workflows(self.q) if each.status is not WorkflowStatus.ARCHIVED]
        if not names:
            return "There is none yet."
        # Only who was wrong about a name loads it.
        import difflib

        close = difflib.get_close_matches(near, names, _NAMES_SHOWN) or names[:_NAMES_SHOWN]
        more = f" and {len(names) - len(close)} more" if len(names) > len(close) else ""
        return f"There are: {', '.join(map(repr, close))}{more}."


@contextmanager
def looking(db: Path) -> Iterator[Look]:
    """Open the file to look. What is wrong with it ends the command, with words."""
    if not db.is_file():
        raise Stopped(Exit.WRONG, f"{db}: there is no such file.")
    try:
        reader = open_reader(str(db))
        try:
            with reader.snapshot():
                yield Look(reader, db, owner_of(db))
        finally:
            reader.close()
    except StorageError as error:
        raise Stopped(Exit.WRONG, str(error)) from None
