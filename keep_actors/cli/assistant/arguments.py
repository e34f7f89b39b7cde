"""Arguments of the tools. Unknown fields, other types and overlong texts are refused before a tool is called."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from keep_actors.sandbox_pool.limits import RUN_LIMITS
from keep_storage.limits import PROPOSAL_NOTE_CHARS_MAX

_NAME_MAX: Final = 300
LIMIT_MAX: Final = 100

_Name = Annotated[str, Meta(min_length=1, max_length=_NAME_MAX, description="The workflow, by name or id.")]
_Limit = Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="The size of the page.")]
_Source = Annotated[
    str, Meta(min_length=1, max_length=RUN_LIMITS.script_bytes, description="The whole script, as JavaScript.")
]
_Cursor = Annotated[str, Meta(max_length=_NAME_MAX)]


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a tool."""


class NoArguments(Arguments, frozen=True, kw_only=True):
    """A tool that is told nothing."""


class PageOfWorkflows(Arguments, frozen=True, kw_only=True):
    """A page of all workflows, oldest first."""

    limit: _Limit = 20
    after: Annotated[_Cursor, Meta(description="The id of the last one seen.")] = ""
    archived: Annotated[bool, Meta(description="Archived ones too.")] = False


class OneWorkflow(Arguments, frozen=True, kw_only=True):
    """One workflow."""

    workflow: _Name


class OneScript(Arguments, frozen=True, kw_only=True):
    """A version of the script of a workflow."""

    workflow: _Name
    version: Annotated[str, Meta(max_length=20, description="As in 1.2. Default: the one that runs.")] = ""


class PageOfInputs(Arguments, frozen=True, kw_only=True):
    """A page of events that came in, newest first."""

    workflow: _Name
    limit: _Limit = 20
    before: Annotated[int | None, Meta(description="The `seq` of the last one seen.")] = None


class PageOfOutputs(Arguments, frozen=True, kw_only=True):
    """A page of calls to the outside, newest first."""

    workflow: _Name
    limit: _Limit = 20
    before: Annotated[_Cursor, Meta(description="The `mutation_id` of the last one seen.")] = ""


class PageOfRuns(Arguments, frozen=True, kw_only=True):
    """A page of runs, newest first."""

    workflow: _Name
    limit: _Limit = 20
    before: Annotated[_Cursor, Meta(description="The `run_id` of the last one seen.")] = ""


class PageOfItems(Arguments, frozen=True, kw_only=True):
    """A page of the items of the jobs of a workflow, by id."""

    workflow: _Name
    state: Literal["processing", "done", "failed", "skipped", "needs_attention"] | None = None
    limit: _Limit = 20
    after: Annotated[str, Meta(max_length=600, description="The id of the last one seen.")] = ""


class OneItem(Arguments, frozen=True, kw_only=True):
    """One item of a job."""

    workflow: _Name
    item: Annotated[str, Meta(min_length=1, max_length=600, description="Its id.")]


class SomeWorkflow(Arguments, frozen=True, kw_only=True):
    """All workflows, or one."""

    workflow: Annotated[str, Meta(max_length=_NAME_MAX, description="Only this one, by name or id.")] = ""


class PageOfJournal(Arguments, frozen=True, kw_only=True):
    """A page of the journal: the newest entries, or those after a sequence number."""

    workflow: Annotated[str, Meta(max_length=_NAME_MAX, description="Only this one, by name or id.")] = ""
    limit: _Limit = 20
    after: Annotated[int, Meta(ge=0, description="Begin behind this `seq`.")] | None = None


class OneThing(Arguments, frozen=True, kw_only=True):
    """A run, a call, an approval or an event."""

    what: Annotated[
        str,
        Meta(
            min_length=1, max_length=600, description="The id or the beginning of it; of an event also its message id."
        ),
    ]


class WritingTask(Arguments, frozen=True, kw_only=True):
    """A script that is to be written."""

    task: Annotated[
        str, Meta(max_length=10_000, description="The task of the script, which comes last in the prompt.")
    ] = ""


class ScriptToPropose(Arguments, frozen=True, kw_only=True):
    """A script for a person to decide about."""

    source: _Source
    workflow: Annotated[
        str, Meta(max_length=_NAME_MAX, description="The workflow whose script it would replace. Default: a new one.")
    ] = ""
    made_from: Annotated[
        str, Meta(max_length=20, description="The version that you read with read_script, as in 1.2.")
    ] = ""
    note: Annotated[
        str,
        Meta(max_length=PROPOSAL_NOTE_CHARS_MAX, description="A few words for the person: what changes, and why."),
    ] = ""


class PageOfProposals(Arguments, frozen=True, kw_only=True):
    """A page of proposals, newest first."""

    limit: _Limit = 20
    before: Annotated[_Cursor, Meta(description="The `proposal_id` of the last one seen.")] = ""


class SourceText(Arguments, frozen=True, kw_only=True):
    """A script to check."""

    source: _Source


class RehearsalWanted(Arguments, frozen=True, kw_only=True):
    """A script to dry-run on the events that wait for it."""

    source: _Source
    workflow: _Name
    against: Annotated[str, Meta(max_length=20, description="Compare with this version, as in 1.2.")] = ""
    producer: Annotated[str, Meta(max_length=_NAME_MAX, description="Evaluate this producer instead.")] = ""
    limit: Annotated[int, Meta(ge=1, le=50, description="Runs to show at most.")] = 10
