"""The tools of a server as a person has seen them, in a file, and what has changed since. No server is asked here.

A tool is granted with everything that a server says of it. Another word anywhere is another tool.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from unicodedata import normalize

import msgspec

from keep_actors.services.mcp.mapping import ToolHints
from keep_actors.services.service import SettingsError
from keep_actors.text.visible import is_plain, quoted

NAME_CHARS_MAX: Final = 128
FORMAT: Final = 1
_BYTES_MAX: Final = 20_000_000


class GrantedTool(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The parts of a tool that count: its name, its words, its schemas, its annotations."""

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: Any = {}
    output_schema: Any = None
    annotations: Any = None
    execution: Any = None

    @property
    def digest(self) -> str:
        """SHA-256 over canonical JSON: the same tool has the same digest."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()

    @property
    def hints(self) -> ToolHints:
        """The server's words about it, where they are true or false."""
        said = self.annotations if isinstance(self.annotations, Mapping) else {}
        names = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
        return ToolHints(*(said[name] if isinstance(said.get(name), bool) else None for name in names))


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    digest: str
    tool: GrantedTool


class _ToolsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    tools: list[_Kept]


def digest_of(tools: Iterable[GrantedTool]) -> str:
    """A digest of all tools together, for a person to repeat.

    Not a short one: a server could make two lists with the same beginning of a digest, and exchange them.
    """
    digests = sorted(each.digest for each in tools)
    return hashlib.sha256(msgspec.json.encode(digests)).hexdigest()


def folded(name: str) -> str:
    """A name without the differences that an eye may miss."""
    return normalize("NFKC", name).casefold()


def problem_with_names(names: Iterable[str]) -> str:
    """The reason why these tools cannot be told apart, or be named; empty if they can."""
    seen: dict[str, str] = {}
    for name in names:
        if not name or len(name) > NAME_CHARS_MAX or not is_plain(name):
            return f"the name {shown(name)} is too long, or has characters that cannot be seen"
        if other := seen.get(folded(name)):
            return f"{shown(other)} and {shown(name)} are one name but for the case of their letters"
        seen[folded(name)] = name
    return ""


def load_tools(path: Path) -> dict[str, GrantedTool]:
    """The tools of a file, by name. Raises `SettingsError`."""
    try:
        with path.open("rb") as file:
            content = file.read(_BYTES_MAX + 1)
    except FileNotFoundError:
        words = f"there is no {path}; look at the tools of the server, and accept them: keep mcp-tools NAME"
        raise SettingsError("tools_file", words) from None
    except OSError as error:
        raise SettingsError("tools_file", f"{path} cannot be read: {error.strerror}") from None
    try:
        kept = msgspec.json.decode(content, type=_ToolsFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError("tools_file", f"{path} is no list of tools: {error}; remove it, and look again") from None
    if kept.format != FORMAT:
        raise SettingsError("tools_file", f"{path} has format {kept.format}; this version reads {FORMAT}")
    for each in kept.tools:
        if each.digest != each.tool.digest:
            words = f"{path}: {shown(each.tool.name)} was changed by hand; remove the file, and accept the tools again"
            raise SettingsError("tools_file", words)
    if problem := problem_with_names(each.tool.name for each in kept.tools):
        raise SettingsError("tools_file", f"{path}: {problem}")
    return {each.tool.name: each.tool for each in kept.tools}


def save_tools(path: Path, tools: Iterable[GrantedTool]) -> None:
    """Write the file, whole or not at all. Raises `OSError`."""
    kept = _ToolsFile(FORMAT, [_Kept(each.digest, each) for each in sorted(tools, key=lambda each: each.name)])
    content = msgspec.json.format(msgspec.json.encode(kept, order="sorted"), indent=2) + b"\n"
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)  # noqa: PTH105  # the name is text
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def refusals(granted: Mapping[str, GrantedTool], listed: Iterable[GrantedTool]) -> dict[str, str]:
    """Of the granted tools, those that are not as they were, with the reason."""
    by_fold: dict[str, list[GrantedTool]] = {}
    for each in listed:
        by_fold.setdefault(folded(each.name), []).append(each)
    found: dict[str, str] = {}
    for name, tool in granted.items():
        same = by_fold.get(folded(name), [])
        if len(same) > 1:
            found[name] = "the server has two tools of that name"
        elif not same:
            found[name] = "the server has no such tool any more"
        elif same[0].digest != tool.digest:
            found[name] = "the server describes it otherwise than when it was granted"
    return found


def shown(text: str) -> str:
    """A short foreign text, quoted."""
    return quoted(text, NAME_CHARS_MAX)[0]
