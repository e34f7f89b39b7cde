"""Write the history of a crowd: for each row a consumed event, the run that did it, its reservation, its call, and two
entries of the journal; a session for every ten.

Written in bulk, as the storage would have left it: the deep invariants hold, by test. Rows of one workflow are far
apart in the file, as they are if all workflows work at the same time; message ids are spread over the index.
"""

from pathlib import Path
from typing import Final

import apsw

from keep_storage import wall_clock

PAYLOAD: Final = '{"order":48213,"customer":"Jane Doe","lines":[{"sku":"A-1","count":2},{"sku":"B-7","count":1}]}'

_RUNS_PER_SESSION: Final = 10

_SPREAD: Final = 0x9E3779B1
"""An odd number: multiplied by it, neighbours are far apart, and no two numbers below 2**32 become one."""

_NUMBERS: Final = "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :rows)"
_SESSION: Final = f"printf('ses_%019x', w.number + :workflows * (i / :workflows / {_RUNS_PER_SESSION}))"

_CROWD: Final = """
CREATE TEMP TABLE crowd AS
SELECT row_number() OVER (ORDER BY w.id) - 1 AS number, w.id, w.active_version_id, t.id AS topic_id, t.consumer
FROM workflows w JOIN topics t ON t.workflow_id = w.id
"""

_BULK: Final = (
    f"""{_NUMBERS} INSERT INTO sessions (id, workflow_id, trigger, started_at, ended_at, result, handler_run_count)
    SELECT {_SESSION}, w.id, 'event', :now, :now, 'completed', COUNT(*)
    FROM n JOIN crowd w ON w.number = i % :workflows GROUP BY 1""",
    f"""{_NUMBERS} INSERT INTO runs (
        id, workflow_id, session_id, version_id, handler, kind, phase, status, mutation_outcome, on_unknown, title,
        reserved_count, seen, prepare_result, mutation_result, created_at, ended_at)
    SELECT printf('run_%019x', i), w.id, {_SESSION}, w.active_version_id, w.consumer, 'consumer', 'committed',
        'committed', 'success', 'pause', 'File the order', 1, 0, '{{}}', '{{"rowId":1}}', :now - :rows + i,
        :now - :rows + i
    FROM n JOIN crowd w ON w.number = i % :workflows""",
    f"""{_NUMBERS} INSERT INTO events (
        id, topic_id, message_id, title, payload, status, attempt, caused, created_at, updated_at)
    SELECT printf('evt_%019x', i), w.topic_id, printf('old-%08x', i * {_SPREAD} & 0xffffffff), 'Order ' || i, :payload,
        'consumed', 1, 0, :now - :rows + i, :now - :rows + i
    FROM n JOIN crowd w ON w.number = i % :workflows""",
    f"""{_NUMBERS} INSERT INTO reservations (run, event, attempt, reserved_at)
    SELECT r.number, e.seq, 1, :now
    FROM n JOIN runs r ON r.id = printf('run_%019x', i) JOIN events e ON e.id = printf('evt_%019x', i)""",
    f"""{_NUMBERS} INSERT INTO mutations (
        id, identity_key, idempotency_key, workflow_id, run_id, connector, method, params, title, reconcilable, status,
        version, result, attempts, sent_at, resolved_by, resolved_at, created_at, updated_at)
    SELECT printf('mut_%019x', i), printf('run_%019x', i), printf('mut_%019x', i), w.id, printf('run_%019x', i),
        'shop', 'file', :payload, 'File the order', 0, 'applied', 2, '{{"rowId":1}}', 1, :now, 'connector', :now,
        :now - :rows + i, :now - :rows + i
    FROM n JOIN crowd w ON w.number = i % :workflows""",
    "INSERT INTO names (name) VALUES ('create_run'), ('commit_consumer') ON CONFLICT (name) DO NOTHING",
    *(
        f"""{_NUMBERS} INSERT INTO journal (at, operation, workflow, run, changed)
        SELECT :now - :rows + i, (SELECT number FROM names WHERE name = '{operation}'), o.number, r.number, '{changed}'
        FROM n JOIN crowd w ON w.number = i % :workflows JOIN names o ON o.name = w.id
        JOIN runs r ON r.id = printf('run_%019x', i)"""
        for operation, changed in (("create_run", '{"handler":"fileOrder"}'), ("commit_consumer", '{"consumed":1}'))
    ),
    """INSERT INTO journal_blocks (workflow, block)
    SELECT DISTINCT workflow, seq - seq % 4096 FROM journal WHERE workflow IS NOT NULL
    ON CONFLICT (workflow, block) DO NOTHING""",
    """UPDATE topics SET writes = writes
        + (SELECT COUNT(*) FROM events e WHERE e.topic_id = topics.id AND e.status = 'consumed')""",
)


def write_history(path: Path, rows: int) -> None:
    """Give the workflows of a closed file a history of so many events and runs, in turns."""
    if rows == 0:
        return
    connection = apsw.Connection(str(path))
    try:
        connection.pragma("cache_size", -1_000_000)
        connection.pragma("synchronous", "OFF")
        with connection:
            connection.execute(_CROWD)
            connection.execute("CREATE UNIQUE INDEX temp.by_number ON crowd (number)")
            [(workflows,)] = connection.execute("SELECT COUNT(*) FROM crowd")
            params = {"rows": rows, "workflows": workflows, "payload": PAYLOAD, "now": wall_clock()}
            for statement in _BULK:
                connection.execute(statement, params)
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.close()
