"""The facts for a dry run, read from a file in one snapshot on a connection that cannot write."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from keep_actors.authoring import admission
from keep_actors.authoring.admission import version_number
from keep_actors.authoring.dry_run import backlog
from keep_actors.authoring.dry_run.backlog import Pending
from keep_actors.authoring.dry_run.report import DryRunRefused
from keep_actors.kernel import WorkerThread
from keep_actors.permissions import day_of
from keep_actors.script import Script, StoredDeclaration
from keep_storage import reads
from keep_storage.errors import Rejected
from keep_storage.ids import Millis
from keep_storage.model import Json, ScriptVersion, Workflow
from keep_storage.model import StoredGrant as StoredGrant
from keep_storage.transaction import Queries, Reader

T = TypeVar("T")


class DryRunFacts(msgspec.Struct, frozen=True):
    """All that a dry run needs of a file."""

    workflow: Workflow
    major: int
    """The major version whose grants apply: a change is a minor version, unless it is by another author."""
    against: ScriptVersion | None
    grants: Mapping[int, list[StoredGrant]]
    used: Mapping[str, int]
    """The calls of today, by permission."""
    states: Mapping[str, Json | None]
    pending: Mapping[str, Pending]


async def read(reader: Reader, function: Callable[[Queries], T]) -> T:
    """Ask the file, away from the event loop; everything that is asked sees one moment."""

    def inside() -> T:
        with reader.snapshot():
            return function(reader)

    return await WorkerThread().run(inside)


class WantedScript(msgspec.Struct, frozen=True):
    """The script, and whose it is to be, as for a deployment."""

    source: str
    declared: StoredDeclaration
    workflow: str | None
    author: str


def find(q: Queries, wanted: WantedScript, against: str | None, at: Millis) -> DryRunFacts:
    """Read the facts for the named workflow. Raises `DryRunRefused` or `DeployRefused`."""
    declaration = wanted.declared.declaration
    named = wanted.workflow or declaration.name or ""
    workflow = (reads.workflow(q, named) if wanted.workflow else None) or reads.workflow_by_name(q, named)
    if workflow is None:
        names = ", ".join(repr(each.name) for each in reads.workflows(q)[:10]) or "none"
        words = f"the file has no workflow {named!r}, so nothing is pending for it; there are: {names}"
        raise DryRunRefused(words)
    if workflow.name != declaration.name:
        raise admission.other_name(declaration.name or "", workflow.name)
    active = reads.version(q, workflow.active_version_id) if workflow.active_version_id else None
    # Its reads are made with the grants of the workflow, so it is not the script that says which one.
    if wanted.workflow is None and not admission.runs_already(wanted.source, active):
        raise admission.taken(workflow)
    latest = reads.latest_version(q, workflow.id)
    _, (major, _) = admission.place_of(wanted.source, wanted.author, active, latest)
    old = _version(q, workflow, against) if against is not None else None
    majors = {major, *([old.major] if old is not None else [])}
    grants = {major: reads.grants(q, workflow.id, major) for major in majors}
    permissions_known = {grant.permission for each in grants.values() for grant in each}
    consumers = [*declaration.consumers.values(), *(Script.of(old).declaration.consumers.values() if old else ())]
    topics = dict.fromkeys(topic for consumer in consumers for topic in consumer.subscribe)
    return DryRunFacts(
        workflow=workflow,
        major=major,
        against=old,
        grants=grants,
        used={each: reads.calls_on_day(q, workflow.id, each, day_of(at)) for each in permissions_known},
        states={handler.name: handler.state for handler in reads.handlers(q, workflow.id)},
        pending=backlog.load(q, workflow.id, topics),
    )


def _version(q: Queries, workflow: Workflow, number: str) -> ScriptVersion:
    try:
        version = reads.version_by_number(q, workflow.id, *version_number(number))
    except Rejected as error:
        raise DryRunRefused(str(error)) from None
    if version is None:
        there = ", ".join(f"{each.major}.{each.minor}" for each in reads.versions(q, workflow.id)) or "none"
        raise DryRunRefused(f"workflow {workflow.name!r} has no version {number}; there are: {there}")
    return version
