"""Paths and patterns, without a disk."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keep_actors.connectors import ConnectorError, InvalidCall, PermissionDenied
from keep_actors.services import SettingsError
from keep_actors.services.files import Files, FilesSettings
from keep_actors.services.files.paths import Reach, parsed
from keep_actors.services.files.patterns import PathPatterns

ROOT = Path("root")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("../a", "has '..' in it"),
        ("a/../b", "has '..' in it"),
        ("./a", "has '.' in it"),
        ("/etc/passwd", "is absolute"),
        ("a//b", "an empty name"),
        ("a/", "an empty name"),
        ("a\\b", "a backslash"),
        ("a\0b", "invisible"),
        ("a\nb", "invisible"),
        ("a\u202eb", "invisible"),
        ("\ufeffa", "invisible"),
        ("é" * 128, "more than 255 bytes"),
        ("/".join(["a" * 250] * 5), "more than 1024 bytes"),
        ("/".join("a" * 33), "more than 32 names"),
    ],
)
def test_a_path_that_leads_elsewhere_is_a_fault_of_the_script(path: str, words: str) -> None:
    with pytest.raises(InvalidCall, match=words):
        parsed(path)


@given(st.text(max_size=40))
def test_every_path_is_names_below_the_root_or_refused(text: str) -> None:
    try:
        path = parsed(text)
    except ConnectorError:
        return
    assert str(path) == text
    assert not {"", ".", ".."} & set(path.parts)
    assert not any(character in part for part in path.parts for character in "/\0")


@pytest.mark.parametrize("path", [".hidden", "a/.git/config", ".keep-lock"])
def test_hidden_names_are_refused(path: str) -> None:
    with pytest.raises(PermissionDenied):
        Reach(FilesSettings(root=ROOT)).file(path)


def test_hidden_names_can_be_allowed_but_never_those_of_the_connector() -> None:
    reach = Reach(FilesSettings(root=ROOT, hidden=True))
    assert str(reach.file(".profile")) == ".profile"
    for path in (".keep-lock", "a/.KEEP-lock"):
        with pytest.raises(PermissionDenied):
            reach.file(path)


@pytest.mark.parametrize(
    ("pattern", "matches", "other"),
    [
        ("**", ["a", "a/b/c.txt"], []),
        ("*.txt", ["a.txt", ".txt"], ["a/b.txt", "a.TXT", "a.txt/b", "atxt"]),
        ("**/*.txt", ["a.txt", "a/b/c.txt"], ["a.md"]),
        ("in/**", ["in/a", "in/b/c"], ["in", "out/a", "b/in/a"]),
        ("in/**/x", ["in/x", "in/a/b/x"], ["in/ax"]),
        ("a?c", ["abc", "a\nc"], ["ac", "a/c"]),
        ("a.+", ["a.+"], ["abb"]),
    ],
)
def test_a_pattern_matches_a_whole_path(pattern: str, matches: list[str], other: list[str]) -> None:
    patterns = PathPatterns([pattern])
    assert [path for path in matches if not patterns.match(path)] == []
    assert [path for path in other if patterns.match(path)] == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"allow": ()}, 'allow: is empty; write ["read"]'),
        ({"allow": ("write",)}, 'allow: has no "read"'),
        ({"patterns": ()}, "patterns: is empty"),
        ({"patterns": ("/a",)}, "patterns: '/a' is not a path below the root"),
        ({"patterns": ("../a",)}, "is not a path below the root"),
        ({"patterns": ("a**",)}, "has ** inside a name"),
        ({"patterns": ("[ab]",)}, "has a bracket"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_to_write(settings: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Files(FilesSettings(root=ROOT, **settings))  # type: ignore[arg-type]
    assert words in str(caught.value)
