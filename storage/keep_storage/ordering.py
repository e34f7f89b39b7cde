"""Ordering keys: which events a consumer wants in order, by a member of their payload. Pure.

A consumer declares where the key is (`customer.id`). While a run is parked over an unknown outcome, other events with
a key that it holds wait for it; events without a key do not wait.
"""

import hashlib
from typing import Final

import msgspec

from keep_storage.limits import ORDERING_KEY_CHARS_MAX
from keep_storage.model import Json

_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KEY: Final = msgspec.json.Decoder(str | int | float | bool)


def ordering_key(payload: Json, ordering: str | None) -> str | None:
    """The key of an event, if its consumer declares one and the payload has a text, a number or a truth value there.

    A number that no float can hold (`1e400` is valid JSON) is no key: it is not taken any more; a file may have it.
    """
    if ordering is None:
        return None
    try:
        # Only what leads to the key is decoded: a payload may be made of what takes long.
        found = msgspec.Raw(payload.encode())
        for member in ordering.split("."):
            found = _MEMBERS.decode(found)[member]
        key = _KEY.decode(found)
    except (msgspec.DecodeError, UnicodeError, RecursionError, KeyError):
        return None
    # As JSON, so that the number 7 and the text "7" are two keys.
    text = msgspec.json.encode(key).decode()
    return text if len(text) <= ORDERING_KEY_CHARS_MAX else hashlib.sha256(text.encode()).hexdigest()
