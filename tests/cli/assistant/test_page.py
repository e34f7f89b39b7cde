"""docs/assistant.md: its tables are those of the code, and the command that it names for a client is there."""

import json
import re
from pathlib import Path

import click

from keep_actors.cli.assistant import arguments, server
from keep_actors.cli.assistant.tools import TOOLS
from keep_actors.cli.main import main
from keep_storage import limits

PAGE = (Path(__file__).parents[3] / "docs" / "assistant.md").read_text("utf-8")


def table(header: str) -> list[list[str]]:
    lines = PAGE.partition(f"\n| {header} |")[2].partition("\n\n")[0].splitlines()[2:]
    assert lines
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_lists_exactly_the_tools_there_are() -> None:
    assert {name for row in table("tool") for name in re.findall(r"`(\w+)`", row[0])} == set(TOOLS)


def test_the_options_are_those_of_the_command() -> None:
    command = main.get_command(click.Context(main), "mcp")
    assert command is not None
    there = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    assert {option for row in table("option") for option in re.findall(r"`(--[a-z]+)", row[0])} == there - {
        "--no-reads"
    }


def test_what_a_client_is_told_to_start_is_understood() -> None:
    block = json.loads(PAGE.partition("```json\n")[2].partition("```")[0])
    [server_entry] = block["mcpServers"].values()
    name, *words = server_entry["args"]
    command = main.get_command(click.Context(main), name)
    assert (server_entry["command"], name) == ("keep", "mcp")
    assert command is not None
    options = dict(zip(words[::2], words[1::2], strict=True))
    assert set(options) <= {option for each in command.params for option in each.opts}


def test_the_limits_are_those_of_the_code() -> None:
    said = dict(table("what"))
    assert said["entries of one page"] == str(arguments.LIMIT_MAX)
    assert said["a tool"] == f"{server.TOOL_S} s"
    assert said["an answer"].startswith(f"{server.ANSWER_BYTES_MAX // 1_000_000} MB")
    assert said["tools at work"].startswith(f"{server.AT_ONCE}; {server.WAITING_MAX} more")
    sizes = f"{limits.PROPOSAL_SOURCE_CHARS_MAX:,} and {limits.PROPOSAL_NOTE_CHARS_MAX:,} characters"
    assert said["a script, a note"] == sizes
    days = limits.PROPOSAL_OPEN_MS // 86_400_000
    assert said["proposals that are open"] == f"{limits.PROPOSALS_OPEN_MAX}, each for {days} days"
    assert said["proposals in 24 hours"] == str(limits.PROPOSALS_A_DAY_MAX)
