"""Files that somebody has crafted: the doctor, a backup, a reader and a runtime end in words, soon, and do no harm."""

import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from keep_storage import StorageError, Store, reads
from keep_storage.backup import back_up
from keep_storage.doctor import examine
from keep_storage.schema import Part, differences
from keep_storage.sqlite import open_reader
from tests.storage.crafted import (
    CRAFTED,
    FOR_EVER,
    a_hole,
    a_tree_that_holds_one_page_many_times,
    altered,
    disguised,
    healthy,
)

SOON_S = 30
"""Of this thread's own time: most of it is the budget of one query."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return healthy(tmp_path / "keep.db")


@pytest.fixture(params=CRAFTED)
def crafted(request: pytest.FixtureRequest, file: Path) -> Path:
    CRAFTED[request.param](file)
    return file


@pytest.fixture(autouse=True)
def _soon() -> object:
    began = time.thread_time()
    yield
    assert time.thread_time() - began < SOON_S


def nothing(done: int, pages: int) -> None:
    """Whoever waits for a copy."""


def said(action: Callable[[], object]) -> str:
    """The words with which it ends; empty if it ends well."""
    try:
        action()
    except StorageError as error:
        return str(error)
    return ""


def test_the_doctor_finds_it(crafted: Path) -> None:
    before = crafted.read_bytes()
    report = examine(crafted)
    assert not report.is_healthy
    assert all(0 < len(each) < 3_000 for each in report.problems)
    assert all(each.isprintable() for each in " ".join(report.problems).splitlines())
    assert crafted.read_bytes() == before


def test_a_backup_of_it_is_not_kept(crafted: Path) -> None:
    copy = crafted.with_name("copy.db")
    assert said(lambda: back_up(crafted, copy, nothing))
    assert not copy.exists()


def what(request: pytest.FixtureRequest) -> str:
    """How the file of this test was made."""
    return str(request.node.callspec.params["crafted"])


def test_nobody_reads_in_it_for_longer_than_it_is_worth(crafted: Path, request: pytest.FixtureRequest) -> None:
    def look() -> None:
        with closing(open_reader(str(crafted))) as reader, reader.snapshot():
            reads.workflows(reader)
            reads.agenda(reader)

    assert said(look) or what(request) == "a page of noise", "which is somewhere else"


def test_a_hole_makes_a_file_worth_no_more(file: Path) -> None:
    a_tree_that_holds_one_page_many_times(file)
    os.truncate(file, 2**30)
    [problem] = examine(file).problems
    assert "more to read in it than a file of its size can hold" in problem


def test_a_hole_is_not_copied(file: Path) -> None:
    a_hole(file, 2**26)
    copy = file.with_name("copy.db")
    assert "larger than it is" in said(lambda: back_up(file, copy, nothing))
    assert not copy.exists()


def test_a_file_of_more_than_two_gigabytes_is_looked_at(file: Path) -> None:
    os.truncate(file, 2**32)
    report = examine(file)
    assert (report.size_bytes, report.problems) == (2**32, [])


def test_a_runtime_does_not_start_on_a_schema_that_is_not_ours(crafted: Path, request: pytest.FixtureRequest) -> None:
    problem = said(lambda: Store.open(crafted).close())
    assert problem or what(request) in ("nothing", "a page of noise")


# What is not ours, one by one.


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("a view in place of a table that never ends", "view 'workflows' is not as keep-actors makes it"),
        ("a view beside the tables", "view 'more' is none of keep-actors"),
        ("a trigger", "trigger 't' is none of keep-actors"),
        ("a trigger that is not there", "trigger 'journal_is_never_updated' is missing"),
        ("a table more", "table '\\x1b[2J\\u202e' is none of keep-actors"),
        ("a table less", "table 'deliveries' is missing"),
        ("a column that is computed", "table 'workflows' is not as keep-actors makes it"),
        ("a table without its rules", "table 'workflows' is not as keep-actors makes it"),
        ("a check that is gone", "table 'handlers' is not as keep-actors makes it"),
        ("an index more", "index 'more' is none of keep-actors"),
        ("an index over something else", "index 'handlers_due' is not as keep-actors makes it"),
    ],
)
def test_what_is_not_ours_is_named(file: Path, what: str, words: str) -> None:
    CRAFTED[what](file)
    [problem] = examine(file).problems
    assert words in problem
    assert words in said(lambda: Store.open(file).close())


def test_statistics_and_other_blanks_are_no_other_schema(file: Path) -> None:
    altered(
        file,
        "ANALYZE",
        "UPDATE sqlite_schema SET sql = replace(sql, ',', ' , -- it''s\n') WHERE name = 'grants'",
    )
    assert examine(file).problems == []
    Store.open(file).close()


def test_a_text_in_a_schema_is_compared_to_the_letter() -> None:
    ours = [Part("table", "t", "t", "CREATE TABLE t (x CHECK (x IN ('a, b', 'it''s')))")]
    assert differences(ours, [ours[0]._replace(sql="CREATE TABLE \"t\"(x CHECK(x IN ('a, b' , 'it''s')))")]) == []
    for other in ("'a,b', 'it''s'", "'a, b','its'", "'a, -- c\nb', 'it''s'", "'a, /* */b', 'it''s'"):
        theirs = [ours[0]._replace(sql=f"CREATE TABLE t (x CHECK (x IN ({other})))")]
        assert differences(ours, theirs) == ["table 't' is not as keep-actors makes it"]


def test_a_part_that_is_there_twice_is_found_and_many_are_counted() -> None:
    ours = [Part("table", "t", "t", "CREATE TABLE t (x)")]
    assert differences(ours, ours * 2) == ["table 't' is none of keep-actors"]
    many = [Part("table", f"t{number}", "", "") for number in range(50)]
    assert differences([], many)[-1] == "and 40 more"


def test_a_foreign_trigger_does_not_run_when_a_file_is_opened(file: Path) -> None:
    """The first thing that a start writes is its fence: a trigger on that table would run with it."""
    altered(file, "CREATE TRIGGER t AFTER UPDATE ON store BEGIN UPDATE workflows SET name = 'mine'; END")
    before = file.read_bytes()
    assert "trigger 't'" in said(lambda: Store.open(file).close())
    assert file.read_bytes() == before


def test_a_query_without_end_ends(file: Path) -> None:
    """Whatever comes of a file: no query of a reader goes on for ever, also one that was ours."""
    with closing(open_reader(str(file))) as reader:
        endless = getattr(reader, "read")  # noqa: B009  # not part of what a reader promises
        assert "more to read in it" in said(lambda: endless(f"{FOR_EVER} SELECT n FROM forever WHERE n < 0"))
        assert "more to read in it" in said(lambda: endless(f"{FOR_EVER} SELECT n FROM forever"))
        assert "more to read in it" in said(lambda: endless(f"{FOR_EVER} SELECT hex(zeroblob(7000000)) FROM forever"))
        assert "larger than the file" in said(lambda: endless("SELECT zeroblob(100000000)"))
        assert len(reads.workflows(reader)) == 1, "and the next one is answered"


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
def test_a_pipe_beside_it_is_not_waited_for(file: Path, end: str) -> None:
    os.mkfifo(f"{file}{end}")
    assert "no plain file" in " ".join(examine(file).problems)
    assert "no plain file" in said(lambda: open_reader(str(file)))
    assert "no plain file" in said(lambda: back_up(file, file.with_name("copy.db"), nothing))


def test_a_file_that_keeps_its_schema_and_breaks_its_rules_is_found(file: Path) -> None:
    disguised(file, "workflows", "UPDATE workflows SET status = 'burning', created_at = 'long ago'")
    problems = " ".join(examine(file).problems)
    assert "workflows" in problems
    assert said(lambda: open_reader(str(file)).close()) == ""
