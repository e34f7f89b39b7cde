"""Fault points: each is there, and what a test does there is what would have gone wrong there."""

import anyio
import pytest

from keep_actors.host.fault_points import Point
from keep_actors.kernel import ActorDied, Escalated, RestartPolicy
from keep_actors.testing import notes
from keep_storage.errors import StorageUnavailable
from keep_storage.model import EventStatus, MutationStatus
from tests.runtime.fakes import Fake, applies_and_raises
from tests.runtime.world import MINUTE, opened, script, world

pytestmark = pytest.mark.anyio

PUTS = script(mutate="await c.fake.put({ text: prepared.data.id });", next_="return {};")


class Reached:
    """Remembers where it was called; raises once at one point."""

    def __init__(self, at: Point | None = None, error: Exception | None = None) -> None:
        self.points: list[Point] = []
        self.struck = 0
        self._at = at
        self._error = error

    def arm(self, error: Exception) -> None:
        """Raise this, once."""
        self._error = error

    def __call__(self, point: Point, _: str) -> None:
        self.points.append(point)
        if point is self._at and self._error is not None:
            error, self._error = self._error, None
            self.struck += 1
            raise error


async def test_every_fault_point_is_reached_by_a_run_whose_outcome_was_in_doubt() -> None:
    fake, faults = Fake(), Reached()
    fake.plan("put", notes("entry 7", applies_and_raises(OSError("gone"))))
    async with world(fake, faults=faults) as box:
        await box.keep.deploy(PUTS)
        await box.publish("flow", "in", "m1")
        await box.settle()
    assert set(faults.points) == set(Point)


@pytest.mark.parametrize("point", [Point.STARTED, Point.INVOKE, Point.INVOKED, Point.RECORD, Point.ENDED])
async def test_a_crash_where_nothing_is_outside_yet_or_all_is_recorded_changes_nothing(point: Point) -> None:
    fake, faults = Fake(), Reached(point, RuntimeError("struck"))
    async with world(fake, faults=faults) as box:
        await box.keep.deploy(PUTS)
        await box.publish("flow", "in", "m1")
        await box.until_idle()
        await box.advance(MINUTE)
        [event] = await box.keep.events("flow", "in")
    assert event.status is EventStatus.CONSUMED
    assert fake.texts == ["m1"]


@pytest.mark.parametrize("point", [Point.RECORDED, Point.SENDING, Point.NOTED, Point.ANSWERED])
async def test_a_crash_around_the_call_is_settled_by_asking_the_connector(point: Point) -> None:
    fake, faults = Fake(), Reached(point, RuntimeError("struck"))
    fake.plan("put", notes("entry 7"))
    async with world(fake, faults=faults) as box:
        await box.keep.deploy(PUTS)
        await box.publish("flow", "in", "m1")
        await box.until_idle()
        await box.advance(MINUTE)
        [event] = await box.keep.events("flow", "in")
        last = (await box.keep.outputs("flow"))[0]
    assert (event.status, last.status) == (EventStatus.CONSUMED, MutationStatus.APPLIED)
    assert fake.texts == ["m1"]


async def test_a_commit_that_fails_is_tried_again() -> None:
    fake, faults = Fake(), Reached(Point.COMMIT)
    async with world(fake, faults=faults) as box:
        await box.keep.deploy(PUTS)
        await box.keep.pause("flow")
        await box.publish("flow", "in", "m1")
        hangs = fake.hang("put")
        await box.keep.resume("flow")
        await box.until_idle()
        faults.arm(StorageUnavailable("the disk is full"))
        hangs.release()
        await box.until_idle()
        await box.advance(MINUTE)
        [event] = await box.keep.events("flow", "in")
    assert faults.struck == 1
    assert event.status is EventStatus.CONSUMED
    assert fake.texts == ["m1"]


async def test_a_storage_that_dies_while_a_workflow_is_given_up_ends_the_runtime_with_one_error() -> None:
    """Found by the simulator: both supervisors escalate at once, and the caller got a group of two."""
    struck = False

    def strike(point: Point, _: str) -> None:
        if struck and point in (Point.RECEIVED, Point.COMMIT):
            raise RuntimeError(point)

    async def live() -> None:
        nonlocal struck
        async with opened(Fake(), faults=strike, restart=RestartPolicy(restarts_max=0)) as box:
            await box.keep.deploy(PUTS)
            struck = True
            with pytest.raises(ActorDied):
                await box.publish("flow", "in", "m1")
            await anyio.sleep_forever()

    with pytest.raises(Escalated) as caught:
        await live()
    assert caught.value.child == "storage"
    assert str(caught.value.__cause__) == Point.COMMIT
