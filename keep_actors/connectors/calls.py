"""The current call, as a connector sees it: its ids, its parameters, and a meter for its cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from keep_storage.ids import Millis
from keep_storage.model import Mutation


class _Meter:
    """The cost of a call, its only mutable part."""

    __slots__ = ("micros",)

    def __init__(self) -> None:
        self.micros = 0


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
    _meter: _Meter = field(default_factory=_Meter, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, mutation: Mutation, params: Mapping[str, Any]) -> "MutationCall":
        """The call of a mutation in the ledger."""
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
