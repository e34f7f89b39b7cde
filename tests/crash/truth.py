"""What must be true of a scenario after every commit, and what is left of it in the end."""

from collections.abc import Iterator, Mapping
from typing import Final

from keep_storage import invariants, reads
from keep_storage.model import Event, EventStatus, Mutation, MutationOutcome, MutationStatus, Record, Run, RunStatus
from keep_storage.transaction import Queries
from keep_storage.transitions import UNCERTAIN
from tests.crash.driver import NO_LIMIT, PERMISSION, TODAY, Driver
from tests.storage.due import check_agenda

Ending = Mapping[str, object]

_TIMES: Final = {
    *("created_at", "updated_at", "activated_at", "started_at", "ended_at"),
    *("sent_at", "resolved_at", "next_reconcile_at", "requested_at", "decided_at", "next_attempt_at"),
    *("doubted_at", "failing_since", "expires_at"),
}


def check(q: Queries, *drivers: Driver) -> None:
    """Nothing is broken, nothing was done twice, and nothing that may have been done is offered again."""
    broken = invariants.check(q, deep=True)
    assert not broken, "\n".join(map(str, broken))
    check_agenda(q)
    for driver in drivers:
        _check_effects(q, driver)


def _check_effects(q: Queries, driver: Driver) -> None:
    outside = driver.outside
    assert max(outside.effects().values(), default=0) <= 1, f"done twice: {outside.calls}"
    assert max(outside.effects_by_key().values(), default=0) <= 1, f"done twice: {outside.calls}"
    if driver.scenario.connector.per_day is not None:
        counted = reads.calls_on_day(q, driver.workflow_id, PERMISSION, TODAY)
        assert counted >= len(outside.calls), f"called, and not counted: {outside.calls}"
    for mutation in reads.unsettled_mutations(q, driver.workflow_id):
        if mutation.status in UNCERTAIN and mutation.item_id is None:
            held = reads.events_of_run(q, mutation.run_id)
            assert held, f"{mutation.id} is about no event"
            assert {event.status for event in held} == {EventStatus.RESERVED}, f"{mutation.id} is in doubt: {held}"
    done = set(_events_done(outside.effects()))
    if not done:
        return
    for consumer, topic in (("file", "mail"), ("announce", "rows")):
        offered = {(consumer, event.message_id) for event in reads.peek(q, driver.workflow_id, topic)}
        assert not offered & done, f"done, and offered again: {offered & done}"


