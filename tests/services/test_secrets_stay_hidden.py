"""Every connector with a secret runs against a service that repeats all it hears, in answers and in errors.

Then the secret is searched for, in every spelling, wherever something is kept or shown: each table, the bytes of the
file and of its log, every log line down to DEBUG, all that people and models are shown, and what connectors look like.
"""

import html
import json
import logging
import sqlite3
import sys
import traceback
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from textwrap import dedent
from typing import Any
from urllib.parse import quote, quote_plus

import anyio
import msgspec
import pytest
from click.testing import CliRunner

import keep_actors
from keep_actors.cli.main import main
from keep_actors.connectors import Connector, ConnectorNotOpened
from keep_actors.notices import Hook, Notice
from keep_actors.services import load_configuration
from keep_actors.services.configuration import KINDS, kind_class, load_settings
from keep_actors.services.mcp import GrantedTool
from keep_actors.services.mcp.granted import save_tools
from keep_actors.services.service import secrets_in
from tests.services.servers.repeating import RepeatingPorts, repeating

SECRET = "S3cr3t+of/the=h\"u\\s&e7 <'%>"
PIECE = 6
"""So many characters of it, from its beginning or its end, are too many."""


def spellings(secret: str) -> Iterator[str]:
    content = secret.encode()
    yield from (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], repr(content)[2:-1], html.escape(secret))
    yield from (quote(secret), quote(secret, safe=""), quote_plus(secret), quote(secret, safe="").lower())
    for before in (b"", b"ann:", b"\0ann\0", b"an:", b"a:"):
        yield from (b64encode(before + content).decode(), urlsafe_b64encode(before + content).decode())
    yield from (secret[:PIECE], secret[-PIECE:])


SPELLINGS = sorted(set(spellings(SECRET)))


@pytest.fixture(scope="module")
def ports() -> Iterator[RepeatingPorts]:
    with repeating() as listening:
        yield listening


# The connectors, and a script for each that calls everything.

MCP_SERVER = r"""
import json, os, sys
secret = os.environ["TOKEN"]

def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

for line in sys.stdin:
    asked = json.loads(line)
    method, params, number = asked.get("method"), asked.get("params", {}), asked.get("id")
    print("I heard", secret, file=sys.stderr, flush=True)
    if method == "initialize":
        about = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
        send({"id": number, "result": {**about, "serverInfo": {"name": "repeating", "version": "1"}}})
    elif method == "tools/list":
        send({"id": number, "result": {"tools": json.load(open("server_tools.json"))}})
    elif method == "tools/call":
        word = params["arguments"]["word"]
        if word == "die":
            os._exit(1)
        if word == "garbage":
            print("no JSON", secret, flush=True)
        send({"method": "notifications/message", "params": {"level": "error", "data": secret}})
        if word in ("protocol", "garbage"):
            send({"id": number, "error": {"code": -32000, "message": "x" * 190 + secret, "data": secret}})
        else:
            content = [{"type": "text", "text": "no: " + secret}]
            send({"id": number, "result": {"content": content, "isError": word == "fail"}})
    elif number is not None:
        send({"id": number, "error": {"code": -32601, "message": secret}})
"""
WORD = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
TOOLS = [
    {"name": "look", "inputSchema": WORD, "annotations": {"readOnlyHint": True}},
    {"name": "change", "inputSchema": WORD},
]

DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "t", "version": "1"},
    "paths": {
        "/look": {"get": {"operationId": "look", "responses": {"200": {"description": "d"}}}},
        "/look/fail": {"get": {"operationId": "lookAndFail", "responses": {"200": {"description": "d"}}}},
        "/fail": {"post": {"operationId": "change", "responses": {"200": {"description": "d"}}}},
        "/refuse": {"post": {"operationId": "refuse", "responses": {"200": {"description": "d"}}}},
    },
    "components": {"securitySchemes": {"Pair": {"type": "http", "scheme": "basic"}}},
}

