"""The connector: the tools of a server that a person has seen, as methods."""

import logging
from collections.abc import Collection, Mapping
from typing import ClassVar, Final
from urllib.parse import urlsplit

from keep_actors.connectors import ConnectorError, Transient
from keep_actors.outbound.addresses import Address, parse_address
from keep_actors.outbound.checked import Connect, ResolveHost
from keep_actors.outbound.redaction import redacted_words
from keep_actors.outbound.web import header_problem
from keep_actors.services.mcp.granted import GrantedTool, load_tools, shown
from keep_actors.services.mcp.mapping import ToolContradicted, ToolOff, decide
from keep_actors.services.mcp.method import ToolMethod
from keep_actors.services.mcp.program import Program
from keep_actors.services.mcp.server import ToolServer
from keep_actors.services.mcp.settings import McpSettings, ToolSettings, check
from keep_actors.services.mcp.web import WebServer
from keep_actors.services.service import Service, SettingsError, secrets_in

logger = logging.getLogger(__name__)

_NO_WORD: Final = ToolSettings()


class Mcp(Service):
    """A server of the Model Context Protocol."""

    name: ClassVar[str] = "mcp"
    settings_type = McpSettings

    def __init__(
        self,
        settings: McpSettings,
        *,
        name: str | None = None,
        resolve: ResolveHost | None = None,
        connect: Connect | None = None,
    ) -> None:
        """Read the tools file. `resolve` and `connect` stand in for the network of this machine."""
        super().__init__(settings, name=name)
        check(settings)
        granted = load_tools(settings.tools_file)
        methods = _methods(self.name, settings, granted)
        by_tool = {each.tool.name: each for each in methods}
        self.offer(each.offered(_reader(each, by_tool)) for each in methods)
        self.server = tool_server(settings, granted, resolve=resolve, connect=connect)
        """The server behind it. Its `look` compares its tools with those that are granted."""
        self._secrets = tuple(secrets_in(settings))

    async def open(self) -> None:
        """Connect, and compare the tools. A server that is down now is tried again when it is called."""
        await self.server.open()
        try:
            await self.server.look()
        except Transient as error:
            logger.warning("%s is not there yet: %s", self.name, redacted_words(str(error), self._secrets))
        except ConnectorError:
            await self.server.close()
            raise

    async def close(self) -> None:
        """Leave the server."""
        await self.server.close()


def tool_server(
    settings: McpSettings,
    granted: Mapping[str, GrantedTool],
    *,
    resolve: ResolveHost | None = None,
    connect: Connect | None = None,
) -> ToolServer:
    """The server that the settings name. Raises `SettingsError`."""
    reachable: Program | WebServer
    if settings.command:
        env = {**settings.env, **{name: secret.reveal() for name, secret in settings.secret_env.items()}}
        reachable = Program(settings.command, settings.folder, env, settings.message_bytes_max)
    else:
        allow = _allowed(settings)
        _check_url(settings.url, allow)
        reachable = WebServer(
            settings.url,
            _headers(settings),
            allow=allow,
            ca_file=settings.ca_file,
            timeout_s=settings.timeout_s,
            bytes_max=settings.message_bytes_max,
            resolve=resolve,
            connect=connect,
        )
    return ToolServer(
        reachable,
        granted,
        marks_sent=bool(settings.command),
        timeout_s=settings.timeout_s,
        look_every_s=settings.look_every_s,
    )


def _methods(connector: str, settings: McpSettings, granted: Mapping[str, GrantedTool]) -> list[ToolMethod]:
    for name in settings.tools:
        if name not in granted:
            raise SettingsError(f"tools.{name}", f"there is no such tool in {settings.tools_file}; take it out")
    methods: list[ToolMethod] = []
    for tool in granted.values():
        word = settings.tools.get(tool.name, _NO_WORD)
        decision = decide(tool.hints, word, is_trusted=settings.trust_annotations)
        match decision:
            case ToolContradicted(why=why, setting=setting):
                raise SettingsError(f"tools.{tool.name}.{setting}", why)
            case ToolOff():
                continue
        methods.append(ToolMethod(connector, tool, decision, word, round(settings.timeout_s * 1000)))
    if not methods:
        raise SettingsError("tools_file", f"{settings.tools_file} has no tool that is offered")
    return methods


def _reader(method: ToolMethod, by_tool: Mapping[str, ToolMethod]) -> ToolMethod | None:
    how = method.word.reconcile
    if how is None:
        return None
    reader = by_tool.get(how.tool)
    if reader is None or reader.standing.kind != "read":
        words = f'{shown(how.tool)} is no tool that reads; write kind = "read" for it'
        raise SettingsError(f"{method.where}.reconcile.tool", words)
    return reader


def _headers(settings: McpSettings) -> dict[str, str]:
    headers = {name.lower(): secret.reveal() for name, secret in settings.headers.items()}
    for name, value in headers.items():
        if problem := header_problem(name, value):
            raise SettingsError(f"headers.{name}", problem)
    return headers


def _allowed(settings: McpSettings) -> list[Address]:
    try:
        return [parse_address(each) for each in settings.allow]
    except ValueError as error:
        raise SettingsError("allow", str(error)) from None


def _check_url(url: str, allow: Collection[Address]) -> None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise SettingsError("url", "is no address; write https://host/path") from None
    is_plain = url.isascii() and url.isprintable() and not set(url) & set(" \\#@")
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain:
        raise SettingsError("url", "is no address of a server; write https://host/path, without a user")
    here = (parts.hostname.lower(), 80 if port is None else port)
    if parts.scheme == "http" and here not in allow:
        what = f'is not encrypted; write https://, or allow = ["{here[0]}:{here[1]}"] if the network is your own'
        raise SettingsError("url", what)
