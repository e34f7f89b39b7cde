"""Each connector that is there is certified against its real server, in every row: also those of SIGKILL.

A whole runtime is killed at every point around a call, and another one recovers: there is one effect, or an open
question.
"""

import logging
import os
from collections.abc import Iterator

import anyio
import pytest

from keep_actors.services.configuration import KINDS
from keep_actors.testing.certification import CertificationRow, RowOutcome, certify
from keep_actors.testing.certification.kill_rows import KILL_ROWS
from tests.services.certified import BADGES, CertifiedKind, certified_kinds, lines_in_the_docs

CERTIFIED = certified_kinds()
AROUND = {row for row in KILL_ROWS if row.startswith(("killed-record", "killed-working", "killed-answered"))}
"""The points that every call of every connector passes."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Do not log the errors that are provoked."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_every_kind_that_changes_something_is_certified() -> None:
    assert {each.kind for each in CERTIFIED} == set(KINDS) - {"chat"}, "`chat` has no mutation"


@pytest.mark.parametrize("certified", CERTIFIED, ids=lambda each: each.name)
def test_a_connector_holds_every_row_against_its_real_server(certified: CertifiedKind) -> None:
    if certified.missing:
        assert not os.environ.get("CI"), f"{certified.missing} is missing; .ci/run installs it"
        pytest.skip(f"{certified.missing} is not installed")
    table = anyio.run(certify, certified.subject(), backend=certified.backend)
    assert not table.failed, table
    assert {each.row for each in table.results} == set(CertificationRow)
    assert {each.row for each in table.held} >= AROUND
    assert [each for each in table.results if each.row in AROUND and each.outcome is not RowOutcome.HELD] == []
    written = "is not the result: run `python -m tests.services.certified`"
    assert lines_in_the_docs().get(certified.name) == certified.line(table), f"the line in the docs {written}"
    assert certified.badge.read_text("utf-8") == certified.drawn(table), f"the badge {written}"


def test_the_docs_have_a_line_and_a_badge_for_each_and_for_no_other() -> None:
    names = [each.name for each in CERTIFIED]
    assert list(lines_in_the_docs()) == names
    assert sorted(path.stem for path in BADGES.glob("*.svg")) == sorted(names)