ENV = '{ env = "THE_SECRET" }'
FILE = '{ file = "the.secret" }'
CALL = '{ call = "secret_of_test:the_secret" }'
PAIR = '{ call = "secret_of_test:the_pair" }'

CASES: dict[str, tuple[str, list[str], list[str]]] = {
    "http": (
        """
        kind = "http"
        base_url = "http://127.0.0.1:{web}"
        allow = ["127.0.0.1:{web}"]
        secret_headers = { "x-key" = {ENV} }
        bearer = {FILE}
        calls.look.path = "/look"
        calls.lookAndFail.path = "/pad/fail"
        calls.lookAndRefuse.path = "/pad/refuse"
        calls.change = { method = "POST", path = "/change", answer = "text" }
        calls.changeAndFail = { method = "POST", path = "/fail" }
        calls.changeAndRefuse = { method = "POST", path = "/refuse" }
        calls.changeAndDrop = { method = "POST", path = "/drop" }
        """,
        ["look({})", "lookAndFail({})", "lookAndRefuse({})"],
        ["change({})", "changeAndFail({})", "changeAndRefuse({})", "changeAndDrop({})"],
    ),
    "chat": (
        """
        kind = "chat"
        base_url = "http://127.0.0.1:{web}/model"
        allow = ["127.0.0.1:{web}"]
        model = "m"
        api_key = {CALL}
        folder = "answers"
        """,
        ['ask({ prompt: "what is the key?" })'],
        [],
    ),
    "chat that fails": (
        """
        kind = "chat"
        base_url = "http://127.0.0.1:{web}/fail"
        allow = ["127.0.0.1:{web}"]
        model = "m"
        basic = { user = "ann", password = {FILE} }
        """,
        ['ask({ prompt: "what is the key?" })'],
        [],
    ),
    "openapi": (
        """
        kind = "openapi"
        document = "document.json"
        base_url = "http://127.0.0.1:{web}"
        allow = ["127.0.0.1:{web}"]
        auth = { Pair = {PAIR} }
        operations = { look = { answer = "any" }, lookAndFail = {}, change = {}, refuse = {} }
        """,
        ["look({})", "lookAndFail({})"],
        ["change({})", "refuse({})"],
    ),
    "mail": (
        """
        kind = "mail"
        from = "ann@example.com"
        sent_copy = "append"
        smtp = { host = "127.0.0.1", port = {smtp}, tls = "none", user = "ann", password = {ENV} }
        imap = { host = "127.0.0.1", port = {imap}, tls = "none", user = "ann", password = {FILE} }
        """,
        ["search({})"],
        ['send({ to: ["bob@example.com"], subject: "s", text: "t" })'],
    ),
    "mcp": (
        """
        kind = "mcp"
        command = ["{python}", "-I", "-S", "server.py"]
        folder = "."
        tools_file = "tools.json"
        secret_env = { TOKEN = {FILE} }
        tools.look.kind = "read"
        """,
        ['look({ word: "tell" })', 'look({ word: "fail" })', 'look({ word: "protocol" })'],
        [
            'change({ word: "fail" })',
            'change({ word: "protocol" })',
            'change({ word: "garbage" })',
            'change({ word: "die" })',
        ],
    ),
}
UNOPENED = {
    "sql": """
        kind = "sql"
        database = "postgresql://ann@127.0.0.1:{database}/crm"
        password = {ENV}
        connect_timeout_ms = 5000
        queries.one = { sql = "SELECT 1 AS one", columns = { one = "integer" } }
        """,
    "mcp over HTTP": """
        kind = "mcp"
        url = "http://127.0.0.1:{web}/refuse"
        allow = ["127.0.0.1:{web}"]
        tools_file = "tools.json"
        headers = { authorization = {CALL}, "x-key" = {FILE} }
        """,
}
"""Connectors that their service refuses at the start."""


