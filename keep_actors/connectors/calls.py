"""What the host tells a connector about the call in hand, and the meter on which the connector reports its cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from keep_storage.ids import Millis
from keep_storage.model import Mutation


class _Meter:
    """The one thing about a call that changes."""

    __slots__ = ("micros",)

    def __init__(self) -> None:
        self.micros = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCall:
    """One read, on behalf of one run."""

    workflow_id: str
    run_id: str
    _meter: _Meter = field(default_factory=_Meter, init=False, repr=False, compare=False)

    def report_cost(self, micros: int) -> None:
        """Add to what this call cost, in millionths of the host's currency."""
        _add(self._meter, micros)

    @property
    def cost_micros(self) -> int:
        """What was reported so far, whatever became of the call."""
        return self._meter.micros


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationCall:
    """One mutation of the ledger. A later attempt has the same ids, key and parameters."""

    idempotency_key: str
    """The same for every attempt, different for every mutation. Leave it where `reconcile` can find it."""
    workflow_id: str
    run_id: str
    mutation_id: str
    params: Mapping[str, Any]
    """The validated parameters, by their Python names: `Params.values`."""
    sent_at: Millis | None
    """When the call was started, or None if it was not."""
    attempt: int
    """How often the call was started, this one included."""
    _meter: _Meter = field(default_factory=_Meter, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, mutation: Mutation, params: Mapping[str, Any]) -> "MutationCall":
        """The call that a line of the ledger is about."""
        return cls(
            idempotency_key=mutation.idempotency_key,
            workflow_id=mutation.workflow_id,
            run_id=mutation.run_id,
            mutation_id=mutation.id,
            params=params,
            sent_at=mutation.sent_at,
            attempt=mutation.attempts,
        )

    def report_cost(self, micros: int) -> None:
        """Add to what this call cost, in millionths of the host's currency."""
        _add(self._meter, micros)

    @property
    def cost_micros(self) -> int:
        """What was reported so far, whatever became of the call."""
        return self._meter.micros


def _add(meter: _Meter, micros: int) -> None:
    if micros < 0:
        raise ValueError(f"a cost cannot be negative: {micros}")
    meter.micros += micros
