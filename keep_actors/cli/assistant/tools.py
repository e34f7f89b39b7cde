"""The closed table of what an assistant can do. There is no tool that decides: a person does that elsewhere."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, get_type_hints

import msgspec

from keep_actors.cli.assistant.arguments import Arguments
from keep_actors.cli.assistant.desk import Desk, ToolRefused
from keep_actors.cli.assistant.looking import (
    explain,
    list_attention,
    list_inputs,
    list_items,
    list_outputs,
    list_runs,
    read_journal,
    show_item,
)
from keep_actors.cli.assistant.proposing import list_proposals, propose_script
from keep_actors.cli.assistant.workflows import list_workflows, read_script, show_workflow
from keep_actors.cli.assistant.writing import (
    check_script,
    dry_run_script,
    get_script_types,
    get_writing_prompt,
    list_methods,
)


class AssistantTool(NamedTuple):
    """A tool as a client sees it."""

    call: Callable[[Desk, Any], Awaitable[msgspec.Struct]]
    about: str
    is_read_only: bool = True

    @property
    def name(self) -> str:
        return self.call.__name__

    @property
    def arguments(self) -> type[Arguments]:
        """The type of its arguments: that of the second parameter."""
        hints = get_type_hints(self.call)
        _, said = inspect.signature(self.call).parameters
        arguments: type[Arguments] = hints[said]
        return arguments

    @property
    def result(self) -> type[msgspec.Struct]:
        """The type of its result."""
        result: type[msgspec.Struct] = get_type_hints(self.call)["return"]
        return result


_TOOLS: Final = (
    AssistantTool(list_workflows, "List the workflows: state, what is due, what waits."),
    AssistantTool(show_workflow, "Show one workflow: handlers, waiting events, grants, what waits for a person, runs."),
    AssistantTool(read_script, "Read the script of a workflow, or an earlier version of it."),
    AssistantTool(list_inputs, "List the events that came in, newest first, with the calls that each led to."),
    AssistantTool(list_outputs, "List the calls to the outside, newest first, with their parameters and outcomes."),
    AssistantTool(list_runs, "List the runs of a workflow, newest first: how far each came, and why it stopped."),
    AssistantTool(list_items, "List the items of a workflow's jobs, by id or state."),
    AssistantTool(show_item, "Show an item of a job with every attempt and the calls of each."),
    AssistantTool(list_attention, "List everything that waits for a person. You cannot answer it: tell the person."),
    AssistantTool(explain, "Explain a run, a call, an approval or an event: its state, the reasons, the journal."),
    AssistantTool(read_journal, "Read the journal: one entry for each change."),
    AssistantTool(list_methods, "List the methods that scripts can call here, with permissions and risks."),
    AssistantTool(
        get_writing_prompt, "Get the rules for writing a script, with an example and the methods. Read first."
    ),
    AssistantTool(get_script_types, "Get TypeScript declarations for scripts and for the methods."),
    AssistantTool(check_script, "Check a script as a deployment would. Nothing is deployed."),
    AssistantTool(
        dry_run_script, "Show what a script would do with the events that wait. No call is made, nothing is written."
    ),
    AssistantTool(
        propose_script,
        "Propose a script for a person to decide about. It is checked, held, and runs nothing. A later proposal for "
        "the same workflow takes the place of an open one.",
        is_read_only=False,
    ),
    AssistantTool(list_proposals, "List proposals, newest first: what became of each, and the reason of a rejection."),
)

TOOLS: Final[Mapping[str, AssistantTool]] = {each.name: each for each in _TOOLS}


def schema_of(type_: type[msgspec.Struct]) -> dict[str, Any]:
    """A JSON Schema whose root is an object, as clients require."""
    [root], components = msgspec.json.schema_components([type_], ref_template="#/$defs/{name}")
    own = components.pop(root["$ref"].removeprefix("#/$defs/"))
    return {**own, "$defs": components} if components else own


async def use(desk: Desk, tool: AssistantTool, arguments: Mapping[str, Any]) -> msgspec.Struct:
    """Have a tool do its work. Raises `ToolRefused`."""
    try:
        said = msgspec.convert(arguments, tool.arguments)
    except msgspec.ValidationError as error:
        raise ToolRefused(f"The arguments of {tool.name} do not fit: {error}.") from None
    return await tool.call(desk, said)
