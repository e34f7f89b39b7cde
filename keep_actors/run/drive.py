"""Does what a run's machine decides: runs scripts, reads, saves and calls. Decides nothing itself.

Runs outside the mailbox, in a task of its own. The only module of this room that awaits; spans and fault points are
here and nowhere else.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeVar, assert_never

from keep_actors.connectors import (
    Answer,
    CallOutcome,
    DidNotHappen,
    Failed,
    Happened,
    Method,
    MutationCall,
    ParamsError,
    ReadCall,
    ReadOutcome,
    Retry,
    Unknown,
    Verdict,
)
from keep_actors.host.fault_points import Point
from keep_actors.host.host import Host, Services
from keep_actors.host.storage_retry import retry_while_unavailable
from keep_actors.run import earlier_calls
from keep_actors.run.earlier_calls import Earlier
from keep_actors.run.effects import (
    AnswerRefused,
    AnswerScript,
    AwaitSave,
    CallEnded,
    CallMutation,
    CallRead,
    CheckOutcome,
    CheckReservations,
    EarlierCallsRead,
    EndScript,
    EventsRead,
    Finish,
    GetEvents,
    Invoke,
    OutcomeChecked,
    PeekEvents,
    ReadEarlierCalls,
    ReadEnded,
    RunEffect,
    RunInput,
    Save,
    SaveAndInvoke,
    Saved,
    SaveRefused,
    ScriptAsked,
    ScriptFailed,
    ScriptIssued,
    ScriptReturned,
    ScriptStopped,
    Writes,
)
from keep_actors.run.gate import ScriptPhase
from keep_actors.run.machine import RunMachine
from keep_actors.run.reconcile import NO_CONNECTOR
from keep_actors.run.state import At
from keep_actors.telemetry import names
from keep_sandbox import Invocation, IssuedMutation, Request
from keep_sandbox.outcomes import Terminal, Value
from keep_storage import reads
from keep_storage.errors import Rejected
from keep_storage.events import check_reservations
from keep_storage.model import Event, FailureClass, Item, Mutation, MutationStatus
from keep_storage.operations import CreateMutation, NoteMutation, Reserve

log = logging.getLogger("keep_actors")

Ended = TypeVar("Ended", bound=ReadOutcome | CallOutcome)

Answers = Callable[[], Awaitable[tuple[Any, ...]]]
"""Waits until operations are durable, and returns their answers. Raises `Rejected` or `StorageUnavailable`."""

Write = Callable[[Writes], Answers]
"""Sends operations on their way together, at once."""


class RunStorage(Protocol):
    """The events of a run's workflow, and the place where it writes. Refusals raise `Rejected`."""

    def save(self, operations: Writes) -> Answers:
        """Begin to make the operations durable, all or none."""
        ...

    async def peek(self, topic: str, limit: int, after: int) -> Sequence[Event]:
        """Pending events, oldest first. `after` is the `seq` of the last one seen."""
        ...

    async def by_ids(self, topic: str, message_ids: Sequence[str]) -> Sequence[Event]:
        """The events with these ids that exist, in this order, in any state."""
        ...

    async def check(self, reservations: Sequence[Reserve]) -> None:
        """Raise `Rejected` if these events cannot be reserved."""
        ...

    async def earlier_calls(self, item: Item) -> Sequence[Earlier]:
        """The calls that earlier runs recorded in this attempt at an item."""
        ...


