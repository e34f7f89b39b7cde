"""One seed, one story: a storm in which anything may go wrong, then calm, in which everything must come to rest."""

import random
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast

import anyio
import msgspec
from anyio.abc import TaskGroup

from keep_actors import Grant, Keep
from keep_actors.connectors import Catalog
from keep_actors.host.fault_points import Point
from keep_actors.kernel import ActorError, Escalated, RestartPolicy
from keep_actors.testing import Effect, LoopTime, Outside, run_seeded
from keep_actors.testing.process import Process
from keep_actors.testing.seeded import START
from keep_storage.errors import StorageUnavailable
from keep_storage.ids import IdKind, Ids
from keep_storage.model import Workflow, WorkflowStatus
from keep_storage.operations import Operation
from tests.simulation import scripts, weather
from tests.simulation.at_the_shop import AtTheShop
from tests.simulation.disk import Disk, DiskOfAProcess
from tests.simulation.frail import FrailPool
from tests.simulation.mender import Mender
from tests.simulation.oracle import Oracle
from tests.simulation.pager import Pagers
from tests.simulation.people import People, asking
from tests.simulation.shell import ControlSocket, Shell
from tests.simulation.shop import SETTLE_MS, TIMEOUT_MS, Moods, Order, fake_shop
from tests.simulation.trace import Figures, Trace
from tests.simulation.weather import Climate, Storm, Struck

T = TypeVar("T")

_TURNS_MAX = 20_000
"""More pieces of work than this, and a story does not come to rest."""
_CALM_ROUNDS = 60
_CALM_MINUTES = 9
_LATE_MS = 360_000
"""What was to be done so long ago has been done, if nothing goes wrong any more."""


class Told(msgspec.Struct, frozen=True):
    """How a story went."""

    seed: int
    climate: Climate
    violation: str
    """Empty, or the first promise that was broken."""
    figures: Figures
    trace: Sequence[str]


def tell(seed: int, climate: Climate | None = None) -> Told:
    """Let a seed happen. The same seed, and the same climate, give the same lines."""
    chosen = climate or weather.climate(seed)
    story: list[Story] = []

    async def main() -> None:
        story.append(Story(seed, chosen))
        await story[0].happen()

    run_seeded(main, seed)
    [told] = story
    return Told(seed, chosen, told.oracle.violation, told.trace.figures, told.trace.lines())


def _first(group: BaseException) -> BaseException:
    return _first(group.exceptions[0]) if isinstance(group, BaseExceptionGroup) else group


