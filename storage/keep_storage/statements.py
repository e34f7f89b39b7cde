"""The SQL of this package, by name, from its `.sql` files."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_FOLDER: Final = Path(__file__).parent / "sql"
"""By its path: `importlib.resources` would load archives and temporary files, at every start of a command line."""

_NAME: Final = re.compile(r"^-- name: (\w+)(?: \((\w+)\))?\s*$", re.MULTILINE)


class Statement(NamedTuple):
    """A named statement, the line that says what it is for, and its mark, if it has one."""

    name: str
    purpose: str
    sql: str
    mark: str


def text(path: str) -> str:
    """A file under `sql/`."""
    return (_FOLDER / path).read_text("utf-8")


def parse(source: str) -> dict[str, Statement]:
    """The statements of a file: `-- name: word (mark)`, comment lines that say why, the statement."""
    starts = list(_NAME.finditer(source))
    found: dict[str, Statement] = {}
    for start, end in zip(starts, [*(each.start() for each in starts[1:]), len(source)], strict=True):
        lines = source[start.end() : end].strip().splitlines()
        words = [line.removeprefix("--").strip() for line in lines if line.startswith("--")]
        sql = "\n".join(line for line in lines if not line.startswith("--")).strip()
        name, mark = start.group(1), start.group(2) or ""
        assert words, f"{name} does not say what it is for"
        assert sql.endswith(";"), f"{name} does not end"
        assert name not in found, f"two statements are called {name}"
        found[name] = Statement(name, " ".join(words), sql.removesuffix(";"), mark)
    return found


@cache
def queries() -> Mapping[str, Statement]:
    return parse(text("queries.sql"))


@cache
def views() -> Mapping[str, Statement]:
    """The temporary views that queries ask."""
    return parse(text("views.sql"))


@cache
def invariants() -> Mapping[str, Statement]:
    return parse(text("invariants.sql"))


@cache
def migrations() -> tuple[str, ...]:
    """Every migration in order: the first makes version 1 out of nothing."""
    folder = _FOLDER / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1)), "migrations are numbered from 1"
    return tuple((folder / name).read_text("utf-8") for name in names)
