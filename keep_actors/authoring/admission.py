"""Decide if a script may be deployed, under which name, and as which version. Pure, but for `inspected`."""

from collections.abc import Callable, Collection, Mapping

import msgspec

from keep_actors.policy import Policy
from keep_actors.run.schedule import ScheduleError, next_run_at, zone
from keep_actors.sandbox_pool import SandboxPool
from keep_actors.script import StoredDeclaration
from keep_actors.text.counted import counted
from keep_sandbox.declaration import PROBLEMS_SHOWN_MAX, Code, Declaration, Inspection, Problem, near
from keep_sandbox.invocation import MethodKind
from keep_sandbox.outcomes import Place
from keep_storage.errors import Reason, Rejected
from keep_storage.ids import Millis
from keep_storage.model import ScriptVersion, Workflow


class DeployRefused(Exception):
    """The script was not deployed, and nothing changed. `problems` has the reasons with places and hints."""

    def __init__(self, problems: list[Problem], count: int) -> None:
        shown = "\n".join(f"  {_line(problem)}" for problem in problems)
        more = f"\n  … and {count - len(problems)} more" if count > len(problems) else ""
        super().__init__(f"the script has {counted(count, 'problem')} and was not deployed:\n{shown}{more}")
        self.problems = problems
        self.count = count


class NameTaken(DeployRefused):
    """The name of the script is in use, and the caller did not say that this workflow is meant."""

    def __init__(self, name: str, message: str, hint: str) -> None:
        super().__init__([Problem(code=Code.NAME_TAKEN, message=message, hint=hint)], 1)
        self.name = name


class InspectedScript(msgspec.Struct, frozen=True):
    """An inspected script, with every problem that forbids its deployment."""

    inspection: Inspection
    methods: Mapping[str, MethodKind]
    problems: list[Problem]
    """The first of them, in the order in which they were found."""
    count: int
    """The number of all problems."""

    @property
    def name(self) -> str:
        """The name of its workflow; empty if it declares none."""
        return _name_of(self.inspection)

    @property
    def lines(self) -> list[str]:
        """The problems, one line each: the place, the problem and a hint."""
        return [_line(problem) for problem in self.problems]

    def declared(self) -> StoredDeclaration:
        """The script's declaration, to be stored. Raises `DeployRefused` with the problems, if there are any."""
        if self.problems:
            raise DeployRefused(self.problems, self.count)
        return StoredDeclaration.of(self.inspection, self.methods)


async def inspected(
    pool: SandboxPool,
    source: str,
    methods: Mapping[str, MethodKind] | None,
    timezone: str,
    policy_of: Callable[[str], Policy],
    now: Millis,
) -> InspectedScript:
    """Inspect a script and judge it: the one way for deployments, repairs, checks and dry runs.

    Without `methods` all connector methods are taken to exist, and judged by their verbs. `policy_of` returns the
    policy of the workflow with that name.
    """
    inspection = await pool.inspect(source, methods)
    if methods is None:
        methods = {use.name: "read" for use in inspection.uses}
    return judged(inspection, methods, timezone, policy_of(_name_of(inspection)), now)


def judged(
    inspection: Inspection, methods: Mapping[str, MethodKind], timezone: str, policy: Policy, now: Millis
) -> InspectedScript:
    """Add the problems that only the runtime can see to those of the inspection."""
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
    return InspectedScript(inspection, methods, problems[:PROBLEMS_SHOWN_MAX], count)


def _name_of(inspection: Inspection) -> str:
    return (inspection.declaration.name if inspection.declaration is not None else None) or ""


def runs_already(source: str, active: ScriptVersion | None) -> bool:
    """Return True if this source is already active: deploying it replaces nothing."""
    return active is not None and active.source == source


def place_of(
    source: str,
    author: str,
    active: ScriptVersion | None,
    latest: ScriptVersion | None,
    *,
    is_major: bool = False,
) -> tuple[ScriptVersion | None, tuple[int, int]]:
    """The version that already has this source (the active or the newest one), and its number, or that of a new one.

    A script by another author is a new major version: grants were given for code that people have read.
    """
    versions = [] if is_major else [each for each in (active, latest) if each is not None and each.source == source]
    if versions:
        return versions[0], (versions[0].major, versions[0].minor)
    by_another = latest is not None and latest.author != author
    return None, next_number(latest, is_major=is_major or by_another)


