"""The parts of a workbook: which survive a change, and which would be lost, so that the workbook is not changed. Pure.

A workbook is an archive. Reading it into memory and writing it again keeps only what the library knows.
"""

import io
import re
import zipfile
from typing import Final

from keep_actors.connectors import PreconditionFailed

_PARTS_MAX: Final = 2_000
_GROWTH_MAX: Final = 20
"""Times that a workbook may grow when it is unpacked."""

KEPT: Final = re.compile(
    r"\[Content_Types\]\.xml|_rels/\.rels|docProps/(?:app|core|custom)\.xml|xl/workbook\.xml"
    r"|xl/_rels/workbook\.xml\.rels|xl/(?:styles|sharedStrings)\.xml|xl/theme/theme\d*\.xml"
    r"|xl/worksheets/[\w-]+\.xml|xl/worksheets/_rels/[\w-]+\.xml\.rels"
    r"|xl/externalLinks/[\w-]+\.xml|xl/externalLinks/_rels/[\w-]+\.xml\.rels"
)
"""Parts that are there again after a change, with what they say."""
MADE_AGAIN: Final = re.compile(r"xl/calcChain\.xml|xl/printerSettings/[\w-]+\.bin|docProps/thumbnail\.\w+|.*/")
"""Parts that office programs make again by themselves."""
_WORKSHEET: Final = re.compile(r"xl/worksheets/[\w-]+\.xml")
LOST_INSIDE: Final = (
    (_WORKSHEET, b"<extLst", "extensions of a worksheet, such as sparklines"),
    (re.compile(r"xl/sharedStrings\.xml"), b"<rPh", "phonetic guides of texts"),
)
"""Content that would be lost inside of a part that is kept, and how it begins there."""


class WorkbookParts:
    """An archive that was looked at and is harmless to unpack. Raises `PreconditionFailed` if it is not."""

    def __init__(self, content: bytes) -> None:
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                self._check(archive, len(content))
                self._parts = {entry.filename: archive.read(entry) for entry in archive.infolist()}
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError) as error:
            raise PreconditionFailed(f"the file is not a workbook that can be read: {error}") from None
        for name, part in self._parts.items():
            if b"<!DOCTYPE" in part or b"<!ENTITY" in part:
                raise PreconditionFailed(f"the workbook declares entities in {name}; no office program does that")

    def lost(self) -> list[str]:
        """Return what a change would lose, in words."""
        strange = [name for name in self._parts if not KEPT.fullmatch(name) and not MADE_AGAIN.fullmatch(name)]
        inside = [
            f"{words} ({name})"
            for where, mark, words in LOST_INSIDE
            for name, part in self._parts.items()
            if where.fullmatch(name) and mark in part
        ]
        return sorted(strange) + inside

    @staticmethod
    def _check(archive: zipfile.ZipFile, size: int) -> None:
        entries = archive.infolist()
        names = [entry.filename for entry in entries]
        if len(entries) > _PARTS_MAX or len(set(names)) != len(names):
            raise PreconditionFailed("the workbook has too many parts, or one of them twice")
        if sum(entry.file_size for entry in entries) > max(_GROWTH_MAX * size, 1024 * 1024):
            raise PreconditionFailed("the workbook grows too much when it is unpacked")
