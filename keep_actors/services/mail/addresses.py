"""Addresses to which a mail may go: plain ones, that mean the same to every server, and only those that are allowed.

Refused: quoted local parts, comments, routes (`a%b@c`, `a!b@c`), address literals and anything beyond ASCII. Servers
read those in more than one way, and a rule about domains would be a rule about something else.
"""

import re
from collections.abc import Collection, Iterable
from email.errors import MessageError
from email.headerregistry import Address
from typing import Final

from keep_actors.connectors import InvalidCall, PermissionDenied
from keep_actors.services.mail.words import problem_with_line

ADDRESS_CHARS_MAX: Final = 254
_LOCAL: Final = r"[A-Za-z0-9#$&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9#$&'*+/=?^_`{|}~-]+)*"
_LABEL: Final = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
DOMAIN: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.ASCII)
_PLAIN: Final = re.compile(rf"{_LOCAL}@{DOMAIN.pattern}", re.ASCII)
# What the parser of addresses raises for texts that are none: it reads beyond their end, too.
_NO_ADDRESS: Final = (MessageError, ValueError, IndexError)


def problem_with_address(text: str) -> str:
    """The reason why a text is no address to send to; empty if it is one."""
    if problem := problem_with_line(text, ADDRESS_CHARS_MAX):
        return problem
    if not text.isascii():
        return "is not ASCII; write the domain in Punycode (`xn--…`)"
    if not _PLAIN.fullmatch(text):
        return "is not a plain address; write name@example.com, without a display name"
    try:
        parsed = Address(addr_spec=text).addr_spec
    except _NO_ADDRESS:
        return "is not an address; write name@example.com"
    return "" if parsed == text else "is read as another address; write name@example.com"


def is_plain(text: str) -> bool:
    """Return True for an address that could be sent to."""
    return not problem_with_address(text)


def checked(param: str, addresses: Iterable[str]) -> tuple[str, ...]:
    """The addresses, if each is one. Raises `InvalidCall`."""
    given = tuple(addresses)
    for place, each in enumerate(given):
        if problem := problem_with_address(each):
            raise InvalidCall(f"{param}[{place}]: {each[:ADDRESS_CHARS_MAX]!r} {problem}")
    return given


def without_repeats(addresses: Iterable[str]) -> tuple[str, ...]:
    """Each address once, in order. Domains have no upper and lower case."""
    once = {(local, domain.lower()): each for each in addresses for local, _, domain in [each.partition("@")]}
    return tuple(once.values())


def refuse_others(addresses: Iterable[str], allowed: Collection[str] | None) -> None:
    """Raise `PermissionDenied` for an address that is not in the operator's list of addresses and domains."""
    if allowed is None:
        return
    known = {each.lower() for each in allowed}
    for each in addresses:
        lowered = each.lower()
        if lowered not in known and lowered.partition("@")[2] not in known:
            raise PermissionDenied(f"{each} is not in allowed_recipients; ask the operator to add it")
