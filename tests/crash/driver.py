"""A toy scheduler: from whatever the database holds, it drives a scenario to its end, one operation at a time.

It decides from the rows and from the outside world alone, and keeps nothing between two steps: a process that
dies after any of them loses nothing it would have needed.
"""

import json
from typing import Any, Final

from keep_storage import Millis, Operation, reads
from keep_storage import operations as ops
from keep_storage.model import (
    Event,
    FailureClass,
    HandlerKind,
    Item,
    ItemState,
    MaintenanceTask,
    Mutation,
    MutationOutcome,
    MutationStatus,
    Phase,
    Resolver,
    Run,
    RunStatus,
    Workflow,
    WorkflowStatus,
)
from keep_storage.operations import AskFirst, ItemScope, Publish, Reserve, RunError, Together
from keep_storage.outcomes import mutation_result_for_next
from keep_storage.reads import HandlerView
from keep_storage.transaction import Queries
from tests.crash.scenarios import Consumer, Decision, Repair, Scenario, Trouble, Verdict
from tests.crash.services import Answer, Check, Services, result_of

FAR: Final = 4_102_444_800_000
"""A time that no test reaches."""

CHECKS_MAX: Final = 2
"""So often a connector is asked what became of a call before a person is."""

NO_LIMIT: Final = 1_000_000

PERMISSION: Final = "sheets.append"
TODAY: Final = 20_000

Op = Operation[Any]


class View:
    """What the rows of one workflow say now."""

    def __init__(self, q: Queries, workflow: Workflow) -> None:
        self.workflow = workflow
        self.runs = reads.runs(q, workflow.id, limit=NO_LIMIT)[::-1]
        self.active = next((run for run in self.runs if run.status is RunStatus.ACTIVE), None)
        self.unsettled = reads.unsettled_mutations(q, workflow.id)
        self.session = reads.open_session(q, workflow.id)

    def run(self, run_id: str) -> Run:
        return next(run for run in self.runs if run.id == run_id)


