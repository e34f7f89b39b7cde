"""`sheet` as a subject of certification, on a CSV file and on a workbook.

Effects are counted in the file itself: rows with the key, and the calls that a changed row has in its column of keys.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Final

from keep_actors.services.sheet import Sheet
from keep_actors.testing.certification import Certification, RunningService
from tests.services.sheet.sheets import cells, made, settings

_ROWS: Final = 300


class _SheetCertification(Certification):
    """Adding and changing rows of a file in a folder of its own."""

    suffix: ClassVar[str]

    @asynccontextmanager
    async def service(self) -> AsyncIterator[RunningService]:
        """Make the file, with the rows that are changed."""
        with TemporaryDirectory(prefix="keep-sheet-") as folder:
            file = Path(folder) / f"sheet{self.suffix}"
            made(file, [(f"update-{number}", "before", 0) for number in range(_ROWS)])
            yield RunningService(places={"file": str(file)})

    def connector(self, service: RunningService) -> Sheet:
        """The connector on this file."""
        return Sheet(settings(Path(service.places["file"])))

    def example(self, method: str, number: int) -> Mapping[str, Any]:
        """A row of its own for each number."""
        assert number < _ROWS, "make more rows"
        if method == "updateRow":
            return {"id": f"update-{number}", "name": f"name {number}"}
        return {"id": f"append-{number}", "name": f"name {number}", "amount": number}

    async def effects(self, service: RunningService, method: str, params: Mapping[str, Any]) -> int:
        """Count in the file."""
        header, *rows = cells(Path(service.places["file"]))
        found = [row for row in rows if row[0] == params["id"] and row[1] == params["name"]]
        if method == "appendRow" or "keep_call" not in header:
            return len(found)
        calls = header.index("keep_call")
        return sum(len([word for word in (row[calls] or "").split() if word != "."]) for row in found)


class CsvSheetCertification(_SheetCertification):
    """A CSV file."""

    suffix = ".csv"


class XlsxSheetCertification(_SheetCertification):
    """A workbook."""

    suffix = ".xlsx"
    timeout_ms = 2_000
