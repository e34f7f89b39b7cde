"""The supervised pool: workers started in advance, each for one script of one workflow, and recycled.

A worker that dies is replaced, and so is the zygote, until it dies too often; then the pool fails, and its opener with
it. No process outlives the pool or the host.
"""

import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Literal, TypeAlias, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from keep_actors.sandbox_pool.call import Call, JailedCall, RunSync, ThreadCall
from keep_actors.sandbox_pool.policy import PoolPolicy, PoolStats
from keep_actors.sandbox_pool.zygote import Owner, SandboxUnavailable, Worker, Zygote
from keep_sandbox.declaration import Code, Inspection, Problem
from keep_sandbox.inspect import believed, inspect
from keep_sandbox.invocation import Invocation, MethodKind
from keep_sandbox.jail import check_available
from keep_sandbox.json_text import check_decoder
from keep_sandbox.limits import DEFAULT_LIMITS, TRUSTED_LIMITS, Limits
from keep_sandbox.outcomes import (
    Deadlock,
    EngineCrash,
    InvalidValue,
    IssuedMutation,
    JailViolation,
    Outcome,
    ProtocolViolation,
    Refused,
    ScriptError,
    Value,
    WorkerLost,
)
from keep_sandbox.wasm import check_installation
from keep_sandbox.worker import EXIT_NO_JAIL

