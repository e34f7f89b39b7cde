"""Take secrets out of a text: a service may echo a key in its answer, and a client may put a password in its error."""

import base64
import json
import traceback
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote

from keep_actors.outbound.secret import SHOWN, Secret

CHARS_MIN: Final = 4
"""A shorter secret is not looked for: it would be found in every word."""


def redacted(text: str, secrets: Iterable[Secret]) -> str:
    """Replace every secret in a text, as it is and as JSON, URLs and basic authentication spell it."""
    spellings = {spelling for secret in secrets for spelling in _spellings(secret.reveal())}
    for spelling in sorted(spellings, key=len, reverse=True):
        text = text.replace(spelling, SHOWN)
    return text


def _spellings(value: str) -> Iterable[str]:
    if len(value) < CHARS_MIN:
        return
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield quote(value)
    yield quote(value, safe="")
    yield repr(value)[1:-1]
    yield base64.b64encode(value.encode()).decode()


def redacted_json(json_text: str, secrets: Iterable[Secret]) -> str:
    """The same for JSON, which stays JSON: only its texts and names change."""
    secrets = tuple(secrets)
    if redacted(json_text, secrets) == json_text:
        return json_text
    return json.dumps(_without(json.loads(json_text), secrets), ensure_ascii=False, separators=(",", ":"))


def redacted_error(error: BaseException, secrets: Iterable[Secret]) -> BaseException:
    """The error itself, or an error with its traceback as text, if there are secrets in that."""
    text = "".join(traceback.format_exception(error))
    safe = redacted(text, secrets)
    return error if safe == text else RuntimeError(safe)


def _without(value: Any, secrets: tuple[Secret, ...]) -> Any:
    match value:
        case str():
            return redacted(value, secrets)
        case list():
            return [_without(each, secrets) for each in value]
        case dict():
            return {redacted(name, secrets): _without(each, secrets) for name, each in value.items()}
        case _:
            return value
