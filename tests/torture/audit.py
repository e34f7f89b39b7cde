"""What the file says, held against the records outside: what happened, was acknowledged, was said by people, was told.

`wrong` is empty at every moment, however a process ended; `unfinished` is empty when everything has come to its end.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from keep_storage import item_reads, reads
from keep_storage.doctor import examine
from keep_storage.limits import PEEK_MAX
from keep_storage.model import Event, EventStatus, Item, ItemState, Mutation, MutationStatus, RunStatus, Workflow
from keep_storage.sqlite import open_reader
from keep_storage.transaction import Queries
from keep_storage.transitions import UNCERTAIN
from tests.crash.driver import NO_LIMIT
from tests.torture.people import People
from tests.torture.records import Effects, Halts, Published
from tests.torture.stories import effects_of, in_order_with, is_job, labels_of, name_of, number_of, titles_of

MAY_HAVE_HAPPENED: Final = UNCERTAIN | {MutationStatus.APPLIED}
BEGIN_WHILE_HALTED_MAX: Final = 1


class Audit:
    """One look at the folder of a torture. Whatever is in it stays as it is."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "keep.db"
        self._effects = Effects(folder / "outside.txt").effects()
        self._published = Published(folder / "published.txt")
        self._halts = Halts(folder / "halts.txt")
        self._people = People(folder, self._effects)
        self._done_about = Counter(label for label, _ in self._effects)

    def wrong(self) -> list[str]:
        """What must never be."""
        health = examine(self._path)
        if health.schema_version == 0:
            # Killed as it made the file, which is one transaction: so nothing was promised, and nothing happened.
            return [f"{each} is older than the file" for each in (*self._effects, *self._published.acknowledged)]
        with closing(open_reader(str(self._path))) as reader, reader.snapshot():
            return [
                *health.problems,
                *self._repeated(),
                *self._disorder(),
                *self._not_stopped(),
                *self._lies(reader),
                *self._lost(reader),
                *self._wrong_events(reader),
                *self._people.wrong(reader),
            ]

    def unfinished(self) -> list[str]:
        """What has not come to its end: everything done, each event consumed by one run, and what follows published."""
        with closing(open_reader(str(self._path))) as reader, reader.snapshot():
            of_workflows = [line for each in reads.workflows(reader) for line in self._unfinished_in(reader, each)]
            of_people = list(self._people.unfinished(reader))
        wanted = [label for order in self._published.wanted for label in effects_of(order)]
        undone = [f"{label}: nothing was done" for label in wanted if not self._done_about[label]]
        return of_workflows + undone + of_people

    def figures(self) -> Mapping[str, int]:
        """How much of everything there was."""
        with closing(open_reader(str(self._path))) as reader, reader.snapshot():
            workflows = reads.workflows(reader)
            runs = Counter(run.status for each in workflows for run in reads.runs(reader, each.id, limit=NO_LIMIT))
            items = Counter(item.state for each in workflows for item in _items(reader, each))
            calls = [call for each in workflows for call in _calls(reader, each)]
            resolved = Counter(call.resolved_by for call in calls)
            versions = [version for each in workflows for version in reads.versions(reader, each.id)]
            people = self._people.figures(reader)
            journal = reads.journal_end(reader)
        return {
            "events acknowledged": len(self._published.acknowledged),
            "effects outside": len(self._effects),
            "effects more than once": len(self._repeated()),
            **{f"items {state}": count for state, count in sorted(items.items())},
            **people,
            "repairs": sum(1 for each in versions if each.minor and each.activated_at is not None),
            "repairs that were dropped": sum(1 for each in versions if each.activated_at is None),
            **{f"times {word} by a person": self._halts.count(word) for word in ("halted", "stopped", "archived")},
            "lines of the ledger": len(calls),
            **{f"settled by {who}": count for who, count in sorted(resolved.items(), key=str) if who},
            **{f"runs {status}": count for status, count in sorted(runs.items())},
            "journal entries": journal,
        }

    # What happened outside.

    def _repeated(self) -> list[str]:
        return [f"{label}: done {times} times" for label, times in self._done_about.items() if times > 1]

    def _disorder(self) -> Iterator[str]:
        """What was done before something that it had to wait for."""
        last: dict[str, int] = {}
        for label, _ in self._effects:
            line, number = in_order_with(label), number_of(label)
            if number < last.get(line, 0):
                yield f"{label}: done after number {last[line]}"
            last[line] = number

    def _not_stopped(self) -> Iterator[str]:
        for began in self._halts.began_while_halted():
            if len(began) > BEGIN_WHILE_HALTED_MAX:
                yield f"{', '.join(began)}: began while a person had stopped the workflow"

    def _lies(self, q: Queries) -> Iterator[str]:
        """Where the ledger and the outside contradict each other."""
        ledger = {call.idempotency_key: call for each in reads.workflows(q) for call in _calls(q, each)}
        for label, key in self._effects:
            if key not in ledger:
                yield f"{label}: done, and the ledger has no call {key}"
            elif ledger[key].status not in MAY_HAVE_HAPPENED:
                yield f"{label}: done, and the ledger says {ledger[key].status}"
        happened = {key for _, key in self._effects}
        for key, call in ledger.items():
            if call.status is MutationStatus.APPLIED and key not in happened:
                yield f"{call.params}: the ledger says applied, and nothing was done"

    # What was published.

    def _lost(self, q: Queries) -> Iterator[str]:
        """What was acknowledged and is not there; what is there and was never wanted; gaps in the journal."""
        found = {event.message_id for each in reads.workflows(q) for event in _events(q, each, "in")}
        for order in self._published.acknowledged:
            if not is_job(order) and order not in found:
                yield f"{order}: acknowledged, and lost"
        yield from (f"{order}: nobody published it" for order in found - set(self._published.wanted))
        end = reads.journal_end(q)
        seen = 0
        for after in range(0, end, PEEK_MAX):
            seen += len(reads.journal(q, after=after, limit=PEEK_MAX))
            if seen != min(after + PEEK_MAX, end):
                yield f"the journal has {seen} entries up to {min(after + PEEK_MAX, end)}"
                return

    def _wrong_events(self, q: Queries) -> Iterator[str]:
        """Events that scripts publish have no id of their own: what is published twice is there twice. Those of an item
        are there from the moment on in which it is done, and not before."""
        for workflow in reads.workflows(q):
            followed = Counter(event.title for event in _events(q, workflow, "done"))
            yield from (f"{title}: published {times} times" for title, times in followed.items() if times > 1)
            if not is_job(workflow.name):
                continue
            done = {item.item_id for item in _items(q, workflow) if item.state is ItemState.DONE}
            due = {f"applied: {label}" for item_id in done for label in labels_of(item_id)}
            yield from (f"{title}: its item is done, and the event is lost" for title in sorted(due - set(followed)))
            yield from (f"{title}: published by an item that is not done" for title in sorted(set(followed) - due))

    # The end.

    def _unfinished_in(self, q: Queries, workflow: Workflow) -> Iterator[str]:
        if workflow.error or workflow.maintenance:
            yield f"{workflow.name}: {workflow.error or 'in maintenance'}"
        mine = [order for order in self._published.wanted if name_of(order) == workflow.name]
        followed = {event.title for event in _events(q, workflow, "done")}
        due = {title for order in mine for title in titles_of(order)}
        yield from (f"{title}: is not published" for title in sorted(due - followed))
        yield from (f"{title}: should not have been published" for title in sorted(followed - due))
        if is_job(workflow.name):
            yield from (line for order in mine for line in _unfinished_item(q, workflow, order))
            return
        found = {event.message_id: event for event in _events(q, workflow, "in")}
        for order in mine:
            if order not in found:
                yield f"{order}: wanted, and not published"
            else:
                yield from _unfinished_event(q, found[order])


