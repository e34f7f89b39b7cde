"""Changes of workflows, their scripts and their grants."""

import msgspec

from keep_storage.ids import Millis
from keep_storage.model import FailureClass, GrantPolicy, HandlerKind, Json, ScriptVersion, StoredGrant, Workflow
from keep_storage.operations.operation import Operation


class HandlerSpec(msgspec.Struct, frozen=True):
    """A handler as a script declares it."""

    name: str
    kind: HandlerKind
    subscribe: tuple[str, ...] = ()
    ordering: str | None = None
    """Where in the payload of its events the ordering key is, as in `customer.id`."""
    schedule: Json | None = None
    first_run_at: Millis | None = None
    """Of a handler that is new to the workflow, or has another schedule than before."""
    plan_anew: bool = False
    """It is so also for the schedule that it had: what that means is another, because of the time zone."""


class CreateWorkflow(Operation[Workflow], frozen=True):
    id: str
    name: str
    timezone: str = "UTC"
    owner: str = ""


class AddScriptVersion(Operation[ScriptVersion], frozen=True):
    id: str
    workflow_id: str
    major: int
    minor: int
    source: str
    declaration: Json = "{}"
    author: str = ""


class ActivateScript(Operation[Workflow], frozen=True):
    """Make a version the one that runs. Topics and handlers become those it declares; events and state stay.

    Refused while events are unfinished in a topic that it no longer declares, unless that topic is in `drop` or `move`.
    """

    version_id: str
    topics: tuple[str, ...]
    handlers: tuple[HandlerSpec, ...]
    timezone: str | None = None
    """That of the workflow's schedules from now on; None: it stays."""
    is_repair: bool = False
    """Only a machine has looked at it: the failures of its handlers are kept."""
    drop: tuple[str, ...] = ()
    """Topics that it does not declare: their pending events are skipped. Refused while a run holds one of them."""
    move: tuple[tuple[str, str], ...] = ()
    """From a topic that it does not declare to one that it does: pending and reserved events go there as they are."""
    by: str = ""
    owner: str | None = None
    """That of the workflow from now on; None: it stays."""


class GrantPermission(Operation[StoredGrant], frozen=True):
    workflow_id: str
    major: int
    permission: str
    policy: GrantPolicy
    limits: Json = "{}"
    """An object; what is in it is the host's business."""
    by: str = ""


class RevokePermission(Operation[StoredGrant], frozen=True):
    """Take a permission back. Answered with the grant that is gone."""

    workflow_id: str
    major: int
    permission: str
    by: str = ""


class UseGrant(Operation[int], frozen=True):
    """Count a call that a run is about to make. Answered with the calls of that day, this one among them.

    Refused when `per_day` have been made: by whatever run, version or major, since the limit is about the outside.
    """

    run_id: str
    permission: str
    day: int
    per_day: int


class PauseWorkflow(Operation[Workflow], frozen=True):
    workflow_id: str
    by: str = ""


class ResumeWorkflow(Operation[Workflow], frozen=True):
    """Set the status to `active`. Does not clear `workflow.error`."""

    workflow_id: str
    by: str = ""


class ArchiveWorkflow(Operation[Workflow], frozen=True):
    """End a workflow. Calls that wait for approval are refused by this; unknown outcomes are still looked into."""

    workflow_id: str
    by: str = ""


class UnarchiveWorkflow(Operation[Workflow], frozen=True):
    """Bring an archived workflow back, paused. Refused while another one has its name."""

    workflow_id: str
    by: str = ""


class RunNow(Operation[Workflow], frozen=True):
    """A person does not want to wait for the clock: every producer and every job is due now."""

    workflow_id: str
    by: str = ""


class HaltWorkflow(Operation[Workflow], frozen=True):
    """The host gives up on a workflow, without a run to blame. An error that is there already stays."""

    workflow_id: str
    error: str
    cls: FailureClass = FailureClass.INTERNAL


class ClearWorkflowError(Operation[Workflow], frozen=True):
    """A person says "I fixed it". Refused while the error is an open question about a mutation."""

    workflow_id: str
    by: str
    why: str = ""
    permission: str = ""
    """Only if the error is about this permission at this moment: any other stays, and nothing is refused."""
