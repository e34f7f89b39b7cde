"""A small world to test the execution model in: one workflow, a clock that counts, and short words for long steps.

The workflow `wf_mail` polls mail into the topic `mail`, files each mail as a row (consumer `file`) and announces
rows on `rows` (consumer `announce`); `digest` is a job. Names of runs, sessions and mutations count upwards.
"""

import itertools
from pathlib import Path
from typing import Any

import apsw
import msgspec

from keep_storage import ExecutionModelManager, Store, invariants, mutation_rows, reads, records, rows
from keep_storage.model import (
    Event,
    Handler,
    HandlerKind,
    JournalEntry,
    MaintenanceTask,
    Mutation,
    MutationStatus,
    OnUnknown,
    Phase,
    Run,
    RunStatus,
    Session,
    Topic,
    Workflow,
)
from keep_storage.operations import AskFirst, HandlerSpec, Publish, Reserve

WORKFLOW = "wf_mail"
TOPICS = ("mail", "rows")
HANDLERS = (
    HandlerSpec("poll", HandlerKind.PRODUCER, schedule='{"interval":"5m"}', first_run_at=0),
    HandlerSpec("file", HandlerKind.CONSUMER, subscribe=("mail",)),
    HandlerSpec("announce", HandlerKind.CONSUMER, subscribe=("rows",)),
    HandlerSpec("digest", HandlerKind.JOB, schedule='{"cron":"0 8 * * *"}', first_run_at=0),
)


def ordered(by: str | None) -> tuple[HandlerSpec, ...]:
    """The handlers, with an ordering key for the consumer `file`."""
    return tuple(msgspec.structs.replace(each, ordering=by) if each.name == "file" else each for each in HANDLERS)


class CountingClock:
    """Each look at it is one millisecond later."""

    def __init__(self, start: int = 1_700_000_000_000) -> None:
        self.now = start

    def __call__(self) -> int:
        self.now += 1
        return self.now


