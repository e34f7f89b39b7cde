"""From a script that was inspected to the operations that make it the one that runs. Pure."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from keep_actors import permissions
from keep_actors.host import Declared
from keep_actors.messages import Activate, Deploy
from keep_actors.missing import missing_methods
from keep_actors.permissions import Envelope, Grant, PermissionsNeeded
from keep_actors.policy import Policy
from keep_actors.record import Writes
from keep_actors.schedule import ScheduleError, first_run_at, next_run_at, zone
from keep_sandbox.declaration import PROBLEMS_SHOWN_MAX, Code, Declaration, Inspection, Problem, Scheduled, near
from keep_sandbox.invocation import MethodKind
from keep_sandbox.outcomes import Place
from keep_storage.ids import Ids, Millis
from keep_storage.model import Grant as StoredGrant
from keep_storage.model import HandlerKind, ScriptVersion, Workflow, WorkflowStatus
from keep_storage.operations import (
    ActivateScript,
    AddScriptVersion,
    ClearWorkflowError,
    CreateWorkflow,
    ExitMaintenanceMode,
    GrantPermission,
    HandlerSpec,
    Operation,
    ResumeWorkflow,
)


class DeployRefused(Exception):
    """The script was not deployed, and nothing changed. `problems` says what is wrong and where, with hints."""

    def __init__(self, problems: list[Problem], count: int) -> None:
        shown = "\n".join(f"  {_line(problem)}" for problem in problems)
        more = f"\n  … and {count - len(problems)} more" if count > len(problems) else ""
        super().__init__(f"the script has {count} problem(s) and was not deployed:\n{shown}{more}")
        self.problems = problems
        self.count = count


class NameTaken(DeployRefused):
    """The name of the script is that of something which the caller did not say is meant: it is in `name`."""

    def __init__(self, name: str, message: str, hint: str) -> None:
        super().__init__([Problem(code=Code.NAME_TAKEN, message=message, hint=hint)], 1)
        self.name = name


def checked(
    inspection: Inspection, methods: Mapping[str, MethodKind], timezone: str, policy: Policy, now: Millis
) -> Declared:
    """What the script declares, if nothing is wrong with it. Raises `DeployRefused` with every problem."""
    problems = list(inspection.problems)
    count = inspection.problem_count
    declaration = inspection.declaration
    if declaration is not None:
        astray = _zone_problems(timezone)
        found = [
            *astray,
            *_schedule_problems(declaration, "UTC" if astray else timezone, policy, now),
            *_name_problems(declaration),
            *_unknown_methods(inspection, methods),
        ]
        found = [_placed(problem, inspection.places) for problem in found]
        problems, count = [*problems, *found], count + len(found)
    if problems or declaration is None:
        raise DeployRefused(problems[:PROBLEMS_SHOWN_MAX], count)
    return Declared.of(inspection, methods)


class Found(msgspec.Struct, frozen=True):
    """What there is before a deployment."""

    workflow: Workflow | None
    active: ScriptVersion | None
    latest: ScriptVersion | None
    grants: Mapping[int, list[StoredGrant]]
    """By major version."""


def operations_for(message: Deploy, workflow_id: str, found: Found, ids: Ids, now: Millis) -> tuple[str, Writes]:
    """The id of the version that will run, and what has to be written. The same source again is no new version.

    Raises `NameTaken` if it would replace the script of a workflow that the caller did not name, or
    `PermissionsNeeded`.
    """
    workflow, active, latest = found.workflow, found.active, found.latest
    by, declaration, source, author = message.by, message.declared.declaration, message.source, message.author
    writes: list[Operation[Any]] = []
    if workflow is None:
        writes.append(CreateWorkflow(workflow_id, declaration.name or workflow_id, message.timezone or "UTC"))
    elif not message.is_meant and (message.is_major or not runs_already(source, active)):
        raise taken(workflow)
    same, (major, minor) = place_of(source, author, active, latest, is_major=message.is_major)
    version_id = ids.new("ver") if same is None else same.id
    if same is None:
        encoded = message.declared.encoded()
        writes.append(AddScriptVersion(version_id, workflow_id, major, minor, source, encoded, author))
    grants = _grants(message, workflow_id, major, found)
    writes += grants
    moved = workflow is not None and message.timezone not in (None, workflow.timezone)
    settles = bool(message.drop or message.move)
    if workflow is None or workflow.active_version_id != version_id or moved or settles:
        writes.append(activation(version_id, declaration, workflow, now, message.timezone, message))
    writes += (*after_activation(workflow, by), *permissions.errors_settled_by(grants))
    if message.start and (workflow is None or workflow.status in (WorkflowStatus.DRAFT, WorkflowStatus.READY)):
        writes.append(ResumeWorkflow(workflow_id, by))
    return version_id, tuple(writes)


def runs_already(source: str, active: ScriptVersion | None) -> bool:
    """Whether deploying this replaces nothing, so that no workflow has to be named."""
    return active is not None and active.source == source


def place_of(
    source: str,
    author: str,
    active: ScriptVersion | None,
    latest: ScriptVersion | None,
    *,
    is_major: bool = False,
) -> tuple[ScriptVersion | None, tuple[int, int]]:
    """The version that this source is already (the one that runs, or the newest), and the number it has or will have.

    Words of another author are another major version: grants were given for those that people looked at.
    """
    versions = [] if is_major else [each for each in (active, latest) if each is not None and each.source == source]
    if versions:
        return versions[0], (versions[0].major, versions[0].minor)
    by_another = latest is not None and latest.author != author
    return None, next_number(latest, is_major=is_major or by_another)


def activation(
    version_id: str,
    declaration: Declaration,
    workflow: Workflow | None,
    now: Millis,
    timezone: str | None = None,
    wanted: Deploy | Activate | None = None,
) -> ActivateScript:
    """What makes a version the one that runs. Without a `timezone` the workflow keeps its own. `wanted` is by a person,
    who may say what becomes of events."""
    before = workflow.timezone if workflow is not None else "UTC"
    handlers = _handlers(declaration, timezone or before, now, moved=timezone not in (None, before))
    activate = ActivateScript(version_id, tuple(declaration.topics), handlers, timezone)
    if wanted is None:
        return activate
    return msgspec.structs.replace(activate, drop=wanted.drop, move=wanted.move, by=wanted.by)


def after_activation(workflow: Workflow | None, by: str) -> Writes:
    """A person's script, be it the same, ends the repair of the last one, and the error of a repair that failed.

    It may name other connectors than those that were missing: its first run looks again.
    """
    if workflow is None:
        return ()
    gave_up = workflow.maintenance and workflow.error != "" and workflow.error_run_id is None
    looks_again = gave_up or missing_methods(workflow.error_about)
    clear = (ClearWorkflowError(workflow.id, by, "a new script"),) if looks_again else ()
    return (*((ExitMaintenanceMode(workflow.id, by),) if workflow.maintenance else ()), *clear)


def next_number(latest: ScriptVersion | None, *, is_major: bool) -> tuple[int, int]:
    """The number of the version after the latest."""
    if latest is None:
        return 1, 0
    return (latest.major + 1, 0) if is_major else (latest.major, latest.minor + 1)


def _grants(message: Deploy, workflow_id: str, major: int, found: Found) -> tuple[GrantPermission, ...]:
    known = Envelope(found.grants.get(major, ()))
    given = {each: Grant(each) for each in message.accepted if each not in known}
    given |= {each.permission: each for each in message.grants}
    if missing := [each for each in message.needed if each.permission not in known and each.permission not in given]:
        raise PermissionsNeeded(missing, _by_another(message.author, found.latest))
    return permissions.operations_for(workflow_id, major, given.values(), message.by)


def _by_another(author: str, latest: ScriptVersion | None) -> str:
    if latest is None or latest.author == author:
        return ""
    one, other = (repr(each) if each else "an author without a name" for each in (latest.author, author))
    return f"Version {latest.major}.{latest.minor} is by {one}, this is by {other}: grants are not carried over."


def _handlers(declaration: Declaration, timezone: str, now: Millis, *, moved: bool) -> tuple[HandlerSpec, ...]:
    """What runs by cron runs first at its next time, everything else by the clock at once.

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


