"""Every block of the documentation is executed, or checked as far as it can be; a kind that nobody knows fails.

The blocks of a page run in order, in a folder of their own, and share their names, as a reader would run them. What
they print is compared with the block behind them.
"""

import ast
import inspect
import io
import os
import re
import subprocess
import sys
import tomllib
import types
from collections.abc import Callable
from contextlib import ExitStack, redirect_stdout
from pathlib import Path

import anyio.from_thread
import msgspec
import pglast
import pytest

from examples.connectors import demo
from keep_actors.connectors import Catalog
from keep_sandbox.inspect import inspect as inspect_script
from tests.docs import commands
from tests.docs.pages import PAGES, Block, all_blocks, blocks_of
from tests.docs.setups import AS_PROGRAM, MODULES, SETUPS, Page
from tests.docs.shown import SHOWN

# Blocks that are what they are, wherever they stand.


def _script(block: Block) -> None:
    kinds = {**Catalog(demo()).kinds(), "mailbox.send": "mutation", "tickets.listTickets": "read"}
    assert inspect_script(block.text, kinds).problems == []


def _chart(block: Block) -> None:
    """The tables behind the charts are compared by tests/test_house.py."""
    first, *lines = block.text.splitlines()
    assert first == "stateDiagram-v2"
    assert all(re.fullmatch(r"  (%% \w+|\w+ --> \w+)", line) for line in lines)


def _json(block: Block) -> None:
    for line in block.text.splitlines() if "\n{" in block.text else [block.text]:
        msgspec.json.decode(line)


def _toml(block: Block) -> None:
    assert tomllib.loads(block.text)


def _sql(block: Block) -> None:
    pglast.parse_sql(block.text)


READ: dict[str, Callable[[Block], None]] = {
    "js": _script,
    "json": _json,
    "mermaid": _chart,
    "sql": _sql,
    "toml": _toml,
}
"""Kinds that are checked by themselves. A `js` that the page saves as a file is run there, too."""


@pytest.mark.parametrize("block", [each for each in all_blocks() if each.language in READ], ids=str)
def test_what_is_shown_is_valid(block: Block) -> None:
    READ[block.language](block)


# Blocks that run.


class Story(Page):
    """A page that is being run. `printed` is what the last block printed, if it ran."""

    printed: str | None = None
    backend = "asyncio"

    def run(self, block: Block) -> None:
        if block.word == "setup":
            SETUPS[block.about](self)
        if block.word == "file":
            (self.folder / block.about).write_text(block.text, "utf-8")
            self.printed = None
        else:
            RUN[block.language](self, block)

    def python(self, block: Block) -> None:
        code = AS_PROGRAM.sub(rf'anyio.run(\1, backend="{self.backend}")', block.text)
        compiled = compile(code, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with redirect_stdout(io.StringIO()) as printed:
            if compiled.co_flags & inspect.CO_COROUTINE:
                self.portal.call(types.FunctionType(compiled, self.names))
            else:
                exec(compiled, self.names)
        self.printed = printed.getvalue()
        module = self.folder / MODULES.get(block.page, "")
        if block.page in MODULES and not module.exists():
            module.write_text(AS_PROGRAM.sub("", block.text), "utf-8")

    def shell(self, block: Block) -> None:
        self.printed = ""
        for command in commands.commands(block.text):
            if commands.is_run(command, self.folder):
                self.printed += self._run(command)
            else:
                commands.check(command)

    def _run(self, command: str) -> str:
        said = re.search(r"# exits with (\d+)$", command)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            # `-c` alone would become the command itself, and a signal would be told differently than in a shell.
            ["bash", "-c", f"{command}\nexit $?"],
            cwd=self.folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == (int(said[1]) if said else 0), f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def output(self, block: Block) -> None:
        assert self.printed is not None, "output stands behind the block that prints it"
        assert block.text == self.printed
        self.printed = None

    def unnamed(self, block: Block) -> None:
        """A drawing, commands that are shown, or output: of the block before it, or made again by `shown.py`."""
        shown = [make for (page, begin), make in SHOWN.items() if page == block.page and block.text.startswith(begin)]
        if shown:
            made = shown[0](self.folder)
            assert made is None or made == block.text
        elif commands.is_session(block.text):
            for command in commands.commands(block.text):
                commands.check(command)
            self.printed = None
        elif not block.is_drawing:
            self.output(block)


RUN: dict[str, Callable[[Story, Block], None]] = {
    "python": Story.python,
    "sh": Story.shell,
    "text": Story.output,
    "": Story.unnamed,
}


def test_every_kind_of_block_is_known() -> None:
    assert {f"{each} is {each.language!r}" for each in all_blocks() if each.language not in {*READ, *RUN}} == set()
    assert {f"{each}: {each.word}" for each in all_blocks() if each.word not in ("", "setup", "file")} == set()
    assert {each.about for each in all_blocks() if each.word == "setup"} == set(SETUPS), "none is missing, none is idle"


def _runs(page: Path) -> bool:
    return any(each.language in RUN for each in blocks_of(page))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("page", [page for page in PAGES if _runs(page)], ids=lambda page: page.name)
def test_what_a_page_shows_runs_and_prints_what_it_says(
    page: Path, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    module = types.ModuleType("documented")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    before = set(sys.modules)
    with ExitStack() as undo:
        portal = undo.enter_context(anyio.from_thread.start_blocking_portal(backend))
        story = Story(tmp_path, portal, undo, monkeypatch)
        story.backend = backend
        story.names = vars(module)
        for block in blocks_of(page):
            if block.language in RUN or block.word == "file":
                try:
                    story.run(block)
                except Exception as error:
                    error.add_note(f"in the block at {block}")
                    raise
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
