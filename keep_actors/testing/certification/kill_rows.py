"""The rows in which a whole runtime is killed with SIGKILL around a call, and another one recovers."""

import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

import msgspec
import sniffio

from keep_actors.host.fault_points import Point
from keep_actors.kernel.foreign_code import attempt
from keep_actors.testing.certification.faults import Act, Fault
from keep_actors.testing.certification.faults import Way as On
from keep_actors.testing.certification.ground import ExampleCall, Ground, Route, RowBroken, RowDoesNotApply, RowMoot
from keep_actors.testing.certification.life import PATIENCE_S, LifePlan, LifeReport
from keep_actors.testing.certification.lives import Lives
from keep_actors.testing.certification.nursery import LifeEnded
from keep_actors.testing.certification.rows import CertificationRow
from keep_storage.model import EventStatus

KillFunction: TypeAlias = Callable[[Ground, Lives], Awaitable[str]]

_WORKING_MS: Final = (1, 5, 20)
_REACHED_S: Final = 10
_STILL_AT_WORK: Final = "a runtime was still at work when the time for it was over"


@dataclass(frozen=True, slots=True)
class _Story:
    """The lives of one call: those that are killed, and the last one, which recovers."""

    ground: Ground
    lives: Lives
    way: Route
    wanted: ExampleCall
    folder: str

    async def killed(self, at: Point, *, after_ms: int = 0, begins: bool = True) -> bool:
        """Live until the point. False: it was never reached."""
        life = await self.lives.begin(self._plan(begins=begins, kill_at=at, kill_after_ms=after_ms))
        return self._was_killed(await self.lives.end(life))

    async def killed_on_the_way(self, fault: Fault) -> bool:
        """Live until the bytes are held that a fault is about; they arrive after the kill. False: there were none."""
        self.way.inject(fault)
        life = await self.lives.begin(self._plan(begins=True))
        if await self.way.reached(_REACHED_S * self.ground.times):
            life.kill()
        ended = await self.lives.end(life)
        self.way.release()
        return self._was_killed(ended)

    @staticmethod
    def _was_killed(ended: LifeEnded) -> bool:
        if ended.told is not None and not ended.told.is_at_rest:
            raise RowMoot(_STILL_AT_WORK)
        return ended.signal == signal.SIGKILL

    async def recovered(self) -> str:
        """Recover, and compare what is known then with the effects. Raises `RowBroken`."""
        life = await self.lives.begin(self._plan(begins=False))
        told = (await self.lives.end(life)).told
        assert told is not None, "nothing kills the last life"
        if not told.is_at_rest:
            raise RowMoot(f"{_STILL_AT_WORK}: {told.error or 'without an error'}")
        if told.event is None:
            raise RowBroken(f"the event is lost: {told.error}")
        return _agrees(told, await self.ground.effects_at_rest(self.wanted))

    def _plan(self, *, begins: bool, kill_at: Point | None = None, kill_after_ms: int = 0) -> LifePlan:
        return LifePlan(
            subject=self.ground.certification.spec(),
            service=self.way.seen,
            method=self.ground.method.name,
            params=msgspec.Raw(msgspec.json.encode(self.wanted.example)),
            folder=self.folder,
            timeout_ms=self.ground.timeout_ms,
            backend=sniffio.current_async_library(),
            begins=begins,
            patience_s=PATIENCE_S * self.ground.times,
            kill_at=kill_at,
            kill_after_ms=kill_after_ms,
        )


def _agrees(told: LifeReport, effects: int) -> str:
    calls = ", ".join(told.calls) or "none"
    if effects > 1:
        raise RowBroken(f"{effects} effects; calls in the ledger: {calls}")
    if told.event is EventStatus.CONSUMED:
        if effects != 1:
            raise RowBroken(f"the run is done, and there are {effects} effects; calls in the ledger: {calls}")
        return f"done; 1 effect; calls in the ledger: {calls}"
    if told.questions:
        return f"an open question, with {effects} effects"
    raise RowBroken(f"neither done nor a question, with {effects} effects; calls in the ledger: {calls}; {told.error}")


