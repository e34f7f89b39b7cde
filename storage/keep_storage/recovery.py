"""Recovery: settles what a dead process left behind, by the same rules as everything else. There is no other path.

Recovery never guesses: an effect that may exist is held, one that was never sent did not happen.
"""

import logging
from typing import NamedTuple, TypeVar

from keep_storage import maintenance, mutation_rows, mutations, rows, runs, sessions, settlement, stopped_runs
from keep_storage.ids import Millis
from keep_storage.journal import Change, Entry, changed
from keep_storage.model import (
    FailureClass,
    MaintenanceTask,
    Mutation,
    MutationStatus,
    Resolver,
    Run,
    RunStatus,
    Session,
)
from keep_storage.operations import (
    FailMutation,
    RecoverCrashedRuns,
    RecoverMaintenanceMode,
    RecoverUnfinishedSessions,
    RunError,
    Together,
    UpdateMutationStatus,
)
from keep_storage.outcomes import in_doubt
from keep_storage.transaction import Queries, Transaction
from keep_storage.transitions import UNCERTAIN

log = logging.getLogger("keep_storage")

T = TypeVar("T")

_CRASHED = RunError(FailureClass.INTERNAL, "The process ended while this run was active.")
_UNCERTAIN = RunError(
    FailureClass.INDETERMINATE,
    "Mutation outcome uncertain: the process ended before the answer was recorded.",
)
_HELD = RunError(FailureClass.PERMISSION, "Approval required: a recorded call waits for a person.")


def recovery(workflow_id: str | None = None) -> Together:
    """The operation that settles what a dead process or a dead actor left behind: in one workflow, or everywhere."""
    return Together(
        (
            RecoverCrashedRuns(workflow_id),
            RecoverUnfinishedSessions(workflow_id),
            RecoverMaintenanceMode(workflow_id),
        )
    )


def recover_crashed_runs(tx: Transaction, op: RecoverCrashedRuns, now: Millis) -> Change[tuple[Run, ...]]:
    """Every active run, and every approved call: that one is made while its run is paused."""
    recovered: list[Run] = []
    entries: list[Entry] = []
    for run in rows.active_runs(tx, op.workflow_id):
        recovered.append(_recover_run(tx, run, entries, now))
    for mutation in mutation_rows.calls_left_in_doubt(tx, op.workflow_id):
        _admit_not_knowing(tx, mutation, entries, now)
        run = runs.existing(tx, mutation.run_id)
        if run.status is RunStatus.PAUSED_APPROVAL:
            recovered.append(_stop(tx, run, RunStatus.PAUSED_RECONCILIATION, _UNCERTAIN, entries, now))
    return Change(tuple(recovered), tuple(entries))


def _recover_run(tx: Transaction, run: Run, entries: list[Entry], now: Millis) -> Run:
    mutation = mutation_rows.unsettled_mutation_of_run(tx, run.id)
    if mutation is None:
        return _stop(tx, run, RunStatus.CRASHED, _CRASHED, entries, now)
    if mutation.status in UNCERTAIN:
        _admit_not_knowing(tx, mutation, entries, now)
        return _stop(tx, run, RunStatus.PAUSED_RECONCILIATION, _UNCERTAIN, entries, now)
    if mutation_rows.open_approval(tx, mutation.id):
        return _stop(tx, run, RunStatus.PAUSED_APPROVAL, _HELD, entries, now)
    never_sent = FailMutation(mutation.id, error="Never sent.", resolved_by=Resolver.RECOVERY)
    entries.extend(settlement.fail_mutation(tx, never_sent, now).entries)
    return _stop(tx, runs.existing(tx, run.id), RunStatus.CRASHED, _CRASHED, entries, now)


def _stop(tx: Transaction, run: Run, status: RunStatus, error: RunError, entries: list[Entry], now: Millis) -> Run:
    change = stopped_runs.stop(tx, run, status, error, now)
    entries.extend(change.entries)
    return change.answer


def _admit_not_knowing(tx: Transaction, mutation: Mutation, entries: list[Entry], now: Millis) -> None:
    """A call in flight becomes a question: to the connector if it can check, else to a person."""
    if mutation.status is not MutationStatus.IN_FLIGHT:
        return
    doubt = UpdateMutationStatus(mutation.id, in_doubt(mutation), _UNCERTAIN.message)
    entries.extend(mutations.update_mutation_status(tx, doubt, now).entries)


def recover_unfinished_sessions(
    tx: Transaction, op: RecoverUnfinishedSessions, now: Millis
) -> Change[tuple[Session, ...]]:
    finished = [sessions.complete(tx, session, now) for session in rows.completed_open_sessions(tx, op.workflow_id)]
    return _all([changed(session, session.workflow_id, None, session=session.id) for session in finished])


def recover_maintenance_mode(
    tx: Transaction, op: RecoverMaintenanceMode, now: Millis
) -> Change[tuple[MaintenanceTask, ...]]:
    without = rows.maintenance_without_task(tx, op.workflow_id)
    return _all([maintenance.order_repair(tx, workflow, "{}", now) for workflow in without])


class Orphan(NamedTuple):
    """A reserved event and the run that will never let go of it."""

    event_id: str
    message_id: str
    run_id: str
    run_status: str


def assert_no_orphaned_reserved_events(q: Queries) -> list[Orphan]:
    """Reported loudly and never released: an orphan is a bug of ours, and releasing it would hide the bug."""
    orphans = [Orphan(*row) for row in q.all("reserved_event_has_a_living_holder", {})]
    for orphan in orphans:
        log.error(
            "Event %s (%s) is reserved by run %s, which is %s and will never finish it. Please report this.", *orphan
        )
    return orphans


def _all(changes: list[Change[T]]) -> Change[tuple[T, ...]]:
    """Many changes as one, with a journal entry each."""
    entries: tuple[Entry, ...] = tuple(entry for change in changes for entry in change.entries)
    return Change(tuple(change.answer for change in changes), entries)
