"""`python -m bench plot FILE.jsonl... [--to FOLDER] [--page PAGE.md]`: figures and tables from raw results.

Figures are SVG, made from what is there. Tables are written into a Markdown page, between its markers.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.plot.figures import figures
from bench.plot.page import filled
from bench.plot.reading import BadResults, Results, read


def main(arguments: Sequence[str]) -> int:
    """Write the figures; 1 if there is nothing to draw, 2 if a file is no file of results."""
    parser = argparse.ArgumentParser(prog="python -m bench plot", description="Draw figures from raw results, as SVG.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.jsonl", help="what `bench NAME --json` printed")
    parser.add_argument(
        "--to", type=Path, metavar="FOLDER", help="where the figures go; beside the first file if left out"
    )
    parser.add_argument("--page", type=Path, metavar="PAGE.md", help="write the tables between its markers again")
    chosen = parser.parse_args(arguments)
    folder: Path = chosen.to or chosen.files[0].parent
    try:
        results = read(chosen.files)
        if chosen.page:
            chosen.page.write_text(filled(chosen.page.read_text("utf-8"), results), "utf-8")
            print(chosen.page)
    except BadResults as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if _drawn(results, folder) or chosen.page else 1


def _drawn(results: Results, folder: Path) -> int:
    """Write the figures that can be drawn; return how many."""
    written = 0
    for figure in figures(results):
        path = folder / f"{figure.name}.svg"
        if figure.missing:
            print(f"no {path.name}: {figure.missing}")
            continue
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(figure.svg, "utf-8")
        print(path)
        written += 1
    return written
