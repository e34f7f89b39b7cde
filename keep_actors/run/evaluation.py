"""Evaluates the handlers of one run: what they return, and what `mutate` wants to have done. It has no way to do that.

A handler is pure but for its reads. Only a job changes something while it runs, through `items`; whoever evaluates
without them (a dry run) can be sure that nothing was changed.
"""

from keep_actors.connectors import Method, Params
from keep_actors.host.fault_points import Point
from keep_actors.run import failures, results
from keep_actors.run.context import CannotGoOn, RunContext
from keep_actors.run.external_calls import checked_params, permitted
from keep_actors.run.failures import logic
from keep_actors.run.gate import Ask, ScriptPhase, refusal
from keep_actors.run.items import Items
from keep_actors.run.requests import Requests
from keep_actors.run.results import Prepared, ResultError
from keep_actors.sandbox_pool import Call
from keep_actors.telemetry import names
from keep_sandbox import Invocation, Request
from keep_sandbox import IssuedMutation as Issued
from keep_sandbox.outcomes import Terminal, Value
from keep_storage.model import Json


class Evaluation:
    """The code of one run. What goes wrong in it is `CannotGoOn`."""

    def __init__(self, context: RunContext, items: Items | None = None) -> None:
        self._context = context
        self._host = context.host
        self._requests = Requests(context, items)

    def check_connectors(self) -> None:
        """A runtime that was opened without a connector is not the script's mistake, and nothing to repair."""
        if missing := [name for name in self._context.script.uses if self._host.catalog.get(name) is None]:
            raise CannotGoOn(failures.not_here(missing))

    async def by_the_clock(self, stage: ScriptPhase, address: str, state: Json | None) -> Json | None:
        """A producer or a job: its next state; None when it returned nothing, and its last state stays."""
        return await self._returned_state(stage, address, _arguments(state))

    async def prepare(self, state: Json | None) -> Prepared:
        """What a consumer has chosen."""
        returned = await self._invoke(ScriptPhase.PREPARE, self._address("prepare"), _arguments(state))
        assert isinstance(returned, Value), "`prepare` may not mutate"
        context = self._context
        try:
            return results.prepared(returned.value, context.policy, self._host.time.now())
        except ResultError as error:
            raise CannotGoOn(logic(context.handler, str(error))) from None

    async def mutate(self, prepared: Prepared) -> Issued | None:
        """What `mutate` wants to have done; None if nothing."""
        ended = await self._invoke(ScriptPhase.MUTATE, self._address("mutate"), _arguments(prepared.text))
        return ended if isinstance(ended, Issued) else None

    def wanted(self, issued: Issued) -> tuple[Method, Params]:
        """The call that `mutate` wants, if it is permitted and its parameters fit."""
        method = self._requests.method(issued.name)
        permitted(self._context, method)
        return method, checked_params(self._context, method, issued.params)

    async def next(self, prepared: Json, mutation_result: Json) -> Json | None:
        """The next state of a consumer; None when `next` returned nothing, or there is none."""
        if not self._context.script.declaration.consumers[self._context.handler].next:
            return None
        return await self._returned_state(
            ScriptPhase.NEXT, self._address("next"), _arguments(prepared, mutation_result)
        )

    async def _returned_state(self, stage: ScriptPhase, address: str, arguments: Json) -> Json | None:
        returned = await self._invoke(stage, address, arguments)
        assert isinstance(returned, Value), "only `mutate` may end with a mutation"
        try:
            return results.state(returned.value, self._context.policy, address) if returned.is_given else None
        except ResultError as error:
            raise CannotGoOn(logic(self._context.handler, str(error))) from None

    async def _invoke(self, stage: ScriptPhase, address: str, arguments: Json) -> Value | Issued:
        """Run one handler function. Returns its value, or in `mutate` the mutation it ended with."""
        with self._host.telemetry.span(names.PHASE.name, phase=stage.name.lower()) as span:
            try:
                ended = await self._evaluate(stage, address, arguments)
            except CannotGoOn as error:
                span.ends("failed", error.failure.cls)
                raise
            span.ends("mutation" if isinstance(ended, Issued) else "returned")
            return ended

    async def _evaluate(self, stage: ScriptPhase, address: str, arguments: Json) -> Value | Issued:
        context = self._context
        invocation = Invocation(
            source=context.script.source,
            handler=address,
            args=arguments,
            capabilities=self._host.capabilities(context.script, mutation_is_terminal=stage is not ScriptPhase.JOB),
            now_ms=self._host.time.now(),
            seed=self._host.rng.getrandbits(32),
        )
        self._host.reach(Point.INVOKE, context.workflow.id)
        async with self._host.pool.invoke(context.workflow.id, invocation) as call:
            try:
                while isinstance(outcome := await call.next(), Request):
                    try:
                        await self._answer(call, stage, outcome)
                    except CannotGoOn as error:
                        await call.refuse(error.failure.message)
                        raise
            finally:
                context.logs.extend(call.logs)
        self._host.reach(Point.INVOKED, context.workflow.id)
        return self._ended(stage, address, outcome)

    async def _answer(self, call: Call, stage: ScriptPhase, request: Request) -> None:
        answer = await self._requests.answer(stage, request)
        try:
            await call.answer(request.id, answer)
        except ValueError as error:
            raise CannotGoOn(logic(self._context.handler, f"`ctx.{request.name}`: {error}; ask for less")) from None

    def _ended(self, stage: ScriptPhase, address: str, outcome: Terminal) -> Value | Issued:
        if isinstance(outcome, Issued):
            self._context.keep_request(outcome.name, outcome.params)
            if why := refusal(stage, Ask.MUTATION, outcome.name, self._context.policy):
                raise CannotGoOn(logic(self._context.handler, why))
            return outcome
        if isinstance(outcome, Value):
            return outcome
        raise CannotGoOn(failures.of_outcome(outcome, address))

    def _address(self, phase: str) -> str:
        return f"consumers.{self._context.handler}.{phase}"


def _arguments(*values: Json | None) -> Json:
    """What follows `ctx`. A state that was never saved is left out."""
    return f"[{','.join(value for value in values if value is not None)}]"
