"""Workflows and their scripts. `status` is what people want; it changes here and only when a person asks."""

from msgspec.structs import replace

from keep_storage import event_rows, retired_topics, rows
from keep_storage.errors import Reason, reject, storable
from keep_storage.ids import Millis
from keep_storage.journal import Change, changed
from keep_storage.model import Handler, HandlerKind, ScriptVersion, Topic, Workflow, WorkflowStatus
from keep_storage.operations import (
    ActivateScript,
    AddScriptVersion,
    CreateWorkflow,
    HaltWorkflow,
    HandlerSpec,
    PauseWorkflow,
    ResumeWorkflow,
    RunNow,
    UnarchiveWorkflow,
)
from keep_storage.ordering import ordering_key
from keep_storage.transaction import Queries, Transaction
from keep_storage.transitions import WORKFLOW_NEXT

_PAGE = 1_000


def existing(q: Queries, workflow_id: str) -> Workflow:
    workflow = rows.workflow(q, workflow_id)
    return workflow or reject(Reason.WORKFLOW_NOT_FOUND, f"There is no workflow {workflow_id!r}.")


def living(q: Queries, workflow_id: str) -> Workflow:
    """A workflow that is not archived."""
    workflow = existing(q, workflow_id)
    if workflow.status is WorkflowStatus.ARCHIVED:
        reject(
            Reason.WORKFLOW_STATUS_REFUSED,
            f"Workflow {workflow.name!r} ({workflow.id}) is archived; nothing of it runs. Unarchive it first.",
        )
    return workflow


def create_workflow(tx: Transaction, op: CreateWorkflow, now: Millis) -> Change[Workflow]:
    if rows.workflow(tx, op.id):
        reject(Reason.ID_TAKEN, f"There is already a workflow {op.id!r}.")
    workflow = Workflow(
        id=op.id,
        name=op.name,
        timezone=op.timezone,
        status=WorkflowStatus.DRAFT,
        error="",
        error_class=None,
        error_run_id=None,
        maintenance=False,
        maintenance_run_id=None,
        pending_retry_run_id=None,
        active_version_id=None,
        created_at=now,
        updated_at=now,
        error_about="",
        owner=op.owner,
    )
    rows.insert_workflow(tx, workflow)
    owned = {"owner": op.owner} if op.owner else {}
    return changed(workflow, op.id, None, name=op.name, status=workflow.status, **owned)


def add_script_version(tx: Transaction, op: AddScriptVersion, now: Millis) -> Change[ScriptVersion]:
    living(tx, op.workflow_id)
    if op.major < 0 or op.minor < 0:
        reject(Reason.VERSION_INVALID, f"Version {op.major}.{op.minor} is not one; count from 0.")
    if rows.version(tx, op.id):
        reject(Reason.ID_TAKEN, f"There is already a script version {op.id!r}.")
    if rows.version_by_number(tx, op.workflow_id, op.major, op.minor):
        reject(
            Reason.VERSION_EXISTS,
            f"Workflow {op.workflow_id!r} already has version {op.major}.{op.minor}; versions never change.",
        )
    if (before := rows.version_of_major(tx, op.workflow_id, op.major)) and before.author != op.author:
        reject(
            Reason.VERSION_INVALID,
            f"Version {op.major} of workflow {op.workflow_id!r} is by {before.author!r}, and this by {op.author!r}; "
            "grants are for the words of one author. Count it as another major version.",
        )
    version = ScriptVersion(
        id=op.id,
        workflow_id=op.workflow_id,
        major=op.major,
        minor=op.minor,
        source=op.source,
        declaration=op.declaration,
        created_at=now,
        activated_at=None,
        author=op.author,
    )
    rows.insert_version(tx, version)
    number = f"{op.major}.{op.minor}"
    return changed(version, op.workflow_id, None, version=op.id, number=number, author=op.author)


