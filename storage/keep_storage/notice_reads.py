"""What people were told, what they are still to be told, and whose matters may have changed. Reads only."""

from typing import Final

from keep_storage.model import PEEK_DEFAULT, Delivery, NoticeRow
from keep_storage.rows import find, find_all, notice
from keep_storage.transaction import Queries

__all__ = [
    "deliveries",
    "next_delivery",
    "notice",
    "notices",
    "open_notices",
    "untold_notices",
    "workflows_with_matters",
    "workflows_with_matters_changed",
]

_LAST_ID: Final = "\x7f"
"""Sorts after every id."""


def notices(
    q: Queries, workflow_id: str | None = None, *, limit: int = PEEK_DEFAULT, before: str = _LAST_ID
) -> list[NoticeRow]:
    """What people were told, newest first: everywhere, or of one workflow. `before` is the id of the last one seen."""
    key = {"limit": limit, "before": before}
    if workflow_id is None:
        return find_all(q, NoticeRow, "all_notices", key)
    return find_all(q, NoticeRow, "notices_of_workflow", key | {"workflow_id": workflow_id})


def open_notices(q: Queries, workflow_id: str) -> list[NoticeRow]:
    """What people were told about a workflow and is not settled."""
    return find_all(q, NoticeRow, "open_notices_of_workflow", {"workflow_id": workflow_id})


def untold_notices(q: Queries, sink: str, *, after: str = "", limit: int = PEEK_DEFAULT) -> list[NoticeRow]:
    """Open notices that a sink does not know of, or was given up over, oldest first. `after` is an id."""
    return find_all(q, NoticeRow, "untold_notices", {"sink": sink, "after": after, "limit": limit})


def deliveries(q: Queries, notice_id: str) -> list[Delivery]:
    """Who was told of a notice, or is to be."""
    return find_all(q, Delivery, "deliveries_of_notice", {"notice_id": notice_id})


def next_delivery(q: Queries, sink: str) -> Delivery | None:
    """What a sink is to be told next, and when: the longest due first."""
    return find(q, Delivery, "next_delivery", {"sink": sink})


def workflows_with_matters(q: Queries, *, after: str = "", limit: int = PEEK_DEFAULT) -> list[str]:
    """Workflows that may need a person, or have an open notice. `after` is the id of the last one seen."""
    return [row[0] for row in q.all("workflows_with_matters", {"after": after, "limit": limit})]


def workflows_with_matters_changed(q: Queries, *, after: int, until: int) -> list[str]:
    """The same, but only those that the journal says something of between two sequence numbers."""
    return [row[0] for row in q.all("workflows_with_matters_changed", {"after": after, "until": until})]
