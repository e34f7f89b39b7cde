"""The method that a tool becomes: one table of the server's and the operator's words. Pure and closed.

A server's word alone never makes a read of a tool. It is a read if a person wrote so, or wrote that this server is
believed; and a tool that says that it changes something is a read only with a person's reason.
"""

from typing import Final, Literal, TypeAlias

import msgspec

from keep_actors.connectors import Risk
from keep_actors.services.mcp.settings import ToolKind, ToolSettings

ToolWord: TypeAlias = ToolKind | Literal["silent"]


class ToolHints(msgspec.Struct, frozen=True):
    """The words of a server about a tool. None: it says nothing."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


class ToolStanding(msgspec.Struct, frozen=True):
    """A tool as scripts see it."""

    kind: Literal["read", "mutation"]
    by_id: bool
    risk: Risk


class ToolOff(msgspec.Struct, frozen=True):
    """A tool that is not offered."""


class ToolContradicted(msgspec.Struct, frozen=True):
    """Settings that are weaker than the server's word, without a reason."""

    why: str
    setting: Literal["kind", "risk"] = "kind"


ToolDecision: TypeAlias = ToolStanding | ToolOff | ToolContradicted

_OFF: Final = ToolOff()
_AGAINST: Final = ToolContradicted(
    'the server says that it changes something; write against_its_word = "your reason", or kind = "mutation"'
)
_BY_HINTS: Final = "by hints"
"""The risk of a mutation follows from what it may destroy."""

_Row: TypeAlias = (
    tuple[Literal["read", "read_by_id", "mutation"], Risk | Literal["by hints"]] | ToolOff | ToolContradicted
)

_TABLE: Final[dict[tuple[bool | None, ToolWord], _Row]] = {
    # It says that it only reads.
    (True, "silent"): ("mutation", "medium"),
    (True, "read"): ("read", "low"),
    (True, "read_by_id"): ("read_by_id", "low"),
    (True, "mutation"): ("mutation", _BY_HINTS),
    (True, "off"): _OFF,
    # It says nothing.
    (None, "silent"): ("mutation", "high"),
    (None, "read"): ("read", "medium"),
    (None, "read_by_id"): ("read_by_id", "medium"),
    (None, "mutation"): ("mutation", _BY_HINTS),
    (None, "off"): _OFF,
    # It says that it changes something.
    (False, "silent"): ("mutation", _BY_HINTS),
    (False, "read"): _AGAINST,
    (False, "read_by_id"): _AGAINST,
    (False, "mutation"): ("mutation", _BY_HINTS),
    (False, "off"): _OFF,
}
_AGAINST_ITS_WORD: Final[dict[ToolWord, _Row]] = {"read": ("read", "medium"), "read_by_id": ("read_by_id", "medium")}
"""With a person's reason, in the place of a refusal."""

_LEVELS: Final[tuple[Risk, ...]] = ("low", "medium", "high")
_ONE_MORE: Final[dict[Risk, Risk]] = {"low": "medium", "medium": "high", "high": "high"}


def decide(hints: ToolHints, word: ToolSettings, *, is_trusted: bool) -> ToolDecision:
    """Return the method that the tool becomes."""
    said: ToolWord = word.kind or ("read" if is_trusted and hints.read_only else "silent")
    row = _TABLE[hints.read_only, said]
    if isinstance(row, ToolContradicted) and word.against_its_word:
        row = _AGAINST_ITS_WORD[said]
    if not isinstance(row, tuple):
        return row
    kind, stated = row
    risk: Risk = stated if stated != "by hints" else "medium" if hints.destructive is False else "high"
    if hints.open_world is not False:  # it may reach anything, and so give away what it reads
        risk = _ONE_MORE[risk]
    least = _least(hints, is_mutation=kind == "mutation")
    if word.risk and _LEVELS.index(word.risk) < _LEVELS.index(least) and not word.against_its_word:
        what = f'by what the server says its risk is at least {least}; write against_its_word = "your reason"'
        return ToolContradicted(what, "risk")
    return ToolStanding("mutation" if kind == "mutation" else "read", kind == "read_by_id", word.risk or risk)


def _least(hints: ToolHints, *, is_mutation: bool) -> Risk:
    """The risk by the server's own word: what it says nothing of does not count."""
    if is_mutation and hints.destructive:
        return "high"
    return "medium" if hints.open_world else "low"
