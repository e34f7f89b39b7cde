"""The plumbing and the ends of a run: what is noted, what is saved, and how it commits, stops or gives up. Pure.

The base of `RunMachine`, which has the rest of a run's steps and the table of all of them.
"""

import random
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from keep_actors.run import calls, failures, requests
from keep_actors.run.effects import (
    AnswerScript,
    AwaitSave,
    EndScript,
    Finish,
    Invoke,
    RunEffect,
    Save,
    Saved,
    SaveRefused,
    ScriptStopped,
    Writes,
)
from keep_actors.run.failures import Failure, logic
from keep_actors.run.gate import ScriptPhase
from keep_actors.run.schedule import next_run_at
from keep_actors.run.state import At, CheckedCall, ItemInHand, RunFacts, RunState
from keep_actors.text.visible import head
from keep_storage.errors import Reason, Rejected
from keep_storage.ids import Ids, Millis
from keep_storage.model import (
    FailureClass,
    HandlerKind,
    Json,
    Mutation,
    Phase,
    RunStatus,
)
from keep_storage.operations import (
    CommitConsumer,
    CommitJob,
    CommitProducer,
    CreateMaintenanceTask,
    FinishSession,
    HaltWorkflow,
    Operation,
    RecoverCrashedRuns,
    UpdateConsumerPhase,
    UpdateHandlerRunStatus,
)

NOT_ADMITTED: Final = "not_admitted"
"""How a run finishes of which nothing is left: its workflow was stopped before it was in the file."""

_REQUEST_CHARS_MAX: Final = 500


