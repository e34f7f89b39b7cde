"""`keep.toml`: connectors with their settings, and where their secrets are. An error names file, section and setting.

    [connectors.crm]                                   # ctx.crm
    kind = "sql"                                       # one of KINDS, or module:Class of your own
    database = "postgresql://keep@127.0.0.1/crm"
    password = { env = "CRM_PASSWORD" }                # or { file = "…" } or { call = "module:function" }

A secret never stands in the file itself. Paths are relative to the folder of the file.
"""

import tomllib
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from keep_actors.connectors import Connector, ConnectorDefinitionError, ConnectorLoadError
from keep_actors.connectors.names import problem_with_namespace
from keep_actors.connectors.params import misfit
from keep_actors.kernel.foreign_code import attempt, spelled_out
from keep_actors.outbound.redaction import redacted_words
from keep_actors.outbound.secret import Secret
from keep_actors.services.misfits import misfits, there_are
from keep_actors.services.secrets import secret_from
from keep_actors.services.service import Service, ServiceSettings, SettingsError, TextSetting, secrets_in

S = TypeVar("S", bound=msgspec.Struct)


class ServiceKind(NamedTuple):
    """A connector that is there."""

    at: str
    """Its class, as `module:Class`."""
    about: str
    extra: str = ""
    """The extra to install for it: `pip install 'keep-actors[mail]'`. Empty: nothing more."""
    package: str = ""
    """A package of that extra."""

    @property
    def is_installed(self) -> bool:
        """True if what it needs is there."""
        return not self.package or find_spec(self.package) is not None


_SERVICES: Final = "keep_actors.services"
KINDS: Final[Mapping[str, ServiceKind]] = {
    "chat": ServiceKind(f"{_SERVICES}.chat:Chat", "ask a language model", "http", "httpx2"),
    "files": ServiceKind(f"{_SERVICES}.files:Files", "files below one folder"),
    "http": ServiceKind(f"{_SERVICES}.http:Http", "calls of a web service that you declare", "http", "httpx2"),
    "mail": ServiceKind(f"{_SERVICES}.mail:Mail", "send by SMTP, search and read by IMAP", "mail", "imapclient"),
    "mcp": ServiceKind(f"{_SERVICES}.mcp:Mcp", "the tools of a Model Context Protocol server", "mcp", "mcp"),
    "openapi": ServiceKind(f"{_SERVICES}.openapi:OpenApi", "operations of an OpenAPI document", "http", "httpx2"),
    "sheet": ServiceKind(f"{_SERVICES}.sheet:Sheet", "rows of a CSV file or an XLSX workbook", "sheet", "openpyxl"),
    "sql": ServiceKind(f"{_SERVICES}.sql:Sql", "tables and queries of SQLite, or of PostgreSQL", "postgres", "psycopg"),
}
"""The connectors that are there, by the word in `kind`."""


class ConfigurationError(Exception):
    """A file of settings cannot be used. The message says where in it, what is wrong, and what to write."""


def load_configuration(path: Path | str) -> list[Connector]:
    """The connectors that a file names, in its order. Raises `ConfigurationError`.

    Nothing is connected: the host opens them. Secrets are read now, and so is the code of your own kinds.
    """
    path = Path(path)
    sections = _sections(path)
    return [_connector(path, name, section) for name, section in sections.items()]


def load_settings(path: Path, name: str) -> ServiceSettings:
    """The settings of one section, of which no connector is made. Raises `ConfigurationError`."""
    sections = _sections(path)
    if name not in sections:
        raise ConfigurationError(f"{path} has no section [connectors.{name}]{there_are(name, sections)}.")
    return _read(path, name, sections[name])[1]


