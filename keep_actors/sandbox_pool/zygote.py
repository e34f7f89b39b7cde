"""The host's side of the zygote, which forks workers and jails them: start, spawn, kill, and get their exit codes."""

import os
import socket
import subprocess
import sys
from contextlib import suppress
from functools import partial
from typing import assert_never

import anyio
import anyio.to_thread
import msgspec

from keep_actors.sandbox_pool.link import Link
from keep_actors.sandbox_pool.spawner import (
    END_TIMEOUT_S,
    EXIT_REPORT_TIMEOUT_S,
    OnDone,
    SandboxUnavailable,
    child_environment,
)
from keep_actors.sandbox_pool.worker import Worker
from keep_sandbox.compiled import machine_code
from keep_sandbox.protocol import (
    Exited,
    FrameReader,
    FromZygote,
    Kill,
    Spawn,
    Spawned,
    StartedFrame,
    encode,
    from_zygote,
)
from keep_sandbox.worker import WorkerOptions
from keep_sandbox.zygote import ZygoteOptions

_START_TIMEOUT_S = 20
_CONTROL_FRAME_BYTES_MAX = 4096


class Zygote:
    """A running zygote. `run` must be running, since it receives all reports."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", link: Link[FromZygote], options: WorkerOptions, on_done: OnDone
    ) -> None:
        self._process = process
        self._link = link
        self._options = options
        self._on_done = on_done
        self._workers: dict[int, Worker] = {}
        self._last_serial = 0
        self.is_up = True

    @property
    def pid(self) -> int | None:
        """The process id, while it is up."""
        return self._process.pid if self.is_up else None

    @property
    def workers(self) -> list[Worker]:
        """The workers that have not ended."""
        return list(self._workers.values())

    @classmethod
    async def start(cls, options: WorkerOptions, on_done: OnDone) -> "Zygote":
        """Start a process that shares nothing with this one but a socket."""
        ours, theirs = socket.socketpair()
        link: Link[FromZygote] = Link(ours, FrameReader(from_zygote, _CONTROL_FRAME_BYTES_MAX))
        try:
            # Shielded: otherwise a started process might be lost, and not waited for.
            with anyio.CancelScope(shield=True):
                process = await anyio.to_thread.run_sync(_popen, theirs, options)
        except BaseException:
            link.close()
            raise
        finally:
            theirs.close()
        zygote = cls(process, link, options, on_done)
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

    async def run(self) -> str:
        """Receive the reports of the zygote until it ends, and return how. All its workers end with it."""
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
        await self.close()
        return f"the zygote has ended (exit code {self._process.returncode})"

    async def spawn(self) -> Worker | None:
        """Fork a worker, which is not ready yet. Returns None if the zygote has ended."""
        ours, theirs = socket.socketpair()
        self._last_serial += 1
        worker = Worker(self._last_serial, ours, self._options.limits, self._on_done)
        with theirs:
            if not self.is_up or not self._link.send_now(encode(Spawn(worker.serial)), [theirs.fileno()]):
                worker.close()
                return None
        self._workers[worker.serial] = worker
        return worker

    def kill(self, worker: Worker) -> None:
        """Kill a worker. Its end is reported as usual."""
        worker.close()
        # Not by its number alone: the zygote before this one began to count at the same.
        if self._workers.get(worker.serial) is worker and not self._link.send_now(encode(Kill(worker.serial)), []):
            # A zygote that takes no commands is useless. Its workers end with it.
            self._process.kill()

    async def wait_for_exit(self, worker: Worker) -> None:
        """Wait for the exit code of a worker that has closed its socket, for a moment."""
        with anyio.move_on_after(EXIT_REPORT_TIMEOUT_S):
            await worker.exited.wait()

    async def close(self) -> None:
        """End the zygote and wait for it. Its workers end with it."""
        self.is_up = False
        for worker in self.workers:
            worker.close()
        self._link.close()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(partial(_wait, self._process))

    def _ended(self, serial: int, returncode: int | None) -> None:
        worker = self._workers.pop(serial, None)
        if worker is not None:
            worker.returncode = returncode
            worker.exited.set()


def _popen(theirs: socket.socket, workers: WorkerOptions) -> "subprocess.Popen[bytes]":
    code = machine_code()
    options = ZygoteOptions(control=theirs.fileno(), host=os.getpid(), workers=workers)
    command = [sys.executable, "-P", "-s", "-m", "keep_sandbox.zygote", msgspec.json.encode(options).decode()]
    process = subprocess.Popen(  # noqa: S603 - our own module, with our own arguments
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
        env=child_environment(),
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
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