def activate_script(tx: Transaction, op: ActivateScript, now: Millis) -> Change[Workflow]:
    version = rows.version(tx, op.version_id) or reject(
        Reason.VERSION_NOT_FOUND, f"There is no script version {op.version_id!r}."
    )
    workflow = living(tx, version.workflow_id)
    if active := rows.active_runs(tx, workflow.id):
        reject(
            Reason.RUN_ALREADY_ACTIVE,
            f"Run {active[0].id!r} is active; a script is exchanged between runs. Try again when it ends.",
        )
    _keeps_the_handler_that_waits(tx, workflow, op)
    readings = _reading_of_each_topic(op)
    retired_topics.check(tx, workflow.id, op)

    before = rows.declared_topics(tx, workflow.id)
    rows.replace_topics(tx, workflow.id, readings)
    settled = retired_topics.settle(tx, workflow.id, op, now)
    receiving = {new for _, new in op.move}
    for name, topic in rows.declared_topics(tx, workflow.id).items():
        if name not in before or before[name].ordering != topic.ordering or name in receiving:
            _order_anew(tx, topic)
    handlers = ((_handler(workflow.id, spec, now), spec.plan_anew) for spec in op.handlers)
    rows.replace_handlers(tx, workflow.id, handlers, is_repair=op.is_repair)
    rows.mark_version_activated(tx, version.id, now)
    status = WorkflowStatus.READY if workflow.status is WorkflowStatus.DRAFT else workflow.status
    timezone = op.timezone or workflow.timezone
    owner = workflow.owner if op.owner is None else op.owner
    handed_over = {"owner": [workflow.owner, owner]} if owner != workflow.owner else {}
    workflow = replace(
        workflow, active_version_id=version.id, timezone=timezone, owner=owner, status=status, updated_at=now
    )
    rows.save_workflow(tx, workflow)
    said = {"number": f"{version.major}.{version.minor}", "status": status, **settled, **handed_over}
    return changed(workflow, workflow.id, None, version=version.id, **said, by=op.by)


def _order_anew(tx: Transaction, topic: Topic) -> None:
    """The consumer of a topic finds the ordering key elsewhere now: what is unfinished gets the key that is there."""
    after = 0
    while page := event_rows.unfinished_events(tx, topic.id, after, _PAGE):
        after = page[-1].seq
        for event in page:
            key = ordering_key(event.payload, topic.ordering)
            if key != event.ordering_key:
                event_rows.set_ordering_key(tx, event.id, key)


def _keeps_the_handler_that_waits(q: Queries, workflow: Workflow, op: ActivateScript) -> None:
    """A pending retry runs `next` of the new script: without that handler its events would be held for ever."""
    retry = rows.run(q, workflow.pending_retry_run_id) if workflow.pending_retry_run_id else None
    consumers = {spec.name for spec in op.handlers if spec.kind is HandlerKind.CONSUMER}
    for waiting in [*([retry] if retry else []), *rows.parked_runs(q, workflow.id)]:
        if waiting.kind is HandlerKind.CONSUMER and waiting.handler not in consumers:
            reject(
                Reason.HANDLER_NOT_DECLARED,
                f"Run {waiting.id!r} of consumer {waiting.handler!r} waits for its `next`, and this script does not "
                "declare that consumer. Keep it, or settle the run first.",
            )


def _reading_of_each_topic(op: ActivateScript) -> dict[str, rows.Reading]:
    """The reader of each topic. Refuses what a script may not declare."""
    readings = dict.fromkeys(op.topics, rows.Reading())
    names: set[str] = set()
    for handler in op.handlers:
        if handler.name in names:
            reject(
                Reason.HANDLER_DECLARED_TWICE,
                f"Handler {handler.name!r} is declared twice; its state would be shared. Rename one.",
            )
        names.add(handler.name)
        if handler.subscribe and handler.kind is not HandlerKind.CONSUMER:
            reject(
                Reason.ONLY_CONSUMERS_SUBSCRIBE,
                f"Handler {handler.name!r} is a {handler.kind} and subscribes to {handler.subscribe[0]!r}; "
                "only consumers read topics.",
            )
        if handler.ordering is not None and (handler.kind is not HandlerKind.CONSUMER or not handler.ordering):
            reject(
                Reason.ONLY_CONSUMERS_ORDER,
                f"Handler {handler.name!r} is a {handler.kind} with the ordering key {handler.ordering!r}; "
                "only consumers have one, and it names a member of the payload.",
            )
        for topic in handler.subscribe:
            if topic not in readings:
                reject(
                    Reason.TOPIC_NOT_DECLARED,
                    f"Handler {handler.name!r} subscribes to {topic!r}, which the script does not declare. "
                    "Add it to `topics`.",
                )
            if readings[topic].consumer not in (None, handler.name):
                reject(
                    Reason.TOPIC_HAS_TWO_CONSUMERS,
                    f"Topic {topic!r} has two consumers, {readings[topic].consumer!r} and {handler.name!r}; "
                    "a topic has one. Let one consumer publish to a second topic for the other.",
                )
            readings[topic] = rows.Reading(handler.name, handler.ordering)
    return readings