class StoredRun:
    """The storage of a run in a runtime."""

    def __init__(self, host: Host, workflow_id: str, handler: str, write: Write) -> None:
        self._host = host
        self._workflow_id = workflow_id
        self._handler = handler
        self._write = write

    def save(self, operations: Writes) -> Answers:
        """Try again while the storage cannot write: only this run knows what happened outside."""
        begun = [self._write(operations)]

        async def once() -> tuple[Any, ...]:
            answers = begun.pop() if begun else self._write(operations)
            return await answers()

        return lambda: retry_while_unavailable(once, self._host.time)

    async def peek(self, topic: str, limit: int, after: int) -> Sequence[Event]:
        return await self._host.read(lambda q: reads.peek(q, self._workflow_id, topic, limit=limit, after=after))

    async def by_ids(self, topic: str, message_ids: Sequence[str]) -> Sequence[Event]:
        return await self._host.read(lambda q: reads.events_by_ids(q, self._workflow_id, topic, message_ids))

    async def check(self, reservations: Sequence[Reserve]) -> None:
        await self._host.read(lambda q: check_reservations(q, self._workflow_id, self._handler, tuple(reservations)))

    async def earlier_calls(self, item: Item) -> Sequence[Earlier]:
        return await self._host.read(lambda q: earlier_calls.read(q, item))


