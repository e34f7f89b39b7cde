"""Messages to a workflow actor: a closed union."""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import msgspec

from keep_actors.host.storage_actor import Apply
from keep_actors.kernel import Question
from keep_actors.permissions import Grant, Needed
from keep_actors.script import StoredDeclaration
from keep_storage.model import Mutation, ScriptProposal, ScriptVersion
from keep_storage.operations import Operation, Together

T = TypeVar("T")


class Tick(msgspec.Struct, frozen=True):
    """Look whether there is something to do: an alarm rang, or the runtime has just started."""


class Ended(msgspec.Struct, frozen=True):
    """From the task beside the mailbox to its own actor: this run or errand is over, whatever came of it."""

    work_id: str


class Advance(Apply[tuple[Any, ...]]):
    """From the task beside the mailbox to its own actor: these transitions, together. The storage answers it, and
    `settled` is called then."""

    def __init__(self, work_id: str, operations: tuple[Operation[Any], ...], settled: Callable[[], None]) -> None:
        super().__init__(Together(operations))
        self.work_id = work_id
        self._on_settled = settled

    def _settle(self) -> None:
        super()._settle()
        self._on_settled()


class Do(Question[T]):
    """Apply this operation for a person or for the embedding service, at once, whatever is active."""

    def __init__(self, operation: Operation[T]) -> None:
        self.operation = operation


class Stop(Question[str]):
    """End the active run at its next call, for a person. Answered with its id."""

    def __init__(self, run_id: str | None, by: str, why: str) -> None:
        self.run_id = run_id
        self.by = by
        self.why = why


class Deploy(Question[ScriptVersion]):
    """Make this script the one that runs, as soon as nothing is active.

    `is_meant`: the caller has named the workflow, and not only the script. Without an `owner` the workflow keeps its
    own. `grants` are given with it, and `accepted` are permissions that are granted unless they are already. `drop` and
    `move` say what becomes of the events of topics that it does not declare. `proposal` is what a person accepts by it.
    """

    def __init__(
        self,
        source: str,
        declared: StoredDeclaration,
        *,
        is_meant: bool,
        author: str,
        owner: str | None,
        needed: list[Needed],
        grants: list[Grant],
        accepted: list[str],
        timezone: str | None,
        is_major: bool,
        start: bool,
        by: str,
        drop: tuple[str, ...] = (),
        move: tuple[tuple[str, str], ...] = (),
        proposal: ScriptProposal | None = None,
    ) -> None:
        self.source = source
        self.declared = declared
        self.is_meant = is_meant
        self.author = author
        self.owner = owner
        self.needed = needed
        self.grants = grants
        self.accepted = accepted
        self.timezone = timezone
        self.is_major = is_major
        self.start = start
        self.by = by
        self.drop = drop
        self.move = move
        self.proposal = proposal


class Activate(Question[ScriptVersion]):
    """Make a version that exists the one that runs, as soon as nothing is active: a rollback, or an accepted repair.

    `is_proposal`: only if it is the proposal that is held now.
    """

    def __init__(
        self,
        number: tuple[int, int],
        by: str,
        drop: tuple[str, ...] = (),
        move: tuple[tuple[str, str], ...] = (),
        *,
        is_proposal: bool = False,
    ) -> None:
        self.number = number
        self.by = by
        self.drop = drop
        self.move = move
        self.is_proposal = is_proposal


class Approve(Question[Mutation]):
    """A person allows a recorded call: make exactly it. Answered when it is allowed, not when it is made."""

    def __init__(self, approval_id: str, by: str, why: str) -> None:
        self.approval_id = approval_id
        self.by = by
        self.why = why


WhenIdle: TypeAlias = Deploy | Activate | Approve
"""Messages that wait until the workflow is idle."""

Message: TypeAlias = Tick | Ended | Advance | Do[Any] | Stop | WhenIdle
