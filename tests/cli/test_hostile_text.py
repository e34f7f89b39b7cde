"""Every command there is, on a file and with words of an attacker: a terminal shows them and obeys none of them."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import apsw
import click
import pytest
from click.testing import CliRunner

import keep_actors
from keep_actors.cli.exit_codes import Exit
from keep_actors.cli.main import main
from keep_actors.control.protocol import Error, ReplyLine, encode
from keep_storage import Store
from tests.cli.at_work import order
from tests.cli.hostile import HOSTILE, Shop, craft, reached
from tests.cli.operating import KEEP, Shell, impostor, script
from tests.services.mcp import notes_server

CONTEXT = click.Context(main)
NAME = json.dumps(HOSTILE)
BAD_SCRIPT = f"/* {HOSTILE} */ export default Keep.workflow({{ name: {NAME}, consumers: {{ {NAME}: 1 }} }});"
CONNECTOR = '''
from keep_actors import Connector, mutation

HOSTILE = {hostile!r}


class Shop(Connector):
    """A shop. {said}"""

    name = "shop"

    @mutation(identity=["order"], check_hint=HOSTILE)
    async def ship(self, order: str) -> str:
        """Ship it. {said}"""
        raise ValueError(HOSTILE)


def broken() -> None:
    raise RuntimeError(HOSTILE)
'''


def commands() -> Iterator[str]:
    for name in main.list_commands(CONTEXT):
        command = main.get_command(CONTEXT, name)
        if isinstance(command, click.Group):
            yield from (f"{name} {inner}" for inner in command.commands)
        else:
            yield name


@pytest.fixture(scope="module")
def crafted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("crafted")
    return folder / "keep.db", craft(folder / "keep.db")


class Victim:
    """A person in a folder that an attacker has filled, and what there is to name in it."""

    def __init__(self, folder: Path, ids: dict[str, str]) -> None:
        self.folder = folder
        self.ids = ids
        self.db = folder / "keep.db"
        self.script = folder / "bad\x1b[31m\u202e\x9b.js"
        self.script.write_text(BAD_SCRIPT, "utf-8")
        (folder / "hostile_shop.py").write_text(
            CONNECTOR.format(hostile=HOSTILE, said=HOSTILE.encode("unicode_escape").decode()), "utf-8"
        )
        self.good = folder / "good.js"
        self.good.write_text(script("good"), "utf-8")
        tool = {"name": "add", "description": HOSTILE, "inputSchema": {"type": "object", "description": HOSTILE}}
        (folder / "tools.json").write_text(json.dumps([tool, {**tool, "name": HOSTILE}]), "utf-8")
        self.settings = folder / "keep.toml"
        command = [sys.executable, "-I", "-S", str(Path(notes_server.__file__)), str(folder), ""]
        section = f'kind = "mcp"\ncommand = {json.dumps(command)}\ntools_file = "granted.json"\n'
        self.settings.write_text(f"[connectors.tools]\n{section}", "utf-8")

    def run(self, *words: str) -> str:
        """All that a command writes, wherever to."""
        done = CliRunner().invoke(main, words, env={"KEEP_DB": str(self.db), "LOGNAME": "olga"})
        assert done.exception is None or isinstance(done.exception, SystemExit), (words, done.exception)
        return f"{done.stdout}\n{done.stderr}"


@pytest.fixture
def victim(crafted: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Victim:
    file, ids = crafted
    shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    return Victim(tmp_path, ids)


THREAD = ("--sandbox", "thread")
SHOP = ("--connectors", "hostile_shop:Shop")
NAMED = HOSTILE + " that is not there"

WALKS: dict[str, Callable[[Victim], list[tuple[str, ...]]]] = {
    "accept-proposal": lambda v: [(v.ids["proposal"], "--accept"), (NAMED,)],
    "amend": lambda v: [(v.ids["unknown"], "--result", f'"{NAMED}"'), (NAMED, "--result", "1")],
    "approve": lambda v: [(v.ids["approval"],), ("--all",), ("--all", "--yes"), (NAMED,), ("--workflow", NAMED)],
    "archive": lambda v: [(v.ids["workflow"], "--yes"), (NAMED, "--yes")],
    "attention": lambda v: [(), ("--workflow", v.ids["lost"]), ("--workflow", NAMED)],
    "backup": lambda v: [(str(v.folder / "copy\x1b[31m\u202e"),), (str(v.folder / "\x9b" / "none"),)],
    "certify": lambda _: [(f"{NAMED}:x",), ("hostile_shop:Shop",), ("hostile_shop:Shop", "--only", NAMED)],
    "check": lambda v: [(str(v.script), *THREAD), (str(v.script), *THREAD, *SHOP), (NAMED, *THREAD)],
    "clear-error": lambda v: [(v.ids["lost"], "--why", HOSTILE), (NAMED,)],
    "connector new": lambda v: [(NAMED, "--dir", str(v.folder / "new")), ("parcels", "--dir", str(v.script))],
    "connectors": lambda _: [(), SHOP, ("--connectors", NAMED)],
    "demo": lambda v: [("--dir", str(v.folder), "--fast")],
    "deploy": lambda v: [
        (str(v.script), "--accept"),
        (str(v.script), "--accept", "--author", HOSTILE),
        (str(v.script), "--workflow", NAMED),
        (str(v.script), "--workflow", NAMED, "--new"),
        (NAMED,),
    ],
    "doctor": lambda v: [(str(v.db),), (NAMED,), (str(v.script),)],
    "dry-run": lambda v: [
        (str(v.script), "--db", str(v.db), *THREAD, *SHOP),
        (str(v.script), "--db", str(v.db), *THREAD, *SHOP, "--producer", NAMED),
        (str(v.script), "--db", str(v.db), *THREAD, *SHOP, "--workflow", NAMED),
        (str(v.script), "--db", str(v.db), *THREAD, "--connectors", NAMED),
        (str(v.script), "--db", str(v.db), *THREAD, "--connectors", "hostile_shop:broken"),
    ],
    "explain": lambda v: [*((v.ids[each],) for each in ("run", "unknown", "approval", "event")), (NAMED,)],
    "grant": lambda v: [(v.ids["workflow"], NAMED)],
    "inputs": lambda v: [(v.ids["workflow"],), (v.ids["lost"],), (NAMED,)],
    "items": lambda v: [(v.ids["job"],), (v.ids["job"], v.ids["item"]), (v.ids["job"], NAMED)],
    "log": lambda v: [(), (v.ids["lost"],), ("--follow",)],
    "mcp": lambda _: [("--name", NAMED), ("--connectors", NAMED), ("--connectors", "hostile_shop:broken")],
    "mcp-tools": lambda v: [(NAMED, "--config", str(v.settings)), ("tools", "--config", str(v.settings))],
    "outputs": lambda v: [(v.ids["workflow"],), (v.ids["lost"],), (v.ids["job"],)],
    "pause": lambda v: [(v.ids["workflow"],), (NAMED,)],
    "prompt": lambda _: [(*SHOP, "--task", NAMED.replace("\n", " "))],
    "proposals": lambda v: [(), (v.ids["proposal"],), (v.ids["proposal"], *THREAD, *SHOP), (NAMED,)],
    "propose": lambda v: [
        (str(v.script), *THREAD),
        (str(v.script), *THREAD, "--by", HOSTILE),
        (str(v.good), *THREAD, "--workflow", NAMED),
        (str(v.good), *THREAD, "--note", HOSTILE, "--from", NAMED),
    ],
    "publish": lambda v: [(v.ids["workflow"], NAMED, NAMED, "--payload", f'"{NAMED}"')],
    "reject": lambda v: [(v.ids["approval"], "--why", HOSTILE), ("--all",), ("--all", "--yes"), (NAMED,)],
    "reject-proposal": lambda v: [(v.ids["proposal"], "--why", HOSTILE), (NAMED, "--why", HOSTILE)],
    "repair accept": lambda v: [(v.ids["lost"], NAMED)],
    "repair refuse": lambda v: [(v.ids["lost"], "--why", NAMED)],
    "repair show": lambda v: [(v.ids["lost"],), (v.ids["workflow"],), (NAMED,)],
    "reprocess-item": lambda v: [(v.ids["job"], v.ids["item"]), (v.ids["job"], "--state", "failed"), (NAMED, "x")],
    "resolve": lambda v: [(v.ids["unknown"], "happened", "--result", f'"{NAMED}"', "--why", HOSTILE), (NAMED,)],
    "resume": lambda v: [(v.ids["workflow"],), (NAMED,)],
    "revoke": lambda v: [(v.ids["workflow"], NAMED)],
    "rollback": lambda v: [(v.ids["workflow"], NAMED)],
    "run": lambda v: [
        (str(v.script), "--once", *THREAD, *SHOP, "--db", "other.db"),
        ("--once", *THREAD, "--connectors", NAMED),
        ("--once", *THREAD, "--connectors", "hostile_shop:broken"),
    ],
    "run-now": lambda v: [(v.ids["workflow"],)],
    "runs": lambda v: [(v.ids["workflow"],), (v.ids["lost"],), (v.ids["job"],)],
    "skip-event": lambda v: [(v.ids["workflow"], NAMED, NAMED)],
    "skip-item": lambda v: [(v.ids["job"], v.ids["item"]), (v.ids["job"], "--state", "failed")],
    "status": lambda v: [(), (v.ids["lost"],), (v.ids["workflow"],), (v.ids["job"],), (NAMED,)],
    "stop": lambda v: [(v.ids["workflow"], "--why", HOSTILE)],
    "types": lambda v: [SHOP, (*SHOP, "--out", str(v.folder / "\x9b\u202e" / "keep.d.ts"))],
    "unarchive": lambda v: [(v.ids["workflow"],), (NAMED,)],
}


def test_the_walk_goes_through_every_command_there_is() -> None:
    assert set(WALKS) == set(commands())


@pytest.mark.parametrize("command", sorted(WALKS))
def test_no_text_of_a_stranger_is_obeyed_by_the_terminal(victim: Victim, command: str) -> None:
    for words in WALKS[command](victim):
        for more in ((), ("--json",)):
            said = victim.run(*command.split(), *words, *more)
            assert reached(said) == [], (words, more, said)


ASK_NOBODY = {
    *("backup", "certify", "check", "connector new", "connectors", "demo", "doctor", "dry-run", "mcp", "mcp-tools"),
    *("prompt", "run", "types"),
}


@pytest.mark.parametrize("command", sorted(WALKS.keys() - ASK_NOBODY))
def test_nor_is_what_a_runtime_says_that_an_attacker_has_in_hand(victim: Victim, command: str) -> None:
    with impostor(victim.db) as listener:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(1 << 20)
                        connection.sendall(encode(ReplyLine(error=Error("refused", HOSTILE, HOSTILE, HOSTILE))))

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        for words in WALKS[command](victim):
            for more in ((), ("--json",)):
                said = victim.run(*command.split(), *words, *more)
                assert reached(said) == [], (words, more, said)
        listener.shutdown(2)
        thread.join(5)


def test_the_doctor_obeys_no_name_of_a_crafted_file(tmp_path: Path) -> None:
    db = tmp_path / "keep.db"
    Store.open(db).close()
    connection = apsw.Connection(str(db))
    connection.execute(f'CREATE TABLE "{HOSTILE}" (x TEXT REFERENCES workflows (id))')
    connection.execute(f"""INSERT INTO "{HOSTILE}" VALUES ('nowhere')""")
    connection.close()
    for words in ((), ("--json",)):
        done = CliRunner().invoke(main, ["doctor", str(db), *words])
        assert done.exit_code == Exit.WRONG
        assert reached(done.output) == [], done.output
        if words:
            assert any("owned" in each for each in json.loads(done.stdout)["problems"])


def test_a_value_in_json_is_the_same_after_all(victim: Victim) -> None:
    done = CliRunner().invoke(main, ["inputs", victim.ids["workflow"], "--json"], env={"KEEP_DB": str(victim.db)})
    assert {json.loads(line)["message_id"] for line in done.stdout.splitlines()} == {f"a{HOSTILE}", f"b{HOSTILE}"}


def test_tracebacks_and_log_lines_of_connectors_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "shop.py").write_text(CONNECTOR.format(hostile=HOSTILE, said=""), "utf-8")
    anyio.run(_order_while_it_is_paused, shell.db)
    shell.keep("resume", "orders")
    done = shell.call("run", "--connectors", "shop:Shop", "--once")
    assert done.returncode == Exit.WAITING
    assert "Traceback" in done.stderr
    assert reached(done.stdout) == []
    assert reached(done.stderr) == []


async def _order_while_it_is_paused(db: Path) -> None:
    async with keep_actors.open(db, connectors=[Shop()], sandbox="thread", grants="all") as keep:
        await keep.deploy(script("orders"))
        await keep.pause("orders", by="ann")
        await order(keep, "orders", "o1")


def test_a_bug_of_our_own_is_told_in_plain_text_too(tmp_path: Path) -> None:
    (tmp_path / "trap.py").write_text(f"class Trap(BaseException): ...\nraise Trap({HOSTILE!r})", "utf-8")
    done = subprocess.run(
        [KEEP, "types", "--connectors", "trap:x"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" in done.stderr
    assert reached(done.stderr) == []
