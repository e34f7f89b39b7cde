"""A file of an earlier schema opens, is brought up to date, and goes on where its runtime left it.

`data/schema_1.sql` has workflows as version 1 left them: `wf_ask` and the job of `wf_job` are stopped by an open
approval, `wf_gone` was archived with one, `wf_doubt` is stopped by a doubt and beside `wf_parked` is one, and
`wf_items` has a call in an item that was recorded under its words.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec
import pytest

from keep_storage import (
    Reason,
    Rejected,
    Store,
    attention_reads,
    invariants,
    item_reads,
    lookups,
    mutation_rows,
    reads,
    statements,
)
from keep_storage.model import (
    ItemState,
    JournalEntry,
    Mutation,
    MutationStatus,
    Phase,
    Record,
    Resolver,
    Run,
    RunStatus,
    WorkflowStatus,
)
from keep_storage.operations import ItemScope, Reserve
from keep_storage.outcomes import mutation_result_for_next
from keep_storage.schema import APPLICATION_ID
from keep_storage.transaction import Queries
from tests.storage.due import check_agenda
from tests.storage.world import CountingClock, World

ROWS = Path(__file__).parent / "data" / "schema_1.sql"
BLOCK = 4_096
"""Entries of the journal in one block of `journal_blocks`."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of schema version 1."""
    path = tmp_path / "keep.db"
    connection = apsw.Connection(str(path))
    connection.execute(statements.migrations()[0])
    connection.execute("BEGIN")
    connection.execute(ROWS.read_text("utf-8"))
    connection.execute("COMMIT")
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("user_version", 1)
    connection.close()
    return path


@pytest.fixture
def world(path: Path) -> Iterator[World]:
    """The same file, opened by this library. At the end of a test no promise is broken."""
    with Store.open(path, CountingClock(1_800_000_000_000)) as store:
        world = World(store, deploy=False)
        yield world
        world.check()
        check_agenda(store.queries())


def retried(world: World, run_id: str) -> Run:
    """The retry of a run, committed."""
    session = world.session(world.run(run_id).workflow_id)
    retry = world.model.create_retry_run(world.name("run"), run_id, session)
    world.model.commit_consumer(retry.id)
    return retry


def stopped_by(world: World, workflow: str) -> tuple[str, str | None, str | None]:
    found = world.workflow(workflow)
    return found.error, found.error_run_id, found.pending_retry_run_id


NOTHING = ("", None, None)


