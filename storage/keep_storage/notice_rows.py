"""Typed access to notices and deliveries. Decides nothing; only the operations call what writes."""

from keep_storage.ids import Millis
from keep_storage.model import Delivery, NoticeKind, NoticeRow, Says
from keep_storage.records import as_params, find
from keep_storage.transaction import Queries, Transaction


def notice(q: Queries, notice_id: str) -> NoticeRow | None:
    return find(q, NoticeRow, "notice_by_id", {"id": notice_id})


def open_notice(q: Queries, workflow_id: str, kind: NoticeKind, about: str) -> NoticeRow | None:
    return find(q, NoticeRow, "open_notice", {"workflow_id": workflow_id, "kind": kind, "about": about})


def insert_notice(tx: Transaction, notice: NoticeRow) -> bool:
    """False if there is already a notice with this id."""
    return tx.one("insert_notice", as_params(notice)) is not None


def settle_notice(tx: Transaction, notice: NoticeRow) -> None:
    """Sinks that are told of it are to be told of its end."""
    tx.run("settle_notice", as_params(notice))
    tx.run("insert_settled_deliveries", {"notice_id": notice.id, "now": notice.settled_at})


def delivery(q: Queries, notice_id: str, sink: str, says: Says) -> Delivery | None:
    return find(q, Delivery, "delivery", {"notice_id": notice_id, "sink": sink, "says": says})


def insert_delivery(tx: Transaction, notice_id: str, sink: str, now: Millis) -> None:
    tx.run("insert_delivery", {"notice_id": notice_id, "sink": sink, "now": now})


def save_delivery(tx: Transaction, delivery: Delivery) -> None:
    tx.run("save_delivery", as_params(delivery))


def release_settled_delivery(tx: Transaction, opening: Delivery, now: Millis) -> None:
    tx.run("release_settled_delivery", as_params(opening) | {"now": now})
