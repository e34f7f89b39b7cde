"""The supervised pool: workers started in advance, shared by the calls of a group, and recycled.

A group is an owner, everyone, or one version of one workflow's script, as the policy says. It has as many workers as
there are cores; each has many calls that wait and one that computes. No process outlives the pool or the host.
"""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Literal, TypeAlias, TypeVar

import anyio
import anyio.to_thread

from keep_actors.sandbox_pool.call import Call, Inspecting, RunSync, ThreadCall, WorkerCall
from keep_actors.sandbox_pool.placement import Group, Shelf, choose, group_of
from keep_actors.sandbox_pool.policy import PoolPolicy, PoolStats
from keep_actors.sandbox_pool.spawner import SandboxUnavailable
from keep_actors.sandbox_pool.staff import Staff
from keep_actors.sandbox_pool.worker import Worker
from keep_sandbox.compiled import EngineNotCompiled, machine_code
from keep_sandbox.declaration import Code, Inspection, Problem
from keep_sandbox.inspect import believed, inspect
from keep_sandbox.invocation import Invocation, MethodKind
from keep_sandbox.jail import check_available
from keep_sandbox.json_text import check_decoder
from keep_sandbox.limits import DEFAULT_LIMITS, Limits
from keep_sandbox.outcomes import (
    CallLimit,
    CpuLimit,
    Deadlock,
    InvalidValue,
    IssuedMutation,
    MemoryLimit,
    Outcome,
    ProtocolViolation,
    Refused,
    ScriptError,
    SizeLimit,
    StackLimit,
    Terminal,
    Value,
    WorkerLost,
)
from keep_sandbox.wasm import check_installation

