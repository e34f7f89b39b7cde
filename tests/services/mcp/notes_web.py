"""The server of notes once more, of the official package and over HTTP: its effects are lines of the same file."""

import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import ToolAnnotations
from pydantic import BaseModel

from tests.services.mcp.notes_server import Notes

App = Callable[..., Awaitable[None]]
ONCE = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
MANY = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)


class Added(BaseModel):
    id: int


class Note(BaseModel):
    id: int
    text: str
    key: str | None


class Found(BaseModel):
    notes: list[Note]


def notes_app(folder: Path) -> App:
    """The application. Its tools never wait in the middle of an effect, so equal keys never make two."""
    server, notes = MCPServer("notes", log_level="CRITICAL"), Notes(folder)

    @server.tool(annotations=ONCE)
    async def add_note(text: str, key: str | None = None) -> Added:
        """Add a note."""
        return Added(id=notes.add({"text": text, "key": key}))

    @server.tool(annotations=MANY)
    async def add_plainly(text: str) -> Added:
        """Add a note, each time another one."""
        return Added(id=notes.add({"text": text}))

    @server.tool(annotations=MANY)
    async def add_and_fail(text: str, code: int) -> Added:
        """Add a note, and then end with an error, as from a request of its own that the client refused."""
        notes.add({"text": text})
        raise MCPError(code=code, message="Not supported")

    @server.tool(annotations=READS)
    async def list_notes(text: str | None = None) -> Found:
        """All notes."""
        found = [Note(id=number, **each) for number, each in enumerate(notes.all(), 1)]
        return Found(notes=[each for each in found if text in (None, each.text)])

    hosts = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # it is behind a proxy of the tests
    return server.streamable_http_app(transport_security=hosts)


def old(app: App) -> App:
    """The same, and it does not know the newest protocol: it has sessions."""

    async def answer(scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        body = await _body(receive) if scope["method"] == "POST" else b""
        if b'"server/discover"' in body:
            number = json.loads(body)["id"]
            error = {"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "Method not found"}}
            await respond(send, 200, json.dumps(error).encode(), "application/json")
            return
        is_read = False

        async def again() -> Any:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        await app(scope, again, send)

    return answer


async def _body(receive: Any) -> bytes:
    body, is_more = b"", True
    while is_more:
        message = await receive()
        body += message.get("body", b"")
        is_more = message.get("more_body", False)
    return body


async def respond(send: Any, status: int, body: bytes, kind: str = "text/plain", **headers: str) -> None:
    """Answer a request."""
    given = {"content-type": kind, **headers}
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(app: Callable[[], App]) -> Iterator[int]:
    """Serve it on loopback, made and run in a thread of its own; the value is its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(
            app,
            factory=True,
            log_level="critical",
            lifespan="auto",
            ws="none",
            loop="asyncio",
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]  # a connection waits until the loop runs
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive(), "the server has ended"
