"""The parts of a workbook: which survive a change, and which would be lost, so that the workbook is not changed. Pure.

A workbook is an archive. Reading it into memory and writing it again keeps only what the library knows.
"""

import io
import re
import zipfile
import zlib
from typing import Final

from keep_actors.connectors import PreconditionFailed

_PARTS_MAX: Final = 2_000
_GROWTH_MAX: Final = 20
"""Times that a workbook may grow when it is unpacked, if it is larger then than the next one."""
_SMALL_BYTES: Final = 32 * 1024 * 1024
"""Rows of equal values pack well: a workbook that is not larger than this may grow as it likes."""
_CELL_TAGS_MAX: Final = 8_000_000
"""In worksheets and texts, where each cell has four. In memory a cell needs many times the room that it has here."""
_OTHER_TAGS_MAX: Final = 400_000
"""In everything else, and behind the cells of each worksheet: styles, rules, names."""

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
_TEXTS: Final = re.compile(r"xl/sharedStrings\.xml")
_WORKBOOK: Final = re.compile(r"xl/workbook\.xml")


def _element(name: str) -> re.Pattern[bytes]:
    return re.compile(rf"<(?:\w+:)?{name}[\s/>]".encode())


LOST_INSIDE: Final = (
    (_WORKSHEET, _element("extLst"), "extensions of a worksheet, such as sparklines"),
    (_WORKSHEET, _element("protectedRanges"), "ranges that some people may change"),
    (_WORKSHEET, _element("customSheetViews"), "custom views"),
    (_WORKSHEET, _element("dataConsolidate"), "a consolidation of data"),
    (_WORKSHEET, _element("cellWatches"), "watched cells"),
    (_WORKSHEET, _element("customProperties"), "properties of a worksheet"),
    (_WORKBOOK, _element("customWorkbookViews"), "custom views"),
    (_WORKBOOK, _element("fileSharing"), "a protection against changes of the file"),
    (_TEXTS, _element("rPh"), "phonetic guides of texts"),
)
"""Content that would be lost inside of a part that is kept, and how it begins there."""
_FORMULA: Final = _element("f")
_END_OF_CELLS: Final = re.compile(rb"</(?:\w+:)?sheetData\s*>")
_DECLARED: Final = re.compile(rb"\s*<\?xml[^>]*?encoding\s*=\s*[\"']([^\"']*)")
_BOM: Final = b"\xef\xbb\xbf"
_WIDE: Final = re.compile(rb"\xff\xfe|\xfe\xff|\0{0,3}<\0|\0+<")
"""The beginning of XML in UTF-16 or UTF-32."""


class WorkbookParts:
    """An archive that was looked at and is harmless to unpack. Raises `PreconditionFailed` if it is not."""

    def __init__(self, content: bytes) -> None:
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                self._check(archive, len(content))
                self._parts = {entry.filename: archive.read(entry) for entry in archive.infolist()}
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, OSError, EOFError) as error:
            raise PreconditionFailed(f"the file is not a workbook that can be read: {error}") from None
        for name, part in self._parts.items():
            _refuse_part(name, part)

    def has_formulas(self) -> bool:
        """True if a cell of any worksheet is calculated."""
        return any(_WORKSHEET.fullmatch(name) and _FORMULA.search(part) for name, part in self._parts.items())

    def lost(self) -> list[str]:
        """Return what a change would lose, in words."""
        strange = [name for name in self._parts if not KEPT.fullmatch(name) and not MADE_AGAIN.fullmatch(name)]
        inside = [
            f"{words} ({name})"
            for where, mark, words in LOST_INSIDE
            for name, part in self._parts.items()
            if where.fullmatch(name) and mark.search(part)
        ]
        return sorted(strange) + inside

    @staticmethod
    def _check(archive: zipfile.ZipFile, size: int) -> None:
        entries = archive.infolist()
        names = [entry.filename for entry in entries]
        if len(entries) > _PARTS_MAX or len(set(names)) != len(names):
            raise PreconditionFailed("the workbook has too many parts, or one of them twice")
        if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in entries):
            raise PreconditionFailed("the workbook is packed in a way that no office program uses")
        if sum(entry.file_size for entry in entries) > max(_GROWTH_MAX * size, _SMALL_BYTES):
            raise PreconditionFailed("the workbook grows too much when it is unpacked")


def _refuse_part(name: str, part: bytes) -> None:
    """Raise `PreconditionFailed` for XML that would take too much memory, or would bring in something from elsewhere.

    Any part may be read as XML, whatever its name is. Everything is looked for in bytes, so the encoding must be one in
    which ASCII is itself.
    """
    declared = _DECLARED.match(part.removeprefix(_BOM))
    if _WIDE.match(part) or (declared and declared[1].upper() not in (b"UTF-8", b"US-ASCII", b"ASCII")):
        raise PreconditionFailed(f"{name} of the workbook is not UTF-8; save it again in an office program")
    if b"<!DOCTYPE" in part or b"<!ENTITY" in part:
        raise PreconditionFailed(f"the workbook declares entities in {name}; no office program does that")
    cells_end = 0
    if _WORKSHEET.fullmatch(name):
        cells_end = max((found.end() for found in _END_OF_CELLS.finditer(part)), default=0)
    elif _TEXTS.fullmatch(name):
        cells_end = len(part)
    if part.count(b"<", 0, cells_end) > _CELL_TAGS_MAX or part.count(b"<", cells_end) > _OTHER_TAGS_MAX:
        raise PreconditionFailed(f"{name} of the workbook is too large to be read; divide the workbook")
