"""The actor that writes notices: it compares the matters that call a person with the open notices.

After the start it compares all workflows once; from then on those that the journal names, at most a few times a second
however much is committed. No run waits for it. If it crashes too often it is given up, and runs go on without notices.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias, assert_never

import anyio
from msgspec import Struct

from keep_actors.api import overdue
from keep_actors.host.host import Host
from keep_actors.host.storage_retry import retry_while_unavailable
from keep_actors.kernel import Actor, ActorDied, ActorRef, ActorStopped, Question, RestartPolicy, Supervisor
from keep_actors.kernel.signal import Signal
from keep_actors.notices.comparison import NoticeChanges, compare
from keep_actors.notices.deliverer import Deliverer
from keep_actors.notices.needs_attention import matters, outcome_of
from keep_actors.notices.sink import Sink
from keep_storage import attention_reads, notice_reads, reads
from keep_storage.ids import Millis
from keep_storage.model import NoticeRow
from keep_storage.operations import AddDelivery, OpenNotice, Operation, SettleNotice, Together
from keep_storage.transaction import Queries

log = logging.getLogger("keep_actors.notices")

LOOK_EVERY_MS: Final = 200
"""Commits that come closer together are looked at together."""
FINISH_MS: Final = 2_000
"""The longest time that the end of a runtime waits for deliveries that are due. The rest waits for the next start."""
_PAGE: Final = 100
"""Workflows of one read: others want to read too."""
_ENTRIES: Final = 1_000
"""Journal entries of one read."""


class CompareNotices(Question[None]):
    """Compare the workflows that may have changed."""


class FinishNotices(Question[None]):
    """Compare once more, and answer when every delivery that is due has been tried."""


NoticesMessage: TypeAlias = CompareNotices | FinishNotices


class _Found(Struct, frozen=True):
    until: int
    is_all: bool
    settled: tuple[SettleNotice, ...]
    difference: NoticeChanges


class NoticesActor(Actor[NoticesMessage]):
    """Writes notices. Its deliverers, one for each sink, live and die with it."""

    def __init__(self, host: Host, sinks: Sequence[Sink], committed: Signal) -> None:
        super().__init__("notices")
        self._host = host
        self._sinks = tuple(sink.name for sink in sinks)
        self._deliverers = [Deliverer(host, sink) for sink in sinks]
        self._committed = committed
        self._seen: int | None = None
        """The journal up to here has been compared."""
        self._overdue_at: Millis | None = None
        """The time at which a handler will have failed for so long that a person is called."""

    async def run(self) -> None:
        """Follow commits, deliver, and process messages."""
        async with anyio.create_task_group() as tasks:
            for deliverer in self._deliverers:
                tasks.start_soon(deliverer.run)
            tasks.start_soon(self._follow)
            await super().run()
            tasks.cancel_scope.cancel()

    async def receive(self, message: NoticesMessage) -> None:
        match message:
            case CompareNotices():
                await self._look()
            case FinishNotices():
                await self._look()
                for deliverer in self._deliverers:
                    deliverer.wake()
                for deliverer in self._deliverers:
                    await deliverer.drained()
            case _:
                assert_never(message)
        message.answer(None)

    async def _follow(self) -> None:
        time = self._host.time
        with suppress(ActorStopped):
            while True:
                # Taken before looking: a commit meanwhile is looked at next.
                committed, looked_at = self._committed.next, time.now()
                await self.ref.ask(CompareNotices())
                await self._wait_for_change(committed)
                await time.sleep_until(looked_at + LOOK_EVERY_MS)

    async def _wait_for_change(self, committed: anyio.Event) -> None:
        """Wait for a commit, or for a handler that has failed for so long that a person is called."""
        if self._overdue_at is None:
            await committed.wait()
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._wake, tasks.cancel_scope, self._overdue_at)
            await committed.wait()
            tasks.cancel_scope.cancel()

    async def _wake(self, waiting: anyio.CancelScope, at: Millis) -> None:
        await self._host.time.sleep_until(at)
        waiting.cancel()

    # Comparing.

    async def _look(self) -> None:
        if self._seen is None:
            seen = await self._host.read(reads.journal_end)
            await self._look_at_all()
            await self._inform_new_sinks()
            self._seen = seen
        is_all = False
        while not is_all:
            seen = self._seen
            found = await self._host.read(partial(self._changed_since, seen=seen))
            await self._write_changes(found)
            self._seen, is_all = found.until, found.is_all
        await self._look_at_overdue()

    async def _look_at_overdue(self) -> None:
        """Compare failing handlers when their time has come: no commit says so."""
        at = overdue.moment_of(self._host)
        if self._overdue_at is not None and self._overdue_at <= at.now:
            failing = await self._host.read(attention_reads.failing_handlers)
            ids = {each.workflow_id for each in failing}
            await self._write_changes(await self._host.read(partial(self._compared, workflow_ids=sorted(ids))))
        self._overdue_at = await self._host.read(partial(overdue.next_notice_at, at=at))

    async def _look_at_all(self) -> None:
        after = ""
        while True:
            page = await self._host.read(partial(notice_reads.workflows_to_compare, after=after, limit=_PAGE))
            if not page:
                return
            await self._write_changes(await self._host.read(partial(self._compared, workflow_ids=page)))
            after = page[-1]

    def _changed_since(self, q: Queries, seen: int) -> _Found:
        end = reads.journal_end(q)
        until = min(end, seen + _ENTRIES)
        changed = notice_reads.changed_workflows_to_compare(q, after=seen, until=until) if until > seen else []
        return self._compared(q, changed, until, is_all=until == end)

    def _compared(self, q: Queries, workflow_ids: Iterable[str], until: int = 0, *, is_all: bool = True) -> _Found:
        now, known = [], []
        for workflow_id in workflow_ids:
            now += matters(q, workflow_id, lambda name: self._host.repairs_max(name) > 0, overdue.moment_of(self._host))
            known += notice_reads.open_notices(q, workflow_id)
        difference = compare(now, known)
        return _Found(until, is_all, tuple(_settle(q, each) for each in difference.settled), difference)

    # Writing.

    async def _write_changes(self, found: _Found) -> None:
        opened = [
            OpenNotice(
                self._host.ids.new("ntc"),
                each.workflow_id,
                each.kind,
                each.about,
                each.words,
                each.can_do,
                self._sinks,
                each.run_id,
                each.call,
            )
            for each in found.difference.opened
        ]
        await self._write([*found.settled, *opened])

    async def _inform_new_sinks(self) -> None:
        """Send open notices to a sink that is new, or was given up."""
        for sink in self._sinks:
            after = ""
            while page := await self._host.read(
                partial(notice_reads.untold_notices, sink=sink, after=after, limit=_PAGE)
            ):
                await self._write([AddDelivery(each.id, sink) for each in page])
                after = page[-1].id

    async def _write(self, operations: Sequence[Operation[object]]) -> None:
        if operations:
            together = Together(tuple(operations))
            await retry_while_unavailable(lambda: self._host.storage.apply(together), self._host.time)
            for deliverer in self._deliverers:
                deliverer.wake()


def _settle(q: Queries, notice: NoticeRow) -> SettleNotice:
    return SettleNotice(notice.id, outcome_of(q, notice))


def start(
    supervisor: Supervisor, host: Host, sinks: Sequence[Sink], committed: Signal
) -> ActorRef[NoticesMessage] | None:
    """Start the actor. Without sinks there is none."""
    if not sinks:
        return None

    async def given_up(error: Exception) -> None:
        log.error("No notices are sent any more until the next start", exc_info=error)

    return supervisor.start(
        "notices", lambda _: NoticesActor(host, sinks, committed), policy=RestartPolicy(), given_up=given_up
    )


async def finish(notices: ActorRef[NoticesMessage] | None, grace_ms: Millis) -> None:
    """Try deliveries that are due once more, for a short time, before the runtime ends."""
    if notices is None:
        return
    with anyio.move_on_after(min(grace_ms, FINISH_MS) / 1000, shield=True), suppress(ActorDied, ActorStopped):
        await notices.ask(FinishNotices())
