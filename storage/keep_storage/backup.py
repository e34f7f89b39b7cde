"""A copy of a database while its runtime works: one moment of it, checked, complete or not there at all."""

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from keep_storage.doctor import DoctorReport, examine
from keep_storage.errors import StorageCorrupt, StorageUnavailable
from keep_storage.sqlite import copy_to


def back_up(source: Path, target: Path, told: Callable[[int, int], None]) -> DoctorReport:
    """Copy `source` to `target`, which must not exist, and examine the copy. `told` hears pages done and all pages.

    Raises `StorageUnavailable` and its kin, and `StorageCorrupt` if the copy is not healthy; then there is no `target`.
    """
    if not source.is_file():
        raise StorageUnavailable(f"{source}: there is no such file.")
    if os.path.lexists(target):
        raise StorageUnavailable(f"{target} exists already, and is not overwritten. Name another file.")
    partial = target.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        # Only those may read the copy who may read the file.
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, source.stat().st_mode & 0o777))
        copy_to(str(source), str(partial), told)
        report = examine(partial)
        if not report.is_healthy:
            problems = "; ".join(report.problems)
            raise StorageCorrupt(f"{source}: its copy is not healthy, and was not kept: {problems}")
        _sync(partial, os.O_RDWR)  # Windows syncs only what may be written
        # A link, not a renaming: it refuses to replace a file that is there meanwhile.
        os.link(partial, target)
    except OSError as error:
        raise StorageUnavailable(f"{target} cannot be written: {error.strerror}.") from error
    finally:
        partial.unlink(missing_ok=True)
    if hasattr(os, "O_DIRECTORY"):  # Windows opens no folder, and its file systems need no such sync
        _sync(target.parent, os.O_DIRECTORY)
    return _named(report, target)


def _named(report: DoctorReport, target: Path) -> DoctorReport:
    """The report about the copy, under the name it has now."""
    return DoctorReport(
        str(target),
        report.schema_version,
        report.newest_schema_version,
        report.size_bytes,
        report.invariants_checked,
        report.problems,
    )


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
