"""A value that is used and never shown: no text, log line, encoding or copy of it has more than the word `[secret]`.

Code that writes logs or answers recognises it by its type. msgspec, `json` and pickle refuse it, without its content.
"""

from typing import Any, Final, NoReturn, final

SHOWN: Final = "[secret]"


@final
class Secret:
    """An API key, a password, a token. Only `reveal` gives it back: call it where it is used, and keep no result."""

    __slots__ = ("__value", "__weakref__")

    def __init__(self, value: str) -> None:
        if not isinstance(value, str):
            # Without the value, which may hold the secret.
            raise TypeError(f"a secret is a text, not a {type(value).__name__}")
        self.__value = value

    def reveal(self) -> str:
        """Return the value itself."""
        return self.__value

    def __repr__(self) -> str:
        return SHOWN

    def __format__(self, spec: str) -> str:
        return format(SHOWN, spec)

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Secret":
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a secret is not pickled")
