"""Matters for which a person is called now, as notices say it: without the parameters of calls.

`attention` lists more, for people who look: a connector that is still being asked, a call that is being made, a repair
that a machine is working on. No person is called for these (`AttentionRow.waits_on`).
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, assert_never

import msgspec

from keep_actors.api import attention
from keep_actors.api.attention import Attention
from keep_actors.api.overdue import Moment
from keep_actors.kernel.foreign_code import cut
from keep_storage import reads
from keep_storage.model import (
    AttentionKind,
    AttentionRow,
    Mutation,
    MutationStatus,
    NoticeKind,
    NoticeRow,
    Resolver,
    WaitsOn,
)
from keep_storage.transaction import Queries

IsRepaired: TypeAlias = Callable[[str], bool]
"""True if a machine repairs scripts of the workflow of this name, as long as it has attempts left."""


class Matter(msgspec.Struct, frozen=True):
    """A matter for which a person is called."""

    workflow_id: str
    kind: NoticeKind
    about: str
    """Tells it from others of its kind: empty if it is the workflow as a whole."""
    run_id: str | None
    call: str
    words: str
    can_do: str


NOTICE_KIND: Final[Mapping[AttentionKind, NoticeKind | None]] = {
    AttentionKind.APPROVAL: NoticeKind.APPROVAL,
    AttentionKind.REPAIR: NoticeKind.REPAIR,
    # It stops nothing, and an assistant that proposes much must not be able to page people.
    AttentionKind.PROPOSAL: None,
    AttentionKind.MAINTENANCE: NoticeKind.MAINTENANCE,
    AttentionKind.UNKNOWN: NoticeKind.UNKNOWN,
    AttentionKind.ERROR: NoticeKind.ERROR,
    # A handler that keeps failing is tried again by itself, and people hear of it all the same.
    AttentionKind.FAILING: NoticeKind.ERROR,
    AttentionKind.STALE: None,
    AttentionKind.EXPIRED: None,
}
"""The kind of the notice about each kind of matter. None: there is no notice, only people who look see it."""


def matters(q: Queries, workflow_id: str, is_repaired: IsRepaired, at: Moment) -> list[Matter]:
    """List the matters of a workflow for which a person is called now."""
    found = attention.matters(q, workflow_id, at)
    return [_matter(q, row, shown) for row, shown in found if _calls_person(row, shown, is_repaired)]


def _calls_person(row: AttentionRow, shown: Attention, is_repaired: IsRepaired) -> bool:
    match row.waits_on:
        case WaitsOn.PERSON | WaitsOn.RETRY:
            return True
        case WaitsOn.MAINTAINER:
            return not is_repaired(shown.workflow)
        case WaitsOn.CONNECTOR | WaitsOn.CALL | WaitsOn.APPROVED_CALL | WaitsOn.LOOK:
            return False
        case _:
            assert_never(row.waits_on)


def _matter(q: Queries, row: AttentionRow, shown: Attention) -> Matter:
    kind, call, words = NOTICE_KIND[row.kind], "", shown.words
    assert kind is not None, "no person is called for what has no kind of notice"
    if row.kind is AttentionKind.APPROVAL:
        approval = reads.approval(q, row.about or "")
        assert approval is not None, "it has just been listed"
        mutation = _mutation(q, approval.mutation_id)
        # Its words in `attention` have the parameters: people who look there may see them.
        call, words = _call(mutation), f"{mutation.title or 'A call'}: {_call(mutation)}"
    elif row.kind is AttentionKind.UNKNOWN:
        call = _call(_mutation(q, row.about or ""))
    about = shown.about or shown.run_id or ""
    return Matter(row.workflow_id, kind, about, shown.run_id, call, cut(words), shown.can_do)


def outcome_of(q: Queries, notice: NoticeRow) -> str:
    """The outcome of a matter that is settled, and the person who settled it, as far as the tables say so."""
    match notice.kind:
        case NoticeKind.APPROVAL:
            approval = reads.approval(q, notice.about)
            return "" if approval is None else _said(str(approval.status), approval.decided_by)
        case NoticeKind.UNKNOWN:
            mutation = _mutation(q, notice.about)
            return _said(_OUTCOMES.get(mutation.status, ""), mutation.resolved_who, skipped=_is_skipped(mutation))
        case NoticeKind.ERROR:
            workflow = reads.workflow(q, notice.workflow_id)
            is_given_up = notice.run_id is None and notice.about and workflow is not None and workflow.error
            return "given up: a person is asked" if is_given_up else ""
        case NoticeKind.REPAIR | NoticeKind.MAINTENANCE:
            return ""


_OUTCOMES = {
    MutationStatus.APPLIED: "it happened",
    MutationStatus.FAILED: "it did not happen",
    MutationStatus.NEEDS_RECONCILE: "the connector is asked again",
}


def _said(what: str, who: str, *, skipped: bool = False) -> str:
    said = "skipped" if skipped else what
    return f"{said} ({who})" if said and who else said


def _is_skipped(mutation: Mutation) -> bool:
    return mutation.resolved_by is Resolver.USER_SKIP


def _mutation(q: Queries, mutation_id: str) -> Mutation:
    found = reads.mutation(q, mutation_id)
    assert found is not None, "a line of the ledger is never deleted"
    return found


def _call(mutation: Mutation) -> str:
    return f"{mutation.connector}.{mutation.method}"
