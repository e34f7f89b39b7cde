"""Notices in the tables: each sink is told in order, by itself, and what it was told is never forgotten."""

import msgspec
import pytest

from keep_storage import notice_reads
from keep_storage.model import Delivery, DeliveryStatus, NoticeKind, NoticeRow, Says
from tests.storage.world import WORKFLOW, World

BEGINS, ENDS = Says.NEEDS_PERSON, Says.SETTLED


def opened(world: World, *sinks: str, about: str = "", workflow: str = WORKFLOW) -> NoticeRow:
    return world.model.open_notice(
        world.name("ntc"), workflow, NoticeKind.ERROR, about, "It broke.", "Mend it.", sinks or ("pager",)
    )


def deliveries(world: World, notice: NoticeRow) -> dict[tuple[str, str], Delivery]:
    found = notice_reads.deliveries(world.store.queries(), notice.id)
    return {(each.sink, each.says): each for each in found}


def next_of(world: World, sink: str = "pager") -> tuple[str, str] | None:
    found = notice_reads.next_delivery(world.store.queries(), sink)
    return None if found is None else (found.notice_id, found.says)


def test_whoever_is_named_is_to_be_told_at_once(world: World) -> None:
    notice = opened(world, "pager", "chat")
    found = deliveries(world, notice)
    assert set(found) == {("pager", BEGINS), ("chat", BEGINS)}
    assert {each.next_attempt_at for each in found.values()} == {notice.opened_at}


def test_a_delivered_notice_says_when(world: World) -> None:
    notice = opened(world)
    delivery = world.model.note_delivery(notice.id, "pager", BEGINS)
    assert (delivery.status, delivery.attempts, delivery.problem) == (DeliveryStatus.DELIVERED, 1, "")
    assert delivery.ended_at == world.clock_of_last_commit()
    assert next_of(world) is None


def test_a_failure_is_tried_again_at_its_time_and_given_up_without_one(world: World) -> None:
    notice = opened(world)
    waiting = world.model.note_delivery(notice.id, "pager", BEGINS, "no route", 99)
    assert (waiting.status, waiting.attempts, waiting.next_attempt_at) == (DeliveryStatus.WAITING, 1, 99)
    over = world.model.note_delivery(notice.id, "pager", BEGINS, "no route")
    assert (over.status, over.attempts, over.problem) == (DeliveryStatus.GIVEN_UP, 2, "no route")


@pytest.mark.parametrize("problem", [None, "no route"])
def test_the_end_is_told_once_the_beginning_was_delivered_or_given_up(world: World, problem: str | None) -> None:
    notice = opened(world)
    world.model.settle_notice(notice.id, "cleared by ada")
    assert next_of(world) == (notice.id, BEGINS)
    world.model.note_delivery(notice.id, "pager", BEGINS, problem)
    assert next_of(world) == (notice.id, ENDS)
    world.model.note_delivery(notice.id, "pager", ENDS)
    assert next_of(world) is None
    world.check()


def test_the_end_is_told_at_once_to_whoever_knows_of_the_beginning(world: World) -> None:
    notice = opened(world, "pager", "chat")
    world.model.note_delivery(notice.id, "pager", BEGINS)
    settled = world.model.settle_notice(notice.id)
    found = deliveries(world, notice)
    assert found["pager", ENDS].next_attempt_at == settled.settled_at
    assert found["chat", ENDS].next_attempt_at is None
    world.check()


def test_a_sink_that_fails_does_not_hold_up_another(world: World) -> None:
    notice = opened(world, "pager", "chat")
    world.model.note_delivery(notice.id, "chat", BEGINS, "no route", 10**15)
    world.model.settle_notice(notice.id)
    world.model.note_delivery(notice.id, "pager", BEGINS)
    world.model.note_delivery(notice.id, "pager", ENDS)
    assert (next_of(world), next_of(world, "chat")) == (None, (notice.id, BEGINS))


