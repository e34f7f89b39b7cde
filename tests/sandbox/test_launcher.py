"""Workers without a zygote and without a jail: what they need of the system, and that they end with their host."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import anyio
import pytest

from keep_actors.sandbox_pool import PoolPolicy, SandboxPool
from keep_sandbox import Request, Value, WorkerLost
from tests.sandbox.test_lifecycle import Watched
from tests.sandbox.world import drive, prepare, run

pytestmark = pytest.mark.anyio

HEALTHY = prepare("return (await ctx.gmail.search({})).length")
FINE = Value(value="2")


async def test_a_worker_that_is_killed_is_replaced_and_closing_the_pool_ends_all() -> None:
    async with SandboxPool.open(mode="wasm") as pool:
        async with pool.invoke("w", HEALTHY) as call:
            assert isinstance(await call.next(), Request)
            os.kill(call.worker.pid, signal.SIGKILL)  # type: ignore[attr-defined]
            assert await call.next() == WorkerLost()
        for pid in pool.stats.worker_pids:
            os.kill(pid, signal.SIGKILL)
        assert await run(pool, HEALTHY) == FINE
        await pool.wait_for_spares()
        watched = Watched(pool.stats.worker_pids)
    assert watched.still_there_after(1) == []


async def test_a_script_that_is_inspected_has_a_worker_of_its_own() -> None:
    async with SandboxPool.open(mode="wasm", policy=PoolPolicy(spares=1)) as pool:
        assert await run(pool, HEALTHY) == FINE
        before = set(pool.stats.worker_pids)
        inspection = await pool.inspect('export default Keep.workflow({ name: "w", jobs: { a() {} } });')
        assert inspection.declaration is not None
        await pool.wait_for_spares()
        assert pool.stats.kept == 1
        assert before != set(pool.stats.worker_pids)


HOST = """
    import anyio, sys
    from keep_actors.sandbox_pool import SandboxPool
    from tests.sandbox.world import prepare, run

    async def main():
        async with SandboxPool.open(mode="wasm") as pool, anyio.create_task_group() as tasks:
            await run(pool, prepare("return 1"))
            await pool.wait_for_spares()
            print(*pool.stats.worker_pids, flush=True)
            await anyio.sleep_forever()

    anyio.run(main, backend=sys.argv[1])
"""


def test_workers_end_by_themselves_when_their_host_is_killed(anyio_backend: str) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", textwrap.dedent(HOST), anyio_backend]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        pids = [int(word) for word in host.stdout.readline().split()]
        assert len(pids) >= 3
        watched = Watched(pids)
        host.kill()
        assert watched.still_there_after(2) == []


WITHOUT = """
import os, signal, socket, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("resource", "fcntl"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
for module, names in ((os, ("fork", "nice")), (signal, ("setitimer", "SIGPROF", "SIGXCPU", "SIGSYS", "SIGKILL"))):
    for name in names:
        delattr(module, name)

def fromshare(data):
    with socket.socket(socket.AF_UNIX) as ours:
        ours.connect(data.decode())
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    return socket.socket(fileno=descriptors[0])

socket.fromshare = fromshare
"""


def shared_over(folder: Path, sock: socket.socket, pid: int) -> bytes:
    """Hand a socket over to a process that is told only a name, as `socket.share` does on Windows."""
    place = folder / str(pid)
    copy = sock.dup()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(place))
    listening.listen(1)

    def hand_over() -> None:
        with listening, copy:
            theirs, _ = listening.accept()
            with theirs:
                socket.send_fds(theirs, [b"x"], [copy.fileno()])

    threading.Thread(target=hand_over).start()
    return str(place).encode()


async def test_workers_start_where_nothing_can_be_inherited_limited_or_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A simulation of Windows: the code that is run there is run here, and no part of Windows is.
    (tmp_path / "sitecustomize.py").write_text(WITHOUT, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(socket.socket, "share", lambda sock, pid: shared_over(tmp_path, sock, pid), raising=False)
    async with SandboxPool.open(mode="wasm", policy=PoolPolicy(workers=1, spares=1)) as pool:
        async with pool.invoke("w", HEALTHY) as call:
            assert isinstance(await call.next(), Request)
            assert type(await run(pool, prepare("for(;;);"))).__name__ == "CpuLimit"
            await call.answer(1, "[1,2]")
            assert await drive(call) == FINE
        with anyio.fail_after(5):
            assert await run(pool, HEALTHY) == FINE