def test_every_kind_that_can_have_a_secret_is_tried() -> None:
    with_secrets = {
        kind for kind in KINDS if "Secret" in str(msgspec.inspect.type_info(kind_class(kind).settings_type))
    }
    assert with_secrets == {text.split('"')[1] for text in (*(case[0] for case in CASES.values()), *UNOPENED.values())}


def written(folder: Path, text: str, ports: RepeatingPorts, patch: pytest.MonkeyPatch) -> Path:
    """Put settings into a folder, and the secret into all places from which it comes."""
    patch.setenv("THE_SECRET", SECRET)
    (folder / "the.secret").write_text(SECRET, "utf-8")
    (folder / "the.secret").chmod(0o600)
    module = f"def the_secret(): return {SECRET!r}\ndef the_pair(): return 'ann:' + {SECRET!r}\n"
    (folder / "secret_of_test.py").write_text(module, "utf-8")
    patch.syspath_prepend(str(folder))
    patch.delitem(sys.modules, "secret_of_test", raising=False)
    (folder / "document.json").write_text(json.dumps(DOCUMENT), "utf-8")
    (folder / "server.py").write_text(MCP_SERVER, "utf-8")
    (folder / "server_tools.json").write_text(json.dumps(TOOLS), "utf-8")
    save_tools(folder / "tools.json", [msgspec.convert(each, GrantedTool) for each in TOOLS])
    text = dedent(text)
    for name, value in {**ports._asdict(), "python": sys.executable, **_PLACES}.items():
        text = text.replace(f"{{{name}}}", str(value))
    path = folder / "keep.toml"
    path.write_text(f"[connectors.it]\n{text}", "utf-8")
    return path


_PLACES = {"ENV": ENV, "FILE": FILE, "CALL": CALL, "PAIR": PAIR}


def script(name: str, call: str, *, reads: bool) -> str:
    """Make the call, and publish what a read answers."""
    look = f"const heard = await ctx.it.{call};" if reads else "const heard = null;"
    change = "" if reads else f"async mutate(ctx) {{ await ctx.it.{call}; }},"
    return f"""export default Keep.workflow({{
      name: "{name}", topics: {{ "went": {{}} }},
      producers: {{ go: {{ schedule: {{ interval: "1h" }}, async handler(ctx) {{
        {look}
        await ctx.publish("went", {{ messageId: "1", title: "It went", payload: heard }});
      }} }} }},
      consumers: {{ then: Keep.consumer({{
        subscribe: ["went"],
        async prepare(ctx) {{
          const [event] = await ctx.peek("went");
          console.log("heard", JSON.stringify(event ?? null));
          if (!event) return {{ reservations: [] }};
          return {{ reservations: [{{ topic: "went", ids: ["1"] }}], data: event.payload }};
        }},
        {change}
      }}) }},
    }});"""


def scripts_of(case: str) -> dict[str, str]:
    _, reads, changes = CASES[case]
    found = {f"read-{n}": script(f"read-{n}", call, reads=True) for n, call in enumerate(reads)}
    return found | {f"change-{n}": script(f"change-{n}", call, reads=False) for n, call in enumerate(changes)}


# Where it could be.


def kept(folder: Path) -> Iterator[str]:
    """All rows of all tables, and the bytes of all files that the runtime and the connectors have made."""
    with closing(sqlite3.connect(folder / "keep.db")) as opened:
        for (table,) in opened.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
            for row in opened.execute(f'SELECT * FROM "{table}"'):
                yield "\n".join(each.decode(errors="replace") if isinstance(each, bytes) else str(each) for each in row)
    for path in (*folder.glob("keep.db*"), *folder.glob("answers/*")):
        yield path.read_bytes().decode("latin-1")


async def shown(keep: keep_actors.Keep, workflows: list[str]) -> list[str]:
    """All that people are shown."""
    found: list[object] = [await keep.attention(), await keep.unknowns(), await keep.workflows()]
    for workflow in workflows:
        found += [await keep.inputs(workflow), await keep.outputs(workflow)]
        found += [await keep.explain(run.id) for run in await keep.runs(workflow)]
    return [repr(each) for each in found]


