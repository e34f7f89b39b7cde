"""The world outside the database. It survives every crash, does what it is asked, and remembers what it did.

It obeys a plan, not an idempotency key: a call that is made twice has two effects here, so that counting them
shows whether anybody ever asked twice.
"""

import json
from collections import Counter
from enum import Enum
from typing import NamedTuple, Protocol


class Answer(Enum):
    """What becomes of a call, and what the caller hears of it."""

    OK = "it happened, and the answer arrived"
    REFUSED = "it did not happen, and the answer arrived"
    LOST = "it did not happen, and no answer arrived"
    APPLIED_BUT_LOST = "it happened, and no answer arrived"

    @property
    def happened(self) -> bool:
        return self in (Answer.OK, Answer.APPLIED_BUT_LOST)


class Check(Enum):
    """What a connector finds when it looks whether a call happened."""

    APPLIED = "applied"
    FAILED = "failed"
    RETRY = "retry"


class Call(NamedTuple):
    """A call that reached the outside: its idempotency key, what it was about, and whether it had an effect."""

    key: str
    target: str
    happened: bool


class Sent(Protocol):
    """What a connector sees of a mutation."""

    @property
    def idempotency_key(self) -> str: ...

    @property
    def params(self) -> str: ...


class Services:
    """The services that mutations change, and the people who know what happened there."""

    def __init__(self, plan: tuple[Answer, ...] = (), *, connector_is_up: bool = True) -> None:
        self.calls: list[Call] = []
        self.told: dict[str, set[str]] = {}
        """What `next` was told about the mutation of each target, every time it ran."""
        self.access_is_granted = False
        self.connector_is_up = connector_is_up
        self.somebody_paused = False
        self.somebody_stopped = False
        self._plan = plan

    def call(self, mutation: Sent) -> Answer:
        """Do what the plan says for the n-th call about this target; after the plan, all is well."""
        target = target_of(mutation)
        earlier = sum(call.target == target for call in self.calls)
        answer = self._plan[earlier] if earlier < len(self._plan) else Answer.OK
        self.record(Call(mutation.idempotency_key, target, answer.happened))
        return answer

    def record(self, call: Call) -> None:
        self.calls.append(call)

    def happened(self, mutation: Sent) -> bool:
        """The truth about one call: what a reconciling connector or an honest person finds."""
        return any(call.happened for call in self.calls if call.key == mutation.idempotency_key)

    def was_asked(self, mutation: Sent) -> bool:
        """Whether the call was made at all."""
        return any(call.key == mutation.idempotency_key for call in self.calls)

    def check(self, mutation: Sent) -> Check:
        if not self.connector_is_up:
            return Check.RETRY
        return Check.APPLIED if self.happened(mutation) else Check.FAILED

    def effects(self) -> Counter[str]:
        """How often anything happened to each target."""
        return Counter(call.target for call in self.calls if call.happened)

    def effects_by_key(self) -> Counter[str]:
        return Counter(call.key for call in self.calls if call.happened)

    def tell_next(self, target: str, what: str) -> None:
        self.told.setdefault(target, set()).add(what)

    def state(self) -> tuple[object, ...]:
        """Everything that decides what will happen here, and all that `next` was told."""
        told = frozenset((target, frozenset(what)) for target, what in self.told.items())
        return tuple(self.calls), told, *self._flags()

    def situation(self) -> tuple[object, ...]:
        """What was done, without names."""
        return tuple((call.target, call.happened) for call in self.calls), *self._flags()

    def _flags(self) -> tuple[bool, ...]:
        return self.access_is_granted, self.connector_is_up, self.somebody_paused, self.somebody_stopped


def result_of(mutation: Sent) -> str:
    """What the service answers when the call happened: always the same for the same target."""
    return json.dumps({"row": target_of(mutation)})


def target_of(mutation: Sent) -> str:
    return str(json.loads(mutation.params)["target"])
