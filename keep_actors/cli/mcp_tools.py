"""`keep mcp-tools`: look at the tools of a server, and accept them. Only what a person has accepted is offered."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from keep_actors.cli.exit_codes import Exit, Stopped
from keep_actors.cli.options import json_option
from keep_actors.cli.terminal import json_line, show, show_commands

if TYPE_CHECKING:
    from keep_actors.services.mcp import GrantedTool, McpSettings


@click.command("mcp-tools")
@click.argument("name")
@click.option(
    "--config",
    "configuration",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="KEEP_CONFIG",
    show_envvar=True,
    metavar="KEEP.TOML",
    required=True,
    help="The file that names the server.",
)
@click.option(
    "--accept",
    metavar="DIGEST",
    default="",
    help="Write the tools file, if the server has the very tools that were shown with this digest.",
)
@json_option
def mcp_tools(name: str, configuration: Path, accept: str, as_json: bool) -> None:
    """Compare the tools of an MCP server with those that were accepted, and accept them.

    \b
    keep mcp-tools github --config keep.toml                      shows the difference, and a digest
    keep mcp-tools github --config keep.toml --accept 3f9a…       writes the tools file

    NAME is the section of the server, as in [connectors.github]. The server is started or reached, and asked for its
    list; no tool is called. Its words are shown in quotes: read them as you would read code of strangers.

    Exit code 1: something differs and was not accepted.
    """
    import anyio

    from keep_actors.connectors import ConnectorError
    from keep_actors.outbound.redaction import redacted_words
    from keep_actors.services.mcp.comparison import differences
    from keep_actors.services.mcp.granted import digest_of, save_tools
    from keep_actors.services.service import SettingsError, secrets_in

    settings = _settings(configuration, name)
    try:
        granted = _granted(settings)
        listed = {each.name: each for each in anyio.run(_listed, settings)}
    except (ConnectorError, SettingsError) as error:
        raise Stopped(Exit.WRONG, f"{name}: {redacted_words(str(error), secrets_in(settings))}") from None
    lines, digest = differences(granted, listed), digest_of(listed.values())
    if accept and accept != digest:
        words = f"the server has other tools than those with the digest {accept}; look at them again, without --accept"
        raise Stopped(Exit.WRONG, f"{name}: {words}.")
    if accept:
        try:
            save_tools(settings.tools_file, listed.values())
        except OSError as error:
            raise Stopped(Exit.WRONG, f"{settings.tools_file} cannot be written: {error.strerror}.") from None
    if as_json:
        found = {"tools": sorted(listed), "differences": lines, "digest": digest, "accepted": bool(accept)}
        show(json_line(found))
    else:
        for line in [*lines, _said(lines, bool(accept), settings.tools_file)]:
            show(line)
        if lines and not accept:
            show_commands([f"keep mcp-tools {name} --config {configuration} --accept {digest}"])
    if lines and not accept:
        raise SystemExit(Exit.WRONG)


def _settings(configuration: Path, name: str) -> "McpSettings":
    from keep_actors.services import ConfigurationError
    from keep_actors.services.configuration import load_settings

    try:
        settings = load_settings(configuration, name)
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None
    from keep_actors.services.mcp import McpSettings

    if not isinstance(settings, McpSettings):
        raise click.UsageError(f"{configuration}: [connectors.{name}] is no server of tools; its kind is not mcp.")
    return settings


def _granted(settings: "McpSettings") -> "dict[str, GrantedTool]":
    from keep_actors.services.mcp.granted import load_tools

    return load_tools(settings.tools_file) if settings.tools_file.exists() else {}


async def _listed(settings: "McpSettings") -> "list[GrantedTool]":
    import msgspec

    from keep_actors.connectors import PreconditionFailed
    from keep_actors.outbound.redaction import redacted
    from keep_actors.services.mcp.connector import tool_server
    from keep_actors.services.mcp.settings import check
    from keep_actors.services.service import secrets_in

    check(settings)
    server = tool_server(settings, {})
    await server.open()
    try:
        found = await server.tools()
    finally:
        await server.close()
    said = msgspec.json.encode(found).decode()
    if redacted(said, secrets_in(settings)) != said:
        raise PreconditionFailed("the server repeats a secret of yours in its tools; it would stand in the tools file")
    return found


def _said(lines: list[str], is_accepted: bool, file: Path) -> str:
    if is_accepted:
        return f"Accepted: {file} is written. Start again what uses it."
    if not lines:
        return f"Nothing differs from {file}."
    return f"{file} does not have this. If it is as it should be:"
