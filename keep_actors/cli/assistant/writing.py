"""Tools for writing: the prompt, the types, the methods that are there, a check, and a dry run that never acts."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from keep_actors.authoring import dry_run as trying
from keep_actors.authoring.admission import DeployRefused
from keep_actors.authoring.checking import Checked, check_scripts
from keep_actors.authoring.dry_run import Difference, EventRef, Rehearsal, Simulated, WantedCall
from keep_actors.authoring.typescript import declarations
from keep_actors.authoring.writing import writing_prompt
from keep_actors.cli.assistant.arguments import NoArguments, RehearsalWanted, SourceText, WritingTask
from keep_actors.cli.assistant.desk import Desk, ToolRefused
from keep_actors.cli.assistant.quoted import TEXT_MAX, Quoted, name, ours, quoted
from keep_actors.cli.connectors import method_line
from keep_actors.cli.reader import UNREADABLE
from keep_actors.connectors import ConnectorNotOpened
from keep_actors.sandbox_pool import SandboxUnavailable
from keep_actors.text import visible
from keep_sandbox import EngineUnsuitable, JailUnavailable
from keep_sandbox.declaration import Code, Problem
from keep_storage import StorageError

_LINES_MAX = 50
_OTHER_NAME = ("the script has another name than the workflow", "give it the name of its workflow")


class PromptText(msgspec.Struct, frozen=True):
    """The prompt for a model that is to write a script."""

    prompt: str


class TypesText(msgspec.Struct, frozen=True):
    """TypeScript declarations for scripts, with the methods of the connectors that are there."""

    declarations: str


class MethodShown(msgspec.Struct, frozen=True):
    """A method that scripts can call."""

    name: str
    kind: str
    permission: str
    risk: str
    about: Quoted
    """The connector's words: for some kinds, those of a server elsewhere."""


class MethodPage(msgspec.Struct, frozen=True):
    """The methods that scripts can call here, with permissions and risks."""

    methods: list[MethodShown]


class ProblemShown(msgspec.Struct, frozen=True):
    """A problem in a script, with its place and what to do."""

    code: str
    line: int
    column: int
    message: str
    hint: str
    handler: str | None


class CheckShown(msgspec.Struct, frozen=True):
    """The findings of a deployment."""

    is_deployable: bool
    workflow: Quoted
    """The name that the script gives itself."""
    uses: list[str]
    errors: int
    problems: list[ProblemShown]
    warnings: list[ProblemShown]


class RefShown(msgspec.Struct, frozen=True):
    """A pending event."""

    topic: Quoted
    message_id: Quoted
    title: Quoted


class WantedShown(msgspec.Struct, frozen=True):
    """A call that would be made, and what the grants of today would make of it."""

    call: str
    params: Quoted
    verdict: str
    why: Quoted


class FailureShown(msgspec.Struct, frozen=True):
    """The reason why a run would stop."""

    kind: str
    message: Quoted
    place: str


class SimulatedShown(msgspec.Struct, frozen=True):
    """One run, up to the call that it wants."""

    handler: Quoted
    title: Quoted
    events: list[RefShown]
    wants: WantedShown | None
    failure: FailureShown | None
    wake_at: int | None
    logs: list[Quoted]


class PublishedShown(msgspec.Struct, frozen=True):
    """An event that a producer would publish."""

    topic: Quoted
    message_id: Quoted
    title: Quoted
    payload: Quoted
    arrival: str


class EndShown(msgspec.Struct, frozen=True):
    """A consumer after its last simulated run."""

    handler: Quoted
    rest: str
    pending: int


class RehearsalShown(msgspec.Struct, frozen=True):
    """The runs of one script."""

    version: str
    is_well: bool
    runs: list[SimulatedShown]
    ends: list[EndShown]
    published: list[PublishedShown]
    failure: FailureShown | None
    logs: list[Quoted]


class DifferenceShown(msgspec.Struct, frozen=True):
    """A difference between two scripts, about the same events."""

    kind: str
    handler: Quoted
    events: list[RefShown]
    old: WantedShown | None
    new: WantedShown | None


class DryRunShown(msgspec.Struct, frozen=True):
    """A dry run. No call was made and nothing was written."""

    workflow: Quoted
    new: RehearsalShown | None
    """None if the script could not be deployed: `problems` says why."""
    problems: list[ProblemShown]
    old: RehearsalShown | None
    differences: list[DifferenceShown]
    not_run: list[Quoted]
    """Its jobs."""
    reads_were_real: bool


async def get_writing_prompt(desk: Desk, said: WritingTask) -> PromptText:
    return PromptText(_lines(writing_prompt(desk.catalog, task=said.task)))


async def get_script_types(desk: Desk, _: NoArguments) -> TypesText:
    return TypesText(_lines(declarations(desk.catalog)))


