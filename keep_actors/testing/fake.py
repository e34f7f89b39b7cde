"""A fake of a connector: its methods with their types and permissions, and what they do is a plan.

`Fake(Bank)` takes everything from the class but its code. Without a plan all is well; what happened is in `world`.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec

from keep_actors.connectors import Applied, Connector, MutationCall, NotApplied, ReadCall, Retry
from keep_actors.connectors.definition import Definition
from keep_actors.testing.outside import Asked, Effect, Outside
from keep_actors.testing.plans import Hang, Step, ok
from keep_storage.ids import Millis

FakeAnswer: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""Returns the result of a method, from its parameters."""

RECONCILE = "reconcile"
"""`plan("pay reconcile", ...)`: what happens when the fake is asked what became of a `pay`."""


@dataclass(frozen=True)
class _Attempt:
    """One call in hand. `effect` is None for what only looks."""

    call: ReadCall | MutationCall
    work: Callable[[], Any]
    effect: Callable[[], Effect] | None
    world: Outside
    began: Millis
    """When it reached the fake, by the world's `elapsed`."""

    def send(self) -> None:
        # As the real one does: a method that is declared with `marks_sent` must not seem to fail before its effect.
        if isinstance(self.call, MutationCall) and not self.call.is_sent:
            self.call.sending()

    def do(self) -> Any:
        if self.effect is None:
            return self.work()
        self.send()
        effect = self.effect()
        self.world.happen(effect)
        return effect.result

    def do_later(self, after_ms: Millis, *, within_ms: Millis | None = None) -> None:
        assert self.effect is not None, "only a mutation can happen late"
        self.send()
        at = self.world.elapsed() + after_ms
        self.world.happen_later(self.effect(), at if within_ms is None else min(at, self.began + within_ms))


class Fake(Connector):
    """Stands for a connector class. Methods are named as scripts call them: `appendRow`."""

    def __init__(self, real: type[Connector], *, answers: Mapping[str, Any] | None = None) -> None:
        self.name = real.name  # type: ignore[misc]  # a class variable of every other connector
        self.world = Outside()
        """Where its effects are; a box gives all its fakes one world."""
        self.otherwise: Callable[[str], Step] = lambda _: ok
        """The step for a call for which there is no plan, by the name of its method."""
        self.cost_micros = 0
        """Reported by every read and every mutation."""
        self._plans: defaultdict[str, deque[Step]] = defaultdict(deque)
        self._answers = dict(answers or {})
        self._results: dict[str, Any] = {}
        self.__definitions__ = {  # type: ignore[misc]  # as above: the catalog asks the instance
            name: self._faked(definition) for name, definition in real.__definitions__.items()
        }

    def plan(self, method: str, *steps: Step) -> None:
        """Plan the next calls of a method, one step for each. `"pay reconcile"` is the check of `pay`."""
        known = self.__definitions__.get(method.partition(" ")[0])
        if known is None or (method.endswith(RECONCILE) and known.reconciler is None):
            there = ", ".join(self.__definitions__)
            raise ValueError(f"{self.name!r} has no {method!r} to plan for; it has {there}")
        self._plans[method].extend(steps)

    def hang(self, method: str, then: Step = ok) -> Hang:
        """The next call of this method hangs until it is released."""
        step = Hang(then)
        self.plan(method, step)
        return step

    def answer(self, method: str, answer: Any) -> None:
        """Set the result of a method when all is well: a value, or a function of its parameters."""
        self._answers[method] = answer

    def _faked(self, definition: Definition) -> Definition:
        # The plan wants to know the idempotency key, whether the author of the connector did or not.
        signature = replace(definition.signature, takes_call=True)
        self._results[definition.name] = definition.signature.result_type
        is_mutation = definition.kind == "mutation"

        async def function(_: Connector, call: Any, **params: Any) -> Any:
            call.report_cost(self.cost_micros)
            return await (self._change if is_mutation else self._look)(definition.name, params, call)

        async def reconciler(_: Connector, call: MutationCall) -> Applied | NotApplied | Retry:
            return await self._check(definition.name, call)

        check = reconciler if definition.reconciler is not None else None
        return replace(definition, signature=signature, function=function, reconciler=check)

    async def _look(self, method: str, params: Mapping[str, Any], call: ReadCall) -> Any:
        return await self._obey(method, params, call, lambda: self._answered(method, params), None)

    async def _change(self, method: str, params: Mapping[str, Any], call: MutationCall) -> Any:
        def effect() -> Effect:
            result = self._answered(method, params)
            return Effect(
                f"{self.name}.{method}", call.idempotency_key, call.workflow_id, params, result, self.world.now()
            )

        return await self._obey(method, params, call, lambda: None, effect)

    async def _check(self, method: str, call: MutationCall) -> Applied | NotApplied | Retry:
        def truth() -> Applied | NotApplied:
            found = self.world.found(call.idempotency_key)
            return Applied(found.result) if found is not None else NotApplied()

        answer: Applied | NotApplied | Retry = await self._obey(f"{method} {RECONCILE}", call.params, call, truth, None)
        return answer

    async def _obey(
        self,
        method: str,
        params: Mapping[str, Any],
        call: ReadCall | MutationCall,
        work: Callable[[], Any],
        effect: Callable[[], Effect] | None,
    ) -> Any:
        key = call.idempotency_key if isinstance(call, MutationCall) else ""
        self.world.asked.append(Asked(f"{self.name}.{method}", params, key))
        steps = self._plans[method]
        step = steps.popleft() if steps else self.otherwise(method)
        return await step(_Attempt(call, work, effect, self.world, self.world.elapsed()))

    def _answered(self, method: str, params: Mapping[str, Any]) -> Any:
        answer = self._answers.get(method)
        if callable(answer):
            return answer(params)
        if method not in self._answers:
            try:
                msgspec.convert(None, self._results[method])
            except msgspec.ValidationError:
                words = f"{self.name}.{method} returns {self._results[method]}; say what: answer({method!r}, …)"
                raise AssertionError(words) from None
        return answer
