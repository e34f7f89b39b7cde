"""Reads of a workflow's actor before it acts, each from one snapshot. Writes nothing."""

from collections.abc import Callable
from itertools import takewhile

import msgspec

from keep_actors.connectors import Catalog
from keep_actors.permissions import Envelope, use_of
from keep_actors.workflow import deployment
from keep_actors.workflow.messages import Activate
from keep_actors.workflow.plan import PlannedStep, Reconcile, StartRetry, StartRun, plan
from keep_storage import reads
from keep_storage.errors import Reason, Rejected
from keep_storage.ids import Millis
from keep_storage.model import Approval, ApprovalStatus, Handler, Mutation, Run, ScriptVersion, Workflow
from keep_storage.operations import GrantUse
from keep_storage.reads import Snapshot
from keep_storage.transaction import Queries
from keep_storage.workflows import living


class Outlook(msgspec.Struct, frozen=True):
    """A workflow's snapshot, its next step, and the rows that the step needs."""

    snapshot: Snapshot
    step: PlannedStep
    envelope: Envelope
    handler: Handler | None = None
    retried: Run | None = None
    doubt: Mutation | None = None
    """The call that is to be looked for."""


def look(q: Queries, workflow_id: str, now: Millis, repairs_max: Callable[[str], int]) -> Outlook | None:
    """Read the workflow and plan its next step. None if there is no such workflow."""
    snapshot = reads.snapshot(q, workflow_id)
    if snapshot is None:
        return None
    step = plan(snapshot, now, repairs_max=repairs_max(snapshot.workflow.name))
    if isinstance(step, Reconcile):
        return Outlook(snapshot, step, Envelope(()), doubt=reads.mutation(q, step.mutation_id))
    if not isinstance(step, StartRun | StartRetry):
        return Outlook(snapshot, step, Envelope(()))
    version = snapshot.workflow.active_version_id
    envelope = Envelope(reads.envelope(q, version) if version is not None else ())
    retried = reads.run(q, step.run_id) if isinstance(step, StartRetry) else None
    return Outlook(snapshot, step, envelope, reads.handler(q, workflow_id, step.handler), retried)


def writes_seen(outlook: Outlook, handler: Handler) -> int:
    """The run may be written down only after it has looked at its topics; what comes in between is news to it."""
    return next(each.writes for each in outlook.snapshot.handlers if each.name == handler.name)


def before_deployment(q: Queries, workflow_id: str) -> deployment.DeploymentFacts:
    """The facts for a deployment. Raises `Rejected` if the workflow is archived, also for an unchanged script."""
    workflow = living(q, workflow_id) if reads.workflow(q, workflow_id) is not None else None
    latest = reads.latest_version(q, workflow_id)
    active = reads.version(q, workflow.active_version_id) if workflow and workflow.active_version_id else None
    majors = {each.major for each in (active, latest) if each is not None}
    return deployment.DeploymentFacts(
        workflow, active, latest, {each: reads.grants(q, workflow_id, each) for each in majors}
    )


def times_asked(q: Queries, approval_id: str) -> int:
    """How often in a row a person was asked about the call of this question, without an answer."""
    approval = reads.approval(q, approval_id)
    assert approval is not None, "a question is never deleted"
    return _asked(reads.approvals_of_mutation(q, approval.mutation_id))


def _asked(questions: list[Approval]) -> int:
    """Unanswered questions at the end: in an item, another try may follow an answer."""
    unanswered = (ApprovalStatus.OPEN, ApprovalStatus.EXPIRED)
    return len(list(takewhile(lambda each: each.status in unanswered, reversed(questions))))


def wanted_version(q: Queries, workflow_id: str, message: Activate) -> tuple[Workflow, ScriptVersion]:
    """The version to go back to, or the proposal that was seen. Raises `Rejected`."""
    workflow, number = reads.workflow(q, workflow_id), f"{message.number[0]}.{message.number[1]}"
    assert workflow is not None, "the workflow was found before it was asked"
    version = reads.version_by_number(q, workflow_id, *message.number)
    if message.is_proposal:
        task = reads.open_task(q, workflow_id)
        held = reads.version(q, task.held_version_id) if task is not None and task.held_version_id else None
        if held is None:
            raise Rejected(Reason.VERSION_NOT_FOUND, f"No repair of workflow {workflow.name!r} waits for a person.")
        if version is None or version.id != held.id:
            words = f"The repair that waits is version {held.major}.{held.minor}, not {number}: look at that one first."
            raise Rejected(Reason.VERSION_NOT_FOUND, words)
    if version is None:
        raise Rejected(Reason.VERSION_NOT_FOUND, f"Workflow {workflow.name!r} has no version {number}.")
    return workflow, version


def approved(
    q: Queries, workflow_id: str, approval_id: str, catalog: Catalog, now: Millis
) -> tuple[Workflow, GrantUse | None]:
    """The workflow that asks, and what the call counts against. Raises `Rejected` if its connector is missing."""
    workflow, approval = reads.workflow(q, workflow_id), reads.approval(q, approval_id)
    assert workflow is not None, "an approval is about a workflow"
    mutation = reads.mutation(q, approval.mutation_id) if approval is not None else None
    if mutation is None or workflow.active_version_id is None:
        return workflow, None
    name = f"{mutation.connector}.{mutation.method}"
    method = catalog.get(name)
    if method is None:
        words = f"This runtime has no `ctx.{name}`: open it with the connector, then approve. The question stays open."
        raise Rejected(Reason.MUTATION_NOT_SENT, words)
    envelope = Envelope(reads.envelope(q, workflow.active_version_id))
    return workflow, use_of(envelope, method.permission, now)
