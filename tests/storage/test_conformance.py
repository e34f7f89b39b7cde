"""The suite for databases passes those that are right, and finds what is wrong with others."""

import subprocess
import sys
from pathlib import Path

from keep_storage.sqlite import SqliteDatabase
from keep_storage.transaction import Queries, Reader, Transaction
from tests.storage.conformance import ABOUT_NO_DATABASE, ABOUT_SQLITE, HERE, SUITE
from tests.storage.databases import Opened, in_memory

ROOT = Path(__file__).parents[2]


def suite(make: str, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.storage.conformance", make, "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_database_that_is_right_passes() -> None:
    said = suite("tests.storage.databases:in_a_file", "-k", "test_transaction or test_group_commit")
    assert said.returncode == 0, said.stdout
    assert "passed" in said.stdout


def test_a_database_that_keeps_what_was_undone_does_not() -> None:
    said = suite("tests.storage.test_conformance:unforgetting", "-k", "test_transaction or test_group_commit")
    assert said.returncode == 1, said.stdout
    assert "test_undo_forgets_what_came_after_the_savepoint_and_nothing_else[given]" in said.stdout
    assert "test_together_is_all_or_nothing[given]" in said.stdout


def test_a_name_that_leads_nowhere_is_refused_with_an_example() -> None:
    said = suite("nowhere")
    assert said.returncode == 1
    assert "tests.storage.databases:in_memory" in said.stderr


def test_every_file_of_tests_is_in_the_suite_or_about_something_else() -> None:
    assert {path.name for path in HERE.glob("test_*.py")} >= ABOUT_SQLITE | ABOUT_NO_DATABASE
    assert [name for name in SUITE if not uses_a_database(name)] == []
    assert [name for name in ABOUT_NO_DATABASE - {Path(__file__).name} if uses_a_database(name)] == []


def uses_a_database(name: str) -> bool:
    text = (HERE / name).read_text()
    return any(fixture in text for fixture in ("world: World", "database: Database", "opened: Opened"))


def unforgetting(folder: Path) -> Opened:
    """A database on which `undo` does nothing."""
    opened = in_memory(folder)
    assert isinstance(opened.database, SqliteDatabase)
    return Opened(Unforgetting(opened.database), opened.select)


class Unforgetting:
    def __init__(self, right: SqliteDatabase) -> None:
        self._right = right

    def begin(self) -> Transaction:
        return KeepsAll(self._right.begin())

    def commit(self) -> None:
        self._right.commit()

    def rollback(self) -> None:
        self._right.rollback()

    def queries(self) -> Queries:
        return self._right.queries()

    def reader(self) -> Reader:
        return self._right.reader()

    def close(self) -> None:
        self._right.close()


class KeepsAll:
    def __init__(self, right: Transaction) -> None:
        self._right = right
        self.one, self.all, self.run, self.run_each = right.one, right.all, right.run, right.run_each
        self.rows_changed, self.kept = right.rows_changed, right.kept
        self.savepoint, self.release, self.undo = right.savepoint, right.release, right.release
