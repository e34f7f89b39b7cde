"""Sessions: runs that belong together for the eye. Nothing is decided by them."""

from keep_storage import rows
from keep_storage.errors import Reason, reject
from keep_storage.ids import Millis
from keep_storage.journal import Change, changed
from keep_storage.model import Session, SessionResult
from keep_storage.operations import CreateSession, FinishSession
from keep_storage.transaction import Queries, Transaction
from keep_storage.workflows import existing as existing_workflow


def existing(q: Queries, session_id: str) -> Session:
    session = rows.session(q, session_id)
    return session or reject(Reason.SESSION_NOT_FOUND, f"There is no session {session_id!r}.")


def create_session(tx: Transaction, op: CreateSession, now: Millis) -> Change[Session]:
    existing_workflow(tx, op.workflow_id)
    if rows.session(tx, op.id):
        reject(Reason.ID_TAKEN, f"There is already a session {op.id!r}.")
    if open_session := rows.open_session(tx, op.workflow_id):
        reject(
            Reason.SESSION_ALREADY_OPEN,
            f"Workflow {op.workflow_id!r} has an open session {open_session.id!r}; finish it first.",
        )
    session = Session(
        id=op.id,
        workflow_id=op.workflow_id,
        trigger=op.trigger,
        started_at=now,
        ended_at=None,
        result=None,
        error="",
        cost_micros=0,
        handler_run_count=0,
    )
    rows.insert_session(tx, session)
    return changed(session, op.workflow_id, None, session=op.id, trigger=op.trigger)


def finish_session(tx: Transaction, op: FinishSession, now: Millis) -> Change[Session]:
    session = existing(tx, op.session_id)
    if op.if_idle and not _is_idle(tx, session):
        return Change(session, ())
    if session.ended_at is not None:
        reject(Reason.SESSION_FINISHED, f"Session {session.id!r} has already ended as {session.result}.")
    if run_id := rows.uncommitted_run(tx, session.id):
        reject(
            Reason.SESSION_HAS_UNCOMMITTED_RUN,
            f"Session {session.id!r} cannot be completed: run {run_id!r} has not committed.",
        )
    session = complete(tx, session, now)
    return changed(session, session.workflow_id, None, session=session.id, result=session.result)


def _is_idle(q: Queries, session: Session) -> bool:
    """Return True if nothing of an open session is left to do, as far as the events tell."""
    if session.ended_at is not None or rows.uncommitted_run(q, session.id) is not None:
        return False
    return not rows.has_pending_events(q, session.workflow_id)


def complete(tx: Transaction, session: Session, now: Millis) -> Session:
    """End a session whose runs have all committed."""
    rows.end_session(tx, session.id, SessionResult.COMPLETED, "", now)
    return existing(tx, session.id)
