"""Types as an operator writes them: a word such as `"integer?"`, or a table that is a JSON Schema. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from keep_actors.services.http.settings import Typed
from keep_actors.services.service import SettingsError

_WORDS: Final = ("string", "integer", "number", "boolean", "object", "array")
_OPTIONAL: Final = "optional"


def schema_of(typed: Typed, where: str) -> tuple[dict[str, Any], bool]:
    """The JSON Schema, and True if a value is required. Raises `SettingsError`."""
    if isinstance(typed, Mapping):
        schema = {name: value for name, value in typed.items() if name != _OPTIONAL}
        is_optional = typed.get(_OPTIONAL, False)
        if not isinstance(is_optional, bool):
            raise SettingsError(f"{where}.{_OPTIONAL}", "is neither true nor false")
        return schema, not is_optional
    word = typed.removesuffix("?")
    return _schema(word, typed, where), word == typed


def _schema(word: str, typed: str, where: str) -> dict[str, Any]:
    if word.endswith("[]"):
        return {"type": "array", "items": _schema(word.removesuffix("[]"), typed, where)}
    if word == "any":
        return {}
    if word not in _WORDS:
        there = ", ".join((*_WORDS, "any"))
        raise SettingsError(where, f"{typed!r} is no type; write one of {there}, with [] for a list and ? if optional")
    return {"type": word}
