"""Settings of a web service and of its calls, as `keep.toml` has them. Other kinds that speak HTTP derive from them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from keep_actors.connectors import Risk
from keep_actors.outbound.secret import Secret
from keep_actors.services.service import ServiceSettings, SettingsError

Typed: TypeAlias = str | Mapping[str, Any]
"""A word such as `"string"`, `"integer?"` or `"string[]"`; or a table that is a JSON Schema."""

Plain: TypeAlias = str | int | float | bool | None
"""A value that is compared, or put into a query. A text that begins with `$` names another: `$key`, `$customerId`."""

Encoding: TypeAlias = Literal["json", "form"]
AnswerKind: TypeAlias = Literal["json", "text", "none"]

BYTES_MAX: Final = 50_000_000
_UNITS_MS: Final = {"s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"([1-9][0-9]{0,6}) ?(s|min|h|d)")


class HttpBasic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """User and password of basic authentication."""

    user: str
    password: Secret


class HttpEndpointSettings(ServiceSettings, frozen=True, kw_only=True):
    """Where a service is, what every request to it has, and how much an answer may have."""

    base_url: str
    headers: Mapping[str, str] = {}
    secret_headers: Mapping[str, Secret] = {}
    bearer: Secret | None = None
    basic: HttpBasic | None = None
    allow: Sequence[str] = ()
    """Addresses as `host:port` that may be reached although they are not public."""
    ca_file: Path | None = None
    bytes_max: int = 1_000_000
    timeout_s: float = 30


class HttpReconcile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GET that finds out if the effect of a call is there."""

    path: str = ""
    """As in a call, with `{key}` for the key. Empty: only what the service named when it accepted the call is asked."""
    query: Mapping[str, Plain] = {}
    items: str = ""
    """The path to the list to search, or to one object. Empty: the whole answer."""
    found: Mapping[str, Plain] = {}
    """Paths in an item and the values that they have if it is the effect."""
    result: str = ""
    """The path in the item to the result of the call. Empty: the item itself."""
    more: str = ""
    """A path in the answer: if it has anything but false, null or nothing, there are further pages."""
    applied: list[int] = []
    """Statuses that mean that the effect is there: `[404]` after a DELETE."""
    not_applied: list[int] = []
    """Statuses that mean that it is not there, and will not come."""
    poll_location: bool = False
    """Ask at the address that the service named when it accepted the call with 202."""
    failed: Mapping[str, Plain] = {}
    """Paths and values that mean that the service has given up an accepted call."""


class HttpRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts about one call of a service that only an operator can know."""

    read: bool | None = None
    """None: GET and HEAD are reads, anything else is a mutation."""
    by_id: bool = False
    risk: Risk | None = None
    permission: str | None = None
    timeout_ms: int | None = None
    identity: list[str] | None = None
    check_hint: str = ""
    check_url: str | None = None
    settle_ms: int = 0
    result_path: str = ""
    """The path in the answer to the result. Empty: the whole answer."""
    refused: Mapping[str, Plain] = {}
    """Paths and values in an answer of status 2xx that mean that the service refused, and nothing happened."""
    happened: list[int] = []
    did_not_happen: list[int] = []
    key_header: str = "Idempotency-Key"
    key_quotes: bool = False
    key_path: str = ""
    """Where in the body the service expects the key."""
    reference_path: str = ""
    """Where in the body the key stands as a reference that the service stores with the object."""
    key_chars: int = 64
    key_lifetime: str = ""
    replay: bool = False
    reconcile: HttpReconcile | None = None


class HttpCall(HttpRules, frozen=True, kw_only=True):
    """One call of a service."""

    path: str
    method: str = "GET"
    parameters: Mapping[str, Typed] = {}
    """Those that stand in the path, in braces."""
    query: Mapping[str, Typed] = {}
    header_parameters: Mapping[str, Typed] = {}
    body: str | Mapping[str, Typed] = {}
    """The fields of the body; or the type of the whole body, which is then one parameter `body`."""
    encoding: Encoding = "json"
    answer: AnswerKind = "json"
    result: Typed = "any"
    description: str = ""


class HttpSettings(HttpEndpointSettings, frozen=True, kw_only=True):
    """A web service and its calls, by their names in scripts."""

    calls: Mapping[str, HttpCall]


def duration_ms(text: str, where: str) -> int:
    """Read `90s`, `30min`, `24h` or `7d`. Raises `SettingsError`."""
    try:
        return read_duration_ms(text)
    except ValueError as error:
        raise SettingsError(where, str(error)) from None


def read_duration_ms(text: str) -> int:
    """Read `90s`, `30min`, `24h` or `7d`. Raises `ValueError`."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f'is {text!r}; write a number and s, min, h or d, such as "24h"')
    return int(found[1]) * _UNITS_MS[found[2]]
