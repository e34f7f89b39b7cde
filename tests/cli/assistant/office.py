"""Short ways to an assistant's server, and to what its tools say."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import CallToolResult, TextContent

from keep_actors.cli.assistant.desk import Desk
from keep_actors.cli.assistant.quoted import RULE
from keep_actors.cli.assistant.server import server_of
from keep_actors.connectors import Connector
from tests.cli.operating import KEEP
from tests.runtime.fakes import Fake
from tests.runtime.world import script

OLD = script(mutate="await ctx.fake.add({ text: prepared.data.id });")
"""The script of `flow`, as it runs."""
BETTER = OLD.replace("prepared.data.id", "prepared.data.id + '!'")
WIDER = OLD.replace("ctx.fake.add", "ctx.fake.put")
"""It needs a permission that `flow` does not have."""


def client_of(db: Path, *connectors: Connector, **more: Any) -> Client:
    """The official client, in one process with the server."""
    return Client(server_of(Desk(db, connectors or [Fake()], sandbox="thread", **more)))


def over_stdio(db: Path, *words: str, command: Path | str = KEEP) -> StdioServerParameters:
    """The way in which a client starts `keep mcp`."""
    args = ["mcp", "--db", str(db), "--connectors", "tests.runtime.fakes:Fake", "--sandbox", "thread", *words]
    return StdioServerParameters(command=str(command), args=args, cwd=str(Path(__file__).parents[3]))


def texts(result: CallToolResult) -> list[str]:
    """All that a model sees of an answer."""
    return [each.text for each in result.content if isinstance(each, TextContent)]


async def answer(client: Client, tool: str, **arguments: Any) -> Any:
    """What a tool says. The text for models without structured data is the same."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, texts(result)
    rule, text = texts(result)
    assert rule == RULE
    assert json.loads(text) == result.structured_content
    return result.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """Why a tool refuses."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, texts(result)
    return " ".join(texts(result))


def unmarked(value: Any) -> Iterator[str]:
    """The texts of an answer that are not marked as data of others, names of fields as well."""
    match value:
        case str():
            yield value
        case list():
            for each in value:
                yield from unmarked(each)
        case dict():
            yield from value
            for name, each in value.items():
                if name != "untrusted":
                    yield from unmarked(each)


def content_of(db: Path) -> dict[str, list[Any]]:
    """Every row of a file."""
    connection = apsw.Connection(str(db), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return {str(name): connection.execute(f'SELECT * FROM "{name}"').fetchall() for (name,) in tables}
    finally:
        connection.close()
