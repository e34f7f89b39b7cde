"""The Model Context Protocol's side: tools with schemas and hints, answers as structured data, errors as words."""

import logging
from collections.abc import Mapping
from typing import Any, Final

import anyio
import mcp_types as types
import msgspec
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server

import keep_actors
from keep_actors.cli.assistant.desk import Desk, ToolRefused
from keep_actors.cli.assistant.quoted import RULE, TEXT_MAX, Quoted, quoted
from keep_actors.cli.assistant.redaction import without_secrets
from keep_actors.cli.assistant.tools import TOOLS, AssistantTool, schema_of, use
from keep_actors.cli.terminal import plain_lines
from keep_actors.kernel.foreign_code import attempt
from keep_actors.outbound.redaction import redacted_error

log = logging.getLogger(__name__)

TOOL_S: Final = 120
"""A tool that takes longer is ended."""
AT_ONCE: Final = 2
"""Tools at work. A check and a dry run have a sandbox each."""
WAITING_MAX: Final = 50
"""Calls that wait for their turn. More are refused."""
ANSWER_BYTES_MAX: Final = 1_000_000
"""A longer answer is refused: a client asks for a smaller page."""

_INSTRUCTIONS: Final = f"""\
keep-actors runs JavaScript automations. You can look at them, check and dry-run scripts, and propose a script. You
cannot deploy, approve, resolve, grant, pause or publish: a person decides about everything, and about your proposals.

{RULE}

To write or mend a script: get_writing_prompt (or read_script), check_script, dry_run_script, then propose_script once.
list_proposals says what became of it, with the person's reason."""


def server_of(desk: Desk) -> Server[Any]:
    """The server of one desk. It keeps nothing between calls."""
    places = anyio.CapacityLimiter(AT_ONCE)
    tools = [_declared(each) for each in TOOLS.values()]

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(_: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        if places.statistics().tasks_waiting >= WAITING_MAX:
            return _refused(desk, "Too many calls at once. Wait for their answers.")
        async with places:
            return await _answer(desk, params.name, params.arguments or {})

    return Server(
        "keep-actors",
        version=keep_actors.__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve(desk: Desk) -> None:
    """Serve one client over the standard input and output, until it closes them."""
    server = server_of(desk)
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())


def _declared(tool: AssistantTool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=tool.about,
        input_schema=schema_of(tool.arguments),
        output_schema=schema_of(tool.result),
        annotations=types.ToolAnnotations(
            read_only_hint=tool.is_read_only,
            destructive_hint=False,
            idempotent_hint=tool.is_read_only,
            open_world_hint=False,
        ),
    )


async def _answer(desk: Desk, name: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
    tool = TOOLS.get(name)
    if tool is None:
        return _refused(desk, f"There is no tool of this name. There are: {', '.join(TOOLS)}.")
    answer = _refused(desk, f"{name} failed: a bug in keep-actors. The standard error of `keep mcp` has more.")
    with attempt() as tried:
        answer = await _used(desk, tool, arguments)
    if tried.error is not None:
        log.error("The tool %s failed.", name, exc_info=redacted_error(tried.error, desk.secrets))
    return answer


async def _used(desk: Desk, tool: AssistantTool, arguments: Mapping[str, Any]) -> types.CallToolResult:
    try:
        with anyio.fail_after(TOOL_S):
            found = await use(desk, tool, arguments)
    except ToolRefused as refused:
        return _refused(desk, str(refused), refused.quoted)
    except TimeoutError:
        # A thread that was left behind may still write what it was to write.
        doubt = "" if tool.is_read_only else " What it proposed may be there: see list_proposals."
        return _refused(desk, f"{tool.name} took longer than {TOOL_S} s and was ended.{doubt}")
    size = len(msgspec.json.encode(found))
    if size > ANSWER_BYTES_MAX:
        return _refused(desk, f"The answer has {size:,} bytes. Ask for less, as with a smaller `limit`.")
    # Redacted as a whole: whatever a service has echoed into an event, a result or an error.
    value = without_secrets(msgspec.to_builtins(found), desk.secrets)
    text = msgspec.json.encode(value).decode()
    blocks: list[types.ContentBlock] = [types.TextContent(text=RULE), types.TextContent(text=text)]
    return types.CallToolResult(content=blocks, structured_content=value)


def _refused(desk: Desk, words: str, of_others: str = "") -> types.CallToolResult:
    """An error. `of_others` are words in which strangers may have a part."""
    said, theirs = without_secrets([plain_lines(words, TEXT_MAX), quoted(of_others).untrusted], desk.secrets)
    blocks: list[types.ContentBlock] = [types.TextContent(text=said)]
    if theirs:
        marked = msgspec.json.encode(Quoted(theirs)).decode()
        blocks += [types.TextContent(text=RULE), types.TextContent(text=marked)]
    return types.CallToolResult(content=blocks, is_error=True)
