"""Short ways to a connector for the server of notes, and to calls of it."""

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from keep_actors.connectors import CallOutcome, Catalog, Method, MutationCall, ReadCall, ReadOutcome, Verdict
from keep_actors.services.mcp import GrantedTool, Mcp, McpSettings, ToolReconcile, ToolSettings
from keep_actors.services.mcp.granted import save_tools
from tests.services.mcp import notes_server

SCRIPT = Path(notes_server.__file__)
ADD = ToolSettings(key_argument="key")
READ = ToolSettings(kind="read")
FIND = ToolReconcile(tool="list_notes", arguments={"text": "{params.text}"}, found="notes[*].key", equals="{key}")
FINDING = ToolSettings(key_argument="key", reconcile=FIND)


def tools(*changed: Mapping[str, Any]) -> list[GrantedTool]:
    """The tools of the server, with some of them described otherwise."""
    by_name = {each["name"]: each for each in [*notes_server.TOOLS, *changed]}
    return [msgspec.convert(each, GrantedTool) for each in by_name.values()]


def settings(folder: Path, fault: str = "", *, granted: list[GrantedTool] | None = None, **given: Any) -> McpSettings:
    """Settings for a server in this folder."""
    file = folder / "granted.json"
    save_tools(file, tools() if granted is None else granted)
    if "url" not in given:
        # Isolated, and without the packages of the project: it starts in a twentieth of a second.
        given["command"] = [sys.executable, "-I", "-S", str(SCRIPT), str(folder), fault]
    words = {"add_note": ADD, "list_notes": READ}
    return McpSettings(**{"tools_file": file, "tools": words, "timeout_s": 5, **given})


class Notebook:
    """An open connector with its methods."""

    def __init__(self, connector: Mcp, folder: Path) -> None:
        self.connector = connector
        self.methods: dict[str, Method] = {each.name: each for each in Catalog([connector]).methods.values()}
        self.noted: list[str] = []
        self._file = folder / "notes.jsonl"

    @property
    def effects(self) -> list[dict[str, Any]]:
        """The notes, found without the connector."""
        return [json.loads(line) for line in self._file.read_text("utf-8").splitlines()] if self._file.exists() else []

    def call(self, name: str, params: Mapping[str, Any], key: str = "k-1") -> MutationCall:
        """A call of a mutation, as the host makes it."""

        async def keep(note: str) -> None:
            self.noted.append(note)

        return MutationCall(
            idempotency_key=key,
            workflow_id="wf_1",
            run_id="run_1",
            mutation_id="mut_1",
            params=self.methods[name].decode_params(json.dumps(params)).values,
            sent_at=None,
            attempt=1,
            keep_note=keep,
        )

    async def add(self, text: str = "milk", *, key: str = "k-1", timeout_ms: int = 10_000) -> CallOutcome:
        method, given = self.methods["addNote"], {"text": text}
        return await method.mutate(
            method.decode_params(json.dumps(given)), self.call("addNote", given, key), timeout_ms
        )

    async def find(self, text: str = "milk", *, key: str = "k-1") -> Verdict:
        method = self.methods["addNote"]
        return await method.reconcile(self.call("addNote", {"text": text}, key), 10_000, method.settle_ms)

    async def read(self, name: str = "listNotes", **params: Any) -> ReadOutcome:
        method = self.methods[name]
        given = method.decode_params(json.dumps(params))
        return await method.read(given, ReadCall(workflow_id="wf_1", run_id="run_1"), 10_000)


@asynccontextmanager
async def notebook(folder: Path, fault: str = "", **given: Any) -> AsyncIterator[Notebook]:
    connector = Mcp(settings(folder, fault, **given), name="notes")
    await connector.open()
    try:
        yield Notebook(connector, folder)
    finally:
        await connector.close()
