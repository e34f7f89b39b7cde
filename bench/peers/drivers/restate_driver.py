"""The unit on Restate: its server with default settings, one process of a Python service, and this process as client.

The client speaks plain HTTP/1.1 with one connection per unit in flight, which costs less than a client library.
"""

import asyncio
import importlib.metadata
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Self

from bench.peers.unit import SENDERS, Plan, Stopwatch, Task, order, say, told

SERVICE: Final = "Orders"
_START_S: Final = 60
_ASK_S: Final = 0.2
_SURE: Final = 2


class Ports(NamedTuple):
    """The ports of one Restate, the same after a restart."""

    ingress: int
    admin: int
    node: int
    service: int

    @classmethod
    def of(cls, folder: Path) -> Self:
        path = folder / "ports"
        if not path.exists():
            free = [socket.create_server(("127.0.0.1", 0)) for _ in cls._fields]
            path.write_text(json.dumps([each.getsockname()[1] for each in free]))
            for each in free:
                each.close()
        return cls(*json.loads(path.read_text()))


class Connection:
    """A kept connection that posts one thing at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def post(self, path: str, body: object, *, key: str = "") -> bytes:
        """Post JSON, and return the answer's body. What was posted with the same key before is not done again."""
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(data)}\r\n"
        head += f"idempotency-key: {key}\r\n\r\n" if key else "\r\n"
        self._writer.write(head.encode() + data)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert answer.split()[1].startswith("2"), answer
        if "transfer-encoding: chunked" in answer:
            return await self._chunks()
        return await self._reader.readexactly(int(answer.partition("content-length:")[2].split()[0]))

    async def _chunks(self) -> bytes:
        chunks = []
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            chunks.append(await self._reader.readexactly(size))
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return b"".join(chunks)


@contextmanager
def running(plan: Plan, ports: Ports) -> Iterator[None]:
    """Start the server and the service, as children of this process."""
    folder = Path(plan.folder)
    settings = {
        "RESTATE_BASE_DIR": str(folder / "restate"),
        "RESTATE_NODE_NAME": "bench",
        "RESTATE_CLUSTER_NAME": "bench",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_BIND_IP": "127.0.0.1",
        "RESTATE_BIND_PORT": str(ports.node),
        "RESTATE_INGRESS__BIND_PORT": str(ports.ingress),
        "RESTATE_ADMIN__BIND_PORT": str(ports.admin),
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "error",
        "DO_NOT_TRACK": "1",
    }
    service = [sys.executable, "-m", "bench.peers.drivers.restate_service", plan.text(), str(ports.service)]
    server = [plan.program, "--no-logo"]
    with (folder / "restate.log").open("ab") as log:
        children = [
            subprocess.Popen(command, env={**os.environ, **settings}, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            for command in (server, service)
        ]
        try:
            yield
        finally:
            for child in children:
                child.kill()  # the service would wait for its connections to end
                child.wait()


async def live(plan: Plan) -> None:
    ports = Ports.of(Path(plan.folder))
    with running(plan, ports):
        await _ready(ports, plan)
        match plan.task:
            case Task.MEASURE:
                connections = [await Connection.open(ports.ingress) for _ in range(plan.in_flight)]
                say(ready=True, version=_version(plan))
                if told("go"):
                    await _measure(plan, connections)
                    told("end")
            case Task.ACCEPT:
                say(ready=True)
                if told("go"):
                    await _send(plan, ports)
                    await asyncio.to_thread(sys.stdin.readline)
            case Task.FINISH:
                await _send(plan, ports)
                await _all_done(ports)
                say(done=True, asked=0)
            case Task.PREPARE:
                raise AssertionError("nothing is prepared for Restate")


def _version(plan: Plan) -> str:
    server = subprocess.run([plan.program, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    return f"{server}, SDK {importlib.metadata.version('restate-sdk')}"


async def _ready(ports: Ports, plan: Plan) -> None:
    """Wait until the server answers, and register the service in a first life."""
    until = time.monotonic() + _START_S
    while True:
        try:
            for port in (ports.service, ports.admin, ports.ingress):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
            if plan.task is not Task.FINISH:
                address = f"http://127.0.0.1:{ports.service}"
                await (await Connection.open(ports.admin)).post("/deployments", {"uri": address})
                # The ingress learns about a new service a moment later than the admin.
                await (await Connection.open(ports.ingress)).post(f"/{SERVICE}/paid", "warm-up")
                plan.outside.clear()
            else:
                await _open_units(ports)
        except (OSError, AssertionError, asyncio.IncompleteReadError):
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.05)
        else:
            return


async def _measure(plan: Plan, connections: list[Connection]) -> None:
    watch = Stopwatch()

    async def work(number: int, connection: Connection) -> None:
        for unit in range(number, plan.units, plan.in_flight):
            started = time.perf_counter()
            await connection.post(f"/{SERVICE}/paid", order(unit))
            watch.unit_took(time.perf_counter() - started)

    await asyncio.gather(*(work(number, each) for number, each in enumerate(connections)))
    watch.say(syncs=None)


async def _send(plan: Plan, ports: Ports) -> None:
    units = plan.client.open_units()

    async def send(first: int) -> None:
        connection = await Connection.open(ports.ingress)
        for unit in units[first::SENDERS]:
            await connection.post(f"/{SERVICE}/paid/send", order(unit), key=order(unit))
            plan.client.accepted(unit)

    await asyncio.gather(*(send(first) for first in range(SENDERS)))


async def _all_done(ports: Ports) -> None:
    """Ask until there are no open units, twice in a row: a partition may not have been loaded at the first time."""
    times = 0
    while times < _SURE:
        times = 0 if await _open_units(ports) else times + 1
        await asyncio.sleep(_ASK_S)


async def _open_units(ports: Ports) -> int:
    connection = await Connection.open(ports.admin)
    query = "SELECT count(*) AS open FROM sys_invocation_status WHERE status <> 'completed'"
    [row] = json.loads(await connection.post("/query", {"query": query}))["rows"]
    return int(row["open"])


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65_536), most))
    asyncio.run(live(Plan.parse(sys.argv[1])))
