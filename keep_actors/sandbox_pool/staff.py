"""The processes of a pool: started in advance, listened to until they end, and replaced.

A zygote that dies is replaced too, until it dies too often; then the pool fails, and its opener with it.
"""

import logging
from collections import deque
from collections.abc import Callable

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from keep_actors.sandbox_pool.launcher import Launcher
from keep_actors.sandbox_pool.policy import PoolPolicy
from keep_actors.sandbox_pool.spawner import SandboxUnavailable, Spawner
from keep_actors.sandbox_pool.worker import Why, Worker
from keep_actors.sandbox_pool.zygote import Zygote
from keep_sandbox.jail import Mode
from keep_sandbox.limits import Limits
from keep_sandbox.outcomes import EXIT_NO_JAIL, EXIT_TRAP, EngineCrash, JailViolation, ProtocolViolation, Terminal
from keep_sandbox.worker import WorkerOptions

logger = logging.getLogger(__name__)

_FAILED_STARTS_MAX = 5
_START_TIMEOUT_S = 30
_SPAWN_AGAIN_S = 0.005


class Staff:
    """Workers without a group: spares, and those that are started on demand."""

    def __init__(
        self,
        mode: Mode,
        limits: Limits,
        policy: PoolPolicy,
        on_done: Callable[[Worker], None],
        on_end: Callable[[Worker], None],
    ) -> None:
        self._mode = mode
        self._limits = limits
        self._policy = policy
        self._on_done = on_done
        self._on_end = on_end
        self._tasks: TaskGroup | None = None
        self._spawner: Spawner | None = None
        self._spawner_up = anyio.Event()
        self._attended: set[Worker] = set()
        self._spares: deque[Worker] = deque()
        self._spare_wanted = anyio.Event()
        self._spare_came = anyio.Event()
        self._failed_starts = 0
        self.spawned = 0
        self.restarts = 0

    @property
    def spawner(self) -> Spawner | None:
        """The one that is up, if it is."""
        return self._spawner if self._spawner is not None and self._spawner.is_up else None

    @property
    def spares(self) -> int:
        """The number of workers that are ready and belong to no group."""
        return len(self._spares)

    async def start(self, tasks: TaskGroup) -> None:
        """Start the background tasks, and return when workers can be started."""
        self._tasks = tasks
        await self._start_spawner()
        tasks.start_soon(self._supervise)
        tasks.start_soon(self._keep_spares)

    async def wait_for_spares(self) -> None:
        """Wait until all spare workers are ready."""
        while len(self._spares) < self._policy.spares:
            await self._spare_came.wait()

    def spare(self) -> Worker | None:
        """A worker that is ready and has not run any script, if there is one."""
        while self._spares:
            worker = self._spares.popleft()
            self._spare_wanted.set()
            if worker.is_open:
                return worker
        return None

    async def fresh(self) -> Worker:
        """A worker that is started now."""
        while True:
            await self._spawner_up.wait()
            worker = await self._spawn()
            if worker is not None and worker.is_open:
                return worker
            await anyio.lowlevel.checkpoint()

    def kill(self, worker: Worker) -> None:
        """Kill a worker. Its calls are given their outcomes when it has ended."""
        if self._spawner is not None:
            self._spawner.kill(worker)
        worker.close()

    async def close(self) -> None:
        """End every process, and wait for it."""
        for worker in self._attended:
            worker.close()
        if self._spawner is not None:
            await self._spawner.close()

    async def _spawn(self) -> Worker | None:
        spawner = self._spawner
        assert spawner is not None, "an event says that it is there"
        worker = await spawner.spawn()
        if worker is None:
            # The zygote has died, and the supervisor has not noticed yet.
            await anyio.sleep(_SPAWN_AGAIN_S)
            return None
        self.spawned += 1
        assert self._tasks is not None, "set when it was started"
        self._attended.add(worker)
        self._tasks.start_soon(self._attend, spawner, worker)
        try:
            with anyio.move_on_after(_START_TIMEOUT_S):
                await worker.started.wait()
        finally:
            if not worker.is_open:
                spawner.kill(worker)
        if worker.is_open:
            self._failed_starts = 0
            return worker
        await self._note_failed_start(spawner, worker)
        return None

    async def _note_failed_start(self, spawner: Spawner, worker: Worker) -> None:
        """Raise `SandboxUnavailable` after several failed starts in a row. A single one may have been killed."""
        with anyio.move_on_after(1):
            await worker.exited.wait()
        if not spawner.is_up:
            return
        self._failed_starts += 1
        if self._failed_starts >= _FAILED_STARTS_MAX:
            code = worker.returncode
            why = "the jail cannot be entered on this machine" if code == EXIT_NO_JAIL else "see the log"
            raise SandboxUnavailable(f"workers do not start (exit code {code}): {why}")

    async def _attend(self, spawner: Spawner, worker: Worker) -> None:
        """Listen to a worker until it ends, and then give each of its calls one outcome."""
        why = await worker.run()
        computing, others = worker.computing, worker.calls
        if why is not Why.GONE:
            spawner.kill(worker)
        await spawner.wait_for_exit(worker)
        # One that has closed its socket may still be there.
        spawner.kill(worker)
        self._attended.discard(worker)
        if worker in self._spares:
            self._spares.remove(worker)
            self._spare_wanted.set()
        self._on_end(worker)
        outcome = worker.end_calls(why)
        if _is_alarm(outcome, was_computing=computing is not None):
            whose = computing.workflow_id if computing is not None else None
            lost = others - (1 if computing is not None else 0)
            logger.error(
                "sandbox: workflow %s: %s; its worker has ended, and with it %s other calls", whose, outcome, lost
            )

    async def _start_spawner(self) -> None:
        policy = self._policy
        options = WorkerOptions(
            limits=self._limits, invocations=policy.invocations_max, calls=policy.calls_per_worker_max
        )
        if self._mode == "jailed":
            self._spawner = await Zygote.start(options, self._on_done)
        else:
            self._spawner = Launcher(options, self._on_done)
        self._spawner_up.set()
        self._spare_wanted.set()

    async def _supervise(self) -> None:
        deaths: deque[float] = deque(maxlen=self._policy.restarts_max)
        while True:
            assert self._spawner is not None, "the first one is started before the supervisor"
            how = await self._spawner.run()
            self._spawner_up = anyio.Event()
            now = anyio.current_time()
            if len(deaths) == deaths.maxlen and now - deaths[0] < self._policy.restarts_within_ms / 1000:
                raise SandboxUnavailable(f"the zygote died {len(deaths) + 1} times in {now - deaths[0]:.1f} s")
            deaths.append(now)
            logger.warning("sandbox: %s; starting another", how)
            await self._start_another()
            self.restarts += 1

    async def _start_another(self) -> None:
        """Replace a zygote that died. The new one may be killed as it starts, so try several times."""
        while True:
            try:
                return await self._start_spawner()
            except SandboxUnavailable:
                self._failed_starts += 1
                if self._failed_starts >= _FAILED_STARTS_MAX:
                    raise

    async def _keep_spares(self) -> None:
        while True:
            await self._spare_wanted.wait()
            self._spare_wanted = anyio.Event()
            while len(self._spares) < self._policy.spares:
                worker = await self.fresh()
                if worker.is_open:
                    self._spares.append(worker)
                    self._spare_came.set()
                    self._spare_came = anyio.Event()


def _is_alarm(outcome: Terminal, *, was_computing: bool) -> bool:
    """Return True if a person should know. A worker without work that exits may just have lost its host's end."""
    if isinstance(outcome, EngineCrash):
        return was_computing or outcome.signal > 0 or outcome.signal == -EXIT_TRAP
    return isinstance(outcome, JailViolation | ProtocolViolation)
