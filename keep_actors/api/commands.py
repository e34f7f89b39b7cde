"""Every action of a person, and every question to a running runtime: one declaration each.

A declaration has the fields with their words, the type of the answer, and the right and the runtime that it needs.
`Keep` has a method of the same name and fields; the control socket and the command line are derived from the
declaration. Loads no runtime and no connector.
"""

from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta, field

from keep_actors.api.command import Command, Right, StorageCommand
from keep_actors.api.deployed import Deployed as Deployed
from keep_actors.api.proposal_commands import AcceptProposal as AcceptProposal
from keep_actors.api.proposal_commands import Propose as Propose
from keep_actors.api.proposal_commands import RejectProposal as RejectProposal
from keep_actors.api.proposal_commands import ShowProposedScript as ShowProposedScript
from keep_actors.api.verdicts import VERDICTS, Escalation, GivenVerdict, PersonVerdict
from keep_actors.api.views import ApprovalQuestion
from keep_actors.policy import Grant
from keep_storage.ids import Millis
from keep_storage.model import Event, Item, ItemState, Json, Mutation, Workflow
from keep_storage.operations import (
    AmendResult,
    ArchiveWorkflow,
    ClearWorkflowError,
    Operation,
    PauseWorkflow,
    RejectMutation,
    ResumeWorkflow,
    RunNow,
    SkipEvent,
    UnarchiveWorkflow,
)

T_co = TypeVar("T_co", covariant=True)

_WorkflowName = Annotated[str, Meta(description="The workflow, by name or id.")]
_OneWorkflow = Annotated[str | None, Meta(description="Only this workflow, by name or id.")]
_By = Annotated[str, Meta(description="The person's name, for the journal.")]
_Why = Annotated[str, Meta(description="The reason, for the journal.")]
_Drop = Annotated[
    list[str], Meta(description="Skip the events that wait in a topic that the script no longer declares.")
]
_Move = Annotated[dict[str, str], Meta(description="Move the events of such a topic to one that the script declares.")]
_Version = Annotated[int | None, Meta(description="The version that you saw: refused if it has changed since.")]


class Answered(msgspec.Struct, frozen=True):
    """The outcome of an answer to several questions at once."""

    done: list[Mutation]
    refused: dict[str, str]
    """By approval, why its answer did not count: another was first, or it has expired."""


class WorkflowChange(StorageCommand[T_co], Generic[T_co], frozen=True, kw_only=True):
    """A change of one workflow."""

    right = Right.OPERATE
    workflow: _WorkflowName


class MutationChange(StorageCommand[T_co], Generic[T_co], frozen=True, kw_only=True):
    """A change of one recorded call that has, or gets, a result."""

    right = Right.ANSWER
    mutation_id: Annotated[str, Meta(description="The recorded call.")]
    result: Annotated[Any, Meta(description="What the call returned.")] = None
    by: _By
    why: _Why = ""
    version: _Version = None

    def result_text(self) -> Json:
        return msgspec.json.encode(self.result).decode()


# Scripts.


class DeployScript(Command[Deployed], frozen=True, kw_only=True, tag="deploy"):
    """Check a script and make it the one that runs."""

    right = Right.DEPLOY
    source: str
    workflow: Annotated[
        str | None, Meta(description="Deploy as a version of this workflow, by name or id; never as a new one.")
    ] = None
    new: Annotated[bool | None, Meta(description="Deploy as a new workflow; refused if its name is taken.")] = None
    author: Annotated[
        str, Meta(description="The author of the script. Another author than before makes a new major version.")
    ] = ""
    owner: Annotated[
        str | None,
        Meta(description="The owner of the workflow: only workflows of one owner share a process. Default: unchanged."),
    ] = None
    grants: list[Grant] | Literal["declared"] = field(default_factory=list)
    """`declared`: everything that the script names."""
    timezone: Annotated[
        str | None, Meta(description="The time zone of cron schedules. Default: unchanged, UTC for a new workflow.")
    ] = None
    major: Annotated[bool, Meta(description="A new major version: it begins without permissions.")] = False
    drop: _Drop = field(default_factory=list)
    move: _Move = field(default_factory=dict)
    by: _By = ""


class Rollback(Command[Deployed], frozen=True, kw_only=True, tag="rollback"):
    """Make an earlier VERSION of the script run again. Events and states stay.

    If events wait in a topic that it does not declare, drop or move them; on a terminal you are asked.
    """

    right = Right.DEPLOY
    workflow: _WorkflowName
    version: str
    drop: _Drop = field(default_factory=list)
    move: _Move = field(default_factory=dict)
    by: _By = ""


