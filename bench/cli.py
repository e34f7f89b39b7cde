"""The time of `keep status` and similar commands, including the start of the process, with little and much history.

The large file has the stated number of events, runs, reservations, mutations and items each, and twice as many journal
entries. Its rows are written in bulk, and fulfil all invariants.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

from bench import machine
from bench.history import PAYLOAD
from bench.report import Column, Report
from bench.storage.cycle import HANDLER, TOPIC, Caller, cycle, deploy
from keep_storage import Ids, Operation, Store, wall_clock
from keep_storage import operations as ops
from keep_storage.model import FailureClass, MutationStatus, RunStatus

MEASURES: Final = (
    "the wall time of a whole process, from its start to its exit, with its output going to a pipe",
    "a small file and a large one, in turns; `--version` beside them, which opens no file",
)
LEAVES_OUT: Final = (
    "the first start after an installation, which compiles the modules, and a disk whose pages are not in memory",
    "commands that talk to a runtime: they wait for it",
)
GOAL_MS: Final = 300
COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "--version": ("--version",),
    "status": ("status",),
    "inputs": ("inputs", "busy"),
    "outputs": ("outputs", "busy"),
    "runs": ("runs", "busy"),
    "items": ("items", "busy"),
    "log": ("log",),
    "attention": ("attention",),
}
IN_GOAL: Final = ("status", "inputs")

COLUMNS: Final = (
    Column("command", "command"),
    Column("small_rows", "rows"),
    Column("small_p50_ms", "p50 ms", 1),
    Column("large_rows", "rows"),
    Column("large_p50_ms", "p50 ms", 1),
    Column("large_max_ms", "max ms", 1),
)


class Size(NamedTuple):
    """The numbers of events and mutations in the files, and of starts of each command."""

    small: int
    large: int
    starts: int


FULL: Final = Size(1_000, 1_000_000, starts=15)
QUICK: Final = Size(1_000, 100_000, starts=5)


def run(report: Report, *, quick: bool) -> None:
    measure(report, QUICK if quick else FULL)


def measure(report: Report, size: Size) -> None:
    report.about(MEASURES, LEAVES_OUT, {"machine": machine.describe(), "apsw": apsw.apsw_version()})
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small.db", Path(folder) / "large.db"
        for path, rows in ((small, size.small), (large, size.large)):
            report.progress(f"a file with {rows:,} events and mutations")
            fill(path, rows)
        report.progress(f"{size.starts} starts of each command on each file")
        title = (
            f"A command from start to exit ({size.starts} starts each; large file {large.stat().st_size / 1e6:,.0f} MB)"
        )
        table = report.table("cli", title, COLUMNS)
        for name, command in COMMANDS.items():
            timed = [(_start(command, small), _start(command, large)) for _ in range(size.starts + 1)][1:]
            p50 = statistics.median(each for _, each in timed)
            table.row(
                command=name,
                small_rows=size.small,
                small_p50_ms=statistics.median(each for each, _ in timed),
                large_rows=size.large,
                large_p50_ms=p50,
                large_max_ms=max(each for _, each in timed),
            )
            if name in IN_GOAL:
                words = f"keep {name} within {GOAL_MS} ms with {size.large:,} events and mutations"
                report.goal("cli", words, p50, p50 <= GOAL_MS, " ms")


def _start(command: tuple[str, ...], db: Path) -> float:
    """Run a command and return its time in milliseconds."""
    words = [sys.executable, "-m", "keep_actors", *command]
    if command != ("--version",):
        words += ["--db", str(db)]
    start = time.perf_counter()
    done = subprocess.run(words, capture_output=True, check=False)
    taken = time.perf_counter() - start
    assert done.returncode in (0, 4), done.stderr.decode()
    return taken * 1e3


def fill(path: Path, rows: int) -> None:
    """Write a file: a workflow (`busy`) with `rows` events that became calls, `rows` items and some pending events; a
    workflow with a call of unknown outcome; and some idle workflows."""
    ids = Ids(wall_clock)
    busy, doubtful, *idle = [Caller(ids.new("wf"), ids.new("ses")) for _ in range(10)]
    with Store.open(path) as store:
        for number, caller in enumerate((busy, doubtful, *idle)):
            named = [_renamed(each, number) for each in deploy(caller, ids)]
            _apply(store, named[:-1] if caller is not doubtful else named)
        _apply(store, _left_in_doubt(doubtful, ids))
        _apply(store, [ops.FinishSession(each.session_id) for each in idle])
    connection = apsw.Connection(str(path))
    try:
        connection.pragma("cache_size", -1_000_000)
        connection.pragma("synchronous", "OFF")
        params = {
            "rows": rows,
            "waiting": rows // 10,
            "workflow": busy.workflow_id,
            "session": busy.session_id,
            "handler": HANDLER,
            "payload": PAYLOAD,
            "now": wall_clock(),
        }
        with connection:
            for statement in _BULK:
                connection.execute(statement, params)
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.close()


def _renamed(operation: Operation[Any], number: int) -> Operation[Any]:
    if isinstance(operation, ops.CreateWorkflow):
        return ops.CreateWorkflow(operation.id, "busy" if number == 0 else f"workflow {number}")
    return operation


def _left_in_doubt(caller: Caller, ids: Ids) -> list[Operation[Any]]:
    create, prepared, sent, *_ = cycle(caller, 0, ids)
    assert isinstance(create, ops.CreateRun)
    assert isinstance(sent, ops.Together)
    _, recorded = sent.operations
    assert isinstance(recorded, ops.CreateMutation)
    error = ops.RunError(FailureClass.INDETERMINATE, "the answer was lost")
    return [
        create,
        prepared,
        sent,
        ops.UpdateMutationStatus(recorded.id, MutationStatus.INDETERMINATE, "the answer was lost"),
        ops.UpdateHandlerRunStatus(create.id, RunStatus.PAUSED_RECONCILIATION, error),
    ]


def _apply(store: Store, operations: list[Operation[Any]]) -> None:
    for outcome in store.commit(operations):
        outcome.unwrap()


_NUMBERS: Final = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)"
_TOPIC: Final = f"(SELECT id FROM topics WHERE workflow_id = :workflow AND name = '{TOPIC}')"
_JOB_RUN: Final = "run_0ffffffffffffffffff"
_VERSION: Final = "(SELECT active_version_id FROM workflows WHERE id = :workflow)"

_BULK: Final = (
    f"""{_NUMBERS} INSERT INTO runs (
        id, workflow_id, session_id, version_id, handler, kind, phase, status, mutation_outcome, on_unknown, title,
        reserved_count, seen, prepare_result, mutation_result, created_at, ended_at)
    SELECT printf('run_%019x', i), :workflow, :session, {_VERSION}, :handler, 'consumer', 'committed', 'committed',
        'success', 'pause', 'File the order', 1, 0, '{{}}', '{{"rowId":1}}', :now - :rows + i, :now - :rows + i
    FROM n""",
    f"""{_NUMBERS} INSERT INTO events (
        id, topic_id, message_id, title, payload, status, attempt, caused, created_at, updated_at)
    SELECT printf('evt_%019x', i), {_TOPIC}, 'order-' || i, 'Order ' || i, :payload, 'consumed', 1, 0,
        :now - :rows + i, :now - :rows + i FROM n""",
    f"""{_NUMBERS} INSERT INTO reservations (run, event, attempt, reserved_at)
    SELECT r.number, e.seq, 1, :now
    FROM n JOIN runs r ON r.id = printf('run_%019x', i) JOIN events e ON e.id = printf('evt_%019x', i)""",
    f"""{_NUMBERS} INSERT INTO mutations (
        id, identity_key, idempotency_key, workflow_id, run_id, connector, method, params, title, reconcilable, status,
        version, result, attempts, sent_at, resolved_by, resolved_at, created_at, updated_at)
    SELECT printf('mut_%019x', i), printf('run_%019x', i), printf('mut_%019x', i), :workflow, printf('run_%019x', i),
        'sheets', 'append', :payload, 'File the order', 1, 'applied', 2, '{{"rowId":1}}', 1, :now, 'connector', :now,
        :now - :rows + i, :now - :rows + i FROM n""",
    f"""INSERT INTO runs (
        id, workflow_id, session_id, version_id, handler, kind, phase, status, on_unknown, created_at, ended_at)
    SELECT '{_JOB_RUN}', :workflow, :session, {_VERSION}, 'digest', 'job', 'committed', 'committed', 'pause', :now,
        :now""",
    f"""{_NUMBERS} INSERT INTO items (
        workflow_id, item_id, attempt, title, state, run_id, is_open, created_at, updated_at)
    SELECT :workflow, 'item-' || i, 1, 'Item ' || i, CASE WHEN i % 10 = 0 THEN 'skipped' ELSE 'done' END, '{_JOB_RUN}',
        0, :now, :now FROM n""",
    f"""{_NUMBERS} INSERT INTO item_runs (run_id, workflow_id, item_id, attempt)
    SELECT '{_JOB_RUN}', :workflow, 'item-' || i, 1 FROM n""",
    "INSERT INTO names (name) VALUES ('create_run'), ('commit_consumer') ON CONFLICT (name) DO NOTHING",
    *(
        f"""{_NUMBERS} INSERT INTO journal (at, operation, workflow, run, changed)
        SELECT :now - :rows + i, o.number, w.number, r.number, '{changed}'
        FROM n JOIN names o ON o.name = '{operation}' JOIN names w ON w.name = :workflow
        JOIN runs r ON r.id = printf('run_%019x', i)"""
        for operation, changed in (("create_run", '{"handler":"file_order"}'), ("commit_consumer", '{"consumed":1}'))
    ),
    """INSERT INTO journal_blocks (workflow, block)
    SELECT DISTINCT workflow, seq - seq % 4096 FROM journal WHERE workflow IS NOT NULL
    ON CONFLICT (workflow, block) DO NOTHING""",
    f"""WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :waiting) INSERT INTO events (
        id, topic_id, message_id, title, payload, status, attempt, caused, created_at, updated_at)
    SELECT printf('evt_f%018x', i), {_TOPIC}, 'waiting-' || i, 'Order ' || i, :payload, 'pending', 1, 0, :now, :now
    FROM n WHERE :waiting > 0""",
    "UPDATE topics SET writes = writes + :rows + :waiting WHERE workflow_id = :workflow",
    "UPDATE sessions SET handler_run_count = :rows + 1, ended_at = :now, result = 'completed' WHERE id = :session",
)
"""The rows that as many cycles would have left. Each statement is one of `queries.sql`, for many rows."""
