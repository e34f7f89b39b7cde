"""One run, decided: `start` and `on` say what to do next, and do nothing themselves.

Producers, consumers, jobs, retries at `next`, approved calls, reconciliation and dry runs are this machine, begun in
different ways and driven by different drivers. `STEPS` is the whole table: a place and an input that are not in it are
refused. Handler code is pure until a mutation is issued, so it runs ahead of the file: only the external call waits
until the ledger has it, and only the answer waits for the commit.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final, assert_never

import msgspec
from msgspec.structs import replace

from keep_actors.connectors import Answer, Failed
from keep_actors.permissions import Envelope
from keep_actors.run import calls, failures, items, requests, results
from keep_actors.run.earlier_calls import EarlierCalls
from keep_actors.run.effects import (
    AnswerRefused,
    CallEnded,
    CallRead,
    CheckReservations,
    EarlierCallsRead,
    EventSkipped,
    EventsRead,
    GetEvents,
    GrantsChanged,
    OutcomeChecked,
    PeekEvents,
    ReadEarlierCalls,
    ReadEnded,
    RunEffect,
    RunInput,
    RunNews,
    Saved,
    SaveRefused,
    ScriptAsked,
    ScriptFailed,
    ScriptIssued,
    ScriptReturned,
    ScriptStopped,
    StopRequested,
    Writes,
)
from keep_actors.run.failures import Failure, logic
from keep_actors.run.gate import Ask, ScriptPhase, refusal
from keep_actors.run.mutations import RunCalls
from keep_actors.run.results import Prepared, ResultError
from keep_actors.run.state import At, ItemInHand, RunFacts, RunState
from keep_storage.ids import Ids, Millis
from keep_storage.model import (
    FailureClass,
    HandlerKind,
    Item,
    ItemState,
    Json,
    MutationOutcome,
    Phase,
)
from keep_storage.operations import (
    CloseItem,
    OpenItem,
    Publish,
    UpdateConsumerPhase,
)
from keep_storage.outcomes import mutation_result, mutation_result_for_next
from keep_storage.transitions import ITEM_FINISHED

_NOTHING: Final = "null"


class UnexpectedInput(AssertionError):
    """The driver gave an input that nothing asked for: a bug of the driver."""


class RunMachine(RunCalls):
    """One run. `state` is all it remembers; `ids` and `rng` are its only other sources."""

    @classmethod
    def new(
        cls, facts: RunFacts, envelope: Envelope, ids: Ids, rng: random.Random, opening: Writes = ()
    ) -> "RunMachine":
        """A run that has not begun. `opening` creates it, together with the first thing that it writes."""
        return cls(facts, RunState(At.NEW, envelope, opening), ids, rng)

    # What a driver calls.

    def start(self, now: Millis) -> RunEffect:
        """Begin, or continue a stopped run at `next`."""
        self._now, facts = now, self.facts
        assert self.state.at is At.NEW, "a run starts once"
        if missing := [name for name in facts.script.uses if facts.catalog.get(name) is None]:
            # A runtime that was opened without a connector is not the script's mistake, and nothing to repair.
            return self._stop(failures.not_here(missing))
        match facts.kind:
            case HandlerKind.PRODUCER:
                return self._invoke(ScriptPhase.PRODUCER, f"producers.{facts.handler}", facts.state)
            case HandlerKind.JOB:
                return self._invoke(ScriptPhase.JOB, f"jobs.{facts.handler}", facts.state)
            case HandlerKind.CONSUMER:
                if (retried := facts.retried) is None:
                    return self._invoke(ScriptPhase.PREPARE, self._address("prepare"), facts.state)
                assert retried.prepare_result is not None, "a run that reached its mutation was prepared"
                return self._next(retried.prepare_result, mutation_result_for_next(retried))
            case _:
                assert_never(facts.kind)

    def on(self, said: RunInput, now: Millis) -> RunEffect:
        """Take what came of the last effect, and say what to do next."""
        step = STEPS.get((self.state.at, type(said)))
        if step is None:
            raise UnexpectedInput(f"{type(said).__name__} while {self.state.at}")
        self._now = now
        return step(self, said)

    def told(self, news: RunNews) -> None:
        """Take note of what a person did. It counts from the next call on."""
        match news:
            case EventSkipped():
                self.state = replace(self.state, event_was_skipped=True)
            case StopRequested():
                self.state = replace(self.state, stopped=news.why, stop=news.write or self.state.stop)
            case GrantsChanged():
                self.state = replace(self.state, envelope=news.envelope)
            case _:
                assert_never(news)

    # A script that runs.

    def _script_asked(self, said: ScriptAsked) -> RunEffect:
        request, state = said.request, self.state
        self.state = replace(state, request=request, requests=self._with_request(request.name, request.params))
        phase = ScriptPhase.ITEM if state.item is not None else state.phase
        asked = requests.asking(self.facts, phase, request)
        match asked:
            case Failure():
                return self._end_script(asked)
            case PeekEvents() | GetEvents():
                self._become(At.READING_EVENTS, peeked=asked.topic if isinstance(asked, PeekEvents) else "")
                return asked
            case requests.PublishEvent():
                return self._publish(asked)
            case requests.ReadOutside():
                return self._read(asked)
            case requests.MutateInItem():
                return self._mutate_in_item(asked)
            case requests.EnterItem():
                return self._save(At.OPENING_ITEM, OpenItem(self.facts.run_id, asked.item_id, asked.title))
            case requests.LeaveItem():
                return self._leave_item(asked)
            case _:
                assert_never(asked)

    def _script_returned(self, said: ScriptReturned) -> RunEffect:
        self._keep_logs(said.logs)
        facts, state = self.facts, self.state
        try:
            match state.phase:
                case ScriptPhase.PREPARE:
                    return self._reserve(results.prepared(said.value or _NOTHING, facts.policy, self._now))
                case ScriptPhase.MUTATE:
                    assert state.prepared is not None, "`mutate` follows `prepare`"
                    self._note_phase(Phase.MUTATED)
                    return self._emit(state.prepared)
                case _:
                    kept = None if said.value is None else results.state(said.value, facts.policy, self._where())
        except ResultError as error:
            return self._script_over(logic(facts.handler, str(error)))
        if state.item is not None:
            # The prelude says it better, with its place. A worker that was taken over can return all the same.
            return self._stop(logic(facts.handler, items.ITEM_LEFT_OPEN))
        self.state = replace(self.state, next_state=kept)
        return self._script_over(None)

    def _script_issued(self, said: ScriptIssued) -> RunEffect:
        """Only `mutate` may end with a mutation: the gate refuses it in every other phase."""
        self._keep_logs(said.logs)
        issued = said.issued
        self.state = replace(self.state, issued=issued, requests=self._with_request(issued.name, issued.params))
        if why := refusal(self.state.phase, Ask.MUTATION, issued.name, self.facts.policy):
            return self._script_over(logic(self.facts.handler, why))
        method = requests.method_of(self.facts, issued.name)
        if isinstance(method, Failure):
            return self._stop(method)
        call = self._checked(requests.MutateInItem(method, issued.params))
        if isinstance(call, Failure):
            return self._stop(call, *self._first())
        return self._record(call)

    def _script_failed(self, said: ScriptFailed) -> RunEffect:
        self._keep_logs(said.logs)
        return self._script_over(failures.of_outcome(said.outcome, self._where()))

    def _answer_refused(self, said: AnswerRefused) -> RunEffect:
        request = self.state.request
        assert request is not None, "an answer belongs to a request"
        return self._end_script(logic(self.facts.handler, f"`ctx.{request.name}`: {said.problem}; ask for less"))

    # Its requests.

    def _events_read(self, said: EventsRead) -> RunEffect:
        if topic := self.state.peeked:
            seen = self.state.seen.union((topic, event.message_id) for event in said.events)
            self.state = replace(self.state, seen=seen)
        return self._answer(requests.events_text(said.events))

    def _publish(self, asked: requests.PublishEvent) -> RunEffect:
        state, most = self.state, self.facts.policy.publishes_max
        if state.published >= most:
            words = f"`ctx.publish`: more than {most} events in one run"
            return self._end_script(logic(self.facts.handler, words))
        event_id = self._ids.new("evt")
        message_id = asked.message_id or event_id
        publish = Publish(event_id, asked.topic, message_id, asked.title, asked.payload)
        if state.item is not None:
            hand = replace(state.item, publishes=(*state.item.publishes, publish))
            self.state = replace(state, published=state.published + 1, item=hand)
        else:
            self.state = replace(state, published=state.published + 1, publishes=(*state.publishes, publish))
        return self._answer(msgspec.json.encode(message_id).decode())

    def _read(self, asked: requests.ReadOutside) -> RunEffect:
        call = self._checked(asked)
        if isinstance(call, Failure):
            return self._end_script(call, *self._first())
        self._note(*calls.use(self.facts, self.state, call.method, self._now))
        self.state = replace(self.state, wanted=call)
        # A connector is called only for a run that is in the file.
        return self._save(At.SAVING_BEFORE_READ) if self._has_unsaved else self._call_read()

    def _saved_before_read(self, said: Saved) -> RunEffect:
        self._take(said)
        return self._call_read()

    def _call_read(self) -> RunEffect:
        call = self._wanted
        self._become(At.READING)
        return CallRead(call.method, call.params)

    def _read_ended(self, said: ReadEnded) -> RunEffect:
        self._add_cost(said.cost_micros)
        match said.outcome:
            case Answer():
                return self._answer(said.outcome.json_text)
            case Failed():
                message = f"{self.facts.handler}: {self._wanted.method.full_name}: {said.outcome.message}"
                return self._end_script(Failure(said.outcome.cls, message, retry_after_ms=said.outcome.retry_after_ms))
            case _:
                assert_never(said.outcome)

    # Items.

    def _item_opened(self, said: Saved) -> RunEffect:
        item = self._take(said)[-1]
        assert isinstance(item, Item), "opening an item answers with it"
        self.state = replace(self.state, item=ItemInHand(item))
        if item.state in ITEM_FINISHED:
            return self._answer('{"isDone":true}')
        self._become(At.READING_EARLIER_CALLS)
        return ReadEarlierCalls(item)

    def _earlier_calls_read(self, said: EarlierCallsRead) -> RunEffect:
        self.state = replace(self.state, item=replace(self._hand, earlier=EarlierCalls(said.earlier)))
        return self._answer('{"isDone":false}')

    def _leave_item(self, asked: requests.LeaveItem) -> RunEffect:
        hand = self.state.item
        if hand is None or hand.item.item_id != asked.item_id:
            # No script can say this: the prelude closes the scope it opened. A worker that was taken over can.
            words = f"{self.facts.handler}: its worker closed an item that was not open"
            return self._end_script(Failure(FailureClass.INTERNAL, words))
        self.state = replace(self.state, item=None)
        # One that was done or skipped before stays what it was.
        self._note(CloseItem(self.facts.run_id, asked.item_id, ItemState.DONE, publishes=hand.publishes))
        return self._answer(_NOTHING)

    def _mutate_in_item(self, asked: requests.MutateInItem) -> RunEffect:
        if self.state.item is None:
            # `mutate` ends with its mutation, and waits for no answer. A worker that was taken over can ask for one.
            words = f"{self.facts.handler}: its worker asked for a mutation and did not end with it"
            return self._end_script(Failure(FailureClass.INTERNAL, words))
        taken = items.without_subkey(self.facts, asked.method, asked.text)
        if isinstance(taken, Failure):
            return self._end_script(taken)
        subkey, text = taken
        call = self._checked(requests.MutateInItem(asked.method, text))
        if isinstance(call, Failure):
            return self._end_script(call, *self._first())
        scope = items.scope_of(self.facts, self._hand, call, subkey)
        if isinstance(scope, items.NeedsPerson):
            return self._end_script(scope.failure, scope.write)
        self.state = replace(self.state, wanted=call)
        asks_first = self._asks_first(call)
        line = calls.ledger_line(
            self.facts, call, self._ids, self._now, asks_first=asks_first, key=scope.identity_key, item=scope
        )
        return self._save(At.RECORDING_CALL, line)

    # The phases of a consumer.

    def _reserve(self, prepared: Prepared) -> RunEffect:
        """Check that the chosen events can be had: else that is the mistake, and not what `mutate` makes of it.

        Events that the run was shown a moment ago are not looked up again: the storage has the last word on them.
        """
        self.state = replace(self.state, prepared=prepared)
        wanted = [(each.topic, message_id) for each in prepared.reservations for message_id in each.ids]
        if len(set(wanted)) < len(wanted) or not self.state.seen.issuperset(wanted):
            self._become(At.CHECKING_RESERVATIONS)
            return CheckReservations(prepared.reservations)
        return self._prepared()

    def _prepared(self, _: Saved | None = None) -> RunEffect:
        prepared, run_id = self.state.prepared, self.facts.run_id
        assert prepared is not None, "`prepare` has returned"
        self._note(
            UpdateConsumerPhase(
                run_id, Phase.PREPARED, prepared.reservations, prepared.text, prepared.title, prepared.wake_at
            )
        )
        if prepared.reservations and self.facts.consumer.mutate:
            self._note_phase(Phase.MUTATING)
            return self._invoke(ScriptPhase.MUTATE, self._address("mutate"), prepared.text)
        return self._emit(prepared)

    def _emit(self, prepared: Prepared) -> RunEffect:
        """Go on to `next` without a mutation."""
        self._note_phase(Phase.EMITTING)
        return self._next(prepared.text, mutation_result(MutationOutcome.NONE))

    def _next(self, prepared: Json, told: Json) -> RunEffect:
        if not self.facts.consumer.next:
            return self._commit()
        return self._invoke(ScriptPhase.NEXT, self._address("next"), prepared, told)


_M = RunMachine
STEPS: Final[Mapping[tuple[At, type[RunInput]], Callable[[RunMachine, Any], RunEffect]]] = {
    (At.IN_SCRIPT, ScriptAsked): _M._script_asked,
    (At.IN_SCRIPT, ScriptReturned): _M._script_returned,
    (At.IN_SCRIPT, ScriptIssued): _M._script_issued,
    (At.IN_SCRIPT, ScriptFailed): _M._script_failed,
    (At.IN_SCRIPT, AnswerRefused): _M._answer_refused,
    (At.ENDING_SCRIPT, ScriptStopped): _M._script_stopped,
    (At.READING_EVENTS, EventsRead): _M._events_read,
    (At.CHECKING_RESERVATIONS, Saved): _M._prepared,
    (At.CHECKING_RESERVATIONS, SaveRefused): _M._refused,
    (At.SAVING_BEFORE_READ, Saved): _M._saved_before_read,
    (At.SAVING_BEFORE_READ, SaveRefused): _M._refused_in_script,
    (At.READING, ReadEnded): _M._read_ended,
    (At.OPENING_ITEM, Saved): _M._item_opened,
    (At.OPENING_ITEM, SaveRefused): _M._refused_in_script,
    (At.READING_EARLIER_CALLS, EarlierCallsRead): _M._earlier_calls_read,
    (At.RECORDING_CALL, Saved): _M._call_recorded,
    (At.RECORDING_CALL, SaveRefused): _M._record_refused,
    (At.CALLING, CallEnded): _M._call_ended,
    (At.RECORDING_DOUBT, Saved): _M._doubt_recorded,
    (At.RECORDING_DOUBT, SaveRefused): _M._record_refused,
    (At.CHECKING, OutcomeChecked): _M._outcome_checked,
    (At.SAVING_ITEM_CALL, Saved): _M._item_call_saved,
    (At.SAVING_ITEM_CALL, SaveRefused): _M._refused_in_script,
    (At.AWAITING_OUTCOME, Saved): _M._outcome_saved,
    (At.AWAITING_OUTCOME, SaveRefused): _M._refused,
    (At.COMMITTING, Saved): _M._committed,
    (At.COMMITTING, SaveRefused): _M._refused,
    (At.STOPPING, Saved): _M._stopped,
    (At.STOPPING, SaveRefused): _M._stop_refused,
    (At.STOPPING_REFUSED, Saved): _M._stopped,
    (At.STOPPING_REFUSED, SaveRefused): _M._second_stop_refused,
    (At.GIVING_UP, Saved): _M._given_up,
    (At.GIVING_UP, SaveRefused): _M._settle,
    (At.SETTLING, Saved): _M._given_up,
    (At.MAKING_APPROVED_CALL, CallEnded): _M._approved_call_ended,
    (At.RECONCILING, OutcomeChecked): _M._reconciled,
    (At.WRITING_FINDINGS, Saved): _M._findings_written,
    (At.WRITING_FINDINGS, SaveRefused): _M._findings_refused,
    (At.WRITING_LESS, Saved): _M._findings_written,
}
"""Every place in which a run waits, every input it can get there, and the step that follows."""

SAVES: Final = frozenset(at for at, said in STEPS if said is Saved) - {At.CHECKING_RESERVATIONS}
"""The places in which a run writes: before and after each of them, a process may die."""

assert {at for at, _ in STEPS} == set(At) - {At.NEW, At.FINISHED}, "every place leads on"
