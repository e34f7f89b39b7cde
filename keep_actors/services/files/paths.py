"""Paths as scripts write them: names below the root, joined by `/`. Pure: what is on the disk is not looked at.

A name is taken as it is, byte for byte in UTF-8: `é` as one character and as two are two names, and so are `A` and
`a`, unless the file system makes them one.
"""

from dataclasses import dataclass
from typing import Final
from unicodedata import category, normalize

from keep_actors.connectors import InvalidCall, PermissionDenied
from keep_actors.services.files.patterns import PathPatterns
from keep_actors.services.files.settings import FilesSettings

OWN: Final = ".keep-"
"""Files of ours among those of people: the lock, and content that is not in its place yet."""

_NAME_BYTES_MAX: Final = 255
_PATH_BYTES_MAX: Final = 1024
_DEPTH_MAX: Final = 32
_REFUSED: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
_DIRECTIONS: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")
"""Characters that make a name look like another."""


@dataclass(frozen=True, slots=True)
class FilePath:
    """A path below the root. Without parts it is the root."""

    parts: tuple[str, ...]

    @property
    def folder(self) -> tuple[str, ...]:
        """The parts of the folder that it is in."""
        return self.parts[:-1]

    @property
    def name(self) -> str:
        """Its last part."""
        return self.parts[-1]

    def __str__(self) -> str:
        return "/".join(self.parts)


class Reach:
    """The paths that scripts may touch."""

    def __init__(self, settings: FilesSettings) -> None:
        self._patterns = PathPatterns(settings.patterns)
        self._hidden = settings.hidden

    def file(self, text: str) -> FilePath:
        """The path of a file. Raises `InvalidCall` and `PermissionDenied`."""
        path = self.named_folder(text)
        if not self._patterns.match(str(path)):
            raise PermissionDenied(f"{path}: files of this name may not be touched; `patterns` of the settings decides")
        return path

    def folder(self, text: str) -> FilePath:
        """The path of a folder, or of anything whose kind is not known. Raises as `file` does."""
        path = parsed(text)
        for part in path.parts:
            if not self.is_open(part):
                raise PermissionDenied(f"{path}: names that begin with a dot may not be touched")
        return path

    def named_folder(self, text: str) -> FilePath:
        """As `folder`, but not the root."""
        path = self.folder(text)
        if not path.parts:
            raise InvalidCall("the path is empty; name a file or a folder")
        return path

    def is_open(self, name: str) -> bool:
        """True if this name is not hidden."""
        return not name.startswith(".") or (self._hidden and not _plain(name).startswith(OWN))

    def is_listed(self, path: FilePath) -> bool:
        """True if a folder's listing shows this file."""
        return self._patterns.match(str(path))


def parsed(text: str) -> FilePath:
    """Read a path. Raises `InvalidCall` for one that is not below the root by its words alone."""
    if not text:
        return FilePath(())
    parts = tuple(text.split("/"))
    if problem := _problem_with_path(text, parts):
        raise InvalidCall(f"the path {text[:100]!r} {problem}")
    return FilePath(parts)


def problem_with_name(name: str) -> str:
    """The reason why a name cannot be in a path; empty if it can."""
    if name in (".", ".."):
        return f"has {name!r} in it; write the path from the root"
    if any(category(each) in _REFUSED or each in _DIRECTIONS for each in name):
        return "has a character that is invisible or controls the text; leave it out"
    if "\\" in name:
        return "has a backslash; folders are separated by `/`"
    if len(name.encode()) > _NAME_BYTES_MAX:
        return f"has a name of more than {_NAME_BYTES_MAX} bytes; shorten it"
    return ""


def _plain(name: str) -> str:
    """A name without what some file systems do not look at: case, forms of a character, those without a width."""
    seen = "".join(each for each in normalize("NFKD", name) if category(each) != "Cf")
    return seen.casefold()


def _problem_with_path(text: str, parts: tuple[str, ...]) -> str:
    if text.startswith("/"):
        return "is absolute; write it from the root, without a `/` at its beginning"
    if "" in parts:
        return "has an empty name in it; write one `/` between names, and none at the end"
    if len(parts) > _DEPTH_MAX:
        return f"has more than {_DEPTH_MAX} names; use fewer folders"
    found = next((problem for part in parts if (problem := problem_with_name(part))), "")
    if not found and len(text.encode()) > _PATH_BYTES_MAX:
        return f"has more than {_PATH_BYTES_MAX} bytes; shorten it"
    return found
