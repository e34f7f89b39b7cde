"""The certifications of the connectors that are there, their badges, and the table of docs/certification.md.

`python -m tests.services.certified` tries all of them, or those that it is given the names of, and writes badges and
table.
"""

import inspect
import logging
import pkgutil
import re
import shutil
import sys
from collections.abc import Collection, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

import anyio

import tests.services
from keep_actors.services.configuration import KINDS
from keep_actors.testing.certification import Certification, CertificationTable, RowOutcome, certify
from keep_actors.testing.certification.badge import badge
from tests.services.servers.postgres import programs

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = DOCS / "certification.md"
BADGES: Final = DOCS / "pictures" / "certified"
BEGIN: Final = "<!-- written by: python -m tests.services.certified -->\n"
HEADINGS: Final = "| certification | about | mutations | held | do not apply | |\n"
BACKENDS: Final = ("asyncio", "trio")


class CertifiedKind(NamedTuple):
    """One certification of a kind of connectors."""

    kind: str
    subject: type[Certification]
    backend: str

    @property
    def name(self) -> str:
        """Its name for files and badges: `http-replay`."""
        short = self.subject.__name__.removesuffix("Certification")
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", short).lower().replace("open-api", "openapi")
        has_kind = words == self.kind or words.startswith(f"{self.kind}-")
        return words if has_kind else f"{self.kind}-{words.removesuffix(f'-{self.kind}')}"

    @property
    def badge(self) -> Path:
        """The file of its badge."""
        return BADGES / f"{self.name}.svg"

    @property
    def missing(self) -> str:
        """The program that it needs and that is not here."""
        if self.kind == "mail" and not (shutil.which("dovecot") or shutil.which("dovecot", path="/usr/sbin")):
            return "dovecot"
        return "PostgreSQL" if self.name == "sql-postgres" and programs() is None else ""

    def drawn(self, table: CertificationTable) -> str:
        """The badge of a result."""
        return badge(table, f"keep {self.name}")

    def line(self, table: CertificationTable) -> str:
        """The result as a line of the table in the docs."""
        held, skipped = len(table.held), len(table.of(RowOutcome.DOES_NOT_APPLY))
        methods = ", ".join(
            f"`{name.partition('.')[2]}`" for name in dict.fromkeys(row.method for row in table.results)
        )
        about = (self.subject.__doc__ or "").partition("\n")[0]
        picture = f"![{self.name}: {table.counts}](pictures/certified/{self.badge.name})"
        return f"| {self.name} | {about} | {methods} | {held} | {skipped} | {picture} |\n"


def certified_kinds() -> list[CertifiedKind]:
    """Every certification below tests/services, by kind. New ones join by themselves."""
    found = [(kind, subject) for kind in KINDS for subject in _subjects(kind)]
    return [CertifiedKind(kind, subject, BACKENDS[place % 2]) for place, (kind, subject) in enumerate(found)]


def _subjects(kind: str) -> Iterator[type[Certification]]:
    if kind not in {each.name for each in pkgutil.iter_modules(tests.services.__path__)}:
        return
    name = f"tests.services.{kind}.subject"
    if find_spec(name) is None:
        return
    for value in vars(import_module(name)).values():
        if not isinstance(value, type) or not issubclass(value, Certification) or value.__module__ != name:
            continue
        if not inspect.isabstract(value) and not value.__name__.startswith("_"):
            yield value


def table_of(lines: Collection[str]) -> str:
    """The table in the docs."""
    return "".join([BEGIN, "\n", HEADINGS, "| --- | --- | --- | --- | --- | --- |\n", *lines])


def lines_in_the_docs() -> dict[str, str]:
    """The lines of the table in the docs, by name."""
    _, _, table = PAGE.read_text("utf-8").partition(BEGIN)
    rows = [f"{line}\n" for line in table.lstrip("\n").partition("\n\n")[0].splitlines()[2:]]
    return {row.split("|")[1].strip(): row for row in rows}


def main(names: Collection[str]) -> None:
    """Try those with these names, or all, and write what came of it."""
    logging.disable(logging.CRITICAL)
    BADGES.mkdir(parents=True, exist_ok=True)
    there = certified_kinds()
    for each in there:
        if names and each.name not in names:
            continue
        table = anyio.run(certify, each.subject(), backend=each.backend)
        print(f"{each.name}: {table}", flush=True)  # noqa: T201  # for the person who started it
        assert not table.failed, "nothing that failed is written"
        each.badge.write_text(each.drawn(table), "utf-8")
        lines = {**lines_in_the_docs(), each.name: each.line(table)}
        before, _, after = PAGE.read_text("utf-8").partition(BEGIN)
        rest = after.lstrip("\n").partition("\n\n")[2]
        PAGE.write_text(f"{before}{table_of([lines[one.name] for one in there if one.name in lines])}\n{rest}", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
