"""Outcomes of a connector's calls: three closed sets, for reads, mutations and reconciliation."""

from typing import Any, TypeAlias

import msgspec

from keep_storage.model import FailureClass, Json


class Answer(msgspec.Struct, frozen=True):
    """The read succeeded."""

    json_text: Json


class Failed(msgspec.Struct, frozen=True):
    """The read failed."""

    cls: FailureClass
    message: str
    retry_after_ms: int | None = None


ReadOutcome: TypeAlias = Answer | Failed


class Happened(msgspec.Struct, frozen=True):
    """The effect happened; this is its result."""

    json_text: Json


class DidNotHappen(msgspec.Struct, frozen=True):
    """The connector promised that there is no effect."""

    cls: FailureClass
    message: str
    retry_after_ms: int | None = None


class Unknown(msgspec.Struct, frozen=True):
    """The effect may have happened or not."""

    message: str


CallOutcome: TypeAlias = Happened | DidNotHappen | Unknown


class Applied(msgspec.Struct, frozen=True):
    """Reconciliation found the effect."""

    result: Any = None
    """From the connector: the result that the mutation would have returned. From `Method.reconcile`: its JSON text."""


class NotApplied(msgspec.Struct, frozen=True):
    """Reconciliation is sure that the effect did not happen, and will not."""


class Retry(msgspec.Struct, frozen=True):
    """Reconciliation cannot tell yet. Ask again."""

    message: str = ""
    retry_after_ms: int | None = None


class TooEarly(Retry, frozen=True):
    """Reconciliation found no effect, but too early to be sure. Ask again after `retry_after_ms`."""


Verdict: TypeAlias = Applied | NotApplied | Retry
