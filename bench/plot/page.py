"""Tables of a Markdown page, written between markers from raw results, so that page and results agree."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bench.plot.reading import ABOUT, BadResults, Fields, Results, number, word

_MARKER: Final = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end of the table -->)", re.DOTALL)


def filled(page: str, results: Results) -> str:
    """The page with its tables made again. Raise `BadResults` if a table is unknown or has no rows."""

    def fill(marker: re.Match[str]) -> str:
        name = marker.group(2)
        if name not in TABLES:
            raise BadResults(f"There is no table {name!r}. Tables are: {', '.join(TABLES)}.")
        return f"{marker.group(1)}{TABLES[name](results)}\n{marker.group(3)}"

    return _MARKER.sub(fill, page)


def throughput(results: Results) -> str:
    rows = _rows(results, "medians")
    headings = ("in flight", "system", "units/s (least, most)", "p50 ms", "CPU ms/unit", "PSS MB", "foreign cores")
    cells = [
        (
            _shown(row, "in_flight"),
            word(row, "system"),
            f"{_shown(row, 'units_per_s')} ({_shown(row, 'least_per_s')}, {_shown(row, 'most_per_s')})",
            _shown(row, "p50_ms", 1 if (number(row, "p50_ms") or 0) < 100 else 0),
            _shown(row, "cpu_ms", 1),
            _shown(row, "pss_mb"),
            _shown(row, "foreign_cores", 2),
        )
        for row in rows
    ]
    measured = {word(row, "system"): word(row, "version") for row in _rows(results, "units")}
    versions = "; ".join(f"{system}: {version}" for system, version in measured.items())
    return f"Medians of {word(rows[0], 'repeats')}. {_told(rows)}; {versions}.\n\n{_table(headings, cells)}"


def crash(results: Results) -> str:
    rows = _rows(results, "crash")
    keys = ("effects_at_kill", "accepted_at_kill", "twice", "lost", "asked")
    headings = ("killed at", "system", "effects at the kill", "accepted", *keys[2:], "done after s")
    cells = [
        (
            _shown(row, "kill_after"),
            word(row, "system"),
            *(_shown(row, key) for key in keys),
            _shown(row, "seconds", 1),
        )
        for row in rows
    ]
    return f"{_told(rows)}.\n\n{_table(headings, cells)}"


TABLES: Final[Mapping[str, Callable[[Results], str]]] = {"units per second": throughput, "killed": crash}


def _rows(results: Results, measure: str) -> list[Fields]:
    rows = [row for row in results.rows if (row["benchmark"], row["measure"]) == ("peers", measure)]
    if not rows:
        raise BadResults(f"No row of `bench peers` has the measure {measure!r}, which the page has a table of.")
    return rows


def _told(rows: Sequence[Fields]) -> str:
    """The circumstances of the rows: the first lines of their files, and the versions of the systems."""
    facts = {"machine": "", "python_with_pgo": "profile-guided optimization: ", "date": "", "network": "network: "}
    told = [
        "; ".join(f"{words}{row[ABOUT][fact]}" for fact, words in facts.items() if row[ABOUT].get(fact)) for row in rows
    ]
    return "; ".join(dict.fromkeys(each for each in told if each))


def _shown(row: Fields, key: str, decimals: int = 0) -> str:
    value = number(row, key)
    return "-" if value is None else f"{value:,.{decimals}f}"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