class RunDriver:
    """Drives one machine. `has_slot`: the run holds a slot, and gives it to others while it waits for the outside."""

    def __init__(self, machine: RunMachine, host: Services, storage: RunStorage, *, has_slot: bool = False) -> None:
        self._machine = machine
        self._facts = machine.facts
        self._host = host
        self._storage = storage
        self._has_slot = has_slot

    async def drive(self, effect: RunEffect) -> Finish:
        """Carry out this effect and all that follow from it. An exception is a bug; the errors of scripts and
        connectors are recorded."""
        while not isinstance(effect, Finish):
            effect = await self.step(effect)
        return effect

    async def step(self, effect: RunEffect) -> RunEffect:
        """Do this, and return what follows from it."""
        match effect:
            case Invoke():
                return await self._invoke(effect)
            case SaveAndInvoke():
                return await self._save_and_invoke(effect)
            case _:
                return self._on(await self._do(effect))

    def _on(self, said: RunInput) -> RunEffect:
        return self._machine.on(said, self._host.time.now())

    async def _do(self, effect: RunEffect) -> RunInput:  # noqa: C901  # one case for each effect
        match effect:
            case Save():
                place = self._machine.state.at
                return await self._end_save(self._begin_save(effect, place), place)
            case PeekEvents():
                return EventsRead(tuple(await self._storage.peek(effect.topic, effect.limit, effect.after)))
            case GetEvents():
                return EventsRead(tuple(await self._storage.by_ids(effect.topic, effect.message_ids)))
            case CheckReservations():
                try:
                    await self._storage.check(effect.reservations)
                except Rejected as error:
                    return SaveRefused(error)
                return Saved()
            case ReadEarlierCalls():
                return EarlierCallsRead(tuple(await self._storage.earlier_calls(effect.item)))
            case CallRead():
                return await self._read(effect)
            case CallMutation():
                return await self._call(effect)
            case CheckOutcome():
                with self._outside():
                    return OutcomeChecked(await self._check(effect.mutation))
            case Invoke() | SaveAndInvoke() | AnswerScript() | EndScript() | AwaitSave() | Finish():
                raise AssertionError(f"{type(effect).__name__} belongs to a script that runs")
            case _:
                assert_never(effect)

    # Scripts.

    async def _invoke(self, effect: Invoke) -> RunEffect:
        with self._host.telemetry.span(names.PHASE.name, phase=effect.phase.name.lower()) as span:
            said = await self._run_script(effect)
            then = self._on(said)
            match said:
                case ScriptIssued():
                    span.ends("mutation")
                case ScriptReturned():
                    span.ends("returned")
                case _:
                    failure = self._machine.state.failure
                    span.ends("failed", failure.cls if failure is not None else "")
        return then

    async def _run_script(self, effect: Invoke) -> RunInput:
        """Run one function of the script, and everything that it asks for on the way."""
        host, facts = self._host, self._facts
        invocation = Invocation(
            source=facts.script.source,
            handler=effect.address,
            args=effect.arguments,
            capabilities=host.capabilities(facts.script, mutation_is_terminal=effect.phase is not ScriptPhase.JOB),
            now_ms=host.time.now(),
            seed=host.rng.getrandbits(32),
        )
        host.reach(Point.INVOKE, facts.workflow.id)
        async with host.pool.invoke(facts.workflow.id, invocation, owner=facts.workflow.owner) as call:
            outcome = await call.next()
            while isinstance(outcome, Request):
                answer = self._on(ScriptAsked(outcome))
                while not isinstance(answer, AnswerScript | EndScript):
                    answer = self._on(await self._do(answer))
                if isinstance(answer, AnswerScript):
                    try:
                        await call.answer(answer.request_id, answer.text)
                    except ValueError as error:
                        answer = self._on(AnswerRefused(str(error)))
                if isinstance(answer, EndScript):
                    await call.refuse(answer.reason)
                    return ScriptStopped(tuple(call.logs))
                outcome = await call.next()
            logs = tuple(call.logs)
        host.reach(Point.INVOKED, facts.workflow.id)
        return _ended(outcome, logs)

    async def _save_and_invoke(self, effect: SaveAndInvoke) -> RunEffect:
        """The outcome of a call is on its way to the file before `next` begins, whatever that does."""
        saving = self._begin_save(effect.save, At.AWAITING_OUTCOME)
        then = await self._invoke(effect.invoke)
        assert isinstance(then, AwaitSave), "a run goes on only when the outcome of its call is written"
        return self._on(await self._end_save(saving, At.AWAITING_OUTCOME))

    # Storage.

    def _begin_save(self, effect: Save, place: At) -> Answers:
        if effect.alarm:
            log.error("%s", effect.alarm)
        for operation in effect.operations:
            if isinstance(operation, CreateMutation):
                self._host.reach(Point.RECORD, f"{operation.connector}.{operation.method}")
        self._host.reach(Point.SAVE, place)
        return self._storage.save(effect.operations) if effect.operations else _nothing

    async def _end_save(self, saving: Answers, place: At) -> RunInput:
        try:
            answers = await saving()
        except Rejected as error:
            return SaveRefused(error)
        self._host.reach(Point.SAVED, place)
        return Saved(answers)

    # The outside.

    async def _read(self, effect: CallRead) -> ReadEnded:
        method, call = effect.method, ReadCall(workflow_id=self._facts.workflow.id, run_id=self._facts.run_id)
        timeout_ms = self._facts.policy.timeout_ms(method.full_name, method.timeout_ms, is_mutation=False)
        with self._outside():
            outcome = await self._watched(method, method.read(effect.params, call, timeout_ms))
        return ReadEnded(outcome, call.cost_micros)

    async def _call(self, effect: CallMutation) -> CallEnded:
        host, method, mutation = self._host, effect.method, effect.mutation
        assert mutation.status is MutationStatus.IN_FLIGHT, "the ledger knows of a call before it is made"
        call = self._mutation_call(effect)
        timeout_ms = self._facts.policy.timeout_ms(method.full_name, method.timeout_ms, is_mutation=True)
        host.reach(Point.RECORDED, method.full_name)
        with self._outside(), host.call_times.making(mutation.id, timeout_ms):
            outcome = await self._watched(method, method.mutate(effect.params, call, timeout_ms))
        host.reach(Point.ANSWERED, method.full_name)
        said, failure = _in_words(outcome)
        host.telemetry.count(
            names.MUTATIONS.name,
            method=method.full_name,
            outcome=said,
            failure=failure,
            workflow_id=mutation.workflow_id,
        )
        return CallEnded(outcome, call.cost_micros)

    def _mutation_call(self, effect: CallMutation) -> MutationCall:
        """The call as its connector gets it: a note of it is in the ledger before the connector goes on."""
        host, mutation, name = self._host, effect.mutation, effect.method.full_name

        async def keep_note(text: str) -> None:
            await self._storage.save((NoteMutation(mutation.id, mutation.attempts, text),))()
            host.reach(Point.NOTED, name)

        def on_sending() -> None:
            host.reach(Point.SENDING, name)

        return MutationCall.of(mutation, effect.params.values, keep_note=keep_note, on_sending=on_sending)

    async def _check(self, mutation: Mutation) -> Verdict:
        """Ask the connector. If it is not there any more, or cannot read what was recorded, it cannot tell yet."""
        host, policy, name = self._host, self._facts.policy, f"{mutation.connector}.{mutation.method}"
        method = host.catalog.get(name)
        if method is None or not method.reconcilable:
            return Retry(f"{name} {NO_CONNECTOR}")
        try:
            params = method.decode_params(mutation.params)
        except ParamsError as error:
            return Retry(f"{name} cannot be asked: {error}")
        host.reach(Point.CHECK, name)
        # The call had this long to reach the other side: only the time since then counts as waiting. Read before the
        # connector looks: what it does not see must have been gone by then.
        lasted_ms = policy.timeout_ms(name, method.timeout_ms, is_mutation=True)
        waited_ms = host.call_times.waited_ms(mutation.id, lasted_ms)
        call, timeout_ms = MutationCall.of(mutation, params.values), policy.timeout_ms(name, None, is_mutation=False)
        verdict = await method.reconcile(call, timeout_ms, waited_ms)
        host.reach(Point.CHECKED, name)
        return verdict

    def _outside(self) -> AbstractContextManager[None]:
        """Give the slot to another run while this one waits for the outside."""
        return self._host.run_slots.outside() if self._has_slot else nullcontext()

    async def _watched(self, method: Method, answer: Awaitable[Ended]) -> Ended:
        """Wait for a connector, and measure how long that takes and how it ends."""
        host, began = self._host, self._host.time.now()
        with host.telemetry.span(names.CALL.name, method=method.full_name, access=method.kind) as span:
            outcome = await answer
            said, failure = _in_words(outcome)
            span.ends(said, failure)
        host.telemetry.observe(
            names.CALL_MS.name,
            max(host.time.now() - began, 0),
            method=method.full_name,
            access=method.kind,
            outcome=said,
            workflow_id=self._facts.workflow.id,
        )
        return outcome


