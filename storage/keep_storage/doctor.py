"""The health of a file. Reads only, and may read while a runtime works on the file."""

from contextlib import closing
from pathlib import Path

import msgspec

from keep_storage import invariants, statements
from keep_storage.errors import StorageError, StorageUnavailable
from keep_storage.sqlite import look_at, open_reader


class DoctorReport(msgspec.Struct, frozen=True):
    """Findings about a file. `problems` is empty in a healthy file."""

    path: str
    schema_version: int | None
    """None if the file could not be read that far."""
    newest_schema_version: int
    size_bytes: int
    invariants_checked: int
    problems: list[str]

    @property
    def is_healthy(self) -> bool:
        return not self.problems


def examine(path: Path) -> DoctorReport:
    """The schema, SQLite's integrity check, and every invariant. Raises nothing about the file: it reports."""
    newest = len(statements.migrations())
    try:
        if not path.is_file():
            raise StorageUnavailable(f"{path}: there is no such file.")
        version, problems, is_ours = look_at(str(path))
    except StorageError as error:
        size = path.stat().st_size if path.is_file() else 0
        return DoctorReport(str(path), None, newest, size, 0, [str(error)])
    checked = 0
    if version == 0:
        problems.append(f"{path}: an empty database; no runtime has ever opened it.")
    elif version == newest and is_ours:
        broken, checked = _broken_invariants(path)
        problems += broken
    return DoctorReport(str(path), version, newest, path.stat().st_size, checked, problems)


def _broken_invariants(path: Path) -> tuple[list[str], int]:
    try:
        with closing(open_reader(str(path))) as reader, reader.snapshot():
            return [str(each) for each in invariants.check(reader, deep=True)], len(statements.invariants())
    except StorageError as error:
        return [str(error)], 0
