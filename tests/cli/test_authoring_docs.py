"""docs/authoring.md and the commands say the same."""

import re
from pathlib import Path

import click
import pytest

from keep_actors.authoring.dry_run.backlog import EVENTS_MAX
from keep_actors.cli.main import main

TEXT = (Path(__file__).parents[2] / "docs" / "authoring.md").read_text("utf-8")
COMMANDS = ("check", "types", "prompt", "dry-run")


def command(name: str) -> click.Command:
    found = main.get_command(click.Context(main), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_documented(name: str) -> None:
    section = TEXT.partition(f"## `keep {name}")[2].partition("\n## ")[0]
    rows = [row.partition("|")[0] for row in section.partition("| option |")[2].partition("\n\n")[0].split("\n| ")[2:]]
    written = {option for row in rows for option in re.findall(r"--[a-z-]+", row)}
    options = [each for each in command(name).params if isinstance(each, click.Option)]
    assert written == {spelled for each in options for spelled in (*each.opts, *each.secondary_opts)}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_how_it_exits(name: str) -> None:
    assert "Exits with 0" in (command(name).help or "")


def test_the_bound_on_events_is_that_of_the_code() -> None:
    assert f"the first {EVENTS_MAX:,} of a topic" in TEXT
