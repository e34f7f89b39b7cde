"""A service of lines on a real socket, a connector for it that is right, and its certification.

`ADD key text` adds an entry, `FIND key` looks for it, `FIND_LIKE key` for one whose key begins so, `COUNT text` counts.
A till that is strict adds one entry for one key, however often it is asked.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from keep_actors.connectors import Applied, Connector, MutationCall, NotApplied, mutation
from keep_actors.testing.certification import Certification, RunningService, ServiceAddress

BROKEN = (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError)
SETTLE_MS = 300


class Till:
    """The service."""

    def __init__(self, *, is_strict: bool) -> None:
        self._is_strict = is_strict
        self._entries: list[tuple[str, str]] = []

    async def serve(self, client: SocketStream) -> None:
        """Answer one connection, line by line."""
        lines = BufferedByteReceiveStream(client)
        async with client:
            try:
                while True:
                    line = (await lines.receive_until(b"\n", 1000)).decode()
                    await client.send(f"{self._answer(*line.split(maxsplit=2))}\n".encode())
            except BROKEN:
                return

    def _answer(self, what: str, key: str, text: str = "") -> str:
        keys = [each for each, _ in self._entries]
        match what:
            case "ADD":
                if not (self._is_strict and key in keys):
                    self._entries.append((key, text))
                return f"OK {text}"
            case "FIND":
                return f"OK {dict(self._entries)[key]}" if key in keys else "NO"
            case "FIND_LIKE":
                found = [text for each, text in self._entries if each.startswith(key)]
                return f"OK {found[0]}" if found else "NO"
            case "COUNT":
                return f"OK {sum(text == key for _, text in self._entries)}"
        return "WHAT"


async def said(address: ServiceAddress, line: str, call: MutationCall | None = None) -> str:
    """Say a line on a connection of its own, and return the answer."""
    async with await anyio.connect_tcp(*address) as stream:
        if call is not None:
            call.sending()
        await stream.send(f"{line}\n".encode())
        answer = await BufferedByteReceiveStream(stream).receive_until(b"\n", 1000)
    return answer.decode()


class TillConnector(Connector):
    """Right in every row."""

    name = "till"

    def __init__(self, address: ServiceAddress) -> None:
        self.address = address

    @mutation(marks_sent=True, settle_ms=SETTLE_MS)
    async def add(self, text: str, call: MutationCall) -> str:
        """Add an entry."""
        return (await said(self.address, f"ADD {call.idempotency_key} {text}", call)).removeprefix("OK ")

    @add.reconcile
    async def find(self, call: MutationCall) -> Applied | NotApplied:
        """Look for its key."""
        answer = await said(self.address, f"FIND {call.idempotency_key}")
        return Applied(answer.removeprefix("OK ")) if answer.startswith("OK ") else NotApplied()


class TillCertification(Certification):
    """The right one. The wrong ones derive from it, and name their connector."""

    decisive: ClassVar[Mapping[str, bytes]] = {"add": b"ADD "}
    timeout_ms = 600
    patience_ms = 2_000
    kind: ClassVar[type[TillConnector]] = TillConnector
    is_strict: ClassVar[bool] = True

    @asynccontextmanager
    async def service(self) -> AsyncIterator[RunningService]:
        till = Till(is_strict=self.is_strict)
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, till.serve)
            yield RunningService(addresses={"till": ("127.0.0.1", listener.extra(SocketAttribute.local_port))})
            tasks.cancel_scope.cancel()

    def connector(self, service: RunningService) -> Connector:
        return self.kind(service.addresses["till"])

    def example(self, _: str, number: int) -> Mapping[str, Any]:
        return {"text": f"entry-{number}"}

    async def effects(self, service: RunningService, _: str, params: Mapping[str, Any]) -> int:
        answer = await said(service.addresses["till"], f"COUNT {params['text']}")
        return int(answer.removeprefix("OK "))
