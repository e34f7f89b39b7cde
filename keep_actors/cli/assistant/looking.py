"""Tools that look: the same reads as those of the command line, in one moment of the file each."""

from collections.abc import Callable

import msgspec

from keep_actors.api import item_views, views
from keep_actors.api.attention import Attention, attention, attention_of
from keep_actors.api.escalation import escalations
from keep_actors.api.overdue import Moment
from keep_actors.api.verdicts import Escalation
from keep_actors.cli.assistant import shown
from keep_actors.cli.assistant.arguments import (
    OneItem,
    OneThing,
    PageOfInputs,
    PageOfItems,
    PageOfJournal,
    PageOfOutputs,
    PageOfRuns,
    SomeWorkflow,
)
from keep_actors.cli.assistant.desk import Desk
from keep_actors.cli.assistant.quoted import Quoted, name, ours, quoted
from keep_actors.cli.assistant.shown import (
    AttemptShown,
    CallShown,
    EventShown,
    InputShown,
    ItemShown,
    JournalShown,
    RunShown,
)
from keep_actors.cli.explain import Story, story_of
from keep_actors.cli.reader import FileReader
from keep_actors.policy import Policy
from keep_storage import lookups, reads
from keep_storage.ids import Millis
from keep_storage.model import ItemState

_MATTERS_MAX = 100
_MORE_MAX = 50
"""Entries of one list inside a result."""


class InputPage(msgspec.Struct, frozen=True):
    """Events that came in, newest first."""

    inputs: list[InputShown]


class OutputPage(msgspec.Struct, frozen=True):
    """Calls to the outside, newest first."""

    outputs: list[CallShown]


class RunPage(msgspec.Struct, frozen=True):
    """Runs, newest first."""

    runs: list[RunShown]


class ItemPage(msgspec.Struct, frozen=True):
    """Items of jobs, by id."""

    items: list[ItemShown]


class ItemStory(msgspec.Struct, frozen=True):
    """An item with every attempt at it, oldest first."""

    item: ItemShown
    attempts: list[AttemptShown]
    a_person_can: Quoted


class JournalPage(msgspec.Struct, frozen=True):
    """Entries of the journal, oldest first."""

    entries: list[JournalShown]


class DoubtShown(msgspec.Struct, frozen=True):
    """A call whose outcome is unknown."""

    mutation_id: str
    call: str
    status: str
    sent_at: Millis | None
    is_parked: bool
    title: Quoted
    params: Quoted
    why: Quoted
    noted: Quoted
    how_to_check: Quoted
    link: Quoted


class MatterShown(msgspec.Struct, frozen=True):
    """A matter that waits for a person."""

    kind: str
    workflow_id: str
    workflow: Quoted
    words: Quoted
    a_person_can: Quoted
    run_id: str | None
    about: Quoted
    unknown: list[DoubtShown]
    """The calls of its run whose outcome is unknown."""


class AttentionShown(msgspec.Struct, frozen=True):
    """All that waits for a person."""

    matters: list[MatterShown]
    is_cut: bool


class StoryShown(msgspec.Struct, frozen=True):
    """A run, a call or an event: its state, and the reasons for it."""

    kind: str
    workflow: Quoted | None
    run: RunShown | None
    why: Quoted
    """The reason why the run stopped."""
    a_person_can: list[Quoted]
    selected: list[EventShown]
    attempted: list[CallShown]
    call: CallShown | None
    noted: Quoted
    event: EventShown | None
    topic: Quoted
    caused_by: list[EventShown]
    held_by: list[str]
    led_to: list[CallShown]
    logs: list[Quoted]
    journal: list[JournalShown]


async def list_inputs(desk: Desk, said: PageOfInputs) -> InputPage:
    def look(reader: FileReader) -> InputPage:
        stale_before = reader.now - Policy().stale_after_ms
        page = views.inputs(reader.q, reader.workflow(said.workflow).id, said.limit, said.before, stale_before)
        return InputPage([shown.came_in(each) for each in page])

    return await desk.read(look)


async def list_outputs(desk: Desk, said: PageOfOutputs) -> OutputPage:
    def look(reader: FileReader) -> OutputPage:
        page = views.outputs(reader.q, reader.workflow(said.workflow).id, said.limit, said.before or None)
        return OutputPage([shown.call(each) for each in page])

    return await desk.read(look)


async def list_runs(desk: Desk, said: PageOfRuns) -> RunPage:
    def look(reader: FileReader) -> RunPage:
        found = reader.workflow(said.workflow)
        page = views.runs(reader.q, found, said.limit, said.before or None, is_owned=reader.is_owned)
        return RunPage([shown.run(each) for each in page])

    return await desk.read(look)


