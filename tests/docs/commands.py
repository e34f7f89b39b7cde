"""Commands that the documentation shows: which are run, which are only checked, and why."""

import importlib.util
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path

import click

from bench.__main__ import BENCHMARKS, PLOT
from keep_actors.cli.main import main
from tests.docs.pages import ROOT

RUN = {"keep", "cat", "python"}
"""In a block marked `sh` these are run, in the folder of the page; `python` unless it is in `CHECKED`."""


def _keep(words: list[str]) -> None:
    """The command exists, and so do its options."""
    context = click.Context(main, info_name="keep")
    command: click.Command = main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        found = command.get_command(context, name)
        assert found, f"there is no command `keep {name}`"
        command = found
    known = {option for each in command.get_params(context) for option in (*each.opts, *each.secondary_opts)}
    unknown = {word.partition("=")[0] for word in words if word.startswith("-") and word != "-"} - known
    assert not unknown, f"`keep {command.name}` has no {', '.join(sorted(unknown))}"


def _pip(words: list[str]) -> None:
    """The extras exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for word in words:
        name, bracket, extras = word.partition("[")
        if bracket and name in (".", "keep-actors"):
            assert set(extras.rstrip("]").split(",")) <= set(project["optional-dependencies"]), word


def _bench(words: list[str]) -> None:
    [name, *options] = words[: words.index(">")] if ">" in words else words
    if name == PLOT:
        assert {option for option in options if option.startswith("-")} <= {"--to", "--page"}
        return
    assert name in BENCHMARKS
    assert set(options) <= {"--quick", "--json", *(("--crash",) if name == "peers" else ())}


def _module(words: list[str]) -> None:
    assert importlib.util.find_spec(words[0]), f"there is no module {words[0]}"


def _site(words: list[str]) -> None:
    assert words == ["-W", "docs", "site"], "tests/docs/test_site.py builds it like this"


def _nothing(_: list[str]) -> None:
    """Another program's business."""


CHECKED: dict[str, tuple[str, Callable[[list[str]], None]]] = {
    "python3 -m venv": ("installs; `.ci/run` runs the README's", _nothing),
    "pip install": ("installs", _pip),
    ".": ("the reader's shell", _nothing),
    "python -m": ("takes long; the module is there, and has tests", _module),
    "python -m examples.at_work": ("takes long; tests/examples runs it", _nothing),
    "python -m bench": ("takes long; tests/bench runs it", _bench),
    "python examples/kill_between.py": ("tests/test_house.py runs it", _nothing),
    "python -m pytest": ("these tests", _nothing),
    "pip-audit": ("needs a network; `.ci/run` tries it", _nothing),
    "sphinx-build": ("tests/docs/test_site.py runs it", _site),
    "uvicorn": ("serves until it is stopped; tests/runtime/test_embedding.py runs one", _nothing),
    "curl": ("needs that service; the page's Python asks the same", _nothing),
    "keep": ("parsed: in a block without a language it is shown, not run", _keep),
    "export": ("the reader's shell", _nothing),
    "eval": ("the reader's shell; what it evaluates is checked by tests/cli", _nothing),
    "source": ("the reader's shell", _nothing),
    "npx tsc": ("not installed by pip; tests that have it run it", _nothing),
    "your-model": ("the reader's", _nothing),
}
"""What is not run here: the beginning of the command, why not, and what is checked instead."""


def commands(text: str) -> list[str]:
    """The commands of a block: every line, or if it is a session those behind a `$`."""
    lines = text.splitlines()
    prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return prompted or [line for line in lines if line.strip()]


def is_session(text: str) -> bool:
    """Whether a block without a language shows commands."""
    return text.startswith("$ ") or _checked(_parts(commands(text)[0])[0]) is not None


def is_run(command: str, folder: Path) -> bool:
    words = shlex.split(command, comments=True)
    local = len(words) > 1 and (folder / words[1]).is_file()
    return words[0] in RUN and (words[0] != "python" or local)


def check(command: str) -> None:
    """Each part of a command that is not run is one of those that are known."""
    for part in _parts(command):
        found = _checked(part)
        assert found, f"`{command}` begins with nothing that tests/docs/commands.py knows"
        start, (_, look) = found
        look(part[len(start.split()) :])


def _parts(command: str) -> list[list[str]]:
    """What stands between `&&` and `|`, in words, without folders of programs, redirections and settings before it."""
    split = [shlex.split(part, comments=True) for part in re.split(r"&&|\|", re.sub(r'"\$\(.*?\)"', "", command))]
    parts = []
    for words in split:
        while words and re.fullmatch(r"_?[A-Z_]+=.*", words[0]):
            words = words[1:]
        words = words[: words.index(">")] if ">" in words else words
        parts.append([re.sub(r"^\.venv/bin/", "", words[0]), *words[1:]])
    return parts


def _checked(words: list[str]) -> tuple[str, tuple[str, Callable[[list[str]], None]]] | None:
    starts = [start for start in CHECKED if words[: len(start.split())] == start.split()]
    return (best := max(starts, key=len), CHECKED[best]) if starts else None
