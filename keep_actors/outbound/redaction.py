"""Take secrets out of a text: a service may echo a key in its answer, and a client may put a password in its error."""

import base64
import html
import json
import re
import traceback
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote, quote_plus

from keep_actors.outbound.secret import SHOWN, Secret

CHARS_MIN: Final = 4
"""A shorter secret is not looked for: it would be found in every word."""
_EDGES: Final = frozenset("\"'…")
"""The characters that stand around words that were cut."""
_URL_HEX: Final = re.compile(r"(?<=%)[0-9A-F]{2}")
_JSON_HEX: Final = re.compile(r"(?<=\\u)[0-9a-f]{4}")
_HTML_SAFE: Final = re.compile(r"[&<>'+]")
_BASE64_CHARS_MIN: Final = 5


def redacted(text: str, secrets: Iterable[Secret]) -> str:
    """Replace every secret in a text, as it is and as JSON, URLs, HTML and base64 spell it."""
    return _replaced(text, _ordered(secrets))


def redacted_words(text: str, secrets: Iterable[Secret]) -> str:
    """The same for words that may have been cut: also the piece of a secret that a cut has left."""
    spellings = _ordered(secrets)
    text = _replaced(text, spellings)
    for spelling in spellings:
        text = _without_piece(text, spelling)
        text = _without_piece(text[::-1], spelling[::-1], SHOWN[::-1])[::-1]
    return text


def _ordered(secrets: Iterable[Secret]) -> list[str]:
    """The longest first: one may be a part of another."""
    spellings = {spelling for secret in secrets for spelling in _spellings(secret.reveal())}
    return sorted(spellings, key=len, reverse=True)


def _replaced(text: str, spellings: Iterable[str]) -> str:
    for spelling in spellings:
        text = text.replace(spelling, SHOWN)
    return text


def _without_piece(text: str, spelling: str, shown: str = SHOWN) -> str:
    """Replace the beginning of a spelling where it stands at the end of the text, or of a quotation in it."""
    place = text.find(spelling[:CHARS_MIN])
    while place >= 0:
        end = place
        while end < len(text) and end - place < len(spelling) and text[end] == spelling[end - place]:
            end += 1
        if end == len(text) or text[end] in _EDGES:
            text = text[:place] + shown + text[end:]
            place += len(shown) - 1
        place = text.find(spelling[:CHARS_MIN], place + 1)
    return text


def _spellings(value: str) -> Iterator[str]:
    if len(value) < CHARS_MIN:
        return
    content = value.encode(errors="surrogatepass")
    yield from (value, html.escape(value), " ".join(value.split()))
    for once in _escaped(value):
        yield once
        yield from _escaped(once)  # an answer that is quoted in an error
    for as_url in (quote(content), quote(content, safe=""), quote_plus(content)):
        yield as_url
        yield _URL_HEX.sub(lambda found: found[0].lower(), as_url)
    yield base64.b64encode(content).decode()
    yield from _inside_base64(content)


def _escaped(text: str) -> Iterator[str]:
    """A text as it stands between the quotes of JSON, and of Python."""
    if text.isalnum() and text.isascii():
        return
    as_json = json.dumps(text)[1:-1]
    html_safe = _HTML_SAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", as_json)
    yield from (as_json, json.dumps(text, ensure_ascii=False)[1:-1], as_json.replace("/", "\\/"), html_safe)
    yield from (_JSON_HEX.sub(lambda found: found[0].upper(), each) for each in (as_json, html_safe))
    content = text.encode(errors="surrogatepass").decode("latin-1")
    for plain in (repr(f'"{text}')[2:-1], content.encode("unicode_escape").decode()):
        # Python escapes the one quote, the other, or none, by what else is between them.
        bare = plain.replace("\\'", "'")
        yield from (plain, bare, bare.replace("'", "\\'"))


def _inside_base64(content: bytes) -> Iterator[str]:
    """The characters that it has in the base64 of a longer text: `user:password` has one of three."""
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + content).decode().rstrip("=")
        # The first and the last depend on what stands beside it.
        whole = encoded[-(-before * 8 // 6) : (before + len(content)) * 8 // 6]
        if len(whole) >= _BASE64_CHARS_MIN:
            yield whole
            yield whole.replace("+", "-").replace("/", "_")


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
        case int() | float() if any(str(value) == each.reveal() for each in secrets):
            return SHOWN  # a secret of digits, as a number
        case dict():
            return {redacted(name, secrets): _without(each, secrets) for name, each in value.items()}
        case _:
            return value