def test_the_longest_due_is_told_first(world: World) -> None:
    first, second = opened(world, about="a"), opened(world, about="b")
    assert next_of(world) == (first.id, BEGINS)
    world.model.note_delivery(first.id, "pager", BEGINS, "no route", 10**15)
    assert next_of(world) == (second.id, BEGINS)


def test_a_matter_that_was_settled_can_need_a_person_again(world: World) -> None:
    first = opened(world)
    world.model.settle_notice(first.id)
    second = opened(world)
    found = notice_reads.notices(world.store.queries())
    assert [each.id for each in found] == [second.id, first.id]
    assert [each.id for each in notice_reads.open_notices(world.store.queries(), WORKFLOW)] == [second.id]


def test_a_sink_that_was_given_up_is_tried_afresh_when_it_is_added_again(world: World) -> None:
    notice = opened(world)
    world.model.note_delivery(notice.id, "pager", BEGINS, "gone")
    q = world.store.queries()
    assert [each.id for each in notice_reads.untold_notices(q, "pager")] == [notice.id]
    again = world.model.add_delivery(notice.id, "pager")
    assert (again.status, again.attempts, again.problem, again.ended_at) == (DeliveryStatus.WAITING, 0, "", None)
    assert notice_reads.untold_notices(q, "pager") == []
    assert [each.id for each in notice_reads.untold_notices(q, "new")] == [notice.id]


def test_whether_somebody_was_told_is_in_the_journal_of_the_run(world: World) -> None:
    run = world.start()
    notice = world.model.open_notice(
        "ntc_1", WORKFLOW, NoticeKind.ERROR, run.id, "It broke.", "Mend it.", ("pager",), run.id
    )
    world.model.note_delivery(notice.id, "pager", BEGINS, "no route", 99)
    world.model.note_delivery(notice.id, "pager", BEGINS)
    world.model.settle_notice(notice.id, "cleared")
    entries = [each for each in world.journal() if each.run_id == run.id and "ntc_1" in each.changed]
    assert [each.operation for each in entries] == ["open_notice", "note_delivery", "note_delivery", "settle_notice"]
    changed = [msgspec.json.decode(each.changed) for each in entries]
    assert [each.get("delivery") for each in changed] == [None, ["waiting"] * 2, ["waiting", "delivered"], None]
    assert [each.why for each in entries] == ["", "no route", "", "cleared"]


def test_only_those_that_may_need_a_person_and_changed_are_compared(world: World) -> None:
    world.deploy("wf_other")
    world.deploy("wf_broken")
    q = world.store.queries()
    before = world.journal()[-1].seq
    assert notice_reads.workflows_to_compare(q) == []
    world.model.halt_workflow("wf_broken", "gave up")
    opened(world, workflow="wf_other")
    world.publish("m1")
    after = world.journal()[-1].seq
    assert notice_reads.workflows_to_compare(q) == ["wf_broken", "wf_other"]
    assert notice_reads.workflows_to_compare(q, after="wf_broken") == ["wf_other"]
    assert notice_reads.workflows_to_compare(q, limit=1) == ["wf_broken"]
    assert notice_reads.changed_workflows_to_compare(q, after=before, until=after) == ["wf_broken", "wf_other"]
    assert notice_reads.changed_workflows_to_compare(q, after=after, until=after) == []


def test_what_people_were_told_comes_in_pages(world: World) -> None:
    world.deploy("wf_other")
    made = [opened(world, about=str(number)).id for number in range(5)]
    opened(world, workflow="wf_other")
    q = world.store.queries()
    page = notice_reads.notices(q, WORKFLOW, limit=2)
    assert [each.id for each in page] == made[:2:-1]
    assert [each.id for each in notice_reads.notices(q, WORKFLOW, before=page[-1].id)] == made[2::-1]
    assert len(notice_reads.notices(q)) == 6
