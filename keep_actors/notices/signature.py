"""The signature of a webhook, as *Standard Webhooks* 1.0.0 has it (https://www.standardwebhooks.com).

HMAC-SHA256 over the id, the time of sending and the body. One side signs, with one secret or several; the other
verifies, with `verify` or with any library for that standard.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from keep_actors.api.notice import Notice
from keep_actors.outbound.secret import Secret
from keep_storage.ids import Millis

NOTICE_ID: Final = "webhook-id"
"""The notice's id: the same at every attempt."""
TIMESTAMP: Final = "webhook-timestamp"
"""The time of sending, in seconds since the epoch. Each attempt has its own."""
SIGNATURE: Final = "webhook-signature"
"""`v1,` and the HMAC in base64; one for each secret, separated by spaces."""

TOLERANCE_MS: Final = 5 * 60 * 1000
SECRET_PREFIX: Final = "whsec_"  # noqa: S105  # how secrets of this kind begin
_SECRET_BYTES: Final = (24, 64)
_DIGITS_MAX: Final = 12
_SCHEME: Final = "v1,"

Secrets: TypeAlias = Secret | str | tuple[Secret | str, ...]
"""One, or several while one is replaced by another."""


class BadSignature(ValueError):
    """The sender does not know the secret, or did not send the request just now. Answer 400, and do not trust it."""


def new_secret() -> Secret:
    """A secret at random. `reveal` it once, and keep it where both sides find it."""
    return Secret(SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode())


def signed(secret: Secret, notice_id: str, timestamp_s: int, body: bytes) -> str:
    """A signature, for `webhook-signature`."""
    content = f"{notice_id}.{timestamp_s}.".encode() + body
    return _SCHEME + base64.b64encode(hmac.new(_key(secret), content, hashlib.sha256).digest()).decode()


def verify(
    secret: Secrets, headers: Mapping[str, str], body: bytes, *, now: Millis, tolerance_ms: Millis = TOLERANCE_MS
) -> Notice:
    """Return the notice in a request, if its sender knows the secret and sent it just now.

    `body` is as it came, before any decoding. `now` is the time in milliseconds; the clocks of sender and receiver may
    differ by `tolerance_ms`. With several secrets one of them has to fit: so one can be replaced by another. A request
    that is repeated within the tolerance is genuine: drop a `Notice.id` that you have seen.

    Raises `BadSignature`, whatever is in the headers; `ValueError` if the secret itself is not one.
    """
    known = checked_secrets(secret)
    given = {str(name).lower(): value for name, value in headers.items()}
    notice_id, timestamp_s = _id(_header(given, NOTICE_ID)), _timestamp(_header(given, TIMESTAMP))
    signatures = [each.encode() for each in _header(given, SIGNATURE).split(" ")]
    expected = [signed(each, notice_id, timestamp_s, body).encode() for each in known]
    # Every pair is compared, in constant time: the time says nothing about how much was right.
    fits = [hmac.compare_digest(one, other) for one in expected for other in signatures]
    if not any(fits):
        raise BadSignature(f"{SIGNATURE} does not fit: another secret, or the body is not as it was sent")
    apart = now - timestamp_s * 1000
    # It was sent at some time in that second.
    if apart >= tolerance_ms + 1000 or apart < -tolerance_ms:
        when = "ago" if apart > 0 else "ahead of this clock"
        raise BadSignature(f"the request was signed {abs(apart)} ms {when}; at most {tolerance_ms} ms")
    try:
        return msgspec.json.decode(body, type=Notice)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadSignature(f"the body is signed, but is not a notice: {error}") from None


def checked_secrets(secret: Secrets) -> tuple[Secret, ...]:
    """Check that each secret is long enough not to be guessed. Raises `ValueError`, without their content."""
    several = secret if isinstance(secret, tuple) else (secret,)
    if not several:
        raise ValueError("a webhook needs a secret")
    checked = tuple(each if isinstance(each, Secret) else Secret(each) for each in several)
    for each in checked:
        _key(each)
    return checked


def _key(secret: Secret) -> bytes:
    text, (least, most) = secret.reveal(), _SECRET_BYTES
    key = b""
    if text.startswith(SECRET_PREFIX):
        encoded = text.removeprefix(SECRET_PREFIX).rstrip("=")
        try:
            key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
        except (binascii.Error, ValueError):
            key = b""
    if not least <= len(key) <= most:
        raise ValueError(
            f"the secret of a webhook is `{SECRET_PREFIX}` and {least} to {most} random bytes in base64; "
            "keep_actors.notices.new_secret() makes one"
        )
    return key


def _header(given: Mapping[str, object], name: str) -> str:
    value = given.get(name)
    if value is None:
        raise BadSignature(f"the header {name} is missing")
    if not (isinstance(value, str) and value.isascii() and value.isprintable()):
        raise BadSignature(f"{name} is not text that a header can have")
    return value


def _id(text: str) -> str:
    # A full stop separates what is signed: with one in the id, two requests could have one signature.
    if not text or "." in text:
        raise BadSignature(f"{NOTICE_ID} is not the id of a notice")
    return text


def _timestamp(text: str) -> int:
    if not (text.isdecimal() and len(text) <= _DIGITS_MAX):
        raise BadSignature(f"{TIMESTAMP} is not a number of seconds")
    return int(text)