class AcceptRepair(Command[Deployed], frozen=True, kw_only=True, tag="accept_repair"):
    """Deploy the proposed repair. VERSION is the one that you saw; any other is refused."""

    right = Right.DEPLOY
    workflow: _WorkflowName
    version: str
    by: _By


class RefuseRepair(Command[Workflow], frozen=True, kw_only=True, tag="refuse_repair"):
    """Refuse the proposed repair, with the reason. It counts as an attempt."""

    right = Right.DEPLOY
    workflow: _WorkflowName
    by: _By
    why: Annotated[str, Meta(description="The reason, for the maintainer and the journal.")]


# Workflows.


class Pause(WorkflowChange[Workflow], frozen=True, kw_only=True, tag="pause"):
    """Start no more runs of a workflow, and make no more calls. Events are kept.

    A call that is on its way finishes, and its run stops before the next one.
    """

    needs_runtime = False
    by: _By = ""

    def operation(self, _: Millis) -> PauseWorkflow:
        return PauseWorkflow(self.workflow, self.by)


class Resume(WorkflowChange[Workflow], frozen=True, kw_only=True, tag="resume"):
    """Run a paused workflow again. An error that waits for a person is not cleared by this."""

    needs_runtime = False
    by: _By = ""

    def operation(self, _: Millis) -> ResumeWorkflow:
        return ResumeWorkflow(self.workflow, self.by)


class Archive(WorkflowChange[Workflow], frozen=True, kw_only=True, tag="archive"):
    """End a workflow. Its history stays readable, its name is free again, and nothing is added to it.

    It makes no further call, and the calls that wait for approval are rejected. A call that is in flight, or whose
    outcome is unknown, is still looked into, shown by `keep attention`, and can be answered. `keep unarchive` brings
    the workflow back.
    """

    by: _By = ""

    def operation(self, _: Millis) -> ArchiveWorkflow:
        return ArchiveWorkflow(self.workflow, self.by)


class Unarchive(WorkflowChange[Workflow], frozen=True, kw_only=True, tag="unarchive"):
    """Bring an archived workflow back, paused: `keep resume` has it run again.

    A name means the newest archived workflow that has it. Refused while another workflow has its name: archive that one
    first.
    """

    needs_runtime = False
    by: _By = ""

    def operation(self, _: Millis) -> UnarchiveWorkflow:
        return UnarchiveWorkflow(self.workflow, self.by)


class ClearError(WorkflowChange[Workflow], frozen=True, kw_only=True, tag="clear_error"):
    """Clear the error of a workflow once its cause is fixed: the workflow continues.

    Refused while the error is a question about a recorded call.
    """

    needs_runtime = False
    by: _By
    why: _Why = ""

    def operation(self, _: Millis) -> ClearWorkflowError:
        return ClearWorkflowError(self.workflow, self.by, self.why)


class RunAtOnce(WorkflowChange[Workflow], frozen=True, kw_only=True, tag="run_now"):
    """Run every producer and every job of a workflow now, whatever its schedule. Refused while a run is active."""

    by: _By = ""

    def operation(self, _: Millis) -> RunNow:
        return RunNow(self.workflow, self.by)


class StopActiveRun(Command[str], frozen=True, kw_only=True, tag="stop_run"):
    """End the active run of a workflow at its next call. What it did stays done.

    Its handler runs again at its next time; a consumer when something new comes, or after the longest wait between two
    tries. `keep pause` stops the run too, and starts no other. Refused if no run is active.
    """

    right = Right.OPERATE
    workflow: _WorkflowName
    run_id: Annotated[
        str | None, Meta(description="The run to stop, by id or the beginning of it; refused if another one is active.")
    ] = None
    by: _By = ""
    why: _Why = ""


# Events and items.


class PublishMessage(Command[tuple[Event, ...]], frozen=True, kw_only=True, tag="publish"):
    """Put an event into a topic, as a webhook would. A message id that is there already is the same event."""

    right = Right.OPERATE
    workflow: _WorkflowName
    topic: str
    message_id: str
    title: Annotated[str, Meta(description="The title that people see. Default: the message id.")]
    payload: Annotated[Any, Meta(description="The payload for the script. Default: null.")] = None


