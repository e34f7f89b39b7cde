"""What a file has for a dry run, read in one moment on a connection that cannot write."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from keep_actors.dry_run import backlog
from keep_actors.dry_run.backlog import Pending
from keep_actors.dry_run.report import DryRunRefused
from keep_actors.host import Declared, Script
from keep_actors.keep_reads import version_number
from keep_actors.kernel import WorkerThread
from keep_actors.permissions import day_of
from keep_storage import reads
from keep_storage.errors import Rejected
from keep_storage.ids import Millis
from keep_storage.model import Grant as StoredGrant
from keep_storage.model import Json, ScriptVersion, Workflow
from keep_storage.transaction import Queries, Reader

T = TypeVar("T")


class Found(msgspec.Struct, frozen=True):
    """All that a dry run needs of a file."""

    workflow: Workflow
    major: int
    """Whose grants a new script would have: a change is a minor version."""
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


def find(q: Queries, declared: Declared, against: str | None, at: Millis) -> Found:
    """What there is for the workflow of this name. Raises `DryRunRefused`."""
    declaration = declared.declaration
    workflow = reads.workflow_by_name(q, declaration.name or "")
    if workflow is None:
        names = ", ".join(repr(each.name) for each in reads.workflows(q)[:10]) or "none"
        words = f"the file has no workflow {declaration.name!r}, so nothing is pending for it; there are: {names}"
        raise DryRunRefused(words)
    latest = reads.latest_version(q, workflow.id)
    old = _version(q, workflow, against) if against is not None else None
    majors = {each.major for each in (latest, old) if each is not None}
    grants = {major: reads.grants(q, workflow.id, major) for major in majors}
    permissions_known = {grant.permission for each in grants.values() for grant in each}
    consumers = [*declaration.consumers.values(), *(Script.of(old).declaration.consumers.values() if old else ())]
    topics = dict.fromkeys(topic for consumer in consumers for topic in consumer.subscribe)
    return Found(
        workflow=workflow,
        major=latest.major if latest is not None else 1,
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
