"""Every connector with a secret runs against a service that repeats all it hears, in answers and in errors.

Then the secret is searched for, in every spelling, wherever something is kept or shown: each table, the bytes of the
file, every log line down to DEBUG, and all that people are shown.
"""

import json
import logging
import socketserver
import sqlite3
import struct
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from textwrap import dedent
from urllib.parse import quote

import anyio
import pytest

import keep_actors
from keep_actors.services import load_configuration

SECRET = "S3cr3t+of/the=house&7"
SPELLINGS = [
    SECRET,
    quote(SECRET),
    quote(SECRET, safe=""),
    b64encode(SECRET.encode()).decode(),
    b64encode(f"ann:{SECRET}".encode()).decode(),
    b64encode(f"\0ann\0{SECRET}".encode()).decode(),
]


# Services that repeat what they hear.


class Repeating(BaseHTTPRequestHandler):
    """Answers with the headers of the request: as a result, as a refusal, or with a status that means nothing."""

    def _answer(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body = self.rfile.read(length).decode()
        status = next((code for word, code in (("fail", 500), ("refuse", 403)) if word in self.path), 200)
        heard = json.dumps({"heard": dict(self.headers), "path": self.path, "body": body})
        self.send_response(status, "no" if status == 200 else f"refused {self.headers.get('authorization', '')}")
        self.send_header("x-heard", self.headers.get("authorization", ""))
        self.send_header("content-length", str(len(heard)))
        self.end_headers()
        self.wfile.write(heard.encode())

    do_GET = do_POST = _answer  # noqa: N815  # the names that the server looks for

    def log_message(self, *_: object) -> None:
        """Say nothing: this log is the service's own."""


class RepeatingMail(socketserver.StreamRequestHandler):
    """SMTP that repeats a login in its refusal."""

    def handle(self) -> None:
        self.wfile.write(b"220 hello\r\n")
        for line in self.rfile:
            word = line[:4].upper()
            answer = b"250-x\r\n250 AUTH PLAIN LOGIN\r\n" if word == b"EHLO" else b"535 who is " + line
            self.wfile.write(b"334 \r\n" if line.strip().upper() in (b"AUTH LOGIN", b"AUTH PLAIN") else answer)


class RepeatingMailbox(socketserver.StreamRequestHandler):
    """IMAP that repeats a login in its refusal."""

    def handle(self) -> None:
        self.wfile.write(b"* OK hello\r\n")
        for line in self.rfile:
            tag, _, rest = line.partition(b" ")
            if rest.upper().startswith(b"CAPABILITY"):
                self.wfile.write(b"* CAPABILITY IMAP4rev1\r\n" + tag + b" OK\r\n")
            else:
                self.wfile.write(tag + b" NO who is " + rest)


class RepeatingDatabase(socketserver.StreamRequestHandler):
    """PostgreSQL's protocol: asks for the password in plain text, and repeats it in its refusal."""

    def handle(self) -> None:
        while True:
            [length] = struct.unpack("!i", self.rfile.read(4))
            start = self.rfile.read(length - 4)
            if start[:4] != b"\x04\xd2\x16\x2f":  # a wish for TLS
                break
            self.wfile.write(b"N")
        self.wfile.write(b"R" + struct.pack("!ii", 8, 3))
        self.rfile.read(1)
        [length] = struct.unpack("!i", self.rfile.read(4))
        password = self.rfile.read(length - 4).rstrip(b"\0")
        fields = b"SFATAL\0C28P01\0Mwho is " + password + b"\0\0"
        self.wfile.write(b"E" + struct.pack("!i", len(fields) + 4) + fields)


@contextmanager
def listening(server: socketserver.BaseServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, args=[0.02])
    thread.start()
    try:
        yield int(server.server_address[1])  # type: ignore[index]  # host and port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Threading(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


def at(handler: Callable[..., socketserver.BaseRequestHandler]) -> Threading:
    return Threading(("127.0.0.1", 0), handler)


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, int]]:
    with (
        listening(ThreadingHTTPServer(("127.0.0.1", 0), Repeating)) as web,
        listening(at(RepeatingMail)) as smtp,
        listening(at(RepeatingMailbox)) as imap,
        listening(at(RepeatingDatabase)) as database,
    ):
        yield {"web": web, "smtp": smtp, "imap": imap, "database": database}


# The connectors, and a script for each that calls everything.

MCP_SERVER = """
import os, sys
from mcp.server import MCPServer
server = MCPServer("repeating")

@server.tool()
def look(word: str) -> str:
    print(os.environ["TOKEN"], file=sys.stderr)
    if word == "fail":
        raise ValueError(os.environ["TOKEN"])
    return os.environ["TOKEN"]

@server.tool()
def change(word: str) -> str:
    print(os.environ["TOKEN"], file=sys.stderr, flush=True)
    if word == "die":
        os._exit(1)
    raise ValueError(os.environ["TOKEN"])

server.run()
"""

