"""The current call, as a connector sees it: its ids, its parameters, what it noted, and whether it may still send.

A call may be used from the worker thread that makes it: what changes in it is behind a lock.
"""

import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from keep_actors.connectors.errors import Transient
from keep_storage.errors import storable
from keep_storage.ids import Millis
from keep_storage.limits import NOTE_CHARS_MAX
from keep_storage.model import Mutation

KeepNote: TypeAlias = Callable[[str], Awaitable[None]]
"""Makes a note durable, or raises."""

OnSending: TypeAlias = Callable[[], None]
"""Called when a mutation is about to send."""


class _Meter:
    """The cost of a call."""

    __slots__ = ("micros",)

    def __init__(self) -> None:
        self.micros = 0


class _Progress:
    """How far a mutation is: not sent, sent, over. Once it is over it is not sent any more."""

    __slots__ = ("_lock", "is_over", "is_sent", "noted")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_over = False
        self.is_sent = False
        self.noted: str | None = None
        """The last note of this call. None: it made none."""

    def send(self) -> None:
        with self._lock:
            if self.is_over:
                raise Transient("the time of this call was over before anything was sent")
            self.is_sent = True

    def end(self) -> bool:
        with self._lock:
            self.is_over = True
            return self.is_sent


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCall:
    """One read, for one run."""

    workflow_id: str
    run_id: str
    _meter: _Meter = field(default_factory=_Meter, init=False, repr=False, compare=False)

    def report_cost(self, micros: int) -> None:
        """Add to the cost of this call, in millionths of the host's currency."""
        _add(self._meter, micros)

    @property
    def cost_micros(self) -> int:
        """The cost reported so far, even if the call failed."""
        return self._meter.micros


async def _keep_nothing(_: str) -> None:
    """Keep a note in memory alone: the call was made by hand."""


def _tell_nobody() -> None:
    """Do nothing before a send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationCall:
    """One mutation of the ledger. A second attempt has the same ids, key and parameters."""

    idempotency_key: str
    """The same for all attempts of a mutation, and unique to it. Store it where `reconcile` can find it."""
    workflow_id: str
    run_id: str
    mutation_id: str
    params: Mapping[str, Any]
    """The validated parameters, by their Python names: `Params.values`."""
    sent_at: Millis | None
    """The time when the call was started, or None if it was not."""
    attempt: int
    """The number of times the call was started, including this one."""
    earlier_note: str = ""
    keep_note: KeepNote = field(default=_keep_nothing, repr=False, compare=False)
    on_sending: OnSending = field(default=_tell_nobody, repr=False, compare=False)
    _meter: _Meter = field(default_factory=_Meter, init=False, repr=False, compare=False)
    _progress: _Progress = field(default_factory=_Progress, init=False, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        mutation: Mutation,
        params: Mapping[str, Any],
        *,
        keep_note: KeepNote = _keep_nothing,
        on_sending: OnSending = _tell_nobody,
    ) -> "MutationCall":
        """The call of a mutation in the ledger."""
        return cls(
            idempotency_key=mutation.idempotency_key,
            workflow_id=mutation.workflow_id,
            run_id=mutation.run_id,
            mutation_id=mutation.id,
            params=params,
            sent_at=mutation.sent_at,
            attempt=mutation.attempts,
            earlier_note=mutation.note,
            keep_note=keep_note,
            on_sending=on_sending,
        )

    def sending(self) -> None:
        """Say that the next step may have an effect. Call it immediately before the first byte that can matter.

        Raises `Transient` if the host has stopped waiting for this call: then send nothing. For a mutation declared
        with `marks_sent=True`, an error or a time-out before it means that nothing happened, and after it that the
        outcome is unknown.
        """
        self._progress.send()
        self.on_sending()

    @property
    def is_sent(self) -> bool:
        """True once `sending` was called."""
        return self._progress.is_sent

    def end(self) -> bool:
        """Refuse to send from now on, and return whether it was sent. The host calls this when it stops waiting."""
        return self._progress.end()

    async def note(self, text: str) -> None:
        """Keep a text that `reconcile` will need: the id that the service has given. It is durable when this returns.

        The last note counts, and a new attempt begins without one. Raises `ValueError` for a text that is too long
        or cannot be stored.
        """
        if len(text) > NOTE_CHARS_MAX:
            raise ValueError(f"a note has at most {NOTE_CHARS_MAX:,} characters, and this has {len(text):,}")
        if storable(text) != text or "\0" in text:
            raise ValueError("a note cannot have NUL characters or unpaired surrogates")
        await self.keep_note(text)
        self._progress.noted = text

    @property
    def noted(self) -> str:
        """The last note of this attempt, or an empty text."""
        return self.earlier_note if self._progress.noted is None else self._progress.noted

    def report_cost(self, micros: int) -> None:
        """Add to the cost of this call, in millionths of the host's currency."""
        _add(self._meter, micros)

    @property
    def cost_micros(self) -> int:
        """The cost reported so far, even if the call failed."""
        return self._meter.micros


def _add(meter: _Meter, micros: int) -> None:
    if micros < 0:
        raise ValueError(f"a cost cannot be negative: {micros}")
    meter.micros += micros
