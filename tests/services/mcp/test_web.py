"""A server that is reached over HTTP: with sessions and without, and what it and the network may do."""

import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpcore2
import pytest

from keep_actors.connectors import Answer, AuthRequired, DidNotHappen, Happened, PreconditionFailed, Unknown
from keep_actors.outbound.secret import Secret
from keep_actors.services.mcp import GrantedTool, Mcp, McpSettings
from keep_actors.services.mcp.granted import save_tools
from keep_actors.services.service import SettingsError
from keep_storage.model import FailureClass
from tests.services.mcp.notes import ADD, READ, Notebook, settings, tools
from tests.services.mcp.notes_web import App, notes_app, old, respond, serving
from tests.services.mcp.subject import listed

pytestmark = pytest.mark.anyio

WORDS = {"add_note": ADD, "list_notes": READ}
TOKEN = "t0ken-of-the-house"


def same(app: App) -> App:
    return app


@asynccontextmanager
async def on_web(folder: Path, app: Callable[[], App], **given: Any) -> AsyncIterator[Notebook]:
    """A connector that is granted what the server lists."""
    with serving(app) as port:
        async with reaching(folder, port, **given) as notes:
            yield notes


@asynccontextmanager
async def reaching(
    folder: Path, port: int, *, granted: list[GrantedTool] | None = None, **given: Any
) -> AsyncIterator[Notebook]:
    file = folder / "granted.json"
    reached = {"url": f"http://127.0.0.1:{port}/mcp", "allow": [f"127.0.0.1:{port}"], "timeout_s": 5, **given}
    save_tools(file, granted or await listed(McpSettings(tools_file=file, **reached)))
    connector = Mcp(McpSettings(tools_file=file, tools=WORDS, **reached), name="notes")
    await connector.open()
    try:
        yield Notebook(connector, folder)
    finally:
        await connector.close()


@pytest.mark.parametrize("era", [same, old], ids=["2026", "2025"])
async def test_tools_are_called_in_both_versions_of_the_protocol(tmp_path: Path, era: Callable[[App], App]) -> None:
    async with on_web(tmp_path, lambda: era(notes_app(tmp_path))) as notes:
        assert await notes.add() == Happened('{"id":1}')
        assert await notes.read() == Answer('{"notes":[{"id":1,"key":"k-1","text":"milk"}]}')


@pytest.mark.parametrize("code", [-32600, -32601, -32602, -32603, -32042])
@pytest.mark.parametrize("era", [same, old], ids=["2026", "2025"])
async def test_an_error_with_which_a_tool_ended_is_no_refusal_whatever_its_status(
    tmp_path: Path, era: Callable[[App], App], code: int
) -> None:
    """The official package sends the first three with status 400 and 404, also after an effect."""
    async with on_web(tmp_path, lambda: era(notes_app(tmp_path))) as notes:
        method, params = notes.methods["addAndFail"], {"text": "milk", "code": code}
        call = notes.call("addAndFail", params)
        assert isinstance(await method.mutate(method.decode_params(json.dumps(params)), call, 5_000), Unknown)
        assert len(notes.effects) == 1


async def test_a_session_that_the_server_forgot_did_nothing_and_the_next_call_has_another_one(tmp_path: Path) -> None:
    sessions: set[str] = set()
    gone: set[str] = set()

    def forgetful() -> App:
        app = old(notes_app(tmp_path))

        async def answer(scope: Any, receive: Any, send: Any) -> None:
            session = dict(scope.get("headers", ())).get(b"mcp-session-id", b"").decode()
            if session in gone:  # as after a restart
                scope["headers"] = [each for each in scope["headers"] if each[0] != b"mcp-session-id"]
                scope["headers"].append((b"mcp-session-id", b"unknown"))
            sessions.update({session} - {""})
            await app(scope, receive, send)

        return answer

    async with on_web(tmp_path, forgetful) as notes:
        gone.update(sessions)
        outcome = await notes.add()
        assert isinstance(outcome, DidNotHappen)
        assert outcome.cls is FailureClass.TRANSIENT
        assert notes.effects == []
        assert await notes.add() == Happened('{"id":1}')


def refusing(make: Callable[[], App], status: int, body: bytes = b"no", **headers: str) -> Callable[[], App]:
    """The same, and a call of the tool that adds is answered so."""
    return lambda: _refusing(make(), status, body, headers)


def _refusing(app: App, status: int, body: bytes, headers: dict[str, str]) -> App:

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        messages: list[Any] = []

        async def seen() -> Any:
            messages.append(await receive())
            return messages[-1]

        if scope["type"] == "http" and scope["method"] == "POST":
            while not messages or messages[-1].get("more_body"):
                await seen()
            if b'"add_note"' in b"".join(each.get("body", b"") for each in messages):
                await respond(send, status, body, **headers)
                return
        held = iter(messages)

        async def again() -> Any:
            return next(held, None) or await receive()

        await app(scope, again, send)

    return answer


@pytest.mark.parametrize(
    ("status", "cls"),
    [
        (401, FailureClass.AUTH),
        (403, FailureClass.PERMISSION),
        (429, FailureClass.TRANSIENT),
        (404, FailureClass.PRECONDITION),
        (307, FailureClass.PRECONDITION),
    ],
)
async def test_a_status_that_refuses_a_call_says_that_it_did_not_happen(
    tmp_path: Path, status: int, cls: FailureClass
) -> None:
    app = refusing(lambda: notes_app(tmp_path), status, location="http://127.0.0.1:9/elsewhere")
    async with on_web(tmp_path, app) as notes:
        outcome = await notes.add()
    assert isinstance(outcome, DidNotHappen)
    assert outcome.cls is cls


