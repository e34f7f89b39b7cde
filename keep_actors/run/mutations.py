"""The mutations of a run: from the call that a script wants to its outcome in the ledger. Pure."""

from typing import Any, assert_never

from msgspec.structs import replace

from keep_actors.connectors import DidNotHappen, Happened, ParamsError, Unknown
from keep_actors.run import calls, items, reconcile
from keep_actors.run.effects import (
    CallEnded,
    CallMutation,
    CheckOutcome,
    OutcomeChecked,
    RunEffect,
    Save,
    SaveAndInvoke,
    Saved,
    SaveRefused,
)
from keep_actors.run.ends import RunEnds
from keep_actors.run.failures import Failure
from keep_actors.run.gate import ScriptPhase
from keep_actors.run.state import At, CheckedCall
from keep_storage.errors import Reason
from keep_storage.ids import Millis
from keep_storage.model import (
    FailureClass,
    Mutation,
    MutationOutcome,
    MutationStatus,
    Phase,
    RunStatus,
)
from keep_storage.operations import (
    ApplyMutation,
    CountCost,
    FailMutation,
    HaltWorkflow,
    Operation,
    RunError,
    UpdateConsumerPhase,
    UpdateHandlerRunStatus,
    UpdateMutationStatus,
)
from keep_storage.outcomes import mutation_result