class RunEnds:
    """One run, as far as its ends. `state` is all it remembers; `ids` and `rng` are its only other sources."""

    def __init__(self, facts: RunFacts, state: RunState, ids: Ids, rng: random.Random) -> None:
        self.facts = facts
        self.state = state
        self._ids = ids
        self._rng = rng
        self._now: Millis = 0

    def _commit(self) -> RunEffect:
        facts, state = self.facts, self.state
        run_id, publishes, kept, logs = facts.run_id, state.publishes, state.next_state, self._logs()
        ends = (FinishSession(facts.session_id, if_idle=True),) if facts.session_id else ()
        if facts.kind is HandlerKind.CONSUMER:
            return self._save(At.COMMITTING, CommitConsumer(run_id, publishes, kept, logs, state.cost_micros), *ends)
        commit = CommitProducer if facts.kind is HandlerKind.PRODUCER else CommitJob
        schedule, default_ms = facts.script.schedule_of(facts.handler), facts.policy.producer_interval_ms
        next_at = next_run_at(schedule, facts.workflow.timezone, default_ms, self._now)
        return self._save(At.COMMITTING, commit(run_id, next_at, publishes, kept, logs, state.cost_micros), *ends)

    def _committed(self, said: Saved) -> RunEffect:
        self._take(said)
        return self._finish(RunStatus.COMMITTED)

    def _stop(self, failure: Failure, *first: Operation[Any], at: At = At.STOPPING) -> RunEffect:
        """End without a commit. The evidence goes with it."""
        facts, state = self.facts, self.state
        stop = failures.stop_for(failure, facts.before, facts.policy, self._now, self._rng)
        self.state = replace(state, failure=failure, status=stop.status)
        update = UpdateHandlerRunStatus(
            facts.run_id,
            stop.status,
            stop.error,
            self._logs(),
            state.cost_micros,
            stop.retry_at,
            failing_since=stop.failing_since,
            is_fault=failure.is_fault,
            parks=facts.parks,
        )
        after: Writes = ()
        if stop.status is RunStatus.FAILED_LOGIC:
            after = (self._repair(failure),)
        elif stop.status is RunStatus.FAILED_INTERNAL:
            # A call that was made, and whose outcome could not be written, is looked for as after a crash.
            after = (RecoverCrashedRuns(facts.workflow.id),)
        return self._save(at, *first, update, *after)

    def _stopped(self, said: Saved) -> RunEffect:
        self._take(said)
        assert self.state.failure is not None, "a run stops for a reason"
        return self._finish(self.state.status, self.state.failure.cls)

    def _refused(self, said: SaveRefused) -> RunEffect:
        """The storage refused what the run wants: the script's mistake, unless a person was quicker."""
        if self._is_not_admitted(said.error):
            return self._finish(NOT_ADMITTED)
        return self._stop(self._forget(said.error))

    def _refused_in_script(self, said: SaveRefused) -> RunEffect:
        """The same while the script waits: it is ended first."""
        if said.error.reason is Reason.ITEM_IS_DONE:
            return self._end_script(logic(self.facts.handler, str(said.error)))
        if self._is_not_admitted(said.error):
            self._become(At.ENDING_SCRIPT, is_admitted=False)
            return EndScript(str(said.error))
        return self._end_script(self._forget(said.error))

    def _record_refused(self, said: SaveRefused) -> RunEffect:
        return self._refused_in_script(said) if self.state.item is not None else self._refused(said)

    def _stop_refused(self, said: SaveRefused) -> RunEffect:
        if self._is_not_admitted(said.error):
            return self._finish(NOT_ADMITTED)
        if said.error.reason not in failures.CLASS_OF_REFUSAL:
            return self._give_up(said)
        # Its events cannot be had, or what it asked for is refused: that is the failure to tell.
        return self._stop(self._forget(said.error), at=At.STOPPING_REFUSED)

    def _second_stop_refused(self, said: SaveRefused) -> RunEffect:
        return self._finish(NOT_ADMITTED) if self._is_not_admitted(said.error) else self._give_up(said)

    def _give_up(self, said: SaveRefused) -> RunEffect:
        """The storage refuses even the end of the run: settle it as after a crash, and stop the workflow."""
        facts = self.facts
        self._become(At.GIVING_UP, opening=(), unsaved=())
        words = f"{facts.handler}: the run could not be written down: {said.error}"
        settle = (RecoverCrashedRuns(facts.workflow.id), HaltWorkflow(facts.workflow.id, words))
        return Save(settle, alarm=f"Run {facts.run_id} cannot be stopped in order: {said.error}")

    def _settle(self, _: SaveRefused) -> RunEffect:
        """An archived workflow need not be halted."""
        self._become(At.SETTLING)
        return Save((RecoverCrashedRuns(self.facts.workflow.id),))

    def _given_up(self, _: Saved) -> RunEffect:
        return self._finish(RunStatus.CRASHED, FailureClass.INTERNAL)

    def _finish(self, status: str, failure: str = "") -> RunEffect:
        self._become(At.FINISHED)
        return Finish(status, failure)

    # A script that ends, or goes on.

    def _answer(self, text: Json) -> RunEffect:
        request = self.state.request
        assert request is not None, "an answer belongs to a request"
        self._become(At.IN_SCRIPT)
        return AnswerScript(request.id, text)

    def _end_script(self, failure: Failure, *first: Operation[Any]) -> RunEffect:
        self._become(At.ENDING_SCRIPT, failure=failure, first=first)
        return EndScript(failure.message)

    def _script_stopped(self, said: ScriptStopped) -> RunEffect:
        self._keep_logs(said.logs)
        state = self.state
        if not state.is_admitted:
            return self._finish(NOT_ADMITTED)
        assert state.failure is not None, "a script is ended for a reason"
        return self._script_over(state.failure)

    def _script_over(self, failure: Failure | None) -> RunEffect:
        """Stop or commit; the outcome of a call that is being written comes first, whatever `next` did."""
        self.state = replace(self.state, failure=failure)
        if self.state.is_saving:
            self._become(At.AWAITING_OUTCOME)
            return AwaitSave()
        return self._commit() if failure is None else self._stop(failure, *self.state.first)

    # How.

    def _become(self, at: At, **changes: Any) -> None:
        self.state = replace(self.state, at=at, **changes)

    def _invoke(self, phase: ScriptPhase, address: str, *arguments: Json | None) -> Invoke:
        self._become(At.IN_SCRIPT, phase=phase)
        # A state that was never saved is left out.
        return Invoke(phase, address, f"[{','.join(each for each in arguments if each is not None)}]")

    def _note(self, *operations: Operation[Any]) -> None:
        """Write this with the next save."""
        if operations:
            self.state = replace(self.state, unsaved=(*self.state.unsaved, *operations))

    def _note_phase(self, phase: Phase) -> None:
        self._note(UpdateConsumerPhase(self.facts.run_id, phase))

    @property
    def _has_unsaved(self) -> bool:
        return bool(self.state.opening or self.state.unsaved)

    def _batch(self, *operations: Operation[Any]) -> Save:
        return Save((*self.state.opening, *self.state.unsaved, *operations))

    def _save(self, at: At, *operations: Operation[Any]) -> Save:
        """Make everything so far and this durable."""
        self._become(at)
        return self._batch(*operations)

    def _take(self, said: Saved) -> tuple[Any, ...]:
        """Forget the notes: they are in the file now."""
        self.state = replace(self.state, opening=(), unsaved=())
        return said.answers

    def _checked(self, asked: requests.ReadOutside | requests.MutateInItem) -> CheckedCall | Failure:
        """The call, if it is permitted and its parameters fit. It counts against the limit of a run."""
        method = asked.method
        if (refused := calls.refusal(self.facts, self.state, method)) is not None:
            return refused
        used = {**self.state.calls, method.permission: self.state.calls.get(method.permission, 0) + 1}
        self.state = replace(self.state, calls=used)
        params = calls.decoded_params(self.facts, method, asked.text)
        return params if isinstance(params, Failure) else CheckedCall(method, params, asked.text)

    def _first(self) -> Writes:
        """A person's stop, if the run was not in the file when it came."""
        return (self.state.stop,) if self.state.stop is not None and self.state.stopped else ()

    def _forget(self, error: Rejected) -> Failure:
        """Drop what was noted and not saved, but not the run itself. Returns what the refusal means."""
        self.state = replace(self.state, unsaved=(), is_saving=False)
        return failures.of_refusal(error, self.facts.handler, event_was_skipped=self.state.event_was_skipped)

    def _is_not_admitted(self, error: Rejected) -> bool:
        return error.reason in failures.NOT_ADMITTED_REASONS and not self.state.is_open

    def _repair(self, failure: Failure) -> CreateMaintenanceTask:
        evidence = {
            "version": self.facts.script.version_id,
            "handler": self.facts.handler,
            "error": failure.message,
            "place": failure.place,
            "logs": self.state.logs,
            "requests": self.state.requests,
        }
        return CreateMaintenanceTask(self.facts.workflow.id, msgspec.json.encode(evidence).decode())

    def _with_request(self, name: str, params: Json) -> tuple[str, ...]:
        """All requests so far, and this one: its beginning, and how much is left out."""
        return (*self.state.requests, f"{name} {head(params, _REQUEST_CHARS_MAX)}")

    def _keep_logs(self, logs: tuple[str, ...]) -> None:
        if logs:
            self.state = replace(self.state, logs=(*self.state.logs, *logs))

    def _logs(self) -> Json:
        return msgspec.json.encode(self.state.logs).decode()

    def _add_cost(self, cost_micros: int) -> None:
        if cost_micros:
            self.state = replace(self.state, cost_micros=self.state.cost_micros + cost_micros)

    def _address(self, phase: str) -> str:
        return f"consumers.{self.facts.handler}.{phase}"

    def _where(self) -> str:
        match self.facts.kind:
            case HandlerKind.CONSUMER:
                return self._address(self.state.phase.name.lower())
            case _:
                return f"{self.facts.kind}s.{self.facts.handler}"

    @property
    def _wanted(self) -> CheckedCall:
        assert self.state.wanted is not None, "a call was wanted"
        return self.state.wanted

    @property
    def _mutation(self) -> Mutation:
        assert self.state.mutation is not None, "the ledger has the call"
        return self.state.mutation

    @property
    def _hand(self) -> ItemInHand:
        assert self.state.item is not None, "the gate lets a job mutate only inside an item"
        return self.state.item