def looks(config: Path, connectors: list[Connector]) -> list[str]:
    """The connectors and their settings, as a debugger or a log would show them."""
    settings = load_settings(config, "it")
    return [
        *(repr(each) for each in (settings, connectors, *secrets_in(settings))),
        *(repr(vars(each)) for each in connectors),
        *(f"{each.__hidden__}" for each in connectors),
    ]


def commanded(config: Path) -> list[str]:
    """All that commands show of the connectors, to authors and to models."""
    said = []
    for words in (["connectors", "--json"], ["connectors"], ["types"], ["prompt"]):
        done = CliRunner().invoke(main, [*words, "--config", str(config)])
        assert done.exit_code == 0, done.output
        said.append(done.output)
    return said


async def live(folder: Path, config: Path, scripts: dict[str, str]) -> dict[str, list[str]]:
    """Run all scripts until each has an end, and look into every place while the runtime is there, and after it."""
    notices: list[str] = []

    async def notice(each: Notice) -> None:
        notices.append(repr(each))

    connectors = load_configuration(config)
    policy = keep_actors.Policy(mutation_timeout_ms=5_000, notice_after_ms=1, reconcile_for_ms=1)
    sinks = [Hook(notice, name="people")]
    async with keep_actors.open(
        folder / "keep.db", connectors=connectors, policy=policy, notices=sinks, sandbox="thread", grants="all"
    ) as keep:
        for source in scripts.values():
            await keep.deploy(source)
        with anyio.fail_after(120):
            for name in scripts:
                while not [run for run in await keep.runs(name) if run.status != "active"]:  # noqa: ASYNC110
                    await anyio.sleep(0.02)
            await keep.wait_idle()
            while not notices and any(name.startswith("change") for name in scripts):  # noqa: ASYNC110
                await anyio.sleep(0.02)
        people = await shown(keep, list(scripts))
        files = list(kept(folder))
    return {"shown": people, "kept": [*files, *kept(folder)], "notices": notices, "looks": looks(config, connectors)}


def found_in(places: dict[str, list[Any]]) -> set[tuple[str, str]]:
    return {
        (place, spelling)
        for place, texts in places.items()
        for spelling in SPELLINGS
        for text in texts
        if spelling in text
    }


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("case", CASES)
def test_a_secret_is_nowhere_after_runs_that_fail_everywhere(
    case: str,
    backend: str,
    ports: RepeatingPorts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    config = written(tmp_path, CASES[case][0], ports, monkeypatch)
    places = anyio.run(live, tmp_path, config, scripts_of(case), backend=backend)
    places["commands"] = commanded(config)
    places["logged"] = [caplog.text, *(str(vars(record)) for record in caplog.records)]
    places["written"] = list(capfd.readouterr())
    assert found_in(places) == set()
    assert any("[secret]" in text for text in places["shown"]), "the service repeated it, and it was taken out"


@pytest.mark.parametrize("case", UNOPENED)
def test_a_secret_is_nowhere_in_the_error_of_a_connector_that_cannot_be_opened(
    case: str,
    ports: RepeatingPorts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    config = written(tmp_path, UNOPENED[case], ports, monkeypatch)

    async def opened() -> None:
        async with keep_actors.open(tmp_path / "keep.db", connectors=load_configuration(config), sandbox="thread"):
            raise AssertionError("the service refused it")

    with pytest.raises(ConnectorNotOpened) as caught:
        anyio.run(opened)
    error = "".join(traceback.format_exception(caught.value))
    places = {"error": [error], "logged": [caplog.text], "written": list(capfd.readouterr())}
    places["looks"] = looks(config, load_configuration(config))
    places["commands"] = commanded(config)
    assert found_in(places) == set()
    assert "[secret]" in error or "403" in error, "the service repeated it, and it was taken out"
