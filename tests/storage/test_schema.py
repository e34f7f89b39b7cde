"""The tables, the structs, the statements and the migrations say the same thing."""

import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec
import pglast
import pytest

from keep_storage import limits, model, statements
from keep_storage.model import Record
from keep_storage.sqlite import SqliteDatabase

TABLE_OF: dict[type[Record], str] = {
    model.Workflow: "workflows",
    model.ScriptVersion: "script_versions",
    model.Handler: "handlers",
    model.Topic: "topics",
    model.Session: "sessions",
    model.Run: "runs",
    model.Event: "events",
    model.Reservation: "runs_of_events",
    model.Mutation: "mutations",
    model.Approval: "approvals",
    model.StoredGrant: "grants",
    model.Item: "items",
    model.MaintenanceTask: "maintenance_tasks",
    model.ScriptProposal: "proposals",
    model.AttentionRow: "needs_attention",
    model.NoticeRow: "notices",
    model.Delivery: "deliveries",
    model.JournalEntry: "journal_entries",
}
ENUM_COLUMNS = [
    ("workflows", "status", model.WorkflowStatus),
    ("runs", "phase", model.Phase),
    ("runs", "status", model.RunStatus),
    ("runs", "mutation_outcome", model.MutationOutcome),
    ("runs", "kind", model.HandlerKind),
    ("runs", "error_class", model.FailureClass),
    ("workflows", "error_class", model.FailureClass),
    ("handlers", "kind", model.HandlerKind),
    ("events", "status", model.EventStatus),
    ("mutations", "status", model.MutationStatus),
    ("mutations", "resolved_by", model.Resolver),
    ("sessions", "result", model.SessionResult),
    ("items", "state", model.ItemState),
    ("approvals", "status", model.ApprovalStatus),
    ("grants", "policy", model.GrantPolicy),
    ("maintenance_tasks", "status", model.TaskStatus),
    ("proposals", "status", model.ProposalStatus),
    ("notices", "kind", model.NoticeKind),
    ("deliveries", "says", model.Says),
    ("deliveries", "status", model.DeliveryStatus),
]


@pytest.fixture
def database() -> Iterator[apsw.Connection]:
    """The schema as `schema.sql` says it, and the temporary views."""
    connection = apsw.Connection(":memory:")
    connection.execute(statements.text("schema.sql"))
    for view in statements.views().values():
        connection.execute(f"CREATE TEMP VIEW {view.name} AS {view.sql}")
    yield connection
    connection.close()


def schema_of(connection: apsw.Connection) -> set[tuple[str, str]]:
    def plain(sql: str) -> str:
        # A table that was made anew under another name and renamed has its own in quotes.
        return re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", sql)).replace('"', "").strip()

    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    return {(str(name), plain(str(sql))) for name, sql in rows}


def test_the_migrations_add_up_to_the_schema(database: apsw.Connection) -> None:
    migrated = apsw.Connection(":memory:")
    for migration in statements.migrations():
        migrated.execute(migration)
    assert schema_of(migrated) == schema_of(database)
    migrated.close()


def test_every_struct_has_the_columns_of_its_table_in_order(database: apsw.Connection) -> None:
    assert set(TABLE_OF) == set(Record.__subclasses__())
    for struct, table in TABLE_OF.items():
        columns = [str(row[1]) for row in database.execute(f"PRAGMA table_info({table})")]
        assert [field.name for field in msgspec.structs.fields(struct)] == columns, table


def test_every_enum_is_a_check_with_the_same_values(database: apsw.Connection) -> None:
    schema = dict(schema_of(database))
    for table, column, enum in ENUM_COLUMNS:
        found = re.search(rf"CHECK \({column} IN \(([^)]*)\)\)", schema[table])
        assert found, f"{table}.{column} has no CHECK"
        assert set(re.findall(r"'([^']*)'", found.group(1))) == {str(value) for value in enum}, f"{table}.{column}"


def test_every_limit_is_a_check_with_the_same_size(database: apsw.Connection) -> None:
    schema = dict(schema_of(database))
    found = re.findall(r"CHECK \(length\((\w+)\) BETWEEN 1 AND (\d+)\)", " ".join(schema.values()))
    assert dict(found) == {"message_id": str(limits.MESSAGE_ID_CHARS_MAX), "title": str(limits.TITLE_CHARS_MAX)}


def test_a_note_has_the_size_that_connectors_are_told(database: apsw.Connection) -> None:
    [size] = re.findall(r"CHECK \(length\(note\) <= (\d+)\)", dict(schema_of(database))["mutations"])
    assert int(size) == limits.NOTE_CHARS_MAX


