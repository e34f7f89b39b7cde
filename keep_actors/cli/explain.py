"""`keep explain`: the state of a run, a call or an event, the reasons for it, and what can be done about it."""

import click
import msgspec

from keep_actors.api import views
from keep_actors.api.views import Explanation
from keep_actors.cli.calls import Names, asked_names, show_attempt, show_parameters
from keep_actors.cli.exit_codes import Exit, Stopped
from keep_actors.cli.history import journal_text
from keep_actors.cli.options import control_option, full_option, looks
from keep_actors.cli.reader import FileReader
from keep_actors.cli.terminal import TITLE, fields, json_line, plain, show, show_commands, style, when
from keep_actors.cli.typed import answers_to_call, answers_to_item, line, workflow_word
from keep_actors.text.counted import counted
from keep_storage import lookups, reads
from keep_storage.ids import Millis
from keep_storage.lookups import EventAt
from keep_storage.model import Event, ItemState, Mutation, MutationStatus, Reservation


class EventStory(msgspec.Struct, frozen=True):
    """An event, the runs that held it, and the calls that it led to."""

    at: EventAt
    held: list[Reservation]
    roots: list[Event]
    """The events that first caused it."""
    done: list[Mutation]


class Story(msgspec.Struct, frozen=True):
    """All there is to know about the run, call or event that was named."""

    kind: str
    event: EventStory | None = None
    mutation: Mutation | None = None
    run: Explanation | None = None
    """The run that it is, that made the call, or that held the event last."""
    commands: list[str] = []
    """Command lines about the item that it left for a person to decide about."""


@click.command()
@click.argument("what", metavar="RUN|MUTATION|APPROVAL|EVENT")
@full_option
@control_option
@looks
def explain(look: FileReader, what: str, full: bool) -> None:
    """Explain why something is where it is: what it selected, what it attempted, why it is stuck, what can be done.

    Takes the id of a run, a mutation, an approval or an event, or the beginning of one; or an event's message id.

    Each parameter of a call has its line, and a long one is cut. The command that approves a call is shown only with
    the whole call, with --full if need be.

    \b
    keep explain run_1k7o91 --db keep.db
    keep explain mut_1k7o91 --db keep.db --json
    keep explain apr_1k7o91 --full --db keep.db
    keep explain m-17 --db keep.db
    """
    story = story_of(look, what)
    question = _question(look, story.mutation)
    answers = answers_to_call(look.db, question) if question is not None else []
    story = msgspec.structs.replace(story, commands=[*answers, *_commands(look, story.run)])
    if look.as_json:
        show(json_line(story))
        return
    names = asked_names(look, _calls(story))
    commands = story.commands
    if story.event is not None:
        _show_event(story.event, look.now)
    if story.mutation is not None and not _show_mutation(story.mutation, look.now, names, full) and answers:
        show("  This call is not shown whole. Before it can be approved, see all of it:")
        show(f"    {plain(line(look.db, 'explain', what))} --full")
        commands = commands[1:]
    if story.run is not None:
        _show_run(story.run, look.now, names, full, story.mutation)
    show_commands(commands)


def _calls(story: Story) -> list[str]:
    attempted = [each.call for each in story.run.attempted] if story.run is not None else []
    return attempted if story.mutation is None else [*attempted, call_of(story.mutation)]


def call_of(mutation: Mutation) -> str:
    return f"{mutation.connector}.{mutation.method}"


def _question(look: FileReader, mutation: Mutation | None) -> str | None:
    """The approval that is open about a call."""
    if mutation is None or mutation.status is not MutationStatus.PENDING:
        return None
    asked = reads.open_approvals(look.q, mutation.workflow_id)
    return next((each.id for each in asked if each.mutation_id == mutation.id), None)


def _commands(look: FileReader, run: Explanation | None) -> list[str]:
    if run is None or run.item is None:
        return []
    name = workflow_word(run.workflow.name, run.workflow.id)
    return answers_to_item(look.db, name, run.item, ItemState.NEEDS_ATTENTION)


