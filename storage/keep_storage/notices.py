"""Notices: what people were told, what they are still to be told, and how that went. No run waits for any of it.

For each sink a notice is up to two deliveries, that a person is needed and that it is settled, in this order: the
second is not tried before the first has ended.
"""

from msgspec.structs import replace

from keep_storage import notice_rows, runs, workflows
from keep_storage.errors import Reason, reject, storable
from keep_storage.ids import Millis
from keep_storage.journal import Change, changed
from keep_storage.model import Delivery, DeliveryStatus, NoticeRow, Says
from keep_storage.operations import AddDelivery, NoteDelivery, OpenNotice, SettleNotice
from keep_storage.transaction import Queries, Transaction


def open_notice(tx: Transaction, op: OpenNotice, now: Millis) -> Change[NoticeRow]:
    workflows.existing(tx, op.workflow_id)
    if op.run_id is not None:
        runs.existing(tx, op.run_id)
    for sink in op.sinks:
        _has_a_name(sink)
    if not op.sinks or len(set(op.sinks)) < len(op.sinks):
        reject(Reason.SINK_INVALID, f"A notice is told to one sink or several, each named once, not to {op.sinks!r}.")
    if known := notice_rows.open_notice(tx, op.workflow_id, op.kind, op.about):
        reject(Reason.NOTICE_ALREADY_OPEN, f"Notice {known.id!r} already tells of this {op.kind}; settle it first.")
    notice = NoticeRow(
        id=op.id,
        workflow_id=op.workflow_id,
        kind=op.kind,
        about=op.about,
        run_id=op.run_id,
        call=op.call,
        words=storable(op.words),
        can_do=storable(op.can_do),
        opened_at=now,
        settled_at=None,
        outcome="",
    )
    if not notice_rows.insert_notice(tx, notice):
        reject(Reason.ID_TAKEN, f"There is already a notice {op.id!r}; ids are made once.")
    for sink in op.sinks:
        notice_rows.insert_delivery(tx, notice.id, sink, now)
    return changed(
        notice, notice.workflow_id, notice.run_id, notice=notice.id, kind=op.kind, about=op.about, sinks=op.sinks
    )


def add_delivery(tx: Transaction, op: AddDelivery, now: Millis) -> Change[Delivery]:
    notice = _open(tx, op.notice_id)
    _has_a_name(op.sink)
    known = notice_rows.delivery(tx, notice.id, op.sink, Says.NEEDS_PERSON)
    if known is not None and known.status is not DeliveryStatus.GIVEN_UP:
        reject(Reason.DELIVERY_EXISTS, f"Notice {notice.id!r} is already {known.status} for sink {op.sink!r}.")
    notice_rows.insert_delivery(tx, notice.id, op.sink, now)
    delivery = _existing(tx, notice.id, op.sink, Says.NEEDS_PERSON)
    again = known is not None
    return changed(delivery, notice.workflow_id, notice.run_id, notice=notice.id, sink=op.sink, again=again)


def settle_notice(tx: Transaction, op: SettleNotice, now: Millis) -> Change[NoticeRow]:
    notice = replace(_open(tx, op.notice_id), settled_at=now, outcome=storable(op.outcome))
    notice_rows.settle_notice(tx, notice)
    return changed(notice, notice.workflow_id, notice.run_id, notice.outcome, notice=notice.id, kind=notice.kind)


def note_delivery(tx: Transaction, op: NoteDelivery, now: Millis) -> Change[Delivery]:
    notice = notice_rows.notice(tx, op.notice_id) or reject(
        Reason.NOTICE_NOT_FOUND, f"There is no notice {op.notice_id!r} to be delivered."
    )
    before = _existing(tx, op.notice_id, op.sink, op.says)
    which = f"That notice {notice.id!r} {op.says} for sink {op.sink!r}"
    if op.problem is None and op.next_attempt_at is not None:
        reject(Reason.DELIVERY_INVALID, f"{which} was delivered, so it is not tried again; or say what went wrong.")
    if before.status is not DeliveryStatus.WAITING:
        reject(Reason.DELIVERY_ALREADY_ENDED, f"{which} is already {before.status}.")
    if before.next_attempt_at is None:
        reject(Reason.DELIVERY_OUT_OF_ORDER, f"{which} waits until the sink has been told that a person is needed.")
    status = _status(op)
    delivery = replace(
        before,
        status=status,
        attempts=before.attempts + 1,
        next_attempt_at=op.next_attempt_at,
        problem=storable(op.problem or ""),
        ended_at=None if status is DeliveryStatus.WAITING else now,
    )
    notice_rows.save_delivery(tx, delivery)
    if op.says is Says.NEEDS_PERSON and delivery.ended_at is not None:
        notice_rows.release_settled_delivery(tx, delivery, now)
    return changed(
        delivery,
        notice.workflow_id,
        notice.run_id,
        delivery.problem,
        notice=notice.id,
        sink=op.sink,
        says=op.says,
        delivery=[before.status, status],
        attempts=delivery.attempts,
        next_attempt_at=delivery.next_attempt_at,
    )


def _status(op: NoteDelivery) -> DeliveryStatus:
    if op.problem is None:
        return DeliveryStatus.DELIVERED
    return DeliveryStatus.GIVEN_UP if op.next_attempt_at is None else DeliveryStatus.WAITING


def _has_a_name(sink: str) -> None:
    if not sink.strip():
        reject(Reason.SINK_INVALID, "A sink has a name, such as `pager`: by it what it was told is remembered.")


def _open(q: Queries, notice_id: str) -> NoticeRow:
    notice = notice_rows.notice(q, notice_id) or reject(Reason.NOTICE_NOT_FOUND, f"There is no notice {notice_id!r}.")
    if notice.settled_at is not None:
        reject(Reason.NOTICE_ALREADY_SETTLED, f"What notice {notice_id!r} tells of is already settled.")
    return notice


def _existing(q: Queries, notice_id: str, sink: str, says: Says) -> Delivery:
    return notice_rows.delivery(q, notice_id, sink, says) or reject(
        Reason.DELIVERY_NOT_FOUND, f"Sink {sink!r} was never to be told that notice {notice_id!r} is {says}."
    )