@pytest.mark.parametrize("status", [302, 303, 408, 409, 500, 502, 503])
async def test_any_other_status_is_unknown(tmp_path: Path, status: int) -> None:
    app = refusing(lambda: notes_app(tmp_path), status, location="http://127.0.0.1:9/elsewhere")
    async with on_web(tmp_path, app) as notes:
        assert isinstance(await notes.add(), Unknown)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"jsonrpc": "2.0", "id": 1, "result": {}}', "application/json"),
        (b"[" * 200_000, "application/json"),
        (b"x" * 300_000, "application/json"),
        (b"data: " + b"x" * 300_000, "text/event-stream"),
        (b": nothing\n\n", "text/event-stream"),
        (b"<html>", "text/html"),
        (b"", "application/json"),
    ],
    ids=["another id", "deep", "large", "a large event", "no event", "HTML", "empty"],
)
async def test_an_answer_that_cannot_be_used_is_unknown_and_hurts_no_other_call(
    tmp_path: Path, body: bytes, kind: str
) -> None:
    app = refusing(lambda: notes_app(tmp_path), 200, body, content_type=kind)
    async with on_web(tmp_path, app, message_bytes_max=100_000, timeout_s=1) as notes:
        assert isinstance(await notes.add(), Unknown)
        assert isinstance(await notes.read(), Answer)


async def test_a_server_that_wants_a_sign_in_is_said_so_and_its_address_for_that_is_not_followed(
    tmp_path: Path,
) -> None:
    asked: list[str] = []

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope.get("path", ""))
        await respond(send, 401, b"", www_authenticate='Bearer resource_metadata="http://127.0.0.1:9/oauth"')

    with serving(lambda: answer) as port:
        file = tmp_path / "granted.json"
        given = McpSettings(
            tools_file=file, url=f"http://127.0.0.1:{port}/mcp", allow=[f"127.0.0.1:{port}", "127.0.0.1:9"]
        )
        with pytest.raises(AuthRequired, match="the server answered 401"):
            await listed(given)
    assert {each for each in asked if each} == {"/mcp"}


# Where requests go.


class Network:
    """Names as the test says; no connection is made, and every address that is wanted is written down."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.connected: list[str] = []

    async def resolve(self, host: str, _: int) -> Sequence[str]:
        return [host] if host[0].isdigit() else self.addresses

    async def connect(self, address: str, _: int, __: float | None) -> httpcore2.AsyncNetworkStream:
        self.connected.append(address)
        raise httpcore2.ConnectError("nothing is there")


async def looked(folder: Path, network: Network) -> None:
    """Open a connector for https://tools.example, and close it."""
    file = folder / "granted.json"
    save_tools(file, tools())
    made = McpSettings(tools_file=file, url="https://tools.example/mcp", tools=WORDS, timeout_s=5)
    connector = Mcp(made, name="notes", resolve=network.resolve, connect=network.connect)
    await connector.open()
    await connector.close()


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.0.0.7", "169.254.169.254", "::1", "::ffff:10.0.0.7", "fd00::1", "100.64.0.1"]
)
async def test_a_name_that_leads_into_the_own_network_is_refused_before_a_connection(
    tmp_path: Path, address: str
) -> None:
    network = Network(address)
    with pytest.raises(PreconditionFailed, match=r"to allow it write allow"):
        await looked(tmp_path, network)
    assert network.connected == []


async def test_a_name_with_one_private_address_among_public_ones_is_refused(tmp_path: Path) -> None:
    network = Network("93.184.215.14", "10.0.0.7")
    with pytest.raises(PreconditionFailed):
        await looked(tmp_path, network)
    assert network.connected == []


async def test_a_public_address_is_tried(tmp_path: Path) -> None:
    network = Network("93.184.215.14")
    await looked(tmp_path, network)
    assert set(network.connected) == {"93.184.215.14"}


@pytest.mark.parametrize(
    "url",
    [
        "http://tools.example/mcp",
        "ftp://tools.example/mcp",
        "https://ann:secret@tools.example/mcp",
        "https://tools.example/mcp#part",
        "https://tools.example:port/mcp",
        "tools.example",
        "https://tools.example/\r\nHost: other",
    ],
)
def test_an_address_that_is_not_meant_is_refused_before_it_is_used(tmp_path: Path, url: str) -> None:
    with pytest.raises(SettingsError, match=r"^url: ") as raised:
        Mcp(settings(tmp_path, url=url), name="notes")
    assert "secret@" not in str(raised.value)


# What is said of it.


async def test_sessions_and_secrets_stand_in_no_log_and_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    sessions: list[str] = []

    def repeating(app: App) -> App:
        async def answer(scope: Any, receive: Any, send: Any) -> None:
            headers = dict(scope.get("headers", ()))
            if session := headers.get(b"mcp-session-id"):
                sessions.append(session.decode())
            await app(scope, receive, send)

        return answer

    app = refusing(lambda: repeating(old(notes_app(tmp_path))), 400, f"Bearer {TOKEN} is not known".encode())
    secret = {"Authorization": Secret(f"Bearer {TOKEN}")}
    async with on_web(tmp_path, app, headers=secret) as notes:
        outcome = await notes.add()
    assert sessions
    ours = "\n".join(each.getMessage() for each in caplog.records if not each.name.startswith("mcp.server"))
    said = f"{ours}\n{outcome}"
    assert TOKEN not in said
    assert not any(session in said for session in sessions)
    assert "milk" not in said