def test_a_proposal_has_the_sizes_that_operations_check(database: apsw.Connection) -> None:
    found = dict(re.findall(r"length\((\w+)\) <= (\d+)\)", dict(schema_of(database))["proposals"]))
    assert {name: int(size) for name, size in found.items()} == {
        "name": limits.PROPOSAL_NAME_CHARS_MAX,
        "source": limits.PROPOSAL_SOURCE_CHARS_MAX,
        "note": limits.PROPOSAL_NOTE_CHARS_MAX,
        "proposed_by": limits.PROPOSAL_NAME_CHARS_MAX,
    }


def test_every_table_is_strict_and_every_check_has_a_name(database: apsw.Connection) -> None:
    for name, sql in schema_of(database):
        if sql.startswith("CREATE TABLE"):
            assert sql.endswith(("STRICT", "STRICT, WITHOUT ROWID")), name
            unnamed = re.sub(r"CONSTRAINT \w+ CHECK", "", sql)
            assert "CHECK" not in unnamed, f"{name} has a CHECK without a name"


STATEMENTS = {**statements.queries(), **statements.invariants(), **statements.views()}


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_every_statement_is_also_postgresql(name: str) -> None:
    """Parsed with PostgreSQL's own grammar, after the translation of parameters that its driver would do."""
    sql = STATEMENTS[name].sql
    names = list(dict.fromkeys(re.findall(r":(\w+)", sql)))
    for number, parameter in enumerate(names, start=1):
        sql = re.sub(rf":{parameter}\b", f"${number}", sql)
    pglast.parse_sql(sql)


def test_every_statement_is_used() -> None:
    used: set[str] = set()
    package = Path(statements.__file__).parent
    for path in package.glob("*.py"):
        used.update(re.findall(r'"(\w+)"', path.read_text("utf-8")))
    assert set(statements.queries()) - used == set()


GROWING = frozenset(
    {
        "approvals",
        "deliveries",
        "event_roots",
        "events",
        "grant_uses",
        "item_runs",
        "items",
        "journal",
        "maintenance_tasks",
        "mutations",
        "notices",
        "proposals",
        "reservations",
        "runs",
        "sessions",
    }
)

AT_WORK = {**statements.queries(), **{name: each for name, each in statements.invariants().items() if not each.mark}}