def kind_class(kind: str) -> type[Service]:
    """Import the class of a kind. Raises `ConnectorLoadError`."""
    module_name, _, class_name = (KINDS[kind].at if kind in KINDS else kind).partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), class_name)):
        raise ConnectorLoadError(f"there is no kind {kind!r}{there_are(kind, [*KINDS, 'module:Class of your own'])}")
    with attempt() as tried:
        import_module(module_name)
    if isinstance(tried.error, ModuleNotFoundError) and kind in KINDS:
        extra = f"pip install 'keep-actors[{KINDS[kind].extra}]'"
        raise ConnectorLoadError(f"the kind {kind!r} needs {tried.error.name}, which is not installed; {extra}")
    if tried.error is not None:
        raise ConnectorLoadError(f"{module_name} cannot be imported: {spelled_out(tried.error)}") from tried.error
    found = getattr(import_module(module_name), class_name, None)
    if not (isinstance(found, type) and issubclass(found, Service) and hasattr(found, "settings_type")):
        raise ConnectorLoadError(f"{module_name} has no class {class_name} that is a Service with a settings_type")
    return found


def read_settings(settings_type: type[S], given: Mapping[str, Any], folder: Path) -> S:
    """Settings from what stood in a file. Raises `SettingsError`, without a value in its message."""

    def decode(wanted: type, value: Any) -> Any:
        if wanted is Secret:
            return secret_from(value, folder)
        if wanted is Path and isinstance(value, str):
            return folder / value
        if issubclass(wanted, TextSetting) and isinstance(value, str):
            return wanted.from_text(value, folder)
        what = "a path as text" if wanted is Path else "text"
        raise ValueError(f"Expected {what}, got {type(value).__name__}")

    try:
        return msgspec.convert(given, settings_type, dec_hook=decode)
    except msgspec.ValidationError as error:
        where, message = next(misfits(settings_type, given, decode), misfit(str(error)))
        raise SettingsError(where or "the section", message) from None


def _sections(path: Path) -> dict[str, dict[str, Any]]:
    try:
        found = tomllib.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8 text.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not TOML: {error}.") from None
    for name in found:
        if name != "connectors":
            raise ConfigurationError(f"{path}: [{name}] is not known; write [connectors.NAME] for a connector.")
    sections = found.get("connectors", {})
    if not isinstance(sections, dict) or not sections:
        raise ConfigurationError(f"{path} names no connector; write a section [connectors.NAME].")
    for name, section in sections.items():
        if not isinstance(section, dict):
            raise ConfigurationError(f"{path}: connectors.{name} is no section; write [connectors.{name}].")
    return sections


def _connector(path: Path, name: str, section: Mapping[str, Any]) -> Connector:
    cls, settings = _read(path, name, section)
    return _made(cls, settings, name, _place(path, name))


def _read(path: Path, name: str, section: Mapping[str, Any]) -> tuple[type[Service], ServiceSettings]:
    where = _place(path, name)
    if problem := problem_with_namespace(name):
        raise ConfigurationError(f"{where}: the name {problem}; choose another.")
    given = dict(section)
    kind = given.pop("kind", None)
    if not isinstance(kind, str):
        raise ConfigurationError(f'{where}: `kind` is missing; there are: {", ".join(KINDS)}, or "module:Class".')
    try:
        cls = kind_class(kind)
        return cls, read_settings(cls.settings_type, given, path.parent)
    except (ConnectorLoadError, SettingsError) as error:
        raise ConfigurationError(f"{where}: {error}") from error.__cause__


def _place(path: Path, name: str) -> str:
    return f"{path}: [connectors.{name}]"


def _made(cls: type[Service], settings: ServiceSettings, name: str, where: str) -> Connector:
    made: object = None
    with attempt() as tried:
        made = cls(settings, name=name)
    if tried.error is not None:
        is_declared = isinstance(tried.error, (ConnectorDefinitionError, SettingsError))
        words = str(tried.error) if is_declared else f"{cls.__name__} cannot be made: {spelled_out(tried.error)}"
        raise ConfigurationError(f"{where}: {redacted_words(words, secrets_in(settings))}")
    assert isinstance(made, Connector), "it was made, or raised"
    return made
