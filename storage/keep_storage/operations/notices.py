"""Changes of notices and of their deliveries."""

from keep_storage.ids import Millis
from keep_storage.model import Delivery, NoticeKind, NoticeRow, Says
from keep_storage.operations.operation import Operation


class OpenNotice(Operation[NoticeRow], frozen=True):
    """A matter needs a person: every sink named here is to be told. One open notice for one matter."""

    id: str
    workflow_id: str
    kind: NoticeKind
    about: str
    words: str
    can_do: str
    sinks: tuple[str, ...]
    run_id: str | None = None
    call: str = ""


class AddDelivery(Operation[Delivery], frozen=True):
    """A sink is to be told of an open notice that it does not know: a new sink, or one that was given up over it."""

    notice_id: str
    sink: str


class SettleNotice(Operation[NoticeRow], frozen=True):
    """Settle a matter: sinks that are told of its beginning are told of its end, in this order."""

    notice_id: str
    outcome: str = ""


class NoteDelivery(Operation[Delivery], frozen=True):
    """An attempt at telling a sink has ended. Without a problem it is delivered; with one and a time it is tried again
    then, and without a time it is given up."""

    notice_id: str
    sink: str
    says: Says
    problem: str | None = None
    next_attempt_at: Millis | None = None