def test_every_row_is_still_there_and_no_promise_is_broken(path: Path) -> None:
    def counted() -> dict[str, int]:
        look = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        tables = [str(row[0]) for row in look.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        found = {name: len(look.execute(f"SELECT * FROM {name}").fetchall()) for name in tables}
        look.close()
        return found

    before = counted()
    with Store.open(path, CountingClock()) as store:
        assert invariants.check(store.queries(), deep=True) == []
    after = counted()
    assert {name: after[name] for name in before} == before
    look = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    assert look.pragma("user_version") == len(statements.migrations())
    assert look.execute("PRAGMA foreign_key_check").fetchall() == []
    look.close()


class Before(NamedTuple):
    """Rows of a file of version 4, as that version had them."""

    journal: list[tuple[Any, ...]]
    runs: list[tuple[Any, ...]]
    mutations: list[tuple[Any, ...]]
    held: list[tuple[Any, ...]]
    roots: list[tuple[Any, ...]]
    events: list[tuple[Any, ...]]


@pytest.fixture
def before(path: Path) -> Before:
    """The same file in version 4, with a cause of an event, and a journal that reaches over several blocks."""
    with closing(apsw.Connection(str(path))) as old, old:
        for number, migration in enumerate(statements.migrations()[1:4], start=2):
            old.execute(migration)
            old.pragma("user_version", number)
        old.execute("INSERT INTO event_roots SELECT b.id, a.id FROM events a JOIN events b ON b.seq = a.seq + 1")
        old.execute("UPDATE events SET caused = 1 WHERE id IN (SELECT event_id FROM event_roots)")
        end = int(str(old.execute("SELECT MAX(seq) FROM journal").fetchall()[0][0]))
        old.executemany(
            "INSERT INTO journal VALUES (?, 1700000000099, 'set_down', ?, ?, '{\"n\":1}', ?)",
            (
                (seq, *(("wf_ask", "run_ask") if seq % 1_000 == 0 else ("wf_busy", None)), "" if seq % 3 else "so")
                for seq in range(end + 1, 3 * BLOCK)
            ),
        )
        looks = {
            "journal": "SELECT * FROM journal ORDER BY seq",
            "runs": "SELECT id, workflow_id, version_id FROM runs ORDER BY id",
            "mutations": "SELECT id, run_id FROM mutations ORDER BY id",
            "held": "SELECT run_id, event_id, attempt, reserved_at FROM reservations ORDER BY 1, 2",
            "roots": "SELECT event_id, root_event_id FROM event_roots",
            "events": "SELECT id FROM events",
        }
        found = Before(**{name: list(old.execute(look)) for name, look in looks.items()})
    assert all(found), "there is something of everything"
    return found


def pages(q: Queries, workflow_id: str) -> Iterator[JournalEntry]:
    after = 0
    while page := reads.journal(q, workflow_id=workflow_id, after=after, limit=500):
        yield from page
        after = page[-1].seq


def plain(rows: Iterable[Record]) -> list[tuple[Any, ...]]:
    return [msgspec.structs.astuple(row) for row in rows]


def test_the_journal_reads_the_same_now_that_it_has_numbers_for_names(path: Path, before: Before) -> None:
    with Store.open(path, CountingClock()) as store:
        q = store.queries()
        assert plain(reads.journal(q, limit=len(before.journal) + 1)) == before.journal
        for workflow_id in ("wf_ask", "wf_job", "wf_busy", "wf_none"):
            of_workflow = [row for row in before.journal if row[3] == workflow_id]
            assert plain(pages(q, workflow_id)) == of_workflow
            assert plain(lookups.newest_journal(q, workflow_id=workflow_id, limit=9)) == of_workflow[-9:]
        for run_id, _, _ in before.runs:
            assert plain(reads.journal_of_run(q, run_id)) == [row for row in before.journal if row[4] == run_id]


def test_what_runs_held_and_called_reads_the_same_now_that_they_have_numbers(path: Path, before: Before) -> None:
    with Store.open(path, CountingClock()) as store:
        q = store.queries()
        for number, (run_id, workflow_id, version_id) in enumerate(before.runs, start=1):
            run = reads.run(q, run_id)
            assert run
            assert run.number == number
            assert run in reads.runs(q, workflow_id)
            assert run in reads.runs_of_version(q, version_id)
            called = [row[0] for row in before.mutations if row[1] == run_id]
            assert [each.id for each in reads.mutations_of_run(q, run_id)] == called
        for (event_id,) in before.events:
            held = [row for row in before.held if row[1] == event_id]
            assert plain(reads.reservations_of_event(q, event_id)) == held
            roots = [row[1] for row in before.roots if row[0] == event_id]
            assert [each.id for each in reads.roots_of_event(q, event_id)] == roots
            caused = [row[0] for row in before.roots if row[1] == event_id]
            assert [each.id for each in reads.events_caused_by(q, event_id)] == caused


def test_a_start_finds_nothing_that_a_dead_process_left(world: World) -> None:
    assert world.model.recover_crashed_runs() == ()
    assert world.model.recover_unfinished_sessions() == ()
    assert world.model.recover_maintenance_mode() == ()
    assert world.model.assert_no_orphaned_reserved_events() == []


def test_the_scripts_that_are_there_are_nobodys(world: World) -> None:
    versions = [
        each
        for workflow in reads.workflows(world.store.queries())
        for each in reads.versions(world.store.queries(), workflow.id)
    ]
    assert versions
    assert {each.author for each in versions} == {""}


def test_the_workflows_that_are_there_belong_to_no_one_by_name_and_can_be_handed_over(world: World) -> None:
    workflows = reads.workflows(world.store.queries())
    assert workflows
    assert {each.owner for each in workflows} == {""}
    world.model.create_workflow("wf_new", "new", owner="ann")
    assert [each.id for each in reads.workflows(world.store.queries()) if each.owner] == ["wf_new"]


def test_who_needs_a_person_needs_one_still(world: World) -> None:
    needing = {each.id for each in reads.workflows_needing_attention(world.store.queries())}
    assert needing == {"wf_ask", "wf_doubt", "wf_gone", "wf_job", "wf_parked"}


def test_a_handler_that_failed_says_since_when(world: World) -> None:
    [failing] = attention_reads.failing_handlers(world.store.queries(), "wf_items")
    assert (failing.name, failing.failures, failing.failing_since) == ("digest", 1, failing.updated_at)


# An approval of the former kind: its run is the pending retry of its workflow, and its error.


def test_an_open_approval_stops_its_workflow_as_it_did(world: World) -> None:
    assert stopped_by(world, "wf_ask") == ("May this row be appended?", "run_ask", "run_ask")
    assert not world.run("run_ask").parked
    with pytest.raises(Rejected) as refusal:
        world.model.clear_workflow_error("wf_ask", by="ada")
    assert refusal.value.reason is Reason.MUTATION_OUTCOME_UNKNOWN


def test_it_is_approved_and_its_call_is_made_as_recorded(world: World) -> None:
    sent = world.model.approve_mutation("apr_ask", by="ada")
    assert (sent.status, sent.params, sent.idempotency_key) == (MutationStatus.IN_FLIGHT, '{"row":1}', "key-run_ask")
    world.model.apply_mutation("mut_ask", '{"rowId":7}')
    assert stopped_by(world, "wf_ask") == ("", None, "run_ask")
    assert mutation_result_for_next(retried(world, "run_ask")) == '{"status":"applied","result":{"rowId":7}}'
    assert world.states(workflow="wf_ask") == {"m1": "consumed", "m2": "pending"}


def test_it_is_approved_and_its_call_fails(world: World) -> None:
    world.model.approve_mutation("apr_ask", by="ada")
    world.model.fail_mutation("mut_ask", "400")
    assert (stopped_by(world, "wf_ask"), world.states(workflow="wf_ask")["m1"]) == (NOTHING, "pending")


def test_it_is_approved_and_its_outcome_is_unknown(world: World) -> None:
    world.model.approve_mutation("apr_ask", by="ada")
    world.model.update_mutation_status("mut_ask", MutationStatus.INDETERMINATE, "timed out")
    world.model.update_handler_run_status("run_ask", RunStatus.PAUSED_RECONCILIATION)
    assert stopped_by(world, "wf_ask")[1:] == ("run_ask", "run_ask")
    world.model.skip_mutation("mut_ask", by="ada", why="enough")
    assert mutation_result_for_next(retried(world, "run_ask")) == '{"status":"skipped","reason":"enough"}'
    assert (stopped_by(world, "wf_ask"), world.states(workflow="wf_ask")["m1"]) == (NOTHING, "skipped")


@pytest.mark.parametrize("expired", [False, True])
def test_it_is_refused_and_next_is_told_why(world: World, expired: bool) -> None:
    world.model.reject_mutation("apr_ask", by="ada", why="not this one", expired=expired)
    assert stopped_by(world, "wf_ask") == ("", None, "run_ask")
    assert mutation_result_for_next(retried(world, "run_ask")) == '{"status":"skipped","reason":"not this one"}'
    assert world.states(workflow="wf_ask") == {"m1": "skipped", "m2": "pending"}


def test_it_is_sent_back_and_asked_in_the_new_way(world: World) -> None:
    world.model.reject_mutation("apr_ask", by="ada", retry=True)
    assert (stopped_by(world, "wf_ask"), world.states(workflow="wf_ask")["m1"]) == (NOTHING, "pending")
    run = world.start("file", "wf_ask")
    world.model.update_consumer_phase(run.id, Phase.PREPARED, (Reserve("mail", ("m1",)),), "{}")
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT)
    assert [each.attempt for each in world.events(workflow="wf_ask")] == [3, 1]


