"""What has waited for long though nobody was asked: failing handlers, old events, expired questions. Reads only."""

from keep_storage.ids import Millis
from keep_storage.model import Event, Handler, Mutation, Workflow
from keep_storage.reads import InputRow
from keep_storage.rows import decode, find_all
from keep_storage.transaction import Queries


def workflows_overdue(q: Queries, *, stale_before: Millis, expired_after: Millis) -> list[Workflow]:
    """Workflows in which something of this kind may be."""
    times = {"stale_before": stale_before, "expired_after": expired_after}
    return find_all(q, Workflow, "workflows_overdue", times)


def failing_handlers(q: Queries, workflow_id: str | None = None) -> list[Handler]:
    """Handlers that have failed since they last committed, and have something to do: of one workflow, or of all."""
    which = {"workflow_id": workflow_id or "", "everywhere": workflow_id is None}
    return find_all(q, Handler, "failing_handlers", which)


def stale_topics(q: Queries, workflow_id: str, before: Millis) -> list[InputRow]:
    """The oldest pending event of every topic in which that one is older."""
    found = q.all("stale_topics", {"workflow_id": workflow_id, "before": before})
    return [InputRow(row[0], decode(Event, row[1:])) for row in found]


def refused_by_policy(q: Queries, workflow_id: str, after: Millis) -> list[Mutation]:
    """Calls that were not made because nobody answered in time, since then."""
    return find_all(q, Mutation, "refused_by_policy", {"workflow_id": workflow_id, "after": after})