async def _nothing() -> tuple[Any, ...]:
    """The answers of no operations."""
    return ()


async def drive_run(machine: RunMachine, host: Host, write: Write, *, goes_on: bool = False) -> None:
    """Drive one run to its end, in a slot, measured. `goes_on`: its workflow has just had one, and may keep it."""
    facts, telemetry, began = machine.facts, host.telemetry, host.time.now()
    known = {"workflow_id": facts.workflow.id, "workflow": facts.workflow.name, "run_id": facts.run_id}
    with telemetry.span(names.RUN.name, **known, handler=facts.handler, kind=facts.kind, trigger=facts.trigger) as span:
        async with host.run_slots.turn(goes_on=goes_on):
            storage = StoredRun(host, facts.workflow.id, facts.handler, write)
            driver = RunDriver(machine, host, storage, has_slot=True)
            end = await driver.drive(machine.start(host.time.now()))
        span.ends(end.status, end.failure)
    counted = {"kind": facts.kind, "workflow_id": facts.workflow.id}
    telemetry.count(names.RUNS.name, **counted, status=end.status, failure=end.failure)
    telemetry.observe(names.RUN_MS.name, max(host.time.now() - began, 0), **counted)


def _ended(outcome: Terminal, logs: tuple[str, ...]) -> RunInput:
    match outcome:
        case Value():
            return ScriptReturned(outcome.value if outcome.is_given else None, logs)
        case IssuedMutation():
            return ScriptIssued(outcome, logs)
        case _:
            return ScriptFailed(outcome, logs)


def _in_words(outcome: ReadOutcome | CallOutcome) -> tuple[str, str]:
    """How a call ended, and the class of failure, in the words of the telemetry."""
    match outcome:
        case Answer():
            return "answered", ""
        case Failed():
            return "failed", outcome.cls
        case Happened():
            return "happened", ""
        case DidNotHappen():
            return "did_not_happen", outcome.cls
        case Unknown():
            return "unknown", FailureClass.INDETERMINATE
        case _:
            assert_never(outcome)
