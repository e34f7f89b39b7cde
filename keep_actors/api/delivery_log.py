"""Notices that were sent, each with the result at each sink. Reads only."""

import msgspec

from keep_actors.api.notice import Notice, notice_of
from keep_storage import notice_reads, reads
from keep_storage.ids import Millis
from keep_storage.model import Delivery, DeliveryStatus, Says
from keep_storage.model import NoticeRow as Row
from keep_storage.transaction import Queries


class Sent(msgspec.Struct, frozen=True):
    """The delivery to one sink."""

    sink: str
    says: Says
    status: DeliveryStatus
    attempts: int
    next_attempt_at: Millis | None
    """None also while the sink has not yet received the beginning of the matter."""
    problem: str
    """The problem of the last attempt."""
    at: Millis | None
    """The time when it was delivered, or given up."""


class Told(msgspec.Struct, frozen=True):
    """A matter, and who was told."""

    notice: Notice
    """As it stands: `says` is `settled` if it is."""
    sent: list[Sent]
    """By sink, the beginning before the end."""


def told(q: Queries, workflow_id: str | None, limit: int, before: str | None) -> list[Told]:
    """Newest first."""
    cursor = {"before": before} if before else {}
    return [
        Told(
            notice_about(q, row, Says.NEEDS_PERSON if row.settled_at is None else Says.SETTLED),
            [_sent(each) for each in notice_reads.deliveries(q, row.id)],
        )
        for row in notice_reads.notices(q, workflow_id, limit=limit, **cursor)
    ]


def notice_about(q: Queries, row: Row, says: Says) -> Notice:
    """The message about a matter, with the name of its workflow."""
    workflow = reads.workflow(q, row.workflow_id)
    assert workflow is not None, "a notice is about a workflow"
    return notice_of(row, workflow.name, says)


def _sent(delivery: Delivery) -> Sent:
    return Sent(
        sink=delivery.sink,
        says=delivery.says,
        status=delivery.status,
        attempts=delivery.attempts,
        next_attempt_at=delivery.next_attempt_at,
        problem=delivery.problem,
        at=delivery.ended_at,
    )
