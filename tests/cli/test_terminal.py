"""What scripts, connectors and services say is shown by a terminal, and never obeyed by it."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keep_actors.cli.terminal import age, json_line, plain, plain_lines, style, when
from tests.cli.operating import HOSTILE

WORDS = st.text(st.characters(codec="utf-8"), max_size=300)


@given(WORDS)
def test_whatever_the_text_a_terminal_gets_one_line_of_printable_characters(text: str) -> None:
    assert plain(text).isprintable()


@given(WORDS)
def test_printable_text_is_shown_as_it_is(text: str) -> None:
    if text.isprintable():
        assert plain(text) == text


@given(st.dictionaries(WORDS, WORDS, max_size=3))
def test_json_is_printable_too_and_says_the_same(value: dict[str, str]) -> None:
    line = json_line(value)
    assert line.isprintable()
    assert json.loads(line) == value


def test_hostile_text_is_spelled_out() -> None:
    assert plain(HOSTILE) == r"\x1b[2J\x1b]0;owned\x07\u202eevil\x9b31m"
    assert plain("two\nlines\r") == r"two\nlines\r"
    assert plain_lines("our\nown\x1b") == "our\nown\\x1b"


def test_a_long_text_is_cut_and_says_so() -> None:
    assert plain("x" * 50, 10) == "xxxxxxxxx…"


def test_times_are_local_and_say_how_long_ago_they_are() -> None:
    assert [age(at, 1_000_000) for at in (1_000_000, 999_000, 700_000, 4_600_000, 0)] == [
        "now",
        "1 s ago",
        "5 min ago",
        "in 1 h",
        "16 min ago",
    ]
    assert when(None, 0) == "never"
    assert when(1_700_000_000_000, 1_700_000_005_000).endswith("(5 s ago)")


def test_colours_are_for_terminals_whose_people_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert style("red", "red") == "red"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert style("red", "red") == "\x1b[31mred\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert style("red", "red") == "red"
