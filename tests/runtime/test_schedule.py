"""When a producer runs next: intervals, cron, time zones, and what cannot be followed."""

from datetime import UTC, datetime

import pytest

from keep_actors.run.schedule import ScheduleError, interval_ms, next_run_at
from keep_sandbox.declaration import Schedule


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def cron(expression: str, now: str, timezone: str = "UTC") -> str:
    found = next_run_at(Schedule(cron=expression), timezone, 1, at(now))
    return datetime.fromtimestamp(found / 1000, UTC).isoformat()


@pytest.mark.parametrize(("text", "ms"), [("1s", 1_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000)])
def test_an_interval_has_a_unit(text: str, ms: int) -> None:
    assert interval_ms(text) == ms
    assert next_run_at(Schedule(interval=text), "UTC", 1, 1000) == 1000 + ms


def test_an_interval_in_milliseconds_is_one_if_it_is_long_enough() -> None:
    assert interval_ms("1500ms") == 1_500
    with pytest.raises(ScheduleError, match="too short"):
        interval_ms("500ms")


def test_without_a_schedule_the_default_interval_counts() -> None:
    assert next_run_at(None, "UTC", 300_000, 5) == 300_005


def test_cron_is_read_in_the_time_zone_of_the_workflow() -> None:
    assert cron("0 9 * * *", "2026-01-10T00:00:00Z") == "2026-01-10T09:00:00+00:00"
    assert cron("0 9 * * *", "2026-01-10T00:00:00Z", "Europe/Berlin") == "2026-01-10T08:00:00+00:00"
    assert cron("0 9 * * *", "2026-07-10T00:00:00Z", "Europe/Berlin") == "2026-07-10T07:00:00+00:00"


def test_a_time_that_is_now_is_not_next() -> None:
    assert cron("0 9 * * *", "2026-01-10T09:00:00Z") == "2026-01-11T09:00:00+00:00"


def test_a_day_on_which_the_clock_is_set_has_its_daily_run_once() -> None:
    # Berlin skips 02:00 to 03:00 on 2026-03-29 and repeats it on 2026-10-25.
    assert cron("30 2 * * *", "2026-03-28T12:00:00Z", "Europe/Berlin") == "2026-03-29T01:00:00+00:00"
    first = cron("30 2 * * *", "2026-10-24T12:00:00Z", "Europe/Berlin")
    assert first == "2026-10-25T00:30:00+00:00"
    assert cron("30 2 * * *", first, "Europe/Berlin") == "2026-10-26T01:30:00+00:00"


@pytest.mark.parametrize("expression", ["61 * * * *", "* * 31 2 *", "a b c d e"])
def test_a_cron_expression_that_cannot_be_followed_is_an_error(expression: str) -> None:
    with pytest.raises(ScheduleError, match="cron"):
        cron(expression, "2026-01-10T00:00:00Z")


def test_an_unknown_time_zone_is_an_error_that_names_it() -> None:
    with pytest.raises(ScheduleError, match="Mars/Olympus"):
        cron("0 9 * * *", "2026-01-10T00:00:00Z", "Mars/Olympus")
