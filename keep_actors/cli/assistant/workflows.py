"""Tools about workflows: the list of them, one of them, and the script that it runs."""

import msgspec

from keep_actors.api.views import version_text
from keep_actors.authoring.admission import version_number
from keep_actors.cli.assistant import shown
from keep_actors.cli.assistant.arguments import OneScript, OneWorkflow, PageOfWorkflows
from keep_actors.cli.assistant.desk import Desk, ToolRefused
from keep_actors.cli.assistant.looking import MatterShown, matter
from keep_actors.cli.assistant.quoted import Quoted, name, ours, quoted, quoted_lines
from keep_actors.cli.assistant.shown import RunShown
from keep_actors.cli.reader import FileReader
from keep_actors.cli.status import StatusLine, detail, lines
from keep_actors.script import Script
from keep_storage import reads
from keep_storage.ids import Millis
from keep_storage.model import Handler, WorkflowStatus

_VERSIONS_MAX = 50


class WorkflowShown(msgspec.Struct, frozen=True):
    """A workflow in the list."""

    workflow_id: str
    name: Quoted
    status: str
    is_running: bool
    is_interrupted: bool
    in_maintenance: bool
    needs_a_person: bool
    error: Quoted
    due_at: Millis | None
    pending: int
    unsettled: int
    items: dict[str, int]
    failing: list[Quoted]


class WorkflowPage(msgspec.Struct, frozen=True):
    """Workflows, oldest first."""

    runtime: str
    workflows: list[WorkflowShown]


class HandlerShown(msgspec.Struct, frozen=True):
    """A handler of a workflow."""

    kind: str
    name: Quoted
    schedule: Quoted
    next_run_at: Millis | None
    wake_at: Millis | None
    retry_at: Millis | None
    failures: int


class GrantShown(msgspec.Struct, frozen=True):
    """A permission that a person gave."""

    permission: str
    policy: str
    limits: str


class TopicShown(msgspec.Struct, frozen=True):
    """A topic in which events wait."""

    topic: Quoted
    pending: int


class WorkflowDetail(msgspec.Struct, frozen=True):
    """One workflow."""

    workflow: WorkflowShown
    version: str | None
    timezone: str
    handlers: list[HandlerShown]
    topics: list[TopicShown]
    grants: list[GrantShown]
    attention: list[MatterShown]
    runs: list[RunShown]


class VersionShown(msgspec.Struct, frozen=True):
    """A version of a script."""

    version: str
    author: Quoted
    activated_at: Millis | None


class ScriptShown(msgspec.Struct, frozen=True):
    """The script of a workflow, and its versions, newest first."""

    workflow_id: str
    version: str
    is_active: bool
    uses: list[Quoted]
    """The methods that it names."""
    source: Quoted
    versions: list[VersionShown]


async def list_workflows(desk: Desk, said: PageOfWorkflows) -> WorkflowPage:
    def look(reader: FileReader) -> WorkflowPage:
        wanted = [
            each
            for each in lines(reader)
            if each.id > said.after and (said.archived or each.status is not WorkflowStatus.ARCHIVED)
        ]
        return WorkflowPage(reader.runtime, [_workflow(each) for each in wanted[: said.limit]])

    return await desk.read(look)


async def show_workflow(desk: Desk, said: OneWorkflow) -> WorkflowDetail:
    def look(reader: FileReader) -> WorkflowDetail:
        found = reader.workflow(said.workflow)
        [line] = [each for each in lines(reader) if each.id == found.id]
        one = detail(reader, found, line)
        return WorkflowDetail(
            workflow=_workflow(line),
            version=one.version,
            timezone=ours(one.timezone),
            handlers=[_handler(each) for each in one.handlers],
            topics=[TopicShown(name(topic), count) for topic, count in one.pending.items()],
            grants=[GrantShown(ours(each.permission), each.policy, ours(each.limits)) for each in one.grants],
            attention=[matter(each) for each in one.attention],
            runs=[shown.run(each) for each in one.runs],
        )

    return await desk.read(look)


async def read_script(desk: Desk, said: OneScript) -> ScriptShown:
    def look(reader: FileReader) -> ScriptShown:
        found = reader.workflow(said.workflow)
        if said.version:
            version = reads.version_by_number(reader.q, found.id, *version_number(said.version))
        else:
            version = reads.version(reader.q, found.active_version_id) if found.active_version_id else None
        if version is None:
            raise ToolRefused(f"Workflow {found.id} has no version {said.version or 'that runs'}.")
        versions = reads.versions(reader.q, found.id)[:_VERSIONS_MAX]
        return ScriptShown(
            workflow_id=found.id,
            version=version_text(version),
            is_active=version.id == found.active_version_id,
            uses=[name(each) for each in Script.of(version).uses],
            source=quoted_lines(version.source),
            versions=[VersionShown(version_text(each), name(each.author), each.activated_at) for each in versions],
        )

    return await desk.read(look)


def _workflow(line: StatusLine) -> WorkflowShown:
    return WorkflowShown(
        workflow_id=line.id,
        name=name(line.name),
        status=line.status,
        is_running=line.is_running,
        is_interrupted=line.is_interrupted,
        in_maintenance=line.maintenance,
        needs_a_person=line.needs_a_person,
        error=quoted(line.error),
        due_at=line.due_at,
        pending=line.pending,
        unsettled=line.unsettled,
        items={str(state): count for state, count in line.items.items()},
        failing=[name(each.handler) for each in line.failing],
    )


def _handler(each: Handler) -> HandlerShown:
    return HandlerShown(
        kind=each.kind,
        name=name(each.name),
        schedule=name(each.schedule or ""),
        next_run_at=each.next_run_at,
        wake_at=each.wake_at,
        retry_at=each.retry_at,
        failures=each.failures,
    )
