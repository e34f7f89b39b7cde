"""When a handler runs after a deploy: by cron at its next time, by an interval at once; and what plans it anew."""

from datetime import UTC, datetime

import pytest

from keep_actors.maintenance import Proposal
from tests.runtime.fakes import Fake
from tests.runtime.test_repair import Mechanic
from tests.runtime.world import MINUTE, TimedBox, script, world

pytestmark = pytest.mark.anyio

HOUR = 60 * MINUTE
KINDS = pytest.mark.parametrize("kind", ["producer", "job"])

# START is 2023-11-14, 22:13:20 in Greenwich, 23:13:20 in Berlin.


def by_cron(expression: str, kind: str = "producer", body: str = "return 1;") -> str:
    return script(schedule=f'{{ cron: "{expression}" }}', **{kind: body})


def by_interval(interval: str, kind: str = "producer", body: str = "return 1;") -> str:
    return script(schedule=f'{{ interval: "{interval}" }}', **{kind: body})


async def ran(box: TimedBox) -> list[str]:
    """When the handler with the schedule ran, in Greenwich."""
    runs = [run for run in reversed(await box.keep.runs("flow")) if run.handler in ("poll", "sweep")]
    return [f"{datetime.fromtimestamp(run.created_at / 1000, UTC):%d %H:%M}" for run in runs]


async def deploy(box: TimedBox, source: str, timezone: str | None = None) -> None:
    await box.keep.deploy(source, timezone=timezone, workflow="flow")
    await box.settle()


async def pass_hours(box: TimedBox, hours: int) -> None:
    for _ in range(hours):
        await box.advance(HOUR)


@KINDS
async def test_a_handler_with_cron_does_not_run_at_its_first_deploy_but_at_its_next_time(kind: str) -> None:
    async with world(Fake()) as box:
        await deploy(box, by_cron("13 6 * * *", kind))
        assert await ran(box) == []
        await pass_hours(box, 32)
        assert await ran(box) == ["15 06:13", "16 06:13"]


@KINDS
async def test_a_handler_with_an_interval_runs_at_once_at_its_first_deploy(kind: str) -> None:
    async with world(Fake()) as box:
        await deploy(box, by_interval("6h", kind))
        assert await ran(box) == ["14 22:13"]
        await pass_hours(box, 6)
        assert await ran(box) == ["14 22:13", "15 04:13"]


async def test_the_same_cron_again_neither_runs_nor_moves() -> None:
    async with world(Fake()) as box:
        await deploy(box, by_cron("13 6 * * *"))
        await pass_hours(box, 3)
        await deploy(box, by_cron("13 6 * * *"))
        await deploy(box, by_cron("13 6 * * *", body="return 2;"))
        await pass_hours(box, 9)
        assert await ran(box) == ["15 06:13"]


async def test_a_changed_cron_does_not_run_at_deploy_but_at_its_own_next_time() -> None:
    async with world(Fake()) as box:
        await deploy(box, by_cron("13 6 * * *"))
        await deploy(box, by_cron("13 3 * * *"))
        assert await ran(box) == []
        await pass_hours(box, 12)
        assert await ran(box) == ["15 03:13"]


async def test_a_changed_interval_runs_at_once() -> None:
    async with world(Fake()) as box:
        await deploy(box, by_interval("6h"))
        await pass_hours(box, 1)
        await deploy(box, by_interval("6h", body="return 2;"))
        assert await ran(box) == ["14 22:13"]
        await deploy(box, by_interval("5h"))
        assert await ran(box) == ["14 22:13", "14 23:13"]
        await pass_hours(box, 5)
        assert await ran(box) == ["14 22:13", "14 23:13", "15 04:13"]


async def test_from_an_interval_to_cron_waits_and_from_cron_to_an_interval_runs_at_once() -> None:
    async with world(Fake()) as box:
        await deploy(box, by_interval("6h"))
        await deploy(box, by_cron("13 3 * * *"))
        await pass_hours(box, 6)
        assert await ran(box) == ["14 22:13", "15 03:13"]
        await deploy(box, by_interval("6h"))
        assert await ran(box) == ["14 22:13", "15 03:13", "15 04:13"]


@pytest.mark.parametrize(
    "source", [by_cron("13 6 * * *"), by_cron("13 6 * * *", body="return 2;")], ids=["same", "new"]
)
async def test_another_time_zone_plans_the_same_cron_anew(source: str) -> None:
    async with world(Fake()) as box:
        await deploy(box, by_cron("13 6 * * *"))
        await deploy(box, source, "Europe/Berlin")
        await pass_hours(box, 12)
        assert await ran(box) == ["15 05:13"]
        # In New York it is 05:13 now.
        await deploy(box, source, "America/New_York")
        await pass_hours(box, 24)
        assert await ran(box) == ["15 05:13", "15 11:13"]


async def test_another_time_zone_does_not_touch_an_interval() -> None:
    async with world(Fake()) as box:
        await deploy(box, by_interval("6h"))
        await pass_hours(box, 1)
        await deploy(box, by_interval("6h"), "Europe/Berlin")
        assert await ran(box) == ["14 22:13"]
        await pass_hours(box, 5)
        assert await ran(box) == ["14 22:13", "15 04:13"]


async def test_a_later_deploy_that_names_no_time_zone_reads_a_changed_cron_in_that_of_the_workflow() -> None:
    async with world(Fake()) as box:
        await deploy(box, by_cron("13 6 * * *"), "Europe/Berlin")
        await deploy(box, by_cron("13 4 * * *"))
        await pass_hours(box, 12)
        assert await ran(box) == ["15 03:13"]


async def test_a_rollback_does_not_run_a_cron_that_changes_back_but_waits_for_its_next_time() -> None:
    async with world(Fake()) as box:
        await deploy(box, by_cron("13 6 * * *"), "Europe/Berlin")
        await deploy(box, by_cron("13 3 * * *"))
        await box.keep.rollback("flow", "1.0")
        await box.settle()
        assert await ran(box) == []
        await pass_hours(box, 12)
        assert await ran(box) == ["15 05:13"]


async def test_a_cron_that_comes_back_after_days_without_it_waits_for_its_next_time() -> None:
    async with world(Fake()) as box:
        await deploy(box, by_cron("13 6 * * *"))
        await deploy(box, script(prepare="return { reservations: [] };"))
        await pass_hours(box, 60)
        await box.keep.rollback("flow", "1.0")
        await box.settle()
        assert await ran(box) == []
        await pass_hours(box, 24)
        assert await ran(box) == ["18 06:13"]


async def test_an_automatic_repair_leaves_the_plan_of_a_cron_as_it_is() -> None:
    broken, mended = by_cron("13 23 * * *", body="null.x;"), by_cron("13 23 * * *")
    async with world(Fake(), maintainer=Mechanic(Proposal(mended, "safe"))) as box:
        await deploy(box, broken)
        await pass_hours(box, 3)
        assert [each.minor for each in await box.keep.versions("flow")] == [1, 0]
        # The run that failed at 23:13 is made up for by the repaired script; after that it is the next day.
        assert await ran(box) == ["14 23:13", "14 23:13"]
        await pass_hours(box, 23)
        assert await ran(box) == ["14 23:13", "14 23:13", "15 23:13"]


async def test_times_missed_while_paused_are_made_up_by_one_run_as_before() -> None:
    async with world(Fake()) as box:
        await deploy(box, by_cron("13 6 * * *"))
        await box.keep.pause("flow")
        await pass_hours(box, 60)
        await box.keep.resume("flow")
        await box.settle()
        assert await ran(box) == ["17 10:13"]
