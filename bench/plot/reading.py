"""Read raw results: the JSON lines of `python -m bench NAME --json`. Fields that no figure needs may be missing."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

_HOW: Final = "Write the file again with `python -m bench NAME --json > FILE.jsonl`."

Fields = Mapping[str, Any]


class BadResults(Exception):
    """A file that is no file of results: what is wrong, where, and what to do."""


class Results(NamedTuple):
    """The rows of all files."""

    rows: list[Fields]


ABOUT: Final = "about"
"""The key of a row for the first line of its file: the machine, the versions, the date. Empty if there is none."""


def read(paths: Sequence[Path]) -> Results:
    results = Results([])
    for path in paths:
        try:
            text = path.read_text("utf-8")
        except OSError as error:
            raise BadResults(f"{path} cannot be read ({error.strerror}). Name files of raw results.") from error
        except UnicodeDecodeError as error:
            raise BadResults(f"{path} is not text in UTF-8, at byte {error.start}. {_HOW}") from error
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        if not lines:
            raise BadResults(f"{path} is empty: the benchmark has written nothing. {_HOW}")
        about: Fields = {}
        for number, line in lines:
            fields = _fields(f"{path}, line {number}", line)
            if fields["measure"] == ABOUT:
                about = fields
            elif "goal" not in fields and "promise" not in fields:
                results.rows.append({**fields, ABOUT: about})
    return results


def _fields(where: str, line: str) -> Fields:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise BadResults(f"{where}: this is not JSON ({error}). {_HOW}") from error
    if not isinstance(fields, dict):
        raise BadResults(f"{where}: this is JSON, but no object. {_HOW}")
    for key in ("benchmark", "measure"):
        if not isinstance(fields.get(key), str):
            raise BadResults(f'{where}: the object has no text "{key}", so it is no result of a benchmark. {_HOW}')
    return fields


def number(fields: Fields, key: str) -> float | None:
    """A number of a row; None if it is missing, or is none."""
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def word(fields: Fields, key: str) -> str:
    """A field as people read it: numbers without needless digits, `-` if it is missing."""
    value = fields.get(key)
    if value is None:
        return "-"
    return short(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def short(value: float) -> str:
    """Three digits that count, with thousands separated."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