PoolMode: TypeAlias = Literal["jailed", "wasm", "thread"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

# A worker may be used again only after these ends: the engine is whole, and its memory is restored.
_HARMLESS = (
    Value,
    IssuedMutation,
    ScriptError,
    InvalidValue,
    Deadlock,
    Refused,
    CpuLimit,
    MemoryLimit,
    StackLimit,
    CallLimit,
    SizeLimit,
)


class _Team:
    """The workers of a group."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self.starting = 0
        self.waiting = 0
        self.changed = anyio.Event()

    def change(self) -> None:
        """Wake the calls that wait for a worker."""
        if self.waiting:
            self.changed.set()
            self.changed = anyio.Event()


class SandboxPool:
    """A pool of workers. Open one per host, with `open`."""

    def __init__(self, mode: PoolMode, limits: Limits, policy: PoolPolicy, run_sync: RunSync) -> None:
        self._mode = mode
        self._limits = limits
        self._policy = policy
        self._workers_max = policy.workers_max
        self._run_sync = run_sync
        self._slots = anyio.Semaphore(policy.concurrent_max, fast_acquire=True)
        self._staff = Staff("jailed" if mode == "jailed" else "wasm", limits, policy, self._done, self._ended)
        self._teams: dict[Group, _Team] = {}
        self._placed = 0

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

        `jailed` is the mode for scripts that are not trusted, wherever it is available. `wasm` has the same engine and
        limits in processes without a jail; `thread` runs scripts with `run_sync`: in a thread of this process, or
        directly in a simulation.
        """
        check_mode(mode)
        check_installation()
        check_decoder()
        try:
            # The first time it takes some seconds, and is better waited for here than by the first script.
            await anyio.to_thread.run_sync(machine_code)
        except EngineNotCompiled as error:
            raise SandboxUnavailable(str(error)) from None
        limits = limits or DEFAULT_LIMITS
        pool = cls(mode, limits, policy or PoolPolicy(), run_sync or _in_a_thread)
        if mode == "thread":
            yield pool
            return
        check_available(mode)
        failure: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                await pool._staff.start(tasks)
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
            await pool._staff.close()
        if failure is not None:
            raise failure

    @property
    def stats(self) -> PoolStats:
        """The current numbers."""
        spawner = self._staff.spawner
        workers = [each for team in self._teams.values() for each in team.workers]
        return PoolStats(
            spares=self._staff.spares,
            kept=len(self._idle()),
            busy=sum(1 for each in workers if each.calls > 0),
            calls=sum(each.calls for each in workers),
            spawned=self._staff.spawned,
            zygote_restarts=self._staff.restarts,
            zygote_pid=spawner.pid if spawner is not None else None,
            worker_pids=[each.pid for each in spawner.workers if each.pid is not None] if spawner is not None else [],
        )

    async def wait_for_spares(self) -> None:
        """Wait until all spare workers are ready: at start, or before many invocations."""
        if self._mode != "thread":
            await self._staff.wait_for_spares()

    @asynccontextmanager
    async def invoke(
        self, workflow_id: str, invocation: Invocation, limits: Limits | None = None, *, owner: str = ""
    ) -> AsyncIterator[Call]:
        """Run one handler for one workflow. Leaving the block before the end drops the script.

        Its worker may also run other calls: those of the same `owner`, of everyone, or only those of the same script of
        the same workflow, as the policy's `sharing` says. `limits` are for this invocation only; those of the process
        and the length of a frame stay those of the pool.
        """
        async with self._slots:
            if self._mode == "thread":
                thread_call = ThreadCall(invocation, limits or self._limits, self._run_sync)
                try:
                    yield thread_call
                finally:
                    thread_call.close()
                return
            group = group_of(self._policy.sharing, owner, workflow_id, invocation.source)
            call = WorkerCall(
                invocation,
                limits or self._limits,
                workflow_id=workflow_id,
                place=partial(self._place, group),
                own_limits=limits is not None and limits != self._limits,
            )
            try:
                await self._place(group, call)
                yield call
            finally:
                self._leave(call)

    async def inspect(self, source: str, methods: Mapping[str, MethodKind] | None = None) -> Inspection:
        """Read a script's declaration and find its problems. Its top level runs in a worker, but no handler.

        `methods` says which connector methods (`gmail.send`) are mutations; without it their verbs decide. The worker
        is a new one and serves nothing else, however workers are shared: the parser that reads the script is native
        code, and not behind the wall that the engine is behind.
        """
        if self._mode == "thread":
            return await self._run_sync(partial(inspect, source, methods, self._limits))
        async with self._slots:
            work = Inspecting(source, None if methods is None else {**methods})
            call = WorkerCall(work, self._limits, workflow_id=None, place=self._place_alone)
            try:
                await self._place_alone(call)
                outcome = await call.next()
            finally:
                self._kill_worker_of(call)
        return _inspection(outcome)

    def drop_workers(self, workflow_id: str) -> None:
        """Kill the workers of a workflow when another version becomes active; busy ones after their invocation.

        With `sharing="none"` a worker that the last version took over must not get the permissions of the next. With
        any other sharing this does nothing: a worker that was taken over reaches all calls of its group anyway, and
        has as much to gain from the versions that are active elsewhere.
        """
        if self._policy.sharing != "none":
            return
        for group in [each for each in self._teams if each[0] == workflow_id]:
            for worker in list(self._teams[group].workers):
                self._retire(worker)

    # The worker of a call.

    async def _place(self, group: Group, call: WorkerCall, fresh: bool = False) -> None:
        """Put a call on a worker of its group. `fresh`: start one, since the others may just have been killed too."""
        while True:
            worker = await self._worker_for(group, call.source, fresh)
            if worker.is_open:
                self._placed += 1
                call.begin(worker, self._placed)
                if worker.served >= self._policy.invocations_max:
                    self._retire(worker)
                await worker.room()
                return

    async def _place_alone(self, call: WorkerCall, fresh: bool = False) -> None:
        worker = None if fresh else self._staff.spare()
        call.begin(worker or await self._staff.fresh(), 0)

    async def _worker_for(self, group: Group, source: str, fresh: bool) -> Worker:
        team = self._teams.get(group)
        if team is None:
            team = self._teams[group] = _Team()
        team.waiting += 1
        try:
            while not fresh:
                able = [
                    each for each in team.workers if each.is_open and each.calls < self._policy.calls_per_worker_max
                ]
                has_room = len([each for each in team.workers if each.is_open]) + team.starting < self._workers_max
                # A worker that is there is better than one that has to be started first, unless that is the policy.
                can_start = has_room and (self._staff.spares > 0 or self._policy.spares == 0 or not able)
                at = choose([each.candidate(source) for each in able], can_start=can_start)
                if at is not None:
                    return able[at]
                if can_start:
                    break
                await team.changed.wait()
            return await self._hire(group, team, fresh)
        finally:
            team.waiting -= 1
            self._forget_team(group)

    async def _hire(self, group: Group, team: _Team, fresh: bool) -> Worker:
        team.starting += 1
        try:
            worker = None if fresh else self._staff.spare()
            if worker is None:
                worker = await self._staff.fresh()
            worker.group = group
            worker.shelf = Shelf(self._policy.scripts_bytes_max)
            worker.idle_since = anyio.current_time()
            team.workers.append(worker)
            return worker
        finally:
            team.starting -= 1
            team.change()

    def _leave(self, call: WorkerCall) -> None:
        """The driver has no more use for a call."""
        worker = call.worker
        if worker is None:
            return
        if call.terminal is None and not call.drop():
            # It may compute until its limit: nothing is put behind it, and nothing that is alone is waited for.
            self._retire(worker)
            if worker.calls == 1:
                self._staff.kill(worker)
        elif not _is_harmless(call.terminal):
            self._retire(worker)

    def _kill_worker_of(self, call: WorkerCall) -> None:
        if call.worker is not None:
            self._staff.kill(call.worker)

    # The workers of a group.

    def _retire(self, worker: Worker) -> None:
        """Give a worker no more calls, and end it when it has none."""
        worker.is_retired = True
        if worker.calls == 0:
            self._staff.kill(worker)
        self._change(worker)

    def _done(self, worker: Worker) -> None:
        """A call of a worker is done, perhaps its last."""
        if worker.calls == 0:
            worker.idle_since = anyio.current_time()
            if worker.is_retired:
                self._staff.kill(worker)
            elif len(self._idle()) > self._policy.kept_max:
                self._drop_longest_idle()
        self._change(worker)

    def _ended(self, worker: Worker) -> None:
        """The process of a worker has ended."""
        team = self._team_of(worker)
        if team is not None and worker in team.workers:
            team.workers.remove(worker)
            team.change()
            assert worker.group is not None, "it has a team"
            self._forget_team(worker.group)

    def _change(self, worker: Worker) -> None:
        team = self._team_of(worker)
        if team is not None:
            team.change()

    def _team_of(self, worker: Worker) -> _Team | None:
        return self._teams.get(worker.group) if worker.group is not None else None

    def _forget_team(self, group: Group) -> None:
        team = self._teams.get(group)
        if team is not None and not team.workers and not team.starting and not team.waiting:
            del self._teams[group]

    def _idle(self) -> list[Worker]:
        workers = (each for team in self._teams.values() for each in team.workers)
        return [each for each in workers if each.is_open and each.calls == 0]

    def _drop_longest_idle(self) -> None:
        self._retire(min(self._idle(), key=lambda each: each.idle_since))

    async def _sweep(self) -> None:
        while True:
            await anyio.sleep(self._policy.idle_ms / 2000)
            before = anyio.current_time() - self._policy.idle_ms / 1000
            for worker in self._idle():
                if worker.idle_since < before:
                    self._retire(worker)


def check_mode(mode: str) -> None:
    """Raise `ValueError` for a mode that there is not (any more)."""
    if mode == "weak":
        raise ValueError('the sandbox mode "weak" is called "wasm" now: the engine in WebAssembly is its wall')
    if mode not in ("jailed", "wasm", "thread"):
        raise ValueError(f'the sandbox mode is "jailed", "wasm" or "thread", not {mode!r}')


def _is_harmless(terminal: Terminal | None) -> bool:
    """Return True if a worker may go on after this; None: its script was dropped while it waited."""
    if isinstance(terminal, CpuLimit) and terminal.hard:
        return False
    return terminal is None or isinstance(terminal, _HARMLESS)


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
