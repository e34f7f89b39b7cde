"""The base of the connectors that are there, and of their settings.

A setting that is a `Secret` is hidden in everything that leaves its connector.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec

from keep_actors.connectors import Connector
from keep_actors.outbound.secret import Secret


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one connector. A path is relative to the folder of the file that names it."""


class TextSetting(ABC):
    """A setting that reads itself from its text: an address that is either a path or a URL."""

    @classmethod
    @abstractmethod
    def from_text(cls, text: str, folder: Path) -> Self:
        """The setting, with a path relative to this folder. Raises `ValueError`, without a secret in its message."""


class SettingsError(ValueError):
    """A setting cannot be used. The message names it and says what to write instead."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")


class Service(Connector):
    """A connector that is made of settings, under a name of its own."""

    settings_type: ClassVar[type[ServiceSettings]]
    """The settings of its kind: what `keep.toml` is read as."""

    def __init__(self, settings: ServiceSettings, *, name: str | None = None) -> None:
        if name is not None:
            self.rename(name)
        self.hide(*secrets_in(settings))


def secrets_in(value: Any) -> Iterator[Secret]:
    """Find every secret in settings."""
    match value:
        case Secret():
            yield value
        case msgspec.Struct():
            for field in value.__struct_fields__:
                yield from secrets_in(getattr(value, field))
        case Mapping():
            for each in value.values():
                yield from secrets_in(each)
        case list() | tuple():
            for each in value:
                yield from secrets_in(each)