async def list_items(desk: Desk, said: PageOfItems) -> ItemPage:
    def look(reader: FileReader) -> ItemPage:
        state = ItemState(said.state) if said.state else None
        page = item_views.items(reader.q, reader.workflow(said.workflow).id, state, said.limit, said.after or None)
        return ItemPage([shown.item(each) for each in page])

    return await desk.read(look)


async def show_item(desk: Desk, said: OneItem) -> ItemStory:
    def look(reader: FileReader) -> ItemStory:
        found = item_views.history(reader.q, reader.workflow(said.workflow).id, said.item)
        attempts = [shown.attempt(each) for each in found.attempts[-_MORE_MAX:]]
        return ItemStory(shown.item(found.item), attempts, quoted(found.can_do))

    return await desk.read(look)


async def read_journal(desk: Desk, said: PageOfJournal) -> JournalPage:
    def look(reader: FileReader) -> JournalPage:
        workflow_id = reader.workflow(said.workflow).id if said.workflow else None
        if said.after is None:
            entries = lookups.newest_journal(reader.q, workflow_id=workflow_id, limit=said.limit)
        else:
            entries = reads.journal(reader.q, workflow_id=workflow_id, after=said.after, limit=said.limit)
        return JournalPage([shown.entry(each) for each in entries])

    return await desk.read(look)


async def list_attention(desk: Desk, said: SomeWorkflow) -> AttentionShown:
    def look(reader: FileReader) -> AttentionShown:
        at = Moment(reader.now, is_owned=reader.is_owned)
        only = reader.workflow(said.workflow) if said.workflow else None
        found = attention(reader.q, at) if only is None else list(attention_of(reader.q, only, at))
        doubts = escalations(reader.q, desk.catalog, only.id if only else None)
        matters = [matter(each, doubts) for each in found[:_MATTERS_MAX]]
        return AttentionShown(matters, is_cut=len(found) > _MATTERS_MAX)

    return await desk.read(look)


def matter(each: Attention, doubts: list[Escalation] = []) -> MatterShown:  # noqa: B006  # it is only read
    about = [one for one in doubts if one.run_id == each.run_id][:_MORE_MAX]
    return MatterShown(
        kind=each.kind,
        workflow_id=each.workflow_id,
        workflow=name(each.workflow),
        words=quoted(each.words),
        a_person_can=quoted(each.can_do),
        run_id=each.run_id,
        about=name(each.about or ""),
        unknown=[_doubt(one) for one in about],
    )


def _doubt(each: Escalation) -> DoubtShown:
    return DoubtShown(
        mutation_id=each.mutation_id,
        call=ours(each.call),
        status=each.status,
        sent_at=each.sent_at,
        is_parked=each.is_parked,
        title=name(each.title),
        params=quoted(each.params),
        why=quoted(each.why),
        noted=quoted(each.noted),
        how_to_check=quoted(each.how_to_check),
        link=quoted(each.link),
    )


async def explain(desk: Desk, said: OneThing) -> StoryShown:
    look: Callable[[FileReader], StoryShown] = lambda reader: _story(story_of(reader, said.what))  # noqa: E731
    return await desk.read(look)


def _story(story: Story) -> StoryShown:
    run, event, mutation = story.run, story.event, story.mutation
    logs: list[object] = msgspec.json.decode(run.run.logs) if run is not None else []
    return StoryShown(
        kind=story.kind,
        workflow=name(run.workflow.name) if run is not None else None,
        run=shown.run(run.run) if run is not None else None,
        why=quoted(run.why if run is not None else ""),
        a_person_can=[quoted(each) for each in run.can_do] if run is not None else [],
        selected=[shown.event(each) for each in run.selected[:_MORE_MAX]] if run is not None else [],
        attempted=[shown.call(each) for each in run.attempted[:_MORE_MAX]] if run is not None else [],
        call=shown.call(views.calls([mutation])[0]) if mutation is not None else None,
        noted=quoted(mutation.note if mutation is not None else ""),
        event=shown.event(event.at.event) if event is not None else None,
        topic=name(event.at.topic if event is not None else ""),
        caused_by=[shown.event(each) for each in event.roots[:_MORE_MAX]] if event is not None else [],
        held_by=[each.run_id for each in event.held[:_MORE_MAX]] if event is not None else [],
        led_to=[shown.call(each) for each in views.calls(event.done[:_MORE_MAX])] if event is not None else [],
        logs=[quoted(str(each)) for each in logs[:_MORE_MAX]],
        journal=[shown.entry(each) for each in run.journal[-_MORE_MAX:]] if run is not None else [],
    )