def story_of(look: FileReader, what: str) -> Story:
    if ids := lookups.beginning_with(look.q, "run", what):
        return Story("run", run=_explained(look, _one(ids, what)))
    if ids := lookups.beginning_with(look.q, "mutation", what):
        return _of_mutation(look, "mutation", _one(ids, what))
    if ids := lookups.beginning_with(look.q, "approval", what):
        approval = reads.approval(look.q, _one(ids, what))
        assert approval is not None, "its id was just found"
        return _of_mutation(look, "approval", approval.mutation_id)
    if ids := lookups.beginning_with(look.q, "event", what):
        at = lookups.event(look.q, _one(ids, what))
        assert at is not None, "its id was just found"
        return _of_event(look, at)
    named = lookups.events_named(look.q, what, limit=2)
    if not named:
        raise Stopped(Exit.WRONG, f"There is no run, mutation, approval or event {what!r} in {look.db}.")
    if len(named) > 1:
        places = ", ".join(f"{each.event.id} in {each.topic!r}" for each in lookups.events_named(look.q, what))
        raise Stopped(Exit.WRONG, f"More than one topic has an event {what!r}. Name its id: {places}.")
    return _of_event(look, named[0])


def _explained(look: FileReader, run_id: str) -> Explanation | None:
    return views.explain(look.q, run_id, is_owned=look.is_owned)


def _one(ids: list[str], what: str) -> str:
    if len(ids) > 1:
        raise Stopped(
            Exit.WRONG, f"{what!r} is the beginning of more than one id: {', '.join(ids)}, … Type more characters."
        )
    return ids[0]


def _of_mutation(look: FileReader, kind: str, mutation_id: str) -> Story:
    mutation = reads.mutation(look.q, mutation_id)
    assert mutation is not None, "its id was just found"
    return Story(kind, mutation=mutation, run=_explained(look, mutation.run_id))


def _of_event(look: FileReader, at: EventAt) -> Story:
    held = reads.reservations_of_event(look.q, at.event.id)
    story = EventStory(
        at=at,
        held=held,
        roots=reads.roots_of_event(look.q, at.event.id),
        done=reads.mutations_of_event(look.q, at.event.id),
    )
    return Story("event", event=story, run=_explained(look, held[-1].run_id) if held else None)


def _show_event(story: EventStory, now: Millis) -> None:
    event = story.at.event
    show(style(f"event {event.id}", "cyan", bold=True))
    came = "from outside" if not event.caused else ", ".join(each.message_id for each in story.roots)
    fields(
        [
            ("message", f"{event.message_id} in {story.at.topic}"),
            (TITLE, event.title),
            ("payload", event.payload),
            ("state", f"{event.status}, attempt {event.attempt}"),
            ("held by", event.reserved_by_run_id or ""),
            ("came", came),
            ("at", when(event.created_at, now)),
            *(("run", f"{each.run_id}, attempt {each.attempt}") for each in story.held),
            *(("call", f"{each.connector}.{each.method} {each.status} ({each.id})") for each in story.done),
        ],
        "  ",
    )
    if not story.held:
        show("  No run has taken it yet.")


def _show_mutation(mutation: Mutation, now: Millis, names: Names, full: bool) -> bool:
    """Returns whether all of the call was shown."""
    show(style(f"mutation {mutation.id}", "cyan", bold=True))
    settled = f"{mutation.resolved_by} {mutation.resolved_who}: {mutation.resolved_why}" if mutation.resolved_by else ""
    call = call_of(mutation)
    fields([("call", call), ("parameters", names.said(call))], "  ", len(TITLE))
    whole = show_parameters(call, mutation.params, names, "    ", full=full)
    fields(
        [
            (TITLE, mutation.title),
            ("state", f"{mutation.status}, version {mutation.version}"),
            ("sent", f"{when(mutation.sent_at, now)}, {counted(mutation.attempts, 'time')}"),
            ("result", mutation.result or ""),
            ("error", mutation.error),
            ("noted", mutation.note),
            ("settled by", settled),
        ],
        "  ",
        len(TITLE),
    )
    return whole


def _show_run(explained: Explanation, now: Millis, names: Names, full: bool, shown: Mutation | None) -> None:
    run = explained.run
    show(style(f"run {run.id}", "cyan", bold=True))
    fields(
        [
            ("workflow", explained.workflow.name),
            ("handler", f"{run.kind} {run.handler}"),
            (TITLE, run.title),
            ("state", f"{run.standing} in {run.phase}"),
            ("began", when(run.created_at, now)),
            ("ended", when(run.ended_at, now) if run.ended_at is not None else ""),
            ("retry of", run.retry_of or ""),
            *(("holds", f"{each.message_id}: {each.title} ({each.status})") for each in explained.selected),
            ("why it stopped", explained.why),
            *(("can be done", each) for each in explained.can_do),
        ],
        "  ",
    )
    for each in explained.attempted:
        show_attempt(each, names, "  ", full=full, is_shown=shown is not None and shown.id == each.mutation_id)
    for logged in msgspec.json.decode(run.logs):
        show(f"  log  {plain(str(logged))}")
    for entry in explained.journal:
        show(f"  {journal_text(entry)}")
