"""Secrets are taken out of answers: as they are, as texts inside texts spell them, and where a text was cut in one."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from keep_actors.outbound.redaction import redacted_words
from keep_actors.outbound.secret import Secret
from keep_actors.text import visible

_BETWEEN: Final = '"\0"'
"""Stands in no text that leaves, and ends a word that was cut."""


def without_secrets(value: Any, secrets: Iterable[Secret]) -> Any:
    """The same value, without the secrets in its texts."""
    known = [each.reveal() for each in secrets]
    # What would be hidden in a secret is spelled out before it gets here.
    looked_for = [Secret(each) for each in dict.fromkeys([*known, *map(visible.spelled, known)])]
    if not looked_for:
        return value
    texts = list(_texts(value))
    assert not any("\0" in each for each in texts), "whatever leaves is spelled out"
    # All at once: looking for a secret takes some preparation.
    safe = redacted_words(_BETWEEN.join(texts), looked_for).split(_BETWEEN)
    assert len(safe) == len(texts), "no secret goes over the end of a text"
    return _replaced(value, iter(safe))


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for each in value:
                yield from _texts(each)
        case dict():
            for each in value.values():
                yield from _texts(each)


def _replaced(value: Any, safe: Iterator[str]) -> Any:
    """The same value with other texts, in the same order. Names are ours."""
    match value:
        case str():
            return next(safe)
        case list():
            return [_replaced(each, safe) for each in value]
        case dict():
            return {name: _replaced(each, safe) for name, each in value.items()}
        case _:
            return value