class World:
    """The model, the words, and a look at what it holds."""

    def __init__(self, store: Store | None = None, *, deploy: bool = True) -> None:
        self.clock = CountingClock()
        self.store = store or Store.in_memory(self.clock)
        self.model = ExecutionModelManager(self.store)
        self.on_unknown = OnUnknown.PAUSE
        """What stands still over the doubts of consumers that start from now on."""
        self._counter = itertools.count(1)
        if deploy:
            self.deploy()

    def name(self, prefix: str) -> str:
        return f"{prefix}_{next(self._counter):06d}"

    def deploy(self, workflow: str = WORKFLOW) -> None:
        version = self.name("ver")
        self.model.create_workflow(workflow, "Mail to rows")
        self.model.add_script_version(version, workflow, 1, 0, "export default Keep.workflow({})")
        self.model.activate_script(version, TOPICS, HANDLERS)
        self.model.resume_workflow(workflow)

    # Words for steps.

    def publish(self, *message_ids: str, topic: str = "mail", workflow: str = WORKFLOW) -> None:
        self.model.publish_events(workflow, tuple(self.mail(each, topic) for each in message_ids))

    def mail(self, message_id: str, topic: str = "mail", payload: str = "{}") -> Publish:
        return Publish(self.name("evt"), topic, message_id, f"Mail {message_id}", payload)

    def session(self, workflow: str = WORKFLOW) -> str:
        """The open session, or a new one."""
        if found := rows.open_session(self.store.queries(), workflow):
            return found.id
        return self.model.create_session(self.name("ses"), workflow, "test").id

    def start(self, handler: str = "file", workflow: str = WORKFLOW) -> Run:
        """A run that has just started: a consumer's is `preparing`."""
        consumer = next((spec.kind is HandlerKind.CONSUMER for spec in HANDLERS if spec.name == handler), False)
        phase = Phase.PREPARING if consumer else Phase.PENDING
        on_unknown = self.on_unknown if consumer else OnUnknown.PAUSE
        session = self.session(workflow)
        return self.model.create_run(self.name("run"), session, handler, phase, on_unknown=on_unknown)

    def prepared(self, *message_ids: str, handler: str = "file", topic: str = "mail") -> Run:
        """A consumer run that has reserved these events."""
        run = self.start(handler)
        reservations = (Reserve(topic, message_ids),) if message_ids else ()
        return self.model.update_consumer_phase(
            run.id, Phase.PREPARED, reservations=reservations, prepare_result='{"data":1}', title="File the mail"
        )

    def mutating(self, *message_ids: str) -> Run:
        return self.model.update_consumer_phase(self.prepared(*message_ids).id, Phase.MUTATING)

    def recorded(self, *message_ids: str, send: bool = False, reconcilable: bool = True, ask: bool = False) -> Mutation:
        """A consumer run whose one mutation is in the ledger."""
        run = self.mutating(*message_ids)
        ask_first = AskFirst(self.name("apr")) if ask else None
        return self.model.create_mutation(
            self.name("mut"),
            run.id,
            "sheets",
            "append",
            '{"row":1}',
            idempotency_key=f"key-{run.id}",
            reconcilable=reconcilable,
            send=send,
            ask_first=ask_first,
        )

    def sent(self, *message_ids: str, reconcilable: bool = True) -> Mutation:
        """A mutation in flight."""
        return self.recorded(*message_ids, send=True, reconcilable=reconcilable)

    def emitting(self, *message_ids: str, result: str = '{"rowId":7}') -> Run:
        """A run whose mutation was applied and whose `next` is running."""
        mutation = self.sent(*message_ids)
        self.model.apply_mutation(mutation.id, result)
        return self.model.update_consumer_phase(mutation.run_id, Phase.EMITTING)

    def uncertain(self, *message_ids: str, reconcilable: bool = False) -> Mutation:
        """A mutation whose outcome nobody knows, and its run paused over it."""
        mutation = self.sent(*message_ids, reconcilable=reconcilable)
        status = MutationStatus.NEEDS_RECONCILE if reconcilable else MutationStatus.INDETERMINATE
        mutation = self.model.update_mutation_status(mutation.id, status, "timed out")
        self.model.update_handler_run_status(mutation.run_id, RunStatus.PAUSED_RECONCILIATION)
        return mutation

    # Looking.

    def workflow(self, workflow: str = WORKFLOW) -> Workflow:
        found = rows.workflow(self.store.queries(), workflow)
        assert found
        return found

    def run(self, run_id: str) -> Run:
        found = rows.run(self.store.queries(), run_id)
        assert found
        return found

    def mutation(self, mutation_id: str) -> Mutation:
        found = mutation_rows.mutation(self.store.queries(), mutation_id)
        assert found
        return found

    def session_row(self, session_id: str) -> Session:
        found = rows.session(self.store.queries(), session_id)
        assert found
        return found

    def handler(self, name: str) -> Handler:
        found = rows.handler(self.store.queries(), WORKFLOW, name)
        assert found
        return found

    def handlers(self, workflow: str = WORKFLOW) -> list[Handler]:
        return reads.handlers(self.store.queries(), workflow)

    def tasks(self) -> list[MaintenanceTask]:
        return reads.tasks(self.store.queries(), WORKFLOW)

    def topic(self, name: str) -> Topic:
        return next(topic for topic in reads.topics(self.store.queries(), WORKFLOW) if topic.name == name)

    def has_news(self, consumer: str) -> bool:
        snapshot = reads.snapshot(self.store.queries(), WORKFLOW)
        assert snapshot
        return next(handler.has_news for handler in snapshot.handlers if handler.name == consumer)

    def open_approval(self, mutation_id: str) -> str:
        found = mutation_rows.open_approval(self.store.queries(), mutation_id)
        assert found
        return found.id

    def clock_of_last_commit(self) -> int:
        return self.journal()[-1].at

    def events(self, topic: str = "mail", workflow: str = WORKFLOW) -> list[Event]:
        key: dict[str, Any] = {"workflow_id": workflow, "topic": topic, "after": 0, "limit": 1_000_000}
        return records.find_all(self.store.queries(), Event, "events_of_topic", key)

    def states(self, topic: str = "mail", workflow: str = WORKFLOW) -> dict[str, str]:
        """What became of each event, by message id."""
        return {event.message_id: str(event.status) for event in self.events(topic, workflow)}

    def holder(self, message_id: str) -> str | None:
        return next(event.reserved_by_run_id for event in self.events() if event.message_id == message_id)

    def journal(self) -> list[JournalEntry]:
        return records.find_all(self.store.queries(), JournalEntry, "journal_after", {"after": 0, "limit": 1_000_000})

    def check(self) -> None:
        """No promise is broken."""
        broken = invariants.check(self.store.queries(), deep=True)
        assert not broken, "\n".join(map(str, broken))


def contents(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table of a file, by table."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    tables = [str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    found = {table: connection.execute(f'SELECT * FROM "{table}"').fetchall() for table in tables}
    connection.close()
    return found
