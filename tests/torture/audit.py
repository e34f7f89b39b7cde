"""What the file says, held against what happened outside and what was acknowledged.

`wrong` is empty at every moment, however a process ended; `unfinished` is empty when everything has come to its end.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from keep_storage import reads
from keep_storage.doctor import examine
from keep_storage.model import PEEK_MAX, Event, EventStatus, ItemState, Mutation, MutationStatus, RunStatus, Workflow
from keep_storage.sqlite import open_reader
from keep_storage.transaction import Queries
from keep_storage.transitions import UNCERTAIN
from tests.crash.driver import NO_LIMIT
from tests.torture.outside import Outside, Published, in_order_with

MAY_HAVE_HAPPENED: Final = UNCERTAIN | {MutationStatus.APPLIED}


class Audit:
    """One look at the folder of a torture. Whatever is in it stays as it is."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "keep.db"
        self._effects = Outside(folder / "outside.txt").effects()
        self._published = Published(folder / "published.txt")
        self._done_about = Counter(event for event, _ in self._effects)

    def wrong(self) -> list[str]:
        """What must never be."""
        with closing(open_reader(str(self._path))) as reader, reader.snapshot():
            return [
                *examine(self._path).problems,
                *self._repeated(),
                *self._disorder(),
                *self._lies(reader),
                *self._lost(reader),
            ]

    def unfinished(self) -> list[str]:
        """What has not come to its end: something done, its event consumed by one run, and what follows published."""
        with closing(open_reader(str(self._path))) as reader, reader.snapshot():
            of_workflows = [line for each in reads.workflows(reader) for line in self._unfinished_in(reader, each)]
        done = self._done_about
        return of_workflows + [f"{each}: nothing was done" for each in self._published.wanted if not done[each]]

    def figures(self) -> Mapping[str, int]:
        """How much of everything there was."""
        with closing(open_reader(str(self._path))) as reader, reader.snapshot():
            workflows = reads.workflows(reader)
            runs = Counter(run.status for each in workflows for run in reads.runs(reader, each.id, limit=NO_LIMIT))
            calls = [call for each in workflows for call in reads.outputs(reader, each.id, limit=NO_LIMIT)]
            resolved = Counter(call.resolved_by for call in calls)
            journal = reads.journal_end(reader)
        return {
            "events acknowledged": len(self._published.acknowledged),
            "effects outside": len(self._effects),
            "effects more than once": len(self._repeated()),
            "lines of the ledger": len(calls),
            **{f"settled by {who}": count for who, count in sorted(resolved.items(), key=str) if who},
            **{f"runs {status}": count for status, count in sorted(runs.items())},
            "journal entries": journal,
        }

    def _repeated(self) -> list[str]:
        return [f"{event}: done {times} times" for event, times in self._done_about.items() if times > 1]

    def _disorder(self) -> Iterator[str]:
        """What was done before something that it had to wait for."""
        last: dict[str, int] = {}
        for event, _ in self._effects:
            line, number = in_order_with(event), int(event.partition("/")[2])
            if number < last.get(line, 0):
                yield f"{event}: done after number {last[line]}"
            last[line] = number

    def _lies(self, q: Queries) -> Iterator[str]:
        """Where the ledger and the outside contradict each other."""
        ledger = {call.idempotency_key: call for each in reads.workflows(q) for call in _calls(q, each)}
        for event, key in self._effects:
            if key not in ledger:
                yield f"{event}: done, and the ledger has no call {key}"
            elif ledger[key].status not in MAY_HAVE_HAPPENED:
                yield f"{event}: done, and the ledger says {ledger[key].status}"
        happened = {key for _, key in self._effects}
        for key, call in ledger.items():
            if call.status is MutationStatus.APPLIED and key not in happened:
                yield f"{call.params}: the ledger says applied, and nothing was done"

    def _lost(self, q: Queries) -> Iterator[str]:
        """What was acknowledged and is not there; what is there and was never wanted; gaps in the journal."""
        found = {event.message_id for each in reads.workflows(q) for event in _events(q, each, "in")}
        books = {each.name for each in reads.workflows(q) if not reads.topics(q, each.id)}
        for event in self._published.acknowledged:
            if event.partition("/")[0] not in books and event not in found:
                yield f"{event}: acknowledged, and lost"
        yield from (f"{event}: nobody published it" for event in found - set(self._published.wanted))
        end = reads.journal_end(q)
        seen = 0
        for after in range(0, end, PEEK_MAX):
            seen += len(reads.journal(q, after=after, limit=PEEK_MAX))
            if seen != min(after + PEEK_MAX, end):
                yield f"the journal has {seen} entries up to {min(after + PEEK_MAX, end)}"
                return

    def _unfinished_in(self, q: Queries, workflow: Workflow) -> Iterator[str]:
        if workflow.error:
            yield f"{workflow.name}: {workflow.error}"
        mine = [event for event in self._published.wanted if event.startswith(f"{workflow.name}/")]
        if not reads.topics(q, workflow.id):
            yield from (f"{item}: is not done" for item in mine if not _is_done(q, workflow, item))
            return
        followed = Counter(event.message_id for event in _events(q, workflow, "done"))
        found = {event.message_id: event for event in _events(q, workflow, "in")}
        for event in mine:
            if event not in found:
                yield f"{event}: wanted, and not published"
            else:
                yield from _unfinished_event(q, found[event], followed[event])


def _unfinished_event(q: Queries, event: Event, followed: int) -> Iterator[str]:
    runs = [reads.run(q, held.run_id) for held in reads.reservations_of_event(q, event.id)]
    committed = sum(1 for run in runs if run and run.status is RunStatus.COMMITTED)
    calls = [call.status for run in runs if run for call in reads.mutations_of_run(q, run.id)]
    came_to = (event.status, committed, calls.count(MutationStatus.APPLIED), followed)
    if came_to != (EventStatus.CONSUMED, 1, 1, 1):
        yield f"{event.message_id}: {event.status}, by {committed} runs, with {calls}, and {followed} followed"


def _is_done(q: Queries, workflow: Workflow, item: str) -> bool:
    return [each.state for each in reads.item_attempts(q, workflow.id, item)] == [ItemState.DONE]


def _calls(q: Queries, workflow: Workflow) -> list[Mutation]:
    return reads.outputs(q, workflow.id, limit=NO_LIMIT)


def _events(q: Queries, workflow: Workflow, topic: str) -> list[Event]:
    return reads.events(q, workflow.id, topic, limit=NO_LIMIT)
