"""The reference servers of the protocol: their tools become methods, as their annotations and an operator say."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio import run_process

from keep_actors.connectors import Answer, Applied, CallOutcome, Failed, Happened, Method, NotApplied, ReadCall
from keep_actors.services.mcp import Mcp, McpSettings, ToolReconcile, ToolSettings
from keep_actors.services.mcp.granted import save_tools
from keep_actors.services.service import SettingsError
from tests.services.mcp.notes import READ, Notebook
from tests.services.mcp.subject import listed
from tests.services.servers.mcp_reference import reference_server

pytestmark = pytest.mark.anyio

KNOWN = {
    "everything": {"echo", "get-sum", "get-env"},
    "filesystem": {"read_text_file", "write_file", "edit_file", "list_directory"},
    "time": {"get_current_time", "convert_time"},
    "git": {"git_status", "git_add", "git_commit"},
}


@asynccontextmanager
async def connected(folder: Path, name: str, *arguments: str, **given: Any) -> AsyncIterator[Notebook]:
    """A connector that is granted all that the server lists. Starting node takes a while on a busy machine."""
    command = [*reference_server(name), *arguments]
    made = McpSettings(tools_file=folder / "granted.json", command=command, timeout_s=30, **given)
    tools = await listed(made)
    assert KNOWN[name] <= {each.name for each in tools}
    save_tools(made.tools_file, tools)
    connector = Mcp(made, name=name)
    await connector.open()
    try:
        yield Notebook(connector, folder)
    finally:
        await connector.close()


async def called(notes: Notebook, name: str, params: Mapping[str, Any]) -> CallOutcome:
    method = notes.methods[name]
    return await method.mutate(method.decode_params(json.dumps(params)), notes.call(name, params), 30_000)


async def read(notes: Notebook, name: str, params: Mapping[str, Any]) -> Any:
    method: Method = notes.methods[name]
    given = method.decode_params(json.dumps(params))
    return await method.read(given, ReadCall(workflow_id="wf_1", run_id="run_1"), 30_000)


async def test_files_are_written_read_and_found_again(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    path = str(root / "a.txt")
    find = ToolReconcile(tool="read_text_file", arguments={"path": path}, found="content", equals="{params.content}")
    words = {"read_text_file": READ, "write_file": ToolSettings(reconcile=find, identity=["path"])}
    async with connected(tmp_path, "filesystem", str(root), tools=words) as notes:
        params = {"path": path, "content": "milk"}
        assert isinstance(await called(notes, "writeFile", params), Happened)
        assert (root / "a.txt").read_text("utf-8") == "milk"
        assert await read(notes, "readTextFile", {"path": path}) == Answer('{"content":"milk"}')
        method = notes.methods["writeFile"]
        assert isinstance(await method.reconcile(notes.call("writeFile", params), 30_000, 0), Applied)
        other = notes.call("writeFile", {"path": path, "content": "eggs"})
        assert await method.reconcile(other, 30_000, 0) == NotApplied()
        outside = await read(notes, "readTextFile", {"path": "/etc/passwd"})
        assert isinstance(outside, Failed)


async def test_what_a_tool_calls_destructive_is_a_risk_and_what_it_calls_reading_is_believed_only_if_told(
    tmp_path: Path,
) -> None:
    root = str(tmp_path)
    async with connected(tmp_path, "filesystem", root, trust_annotations=True) as notes:
        methods = notes.methods
        assert methods["readTextFile"].kind == "read"
        assert (methods["writeFile"].kind, methods["writeFile"].risk) == ("mutation", "high")
    with pytest.raises(SettingsError, match=r"write_file.kind: the server says that it changes something"):
        Mcp(
            McpSettings(tools_file=tmp_path / "granted.json", command=["x"], tools={"write_file": READ}),
            name="filesystem",
        )


async def test_a_read_tells_the_time(tmp_path: Path) -> None:
    async with connected(tmp_path, "time", tools={"get_current_time": READ}) as notes:
        assert await notes.connector.server.look() == {}
        assert notes.methods["convertTime"].kind == "mutation", "a server's word alone makes no read"
        found = await read(notes, "getCurrentTime", {"timezone": "Europe/Vienna"})
    assert isinstance(found, Answer)
    assert "Europe/Vienna" in found.json_text


async def test_the_server_of_everything_sees_no_secret_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BANK_PASSWORD", "s3cr3t-of-the-bank")
    async with connected(tmp_path, "everything", tools={"get-env": READ}) as notes:
        found = await read(notes, "getEnv", {})
    assert isinstance(found, Answer)
    assert "PATH" in found.json_text
    assert "s3cr3t-of-the-bank" not in found.json_text
    assert str(Path.home()) + '"' not in found.json_text


async def test_a_commit_is_made_in_a_repository(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    await run_process(["git", "init", "-q", str(root)])
    (root / "a.txt").write_text("milk", "utf-8")
    author = {"GIT_AUTHOR_NAME": "Ann", "GIT_AUTHOR_EMAIL": "ann@example.com"}
    env = {**author, "GIT_COMMITTER_NAME": "Ann", "GIT_COMMITTER_EMAIL": "ann@example.com"}
    async with connected(tmp_path, "git", "--repository", str(root), env=env, tools={"git_status": READ}) as notes:
        repo = {"repo_path": str(root)}
        assert isinstance(await called(notes, "gitAdd", {**repo, "files": ["a.txt"]}), Happened)
        assert isinstance(await called(notes, "gitCommit", {**repo, "message": "Buy milk"}), Happened)
        status = await read(notes, "gitStatus", repo)
    assert isinstance(status, Answer)
    assert "nothing to commit" in status.json_text
    log = await run_process(["git", "-C", str(root), "log", "--format=%s"])
    assert log.stdout == b"Buy milk\n"
