"""What needs a person now, as people are told of it: without the parameters of calls, and not while a machine is at it.

A connector that is still being asked, an approved call under way and a repair that a maintainer is at work on are in
`attention`, where people who look may act. Nobody is called for them before the policy says that a person is asked.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from keep_actors.api import views
from keep_actors.api.overdue import Moment
from keep_actors.api.views import Attention
from keep_actors.kernel.foreign_code import cut
from keep_storage import model, reads
from keep_storage.model import Mutation, MutationStatus, NoticeKind, Resolver, Workflow
from keep_storage.transaction import Queries

IsRepaired: TypeAlias = Callable[[str], bool]
"""Whether a script of the workflow of this name is repaired by a machine, as long as that has attempts left."""


class Matter(msgspec.Struct, frozen=True):
    """Something that needs a person."""

    workflow_id: str
    kind: NoticeKind
    about: str
    """What tells it from others of its kind: empty if it is the workflow as a whole."""
    run_id: str | None
    call: str
    words: str
    can_do: str


TOLD_AS: Final[Mapping[str, NoticeKind | None]] = {
    **{kind: kind for kind in NoticeKind},
    # A handler that keeps failing is tried again by itself, and people are told all the same.
    "failing": NoticeKind.ERROR,
    "stale": None,
    "expired": None,
}
"""As what people are told of something; of what is not, only those hear who look."""


def matters(q: Queries, workflow_id: str, is_repaired: IsRepaired, at: Moment) -> list[Matter]:
    """What of a workflow needs a person now."""
    workflow = reads.workflow(q, workflow_id)
    if workflow is None:
        return []
    found = [_matter(q, workflow, each, is_repaired) for each in views.attention_of(q, workflow, at)]
    return [each for each in found if each is not None]


def _matter(q: Queries, workflow: Workflow, needs: Attention, is_repaired: IsRepaired) -> Matter | None:
    kind, about, call, words = TOLD_AS[needs.kind], needs.about or needs.run_id or "", "", needs.words
    match kind:
        case None:
            return None
        case NoticeKind.APPROVAL:
            approval = reads.approval(q, about)
            assert approval is not None, "it has just been listed"
            mutation = _mutation(q, approval.mutation_id)
            # Its words in `attention` have the parameters: who looks there may see them.
            call, words = _call(mutation), f"{mutation.title or 'A call'}: {_call(mutation)}"
        case NoticeKind.UNKNOWN:
            mutation = _mutation(q, about)
            if mutation.status is not MutationStatus.INDETERMINATE:
                return None
            call = _call(mutation)
        case NoticeKind.MAINTENANCE:
            if not workflow.error and is_repaired(workflow.name):
                return None
        case NoticeKind.REPAIR | NoticeKind.ERROR:
            pass
    return Matter(workflow.id, kind, about, needs.run_id, call, cut(words), needs.can_do)


def outcome_of(q: Queries, notice: model.NoticeRow) -> str:
    """How a matter was settled and by whom, as far as the tables say it in one place."""
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
    MutationStatus.NEEDS_RECONCILE: "the connector is asked anew",
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