async def _story(ground: Ground, lives: Lives, tell: Callable[[_Story], Awaitable[str]]) -> str:
    # Caught before the way is closed: the task group around it would make a group of it.
    seen = ""
    async with ground.way() as way:
        with attempt() as tried, TemporaryDirectory(prefix="keep-certification-") as folder:
            seen = await tell(_Story(ground, lives, way, ground.wanted(), folder))
    if tried.error is not None:
        raise tried.error
    return seen


def _at(point: Point) -> KillFunction:
    """Kill at a point of the runtime that every call passes."""

    async def row(ground: Ground, lives: Lives) -> str:
        async def tell(story: _Story) -> str:
            if not await story.killed(point):
                raise RowBroken(f"the call never came to {point}: {await story.recovered()}")
            return await story.recovered()

        return await _story(ground, lives, tell)

    return row


async def _sending(ground: Ground, lives: Lives) -> str:
    if not ground.method.marks_sent:
        raise RowDoesNotApply("the method does not say when it sends: `marks_sent` is False")
    return await _at(Point.SENDING)(ground, lives)


async def _noted(ground: Ground, lives: Lives) -> str:
    async def tell(story: _Story) -> str:
        if not await story.killed(Point.NOTED):
            raise RowDoesNotApply("it makes no note")
        return await story.recovered()

    return await _story(ground, lives, tell)


async def _working(ground: Ground, lives: Lives) -> str:
    point = Point.SENDING if ground.method.marks_sent else Point.RECORDED
    words = []

    async def killed_after(after_ms: int) -> None:
        async def tell(story: _Story) -> str:
            was_killed = await story.killed(point, after_ms=after_ms)
            return f"after {after_ms} ms{'' if was_killed else ' (done by then)'}: {await story.recovered()}"

        words.append(await _story(ground, lives, tell))

    for after_ms in _WORKING_MS:
        await killed_after(after_ms)
    return "; ".join(words)


def _checking(point: Point) -> KillFunction:
    """Kill while the outcome of a call is looked into, whose first life was killed when it was answered."""

    async def row(ground: Ground, lives: Lives) -> str:
        if not ground.method.reconcilable:
            raise RowDoesNotApply("there is no `reconcile`: a person is asked")

        async def tell(story: _Story) -> str:
            if not await story.killed(Point.ANSWERED):
                raise RowBroken(f"the call was never answered: {await story.recovered()}")
            if not await story.killed(point, begins=False):
                raise RowBroken(f"it never came to {point}: {await story.recovered()}")
            return await story.recovered()

        return await _story(ground, lives, tell)

    return row


def _on_the_way(on: On) -> KillFunction:
    async def row(ground: Ground, lives: Lives) -> str:
        ground.need_network()

        async def tell(story: _Story) -> str:
            fault = Fault(act=Act.HOLD, on=on, pattern=ground.decisive)
            if not await story.killed_on_the_way(fault):
                raise RowMoot(f"the decisive bytes {ground.decisive!r} were not sent: {await story.recovered()}")
            return await story.recovered()

        return await _story(ground, lives, tell)

    return row


KILL_ROWS: Final[Mapping[CertificationRow, KillFunction]] = {
    CertificationRow.KILLED_RECORD: _at(Point.RECORD),
    CertificationRow.KILLED_RECORDED: _at(Point.RECORDED),
    CertificationRow.KILLED_SENDING: _sending,
    CertificationRow.KILLED_NOTED: _noted,
    CertificationRow.KILLED_WORKING: _working,
    CertificationRow.KILLED_REQUEST: _on_the_way(On.REQUESTS),
    CertificationRow.KILLED_ANSWER: _on_the_way(On.ANSWERS),
    CertificationRow.KILLED_ANSWERED: _at(Point.ANSWERED),
    CertificationRow.KILLED_CHECK: _checking(Point.CHECK),
    CertificationRow.KILLED_CHECKED: _checking(Point.CHECKED),
}