class Driver:
    """Says what the next operation of a scenario is. Outside, it makes the calls and answers for the people."""

    def __init__(self, scenario: Scenario, outside: Services, workflow_id: str = "wf_mail") -> None:
        self.scenario = scenario
        self.outside = outside
        self.workflow_id = workflow_id
        self._prefix = workflow_id.removeprefix("wf_")

    def next_operation(self, q: Queries) -> Op | None:
        workflow = reads.workflow(q, self.workflow_id)
        deploying = self._deploy(q, workflow)
        if deploying or workflow is None:
            return deploying
        view = View(q, workflow)
        if view.active:
            return self._advance(q, view, view.active)
        if view.unsettled and not self._begins_more(q, view):
            return self._settle(q, view, view.unsettled[0])
        return self._unblock(q, view) or self._receive(q) or self._start(q, view) or self._finish(view)

    def _begins_more(self, q: Queries, view: View) -> bool:
        """Whether something begins beside the open questions before anybody answers one."""
        all_wait = all(mutation.status is MutationStatus.PENDING for mutation in view.unsettled)
        return self.scenario.asks_on and all_wait and self._due(q) is not None

    def version_id(self, minor: int) -> str:
        return f"ver_{self._prefix}_{minor}"

    # Deploying.

    def _deploy(self, q: Queries, workflow: Workflow | None) -> Op | None:
        create = ops.CreateWorkflow(self.workflow_id, "Mail to rows")
        resume = ops.ResumeWorkflow(self.workflow_id)
        if workflow is None:
            return create if self.scenario.deploys_in_steps else Together((create, *self._release(0), resume))
        if workflow.active_version_id is None:
            return self._next_of_release(q, 0)
        return resume if workflow.status is WorkflowStatus.READY else None

    def _release(self, minor: int) -> tuple[Op, Op]:
        """The two steps that make a script the active one."""
        version_id = self.version_id(minor)
        add = ops.AddScriptVersion(version_id, self.workflow_id, 1, minor, "export default Keep.workflow({})")
        return add, ops.ActivateScript(version_id, self.scenario.topics, tuple(self.scenario.handlers()))

    def _next_of_release(self, q: Queries, minor: int) -> Op:
        add, activate = self._release(minor)
        return activate if reads.version(q, self.version_id(minor)) else add

    def _mail(self, message_id: str) -> Publish:
        return self._event("mail", message_id, json.dumps({"mail": message_id}))

    def _event(self, topic: str, message_id: str, payload: str) -> Publish:
        event_id = f"evt_{self._prefix}_{topic}_{message_id}"
        return Publish(event_id, topic, message_id, f"{topic} {message_id}", payload)

    # The active run.

    def _advance(self, q: Queries, view: View, run: Run) -> Op:
        match run.kind:
            case HandlerKind.PRODUCER:
                return self._poll(q, view, run)
            case HandlerKind.CONSUMER:
                return self._consume(q, view, run)
            case HandlerKind.JOB:
                return self._digest(q, view, run)

    def _poll(self, q: Queries, view: View, run: Run) -> Op:
        if self._strikes(q, view, run, self.scenario.poll):
            return _stop(run, self.scenario.poll)
        publishes = tuple(map(self._mail, self.scenario.mail))
        state = json.dumps({"found": len(publishes)})
        return ops.CommitProducer(run.id, FAR, publishes, state)

    def _consume(self, q: Queries, view: View, run: Run) -> Op:
        script = self._script(run.handler)
        match run.phase:
            case Phase.PENDING:
                return ops.UpdateConsumerPhase(run.id, Phase.PREPARING)
            case Phase.PREPARING:
                return self._prepare(q, view, run, script)
            case Phase.PREPARED:
                mutates = script.mutates and run.reserved_count > 0
                return ops.UpdateConsumerPhase(run.id, Phase.MUTATING if mutates else Phase.EMITTING)
            case Phase.MUTATING:
                return self._mutate(q, run, script)
            case Phase.MUTATED if run.mutation_outcome is MutationOutcome.FAILURE:
                return _stop(run, self.scenario.connector.refusal)
            case Phase.MUTATED:
                return ops.UpdateConsumerPhase(run.id, Phase.EMITTING)
            case Phase.EMITTING:
                return self._next(q, view, run, script)
            case Phase.COMMITTED:
                raise AssertionError("a committed run is not active")

    def _prepare(self, q: Queries, view: View, run: Run, script: Consumer) -> Op:
        if self._strikes(q, view, run, script.prepare):
            return _stop(run, script.prepare)
        topic = _topic_of(run.handler)
        pending = self._pending(q, topic)
        chosen = [event.message_id for event in pending[: script.batch]] if len(pending) >= script.waits_for else []
        return ops.UpdateConsumerPhase(
            run.id,
            Phase.PREPARED,
            reservations=(Reserve(topic, tuple(chosen)),) if chosen else (),
            prepare_result=json.dumps({"target": f"{run.handler}/{'+'.join(chosen)}"}),
            title=f"{run.handler} {' and '.join(chosen)}",
            wake_at=(0 if script.wakes else None) if chosen else FAR,
        )

    def _mutate(self, q: Queries, run: Run, script: Consumer) -> Op:
        if not script.calls_something:
            return ops.UpdateConsumerPhase(run.id, Phase.MUTATED)
        mutation = reads.mutation_by_identity(q, run.id)
        if mutation is None:
            assert run.prepare_result, "a run that mutates is prepared"
            return self._record(run, f"mut_{run.id}", run.prepare_result, key=f"key_{run.id}")
        return self._send(run, mutation)

    def _record(self, run: Run, mutation_id: str, params: str, key: str, item: ItemScope | None = None) -> Op:
        connector = self.scenario.connector
        if run.stop_until is not None:
            return ops.UpdateHandlerRunStatus(run.id, RunStatus.PAUSED_TRANSIENT, is_fault=False)
        if self.scenario.stops and not self.outside.somebody_stopped:
            self.outside.somebody_stopped = True
            return ops.StopRun(run.id, until=0, by="ann")
        record = ops.CreateMutation(
            mutation_id,
            run.id,
            "sheets",
            "append",
            params,
            idempotency_key=key,
            reconcilable=connector.reconciles,
            send=not connector.asks_first and not connector.two_steps,
            item=item,
            ask_first=AskFirst(f"apr_{run.id}_{mutation_id}") if connector.asks_first else None,
        )
        if connector.per_day is None:
            return record
        return Together((ops.UseGrant(run.id, PERMISSION, TODAY, connector.per_day), record))

    def _send(self, run: Run, mutation: Mutation) -> Op:
        """The mutation of an active run, recorded and not settled."""
        if mutation.status is MutationStatus.PENDING:
            if self.scenario.connector.asks_first:
                error = RunError(FailureClass.PERMISSION, "May this row be appended?")
                return ops.UpdateHandlerRunStatus(run.id, RunStatus.PAUSED_APPROVAL, error)
            return ops.UpdateMutationStatus(mutation.id, MutationStatus.IN_FLIGHT)
        if mutation.status is MutationStatus.IN_FLIGHT:
            return self._call(mutation)
        return _pause_over_doubt(run)

    def _call(self, mutation: Mutation) -> Op:
        """The one moment at which something happens outside."""
        match self.outside.call(mutation):
            case Answer.OK:
                return ops.ApplyMutation(mutation.id, result_of(mutation))
            case Answer.REFUSED:
                return ops.FailMutation(mutation.id, "refused")
            case Answer.LOST | Answer.APPLIED_BUT_LOST:
                if mutation.reconcilable:
                    return self._check(mutation)
                return ops.UpdateMutationStatus(mutation.id, MutationStatus.INDETERMINATE, "timed out")

    def _check(self, mutation: Mutation) -> Op:
        match self.outside.check(mutation):
            case Check.APPLIED:
                return ops.ApplyMutation(mutation.id, result_of(mutation), Resolver.RECONCILIATION)
            case Check.FAILED:
                return ops.FailMutation(mutation.id, "not found", Resolver.RECONCILIATION)
            case Check.RETRY:
                gives_up = mutation.reconcile_attempts >= CHECKS_MAX
                status = MutationStatus.INDETERMINATE if gives_up else MutationStatus.NEEDS_RECONCILE
                due = None if gives_up else mutation.updated_at
                return ops.UpdateMutationStatus(mutation.id, status, "no answer", due)

    def _next(self, q: Queries, view: View, run: Run, script: Consumer) -> Op:
        told = mutation_result_for_next(run)
        assert run.prepare_result, "a run that emits is prepared"
        self.outside.tell_next(json.loads(run.prepare_result)["target"], told)
        if self._strikes(q, view, run, script.next):
            return _stop(run, script.next)
        held = reads.events_of_run(q, run.id)
        publishes = (self._event("rows", event.message_id, told) for event in held if run.handler == "file")
        handler = reads.handler(q, self.workflow_id, run.handler)
        before: dict[str, Any] = json.loads(handler.state) if handler and handler.state else {"done": 0, "told": []}
        # Sorted: of two runs that wait side by side, a crash may let the other one go on first.
        state = json.dumps({"done": before["done"] + len(held), "told": sorted({*before["told"], told})})
        return ops.CommitConsumer(run.id, tuple(publishes), state)

    def _digest(self, q: Queries, view: View, run: Run) -> Op:
        """Each item in turn: one mutation in each, replayed if the ledger already knows it."""
        items = {item_id: reads.item(q, self.workflow_id, item_id) for item_id in self.scenario.items}
        for item in items.values():
            if item and item.is_open:
                return self._inside(q, view, run, item)
        for item_id, item in items.items():
            if item is None or item.run_id != run.id:
                return ops.OpenItem(run.id, item_id, f"Item {item_id}")
        return ops.CommitJob(run.id, FAR, state=json.dumps({"items": len(self.scenario.items)}))

    def _inside(self, q: Queries, view: View, run: Run, item: Item) -> Op:
        leave = ops.CloseItem(run.id, item.item_id, ItemState.DONE)
        if item.state in (ItemState.DONE, ItemState.SKIPPED):
            return leave
        scope = ItemScope(item.item_id, f"hash_{self._prefix}_{item.item_id}_{item.attempt}")
        params = json.dumps({"target": f"digest/{item.item_id}"})
        record = self._record(run, f"mut_{scope.identity_key}", params, f"key_{scope.identity_key}", scope)
        mutation = reads.mutation_by_identity(q, scope.identity_key)
        if mutation is None or (mutation.status is MutationStatus.FAILED and mutation.run_id != run.id):
            return record
        if mutation.status is MutationStatus.FAILED:
            return _stop(run, self.scenario.connector.refusal)
        if mutation.status is not MutationStatus.APPLIED:
            return self._send(run, mutation)
        is_last = item.item_id == self.scenario.items[-1]
        if is_last and self._strikes(q, view, run, self.scenario.digest):
            return _stop(run, self.scenario.digest)
        return leave if mutation.run_id == run.id else Together((record, leave))

    # What stands in the way of the next run.

    def _settle(self, q: Queries, view: View, mutation: Mutation) -> Op:
        """A mutation of a run that has stopped: a call to make, a check to do, or a question to a person."""
        run = view.run(mutation.run_id)
        if self.scenario.pauses and not self.outside.somebody_paused:
            self.outside.somebody_paused = True
            return ops.PauseWorkflow(self.workflow_id)
        match mutation.status:
            case MutationStatus.PENDING:
                return self._decide(q, view, mutation)
            case MutationStatus.IN_FLIGHT:
                return self._call(mutation)
        if run.status is RunStatus.PAUSED_APPROVAL:
            return _pause_over_doubt(run)
        if mutation.status is MutationStatus.NEEDS_RECONCILE:
            due = reads.mutations_to_reconcile(q, FAR)
            assert mutation in due, "what must be reconciled has a time at which it is"
            return self._check(mutation)
        return self._answer(mutation)

    def _decide(self, q: Queries, view: View, mutation: Mutation) -> Op:
        approval = reads.open_approval(q, mutation.id)
        assert approval, "a call that waits has a question"
        asked = len(reads.approvals_of_mutation(q, mutation.id))
        if self.scenario.reminds and asked == 1:
            return ops.AskAgain(approval.id, f"{approval.id}_again")
        was_rejected = any(
            earlier.resolved_by is Resolver.APPROVAL_REJECTED
            for run in view.runs
            for earlier in reads.mutations_of_run(q, run.id)
        )
        if self.scenario.decision is Decision.REJECT:
            return ops.RejectMutation(approval.id, "ann")
        if self.scenario.decision is Decision.REJECT_ONCE and not was_rejected:
            return ops.RejectMutation(approval.id, "ann", retry=True)
        return ops.ApproveMutation(approval.id, "ann")

    def _answer(self, mutation: Mutation) -> Op:
        match self.scenario.verdict:
            case Verdict.SKIP:
                return ops.SkipMutation(mutation.id, "ann", expected_version=mutation.version)
            case Verdict.TRY_AGAIN if mutation.reconcilable:
                self.outside.connector_is_up = True
                return ops.UpdateMutationStatus(
                    mutation.id,
                    MutationStatus.NEEDS_RECONCILE,
                    next_reconcile_at=mutation.updated_at,
                    by="ann",
                )
        if self.outside.happened(mutation):
            return ops.ApplyMutation(mutation.id, result_of(mutation), Resolver.USER_ASSERT_APPLIED, "ann")
        return ops.FailMutation(mutation.id, resolved_by=Resolver.USER_ASSERT_FAILED, by="ann")

    def _unblock(self, q: Queries, view: View) -> Op | None:
        workflow = view.workflow
        if workflow.error:
            self.outside.access_is_granted = True
            return ops.ClearWorkflowError(self.workflow_id, "ann", "I fixed it")
        if workflow.maintenance:
            return self._repair(q, workflow)
        if workflow.status is WorkflowStatus.PAUSED:
            return ops.ResumeWorkflow(self.workflow_id)
        return None

    def _repair(self, q: Queries, workflow: Workflow) -> Op:
        task = reads.open_task(q, workflow.id)
        if task is None:
            return ops.CreateMaintenanceTask(workflow.id)
        by_person = self.scenario.repair is not Repair.AUTOMATIC
        if self._is_repaired(q):
            return ops.ExitMaintenanceMode(workflow.id, "ann" if by_person else "machine", by_person)
        match self.scenario.repair:
            case Repair.BY_A_PERSON:
                return self._next_of_release(q, 1)
            case Repair.AUTOMATIC if task.attempts == 0:
                return ops.NoteRepairAttempt(workflow.id, "The proposal does not parse.", task.created_at + 1)
            case Repair.AUTOMATIC:
                return self._next_of_release(q, 1)
            case Repair.PROPOSED:
                return self._propose(q, task)

    def _propose(self, q: Queries, task: MaintenanceTask) -> Op:
        """The machine proposes, the person decides: no to the first, yes to the second."""
        minor = task.attempts + 1
        add, activate = self._release(minor)
        if reads.version(q, self.version_id(minor)) is None:
            return add
        if task.held_version_id is None:
            return ops.HoldProposal(self.workflow_id, self.version_id(minor), "It wants to send mail.")
        if task.attempts == 0:
            return ops.NoteRepairAttempt(self.workflow_id, "It must not send mail.", by="ann")
        return activate

    def _is_repaired(self, q: Queries) -> bool:
        workflow = reads.workflow(q, self.workflow_id)
        version = reads.version(q, workflow.active_version_id) if workflow and workflow.active_version_id else None
        return version is not None and version.minor > 0

    # Starting and finishing.

    def _receive(self, q: Queries) -> Op | None:
        """Mail that arrives by itself, from outside any handler."""
        if self.scenario.producer:
            return None
        expected = self.scenario.mail
        consumer = reads.handler(q, self.workflow_id, "file")
        if consumer and consumer.state is not None:
            expected += self.scenario.late_mail
        missing = [each for each in expected if reads.event(q, self.workflow_id, "mail", each) is None]
        return ops.PublishEvents(self.workflow_id, tuple(map(self._mail, missing))) if missing else None

    def _start(self, q: Queries, view: View) -> Op | None:
        snapshot = reads.snapshot(q, self.workflow_id)
        assert snapshot, "what starts exists"
        retry = snapshot.retry_run_id
        handler = None if retry else self._due(q)
        if retry is None and handler is None:
            return None
        if view.session is None:
            return ops.CreateSession(self._fresh_session(q), self.workflow_id, "driver")
        run_id = f"run_{self._prefix}_{len(view.runs) + 1:06d}"
        if retry:
            return ops.CreateRetryRun(run_id, retry, view.session.id)
        assert handler, "either a retry or a handler is due"
        is_consumer = handler.kind is HandlerKind.CONSUMER
        phase = self._script(handler.name).first_phase if is_consumer else Phase.PENDING
        return ops.CreateRun(run_id, view.session.id, handler.name, phase)

    def _finish(self, view: View) -> Op | None:
        return ops.FinishSession(view.session.id) if view.session else None

    def _due(self, q: Queries) -> HandlerView | None:
        """Consumers with news first, then what runs by the clock. Nobody waits for a backoff."""
        snapshot = reads.snapshot(q, self.workflow_id)
        assert snapshot, "what starts exists"
        news = [each for each in snapshot.handlers if each.has_news]
        timed = [each for each in snapshot.handlers if _time_of(each) < FAR and not each.is_held]
        return next(iter(news + timed), None)

    # Looking.

    def _strikes(self, q: Queries, view: View, run: Run, trouble: Trouble | None) -> bool:
        match trouble:
            case None:
                return False
            case Trouble.LOGIC:
                return not self._is_repaired(q)
            case Trouble.AUTH:
                return not self.outside.access_is_granted
            case Trouble.TRANSIENT | Trouble.INTERNAL:
                status, _ = trouble.value
                return not any(
                    earlier.handler == run.handler and earlier.phase is run.phase and earlier.status is status
                    for earlier in view.runs
                )

    def _script(self, handler: str) -> Consumer:
        script = self.scenario.file if handler == "file" else self.scenario.announce
        assert script, f"the scenario has no {handler}"
        return script

    def _pending(self, q: Queries, topic: str) -> list[Event]:
        return reads.peek(q, self.workflow_id, topic)

    def _fresh_session(self, q: Queries) -> str:
        number = 1
        while reads.session(q, f"ses_{self._prefix}_{number:06d}"):
            number += 1
        return f"ses_{self._prefix}_{number:06d}"


def _time_of(handler: HandlerView) -> Millis:
    return next((at for at in (handler.next_run_at, handler.wake_at) if at is not None), FAR)


def _topic_of(consumer: str) -> str:
    return {"file": "mail", "announce": "rows"}[consumer]


def _stop(run: Run, trouble: Trouble | None) -> Op:
    assert trouble, "a run that stops has a reason"
    status, cls = trouble.value
    return ops.UpdateHandlerRunStatus(run.id, status, RunError(cls, f"{run.handler} failed: {cls}"))


def _pause_over_doubt(run: Run) -> Op:
    error = RunError(FailureClass.INDETERMINATE, "Nobody knows whether the row was appended.")
    return ops.UpdateHandlerRunStatus(run.id, RunStatus.PAUSED_RECONCILIATION, error)