def next_number(latest: ScriptVersion | None, *, is_major: bool) -> tuple[int, int]:
    """The number of the version after the latest."""
    if latest is None:
        return 1, 0
    return (latest.major + 1, 0) if is_major else (latest.major, latest.minor + 1)


def _zone_problems(timezone: str) -> list[Problem]:
    """Check the zone even if there is no schedule: it is kept with the workflow, for later scripts."""
    try:
        zone(timezone)
    except ScheduleError as error:
        return [Problem(code=Code.SCHEDULE_INVALID, message=str(error), hint="deploy with another `timezone`")]
    return []


def taken(workflow: Workflow) -> NameTaken:
    """Refuse a script that would replace another one, if the caller has not named that workflow."""
    message = f"the workflow {workflow.name!r} ({workflow.id}) already exists, with another script"
    hint = f"to replace it, name it (`workflow={workflow.name!r}`, in a shell `--workflow`), or rename the script"
    return NameTaken(workflow.name, message, hint)


def of_another(workflow: Workflow) -> NameTaken:
    """Refuse a script that would give a workflow another owner, if the caller has not named that workflow."""
    message = f"the workflow {workflow.name!r} ({workflow.id}) already exists, with this script and another owner"
    hint = f"to hand it over, name it (`workflow={workflow.name!r}`, in a shell `--workflow`), or rename the script"
    return NameTaken(workflow.name, message, hint)


def not_new(workflow: Workflow) -> NameTaken:
    """Refuse a script for a new workflow whose name is in use."""
    message = f"the workflow {workflow.name!r} ({workflow.id}) already exists, but a new one was asked for"
    return NameTaken(workflow.name, message, "give the script another name, or archive that workflow first")


def has_settings(name: str) -> NameTaken:
    """Refuse a new script whose name has settings in `open(policies=...)`, unless the caller names it."""
    message = f"this runtime has settings for a workflow {name!r} (`policies`), but the call does not name it"
    hint = f"to use them, name it (`workflow={name!r}`, in a shell `--new --workflow`), or rename the script"
    return NameTaken(name, message, hint)


def other_name(name: str, workflow: str) -> DeployRefused:
    """Refuse a script for one workflow that has the name of another."""
    message = f"the script is named {name!r}, but is deployed as workflow {workflow!r}"
    hint = "give it the name of its workflow, or deploy it without naming one"
    return DeployRefused([Problem(code=Code.NAME_DIFFERS, message=message, hint=hint)], 1)


def _placed(problem: Problem, places: Mapping[str, Place]) -> Problem:
    """Add the place of the problem's handler, or of its schedule; else the beginning of the script."""
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
    """Check that each handler has a name of its own, also among other kinds: it is the key of its state."""
    seen: dict[str, str] = {}
    problems: list[Problem] = []
    for group in ("producers", "consumers", "jobs"):
        for name in getattr(declaration, group):
            if not name:
                message, hint = f"a handler in `{group}` has no name", "give it one: its state is kept under it"
                problems.append(Problem(code=Code.HANDLER_NAME, message=message, hint=hint, handler=group))
            if name in seen:
                message = f"{group}.{name} has the same name as {seen[name]}.{name}"
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
        there = ", ".join(f"`ctx.{each}`" for each in others[:10])
        message = f"`ctx.{use.name}` does not exist here"
        hint = f"{near(use.name, others, problems)}use one of {there}" if there else "this runtime has no connectors"
        problems.append(
            Problem(code=Code.METHOD_UNKNOWN, message=message, hint=hint, place=use.place, handler=use.handler)
        )
    return problems


def _line(problem: Problem) -> str:
    place = f"{problem.place.line}:{problem.place.column}: " if problem.place is not None else ""
    return f"{place}{problem.message} [{problem.code}]. {problem.hint}"


def version_number(text: str) -> tuple[int, int]:
    """Parse `"1.2"`. Raises `Rejected`."""
    major, dot, minor = text.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise Rejected(Reason.VERSION_NOT_FOUND, f"{text!r} is not a version; write major.minor, as in 1.2.")
    return int(major), int(minor)
