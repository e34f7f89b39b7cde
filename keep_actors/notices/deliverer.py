"""Delivers notices to one sink: one at a time, the longest due first, as long as the runtime lives.

At least once: a delivery is noted afterwards, so after a crash in between it is delivered again, with the same id.
A sink that hangs or fails holds up only itself.
"""

import logging
from typing import assert_never

import anyio

from keep_actors.api.delivery_log import notice_about
from keep_actors.api.notice import Notice
from keep_actors.host.host import Host
from keep_actors.host.storage_retry import retry_while_unavailable
from keep_actors.kernel import Time
from keep_actors.kernel.foreign_code import Ending, Raised, Returned, TimedOut, carry_out, described
from keep_actors.kernel.signal import Signal
from keep_actors.notices.sink import GiveUp, Sink
from keep_actors.telemetry import names
from keep_storage import notice_reads
from keep_storage.errors import Rejected
from keep_storage.ids import Millis
from keep_storage.model import Delivery
from keep_storage.operations import NoteDelivery
from keep_storage.transaction import Queries

log = logging.getLogger("keep_actors.notices")


class Deliverer:
    """The deliveries of one sink. `run` it in a task, and `wake` it when there may be another."""

    def __init__(self, host: Host, sink: Sink) -> None:
        self._host = host
        self._sink = sink
        self._news = Signal()
        self._rested = Signal()
        self._is_resting = False

    def wake(self) -> None:
        """Look again: another delivery may be due."""
        self._is_resting = False
        self._news.fire()

    async def drained(self) -> None:
        """Return once every delivery that is due has been tried."""
        while not self._is_resting:
            await self._rested.next.wait()

    async def run(self) -> None:
        """Deliver for ever."""
        time = self._host.time
        while True:
            news = self._news.next
            found = await self._host.read(self._next)
            at = None if found is None else found[0].next_attempt_at
            if found is not None and at is not None and at <= time.now():
                await self._deliver(*found)
            elif not news.is_set():
                self._is_resting = True
                self._rested.fire()
                await _rest(news, at, time)

    def _next(self, q: Queries) -> tuple[Delivery, Notice] | None:
        delivery = notice_reads.next_delivery(q, self._sink.name)
        if delivery is None:
            return None
        row = notice_reads.notice(q, delivery.notice_id)
        assert row is not None, "a delivery is of a notice"
        return delivery, notice_about(q, row, delivery.says)

    async def _deliver(self, delivery: Delivery, notice: Notice) -> None:
        sink = self._sink
        ending = await carry_out(lambda: sink.deliver(notice), sink.timeout_ms)
        note = NoteDelivery(notice.matter, sink.name, delivery.says, *self._judged(ending, delivery))
        try:
            noted = await retry_while_unavailable(lambda: self._host.storage.apply(note), self._host.time)
        except Rejected as refused:
            # The actor was restarted: a write of its last incarnation was done after we looked.
            log.info("A delivery to sink %r was noted before: %s", sink.name, refused.reason)
            return
        self._log(noted)

    def _judged(self, ending: Ending[None], delivery: Delivery) -> tuple[str | None, Millis | None]:
        """The problem, and the time of the next attempt."""
        match ending:
            case Returned():
                return None, None
            case TimedOut():
                return f"it took longer than {self._sink.timeout_ms} ms", self._next_attempt_at(delivery)
            case Raised(error=GiveUp() as error):
                return described(error), None
            case Raised(error=error):
                return described(error), self._next_attempt_at(delivery)
            case _:
                assert_never(ending)

    def _next_attempt_at(self, delivery: Delivery) -> Millis | None:
        """None if it has failed too often."""
        failures, backoff = delivery.attempts + 1, self._sink.backoff
        if backoff.is_used_up(failures):
            return None
        return self._host.time.now() + backoff.delay_ms(failures, self._host.rng)

    def _log(self, noted: Delivery) -> None:
        """Log a failure without the problem, which may quote a service: it is in `keep.notices()`."""
        outcome = "failed" if noted.ended_at is None else str(noted.status)
        self._host.telemetry.count(names.NOTICES.name, 1, sink=noted.sink, outcome=outcome)
        which = f"Sink {noted.sink!r} was not told that notice {noted.notice_id} {noted.says}"
        if outcome == "given_up":
            log.error("%s, in %d attempts, and will not be: it is given up", which, noted.attempts)
        elif outcome == "failed" and noted.attempts == 1:
            log.warning("%s; it is tried again", which)


async def _rest(news: anyio.Event, at: Millis | None, time: Time) -> None:
    """Wait for news, or until a time."""
    if at is None:
        await news.wait()
        return

    async def until(at: Millis) -> None:
        await time.sleep_until(at)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(until, at)
        await news.wait()
        tasks.cancel_scope.cancel()
