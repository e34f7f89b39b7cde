-- Less is written for a run: what has a row for every step refers to runs, events, workflows and operations by number,
-- and indexes that cost a page per run are gone or narrower.
--
-- SQLite cannot change a column: these tables are made anew and filled from the old ones.

CREATE TABLE new_runs (
    id               TEXT NOT NULL CONSTRAINT run_id_is_unique UNIQUE,
    workflow_id      TEXT NOT NULL REFERENCES workflows (id),
    session_id       TEXT NOT NULL REFERENCES sessions (id),
    version_id       TEXT NOT NULL REFERENCES script_versions (id),
    handler          TEXT NOT NULL,
    kind             TEXT NOT NULL CONSTRAINT run_kind CHECK (kind IN ('producer', 'consumer', 'job')),
    phase            TEXT NOT NULL
        CONSTRAINT run_phase CHECK (phase IN
            ('pending', 'preparing', 'prepared', 'mutating', 'mutated', 'emitting', 'committed')),
    status           TEXT NOT NULL
        CONSTRAINT run_status CHECK (status IN
            ('active', 'paused:transient', 'paused:approval', 'paused:reconciliation',
             'failed:logic', 'failed:internal', 'crashed', 'committed')),
    mutation_outcome TEXT NOT NULL DEFAULT ''
        CONSTRAINT run_mutation_outcome CHECK (mutation_outcome IN ('', 'success', 'failure', 'skipped')),
    retry_of         TEXT REFERENCES runs (id),
    on_unknown       TEXT NOT NULL CONSTRAINT run_on_unknown CHECK (on_unknown IN ('pause', 'park')),
    parked           INTEGER NOT NULL DEFAULT 0 CONSTRAINT run_parked CHECK (parked IN (0, 1)),
    stop_until       INTEGER,   -- a person wants it to stop, and its handler not to run before this
    title            TEXT NOT NULL DEFAULT '',
    reserved_count   INTEGER NOT NULL DEFAULT 0,
    seen             INTEGER,
    prepare_result   TEXT,
    mutation_result  TEXT,
    skip_reason      TEXT NOT NULL DEFAULT '',
    output_state     TEXT,
    error_class      TEXT
        CONSTRAINT run_error_class CHECK (error_class IN
            ('transient', 'logic', 'auth', 'permission', 'precondition', 'indeterminate', 'internal')),
    error_message    TEXT NOT NULL DEFAULT '',
    error_place      TEXT NOT NULL DEFAULT '',
    logs             TEXT NOT NULL DEFAULT '[]',
    cost_micros      INTEGER NOT NULL DEFAULT 0,
    created_at       INTEGER NOT NULL,
    ended_at         INTEGER,
    number           INTEGER NOT NULL PRIMARY KEY,   -- what the tables with a row for every step say instead of the id
    CONSTRAINT committed_phase_is_committed_status CHECK ((phase = 'committed') = (status = 'committed')),
    CONSTRAINT active_run_has_not_ended CHECK ((status = 'active') = (ended_at IS NULL)),
    CONSTRAINT only_consumers_have_phases CHECK (kind = 'consumer' OR phase IN ('pending', 'committed')),
    CONSTRAINT outcome_comes_with_mutated CHECK
        (mutation_outcome = '' OR phase IN ('mutated', 'emitting', 'committed')),
    CONSTRAINT failure_never_emits CHECK (mutation_outcome <> 'failure' OR phase = 'mutated'),
    CONSTRAINT result_means_success CHECK ((mutation_result IS NULL) = (mutation_outcome <> 'success')),
    CONSTRAINT only_what_was_skipped_has_a_reason CHECK (skip_reason = '' OR mutation_outcome = 'skipped'),
    CONSTRAINT prepared_run_has_a_prepare_result CHECK
        (kind <> 'consumer' OR phase IN ('pending', 'preparing') OR prepare_result IS NOT NULL),
    CONSTRAINT only_consumers_park CHECK (on_unknown = 'pause' OR kind = 'consumer'),
    CONSTRAINT parked_run_has_stopped CHECK (parked = 0 OR status NOT IN ('active', 'committed', 'failed:logic')),
    CONSTRAINT consumer_run_says_what_it_saw CHECK ((kind = 'consumer') = (seen IS NOT NULL))
) STRICT;

INSERT INTO new_runs (
    id, workflow_id, session_id, version_id, handler, kind, phase, status, mutation_outcome, retry_of, on_unknown,
    parked, stop_until, title, reserved_count, seen, prepare_result, mutation_result, skip_reason, output_state,
    error_class, error_message, error_place, logs, cost_micros, created_at, ended_at)
SELECT
    id, workflow_id, session_id, version_id, handler, kind, phase, status, mutation_outcome, retry_of, on_unknown,
    parked, stop_until, title, reserved_count, seen, prepare_result, mutation_result, skip_reason, output_state,
    error_class, error_message, error_place, logs, cost_micros, created_at, ended_at
