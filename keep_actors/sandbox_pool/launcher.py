"""Starts workers as single processes, on any system: nothing is forked, jailed or inherited but one socket.

On Windows the socket is handed over by `socket.share`. That path is written after its documentation and run only in
simulation.
"""

import contextlib
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from keep_actors.sandbox_pool.spawner import END_TIMEOUT_S, EXIT_REPORT_TIMEOUT_S, OnDone, child_environment
from keep_actors.sandbox_pool.worker import Worker
from keep_sandbox.compiled import machine_code
from keep_sandbox.spawned import SpawnedOptions
from keep_sandbox.worker import WorkerOptions


class Launcher:
    """Starts workers and kills them. They end by themselves when this process has ended."""

    def __init__(self, options: WorkerOptions, on_done: OnDone) -> None:
        self._options = options
        self._on_done = on_done
        self._last_serial = 0
        self._processes: dict[Worker, subprocess.Popen[bytes]] = {}
        self.is_up = True

    @property
    def pid(self) -> int | None:
        """None: there is no process between this one and its workers."""
        return None

    @property
    def workers(self) -> list[Worker]:
        """The workers that have not ended."""
        return list(self._processes)

    async def run(self) -> str:
        """Run until cancelled: a launcher does not end by itself."""
        await anyio.Event().wait()
        return "the launcher has ended"

    async def spawn(self) -> Worker | None:
        """Start a worker, which is not ready yet."""
        if not self.is_up:
            return None
        ours, theirs = socket.socketpair()
        self._last_serial += 1
        worker = Worker(self._last_serial, ours, self._options.limits, self._on_done)
        launch = partial(_launched, theirs, self._options)
        with theirs:
            # Shielded: otherwise a started process might be lost, and not waited for.
            with anyio.CancelScope(shield=True):
                process = await anyio.to_thread.run_sync(launch)
        worker.pid = process.pid
        self._processes[worker] = process
        self._kill_if_closed(worker)
        return worker

    def kill(self, worker: Worker) -> None:
        """Kill a worker."""
        worker.close()
        if worker in self._processes:
            self._processes[worker].kill()

    def _kill_if_closed(self, worker: Worker) -> None:
        if not self.is_up:
            self.kill(worker)

    async def wait_for_exit(self, worker: Worker) -> None:
        """Wait for the exit code of a worker that has closed its socket, for a moment."""
        process = self._processes.get(worker)
        if process is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_wait, process, EXIT_REPORT_TIMEOUT_S)
            self._processes.pop(worker, None)
            worker.returncode = process.returncode
        worker.exited.set()

    async def close(self) -> None:
        """Kill all workers and wait for them."""
        self.is_up = False
        processes = dict(self._processes)
        for worker, process in processes.items():
            self.kill(worker)
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_wait, process, END_TIMEOUT_S)
            worker.returncode = process.returncode
            worker.exited.set()
            self._processes.pop(worker, None)


def _launched(theirs: socket.socket, worker: WorkerOptions) -> "subprocess.Popen[bytes]":
    code = machine_code()
    command = [sys.executable, "-P", "-s", "-m", "keep_sandbox.spawned"]
    is_shared = hasattr(theirs, "share")
    kinds: dict[str, Any] = {"pass_fds": [theirs.fileno()], "start_new_session": True}
    if is_shared:
        kinds = {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
    process = subprocess.Popen(  # noqa: S603 - our own module, with our own arguments
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=child_environment(),
        cwd=Path(sys.executable).anchor,
        # Ctrl-C is for the host to handle.
        **kinds,
    )
    options = SpawnedOptions(
        descriptor=None if is_shared else theirs.fileno(),
        shared=getattr(theirs, "share")(process.pid) if is_shared else None,  # noqa: B009  # only Windows has it
        worker=worker,
        code_bytes=len(code),
    )
    assert process.stdin is not None, "it was asked for"
    # A process that ends before it has read them is reported as one that did not start.
    with contextlib.suppress(OSError), process.stdin:
        process.stdin.write(msgspec.json.encode(options) + b"\n" + code)
    return process


def _wait(process: "subprocess.Popen[bytes]", timeout_s: float) -> None:
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