def test_it_is_asked_again(world: World) -> None:
    world.model.ask_again("apr_ask", "apr_again")
    assert stopped_by(world, "wf_ask")[1:] == ("run_ask", "run_ask")
    world.model.approve_mutation("apr_again", by="ada")


def test_its_workflow_is_archived_and_leaves_no_question_behind(world: World) -> None:
    world.model.archive_workflow("wf_ask", by="ada")
    assert (stopped_by(world, "wf_ask"), world.states(workflow="wf_ask")["m1"]) == (NOTHING, "pending")
    assert reads.open_approvals(world.store.queries(), "wf_ask") == []


def test_a_process_that_dies_while_its_approved_call_is_made_leaves_a_doubt(world: World) -> None:
    world.model.approve_mutation("apr_ask", by="ada")
    [recovered] = world.model.recover_crashed_runs()
    assert (recovered.id, recovered.status, recovered.parked) == ("run_ask", RunStatus.PAUSED_RECONCILIATION, False)
    assert world.states(workflow="wf_ask")["m1"] == "reserved"


# Archived with an open approval, as one could.


def test_a_question_of_an_archived_workflow_is_refused_and_goes_away(world: World) -> None:
    with pytest.raises(Rejected) as refusal:
        world.model.approve_mutation("apr_gone", by="ada")
    assert refusal.value.reason is Reason.WORKFLOW_STATUS_REFUSED
    world.model.reject_mutation("apr_gone", by="ada")
    assert "wf_gone" not in {each.id for each in reads.workflows_needing_attention(world.store.queries())}


def test_its_question_is_answered_once_it_is_brought_back(world: World) -> None:
    assert world.model.unarchive_workflow("wf_gone", by="ada").status is WorkflowStatus.PAUSED
    world.model.approve_mutation("apr_gone", by="ada")
    world.model.apply_mutation("mut_gone", "1")
    world.model.resume_workflow("wf_gone")
    retried(world, "run_gone")
    assert world.states(workflow="wf_gone")["m1"] == "consumed"