def _zone_problems(timezone: str) -> list[Problem]:
    """The zone is kept with the workflow: a later script may have a schedule, even if this one has none."""
    try:
        zone(timezone)
    except ScheduleError as error:
        return [Problem(code=Code.SCHEDULE_INVALID, message=str(error), hint="deploy with another `timezone`")]
    return []


def taken(workflow: Workflow) -> NameTaken:
    """A script that would replace another one, and the caller did not say so."""
    message = f"there is a workflow {workflow.name!r} already ({workflow.id}), whose script is another one"
    hint = (
        f"say that it is meant (`workflow={workflow.name!r}`, in a shell `--workflow`), or give the script another name"
    )
    return NameTaken(workflow.name, message, hint)


def not_new(workflow: Workflow) -> NameTaken:
    """A script that was to be a new workflow, and has the name of one."""
    message = f"there is a workflow {workflow.name!r} already ({workflow.id}), and this was to be a new one"
    return NameTaken(workflow.name, message, "give the script another name, or archive that workflow first")


def has_settings(name: str) -> NameTaken:
    """A new script with a name for which `open(policies=...)` has settings, and the caller did not name it."""
    message = f"this runtime has settings for a workflow {name!r} (`policies`), and nobody said that this is the one"
    hint = f"say that it is meant (`workflow={name!r}`, in a shell `--new --workflow`), or give the script another name"
    return NameTaken(name, message, hint)