class SkipPendingEvent(WorkflowChange[Event], frozen=True, kw_only=True, tag="skip_event"):
    """Skip a pending event: no run will take it. One that a run holds is refused."""

    topic: str
    message_id: str
    by: _By = ""
    why: _Why = ""

    def operation(self, _: Millis) -> SkipEvent:
        return SkipEvent(self.workflow, self.topic, self.message_id, self.by, self.why)


class ItemsChange(Command[T_co], Generic[T_co], frozen=True, kw_only=True):
    """A change of logical items of a job: of these, or all in a state; with both, these as long as they are in it."""

    right = Right.OPERATE
    workflow: _WorkflowName
    item_ids: list[str] | None = None
    state: ItemState | None = None
    by: _By
    why: _Why = ""


class SkipItems(ItemsChange[list[Item]], frozen=True, kw_only=True, tag="skip_items"):
    """Skip logical items of a job: like items that are done, they make no further calls."""


class ReprocessItems(ItemsChange[list[Item]], frozen=True, kw_only=True, tag="reprocess_items"):
    """Have logical items of a job processed again: the next attempt shares nothing with those before.

    The next run of the job does everything in them once more; `keep run-now` starts it at once.
    """


# Permissions and recorded calls.


class GivePermission(Command[Workflow], frozen=True, kw_only=True, tag="grant"):
    """Give a workflow a permission, or change one. An error about this permission is cleared."""

    right = Right.GRANT
    workflow: _WorkflowName
    grant: Grant
    by: _By


class TakePermission(Command[Workflow], frozen=True, kw_only=True, tag="revoke"):
    """Take a permission back. What it covered is refused from the next call on, also in a run that is active.

    A call that waits for approval can still be approved; `keep reject` refuses it.
    """

    right = Right.GRANT
    workflow: _WorkflowName
    permission: str
    by: _By


class Approvals(Command[list[ApprovalQuestion]], frozen=True, kw_only=True, tag="approvals"):
    """List the calls that wait for approval. Only a runtime has the connectors, which know the permission of each
    call."""

    right = Right.READ
    workflow: _OneWorkflow = None
    permission: str | None = None


class ApproveCall(Command[Mutation], frozen=True, kw_only=True, tag="approve"):
    """Allow a recorded call: exactly this call is made."""

    right = Right.ANSWER
    approval_id: str
    by: _By
    why: _Why = ""


class RejectCall(StorageCommand[Mutation], frozen=True, kw_only=True, tag="reject"):
    """Refuse a recorded call: it is not made."""

    right = Right.ANSWER
    needs_runtime = False
    approval_id: str
    by: _By
    why: _Why = ""
    retry: Annotated[
        bool, Meta(description="Have a fresh run prepare again, instead of skipping the events or the item.")
    ] = False

    def operation(self, _: Millis) -> RejectMutation:
        return RejectMutation(self.approval_id, self.by, self.why, retry=self.retry)


class Unknowns(Command[list[Escalation]], frozen=True, kw_only=True, tag="unknowns"):
    """List the calls whose outcome is unknown. Only a runtime has the connectors, which say how to check."""

    right = Right.READ
    workflow: _OneWorkflow = None


class Resolve(MutationChange[Mutation], frozen=True, kw_only=True, tag="resolve"):
    """Say whether a call with an unknown outcome happened."""

    needs_runtime = False
    verdict: PersonVerdict

    def operation(self, now: Millis) -> Operation[Mutation]:
        said = GivenVerdict(self.mutation_id, self.result_text(), self.by, self.why, self.version, now)
        return VERDICTS[self.verdict].operation(said)


class Amend(MutationChange[Mutation], frozen=True, kw_only=True, tag="amend"):
    """Correct the result that a person gave with `happened`."""

    needs_runtime = False
    result: Annotated[Any, Meta(description="What the call returned.")]

    def operation(self, _: Millis) -> AmendResult:
        return AmendResult(self.mutation_id, self.result_text(), self.by, self.why, self.version)


class ParameterNames(Command[dict[str, list[str]]], frozen=True, kw_only=True, tag="parameter_names"):
    """The parameters of methods in the order of their signatures, which only the connectors of a runtime know."""

    right = Right.READ
    calls: list[str]


COMMANDS: Final[tuple[type[Command[Any]], ...]] = tuple(
    each
    for each in globals().values()
    if isinstance(each, type) and issubclass(each, Command) and not each.__subclasses__()
)
"""Every declaration above, and those about proposals: the closed table that the control socket and its tests go by."""