async def list_methods(desk: Desk, _: NoArguments) -> MethodPage:
    found = map(method_line, desk.catalog.methods.values())
    return MethodPage(
        [MethodShown(each.name, each.kind, each.permission, each.risk, quoted(each.about)) for each in found]
    )


async def check_script(desk: Desk, said: SourceText) -> CheckShown:
    found = await checked(desk, said.source)
    return CheckShown(
        is_deployable=not found.problems,
        workflow=name(found.name),
        uses=found.uses,
        errors=found.count,
        problems=[problem(each) for each in found.problems],
        warnings=[problem(each) for each in found.warnings],
    )


async def checked(desk: Desk, source: str) -> Checked:
    """Inspect a script in the sandbox, as a deployment does."""
    with _needs_sandbox():
        [found] = await check_scripts([source], desk.connectors, desk.sandbox)
    return found


async def dry_run_script(desk: Desk, said: RehearsalWanted) -> DryRunShown:
    workflow = await desk.read(lambda reader: reader.workflow(said.workflow))
    try:
        with _needs_sandbox():
            report = await trying.dry_run(
                said.source,
                desk.db,
                desk.connectors,
                workflow=workflow.id,
                against=said.against or None,
                producer=said.producer or None,
                limit=said.limit,
                call_reads=desk.call_reads,
                sandbox=desk.sandbox,
            )
    except DeployRefused as refused:
        problems = [problem(each) for each in refused.problems]
        return DryRunShown(name(workflow.name), None, problems, None, [], [], desk.call_reads)
    except (trying.DryRunRefused, ConnectorNotOpened, StorageError, *UNREADABLE) as error:
        raise ToolRefused("It cannot be dry-run.", str(error)) from None
    differences = trying.compare(report.old, report.new) if report.old is not None else []
    return DryRunShown(
        workflow=name(report.workflow),
        new=_rehearsal(report.new),
        problems=[],
        old=_rehearsal(report.old) if report.old is not None else None,
        differences=[_difference(each) for each in differences],
        not_run=[name(each) for each in report.not_run],
        reads_were_real=desk.call_reads,
    )


@contextmanager
def _needs_sandbox() -> Iterator[None]:
    try:
        yield
    except (SandboxUnavailable, JailUnavailable, EngineUnsuitable) as error:
        raise ToolRefused(str(error)) from None


def problem(each: Problem) -> ProblemShown:
    line, column = (each.place.line, each.place.column) if each.place is not None else (1, 1)
    handler = None if each.handler is None else visible.spelled(each.handler)
    # The words about a name quote that of a workflow in the file: a stranger's.
    about_name = each.code in (Code.NAME_DIFFERS, Code.NAME_TAKEN)
    message, hint = _OTHER_NAME if about_name else (each.message, each.hint)
    message, hint = visible.cut(message, TEXT_MAX)[0], visible.cut(hint, TEXT_MAX)[0]
    return ProblemShown(str(each.code), line, column, message, hint, handler)


def _lines(text: str) -> str:
    return "\n".join(map(visible.spelled, text.split("\n")))


def _rehearsal(each: Rehearsal) -> RehearsalShown:
    return RehearsalShown(
        version=each.version,
        is_well=each.is_well,
        runs=[_simulated(run) for run in each.runs],
        ends=[EndShown(name(end.handler), end.rest, end.pending) for end in each.ends],
        published=[
            PublishedShown(
                name(one.topic), name(one.message_id), name(one.title), quoted(_text(one.payload)), one.arrival
            )
            for one in each.published[:_LINES_MAX]
        ],
        failure=None
        if each.failure is None
        else FailureShown(each.failure.cls, quoted(each.failure.message), each.failure.place),
        logs=[quoted(line) for line in each.logs[:_LINES_MAX]],
    )


def _simulated(run: Simulated) -> SimulatedShown:
    failure = run.failure
    return SimulatedShown(
        handler=name(run.handler),
        title=name(run.title),
        events=[_ref(each) for each in run.events[:_LINES_MAX]],
        wants=_wanted(run.wants),
        failure=None if failure is None else FailureShown(failure.cls, quoted(failure.message), failure.place),
        wake_at=run.wake_at,
        logs=[quoted(line) for line in run.logs[:_LINES_MAX]],
    )


def _difference(each: Difference) -> DifferenceShown:
    events = [_ref(event) for event in each.events[:_LINES_MAX]]
    return DifferenceShown(each.kind, name(each.handler), events, _wanted(each.old), _wanted(each.new))


def _ref(each: EventRef) -> RefShown:
    return RefShown(name(each.topic), name(each.message_id), name(each.title))


def _wanted(each: WantedCall | None) -> WantedShown | None:
    return (
        None
        if each is None
        else WantedShown(ours(each.call), quoted(_text(each.params)), each.verdict, quoted(each.why))
    )


def _text(raw: msgspec.Raw) -> str:
    return bytes(raw).decode()
