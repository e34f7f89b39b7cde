"""Log lines about committed operations: each once, when durable, with ids and without content.

A message, a problem or a question may quote a script or a service, so none is logged: `explain`, `attention` and
`proposal` have the words.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from keep_storage.model import Mutation, MutationStatus, Run, RunStatus
from keep_storage.operations import (
    CreateMutation,
    ExitMaintenanceMode,
    HaltWorkflow,
    HoldProposal,
    NoteRepairAttempt,
    Operation,
    RecoverCrashedRuns,
    Together,
    UpdateHandlerRunStatus,
    UpdateMutationStatus,
)

log = logging.getLogger("keep_actors.news")

_UNKNOWN: Final = {MutationStatus.NEEDS_RECONCILE: logging.WARNING, MutationStatus.INDETERMINATE: logging.ERROR}
"""Warn while the connector can be asked; it is an error when only a person can say."""


def tell(operation: Operation[Any], answer: Any) -> None:
    """Log a committed operation, with its answer, if it is news."""
    if (teller := _NEWS.get(type(operation))) is not None:
        teller(operation, answer)


def _each(together: Together, answers: tuple[Any, ...]) -> None:
    for operation, answer in zip(together.operations, answers, strict=True):
        tell(operation, answer)


def _run_stopped(_: UpdateHandlerRunStatus, run: Run) -> None:
    place = f" at {run.error_place}" if run.error_place else ""
    log.warning(
        "Run %s of %r in workflow %s stopped: %s (%s)%s",
        run.id,
        run.handler,
        run.workflow_id,
        run.status,
        run.error_class or "",
        place,
    )


def _runs_recovered(_: RecoverCrashedRuns, runs: tuple[Run, ...]) -> None:
    for run in runs:
        which = f"Run {run.id} of {run.handler!r} in workflow {run.workflow_id} was cut off"
        if run.status is RunStatus.PAUSED_RECONCILIATION:
            log.error("%s in a call whose outcome is unknown", which)
        else:
            log.warning("%s: %s", which, run.status)


def _outcome_unknown(_: UpdateMutationStatus, mutation: Mutation) -> None:
    is_checked_again = mutation.status is MutationStatus.NEEDS_RECONCILE and mutation.reconcile_attempts > 0
    if (level := _UNKNOWN.get(mutation.status)) is not None and not is_checked_again:
        log.log(
            level,
            "The outcome of %s.%s is unknown: mutation %s of run %s is %s",
            mutation.connector,
            mutation.method,
            mutation.id,
            mutation.run_id,
            mutation.status,
        )


def _approval_asked(operation: CreateMutation, mutation: Mutation) -> None:
    # Inside an item the ledger may know the call already; then no approval is asked for.
    if operation.ask_first is not None and mutation.status is MutationStatus.PENDING:
        approval, call = operation.ask_first.approval_id, f"{mutation.connector}.{mutation.method}"
        log.warning("Run %s asks a person whether it may call %s: %s", mutation.run_id, call, approval)


def _halted(operation: HaltWorkflow, _: object) -> None:
    log.error("Workflow %s is halted (%s) and waits for a person", operation.workflow_id, operation.cls)


def _repair_proposed(operation: HoldProposal, _: object) -> None:
    log.warning("A repair of workflow %s is proposed and waits for a person", operation.workflow_id)


def _repair_failed(operation: NoteRepairAttempt, _: object) -> None:
    what = "was refused by a person" if operation.by else "failed, or its proposal was refused"
    log.warning("An attempt to repair workflow %s %s", operation.workflow_id, what)


def _repair_activated(operation: ExitMaintenanceMode, _: object) -> None:
    who = "a person" if operation.by_person else "the maintainer"
    log.info("The repair of workflow %s by %s is activated", operation.workflow_id, who)


_NEWS: Final[Mapping[type, Callable[[Any, Any], None]]] = {
    Together: _each,
    UpdateHandlerRunStatus: _run_stopped,
    RecoverCrashedRuns: _runs_recovered,
    UpdateMutationStatus: _outcome_unknown,
    CreateMutation: _approval_asked,
    HaltWorkflow: _halted,
    HoldProposal: _repair_proposed,
    NoteRepairAttempt: _repair_failed,
    ExitMaintenanceMode: _repair_activated,
}
