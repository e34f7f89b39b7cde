"""The host's side of the zygote and of each worker: start, spawn, kill, and get their exit codes."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, assert_never

import anyio
import anyio.to_thread
import msgspec

from keep_actors.sandbox_pool.link import Link
from keep_sandbox.compiled import machine_code
from keep_sandbox.jail import Mode
from keep_sandbox.limits import Limits
from keep_sandbox.protocol import (
    BadFrame,
    Exited,
    FrameReader,
    FromWorker,
    FromZygote,
    Idle,
    Kill,
    Ready,
    Spawn,
    Spawned,
    StartedFrame,
    encode,
    from_worker,
    from_zygote,
)
from keep_sandbox.zygote import ZygoteOptions

_START_TIMEOUT_S = 20
_END_TIMEOUT_S = 5
_CONTROL_FRAME_BYTES_MAX = 4096


class SandboxUnavailable(Exception):
    """Workers cannot be started: the zygote does not start, or dies again and again."""


class Owner(NamedTuple):
    """The one workflow and the one script that a worker runs."""

    workflow_id: str
    source: str


class Worker:
    """One worker process, as the host sees it."""

    def __init__(self, serial: int, sock: socket.socket, limits: Limits) -> None:
        self.serial = serial
        self.link: Link[FromWorker] = Link(sock, FrameReader(from_worker, limits.frame_bytes))
        self.pid: int | None = None
        self.exited = anyio.Event()
        self.returncode: int | None = None
        self.calls = 0
        self.owner: Owner | None = None
        self.idle_since = 0.0
        self.is_settling = False
        self.is_outdated = False
        """True once another version of the script is active: do not use this worker again."""

    async def is_ready(self) -> bool:
        """Wait for its first frame. Returns False if that is not `Ready`."""
        try:
            return isinstance(await self.link.receive(), Ready)
        except BadFrame:
            return False

    async def has_settled(self) -> bool:
        """Wait until the context of the last call is freed. Returns False if it sends anything else."""
        if not self.is_settling:
            return not self.exited.is_set()
        try:
            frame = await self.link.receive()
        except BadFrame:
            return False
        self.is_settling = False
        return frame == Idle(self.calls) and self.link.is_quiet


class Zygote:
    """A running zygote. `run` must be running, since it receives all reports."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        link: Link[FromZygote],
        limits: Limits,
        on_exit: Callable[[Worker], None],
    ) -> None:
        self.process = process
        self._link = link
        self._limits = limits
        self._on_exit = on_exit
        self._workers: dict[int, Worker] = {}
        self._last_serial = 0
        self.is_up = True

    @property
    def workers(self) -> list[Worker]:
        """The workers that have not ended."""
        return list(self._workers.values())

    @classmethod
    async def start(cls, mode: Mode, limits: Limits, invocations: int, on_exit: Callable[[Worker], None]) -> "Zygote":
        """Start a process that shares nothing with this one but a socket."""
        ours, theirs = socket.socketpair()
        link: Link[FromZygote] = Link(ours, FrameReader(from_zygote, _CONTROL_FRAME_BYTES_MAX))
        try:
            # Shielded: otherwise a started process might be lost, and not waited for.
            with anyio.CancelScope(shield=True):
                process = await anyio.to_thread.run_sync(_popen, theirs, mode, limits, invocations)
        except BaseException:
            link.close()
            raise
        finally:
            theirs.close()
        zygote = cls(process, link, limits, on_exit)
        frame: FromZygote | None = None
        try:
            with anyio.move_on_after(_START_TIMEOUT_S):
                frame = await link.receive()
        finally:
            if not isinstance(frame, StartedFrame):
                await zygote.close()
        if not isinstance(frame, StartedFrame):
            raise SandboxUnavailable(f"the zygote did not start (exit code {process.returncode}); see its stderr")
        return zygote

    async def run(self) -> None:
        """Receive the reports of the zygote until it ends. All its workers end with it."""
        try:
            while (frame := await self._link.receive()) is not None:
                match frame:
                    case StartedFrame():
                        pass
                    case Spawned():
                        if frame.serial in self._workers:
                            self._workers[frame.serial].pid = frame.pid
                    case Exited():
                        self._ended(frame.serial, frame.returncode)
                    case _:
                        assert_never(frame)
        finally:
            self.is_up = False
            for serial in list(self._workers):
                self._ended(serial, None)

    def spawn(self) -> Worker | None:
        """Fork a worker, which is not ready yet. Returns None if the zygote has ended."""
        ours, theirs = socket.socketpair()
        self._last_serial += 1
        worker = Worker(self._last_serial, ours, self._limits)
        with theirs:
            if not self.is_up or not self._link.send_now(encode(Spawn(worker.serial)), [theirs.fileno()]):
                worker.link.close()
                return None
        self._workers[worker.serial] = worker
        return worker

    def kill(self, worker: Worker) -> None:
        """Kill a worker. Its end is reported as usual."""
        worker.link.close()
        if worker.serial in self._workers and not self._link.send_now(encode(Kill(worker.serial)), []):
            # A zygote that takes no commands is useless. Its workers end with it.
            self.process.kill()

    async def close(self) -> None:
        """End the zygote and wait for it. Its workers end with it."""
        self.is_up = False
        for worker in self.workers:
            worker.link.close()
        self._link.close()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(partial(_wait, self.process))

    def _ended(self, serial: int, returncode: int | None) -> None:
        worker = self._workers.pop(serial, None)
        if worker is not None:
            worker.returncode = returncode
            worker.exited.set()
            self._on_exit(worker)


def _popen(theirs: socket.socket, mode: Mode, limits: Limits, invocations: int) -> "subprocess.Popen[bytes]":
    code = machine_code()
    options = ZygoteOptions(
        control=theirs.fileno(), host=os.getpid(), mode=mode, limits=limits, invocations=invocations
    )
    environment = {
        # Import from the same places as this process.
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TZ": "UTC",
        # A second arena would need a system call that the jail forbids.
        "MALLOC_ARENA_MAX": "1",
        # Needed to start a Python that is not installed in the usual place.
        **{name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PYTHONHOME") if name in os.environ},
    }
    command = [sys.executable, "-P", "-s", "-m", "keep_sandbox.zygote", msgspec.json.encode(options).decode()]
    process = subprocess.Popen(  # noqa: S603 - our own module, with our own arguments
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
        env=environment,
        cwd="/",
        # Not in our terminal session: Ctrl-C is for the host to handle.
        start_new_session=True,
    )
    assert process.stdin is not None, "it was asked for"
    with suppress(BrokenPipeError), process.stdin as pipe:
        pipe.write(code)
    return process


def _wait(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