class RunCalls(RunEnds):
    """One run, as far as its mutations: those of `mutate`, of items, and those that a person approved or doubts."""

    def _record(self, call: CheckedCall) -> RunEffect:
        """Write the call into the ledger. If a person is to be asked first, the run ends here."""
        self.state = replace(self.state, wanted=call)
        asks_first = self._asks_first(call)
        line = calls.ledger_line(self.facts, call, self._ids, self._now, asks_first=asks_first)
        if asks_first:
            # The question and the stop are written together: there is no moment in which only one of them exists.
            return self._stop(calls.approval_needed(self.facts, call), line)
        return self._save(At.RECORDING_CALL, line)

    def _asks_first(self, call: CheckedCall) -> bool:
        """Return True if a person approves this call first. If not, count it: an approved one counts then."""
        if self.state.envelope.asks_first(call.method.permission):
            return True
        self._note(*calls.use(self.facts, self.state, call.method, self._now))
        return False

    def _call_recorded(self, said: Saved) -> RunEffect:
        call, mutation = self._wanted, self._take(said)[-1]
        assert isinstance(mutation, Mutation), "recording a call answers with its line"
        self.state = replace(self.state, mutation=mutation)
        if (hand := self.state.item) is not None:
            # Inside an item the ledger may know the call already, and then says what became of it.
            self.state = replace(self.state, item=replace(hand, earlier=hand.earlier.with_repeated(mutation.id)))
            if mutation.status is MutationStatus.PENDING:
                return self._end_script(calls.approval_needed(self.facts, call))
            if mutation.status is MutationStatus.APPLIED:
                result = items.replayed(self.facts, hand.item, call, mutation)
                if isinstance(result, items.NeedsPerson):
                    return self._end_script(result.failure, result.write)
                return self._answer(result)
        self._become(At.CALLING)
        return CallMutation(call.method, call.params, mutation)

    def _call_ended(self, said: CallEnded) -> RunEffect:
        self._add_cost(said.cost_micros)
        mutation, outcome = self._mutation, said.outcome
        match outcome:
            case Happened():
                return self._happened(ApplyMutation(mutation.id, outcome.json_text))
            case DidNotHappen() | Unknown():
                failure, write = calls.consequence(self._wanted.method, mutation, outcome)
                if isinstance(outcome, DidNotHappen) or not mutation.reconcilable:
                    return self._call_failed(failure, write)
                # The doubt is written first; then the connector is asked at once, which spares most runs a pause.
                self.state = replace(self.state, failure=failure)
                return self._save(At.RECORDING_DOUBT, write)
            case _:
                assert_never(outcome)

    def _doubt_recorded(self, said: Saved) -> RunEffect:
        mutation = self._take(said)[-1]
        self._become(At.CHECKING, mutation=mutation)
        return CheckOutcome(mutation)

    def _outcome_checked(self, said: OutcomeChecked) -> RunEffect:
        doubt = self.state.failure
        assert doubt is not None, "the doubt was noted before it was looked into"
        write = reconcile.learned(self._mutation, said.verdict, self.facts.policy, self._now, self._rng)
        match write:
            case ApplyMutation():
                self.state = replace(self.state, failure=None)
                return self._happened(write)
            case FailMutation():
                words = f"{doubt.message} The connector looked: it did not happen."
                return self._call_failed(Failure(FailureClass.TRANSIENT, words), write)
            case UpdateMutationStatus():
                return self._call_failed(doubt, write)
            case _:
                assert_never(write)

    def _happened(self, applied: ApplyMutation) -> RunEffect:
        """Inside an item the script continues with the result. In a consumer `next` runs while the outcome is
        written."""
        self.state = replace(self.state, applied=applied)
        if self.state.item is not None:
            return self._save(At.SAVING_ITEM_CALL, applied)
        outcome = (applied, UpdateConsumerPhase(self.facts.run_id, Phase.EMITTING))
        if not self.facts.consumer.next:
            self._note(*outcome)
            return self._commit()
        assert self.state.prepared is not None, "a mutation follows `prepare`"
        save = self._batch(*outcome)
        told = mutation_result(MutationOutcome.SUCCESS, applied.result)
        invoke = self._invoke(ScriptPhase.NEXT, self._address("next"), self.state.prepared.text, told)
        self.state = replace(self.state, is_saving=True)
        return SaveAndInvoke(save, invoke)

    def _item_call_saved(self, said: Saved) -> RunEffect:
        self._take(said)
        assert self.state.applied is not None, "the result is known"
        return self._answer(self.state.applied.result)

    def _outcome_saved(self, said: Saved) -> RunEffect:
        self._take(said)
        self.state = replace(self.state, is_saving=False)
        return self._script_over(self.state.failure)

    def _call_failed(self, failure: Failure, write: Operation[Any]) -> RunEffect:
        return self._end_script(failure, write) if self.state.item is not None else self._stop(failure, write)

    # An approved call, and a call that is looked for. Their run has stopped before.

    def start_approved(self, mutation: Mutation, now: Millis) -> RunEffect:
        """Make exactly the call that was approved. Its run has stopped: `next`, or a fresh run, continues."""
        self._now, name = now, f"{mutation.connector}.{mutation.method}"
        method = self.facts.catalog.get(name)
        if method is None:
            error = f"There is no {name} any more; nothing was sent."
            return self._write_findings(FailMutation(mutation.id, error=error))
        try:
            params = method.decode_params(mutation.params)
        except ParamsError as wrong:
            return self._write_findings(FailMutation(mutation.id, error=f"{wrong}; nothing was sent."))
        wanted = CheckedCall(method, params, mutation.params)
        self._become(At.MAKING_APPROVED_CALL, mutation=mutation, wanted=wanted)
        return CallMutation(method, params, mutation)

    def start_reconcile(self, mutation: Mutation, now: Millis) -> RunEffect:
        """Ask the connector once what became of a call. Its run has stopped: the answer decides how it continues."""
        self._now = now
        self._become(At.RECONCILING, mutation=mutation)
        return CheckOutcome(mutation)

    def _approved_call_ended(self, said: CallEnded) -> RunEffect:
        mutation, outcome = self._mutation, said.outcome
        cost = (CountCost(mutation.run_id, said.cost_micros),) if said.cost_micros else ()
        if isinstance(outcome, Happened):
            return self._write_findings(ApplyMutation(mutation.id, outcome.json_text), *cost)
        failure, write = calls.consequence(self._wanted.method, mutation, outcome)
        if failure.cls is FailureClass.INDETERMINATE:
            doubt = RunError(failure.cls, failure.message)
            pause = UpdateHandlerRunStatus(mutation.run_id, RunStatus.PAUSED_RECONCILIATION, doubt)
            return self._write_findings(write, *cost, pause)
        if failure.cls is FailureClass.TRANSIENT:
            return self._write_findings(write, *cost)
        # A fresh run would only ask the same question again: the person has to learn why the approval was of no use.
        words = f"The approved call failed: {failure.message}"
        return self._write_findings(write, *cost, HaltWorkflow(self.facts.workflow.id, words, failure.cls))

    def _reconciled(self, said: OutcomeChecked) -> RunEffect:
        learned = reconcile.learned(self._mutation, said.verdict, self.facts.policy, self._now, self._rng)
        return self._write_findings(learned)

    def _write_findings(self, *findings: Operation[Any]) -> RunEffect:
        self._become(At.WRITING_FINDINGS, findings=findings)
        return Save(findings)

    def _findings_refused(self, said: SaveRefused) -> RunEffect:
        if said.error.reason is Reason.MUTATION_ALREADY_SETTLED:
            # A person who found out was quicker than the connector that was being asked.
            return self._finish("done")
        if said.error.reason is not Reason.WORKFLOW_STATUS_REFUSED:
            raise said.error
        # A person has archived the workflow: only that a call did not happen, and its cost, are still of use.
        self._become(At.WRITING_LESS)
        return Save(tuple(each for each in self.state.findings if isinstance(each, FailMutation | CountCost)))

    def _findings_written(self, _: Saved) -> RunEffect:
        return self._finish("done")