@pytest.mark.parametrize("name", sorted(AT_WORK))
def test_no_statement_reads_a_whole_table_that_grows(database: apsw.Connection, name: str) -> None:
    sql = AT_WORK[name].sql
    params = dict.fromkeys(re.findall(r":(\w+)", sql))
    plan = [str(row[3]) for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", params)]
    viewed = [view.sql for view in statements.views().values() if view.name in sql]
    alias = r"(?:FROM|JOIN|UPDATE|INTO) (\w+) (?!ON|WHERE|SET|VALUES|JOIN|LEFT|ORDER)(\w+)\b"
    by_alias = {alias: table for table, alias in re.findall(alias, "\n".join([*viewed, sql]))}
    partial = {
        name for name, sql in schema_of(database) if sql.startswith("CREATE") and " INDEX " in sql and "WHERE" in sql
    }
    for step in plan:
        scanned = re.match(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?", step)
        # All of an index is all of its table, unless the index has only what is unfinished.
        if scanned and scanned[2] not in partial:
            assert by_alias.get(scanned[1], scanned[1]) not in GROWING, plan


ASKS_FOR_PARKED = [name for name, each in sorted(AT_WORK.items()) if "parked = 1" in each.sql]


@pytest.mark.parametrize("name", ASKS_FOR_PARKED)
def test_what_is_parked_is_found_without_looking_at_what_is_not(database: apsw.Connection, name: str) -> None:
    sql = AT_WORK[name].sql
    params = dict.fromkeys(re.findall(r":(\w+)", sql))
    plan = [str(row[3]) for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", params)]
    assert any("INDEX runs_parked" in step for step in plan), plan
    assert not any("runs_of_workflow" in step or "AUTOMATIC" in step for step in plan), plan


def test_healthy_workflows_cost_nothing_when_those_that_need_attention_are_asked_for(
    database: apsw.Connection,
) -> None:
    """Counted in steps of SQLite's machine: the parts of the view about what is only overdue are not even begun."""
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    def cost(name: str) -> int:
        nonlocal steps
        sql = statements.queries()[name].sql
        params = dict.fromkeys(re.findall(r":(\w+)", sql), 0)
        found = database.execute(sql, params).fetchall()
        assert found == []
        database.set_progress_handler(count, 1)
        steps = 0
        database.execute(sql, params).fetchall()
        database.set_progress_handler(None)
        return steps

    asked = ["workflows_needing_attention", "workflows_to_compare", "failing_handlers"]
    before = {name: cost(name) for name in asked}
    for number in range(100):
        database.execute(
            "INSERT INTO workflows (id, name, timezone, status, created_at, updated_at)"
            " VALUES (?, 'w', 'UTC', 'draft', 0, 0)",
            (f"wf_{number}",),
        )
        database.execute(
            "INSERT INTO topics (workflow_id, name, declared, consumer) VALUES (?, 't', 1, 'c')", (f"wf_{number}",)
        )
    assert {name: cost(name) for name in asked} == before


@pytest.mark.parametrize("name", ["journal_of_workflow", "journal_newest_of_workflow"])
def test_the_journal_of_a_workflow_costs_each_block_that_it_is_in_once(database: apsw.Connection, name: str) -> None:
    """Counted in steps, with five entries in each block: twice as many cost twice as much."""
    database.execute("INSERT INTO names VALUES (1, 'work'), (2, 'wf'), (3, 'wf_other')")
    for block in range(0, 40 * 4_096, 4_096):
        entries = [(block + 1 + number, 2 if number % 20 == 0 else 3) for number in range(100)]
        database.executemany("INSERT INTO journal VALUES (?, 0, 1, ?, NULL, '{}', '')", entries)
        database.execute("INSERT INTO journal_blocks VALUES (2, ?), (3, ?)", (block, block))

    def cost(limit: int) -> int:
        steps = 0

        def count() -> bool:
            nonlocal steps
            steps += 1
            return False

        params = {"workflow_id": "wf", "after": 0, "before": 2**63 - 1, "limit": limit}
        database.set_progress_handler(count, 1)
        found = database.execute(statements.queries()[name].sql, params).fetchall()
        database.set_progress_handler(None)
        assert len(found) == limit
        return steps

    assert cost(100) == pytest.approx(2 * cost(50), rel=0.1)


def test_an_illegal_row_cannot_be_written_whoever_writes_it(database: apsw.Connection) -> None:
    wrong = [
        (
            "reserved_event_names_its_run",
            "INSERT INTO events VALUES (1,'e',1,'m','t','{}','reserved',NULL,1,NULL,NULL,0,0,0)",
        ),
        ("event_title", "INSERT INTO events VALUES (1,'e',1,'m','','{}','pending',NULL,1,NULL,NULL,0,0,0)"),
        (
            "committed_phase_is_committed_status",
            "INSERT INTO runs (id,workflow_id,session_id,version_id,handler,kind,phase,status,on_unknown,created_at,"
            "ended_at) VALUES ('r','w','s','v','h','producer','committed','crashed','pause',0,1)",
        ),
        (
            "outcome_comes_with_mutated",
            "INSERT INTO runs (id,workflow_id,session_id,version_id,handler,kind,phase,status,on_unknown,"
            "mutation_outcome,mutation_result,created_at) VALUES ('r','w','s','v','h','consumer','preparing','active',"
            "'pause','success','1',0)",
        ),
        (
            "error_has_a_class",
            "INSERT INTO workflows VALUES ('w','n','UTC','draft','e',NULL,NULL,0,NULL,NULL,NULL,0,0,'','')",
        ),
        (
            "error_run_has_an_error",
            "INSERT INTO workflows VALUES ('w','n','UTC','draft','',NULL,'r',0,NULL,NULL,NULL,0,0,'','')",
        ),
        (
            "error_about_has_an_error",
            "INSERT INTO workflows VALUES ('w','n','UTC','draft','',NULL,NULL,0,NULL,NULL,NULL,0,0,'mail','')",
        ),
        (
            "failing_handler_says_since_when",
            "INSERT INTO handlers (workflow_id,name,kind,declared,failures,updated_at) VALUES ('w','h','job',1,1,0)",
        ),
        (
            "failing_handler_says_since_when",
            "INSERT INTO handlers (workflow_id,name,kind,declared,failing_since,updated_at)"
            " VALUES ('w','h','job',1,5,0)",
        ),
        (
            "only_what_was_skipped_has_a_reason",
            "INSERT INTO runs (id,workflow_id,session_id,version_id,handler,kind,phase,status,on_unknown,seen,"
            "skip_reason,created_at) VALUES ('r','w','s','v','h','consumer','pending','active','pause',0,'no',0)",
        ),
        (
            "backoff_follows_a_failure",
            "INSERT INTO handlers (workflow_id,name,kind,declared,retry_at,updated_at) VALUES ('w','h','job',1,5,0)",
        ),
        (
            "handler_repairs",
            "INSERT INTO handlers (workflow_id,name,kind,declared,repairs,updated_at) VALUES ('w','h','job',1,-1,0)",
        ),
        (
            "held_proposal_waits_for_a_person",
            "INSERT INTO maintenance_tasks VALUES ('t','w','r','open','{}',0,5,'v','',0,NULL)",
        ),
        ("only_an_open_task_waits", "INSERT INTO maintenance_tasks VALUES ('t','w','r','done','{}',0,5,NULL,'',0,1)"),
        ("only_an_open_task_waits", "INSERT INTO maintenance_tasks VALUES ('t','w','r','done','{}',0,NULL,'v','',0,1)"),
        ("task_attempts", "INSERT INTO maintenance_tasks VALUES ('t','w','r','open','{}',-1,NULL,NULL,'',0,NULL)"),
        (
            "open_proposal_is_not_decided",
            "INSERT INTO proposals VALUES ('p','w',NULL,'n','s','','a','open',0,1,5,'','',NULL)",
        ),
        (
            "accepted_proposal_is_a_version",
            "INSERT INTO proposals VALUES ('p','w',NULL,'n','','','a','accepted',0,1,5,'','',NULL)",
        ),
        (
            "only_what_is_looked_at_keeps_its_source",
            "INSERT INTO proposals VALUES ('p','w',NULL,'n','s','','a','replaced',0,1,5,'','',NULL)",
        ),
        ("proposal_name", "INSERT INTO proposals VALUES ('p','w',NULL,'','s','','a','open',0,1,NULL,'','',NULL)"),
        (
            "proposal_says_by_whom",
            "INSERT INTO proposals VALUES ('p','w',NULL,'n','s','','','open',0,1,NULL,'','',NULL)",
        ),
        (
            "proposal_note",
            "INSERT INTO proposals VALUES ('p','w',NULL,'n','s',printf('%4001s',''),'a','open',0,1,NULL,'','',NULL)",
        ),
        (
            "ended_delivery_says_when",
            "INSERT INTO deliveries VALUES ('n','pager','needs_person','delivered',1,NULL,'',NULL)",
        ),
        (
            "ended_delivery_was_tried",
            "INSERT INTO deliveries VALUES ('n','pager','needs_person','delivered',0,NULL,'',5)",
        ),
        (
            "ended_delivery_is_not_tried_again",
            "INSERT INTO deliveries VALUES ('n','pager','settled','given_up',1,6,'no',5)",
        ),
        (
            "opening_waits_for_nothing",
            "INSERT INTO deliveries VALUES ('n','pager','needs_person','waiting',0,NULL,'',NULL)",
        ),
        (
            "only_what_is_settled_has_an_outcome",
            "INSERT INTO notices VALUES ('n','w','error','',NULL,'','words','',1,NULL,'done')",
        ),
        ("used_at_least_once", "INSERT INTO grant_uses VALUES ('w','mail.send',1,0)"),
        ("used_permission", "INSERT INTO grant_uses VALUES ('w','',1,1)"),
        (
            "only_consumers_see",
            "INSERT INTO handlers (workflow_id,name,kind,declared,seen,updated_at) VALUES ('w','h','job',1,5,0)",
        ),
        (
            "only_consumers_park",
            "INSERT INTO runs (id,workflow_id,session_id,version_id,handler,kind,phase,status,on_unknown,created_at)"
            " VALUES ('r','w','s','v','h','job','pending','active','park',0)",
        ),
        (
            "parked_run_has_stopped",
            "INSERT INTO runs (id,workflow_id,session_id,version_id,handler,kind,phase,status,on_unknown,parked,seen,"
            "created_at) VALUES ('r','w','s','v','h','consumer','preparing','active','park',1,0,0)",
        ),
        (
            "consumer_run_says_what_it_saw",
            "INSERT INTO runs (id,workflow_id,session_id,version_id,handler,kind,phase,status,on_unknown,created_at)"
            " VALUES ('r','w','s','v','h','consumer','preparing','active','pause',0)",
        ),
    ]
    for constraint, statement in wrong:
        with pytest.raises(apsw.ConstraintError, match=constraint):
            database.execute(statement)


def test_a_new_database_is_made_by_the_migrations() -> None:
    made = SqliteDatabase.open(":memory:", now=5)
    assert made.queries().all("all_workflows", {}) == []
    made.close()


@pytest.mark.parametrize("name", ["parked_runs", "workflow_at_work", "peek_events", "claimable_event"])
def test_what_is_parked_is_found_without_a_look_at_all_runs(name: str, database: apsw.Connection) -> None:
    sql = statements.queries()[name].sql
    params = dict.fromkeys(re.findall(r":(\w+)", sql))
    plan = " ".join(str(row[3]) for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", params))
    assert "runs_parked" in plan
    assert "runs_of_workflow" not in plan
