"""Matters that need attention. Reads only: the view `needs_attention` decides, and everyone who asks asks it here."""

from typing import Final

from keep_storage.ids import Millis
from keep_storage.model import AttentionKind, AttentionRow, Handler
from keep_storage.records import find_all
from keep_storage.transaction import Queries

_NEVER: Final = 2**63 - 1
_ORDER: Final = {kind: place for place, kind in enumerate(AttentionKind)}


def attention(
    q: Queries, workflow_id: str | None = None, *, stale_before: Millis = 0, expired_after: Millis = _NEVER
) -> list[AttentionRow]:
    """List matters, everywhere or of one workflow: by workflow, by kind, the oldest first.

    Events are stale if they are pending since before `stale_before`; expired questions count if they expired after
    `expired_after`. Without these times there are none of either.
    """
    times = {"stale_before": stale_before, "expired_after": expired_after}
    if workflow_id is None:
        found = find_all(q, AttentionRow, "attention", times)
    else:
        found = find_all(q, AttentionRow, "attention_of_workflow", times | {"workflow_id": workflow_id})
    return sorted(found, key=lambda row: (row.workflow_id, _ORDER[row.kind]))


def failing_handlers(q: Queries, workflow_id: str | None = None) -> list[Handler]:
    """List handlers that keep failing and are tried again, everywhere or of one workflow."""
    which = {"workflow_id": workflow_id or "", "everywhere": workflow_id is None}
    return find_all(q, Handler, "failing_handlers", which)
