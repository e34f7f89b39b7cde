"""The world outside: what was asked of it, what really happened there, and what is still on its way.

It outlives every process: a crash forgets nothing here. The assertions are about effects, not about what a runtime
believes of them.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from keep_storage.ids import Millis


class Effect(msgspec.Struct, frozen=True):
    """An effect that happened outside."""

    method: str
    """`bank.pay`."""
    key: str
    """The idempotency key that came with it."""
    workflow_id: str
    params: Mapping[str, Any]
    result: Any
    at: Millis


class Asked(msgspec.Struct, frozen=True):
    """A call that reached a fake, whatever became of it. Reads have no key."""

    method: str
    params: Mapping[str, Any]
    key: str = ""


class Outside:
    """One world, shared by all fakes of a box. A request on its way arrives when its time has come, at the next look.

    That time is `elapsed`, which cannot be set: a request does not arrive sooner because a clock was set.
    """

    def __init__(self, now: Callable[[], Millis] | None = None, elapsed: Callable[[], Millis] | None = None) -> None:
        self.now: Callable[[], Millis] = now or (lambda: 0)
        self.elapsed: Callable[[], Millis] = elapsed or self.now
        self.asked: list[Asked] = []
        """All calls that reached a fake, in order."""
        self.on_effect: Callable[[Effect], None] | None = None
        """Told of every effect as it happens."""
        self._effects: list[Effect] = []
        self._by_key: dict[str, Effect] = {}
        self._on_its_way: list[tuple[Millis, int, Effect]] = []
        self._count = 0

    @property
    def effects(self) -> list[Effect]:
        """All effects so far, in order."""
        self._arrive()
        return self._effects

    @property
    def coming(self) -> list[Effect]:
        """The effects that are on their way, the next one first."""
        self._arrive()
        return [effect for _, _, effect in sorted(self._on_its_way, key=_when)]

    def happen(self, effect: Effect) -> None:
        """It happens now."""
        self._effects.append(effect)
        self._by_key.setdefault(effect.key, effect)
        if self.on_effect is not None:
            self.on_effect(effect)

    def happen_later(self, effect: Effect, at: Millis) -> None:
        """It is on its way, whatever becomes of who sent it, and happens then, by `elapsed`."""
        self._count += 1
        self._on_its_way.append((at, self._count, effect))

    def found(self, key: str) -> Effect | None:
        """The effect with this key, if one can be seen."""
        self._arrive()
        return self._by_key.get(key)

    def truth(self, key: str) -> Effect | None:
        """The effect with this key, also if it is still on its way, which only a test can know."""
        return self.found(key) or next((effect for effect in self.coming if effect.key == key), None)

    def happened(self, method: str, *, times: int | None = None, **params: Any) -> list[Effect]:
        """The effects of a method with at least these parameters. Fails if there are not so many, or none."""
        found = [each for each in self.effects if each.method == method and params.items() <= each.params.items()]
        if (len(found) != times) if times is not None else not found:
            wanted = f"{method}{params or ''}"
            shown = "".join(f"\n  {each.method} {dict(each.params)}" for each in self.effects) or " nothing"
            wants = f"{times} time(s)" if times is not None else "at least once"
            raise AssertionError(f"{wanted} should have happened {wants}, and did {len(found)}. There was:{shown}")
        return found

    def never_twice(self) -> None:
        """Fails if two effects have one key: the promise that a runtime makes."""
        twice = [key for key, count in Counter(each.key for each in self.effects).items() if count > 1]
        if twice:
            raise AssertionError(f"happened more than once: {', '.join(self._by_key[key].method for key in twice)}")

    def _arrive(self) -> None:
        if not self._on_its_way:
            return
        elapsed = self.elapsed()
        due = sorted((each for each in self._on_its_way if each[0] <= elapsed), key=_when)
        self._on_its_way = [each for each in self._on_its_way if each[0] > elapsed]
        for _, _, effect in due:
            self.happen(effect)


def _when(each: tuple[Millis, int, Effect]) -> tuple[Millis, int]:
    return each[0], each[1]