# Doubts.


def test_a_doubt_that_stops_its_workflow_is_settled_and_its_result_can_be_put_right(world: World) -> None:
    world.model.apply_mutation("mut_doubt", '{"rowId":1}', Resolver.USER_ASSERT_APPLIED, by="ada")
    world.model.amend_result("mut_doubt", '{"rowId":2}', by="ada", why="read it wrong")
    assert (stopped_by(world, "wf_doubt"), world.mutation("mut_doubt").error) == (("", None, "run_doubt"), "")
    assert mutation_result_for_next(retried(world, "run_doubt")) == '{"status":"applied","result":{"rowId":2}}'


def test_a_doubt_that_is_parked_is_beside_the_work_still(world: World) -> None:
    assert (stopped_by(world, "wf_parked"), world.run("run_parked").parked) == (NOTHING, True)
    world.model.commit_producer(world.start("poll", "wf_parked").id, next_run_at=5)
    world.model.apply_mutation("mut_parked", "1", Resolver.USER_ASSERT_APPLIED, by="ada")
    retried(world, "run_parked")
    assert world.states(workflow="wf_parked")["m1"] == "consumed"


# Jobs and their items.


def call(world: World, run: Run, identity: str, words: str, *, send: bool = True) -> Mutation:
    scope = ItemScope("i1", identity, is_method_alone=True)
    return world.model.create_mutation(
        world.name("mut"), run.id, "mail", "send", words, "key", reconcilable=False, send=send, item=scope
    )


def enter(world: World, workflow: str) -> Run:
    run = world.start("digest", workflow)
    world.model.open_item(run.id, "i1", "Item i1")
    return run


@pytest.mark.parametrize("words", ['{"text":"hello"}', '{"text":"good day"}'])
def test_a_call_in_an_item_that_was_kept_under_its_words_is_known_in_any_words(world: World, words: str) -> None:
    """Else a repair that says it in other words would send a second mail."""
    before = mutation_rows.mutation(world.store.queries(), "mut_items")
    again = call(world, enter(world, "wf_items"), "mail.send alone", words)
    assert (again, again.status, again.result, again.subkey) == (before, MutationStatus.APPLIED, '"sent"', None)
    assert len(item_reads.calls_of_item(world.store.queries(), "wf_items", "i1")) == 1


def test_another_attempt_at_the_item_calls_anew(world: World) -> None:
    world.model.reprocess_item("wf_items", "i1", by="ada")
    again = call(world, enter(world, "wf_items"), "mail.send alone, second attempt", '{"text":"hello"}')
    assert (again.status, again.item_attempt, again.subkey) == (MutationStatus.IN_FLIGHT, 2, "")


def test_a_job_that_asked_is_answered_and_runs_again(world: World) -> None:
    assert stopped_by(world, "wf_job") == ("Approval required", "run_job", None)
    world.model.approve_mutation("apr_job", by="ada")
    world.model.apply_mutation("mut_job", '"sent"')
    assert stopped_by(world, "wf_job") == NOTHING
    again = call(world, enter(world, "wf_job"), "mail.send alone", '{"text":"hello"}')
    assert (again.id, again.result) == ("mut_job", '"sent"')


def test_a_job_that_asked_is_refused_and_its_item_skipped(world: World) -> None:
    world.model.reject_mutation("apr_job", by="ada")
    item = reads.item(world.store.queries(), "wf_job", "i1")
    assert item
    assert (item.state, stopped_by(world, "wf_job")) == (ItemState.SKIPPED, NOTHING)
    world.start("digest", "wf_job")


def test_a_file_is_brought_up_to_date_whole_or_not_at_all(tmp_path: Path) -> None:
    """Whoever is stopped in the last migration leaves no file in between."""
    path = tmp_path / "keep.db"

    def stop_at_the_end(connection: apsw.Connection) -> None:
        def look(_: apsw.Cursor, sql: str, __: object) -> bool:
            return not (
                sql.startswith("PRAGMA")
                and "foreign_key_check" in sql
                and _version(connection) == len(statements.migrations())
            )

        connection.exec_trace = look

    apsw.connection_hooks.append(stop_at_the_end)
    try:
        with pytest.raises(Exception, match="Aborted"):
            Store.open(path)
    finally:
        apsw.connection_hooks.remove(stop_at_the_end)
    with closing(apsw.Connection(str(path))) as left:
        assert _version(left) == 0
    Store.open(path).close()


def _version(connection: apsw.Connection) -> int:
    return int(str(connection.pragma("user_version")))
