"""How a call of a connector ended: three closed sets, one for each thing that is asked of a method."""

from typing import Any, TypeAlias

import msgspec

from keep_storage.model import FailureClass, Json


class Answer(msgspec.Struct, frozen=True):
    """The read succeeded."""

    json_text: Json


class Failed(msgspec.Struct, frozen=True):
    """The read did not succeed."""

    cls: FailureClass
    message: str
    retry_after_ms: int | None = None


ReadOutcome: TypeAlias = Answer | Failed


class Happened(msgspec.Struct, frozen=True):
    """The effect is there, and this is its result."""

    json_text: Json


class DidNotHappen(msgspec.Struct, frozen=True):
    """The connector promised that there is no effect."""

    cls: FailureClass
    message: str
    retry_after_ms: int | None = None


class Unknown(msgspec.Struct, frozen=True):
    """There may be an effect, or none."""

    message: str


CallOutcome: TypeAlias = Happened | DidNotHappen | Unknown


class Applied(msgspec.Struct, frozen=True):
    """Reconciliation found the effect."""

    result: Any = None
    """From the connector: what the mutation would have returned. From `Method.reconcile`: its JSON text."""


class NotApplied(msgspec.Struct, frozen=True):
    """Reconciliation is sure that there is no effect, and that none will come."""


class Retry(msgspec.Struct, frozen=True):
    """Reconciliation cannot tell yet. Ask again."""

    message: str = ""
    retry_after_ms: int | None = None


class TooEarly(Retry, frozen=True):
    """Reconciliation found nothing, too early for that to prove anything. It will prove something then."""


Verdict: TypeAlias = Applied | NotApplied | Retry
