"""Notices and their deliveries, sent or due, and the workflows to compare with them. Reads only."""

from typing import Final

from keep_storage.limits import PEEK_DEFAULT
from keep_storage.model import Delivery, NoticeRow
from keep_storage.notice_rows import notice
from keep_storage.records import find, find_all
from keep_storage.transaction import Queries

__all__ = [
    "changed_workflows_to_compare",
    "deliveries",
    "next_delivery",
    "notice",
    "notices",
    "open_notices",
    "untold_notices",
    "workflows_to_compare",
]

_LAST_ID: Final = "\x7f"
"""Sorts after every id."""


def notices(
    q: Queries, workflow_id: str | None = None, *, limit: int = PEEK_DEFAULT, before: str = _LAST_ID
) -> list[NoticeRow]:
    """Notices, newest first: everywhere, or of one workflow. `before` is the id of the last one seen."""
    key = {"limit": limit, "before": before}
    if workflow_id is None:
        return find_all(q, NoticeRow, "all_notices", key)
    return find_all(q, NoticeRow, "notices_of_workflow", key | {"workflow_id": workflow_id})


def open_notices(q: Queries, workflow_id: str) -> list[NoticeRow]:
    """The notices of a workflow that are not settled."""
    return find_all(q, NoticeRow, "open_notices_of_workflow", {"workflow_id": workflow_id})


def untold_notices(q: Queries, sink: str, *, after: str = "", limit: int = PEEK_DEFAULT) -> list[NoticeRow]:
    """Open notices that were not sent to a sink, or given up there, oldest first. `after` is an id."""
    return find_all(q, NoticeRow, "untold_notices", {"sink": sink, "after": after, "limit": limit})


def deliveries(q: Queries, notice_id: str) -> list[Delivery]:
    """The deliveries of a notice, ended or waiting."""
    return find_all(q, Delivery, "deliveries_of_notice", {"notice_id": notice_id})


def next_delivery(q: Queries, sink: str) -> Delivery | None:
    """The next delivery to a sink: the longest due first."""
    return find(q, Delivery, "next_delivery", {"sink": sink})


def workflows_to_compare(q: Queries, *, after: str = "", limit: int = PEEK_DEFAULT) -> list[str]:
    """Workflows in which a person may be called for something, or was. `after` is the id of the last one seen."""
    return [row[0] for row in q.all("workflows_to_compare", {"after": after, "limit": limit})]


def changed_workflows_to_compare(q: Queries, *, after: int, until: int) -> list[str]:
    """The same, of those that the journal names between two sequence numbers."""
    return [row[0] for row in q.all("changed_workflows_to_compare", {"after": after, "until": until})]