class Story:
    """Everything that one seed is about."""

    def __init__(self, seed: int, climate: Climate) -> None:
        self.climate = climate
        self.time = LoopTime()
        self.trace = Trace()
        self.world = Outside(self.time.now, self.time.elapsed)
        self._policy = weather.policy(seed, climate)
        self.oracle = Oracle(self.trace, self.world, climate, self._policy)
        self.keep: Keep | None = None
        self.flows = [f"f{number}" for number in range(climate.workflows)]
        self.archived: list[Workflow] = []
        rng = random.Random(f"{seed}:world")
        self.specs = {flow: scripts.make(rng, flow) for flow in self.flows}
        self.chores = {flow: [f"chore{number}" for number in range(climate.chores)] for flow in self.flows}
        self._asks = {flow: tuple(rng.sample(["shop.add", "shop.put"], rng.choice([1, 2]))) for flow in self.flows}
        self._seed = seed
        self._orders: dict[str, list[Order]] = {flow: [] for flow in self.flows}
        self._rng = random.Random(f"{seed}:runtime")
        self._ids = Ids(self.time.now, random.Random(f"{seed}:ids"))
        self._between = random.Random(f"{seed}:between")
        self._haste = random.Random(f"{seed}:haste")
        self._hurries = climate.hurries
        self._clocks = random.Random(f"{seed}:clocks")
        self._turns = 0
        self._slowness = random.Random(f"{seed}:slowness")
        self._process: Process | None = None
        self._started = anyio.Event()
        self._tasks: TaskGroup | None = None
        self._storm = Storm(seed, climate, self.trace, self._die)
        self._disk = Disk(self.time.now, self._storm.trouble, self._committed)
        self.oracle.disk = self._disk
        self._moods = Moods(random.Random(f"{seed}:shop"), climate.bad_calls, AtTheShop(self))
        shop = fake_shop(self._orders, self.chores)
        shop.world, shop.otherwise = self.world, self._moods
        self.world.on_effect = self._happens
        self._catalog = Catalog([shop])
        self.people = People(self, seed)
        self._pagers = Pagers(self, seed)
        self._place: Path | None = None

    # The two halves of a story.

    async def happen(self) -> None:
        """Storm, then calm. Ends early when a promise is broken."""
        try:
            with TemporaryDirectory(prefix="story-") if self.climate.shell else nullcontext() as folder:
                self._place = Path(folder) / "control" if folder else None
                await self._unfold()
        except ExceptionGroup as group:
            self.oracle.wrong(f"something was raised that nobody expects: {_first(group)!r}")
        self._disk.close()

    async def _unfold(self) -> None:
        with anyio.CancelScope() as self._scope:
            async with anyio.create_task_group() as self._tasks:
                self._tasks.start_soon(self._processes)
                await self._begin()
                for number in range(self.climate.people):
                    self._tasks.start_soon(self.people.live, number)
                self._tasks.start_soon(self._order)
                self._storm.on = True
                await anyio.sleep(self.climate.minutes * 60)
                self.people.on = self._storm.on = self._moods.on = False
                self._pagers.calm()
                await self._calm()
                self._die()
                self._tasks.cancel_scope.cancel()

    async def _begin(self) -> None:
        await self._started.wait()
        for flow in self.flows:
            await self._running().deploy(scripts.source(self.specs[flow]), grants=self.grants(flow))

    async def _order(self) -> None:
        """Orders come in, for the producers to find."""
        rng, number = random.Random(f"{self._seed}:orders"), 0
        for _ in range(self.climate.orders):
            await anyio.sleep(rng.uniform(0, self.climate.minutes * 50 / self.climate.orders))
            for flow in self._orders:
                number += 1
                self._orders[flow].append(Order(f"o{number}", number, rng.random() < 0.15, rng.choice("ab")))

    async def _calm(self) -> None:
        """Nothing goes wrong any more, and people answer what they are asked. Everything must come to rest."""
        rng = random.Random(f"{self._seed}:calm")
        self._note("calm", "")
        # An archive that nobody was told of may have been done by the next incarnation of the actor.
        self.flows[:] = [flow for flow in self.flows if not self.is_archived(flow)]
        why = "it has not been looked at"
        for number in range(_CALM_ROUNDS):
            await anyio.sleep(60 * min(_CALM_MINUTES + number, 10))
            self.oracle.overdue(self.time.now() - _LATE_MS)
            self._pagers.check(self.time.now() - _LATE_MS)
            if self.oracle.violation:
                return
            why = await self._restless(rng)
            if not why:
                break
        else:
            self.oracle.wrong(f"does not come to rest: {why}")
            return
        self._note("rest", "")
        self.oracle.at_rest()
        self._pagers.at_rest()

    async def _restless(self, rng: random.Random) -> str:
        """What waits for a person, who then answers, or is still under way; empty if nothing is."""
        keep, said = self._running(), ""
        if not self.waits_for_people():
            return self._left_over() or self._unseen() or self.people.still_waiting
        await self._archive_strays(keep)
        for flow in self.flows:
            found = await keep.workflow(flow)
            if found.status is WorkflowStatus.PAUSED:
                said = await self.people.attempt("resume", partial(self._resumed, keep, flow))
            if found.maintenance:
                said = await self.people.attempt("mend", partial(self.people.deploy, keep, flow, rng, mended=True))
        for question in await keep.approvals():
            said = await self.people.attempt("answer", partial(self._approved, keep, question.approval_id))
        for unknown in await keep.unknowns():
            if unknown.verdicts:
                said = await self.people.attempt("judge", partial(self.people.judge, keep, unknown, rng))
        for flow in self.flows:
            if (await keep.workflow(flow)).error:
                await self.people.attempt("decide", partial(self.people.decide, keep, flow, rng))
                said = await self.people.attempt("clear", partial(self._cleared, keep, flow))
        return said or "somebody is asked"

    def waits_for_people(self) -> list[str]:
        """What there is to say for a person, by kind."""
        rows = self._disk.rows(
            "SELECT 'unknown' FROM mutations m WHERE m.status IN ('needs_reconcile', 'indeterminate') "
            "UNION SELECT 'approval' FROM approvals a WHERE a.status = 'open' "
            "UNION SELECT 'error' FROM workflows WHERE error <> '' AND status <> 'archived' "
            "UNION SELECT 'maintenance' FROM workflows WHERE maintenance = 1 AND status <> 'archived' "
            "UNION SELECT 'paused' FROM workflows WHERE status = 'paused' ORDER BY 1"
        )
        return [kind for (kind,) in rows]

    async def _approved(self, keep: Keep, approval_id: str) -> str:
        await keep.approve(approval_id, by="ann")
        return self.trace.short(approval_id)

    def _unseen(self) -> str:
        """An order that has not become an event."""
        for flow in self.flows:
            if self.specs[flow].poll_minutes:
                seen = {message_id for (message_id,) in self._disk.rows("SELECT message_id FROM events")}
                for order in self._orders[flow]:
                    if order.id not in seen:
                        return f"order {order.id} of {flow} has not been seen"
        return ""

    def is_archived(self, flow: str) -> bool:
        """Whether no living workflow has this name."""
        return not self._disk.rows("SELECT 1 FROM workflows WHERE name = ? AND status <> 'archived'", flow)

    async def _archive_strays(self, keep: Keep) -> None:
        """Archive again what somebody brought back and does not look after."""
        for stray in await keep.workflows():
            if stray.name not in self.flows and stray.status is not WorkflowStatus.ARCHIVED:
                await self.people.attempt("archive", partial(self._archived, keep, stray.id))

    async def _archived(self, keep: Keep, workflow_id: str) -> str:
        return (await keep.archive(workflow_id)).name

    async def _resumed(self, keep: Keep, flow: str) -> str:
        return (await keep.resume(flow)).name

    async def _cleared(self, keep: Keep, flow: str) -> str:
        await self.people.give(keep, flow)
        return (await keep.clear_error(flow, by="ann")).name

    def _left_over(self) -> str:
        """Events, runs and calls of living workflows that nobody has come to terms with."""
        rows = self._disk.rows(
            "SELECT 'event', e.message_id, e.status FROM events e JOIN topics t ON t.id = e.topic_id "
            "JOIN workflows w ON w.id = t.workflow_id WHERE w.status = 'active' AND t.consumer IS NOT NULL "
            "AND e.status NOT IN ('consumed', 'skipped') "
            "UNION ALL SELECT 'run', r.id, r.status FROM runs r WHERE r.status = 'active' "
            "UNION ALL SELECT 'call', m.id, m.status FROM mutations m JOIN workflows w ON w.id = m.workflow_id "
            "WHERE m.status NOT IN ('applied', 'failed') "
            "UNION ALL SELECT 'retry', w.pending_retry_run_id, w.name FROM workflows w WHERE w.status = 'active' "
            "AND w.pending_retry_run_id IS NOT NULL "
            "UNION ALL SELECT 'session', s.id, 'open' FROM sessions s WHERE s.ended_at IS NULL LIMIT 1"
        )
        if not rows:
            return ""
        [(kind, what, status)] = rows
        return f"{kind} {self.trace.short(what)} is {status}"

    # Processes.

    async def _processes(self) -> None:
        assert self._tasks is not None, "the story has begun"
        while True:
            self._process = self._new_process()
            self._storm.has_struck_the_storage = False
            self.trace.process += 1
            self._pagers.starts(self.trace.process)
            self.trace.figures.processes += 1
            self._note("process", "starts")
            self.keep = await self._tasks.start(self._process.run)
            self._started.set()
            await self._process.ended.wait()
            self.keep = None
            self._check_end(self._process.error)
            self._note("process", "has ended")
            await anyio.sleep(self._between.choice([0, 0.5, 40]))
            self._disk.after_the_end_of_a_process(comes_back=self._between.random() < 0.5)

    def _check_end(self, error: BaseException | None) -> None:
        if error is None:
            return
        if isinstance(error, BaseExceptionGroup):
            for each in error.exceptions:
                self._check_end(each)
            return
        cause = error.__cause__
        if isinstance(error, Escalated) and cause is not None and self._is_expected(cause):
            return
        if self._is_expected(error) or isinstance(error, StorageUnavailable):
            return
        self.oracle.wrong(f"the runtime ended with {error!r} because of {error.__cause__!r}")

    def _new_process(self) -> Process:
        return Process(
            DiskOfAProcess(self._disk),
            self._catalog,
            lambda here: FrailPool(here, self._storm.worker),
            time=self.time,
            rng=self._rng,
            policy=self._policy,
            grants="explicit",
            maintainer=Mender(self._seed, self.oracle) if self.climate.repairs else None,
            sinks=self._pagers.sinks,
            server=None if self._place is None else ControlSocket(self._place),
            restart=RestartPolicy(),
            faults=self._reach,
            turns=self._turn,
            takes_s=self._takes_s,
            on_crash=self._crashed,
        )

    def _reach(self, point: Point, whose: str) -> None:
        # Drawn whether it is used or not, as everything is.
        hurries = self._haste.random() < 0.1
        rushed = self.people.in_a_hurry.get(point)
        if rushed is not None and hurries and self._storm.on and self._hurries and self.keep is not None:
            assert self._tasks is not None, "the story has begun"
            self._hurries -= 1
            self._tasks.start_soon(self.people.do, rushed, self.keep, random.Random(self._haste.getrandbits(64)))
        self._storm.reach(point, whose)

    def _turn(self) -> int:
        self._turns += 1
        if self._turns > _TURNS_MAX:
            self.oracle.wrong("works for ever")
            self._scope.cancel()
        return self._between.randint(1, self.climate.turns_max) if self.climate.turns_max > 1 else 1

    def _takes_s(self) -> float:
        if not self.climate.slow or self._slowness.random() >= self.climate.slow or not self._storm.on:
            return 0
        return self._slowness.choice([0.001, 0.5, 5, 30])

    def _crashed(self, name: str, error: Exception, _: int) -> None:
        # Who is cut off when the grace is over finds the services gone.
        is_over = self._process is None or self._process.is_leaving
        if not (is_over or self._is_expected(error)):
            self.oracle.wrong(f"the actor of {self.trace.short(name)} crashed with {error!r}")

    def _is_expected(self, error: BaseException) -> bool:
        """What was struck, or what follows when the storage was."""
        if isinstance(error, BaseExceptionGroup):
            return all(self._is_expected(each) for each in error.exceptions)
        return isinstance(error, Struck) or (isinstance(error, ActorError) and self._storm.has_struck_the_storage)

    def _die(self) -> None:
        assert self._process is not None, "who dies lives"
        self._process.die()

    @property
    def deaths(self) -> tuple[int, int]:
        """How often anything has died so far: actors, and processes."""
        return self.trace.figures.actor_crashes, self.trace.figures.processes

    @property
    def is_ending(self) -> bool:
        """Whether the process is about to end."""
        return self._process is None or self._process.is_leaving or self._storm.has_struck_the_storage

    async def restart(self) -> None:
        """End the process in order; the next one starts by itself."""
        if self._process is not None:
            await self._process.leave()

    # What others ask for.

    def _running(self) -> Keep:
        assert self.keep is not None, "nothing goes wrong any more, so there is a process"
        return self.keep

    def grants(self, flow: str) -> list[str | Grant]:
        """What a workflow may call, and what it has to ask for."""
        return asking(self._asks[flow] if self.climate.asks else ())

    def shell(self, keep: Keep) -> Keep:
        """The same, over the control socket."""
        assert self._place is not None, "this climate has a shell"
        return cast(Keep, Shell(keep, self._place))

    def rows(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        """Look into the database."""
        return self._disk.rows(sql, *params)

    def truth_of(self, mutation_id: str) -> Effect | None:
        """What really became of a call."""
        [(key,)] = self._disk.rows("SELECT idempotency_key FROM mutations WHERE id = ?", mutation_id)
        return self.world.truth(key)

    def some_call(self, rng: random.Random) -> tuple[str, int] | None:
        """A call that is not settled, whether or not anybody may say anything about it; and its version."""
        unsettled = "SELECT id, version FROM mutations WHERE status NOT IN ('applied', 'failed') ORDER BY id"
        return rng.choice(self._disk.rows(unsettled) or [None])

    def set_clock(self, ms: int) -> None:
        """Set it forward or back."""
        self.time.jump(ms)
        self.trace.figures.clock_jumps += 1

    def set_clock_now(self) -> None:
        """The worst moment for it: by the clock that is set forward now, what is on its way has had its time."""
        drawn, ms = self._clocks.random(), self._clocks.choice([TIMEOUT_MS + SETTLE_MS, 600_000, 7_200_000])
        if self.climate.clock_jumps and self._storm.on and drawn < 0.5:
            self._note("clock", f"is set forward by {ms} ms")
            self.set_clock(ms)

    async def apply(self, operation: Operation[T]) -> T:
        """What no method of `Keep` does, as a host that builds on the storage would."""
        assert self._process is not None, "the story has begun"
        return await self._process.runtime.host.storage.apply(operation)

    def new_id(self, kind: IdKind) -> str:
        """An id for it."""
        return self._ids.new(kind)

    # What is told.

    def look_at_the_clock(self) -> None:
        """Note the time of what is noted next."""
        self.trace.now_ms = self.time.now() - START

    def _note(self, what: str, how: str) -> None:
        self.look_at_the_clock()
        self.trace.note("", "story", what, how)

    def _committed(self) -> None:
        self.look_at_the_clock()
        self.oracle.committed()
        self.end_if_wrong()

    def _happens(self, effect: Effect) -> None:
        self.oracle.happens(effect)
        self.end_if_wrong()

    def end_if_wrong(self) -> None:
        """End the story once the oracle has found something."""
        if self.oracle.violation:
            self._scope.cancel()