FROM runs ORDER BY id;

CREATE TABLE new_reservations (
    run         INTEGER NOT NULL REFERENCES runs (number),
    event       INTEGER NOT NULL REFERENCES events (seq),
    attempt     INTEGER NOT NULL,
    reserved_at INTEGER NOT NULL,
    PRIMARY KEY (run, event)
) STRICT, WITHOUT ROWID;

INSERT INTO new_reservations (run, event, attempt, reserved_at)
SELECT r.number, e.seq, h.attempt, h.reserved_at
FROM reservations h JOIN new_runs r ON r.id = h.run_id JOIN events e ON e.id = h.event_id
ORDER BY r.number, e.seq;

DROP TABLE reservations;
ALTER TABLE new_reservations RENAME TO reservations;
CREATE INDEX reservations_of_event ON reservations (event);

CREATE TABLE new_event_roots (
    event INTEGER NOT NULL REFERENCES events (seq),
    root  INTEGER NOT NULL REFERENCES events (seq),
    PRIMARY KEY (event, root)
) STRICT, WITHOUT ROWID;

INSERT INTO new_event_roots (event, root)
SELECT e.seq, o.seq
FROM event_roots c JOIN events e ON e.id = c.event_id JOIN events o ON o.id = c.root_event_id
ORDER BY e.seq, o.seq;

DROP TABLE event_roots;
ALTER TABLE new_event_roots RENAME TO event_roots;
CREATE INDEX events_of_root ON event_roots (root);

-- Names that the journal has as numbers: those of operations, and the ids of workflows.
CREATE TABLE names (
    number INTEGER NOT NULL PRIMARY KEY,
    name   TEXT NOT NULL CONSTRAINT name_is_unique UNIQUE
) STRICT;

INSERT INTO names (name) SELECT DISTINCT operation FROM journal ORDER BY 1;
INSERT INTO names (name) SELECT DISTINCT workflow_id FROM journal WHERE workflow_id IS NOT NULL ORDER BY 1;

CREATE TABLE new_journal (
    seq       INTEGER NOT NULL PRIMARY KEY,
    at        INTEGER NOT NULL,
    operation INTEGER NOT NULL REFERENCES names (number),
    workflow  INTEGER REFERENCES names (number),
    run       INTEGER REFERENCES runs (number),
    changed   TEXT NOT NULL,
    why       TEXT NOT NULL DEFAULT ''
) STRICT;

INSERT INTO new_journal (seq, at, operation, workflow, run, changed, why)
SELECT j.seq, j.at, o.number, w.number, r.number, j.changed, j.why
FROM journal j JOIN names o ON o.name = j.operation LEFT JOIN names w ON w.name = j.workflow_id
LEFT JOIN new_runs r ON r.id = j.run_id
ORDER BY j.seq;

DROP TABLE journal;
ALTER TABLE new_journal RENAME TO journal;

CREATE INDEX journal_of_run ON journal (run) WHERE run IS NOT NULL;

-- Where a workflow is in the journal: in which blocks of 4,096 entries, each by the first number that it can have. An
-- index of all entries would change a page of its own with every step of every workflow.
CREATE TABLE journal_blocks (
    workflow INTEGER NOT NULL REFERENCES names (number),
    block    INTEGER NOT NULL CONSTRAINT block_begins_at_its_first CHECK (block % 4096 = 0),
    PRIMARY KEY (workflow, block)
) STRICT, WITHOUT ROWID;

INSERT INTO journal_blocks (workflow, block)
SELECT DISTINCT workflow, seq - seq % 4096 FROM journal WHERE workflow IS NOT NULL ORDER BY 1, 2;

CREATE TRIGGER journal_is_never_updated BEFORE UPDATE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is never changed'); END;

CREATE TRIGGER journal_is_never_deleted BEFORE DELETE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is never deleted from'); END;

DROP TABLE runs;
ALTER TABLE new_runs RENAME TO runs;

CREATE UNIQUE INDEX one_active_run ON runs (workflow_id) WHERE status = 'active';
-- With `parked` as a column: else SQLite would as soon walk through all runs of a workflow.
CREATE INDEX runs_parked ON runs (workflow_id, parked, id) WHERE parked = 1;
CREATE INDEX runs_of_session ON runs (session_id);
CREATE INDEX runs_of_version ON runs (version_id);
CREATE INDEX runs_retrying ON runs (retry_of) WHERE retry_of IS NOT NULL;

DROP INDEX events_created_by;

DROP INDEX mutations_of_run;
DROP INDEX mutations_unsettled;
CREATE INDEX mutations_of_run ON mutations (run_id) WHERE item_id IS NOT NULL;
CREATE INDEX mutations_unsettled ON mutations (workflow_id, run_id) WHERE status NOT IN ('applied', 'failed');
