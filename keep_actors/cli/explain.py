"""`keep explain`: why a run, a call or an event is where it is, and what can be done about it."""

from pathlib import Path

import click
import msgspec

from keep_actors import views
from keep_actors.cli import journal
from keep_actors.cli.exits import Exit, Stopped
from keep_actors.cli.looking import Look, looking
from keep_actors.cli.options import looks
from keep_actors.cli.terminal import fields, json_line, plain, show, style, when
from keep_actors.views import Explanation
from keep_storage import lookups, reads
from keep_storage.ids import Millis
from keep_storage.lookups import EventAt
from keep_storage.model import Event, Mutation, Reservation


class EventStory(msgspec.Struct, frozen=True):
    """An event, who held it, and what came of it."""

    at: EventAt
    held: list[Reservation]
    roots: list[Event]
    """What first caused it."""
    done: list[Mutation]


class Story(msgspec.Struct, frozen=True):
    """What there is to know about what was named."""

    kind: str
    event: EventStory | None = None
    mutation: Mutation | None = None
    run: Explanation | None = None
    """The run that it is, that made the call, or that held the event last."""


@click.command()
@click.argument("what", metavar="RUN|MUTATION|APPROVAL|EVENT")
@looks
def explain(what: str, db: Path, as_json: bool) -> None:
    """Explain why something is where it is: what it selected, what it attempted, why it is stuck, what can be done.

    Takes the id of a run, a mutation, an approval or an event, or the beginning of one; or an event's message id.

    \b
    keep explain run_018f3c --db keep.db
    keep explain mut_018f3c --db keep.db --json
    keep explain m-17 --db keep.db
    """
    with looking(db) as look:
        story = _story(look, what)
    if as_json:
        show(json_line(story))
        return
    if story.event is not None:
        _show_event(story.event, look.now)
    if story.mutation is not None:
        _show_mutation(story.mutation, look.now)
    if story.run is not None:
        _show_run(story.run, look.now)


def _story(look: Look, what: str) -> Story:
    if ids := lookups.beginning_with(look.q, "run", what):
        return Story("run", run=views.explain(look.q, _one(ids, what)))
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


def _one(ids: list[str], what: str) -> str:
    if len(ids) > 1:
        raise Stopped(
            Exit.WRONG, f"{what!r} is the beginning of more than one id: {', '.join(ids)}, … Type more of it."
        )
    return ids[0]


def _of_mutation(look: Look, kind: str, mutation_id: str) -> Story:
    mutation = reads.mutation(look.q, mutation_id)
    assert mutation is not None, "its id was just found"
    return Story(kind, mutation=mutation, run=views.explain(look.q, mutation.run_id))


def _of_event(look: Look, at: EventAt) -> Story:
    held = reads.reservations_of_event(look.q, at.event.id)
    story = EventStory(
        at=at,
        held=held,
        roots=reads.roots_of_event(look.q, at.event.id),
        done=reads.mutations_of_event(look.q, at.event.id),
    )
    return Story("event", event=story, run=views.explain(look.q, held[-1].run_id) if held else None)


def _show_event(story: EventStory, now: Millis) -> None:
    event = story.at.event
    show(style(f"event {event.id}", "cyan", bold=True))
    came = "from outside" if not event.caused else ", ".join(each.message_id for each in story.roots)
    fields(
        [
            ("message", f"{event.message_id} in {story.at.topic}"),
            ("title (the script's words)", event.title),
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


def _show_mutation(mutation: Mutation, now: Millis) -> None:
    show(style(f"mutation {mutation.id}", "cyan", bold=True))
    settled = f"{mutation.resolved_by} {mutation.resolved_who}: {mutation.resolved_why}" if mutation.resolved_by else ""
    fields(
        [
            ("call", f"{mutation.connector}.{mutation.method}"),
            ("parameters", mutation.params),
            ("title (the script's words)", mutation.title),
            ("state", f"{mutation.status}, version {mutation.version}"),
            ("sent", f"{when(mutation.sent_at, now)}, {mutation.attempts} time(s)"),
            ("result", mutation.result or ""),
            ("error", mutation.error),
            ("settled by", settled),
        ],
        "  ",
    )


def _show_run(explained: Explanation, now: Millis) -> None:
    run = explained.run
    show(style(f"run {run.id}", "cyan", bold=True))
    fields(
        [
            ("workflow", explained.workflow.name),
            ("handler", f"{run.kind} {run.handler}"),
            ("title (the script's words)", run.title),
            ("state", f"{run.status} in {run.phase}"),
            ("began", when(run.created_at, now)),
            ("ended", when(run.ended_at, now) if run.ended_at is not None else ""),
            ("retry of", run.retry_of or ""),
            *(("holds", f"{each.message_id}: {each.title} ({each.status})") for each in explained.selected),
            *(("calls", f"{each.call} {each.params} is {each.status}") for each in explained.attempted),
            ("why it stopped", explained.why),
            *(("can be done", each) for each in explained.can_do),
        ],
        "  ",
    )
    for line in msgspec.json.decode(run.logs):
        show(f"  log  {plain(str(line))}")
    for entry in explained.journal:
        show(f"  {journal.as_text(entry)}")
