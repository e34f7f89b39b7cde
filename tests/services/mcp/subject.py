"""A server of notes for certification: over HTTP in three ways, and once as a program."""

import json
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from anyio.to_thread import run_sync

from keep_actors.services.mcp import GrantedTool, Mcp, McpSettings, ToolSettings
from keep_actors.services.mcp.connector import tool_server
from keep_actors.services.mcp.granted import save_tools
from keep_actors.testing.certification import Certification, RunningService
from tests.services.mcp.notes import FIND, READ, SCRIPT
from tests.services.mcp.notes_web import notes_app, serving

SETTLE_MS = 1_000
FOUND = ToolSettings(key_argument="key", reconcile=FIND, settle_ms=SETTLE_MS)
REPEATED = ToolSettings(key_argument="key", repeat_is_safe=True)
OFF = ToolSettings(kind="off")


class _Notes(Certification):
    """Notes, as lines of a file."""

    words: ClassVar[Mapping[str, ToolSettings]]
    decisive: ClassVar[Mapping[str, bytes]] = {"addNote": b'"name":"add_note"', "addPlainly": b'"name":"add_plainly"'}

    def service(self) -> AbstractAsyncContextManager[RunningService]:
        return _on_web()

    def connector(self, service: RunningService) -> Mcp:
        tools_file = Path(service.places["folder"], "granted.json")
        return Mcp(McpSettings(tools_file=tools_file, tools=self.words, **self.reached(service)), name="notes")

    def reached(self, service: RunningService) -> dict[str, Any]:
        """The settings that say where the server is."""
        host, port = service.addresses["server"]
        return {"url": f"http://{host}:{port}/mcp", "allow": [f"{host}:{port}"]}

    def example(self, method: str, number: int) -> Mapping[str, Any]:  # noqa: ARG002  # both tools take a text
        return {"text": f"note {number}"}

    async def effects(self, service: RunningService, method: str, params: Mapping[str, Any]) -> int:
        assert method in self.decisive
        return await run_sync(_count, Path(service.places["folder"], "notes.jsonl"), params["text"])


class McpCertification(_Notes):
    """The tool takes the key of a call, and another tool lists notes with their keys."""

    words: ClassVar[Mapping[str, ToolSettings]] = {
        "add_note": FOUND,
        "list_notes": READ,
        "add_plainly": OFF,
        "add_and_fail": OFF,
    }


class McpRepeatCertification(_Notes):
    """The tool takes the key of a call, and the same call again changes nothing more."""

    reconcile_repeats = True
    words: ClassVar[Mapping[str, ToolSettings]] = {
        "add_note": REPEATED,
        "list_notes": READ,
        "add_plainly": OFF,
        "add_and_fail": OFF,
    }


class McpNeitherCertification(_Notes):
    """The tool knows no key, and the server cannot be asked."""

    words: ClassVar[Mapping[str, ToolSettings]] = {"add_note": OFF, "list_notes": READ, "add_and_fail": OFF}
    refuses_repetition = False


class McpProgramCertification(_Notes):
    """A program of this machine, which each connector starts for itself."""

    words: ClassVar[Mapping[str, ToolSettings]] = {"add_note": FOUND, "list_notes": READ, "describe": OFF}

    def service(self) -> AbstractAsyncContextManager[RunningService]:
        return _as_program()

    def reached(self, service: RunningService) -> dict[str, Any]:
        return {"command": [sys.executable, "-I", "-S", str(SCRIPT), service.places["folder"]]}


def _count(file: Path, text: str) -> int:
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    return sum(json.loads(line)["text"] == text for line in lines)


@asynccontextmanager
async def _on_web() -> AsyncIterator[RunningService]:
    with tempfile.TemporaryDirectory() as folder, serving(lambda: notes_app(Path(folder))) as port:
        address = f"127.0.0.1:{port}"
        await _grant(Path(folder), url=f"http://{address}/mcp", allow=[address])
        yield RunningService(addresses={"server": ("127.0.0.1", port)}, places={"folder": folder})


@asynccontextmanager
async def _as_program() -> AsyncIterator[RunningService]:
    with tempfile.TemporaryDirectory() as folder:
        await _grant(Path(folder), command=[sys.executable, "-I", "-S", str(SCRIPT), folder])
        yield RunningService(places={"folder": folder})


async def _grant(folder: Path, **reached: Any) -> None:
    """Accept the tools that the server has."""
    file = folder / "granted.json"
    save_tools(file, await listed(McpSettings(tools_file=file, **reached)))


async def listed(settings: McpSettings) -> list[GrantedTool]:
    """The tools of a server, as it lists them now."""
    server = tool_server(settings, {})
    await server.open()
    try:
        return await server.tools()
    finally:
        await server.close()
