"""The audit's half about people: nothing is done that nobody approved or that somebody refused, and they are told."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from keep_storage import notice_reads, reads
from keep_storage.model import Approval, ApprovalStatus, DeliveryStatus, NoticeKind, Says
from keep_storage.transaction import Queries
from tests.crash.driver import NO_LIMIT
from tests.torture.person import BY
from tests.torture.records import Answers, Notices
from tests.torture.stories import asks

BECOMES = {
    "approve": ApprovalStatus.APPROVED,
    "reject": ApprovalStatus.REJECTED,
    "retry": ApprovalStatus.REJECTED,
}


class People:
    """What a person said and heard, in one look."""

    def __init__(self, folder: Path, effects: Sequence[tuple[str, str]]) -> None:
        self._effects = effects
        self._said = Answers(folder / "answers.txt").said
        self._told = Notices(folder / "notices.txt").told

    def wrong(self, q: Queries) -> Iterator[str]:
        """What must never be."""
        yield from self._not_allowed()
        yield from self._misunderstood(q)
        yield from self._confused()
        yield from self._not_told(q)

    def unfinished(self, q: Queries) -> Iterator[str]:
        """Questions without an answer, and what people have not heard of yet."""
        for approval in _approvals(q):
            if approval.status is ApprovalStatus.OPEN:
                yield f"{approval.id}: nobody has answered"
        told = {notice.id for notice in self._told}
        for notice in notice_reads.notices(q, limit=NO_LIMIT):
            if notice.settled_at is None:
                yield f"{notice.id}: {notice.kind} of {notice.about}, is not settled"
            for says in Says:
                if f"{notice.id}-{says}" not in told:
                    yield f"{notice.id}: {notice.kind} of {notice.about}, nobody was told {says}"

    def figures(self, q: Queries) -> Mapping[str, int]:
        """How much of everything there was."""
        approvals = _approvals(q)
        mine = Counter(each.status for each in approvals if each.decided_by == BY)
        sent_back = {each.approval_id for each in self._said if each.answer == "retry"} & {
            each.id for each in approvals if each.decided_by == BY
        }
        kinds = Counter(kind for _, kind in {(notice.id, notice.kind) for notice in self._told})
        return {
            "approvals asked": len(approvals),
            "open at once, at most": _at_once(approvals),
            "approvals approved": mine[ApprovalStatus.APPROVED],
            "approvals rejected": mine[ApprovalStatus.REJECTED],
            "of these to be prepared again": len(sent_back),
            "approvals ended by an archive": sum(
                1 for each in approvals if each.decided_by != BY and each.status is ApprovalStatus.REJECTED
            ),
            "notices": len({notice.id for notice in self._told}),
            "notices told again": len(self._told) - len({notice.id for notice in self._told}),
            **{f"notices about {kind}": count for kind, count in sorted(kinds.items())},
        }

    def _not_allowed(self) -> Iterator[str]:
        """Effects that nobody has approved, and those that somebody has refused."""
        said = Counter((each.answer, each.key) for each in self._said)
        for label, key in self._effects:
            if asks(label) and not said["approve", key]:
                yield f"{label}: done, and nobody has approved it"
            if said["reject", key]:
                yield f"{label}: done, and it was rejected"

    def _misunderstood(self, q: Queries) -> Iterator[str]:
        """Where the file and what a person said contradict each other. What was said and not heard may not count."""
        said = {each.approval_id: each.answer for each in self._said}
        approvals = {each.id: each for each in _approvals(q)}
        for approval in approvals.values():
            if approval.decided_by == BY and approval.status is not BECOMES.get(said.get(approval.id, "")):
                yield f"{approval.id}: {approval.status}, and the person said {said.get(approval.id, 'nothing')}"
            if approval.decided_by != BY and approval.status is ApprovalStatus.APPROVED:
                yield f"{approval.id}: approved by {approval.decided_by or 'nobody'}"
        for each in self._said:
            decided = approvals.get(each.approval_id)
            if each.word == "heard" and (decided is None or decided.status is not BECOMES[each.answer]):
                yield f"{each.approval_id}: {each.answer} was acknowledged, and is lost"

    def _confused(self) -> Iterator[str]:
        """What is told again has the same id, and one id tells one thing; a question is one matter."""
        meaning: dict[str, tuple[object, ...]] = {}
        matters: dict[str, str] = {}
        needed: set[str] = set()
        for notice in self._told:
            means = (notice.matter, notice.says, notice.kind, notice.workflow_id, notice.about)
            if meaning.setdefault(notice.id, means) != means:
                yield f"{notice.id}: told with two meanings"
            if notice.kind is NoticeKind.APPROVAL and matters.setdefault(notice.about, notice.matter) != notice.matter:
                yield f"{notice.about}: told as {matters[notice.about]} and as {notice.matter}"
            if notice.says is Says.NEEDS_PERSON:
                needed.add(notice.matter)
            elif notice.matter not in needed:
                yield f"{notice.id}: told that it is settled, and not before that somebody was needed"

    def _not_told(self, q: Queries) -> Iterator[str]:
        """Where the file and what people heard contradict each other; and nobody answers what nobody was told."""
        told = {notice.id for notice in self._told}
        known: set[str] = set()
        for notice in notice_reads.notices(q, limit=NO_LIMIT):
            for delivery in notice_reads.deliveries(q, notice.id):
                known.add(f"{notice.id}-{delivery.says}")
                if delivery.status is DeliveryStatus.DELIVERED and f"{notice.id}-{delivery.says}" not in told:
                    yield f"{notice.id}: the file says that {delivery.says} was told, and it was not"
                if delivery.status is DeliveryStatus.GIVEN_UP:
                    yield f"{notice.id}: {delivery.says} was given up: {delivery.problem}"
        yield from (f"{each}: told, and the file has no such notice" for each in sorted(told - known))
        asked = {notice.about for notice in self._told if notice.kind is NoticeKind.APPROVAL}
        for approval in _approvals(q):
            if approval.decided_by == BY and approval.id not in asked:
                yield f"{approval.id}: answered, and nobody was told of it"


def _approvals(q: Queries) -> list[Approval]:
    calls = [
        call for each in reads.workflows(q) if asks(each.name) for call in reads.outputs(q, each.id, limit=NO_LIMIT)
    ]
    return [approval for call in calls for approval in reads.approvals_of_mutation(q, call.id)]


def _at_once(approvals: Sequence[Approval]) -> int:
    """The most questions that waited in one moment."""
    moments = [(each.requested_at, 1) for each in approvals]
    moments += [(each.decided_at, -1) for each in approvals if each.decided_at is not None]
    return max(accumulate(step for _, step in sorted(moments)), default=0)
