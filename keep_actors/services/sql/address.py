"""The address of a database: a file of SQLite, or the URL of PostgreSQL without its password."""

import re
from pathlib import Path
from typing import Final, Self, final
from urllib.parse import parse_qs, urlsplit

from keep_actors.services.service import TextSetting

_SCHEMES: Final = ("postgresql", "postgres")
_SECRETS: Final = {"password", "sslpassword", "oauth_client_secret"}
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


@final
class DatabaseAddress(TextSetting):
    """`crm.db`, or `postgresql://keep@127.0.0.1/crm`. Raises `ValueError`, which never has a password in it."""

    def __init__(self, text: str, folder: Path = Path()) -> None:
        self.url: str = ""
        """Of PostgreSQL, or empty."""
        self.file = Path()
        """Of SQLite."""
        if not text or "\0" in text:
            raise ValueError("is empty or has a NUL character; write a path, or postgresql://user@host/database")
        if not _SCHEME.match(text):
            if text == ":memory:":
                raise ValueError("a database in memory ends with each call; write the path of a file")
            self.file = folder / text
            return
        if text.partition("://")[0] not in _SCHEMES:
            raise ValueError("only postgresql:// is known; write that, or the path of a SQLite file")
        parts = urlsplit(text)
        if ":" in parts.netloc.rpartition("@")[0] or set(parse_qs(parts.query, keep_blank_values=True)) & _SECRETS:
            raise ValueError('a password does not stand here; write password = { env = "NAME" }')
        self.url = text

    @classmethod
    def from_text(cls, text: str, folder: Path) -> Self:
        """The address as it stands in a file of settings."""
        return cls(text, folder)

    def __repr__(self) -> str:
        return f"DatabaseAddress({self.url or str(self.file)!r})"
