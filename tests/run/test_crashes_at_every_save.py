"""A process that dies before or after any save of a run loses no event and repeats no effect.

The places are those of the machine (`SAVES`), not a list made by hand: a place without a story fails here.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from keep_actors import Grant
from keep_actors.run.machine import SAVES
from keep_actors.run.state import At
from keep_actors.testing import Box, Point, Step, cannot_tell, lose_the_answer
from keep_storage import operations as ops
from keep_storage.errors import Reason
from tests.bank import fake_bank
from tests.refusing import refuse_next
from tests.runtime.world import script

pytestmark = pytest.mark.anyio


PAYS = script(mutate="await c.bank.pay({ to: prepared.data.id });", next_="return { last: result.result };")
THROWS = script(mutate='throw new Error("no");')
PRODUCES = script(producer='await c.bank.balance({ account: "ours" }); return 1;')
SWEEPS = script(job='await c.withItem("7", "T", async () => { if (!c.item.isDone) await c.bank.pay({ to: "ann" }); });')


async def nothing(_: Box) -> None:
    """Waiting is enough."""


async def approve(box: Box) -> None:
    for asked in await box.keep.approvals():
        await box.keep.approve(asked.approval_id, by="ann")


@dataclass(frozen=True)
class Story:
    """How a run comes to a place, and how many payments there are in the end."""

    source: str
    paid: int = 1
    plan: tuple[Step, ...] = ()
    checks: tuple[Step, ...] = ()
    grant: Grant | None = None
    do: Callable[[Box], Awaitable[None]] = nothing
    refuses: tuple[tuple[type[ops.Operation[Any]], Reason], ...] = ()
    """Operations that the storage refuses once, in the life that ends."""


ASKED = Grant("bank.pay", policy="ask")
STORIES: dict[At, Story] = {
    At.SAVING_BEFORE_READ: Story(PRODUCES, paid=0),
    At.OPENING_ITEM: Story(SWEEPS),
    At.SAVING_ITEM_CALL: Story(SWEEPS),
    At.RECORDING_CALL: Story(PAYS),
    At.RECORDING_DOUBT: Story(PAYS, plan=(lose_the_answer,)),
    At.AWAITING_OUTCOME: Story(PAYS),
    At.COMMITTING: Story(PAYS),
    At.STOPPING: Story(THROWS, paid=0),
    At.STOPPING_REFUSED: Story(THROWS, paid=0, refuses=((ops.UpdateHandlerRunStatus, Reason.EVENT_HELD_BACK),)),
    At.GIVING_UP: Story(THROWS, paid=0, refuses=((ops.UpdateHandlerRunStatus, Reason.ID_TAKEN),)),
    At.SETTLING: Story(
        THROWS,
        paid=0,
        refuses=((ops.UpdateHandlerRunStatus, Reason.ID_TAKEN), (ops.HaltWorkflow, Reason.WORKFLOW_STATUS_REFUSED)),
    ),
    At.WRITING_FINDINGS: Story(PAYS, grant=ASKED, do=approve),
    At.WRITING_LESS: Story(
        PAYS,
        plan=(lose_the_answer,),
        checks=(cannot_tell,),
        refuses=((ops.ApplyMutation, Reason.WORKFLOW_STATUS_REFUSED),),
    ),
}


def test_every_save_of_the_machine_has_its_story() -> None:
    assert set(STORIES) == SAVES


@pytest.mark.parametrize("point", [Point.SAVE, Point.SAVED])
@pytest.mark.parametrize("place", sorted(SAVES))
async def test_a_process_that_dies_at_any_save_loses_nothing_and_repeats_nothing(
    place: At, point: Point, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = STORIES[place]
    fake = fake_bank()
    if story.plan:
        fake.plan("pay", *story.plan)
    if story.checks:
        fake.plan("pay reconcile", *story.checks)
    is_timed = story.source in (PRODUCES, SWEEPS)
    async with Box.open(fake) as box:
        if is_timed:
            # It runs at deploy.
            box.crash_at(point, place)
        await box.deploy(story.source)
        if story.grant is not None:
            await box.keep.grant("flow", story.grant, by="ann")
        for operation, reason in story.refuses:
            refuse_next(monkeypatch, operation, reason=reason)
        if not is_timed:
            await box.until_idle()
            box.crash_at(point, place)
            await box.publish("flow", "in", "ann")
            await box.until_idle()
            if story.do is not nothing or place is At.WRITING_LESS:
                await story.do(box)
                await box.advance(minutes=5)
        await box.crashed()
        monkeypatch.undo()
        await box.reopen()
        box.check_invariants()
        for _ in range(3):
            await story.do(box)
            await box.advance(hours=6)
        box.world.never_twice()
        assert len(box.world.effects) == story.paid
        if story.paid and not is_timed:
            assert await box.statuses("flow", "in") == {"ann": "consumed"}
        box.check_invariants()
