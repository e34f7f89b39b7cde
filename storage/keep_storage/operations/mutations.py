"""Changes of mutations and of the approvals that they wait for."""

import msgspec

from keep_storage.ids import Millis
from keep_storage.model import Approval, Json, Mutation, MutationStatus, Resolver
from keep_storage.operations.operation import Operation


class ItemScope(msgspec.Struct, frozen=True):
    """The logical item in which a job mutates, and the identity of the mutation in it (chapter 14)."""

    item_id: str
    identity_key: str
    subkey: str = ""
    is_method_alone: bool = False
    """The connector declares no identity: any call of this method with this subkey is this one."""


class GrantUse(msgspec.Struct, frozen=True):
    """A call that counts against a grant, on this day, with at most so many a day."""

    permission: str
    day: int
    per_day: int


class AskFirst(msgspec.Struct, frozen=True):
    """Hold the call until a person has approved it."""

    approval_id: str
    expires_at: Millis | None = None


class CreateMutation(Operation[Mutation], frozen=True):
    """Write an external call into the ledger before it is made.

    `send=True` records it as `in_flight` at once: when this is answered, the call may be made. Inside an item
    the ledger may already know the call: the answer is then the existing line (applied: use its result;
    failed: it has been set `in_flight` again if `send`).

    Refused once a person has paused or archived the workflow, stopped the run, or taken `permission` back.
    """

    id: str
    run_id: str
    connector: str
    method: str
    params: Json
    idempotency_key: str
    reconcilable: bool
    send: bool = False
    item: ItemScope | None = None
    ask_first: AskFirst | None = None
    permission: str = ""
    """The permission that it needs: granted now, and not to be asked about unless it is. Empty: none."""


class UpdateMutationStatus(Operation[Mutation], frozen=True):
    """Move a mutation between its unsettled states. Labels only: nothing else changes.

    `counts` is for what needs a check and still does: whether this was one of the checks that it has.
    """

    mutation_id: str
    status: MutationStatus
    error: str = ""
    next_reconcile_at: Millis | None = None
    by: str = ""
    why: str = ""
    expected_version: int | None = None
    counts: bool = True


class NoteMutation(Operation[Mutation], frozen=True):
    """Keep what a connector will need to look for the outcome of the call that it is making. The last note counts."""

    mutation_id: str
    attempt: int
    """The attempt that it is about: one that is over notes nothing."""
    note: str


class ApplyMutation(Operation[Mutation], frozen=True):
    """The effect exists, and this is its result. From here the run can only go forward."""

    mutation_id: str
    result: Json = "null"
    resolved_by: Resolver = Resolver.CONNECTOR
    by: str = ""
    why: str = ""
    expected_version: int | None = None


class FailMutation(Operation[Mutation], frozen=True):
    """The effect does not exist. The events are released."""

    mutation_id: str
    error: str = ""
    resolved_by: Resolver = Resolver.CONNECTOR
    by: str = ""
    why: str = ""
    expected_version: int | None = None


class SkipMutation(Operation[Mutation], frozen=True):
    """A person gives up on knowing. The events are skipped; `next` still runs, through the retry path."""

    mutation_id: str
    by: str = ""
    why: str = ""
    expected_version: int | None = None


class AmendResult(Operation[Mutation], frozen=True):
    """Put right the result of a call that a person said had happened. Refused once a run has used the first one."""

    mutation_id: str
    result: Json
    by: str = ""
    why: str = ""
    expected_version: int | None = None


class ApproveMutation(Operation[Mutation], frozen=True):
    """A person allows the recorded call: it is `in_flight` when this is answered, and counts against its grant."""

    approval_id: str
    by: str
    why: str = ""
    use: GrantUse | None = None


class RejectMutation(Operation[Mutation], frozen=True):
    """A person (or the clock, with `expired`) refuses the recorded call: its events or its item are skipped.

    With `retry` it counts as failed instead: the events are released, and a fresh run prepares again.
    """

    approval_id: str
    by: str
    why: str = ""
    retry: bool = False
    expired: bool = False


class AskAgain(Operation[Approval], frozen=True):
    """Ask a question once more that was not answered in time."""

    approval_id: str
    new_id: str
    expires_at: Millis | None = None
