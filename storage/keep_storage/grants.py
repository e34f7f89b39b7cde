"""Grants: what a major version may do outside, and how often a day. Here it is counted; the host knows the limits."""

import msgspec

from keep_storage import rows, runs, workflows
from keep_storage.errors import Reason, reject
from keep_storage.ids import Millis
from keep_storage.journal import Change, changed
from keep_storage.model import Json, RunStatus, StoredGrant
from keep_storage.operations import GrantPermission, GrantUse, RevokePermission, UseGrant
from keep_storage.transaction import Transaction


def grant_permission(tx: Transaction, op: GrantPermission, now: Millis) -> Change[StoredGrant]:
    workflows.living(tx, op.workflow_id)
    _has_a_name(op.permission)
    if not _is_an_object(op.limits):
        reject(Reason.LIMITS_INVALID, f"The limits of {op.permission!r} are a JSON object, not {op.limits[:100]!r}.")
    grant = StoredGrant(
        workflow_id=op.workflow_id,
        major=op.major,
        permission=op.permission,
        policy=op.policy,
        limits=op.limits,
        granted_by=op.by,
        granted_at=now,
    )
    rows.save_grant(tx, grant)
    return changed(grant, op.workflow_id, None, permission=op.permission, policy=op.policy, major=op.major, by=op.by)


def _has_a_name(permission: str) -> None:
    if not permission.strip():
        reject(Reason.PERMISSION_INVALID, "A permission has a name, such as `gmail.send`.")


def _is_an_object(text: Json) -> bool:
    """Else it would only be found out when the grant is used."""
    try:
        msgspec.json.decode(text, type=dict)
    except msgspec.DecodeError:
        return False
    return True


def revoke_permission(tx: Transaction, op: RevokePermission, _now: Millis) -> Change[StoredGrant]:
    workflows.existing(tx, op.workflow_id)
    gone = rows.delete_grant(tx, op.workflow_id, op.major, op.permission) or reject(
        Reason.GRANT_NOT_FOUND,
        f"Version {op.major} of workflow {op.workflow_id!r} has no permission {op.permission!r} to take back.",
    )
    return changed(gone, op.workflow_id, None, permission=op.permission, major=op.major, revoked=True, by=op.by)


def use_grant(tx: Transaction, op: UseGrant, _now: Millis) -> Change[int]:
    run = runs.existing(tx, op.run_id)
    if run.status is not RunStatus.ACTIVE:
        reject(Reason.RUN_NOT_ACTIVE, f"Run {run.id!r} is {run.status}; it calls nothing any more.")
    used = count(tx, run.workflow_id, GrantUse(op.permission, op.day, op.per_day))
    return changed(used, run.workflow_id, run.id, permission=op.permission, day=op.day, calls=used)


def count(tx: Transaction, workflow_id: str, use: GrantUse) -> int:
    """Count one call more, if there may be one: the calls of that day."""
    _has_a_name(use.permission)
    calls = rows.calls_on_day(tx, workflow_id, use.permission, use.day)
    if calls >= use.per_day:
        reject(
            Reason.GRANT_USED_UP,
            f"Workflow {workflow_id!r} may use {use.permission!r} {use.per_day} times a day, and has done so.",
        )
    rows.count_call(tx, workflow_id, use.permission, use.day)
    return calls + 1
