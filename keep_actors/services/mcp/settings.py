"""Settings of the connector: the server, the list of tools that a person has seen, and the operator's word on each."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from keep_actors.connectors import Risk
from keep_actors.outbound.secret import Secret
from keep_actors.services.service import ServiceSettings, SettingsError

ToolKind: TypeAlias = Literal["read", "read_by_id", "mutation", "off"]
ErrorMeaning: TypeAlias = Literal["unknown", "did_not_happen"]

_MESSAGE_BYTES_MAX: Final = 100_000_000


class ToolReconcile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reading tool that finds out an unknown outcome."""

    tool: str
    """A tool that is a read by the operator's word."""
    arguments: Mapping[str, Any] = {}
    """Text in it may have `{key}` and `{params.NAME}`; a text that is only one of them keeps its type."""
    found: str
    """A path in the answer: `items[*].id`. `text` is the whole text of an answer without structure."""
    equals: str
    """The effect is there if a value at the path is this: `{key}`, `{params.name}`."""
    result: str = ""
    """A path in the answer, or after the last `[*]` of `found`, to the result of the call."""


class ToolSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The operator's word on one tool."""

    kind: ToolKind | None = None
    risk: Risk | None = None
    name: str = ""
    """Its name in scripts. Empty: the tool's own, in camelCase."""
    against_its_word: str = ""
    """The reason why a tool is taken for a read, or for less of a risk, than the server's word would have it."""
    identity: Sequence[str] | None = None
    """The arguments that say which thing is changed."""
    key_argument: str = ""
    """The argument that takes the key of the call. Scripts do not see it."""
    key_meta: str = ""
    """The name in `_meta` under which this server looks for the key."""
    error_means: ErrorMeaning = "unknown"
    """The outcome of a mutation that ends with an error of the tool."""
    repeat_is_safe: bool = False
    """The same call again changes nothing more: an unknown outcome is settled by repeating it."""
    reconcile: ToolReconcile | None = None
    settle_ms: int = 0
    timeout_ms: int | None = None


class McpSettings(ServiceSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the connector."""

    tools_file: Path
    """The tools as a person has seen them. `keep mcp-tools` writes it."""
    command: Sequence[str] = ()
    """The program of a server on this machine, with its arguments."""
    folder: Path | None = None
    """Where the program runs. None: in an empty folder."""
    env: Mapping[str, str] = {}
    secret_env: Mapping[str, Secret] = {}
    url: str = ""
    """The address of a server that is reached over HTTP."""
    headers: Mapping[str, Secret] = {}
    """Sent with each request, such as `Authorization`."""
    allow: Sequence[str] = ()
    """`host:port` that may be reached although it is not public."""
    ca_file: Path | None = None
    trust_annotations: bool = False
    """A tool that says that it only reads is believed."""
    tools: Mapping[str, ToolSettings] = {}
    timeout_s: float = 60
    """For each request."""
    look_every_s: float = 600
    """The list of tools is compared again before a call, if the last time is longer ago."""
    message_bytes_max: int = 4_000_000


def check(settings: McpSettings) -> None:
    """Refuse settings that cannot be meant. Raises `SettingsError`."""
    if bool(settings.command) == bool(settings.url):
        raise SettingsError(
            "command", 'write command = ["program", …] for a server on this machine, or url = "https://…"'
        )
    for word in _ONLY_PROGRAM if settings.url else _ONLY_WEB:
        if getattr(settings, word):
            other = "command" if settings.url else "url"
            raise SettingsError(word, f"is for a server with a {other}; leave it out")
    for word in ("timeout_s", "look_every_s"):
        if not 0 < getattr(settings, word) <= 86_400:
            raise SettingsError(word, "write a number of seconds above 0, at most a day")
    if not 1_000 <= settings.message_bytes_max <= _MESSAGE_BYTES_MAX:
        raise SettingsError("message_bytes_max", f"write a number from 1,000 to {_MESSAGE_BYTES_MAX:,}")
    for name in {*settings.env} & {*settings.secret_env}:
        raise SettingsError(f"env.{name}", "is in secret_env too; keep one")
    for name, tool in settings.tools.items():
        _check_tool(f"tools.{name}", tool)


def _check_tool(where: str, tool: ToolSettings) -> None:
    if tool.against_its_word and tool.kind not in ("read", "read_by_id") and tool.risk is None:
        raise SettingsError(
            f"{where}.against_its_word", 'is for kind = "read" or "read_by_id", or a risk; leave it out'
        )
    if tool.repeat_is_safe and tool.reconcile is not None:
        raise SettingsError(f"{where}.reconcile", "is not needed if repeat_is_safe; keep one")
    for word in _ONLY_MUTATION if tool.kind in ("read", "read_by_id") else ():
        if getattr(tool, word) != getattr(_PLAIN_TOOL, word):
            raise SettingsError(f"{where}.{word}", "is for a mutation, and this is a read; leave it out")


_ONLY_PROGRAM: Final = ("folder", "env", "secret_env")
_ONLY_WEB: Final = ("headers", "allow", "ca_file")
_ONLY_MUTATION: Final = (
    "identity",
    "key_argument",
    "key_meta",
    "error_means",
    "repeat_is_safe",
    "reconcile",
    "settle_ms",
)
_PLAIN_TOOL: Final = ToolSettings()
