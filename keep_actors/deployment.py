"""From a script that was inspected to the operations that make it the one that runs. Pure."""

from typing import Any

import msgspec

from keep_actors.policy import Policy
from keep_actors.schedule import ScheduleError, next_run_at, zone
from keep_sandbox.declaration import PROBLEMS_SHOWN_MAX, Code, Declaration, Inspection, Problem, Scheduled
from keep_storage.ids import Ids, Millis
from keep_storage.model import HandlerKind, ScriptVersion, Workflow, WorkflowStatus
from keep_storage.operations import (
    ActivateScript,
    AddScriptVersion,
    CreateWorkflow,
    ExitMaintenanceMode,
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


def checked(inspection: Inspection, timezone: str, policy: Policy, now: Millis) -> Declaration:
    """The declaration, if nothing is wrong with the script. Raises `DeployRefused` with every problem."""
    problems = list(inspection.problems)
    count = inspection.problem_count
    declaration = inspection.declaration
    if declaration is not None:
        astray = _zone_problems(timezone)
        found = [
            *astray,
            *_schedule_problems(declaration, "UTC" if astray else timezone, policy, now),
            *_name_problems(declaration),
        ]
        problems, count = [*problems, *found], count + len(found)
    if problems or declaration is None:
        raise DeployRefused(problems[:PROBLEMS_SHOWN_MAX], count)
    return declaration


def operations_for(
    *,
    workflow_id: str,
    workflow: Workflow | None,
    latest: ScriptVersion | None,
    source: str,
    declaration: Declaration,
    timezone: str,
    is_major: bool,
    start: bool,
    by: str,
    ids: Ids,
    now: Millis,
) -> tuple[str, tuple[Operation[Any], ...]]:
    """The id of the version that will run, and what has to be written. The same source again is no new version."""
    writes: list[Operation[Any]] = []
    if workflow is None:
        writes.append(CreateWorkflow(workflow_id, declaration.name or workflow_id, timezone))
    version_id = latest.id if latest is not None else ""
    if latest is None or latest.source != source or is_major:
        version_id = ids.new("ver")
        major, minor = _number(latest, is_major)
        declared = msgspec.json.encode(declaration).decode()
        writes.append(AddScriptVersion(version_id, workflow_id, major, minor, source, declared))
    if workflow is None or workflow.active_version_id != version_id:
        writes.append(ActivateScript(version_id, tuple(declaration.topics), _handlers(declaration, now)))
        if workflow is not None and workflow.maintenance:
            writes.append(ExitMaintenanceMode(workflow_id, by))
    if start and (workflow is None or workflow.status in (WorkflowStatus.DRAFT, WorkflowStatus.READY)):
        writes.append(ResumeWorkflow(workflow_id, by))
    return version_id, tuple(writes)


def _number(latest: ScriptVersion | None, is_major: bool) -> tuple[int, int]:
    if latest is None:
        return 1, 0
    return (latest.major + 1, 0) if is_major else (latest.major, latest.minor + 1)


def _handlers(declaration: Declaration, now: Millis) -> tuple[HandlerSpec, ...]:
    """Everything that runs by the clock runs first at once."""
    timed = [(HandlerKind.PRODUCER, declaration.producers), (HandlerKind.JOB, declaration.jobs)]
    specs = [
        HandlerSpec(name, kind, schedule=_schedule(handler), first_run_at=now)
        for kind, handlers in timed
        for name, handler in handlers.items()
    ]
    for name, consumer in declaration.consumers.items():
        specs.append(HandlerSpec(name, HandlerKind.CONSUMER, subscribe=tuple(dict.fromkeys(consumer.subscribe))))
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
                problems.append(Problem(code=Code.HANDLER_MISSING, message=message, hint=hint, handler=group))
            if name in seen:
                message = f"{group}.{name} has the name of {seen[name]}.{name}"
                hint = "rename one of them: a handler's state is kept under its name"
                problems.append(
                    Problem(code=Code.HANDLER_MISSING, message=message, hint=hint, handler=f"{group}.{name}")
                )
            seen.setdefault(name, group)
    return problems


def _line(problem: Problem) -> str:
    place = f"{problem.place.line}:{problem.place.column}: " if problem.place is not None else ""
    return f"{place}{problem.message} [{problem.code}]. {problem.hint}"
