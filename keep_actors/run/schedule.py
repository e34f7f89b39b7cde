"""When a producer or a job runs next. Pure: the time and the time zone come as arguments."""

from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from keep_sandbox.declaration import Schedule
from keep_storage.ids import Millis

_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_INTERVAL_MIN_MS = 1_000


class ScheduleError(ValueError):
    """A schedule or a time zone that cannot be followed. Its text says why."""


def next_run_at(schedule: Schedule | None, timezone: str, default_ms: Millis, now: Millis) -> Millis:
    """The next time after `now`. Without a schedule: after the default interval. Raises `ScheduleError`."""
    if schedule is None:
        return now + default_ms
    if schedule.interval is not None:
        return now + interval_ms(schedule.interval)
    assert schedule.cron is not None, "a schedule has an interval or a cron expression"
    return _next_by_cron(schedule.cron, zone(timezone), now)


def first_run_at(schedule: Schedule | None, timezone: str, now: Millis) -> Millis:
    """When a handler runs that begins now: by cron at its next time, else at once. Raises `ScheduleError`."""
    if schedule is None or schedule.cron is None:
        return now
    return _next_by_cron(schedule.cron, zone(timezone), now)


def interval_ms(interval: str) -> Millis:
    """`"5m"` in milliseconds."""
    digits = interval.rstrip("msdh")
    length = int(digits) * _UNIT_MS[interval[len(digits) :]]
    if length < _INTERVAL_MIN_MS:
        raise ScheduleError(f"an interval of {interval} is too short; a second is the least")
    return length


@lru_cache(maxsize=256)
def zone(name: str) -> ZoneInfo:
    """The time zone of that name. Raises `ScheduleError`."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ScheduleError(f"there is no time zone {name!r} on this machine; use a name like Europe/Berlin") from None


def _next_by_cron(cron: str, where: ZoneInfo, now: Millis) -> Millis:
    after = datetime.fromtimestamp(now / 1000, UTC).astimezone(where)
    try:
        found = next(CronSim(cron, after))
    except CronSimError as error:
        raise ScheduleError(f"the cron expression {cron!r} cannot be read: {error}") from None
    except StopIteration:
        raise ScheduleError(f"the cron expression {cron!r} never comes true") from None
    return int(found.timestamp() * 1000)