def other_name(name: str, workflow: str) -> DeployRefused:
    """A script for one workflow that bears the name of another."""
    message = f"the script is named {name!r} and is to be deployed as workflow {workflow!r}"
    hint = "give it the name of its workflow, or deploy it without naming one"
    return DeployRefused([Problem(code=Code.NAME_DIFFERS, message=message, hint=hint)], 1)


def _placed(problem: Problem, places: Mapping[str, Place]) -> Problem:
    """With the place of the handler that it speaks of, or of its schedule; else of the beginning."""
    if problem.place is not None:
        return problem
    handler = problem.handler or ""
    schedule = places.get(f"{handler}.schedule") if problem.code is Code.SCHEDULE_INVALID else None
    return msgspec.structs.replace(problem, place=schedule or places.get(handler) or Place(1, 1))


def _schedule_problems(declaration: Declaration, timezone: str, policy: Policy, now: Millis) -> list[Problem]:
    problems: list[Problem] = []
    for group, handlers in (("producers", declaration.producers), ("jobs", declaration.jobs)):
        for name, handler in handlers.items():
            try:
                next_run_at(handler.schedule, timezone, policy.producer_interval_ms, now)
            except ScheduleError as error:
                hint = 'write `{interval: "5m"}` (s, m, h, d) or `{cron: "0 9 * * 1-5"}`'
                where = f"{group}.{name}"
                message = f"the schedule of {where}: {error}"
                problems.append(Problem(code=Code.SCHEDULE_INVALID, message=message, hint=hint, handler=where))
    return problems


def _name_problems(declaration: Declaration) -> list[Problem]:
    """A handler's name is the key of its state: it has one, and shares it with no handler of another kind."""
    seen: dict[str, str] = {}
    problems: list[Problem] = []
    for group in ("producers", "consumers", "jobs"):
        for name in getattr(declaration, group):
            if not name:
                message, hint = f"a handler in `{group}` has no name", "give it one: its state is kept under it"
                problems.append(Problem(code=Code.HANDLER_NAME, message=message, hint=hint, handler=group))
            if name in seen:
                message = f"{group}.{name} has the name of {seen[name]}.{name}"
                hint = "rename one of them: a handler's state is kept under its name"
                problems.append(Problem(code=Code.HANDLER_NAME, message=message, hint=hint, handler=f"{group}.{name}"))
            seen.setdefault(name, group)
    return problems


def _unknown_methods(inspection: Inspection, methods: Collection[str]) -> list[Problem]:
    problems: list[Problem] = []
    for use in inspection.uses:
        if use.name in methods:
            continue
        connector = use.name.partition(".")[0]
        others = sorted(each for each in methods if each.startswith(f"{connector}.")) or sorted(methods)
        there = ", ".join(f"`ctx.{each}`" for each in others[:10]) or "none: this runtime has no connectors"
        message, hint = (
            f"`ctx.{use.name}` does not exist here",
            f"{near(use.name, others, problems)}use what there is: {there}",
        )
        problems.append(
            Problem(code=Code.METHOD_UNKNOWN, message=message, hint=hint, place=use.place, handler=use.handler)
        )
    return problems


def _line(problem: Problem) -> str:
    place = f"{problem.place.line}:{problem.place.column}: " if problem.place is not None else ""
    return f"{place}{problem.message} [{problem.code}]. {problem.hint}"
