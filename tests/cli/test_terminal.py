"""What scripts, connectors and services say is shown by a terminal, and never obeyed by it."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keep_actors.cli.terminal import (
    age,
    brief,
    columns,
    fields,
    json_line,
    plain,
    plain_lines,
    remark,
    show,
    style,
    when,
)
from keep_actors.text.visible import cut, is_plain, quoted, spelled
from tests.cli.operating import HOSTILE

WORDS = st.text(st.characters(codec="utf-8"), max_size=300)


@given(WORDS)
def test_whatever_the_text_a_terminal_gets_one_line_of_printable_characters(text: str) -> None:
    assert plain(text).isprintable()


@given(WORDS)
def test_plain_text_is_shown_as_it_is(text: str) -> None:
    assert is_plain(text) is (plain(text) == text)


@given(st.dictionaries(WORDS, WORDS, max_size=3))
def test_json_is_printable_too_and_says_the_same(value: dict[str, str]) -> None:
    line = json_line(value)
    assert line.isprintable()
    assert json.loads(line) == value


def test_hostile_text_is_spelled_out() -> None:
    assert plain(HOSTILE) == r"\x1b[2J\x1b]0;owned\x07\u{202e}evil\x9b31m"
    assert plain("two\nlines\r") == r"two\nlines\r"
    assert plain_lines("our\nown\x1b") == "our\nown\\x1b"


def test_a_long_text_is_cut_and_says_so() -> None:
    assert plain("x" * 50, 10) == "xxxxxxxxxx… 40 characters left out"
    assert plain("x" * 11, 10) == "xxxxxxxxxx… 1 character left out"
    assert plain("\x1b" * 4, 10) == r"\x1b\x1b… 2 characters left out"
    assert brief("x" * 50, 10) == "xxxxxxxxx…"


BLANK = "\u115f\u1160\u3164\uffa0\u2800\ufe0f\U000e0100\U000e0041\u00ad\u180e\u200b\u2066\u2028\u3000\u034f"


@pytest.mark.parametrize("each", BLANK)
def test_a_character_that_nobody_sees_is_spelled_out_and_a_run_of_it_counted(each: str) -> None:
    spelled = r"\xad" if each == "\xad" else f"\\u{{{ord(each):x}}}"
    assert plain(f"a{each}b") == f"a{spelled}b"
    assert plain(f"a{each * 2100}b") == f"a({spelled} \N{MULTIPLICATION SIGN} 2,100)b"
    assert json_line(each).isascii()
    assert not is_plain(each)


def test_marks_on_a_letter_are_shown_and_a_pile_of_them_is_not() -> None:
    assert plain("e\u0301, Zu\u0308rich") == "e\u0301, Zu\u0308rich"
    assert plain("e" + "\u0301" * 40) == "e(\\u{301} \N{MULTIPLICATION SIGN} 40)"


def test_between_quotes_what_is_spelled_out_cannot_be_forged() -> None:
    assert quoted(r"\u{3164} \x1b", None) == (r'"\\u{3164} \\x1b"', 0)
    assert quoted('a", "to": "b', None) == (r'"a\", \"to\": \"b"', 0)
    assert quoted("a" + " " * 16 + "b", None) == (f'"a{" " * 16}b"', 0)
    assert quoted("a" + " " * 400 + "b", None) == ('"a(\\x20 \N{MULTIPLICATION SIGN} 400)b"', 0)
    assert quoted("x" * 50, 10) == ('"xxxxxxxxxx"', 40)


@given(WORDS, st.integers(0, 300))
def test_whatever_is_cut_what_is_left_out_is_counted(text: str, most: int) -> None:
    shown, left = cut(text, most)
    assert len(shown) <= most
    assert spelled(text).startswith(shown)
    assert left == 0 or len(spelled(text)) > most
    assert 0 <= left <= len(text)


def test_whatever_is_shown_passes_one_door(capsys: pytest.CaptureFixture[str]) -> None:
    show(f"our\nown {HOSTILE}\r")
    remark(HOSTILE)
    out, err = capsys.readouterr()
    assert out == "our\nown \\x1b[2J\\x1b]0;owned\\x07\\u{202e}evil\\x9b31m\\r\n"
    assert err.removesuffix("\n").isprintable()


def test_on_a_terminal_only_our_own_colours_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show(style("red", "red") + "\x1b[8mhidden\x1b[2J")
    assert "\x1b[8m" not in (out := capsys.readouterr().out)
    assert r"red" in out
    assert r"\x1b[8mhidden\x1b[2J" in out


def test_a_long_text_stays_out_of_the_place_where_names_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    fields([("title", "x" * 78 + 'to     "boss"'), ("to", "\u4e2d" * 60)])
    lines = capsys.readouterr().out.splitlines()
    assert [line[:7].strip() for line in lines if line[:7].strip()] == ["title", "to"]
    assert all(columns(line) <= 80 for line in lines)


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