def _handler(workflow_id: str, spec: HandlerSpec, now: Millis) -> Handler:
    timed = spec.kind is not HandlerKind.CONSUMER
    return Handler(
        workflow_id=workflow_id,
        name=spec.name,
        kind=spec.kind,
        declared=True,
        schedule=spec.schedule if timed else None,
        next_run_at=spec.first_run_at if timed else None,
        wake_at=None,
        seen=None,
        failures=0,
        failing_since=None,
        retry_at=None,
        repairs=0,
        updated_at=now,
        state=None,
    )


def pause_workflow(tx: Transaction, op: PauseWorkflow, now: Millis) -> Change[Workflow]:
    living(tx, op.workflow_id)
    return set_status(tx, op.workflow_id, WorkflowStatus.PAUSED, op.by, now)


def resume_workflow(tx: Transaction, op: ResumeWorkflow, now: Millis) -> Change[Workflow]:
    living(tx, op.workflow_id)
    change = set_status(tx, op.workflow_id, WorkflowStatus.ACTIVE, op.by, now)
    rows.fail_since_now(tx, op.workflow_id, now)
    return change


def unarchive_workflow(tx: Transaction, op: UnarchiveWorkflow, now: Millis) -> Change[Workflow]:
    workflow = existing(tx, op.workflow_id)
    if workflow.status is not WorkflowStatus.ARCHIVED:
        reject(Reason.WORKFLOW_STATUS_REFUSED, f"Workflow {workflow.id!r} is {workflow.status}, not archived.")
    if other := rows.workflow_by_name(tx, workflow.name):
        reject(
            Reason.WORKFLOW_NAME_TAKEN,
            f"Another workflow ({other.id}) is named {workflow.name!r} by now; archive that one first.",
        )
    status = WorkflowStatus.PAUSED if workflow.active_version_id else WorkflowStatus.DRAFT
    return set_status(tx, op.workflow_id, status, op.by, now)


def set_status(tx: Transaction, workflow_id: str, status: WorkflowStatus, by: str, now: Millis) -> Change[Workflow]:
    """Touches nothing but the status: runs, events, mutations and `error` stay as they are."""
    workflow = existing(tx, workflow_id)
    if status not in WORKFLOW_NEXT[workflow.status]:
        reject(
            Reason.WORKFLOW_STATUS_REFUSED,
            f"Workflow {workflow_id!r} is {workflow.status}; it cannot become {status}.",
        )
    before, workflow = workflow.status, replace(workflow, status=status, updated_at=now)
    rows.save_workflow(tx, workflow)
    return changed(workflow, workflow_id, None, status=[before, status], by=by)


def run_now(tx: Transaction, op: RunNow, now: Millis) -> Change[Workflow]:
    workflow = existing(tx, op.workflow_id)
    active = rows.active_runs(tx, workflow.id)
    check_free(workflow.id, workflow.status, workflow.error, workflow.maintenance, active[0].id if active else None)
    rows.make_handlers_due(tx, workflow.id, now)
    return changed(workflow, workflow.id, None, due=now, by=op.by)


def check_free(
    workflow_id: str, status: WorkflowStatus, error: str, maintenance: bool, active_run_id: str | None
) -> None:
    """Refuses what starts something while something is in the way."""
    if status is not WorkflowStatus.ACTIVE:
        reject(Reason.WORKFLOW_NOT_ACTIVE, f"Workflow {workflow_id!r} is {status}.")
    if error:
        reject(Reason.WORKFLOW_HAS_ERROR, f"Workflow {workflow_id!r} waits for a person: {error}")
    if maintenance:
        reject(Reason.WORKFLOW_IN_MAINTENANCE, f"The script of workflow {workflow_id!r} is under repair.")
    if active_run_id:
        reject(Reason.RUN_ALREADY_ACTIVE, f"Run {active_run_id!r} of workflow {workflow_id!r} is still active.")


def halt_workflow(tx: Transaction, op: HaltWorkflow, now: Millis) -> Change[Workflow]:
    workflow = existing(tx, op.workflow_id)
    if workflow.status is WorkflowStatus.ARCHIVED:
        reject(Reason.WORKFLOW_STATUS_REFUSED, f"Workflow {workflow.id!r} is archived; nothing of it runs.")
    if not op.error.strip():
        reject(Reason.TEXT_INVALID, f"Workflow {workflow.id!r} is not halted without an error that a person can read.")
    was = workflow.error
    if not was:
        workflow = replace(workflow, error=storable(op.error), error_class=op.cls, updated_at=now)
        rows.save_workflow(tx, workflow)
    return changed(workflow, workflow.id, None, storable(op.error), error=[was, workflow.error])