PoolMode: TypeAlias = Literal["jailed", "weak", "thread"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

# A worker may be used again only after these ends.
_HARMLESS = (Value, IssuedMutation, ScriptError, InvalidValue, Deadlock, Refused)
_FAILED_STARTS_MAX = 5
_ALERTS = (EngineCrash, JailViolation, ProtocolViolation)


class SandboxPool:
    """A pool of workers. Open one per host, with `open`."""

    def __init__(self, mode: PoolMode, limits: Limits, policy: PoolPolicy, run_sync: RunSync) -> None:
        self._mode = mode
        self._limits = limits
        self._policy = policy
        self._run_sync = run_sync
        self._slots = anyio.Semaphore(policy.concurrent_max)
        self._zygote: Zygote | None = None
        self._zygote_up = anyio.Event()
        self._spares: deque[Worker] = deque()
        self._kept: dict[Owner, list[Worker]] = {}
        self._busy: set[Worker] = set()
        self._spare_wanted = anyio.Event()
        self._spare_came = anyio.Event()
        self._spawned = 0
        self._failed_starts = 0
        self._restarts = 0

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        *,
        mode: PoolMode = "jailed",
        limits: Limits | None = None,
        policy: PoolPolicy | None = None,
        run_sync: RunSync | None = None,
    ) -> "AsyncIterator[SandboxPool]":
        """Open a pool for the duration of the block.

        `jailed` is the only mode for scripts that are not trusted. `weak` has processes but no jail; `thread` has
        neither, and runs scripts with `run_sync`: in a thread, or directly in a simulation.
        """
        check_installation()
        check_decoder()
        limits = limits or (TRUSTED_LIMITS if mode == "thread" else DEFAULT_LIMITS)
        pool = cls(mode, limits, policy or PoolPolicy(), run_sync or _in_a_thread)
        if mode == "thread":
            if time.timezone != 0 or time.daylight:
                logger.warning("sandbox: scripts in threads see this process's time zone; workers see UTC")
            yield pool
            return
        check_available(mode)
        await pool._start_zygote()
        failure: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pool._supervise)
                tasks.start_soon(pool._keep_spares)
                tasks.start_soon(pool._sweep)
                # If no worker starts on this machine, fail here and not at the first invocation.
                await pool.wait_for_spares()
                try:
                    yield pool
                except Exception as error:
                    # The caller's own error: raised as it is, not in a group of ours.
                    failure = error
                tasks.cancel_scope.cancel()
        except ExceptionGroup as group:
            if len(group.exceptions) == 1 and isinstance(group.exceptions[0], SandboxUnavailable):
                raise group.exceptions[0] from None
            raise
        finally:
            await pool._close()
        if failure is not None:
            raise failure

    @property
    def stats(self) -> PoolStats:
        """The current numbers."""
        zygote = self._zygote if self._zygote is not None and self._zygote.is_up else None
        return PoolStats(
            spares=len(self._spares),
            kept=sum(map(len, self._kept.values())),
            busy=len(self._busy),
            spawned=self._spawned,
            zygote_restarts=self._restarts,
            zygote_pid=zygote.process.pid if zygote is not None else None,
            worker_pids=[each.pid for each in zygote.workers if each.pid is not None] if zygote is not None else [],
        )

    async def wait_for_spares(self) -> None:
        """Wait until all spare workers are ready: at start, or before many invocations."""
        while self._mode != "thread" and len(self._spares) < self._policy.spares:
            await self._spare_came.wait()

    @asynccontextmanager
    async def invoke(
        self, workflow_id: str, invocation: Invocation, limits: Limits | None = None
    ) -> AsyncIterator[Call]:
        """Run one handler for one workflow. Leaving the block before the end drops the script.

        A worker that is used again has run only this script, for this workflow.
        `limits` are for this invocation only; address space and frame length stay those of the pool.
        """
        limits = limits or self._limits
        async with self._slots:
            if self._mode == "thread":
                thread_call = ThreadCall(invocation, limits, self._run_sync)
                try:
                    yield thread_call
                finally:
                    thread_call.close()
                return
            zygote, worker = await self._take(Owner(workflow_id, invocation.source))
            call = JailedCall(zygote, worker, invocation, limits, self._replace)
            try:
                await call.start()
                yield call
            finally:
                self._give_back(call)

    async def inspect(self, source: str, methods: Mapping[str, MethodKind] | None = None) -> Inspection:
        """Read a script's declaration and find its problems. Its top level runs in a worker, but no handler.

        `methods` says which connector methods (`gmail.send`) are mutations; without it their verbs decide.
        """
        if self._mode == "thread":
            return await self._run_sync(partial(inspect, source, methods, self._limits))
        async with self._slots:
            zygote, worker = await self._fresh(None)
            asked: tuple[str, dict[str, str] | None] = (source, None if methods is None else {**methods})
            call = JailedCall(zygote, worker, asked, self._limits, self._replace)
            try:
                await call.start()
                outcome = await call.next()
            finally:
                # Not kept: a worker belongs to one workflow, and this one has none.
                self._drop(call.zygote, call.worker)
        return _inspection(outcome)

    def drop_workers(self, workflow_id: str) -> None:
        """Kill the workers of a workflow when another version becomes active; busy ones after their invocation.

        A worker that the last version took over must not get the permissions of the next.
        """
        for worker in self._busy:
            if worker.owner is not None and worker.owner.workflow_id == workflow_id:
                worker.is_outdated = True
        for owner in [each for each in self._kept if each.workflow_id == workflow_id]:
            for worker in self._kept.pop(owner):
                assert self._zygote is not None, "workers are kept only while there is a zygote"
                self._zygote.kill(worker)

    # Taking and returning workers.

    async def _take(self, owner: Owner) -> tuple[Zygote, Worker]:
        """A worker for this script: one that has run it, else a spare, else a new one."""
        kept = self._kept.get(owner, [])
        while kept:
            zygote, worker = self._zygote, kept.pop()
            if not kept:
                self._kept.pop(owner, None)
            assert zygote is not None, "workers are kept only while there is a zygote"
            self._busy.add(worker)
            is_good = False
            try:
                with anyio.move_on_after(self._policy.settle_ms / 1000):
                    is_good = await worker.has_settled() and not worker.is_outdated
            finally:
                if not is_good:
                    self._drop(zygote, worker)
            if is_good:
                return zygote, worker
        return await self._fresh(owner)

    async def _fresh(self, owner: Owner | None, *, use_spare: bool = True) -> tuple[Zygote, Worker]:
        """A worker that has not run any script."""
        while True:
            await self._zygote_up.wait()
            zygote = self._zygote
            assert zygote is not None, "an event says that the zygote is there"
            worker = self._spares.popleft() if use_spare and self._spares else await self._spawn(zygote)
            self._spare_wanted.set()
            if worker is not None and not worker.exited.is_set():
                worker.owner = owner
                self._busy.add(worker)
                return zygote, worker
            await anyio.lowlevel.checkpoint()

    async def _replace(self, call: JailedCall) -> tuple[Zygote, Worker]:
        """Another worker for a call whose own was lost before it did anything.

        Not a spare: what killed the one may have killed the spares too, which takes a moment to be noticed.
        """
        self._drop(call.zygote, call.worker)
        return await self._fresh(call.worker.owner, use_spare=False)

    async def _spawn(self, zygote: Zygote) -> Worker | None:
        worker = zygote.spawn()
        if worker is None:
            # The zygote has died, and the supervisor has not noticed yet.
            await anyio.sleep(0.005)
            return None
        self._spawned += 1
        ready = False
        try:
            with anyio.move_on_after(self._limits.wall_ms / 1000):
                ready = await worker.is_ready()
        finally:
            if not ready:
                zygote.kill(worker)
        if ready:
            self._failed_starts = 0
            return worker
        await self._note_failed_start(zygote, worker)
        return None

    async def _note_failed_start(self, zygote: Zygote, worker: Worker) -> None:
        """Raise `SandboxUnavailable` after several failed starts in a row. A single one may have been killed."""
        with anyio.move_on_after(1):
            await worker.exited.wait()
        if not zygote.is_up:
            return
        self._failed_starts += 1
        if self._failed_starts >= _FAILED_STARTS_MAX:
            code = worker.returncode
            why = "the jail cannot be entered on this machine" if code == EXIT_NO_JAIL else "see the log"
            raise SandboxUnavailable(f"workers do not start (exit code {code}): {why}")

    def _give_back(self, call: JailedCall) -> None:
        worker, owner = call.worker, call.worker.owner
        self._busy.discard(worker)
        if isinstance(call.terminal, _ALERTS):
            logger.error("sandbox: workflow %s: %s", owner.workflow_id if owner else None, call.terminal)
        is_good = (
            isinstance(call.terminal, _HARMLESS)
            and worker.calls < self._policy.invocations_max
            and not worker.exited.is_set()
            and call.zygote is self._zygote
            and not worker.is_outdated
        )
        if not is_good or owner is None:
            self._drop(call.zygote, worker)
            return
        worker.is_settling = True
        worker.idle_since = anyio.current_time()
        self._kept.setdefault(owner, []).append(worker)
        if sum(map(len, self._kept.values())) > self._policy.kept_max:
            self._drop_longest_idle()

    def _drop(self, zygote: Zygote, worker: Worker) -> None:
        self._busy.discard(worker)
        zygote.kill(worker)

    def _drop_longest_idle(self) -> None:
        assert self._zygote is not None, "workers are kept only while there is a zygote"
        oldest = min((worker for kept in self._kept.values() for worker in kept), key=lambda each: each.idle_since)
        self._forget(oldest)
        self._zygote.kill(oldest)

    def _forget(self, worker: Worker) -> None:
        """Remove a worker from the spares and the kept ones."""
        if worker in self._spares:
            self._spares.remove(worker)
            self._spare_wanted.set()
        kept = self._kept.get(worker.owner, []) if worker.owner is not None else []
        if worker.owner is not None and worker in kept:
            kept.remove(worker)
            if not kept:
                del self._kept[worker.owner]

    def _exited(self, worker: Worker) -> None:
        self._forget(worker)
        if worker not in self._busy:
            worker.link.close()

    # Background tasks.

    async def _start_zygote(self) -> None:
        self._zygote = await Zygote.start(
            "weak" if self._mode == "weak" else "jailed", self._limits, self._policy.invocations_max, self._exited
        )
        self._zygote_up.set()
        self._spare_wanted.set()

    async def _supervise(self) -> None:
        deaths: deque[float] = deque(maxlen=self._policy.restarts_max)
        while True:
            assert self._zygote is not None, "the first one is started before the supervisor"
            await self._zygote.run()
            self._zygote_up = anyio.Event()
            await self._zygote.close()
            now = anyio.current_time()
            if len(deaths) == deaths.maxlen and now - deaths[0] < self._policy.restarts_within_ms / 1000:
                raise SandboxUnavailable(f"the zygote died {len(deaths) + 1} times in {now - deaths[0]:.1f} s")
            deaths.append(now)
            logger.warning(
                "sandbox: the zygote has ended (exit code %s); starting another", self._zygote.process.returncode
            )
            await self._start_another()
            self._restarts += 1

    async def _start_another(self) -> None:
        """Replace a zygote that died. The new one may be killed as it starts, so try several times."""
        while True:
            try:
                return await self._start_zygote()
            except SandboxUnavailable:
                self._failed_starts += 1
                if self._failed_starts >= _FAILED_STARTS_MAX:
                    raise

    async def _keep_spares(self) -> None:
        while True:
            await self._spare_wanted.wait()
            self._spare_wanted = anyio.Event()
            while len(self._spares) < self._policy.spares:
                await self._zygote_up.wait()
                zygote = self._zygote
                assert zygote is not None, "an event says that the zygote is there"
                worker = await self._spawn(zygote)
                if worker is not None and not worker.exited.is_set():
                    self._spares.append(worker)
                    self._spare_came.set()
                    self._spare_came = anyio.Event()

    async def _sweep(self) -> None:
        while True:
            await anyio.sleep(self._policy.idle_ms / 2000)
            before = anyio.current_time() - self._policy.idle_ms / 1000
            for kept in list(self._kept.values()):
                for worker in [each for each in kept if each.idle_since < before]:
                    assert self._zygote is not None, "workers are kept only while there is a zygote"
                    self._forget(worker)
                    self._zygote.kill(worker)

    async def _close(self) -> None:
        if self._zygote is not None:
            await self._zygote.close()


async def _in_a_thread(function: Callable[[], T], /) -> T:
    return await anyio.to_thread.run_sync(function)


def _inspection(outcome: Outcome) -> Inspection:
    """The inspection that a worker sent, if it is plausible; else one with the problem."""
    if isinstance(outcome, Value):
        if (inspection := believed(outcome.value)) is not None:
            return inspection
        outcome = ProtocolViolation(message="an implausible inspection")
        logger.error("sandbox: while a script was inspected: %s", outcome)
    message = f"the inspection ended with {type(outcome).__name__}"
    hint = "at the top level a script only declares: move work into handlers"
    if isinstance(outcome, WorkerLost):
        message, hint = "its worker process was killed from outside", "this is not the script's fault: try again"
    problem = Problem(code=Code.LOAD_ERROR, message=message, hint=hint)
    return Inspection(declaration=None, problems=[problem], problem_count=1)
