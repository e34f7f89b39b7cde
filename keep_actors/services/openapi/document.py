"""An OpenAPI document of a local file. Nothing of it is fetched, and a reference leads only to another part of it."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from keep_actors.services.service import SettingsError
from keep_actors.text.visible import quoted

BYTES_MAX: Final = 10_000_000
VERSIONS: Final = ("3.0", "3.1")
_HOPS_MAX: Final = 20
_SHOWN_MAX: Final = 120


class Document(msgspec.Struct, frozen=True):
    """A document, as it was read."""

    root: Mapping[str, Any]
    sha256: str
    """Of the bytes of the file."""

    def resolved(self, value: object, where: str) -> tuple[Mapping[str, Any], str]:
        """An object of the document and its place, with references followed. Raises `SettingsError`."""
        for _ in range(_HOPS_MAX):
            if not isinstance(value, Mapping):
                raise SettingsError(where, "is no object; the document is not OpenAPI here")
            if "$ref" not in value:
                return value, where
            where, value = f"{where} → {shown(value['$ref'])}", self._referred(value["$ref"], where)
        raise SettingsError(where, f"more than {_HOPS_MAX} references in a row; a circle leads nowhere")

    def _referred(self, reference: object, where: str) -> object:
        if not isinstance(reference, str) or not reference.startswith("#/"):
            what = f"refers to {shown(reference)}, which is not in this document; put what it names into the document"
            raise SettingsError(where, what)
        found: object = self.root
        for part in reference[2:].split("/"):
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                raise SettingsError(where, f"refers to {shown(reference)}, which the document does not have")
            found = found[name]
        return found


def shown(text: object, most: int = _SHOWN_MAX) -> str:
    """A text of the document in a message: quoted, bounded, invisible characters spelled out."""
    return quoted(text if isinstance(text, str) else str(type(text).__name__), most)[0]


def read_document(path: Path, seen: str) -> Document:
    """Read a document, and compare it with the one that a person has seen. Raises `SettingsError`."""
    try:
        with path.open("rb") as file:
            content = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError("document", f"{path} cannot be read: {error.strerror}") from None
    if len(content) > BYTES_MAX:
        raise SettingsError("document", f"{path} has more than {BYTES_MAX:,} bytes; keep the part that you use")
    sha256 = hashlib.sha256(content).hexdigest()
    if seen and seen.lower() != sha256:
        what = f"{path} is another document than the one that was seen: look at what changed, then write {sha256!r}"
        raise SettingsError("seen", what)
    return Document(_decoded(path, content), sha256)


def _decoded(path: Path, content: bytes) -> Mapping[str, Any]:
    try:
        root = msgspec.json.decode(content)
    except (ValueError, RecursionError):
        raise SettingsError("document", f"{path} is not JSON; write a document of YAML as JSON") from None
    version = root.get("openapi") if isinstance(root, dict) else None
    if not isinstance(version, str) or not version.startswith(tuple(f"{each}." for each in VERSIONS)):
        what = f"{path} has the version {shown(version)}; write OpenAPI {' or '.join(VERSIONS)}"
        raise SettingsError("document", what)
    assert isinstance(root, dict), "it has a version"
    return root