CASES: dict[str, tuple[str, list[str], list[str]]] = {
    "http": (
        """
        kind = "http"
        base_url = "http://127.0.0.1:{web}"
        allow = ["127.0.0.1:{web}"]
        secret_headers = { "x-key" = { env = "THE_SECRET" } }
        bearer = { env = "THE_SECRET" }
        calls.look.path = "/look"
        calls.lookAndFail.path = "/fail"
        calls.lookAndRefuse.path = "/refuse"
        calls.change = { method = "POST", path = "/change", answer = "text" }
        calls.changeAndFail = { method = "POST", path = "/fail" }
        calls.changeAndRefuse = { method = "POST", path = "/refuse" }
        """,
        ["look({})", "lookAndFail({})", "lookAndRefuse({})"],
        ["change({})", "changeAndFail({})", "changeAndRefuse({})"],
    ),
    "chat": (
        """
        kind = "chat"
        base_url = "http://127.0.0.1:{web}/fail"
        allow = ["127.0.0.1:{web}"]
        model = "m"
        api_key = { env = "THE_SECRET" }
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
        basic = { user = "ann", password = { env = "THE_SECRET" } }
        operations = { look = {}, change = {} }
        """,
        ["look({})"],
        ["change({})"],
    ),
    "mail": (
        """
        kind = "mail"
        from = "ann@example.com"
        sent_copy = "append"
        smtp = { host = "127.0.0.1", port = {smtp}, tls = "none", user = "ann", password = { env = "THE_SECRET" } }
        imap = { host = "127.0.0.1", port = {imap}, tls = "none", user = "ann", password = { env = "THE_SECRET" } }
        """,
        ["search({})"],
        ['send({ to: ["bob@example.com"], subject: "s", text: "t" })'],
    ),
    "mcp": (
        """
        kind = "mcp"
        command = ["{python}", "server.py"]
        folder = "."
        tools_file = "tools.json"
        secret_env = { TOKEN = { env = "THE_SECRET" } }
        tools.look.kind = "read"
        """,
        ['look({ word: "tell" })', 'look({ word: "fail" })'],
        ['change({ word: "fail" })', 'change({ word: "die" })'],
    ),
}

DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "t", "version": "1"},
    "paths": {
        "/look": {"get": {"operationId": "look", "responses": {"200": {"description": "d"}}}},
        "/fail": {"post": {"operationId": "change", "responses": {"200": {"description": "d"}}}},
    },
}


def script(name: str, connector: str, call: str, *, reads: bool) -> str:
    """Make the call, and publish what a read answers."""
    look = f"const heard = await ctx.{connector}.{call};" if reads else "const heard = null;"
    change = "" if reads else f"async mutate(ctx) {{ await ctx.{connector}.{call}; }},"
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


def settings(folder: Path, kind: str, ports: dict[str, int]) -> Path:
    text = dedent(CASES[kind][0])
    for name, value in {**ports, "python": sys.executable}.items():
        text = text.replace(f"{{{name}}}", str(value))
    (folder / "document.json").write_text(json.dumps(DOCUMENT), "utf-8")
    (folder / "server.py").write_text(MCP_SERVER, "utf-8")
    path = folder / "keep.toml"
    path.write_text(f"[connectors.it]\n{text}", "utf-8")
    return path


def kept(db: Path) -> Iterator[str]:
    """All rows of all tables, and the bytes of all files."""
    with closing(sqlite3.connect(db)) as opened:
        for (table,) in opened.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
            for row in opened.execute(f'SELECT * FROM "{table}"'):
                yield "\n".join(each.decode(errors="replace") if isinstance(each, bytes) else str(each) for each in row)
    for path in db.parent.glob("keep.db*"):
        yield path.read_bytes().decode("latin-1")


async def shown(keep: keep_actors.Keep, workflows: list[str]) -> list[str]:
    """All that people are shown."""
    found: list[object] = [await keep.attention()]
    for workflow in workflows:
        found += [await keep.inputs(workflow), await keep.outputs(workflow)]
        found += [await keep.explain(run.id) for run in await keep.runs(workflow)]
    return [repr(each) for each in found]


async def live(db: Path, config: Path, scripts: dict[str, str]) -> list[str]:
    policy = keep_actors.Policy(mutation_timeout_ms=5_000)
    async with keep_actors.open(
        db, connectors=load_configuration(config), policy=policy, sandbox="thread", grants="all"
    ) as keep:
        for source in scripts.values():
            await keep.deploy(source)
        with anyio.fail_after(60):
            for name in scripts:
                while not [run for run in await keep.runs(name) if run.status != "active"]:  # noqa: ASYNC110
                    await anyio.sleep(0.05)
            await keep.wait_idle()
        return await shown(keep, list(scripts))


@pytest.mark.parametrize("kind", CASES)
def test_a_secret_is_nowhere_after_runs_that_fail_everywhere(
    kind: str, ports: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("THE_SECRET", SECRET)
    caplog.set_level(logging.DEBUG)
    config = settings(tmp_path, kind, ports)
    _, reads, changes = CASES[kind]
    scripts = {f"read-{n}": script(f"read-{n}", "it", call, reads=True) for n, call in enumerate(reads)}
    scripts |= {f"change-{n}": script(f"change-{n}", "it", call, reads=False) for n, call in enumerate(changes)}
    said = anyio.run(live, tmp_path / "keep.db", config, scripts)
    places = {"shown": said, "kept": list(kept(tmp_path / "keep.db")), "logged": [caplog.text]}
    found = [
        (place, spelling)
        for place, texts in places.items()
        for spelling in SPELLINGS
        for text in texts
        if spelling in text
    ]
    assert found == []
    assert any("[secret]" in text for text in said), "the service repeated it, and it was taken out"
