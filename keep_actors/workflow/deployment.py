"""From a script that was inspected to the operations that make it the one that runs. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from keep_actors import permissions
from keep_actors.authoring.admission import of_another, place_of, runs_already, taken
from keep_actors.permissions import Envelope, Grant, PermissionsNeeded
from keep_actors.run.effects import Writes
from keep_actors.run.missing import missing_methods
from keep_actors.run.schedule import first_run_at
from keep_actors.workflow.messages import Activate, Deploy
from keep_sandbox.declaration import Declaration, Scheduled
from keep_storage import proposal_reads
from keep_storage.errors import Reason, Rejected
from keep_storage.ids import Ids, Millis
from keep_storage.model import HandlerKind, ScriptProposal, ScriptVersion, Workflow, WorkflowStatus
from keep_storage.model import StoredGrant as StoredGrant
from keep_storage.operations import (
    ActivateScript,
    AddScriptVersion,
    ClearWorkflowError,
    CreateWorkflow,
    DecideProposal,
    ExitMaintenanceMode,
    GrantPermission,
    HandlerSpec,
    Operation,
    ResumeWorkflow,
)


class DeploymentFacts(msgspec.Struct, frozen=True):
    """The state of a workflow before a deployment."""

    workflow: Workflow | None
    active: ScriptVersion | None
    latest: ScriptVersion | None
    grants: Mapping[int, list[StoredGrant]]
    """By major version."""


def operations_for(
    message: Deploy, workflow_id: str, found: DeploymentFacts, ids: Ids, now: Millis
) -> tuple[str, Writes]:
    """The id of the version that will run, and what has to be written. The same source again is no new version.

    Raises `NameTaken` if it would replace the script or the owner of a workflow that the caller did not name, or
    `PermissionsNeeded`.
    """
    workflow, active, latest = found.workflow, found.active, found.latest
    if message.proposal is not None:
        _was_made_from(message.proposal, active)
    by, declaration, source, author = message.by, message.declared.declaration, message.source, message.author
    writes: list[Operation[Any]] = []
    if workflow is None:
        name, zone = declaration.name or workflow_id, message.timezone or "UTC"
        writes.append(CreateWorkflow(workflow_id, name, zone, message.owner or ""))
    elif not message.is_meant:
        if message.is_major or not runs_already(source, active):
            raise taken(workflow)
        if message.owner not in (None, workflow.owner):
            raise of_another(workflow)
    same, (major, minor) = place_of(source, author, active, latest, is_major=message.is_major)
    version_id = ids.new("ver") if same is None else same.id
    if same is None:
        encoded = message.declared.encoded()
        writes.append(AddScriptVersion(version_id, workflow_id, major, minor, source, encoded, author))
    grants = _grants(message, workflow_id, major, found)
    writes += grants
    moved = workflow is not None and (
        message.timezone not in (None, workflow.timezone) or message.owner not in (None, workflow.owner)
    )
    settles = bool(message.drop or message.move)
    if workflow is None or workflow.active_version_id != version_id or moved or settles:
        writes.append(activation(version_id, declaration, workflow, now, message.timezone, message))
    writes += (*after_activation(workflow, by), *permissions.errors_settled_by(grants))
    if message.start and (workflow is None or workflow.status in (WorkflowStatus.DRAFT, WorkflowStatus.READY)):
        writes.append(ResumeWorkflow(workflow_id, by))
    if message.proposal is not None:
        writes.append(DecideProposal(message.proposal.id, by, "", version_id))
    return version_id, tuple(writes)


def _was_made_from(proposal: ScriptProposal, active: ScriptVersion | None) -> None:
    """The person has seen the difference from the script that runs: another one must not be replaced unseen."""
    if proposal_reads.is_outdated(proposal.base_version_id, active):
        words = f"Another script runs since {proposal.id!r} was proposed. Reject it, and have it made from that one."
        raise Rejected(Reason.PROPOSAL_IS_OUTDATED, words)


def activation(
    version_id: str,
    declaration: Declaration,
    workflow: Workflow | None,
    now: Millis,
    timezone: str | None = None,
    wanted: Deploy | Activate | None = None,
) -> ActivateScript:
    """The operation that activates a version. Without a `timezone` the workflow keeps its own. `wanted` is by a person,
    who may say what becomes of events."""
    before = workflow.timezone if workflow is not None else "UTC"
    handlers = _handlers(declaration, timezone or before, now, moved=timezone not in (None, before))
    activate = ActivateScript(version_id, tuple(declaration.topics), handlers, timezone)
    if wanted is None:
        return activate
    owner = wanted.owner if isinstance(wanted, Deploy) else None
    return msgspec.structs.replace(activate, drop=wanted.drop, move=wanted.move, by=wanted.by, owner=owner)


def after_activation(workflow: Workflow | None, by: str) -> Writes:
    """Deploying a script, even an unchanged one, ends maintenance and clears a failed repair's error.

    It may name other connectors than those that were missing: its first run looks again.
    """
    if workflow is None:
        return ()
    gave_up = workflow.maintenance and workflow.error != "" and workflow.error_run_id is None
    looks_again = gave_up or missing_methods(workflow.error_about)
    clear = (ClearWorkflowError(workflow.id, by, "a new script"),) if looks_again else ()
    return (*((ExitMaintenanceMode(workflow.id, by),) if workflow.maintenance else ()), *clear)


def _grants(message: Deploy, workflow_id: str, major: int, found: DeploymentFacts) -> tuple[GrantPermission, ...]:
    known = Envelope(found.grants.get(major, ()))
    terms = _terms(message, found)
    given = {each: terms.get(each, Grant(each)) for each in message.accepted if each not in known}
    given |= {each.permission: each for each in message.grants}
    if missing := [each for each in message.needed if each.permission not in known and each.permission not in given]:
        raise PermissionsNeeded(missing, _by_another(message.author, found.latest))
    return permissions.operations_for(workflow_id, major, given.values(), message.by)


def _terms(message: Deploy, found: DeploymentFacts) -> dict[str, Grant]:
    """The grants of the version that runs, whose limits an accepted proposal keeps."""
    if message.proposal is None or found.active is None:
        return {}
    return {each.permission: permissions.grant_of(each) for each in found.grants.get(found.active.major, ())}


def _by_another(author: str, latest: ScriptVersion | None) -> str:
    if latest is None or latest.author == author:
        return ""
    one, other = (repr(each) if each else "an author without a name" for each in (latest.author, author))
    return f"Version {latest.major}.{latest.minor} is by {one}, this is by {other}: grants are not carried over."


def _handlers(declaration: Declaration, timezone: str, now: Millis, *, moved: bool) -> tuple[HandlerSpec, ...]:
    """Handlers with a cron schedule run first at their next time, all other timed handlers at once.

    In another time zone the same cron expression is another schedule; an interval is the same everywhere.
    """
    timed = [(HandlerKind.PRODUCER, declaration.producers), (HandlerKind.JOB, declaration.jobs)]
    specs = [
        HandlerSpec(
            name,
            kind,
            schedule=_schedule(handler),
            first_run_at=first_run_at(handler.schedule, timezone, now),
            plan_anew=moved and handler.schedule is not None and handler.schedule.cron is not None,
        )
        for kind, handlers in timed
        for name, handler in handlers.items()
    ]
    for name, consumer in declaration.consumers.items():
        topics = tuple(dict.fromkeys(consumer.subscribe))
        specs.append(HandlerSpec(name, HandlerKind.CONSUMER, topics, consumer.ordering_key))
    return tuple(specs)


def _schedule(handler: Scheduled) -> str:
    return msgspec.json.encode(handler.schedule).decode()
