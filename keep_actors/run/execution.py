"""Carries out one run, from its start to its commit or its stop. Runs outside the mailbox, in a task of its own.

It computes and calls; every transition it wants is a message to its workflow's actor, which has the last word. Handler
code is pure until a mutation is issued, so it runs ahead of the file: only the external call waits until the ledger
has it, and only the answer waits for the commit.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final, assert_never

import anyio
import msgspec

from keep_actors.run import failures
from keep_actors.run.context import CannotGoOn, RunContext
from keep_actors.run.evaluation import Evaluation
from keep_actors.run.external_calls import call_in_run, recorded
from keep_actors.run.failures import Before, Failure, logic
from keep_actors.run.gate import ScriptPhase
from keep_actors.run.items import ITEM_LEFT_OPEN, Items, ReadEarlier
from keep_actors.run.record import Writes
from keep_actors.run.results import Prepared
from keep_actors.run.schedule import next_run_at
from keep_actors.run.topics import StoredTopics
from keep_actors.telemetry import names
from keep_sandbox import IssuedMutation as Issued
from keep_sandbox.declaration import Consumer
from keep_storage.errors import Reason, Rejected
from keep_storage.ids import Millis
from keep_storage.model import FailureClass, HandlerKind, Json, MutationOutcome, Phase, Run, RunStatus
from keep_storage.operations import (
    CommitConsumer,
    CommitJob,
    CommitProducer,
    CreateMaintenanceTask,
    HaltWorkflow,
    Operation,
    RecoverCrashedRuns,
    UpdateConsumerPhase,
    UpdateHandlerRunStatus,
)
from keep_storage.outcomes import mutation_result, mutation_result_for_next

log = logging.getLogger("keep_actors")

_NOT_ADMITTED = frozenset({Reason.WORKFLOW_NOT_ACTIVE, Reason.WORKFLOW_HAS_ERROR, Reason.WORKFLOW_IN_MAINTENANCE})
"""The workflow was stopped before the run was in the file: nothing happened, and nothing is left of it."""
_NOTHING_LEFT: Final = ("not_admitted", "")

_CLASS_OF_REFUSAL: Final[Mapping[Reason, FailureClass]] = {
    Reason.RESERVATION_REPEATED: FailureClass.LOGIC,
    Reason.TOPIC_NOT_DECLARED: FailureClass.LOGIC,
    Reason.TOPIC_NOT_SUBSCRIBED: FailureClass.LOGIC,
    Reason.EVENT_NOT_FOUND: FailureClass.LOGIC,
    Reason.EVENT_ALREADY_RESERVED: FailureClass.LOGIC,
    Reason.EVENT_ALREADY_FINISHED: FailureClass.LOGIC,
    # It was free when `peek` showed it: who publishes it anew may give it another key. It will be free again.
    Reason.EVENT_HELD_BACK: FailureClass.TRANSIENT,
    Reason.MESSAGE_ID_INVALID: FailureClass.LOGIC,
    Reason.TITLE_INVALID: FailureClass.LOGIC,
    Reason.TEXT_INVALID: FailureClass.LOGIC,
    Reason.ITEM_ALREADY_OPEN: FailureClass.LOGIC,
    Reason.GRANT_USED_UP: FailureClass.PERMISSION,
    Reason.GRANT_NOT_FOUND: FailureClass.PERMISSION,
    # A person was quicker than the run, and has stopped it.
    Reason.WORKFLOW_NOT_ACTIVE: FailureClass.TRANSIENT,
    Reason.RUN_WAS_STOPPED: FailureClass.TRANSIENT,
    Reason.GRANT_ASKS_FIRST: FailureClass.TRANSIENT,
}
"""Refusals of the storage that say something about what the script wants, or what people do. Any other is a bug of
ours, which ends this run and not its actor."""

_NOBODYS_FAULT: Final = frozenset(
    {Reason.WORKFLOW_NOT_ACTIVE, Reason.RUN_WAS_STOPPED, Reason.GRANT_ASKS_FIRST, Reason.GRANT_NOT_FOUND}
)


class Execution:
    """One run. `retried` is the stopped run that it carries on from, at `next`."""

    def __init__(
        self,
        context: RunContext,
        topics: StoredTopics,
        earlier_calls: ReadEarlier,
        state: Json | None,
        before: Before,
        retried: Run | None,
    ) -> None:
        self._context = context
        self._topics = topics
        self._host = context.host
        self._state = state
        self._before = before
        self._retried = retried
        self._items = Items(context, earlier_calls)
        self._evaluation = Evaluation(context, self._items)

    async def run(self) -> None:
        """Come to an end. What is raised is a bug of ours; what a script or a connector did is written down."""
        context, telemetry, began = self._context, self._host.telemetry, self._host.time.now()
        known = {"workflow_id": context.workflow.id, "workflow": context.workflow.name, "run_id": context.run_id}
        with telemetry.span(
            names.RUN.name, **known, handler=context.handler, kind=context.kind, trigger=context.trigger
        ) as span:
            async with self._host.turnstile.turn():
                status, failure = await self._to_its_end()
            span.ends(status, failure)
        counted = {"kind": context.kind, "workflow_id": context.workflow.id}
        telemetry.count(names.RUNS.name, **counted, status=status, failure=failure)
        telemetry.observe(names.RUN_MS.name, max(self._host.time.now() - began, 0), **counted)

    async def _to_its_end(self) -> tuple[str, str]:
        """Its status, and the class of failure if it has one."""
        try:
            self._evaluation.check_connectors()
            await self._carry_out()
        except CannotGoOn as error:
            return await self._stop(error.failure, *error.first)
        except Rejected as error:
            if self._is_not_admitted(error):
                return _NOTHING_LEFT
            self._context.record.forget()
            return await self._stop(self._refused(error))
        return RunStatus.COMMITTED, ""

    def _is_not_admitted(self, error: Rejected) -> bool:
        return error.reason in _NOT_ADMITTED and not self._context.record.is_open

    async def _carry_out(self) -> None:
        match self._context.kind:
            case HandlerKind.PRODUCER:
                await self._by_the_clock(ScriptPhase.PRODUCER, "producers", CommitProducer)
            case HandlerKind.CONSUMER:
                await self._consumer()
            case HandlerKind.JOB:
                await self._by_the_clock(ScriptPhase.JOB, "jobs", CommitJob)
            case _:
                assert_never(self._context.kind)

    # The three kinds of handlers.

    async def _by_the_clock(self, stage: ScriptPhase, group: str, commit: type[CommitProducer | CommitJob]) -> None:
        context = self._context
        state = await self._evaluation.by_the_clock(stage, f"{group}.{context.handler}", self._state)
        if self._items.is_open:
            # The prelude says it better, with its place. A worker that was taken over can return all the same.
            raise CannotGoOn(logic(context.handler, ITEM_LEFT_OPEN))
        publishes, logs = tuple(context.publishes), self._logs()
        await context.record.save(
            commit(context.run_id, self._next_run_at(), publishes, state, logs, context.cost_micros)
        )

    async def _consumer(self) -> None:
        if self._retried is not None:
            assert self._retried.prepare_result is not None, "a run that reached its mutation was prepared"
            state = await self._evaluation.next(self._retried.prepare_result, mutation_result_for_next(self._retried))
            await self._commit_consumer(state)
            return
        prepared = await self._prepare()
        if prepared.reservations and self._consumer_declared.mutate:
            self._note_phase(Phase.MUTATING)
            issued = await self._evaluation.mutate(prepared)
            if issued is not None:
                await self._commit_consumer(await self._call(prepared, issued))
                return
            self._note_phase(Phase.MUTATED)
        self._note_phase(Phase.EMITTING)
        await self._commit_consumer(await self._evaluation.next(prepared.text, mutation_result(MutationOutcome.NONE)))

    # The phases of a consumer.

    @property
    def _consumer_declared(self) -> Consumer:
        return self._context.script.declaration.consumers[self._context.handler]

    async def _prepare(self) -> Prepared:
        context, prepared = self._context, await self._evaluation.prepare(self._state)
        await self._check_reservations(prepared)
        context.record.note(
            UpdateConsumerPhase(
                context.run_id, Phase.PREPARED, prepared.reservations, prepared.text, prepared.title, prepared.wake_at
            )
        )
        return prepared

    async def _check_reservations(self, prepared: Prepared) -> None:
        """Look whether what was chosen can be had: else that is the mistake, and not what `mutate` makes of it.

        What the run was shown a moment ago is not looked for again: the storage has the last word on it.
        """
        wanted = [(each.topic, message_id) for each in prepared.reservations for message_id in each.ids]
        if len(set(wanted)) < len(wanted) or not self._context.seen.issuperset(wanted):
            await self._topics.check(self._context.handler, prepared.reservations)

    async def _call(self, prepared: Prepared, issued: Issued) -> Json | None:
        """Make the call, then evaluate `next` while its outcome is being written down."""
        context, (method, params) = self._context, self._evaluation.wanted(issued)
        mutation = await recorded(context, method, issued.params)
        applied = await call_in_run(context, method, params, mutation)
        outcome = (applied, UpdateConsumerPhase(context.run_id, Phase.EMITTING))
        if not self._consumer_declared.next:
            context.record.note(*outcome)
            return None
        told = mutation_result(MutationOutcome.SUCCESS, applied.result)
        return await self._next_while_saving(prepared.text, told, outcome)

    async def _next_while_saving(self, prepared: Json, mutation_result: Json, outcome: Writes) -> Json | None:
        """What happened outside is written at once, whatever `next` does."""
        ended: list[Json | CannotGoOn | None] = []
        refused: Rejected | None = None

        async def evaluate() -> None:
            try:
                ended.append(await self._evaluation.next(prepared, mutation_result))
            except CannotGoOn as error:
                ended.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(evaluate)
            try:
                await self._context.record.save(*outcome)
            except Rejected as error:
                # Raised outside the group, which would wrap it.
                refused = error
                tasks.cancel_scope.cancel()
        if refused is not None:
            raise refused
        [state] = ended
        if isinstance(state, CannotGoOn):
            raise state
        return state

    # Writing it down.

    def _note_phase(self, phase: Phase) -> None:
        self._context.record.note(UpdateConsumerPhase(self._context.run_id, phase))

    async def _commit_consumer(self, state: Json | None) -> None:
        context = self._context
        publishes, logs = tuple(context.publishes), self._logs()
        await context.record.save(CommitConsumer(context.run_id, publishes, state, logs, context.cost_micros))

    async def _stop(self, failure: Failure, *first: Operation[Any]) -> tuple[str, str]:
        """End without a commit. The evidence goes with it. Returns how it stopped, and why."""
        try:
            return await self._stopped(failure, *first)
        except Rejected as error:
            if self._is_not_admitted(error):
                return _NOTHING_LEFT
            if error.reason not in _CLASS_OF_REFUSAL:
                return await self._give_up(error)
            # What it has reserved cannot be had, or what it asked for is refused: that is the failure to tell.
            self._context.record.forget()
            refused = self._refused(error)
        try:
            return await self._stopped(refused)
        except Rejected as error:
            return _NOTHING_LEFT if self._is_not_admitted(error) else await self._give_up(error)

    async def _stopped(self, failure: Failure, *first: Operation[Any]) -> tuple[str, str]:
        context, now = self._context, self._host.time.now()
        stop = failures.stop_for(failure, self._before, context.policy, now, self._host.rng)
        update = UpdateHandlerRunStatus(
            context.run_id,
            stop.status,
            stop.error,
            self._logs(),
            context.cost_micros,
            stop.retry_at,
            failing_since=stop.failing_since,
            is_fault=failure.is_fault,
            parks=context.parks,
        )
        await context.record.save(*first, update, *self._after_stop(failure, stop.status))
        return stop.status, stop.error.cls

    def _after_stop(self, failure: Failure, status: RunStatus) -> Writes:
        match status:
            case RunStatus.FAILED_LOGIC:
                return (self._repair(failure),)
            case RunStatus.FAILED_INTERNAL:
                # A call that was made, and whose outcome could not be written, is looked for as after a crash.
                return (RecoverCrashedRuns(self._context.workflow.id),)
            case _:
                return ()

    async def _give_up(self, error: Rejected) -> tuple[str, str]:
        """The storage refuses even the end of the run: it is settled as after a crash, and its workflow stops."""
        context = self._context
        log.error("Run %s cannot be stopped in order: %s", context.run_id, error)
        context.record.abandon()
        settle = RecoverCrashedRuns(context.workflow.id)
        words = f"{context.handler}: the run could not be written down: {error}"
        try:
            await context.record.save(settle, HaltWorkflow(context.workflow.id, words))
        except Rejected:
            # An archived workflow need not be stopped.
            await context.record.save(settle)
        return RunStatus.CRASHED, FailureClass.INTERNAL

    def _repair(self, failure: Failure) -> CreateMaintenanceTask:
        context = self._context
        evidence = {
            "version": context.script.version_id,
            "handler": context.handler,
            "error": failure.message,
            "place": failure.place,
            "logs": context.logs,
            "requests": context.requests,
        }
        return CreateMaintenanceTask(context.workflow.id, msgspec.json.encode(evidence).decode())

    def _refused(self, error: Rejected) -> Failure:
        """What the storage refused of what the script wants: its mistake, unless a person was quicker."""
        handler = self._context.handler
        if error.reason is Reason.EVENT_ALREADY_FINISHED and self._context.event_was_skipped:
            words = f"{handler}: an event was skipped while it was being prepared."
            return Failure(FailureClass.TRANSIENT, words, is_fault=False)
        cls = _CLASS_OF_REFUSAL.get(error.reason, FailureClass.INTERNAL)
        return Failure(cls, f"{handler}: {error}", is_fault=error.reason not in _NOBODYS_FAULT)

    def _next_run_at(self) -> Millis:
        context = self._context
        schedule, default_ms = context.script.schedule_of(context.handler), context.policy.producer_interval_ms
        return next_run_at(schedule, context.workflow.timezone, default_ms, self._host.time.now())

    def _logs(self) -> Json:
        return msgspec.json.encode(self._context.logs).decode()
