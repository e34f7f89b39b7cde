"""The storage suite, as a function of a database: what any driver must pass before the execution model runs on it.

`python -m tests.storage.conformance module:function [options of pytest]`, or `storage_suite(function)`.
"""

import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.storage.databases import DATABASES, MakeDatabase

HERE: Final = Path(__file__).parent
ABOUT_SQLITE: Final = frozenset(
    {
        "test_backup.py",
        "test_crafted.py",
        "test_disk.py",
        "test_migrations.py",
        "test_file_lock.py",
        "test_own_files.py",
        "test_schema.py",
        "test_store.py",
    }
)
"""The file and its owner, what others make of it, the disk under it, the tables, their former shape, the queries."""
ABOUT_NO_DATABASE: Final = frozenset({"test_conformance.py", "test_disposition.py", "test_ids.py"})
SUITE: Final = sorted({path.name for path in HERE.glob("test_*.py")} - ABOUT_SQLITE - ABOUT_NO_DATABASE)


def storage_suite(make: MakeDatabase, options: Sequence[str] = ()) -> int:
    """Run the suite against databases that this makes, and no others. Returns pytest's exit code: 0 if it passed.

    Once in a process: pytest imports the tests once, and the table of databases is theirs.
    """
    DATABASES.clear()
    DATABASES["given"] = make
    return int(pytest.main([*(str(HERE / name) for name in SUITE), *options]))


if __name__ == "__main__":
    if len(sys.argv) < 2 or ":" not in sys.argv[1]:
        sys.exit("Say which: python -m tests.storage.conformance tests.storage.databases:in_memory")
    sys.exit(storage_suite(pkgutil.resolve_name(sys.argv[1]), sys.argv[2:]))