def _unfinished_event(q: Queries, event: Event) -> Iterator[str]:
    runs = [reads.run(q, held.run_id) for held in reads.reservations_of_event(q, event.id)]
    committed = sum(1 for run in runs if run and run.status is RunStatus.COMMITTED)
    calls = [call.status for run in runs if run for call in reads.mutations_of_run(q, run.id)]
    effects = len(effects_of(event.message_id))
    due = (EventStatus.CONSUMED if effects else EventStatus.SKIPPED, 1, effects)
    if (event.status, committed, calls.count(MutationStatus.APPLIED)) != due:
        yield f"{event.message_id}: {event.status}, by {committed} runs, with {calls}"


def _unfinished_item(q: Queries, workflow: Workflow, order: str) -> Iterator[str]:
    due = ItemState.DONE if effects_of(order) == labels_of(order) else ItemState.SKIPPED
    found = [each.state for each in reads.item_attempts(q, workflow.id, order)]
    if found != [due]:
        yield f"{order}: the item is {found}, not {due}"


def _items(q: Queries, workflow: Workflow) -> list[Item]:
    return item_reads.items(q, workflow.id, limit=NO_LIMIT)


def _calls(q: Queries, workflow: Workflow) -> list[Mutation]:
    return reads.outputs(q, workflow.id, limit=NO_LIMIT)


def _events(q: Queries, workflow: Workflow, topic: str) -> list[Event]:
    return reads.events(q, workflow.id, topic, limit=NO_LIMIT)