def _events_done(effects: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """The handlers and events that something happened for."""
    for target in effects:
        handler, _, message_ids = target.partition("/")
        yield from ((handler, message_id) for message_id in message_ids.split("+"))


def ending(q: Queries, driver: Driver) -> Ending:
    """What a person would see when it is over: without ids, counts and times, which a crash may change."""
    workflow = reads.workflow(q, driver.workflow_id)
    assert workflow, "the scenario has begun"
    events = list(_events(q, driver))
    return {
        "workflow": (workflow.status, workflow.error, workflow.maintenance, workflow.pending_retry_run_id is None),
        "open": [
            reads.open_session(q, driver.workflow_id),
            reads.open_task(q, driver.workflow_id),
            *reads.unsettled_mutations(q, driver.workflow_id),
            *(run for run in reads.runs(q, driver.workflow_id, limit=NO_LIMIT) if run.status is RunStatus.ACTIVE),
        ],
        "unfinished": [
            *(each.message_id for each in reads.peek(q, driver.workflow_id, "mail")),
            *(event.id for event in events if event.status is EventStatus.RESERVED),
            *(run.id for run in reads.runs(q, driver.workflow_id, limit=NO_LIMIT) if run.parked),
        ],
        "handlers": {
            handler.name: (
                *(handler.state, handler.wake_at, handler.next_run_at),
                *(handler.failures, handler.retry_at, handler.repairs),
            )
            for handler in reads.handlers(q, driver.workflow_id)
        },
        "events": {event.id: (event.message_id, event.status, event.title, event.payload) for event in events},
        "roots": {event.id: [root.message_id for root in reads.roots_of_event(q, event.id)] for event in events},
        "outcomes": {event.id: _outcomes(q, event) for event in events},
        "items": {
            item_id: [
                (item.attempt, item.state, item.error) for item in reads.item_attempts(q, driver.workflow_id, item_id)
            ]
            for item_id in driver.scenario.items
        },
        "effects": dict(driver.outside.effects()),
        "told": driver.outside.told,
    }


def _events(q: Queries, driver: Driver) -> Iterator[Event]:
    for topic in driver.scenario.topics:
        yield from reads.events(q, driver.workflow_id, topic, limit=NO_LIMIT)


def _outcomes(q: Queries, event: Event) -> list[tuple[str, str | None]]:
    """What its mutations came to. Those that failed left nothing, and a crash may add some or spare some."""
    held = reads.reservations_of_event(q, event.id)
    ledger = [mutation for each in held for mutation in reads.mutations_of_run(q, each.run_id)]
    return [
        (mutation.status, mutation.result)
        for mutation in ledger
        if mutation.status is MutationStatus.APPLIED or _is_skipped(q, mutation)
    ]


def _is_skipped(q: Queries, mutation: Mutation) -> bool:
    run = reads.run(q, mutation.run_id)
    return run is not None and run.mutation_outcome is MutationOutcome.SKIPPED


def state(q: Queries, driver: Driver) -> tuple[object, ...]:
    """Every row of the scenario, without times: two databases of the same state go on in the same way."""
    found: list[Record | None] = [
        reads.workflow(q, driver.workflow_id),
        *(reads.version(q, driver.version_id(minor)) for minor in (0, 1, 2)),
        reads.open_session(q, driver.workflow_id),
        reads.open_task(q, driver.workflow_id),
        *reads.handlers(q, driver.workflow_id),
        *_events(q, driver),
    ]
    for item_id in driver.scenario.items:
        found += reads.item_attempts(q, driver.workflow_id, item_id)
    for run in reads.runs(q, driver.workflow_id, limit=NO_LIMIT):
        found += [run, reads.session(q, run.session_id)]
        found += reads.mutations_of_run(q, run.id)
        found += reads.events_of_run(q, run.id)
    for mutation in reads.unsettled_mutations(q, driver.workflow_id):
        found.append(reads.open_approval(q, mutation.id))
    return tuple(_timeless(record) for record in found if record)


def _timeless(record: Record) -> tuple[object, ...]:
    """The fields of a row; of a time, only whether there is one."""
    fields = ((name, getattr(record, name)) for name in record.__struct_fields__)
    return tuple(value is None if name in _TIMES else value for name, value in fields)


def situation(q: Queries, driver: Driver) -> tuple[object, ...]:
    """What a scheduler would see, without ids and without history: coarser than `state`.

    A crash that left nothing but a dead run behind leads back to a situation from before it.
    """
    workflow = reads.workflow(q, driver.workflow_id)
    if workflow is None:
        return ()
    items = (reads.item(q, driver.workflow_id, item_id) for item_id in driver.scenario.items)
    runs = reads.runs(q, driver.workflow_id, limit=NO_LIMIT)
    task = reads.open_task(q, driver.workflow_id)
    return (
        (workflow.status, workflow.error_class, workflow.maintenance, workflow.active_version_id),
        reads.open_session(q, driver.workflow_id) is None,
        task and (task.attempts, task.held_version_id),
        *((handler.name, handler.state, handler.next_run_at) for handler in reads.handlers(q, driver.workflow_id)),
        *((event.id, event.status) for event in _events(q, driver)),
        *((item.item_id, item.state, item.is_open) for item in items if item),
        *(
            _where(run)
            for run in runs
            if run.status is RunStatus.ACTIVE or run.parked or run.id == workflow.pending_retry_run_id
        ),
        *(
            (mutation.status, mutation.reconcile_attempts, reads.open_approval(q, mutation.id) is None)
            for mutation in reads.unsettled_mutations(q, driver.workflow_id)
        ),
    )


def _where(run: Run) -> tuple[object, ...]:
    was_stopped = run.stop_until is not None
    return (run.handler, run.phase, run.status, run.mutation_outcome, run.retry_of is None, run.parked, was_stopped)
