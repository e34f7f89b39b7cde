"""The list of commands, their exit codes and their help: what the documentation says is what there is."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import click
import pytest

import keep_actors
from keep_actors.api.commands import COMMANDS
from keep_actors.cli.exit_codes import MEANING
from keep_actors.cli.main import main
from keep_actors.control.server import Patience
from tests.cli.operating import KEEP
from tests.runtime.world import script

DOCS = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
CONTEXT = click.Context(main)

NO_JSON = {"connector", "repair", "types", "prompt", "mcp"}
"""Groups, whose commands are asked; two whose answer is a text for somebody else; a server with its own protocol."""


def commands() -> Iterator[tuple[str, click.Command]]:
    for name in main.list_commands(CONTEXT):
        command = main.get_command(CONTEXT, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", each) for inner, each in command.commands.items())


def rows(header: str) -> list[list[str]]:
    lines = DOCS.partition(f"\n| {header} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_documentation_lists_exactly_the_commands_there_are() -> None:
    listed = [row[0].strip("`").removeprefix("keep ") for row in rows("command")]
    assert sorted(listed) == main.list_commands(CONTEXT)
    assert len(set(listed)) == len(listed)


def test_the_documentation_says_which_commands_are_written_without_a_runtime() -> None:
    written = {row[0].strip("`").removeprefix("keep ") for row in rows("command") if "is written" in row[2]}
    declared = {str(each.__struct_config__.tag).replace("_", "-") for each in COMMANDS if not each.needs_runtime}
    assert written == declared


def test_the_table_of_exit_codes_is_that_of_the_code() -> None:
    assert [(int(code), words) for code, words in rows("code")] == [(int(code), MEANING[code]) for code in MEANING]


def test_the_patience_of_the_socket_is_that_of_the_code() -> None:
    patience = Patience()
    said = DOCS.partition("A client that hangs")[2].partition("\n")[0]
    assert [int(each) for each in re.findall(r"\d+", said)] == [
        patience.request_s,
        patience.answer_s,
        patience.entry_s / 60,
        patience.connections_max,
    ]


@pytest.mark.parametrize(("name", "command"), list(commands()), ids=[name for name, _ in commands()])
def test_every_command_says_what_it_does_with_an_example_and_can_speak_json(name: str, command: click.Command) -> None:
    assert command.help
    group = name.partition(" ")[0]
    outer = main.get_command(CONTEXT, group)
    assert outer is not None
    assert f"keep {name}" in (outer.help or ""), "there is an example of it"
    if name not in NO_JSON:
        assert any("--json" in each.opts for each in command.params)


def test_the_names_of_workflows_are_completed_from_the_database(tmp_path: Path) -> None:
    db = tmp_path / "keep.db"

    async def fill() -> None:
        async with keep_actors.open(db, sandbox="thread") as keep:
            for name in ("mail to sheets", "mail to rows", "orders"):
                await keep.deploy(script(name=name, prepare="return { reservations: [] };"))

    anyio.run(fill)
    words = {"COMP_WORDS": f"keep pause --db {db} mai", "COMP_CWORD": "4", "_KEEP_COMPLETE": "bash_complete"}
    done = subprocess.run([KEEP], env=os.environ | words, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["plain,mail to sheets", "plain,mail to rows"]
    none = subprocess.run(
        [KEEP], env=os.environ | words | {"COMP_WORDS": "keep pause --db none.db mai"}, capture_output=True, check=False
    )
    assert (none.stdout.strip(), none.stderr) == (b"", b"")


HEAVY = {
    "anyio",
    "asyncio",
    "difflib",
    "keep_actors.api.keep",
    "keep_actors.connectors",
    "keep_storage.manager",
    "keep_sandbox.engine",
}


@pytest.mark.parametrize("module", ["status", "history"])
def test_a_command_that_only_looks_loads_no_runtime(module: str) -> None:
    program = f"import sys, keep_actors.cli.main, keep_actors.cli.{module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "keep_storage.reads" in loaded
    assert loaded & HEAVY == set()
