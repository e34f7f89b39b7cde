"""The signature of a webhook: HMAC-SHA256 over the time of sending and the body. One side signs, the other verifies."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

import msgspec

from keep_actors.notices.notice import Notice
from keep_actors.secret import Secret
from keep_storage.ids import Millis

TIMESTAMP: Final = "Keep-Timestamp"
"""When it was sent, in milliseconds since the epoch. Anew at every attempt."""
SIGNATURE: Final = "Keep-Signature"
"""`v1=` and the HMAC in hexadecimal, of the timestamp, a full stop and the body."""
NOTICE_ID: Final = "Keep-Notice-Id"
"""The notice's id: the same at every attempt."""

TOLERANCE_MS: Final = 5 * 60 * 1000
_SECRET_CHARS_MIN: Final = 16
_DIGITS_MAX: Final = 15
_SCHEME: Final = "v1="


class BadSignature(ValueError):
    """The request is not from who knows the secret, or not from now. Answer 400, and believe nothing of it."""


def signed(secret: Secret, timestamp: Millis, body: bytes) -> str:
    """The value of `Keep-Signature`."""
    return _SCHEME + hmac.new(secret.reveal().encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()


def verify(
    secret: Secret | str | tuple[Secret | str, ...],
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: Millis,
    tolerance_ms: Millis = TOLERANCE_MS,
) -> Notice:
    """The notice in a request, if whoever sent it knows the secret and sent it just now.

    `body` is as it came, before any decoding. `now` is the time in milliseconds; who sends and who receives may differ
    by `tolerance_ms`. With several secrets one of them has to fit: so one can be replaced by another. A request that is
    repeated within the tolerance is genuine: drop a `Notice.id` that you have seen.

    Raises `BadSignature`.
    """
    given = {name.lower(): value for name, value in headers.items()}
    timestamp = _timestamp(_header(given, TIMESTAMP))
    signatures = [each.strip().encode() for each in _header(given, SIGNATURE).split(",")]
    secrets = secret if isinstance(secret, tuple) else (secret,)
    expected = [signed(checked_secret(each), timestamp, body).encode() for each in secrets]
    # Every pair is compared, in a time that says nothing about how much of it was right.
    fits = [hmac.compare_digest(one, other) for one in expected for other in signatures]
    if not any(fits):
        raise BadSignature(f"{SIGNATURE} does not fit: another secret, or the body is not as it was sent")
    if abs(now - timestamp) > tolerance_ms:
        when = "ago" if timestamp < now else "ahead of this clock"
        raise BadSignature(f"the request was signed {abs(now - timestamp)} ms {when}; allowed are {tolerance_ms} ms")
    try:
        return msgspec.json.decode(body, type=Notice)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadSignature(f"the body is signed, but it is no notice: {error}") from None


def checked_secret(secret: Secret | str) -> Secret:
    """Long enough not to be guessed. Raises `ValueError`, without its content."""
    checked = secret if isinstance(secret, Secret) else Secret(secret)
    if len(checked.reveal()) < _SECRET_CHARS_MIN:
        raise ValueError(f"the secret of a webhook has at least {_SECRET_CHARS_MIN} characters, at random")
    return checked


def _header(given: Mapping[str, str], name: str) -> str:
    if (value := given.get(name.lower())) is None:
        raise BadSignature(f"there is no header {name}")
    return value


def _timestamp(text: str) -> Millis:
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX):
        raise BadSignature(f"{TIMESTAMP} is not a number of milliseconds")
    return int(text)
