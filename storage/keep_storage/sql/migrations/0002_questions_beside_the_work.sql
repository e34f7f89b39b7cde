-- Approvals park their run; a run can be told to stop; what is skipped says why; failures say since when; a doubt says
-- since when it is looked into; a call in an item keeps its subkey; an error says what it is about.
--
-- SQLite can add a column but not loosen a CHECK: `runs` and `handlers` are made anew and filled from the old ones.

ALTER TABLE workflows ADD COLUMN error_about          TEXT NOT NULL DEFAULT ''
        CONSTRAINT error_about_has_an_error CHECK (error_about = '' OR error <> '');

ALTER TABLE mutations ADD COLUMN subkey             TEXT;
ALTER TABLE mutations ADD COLUMN doubted_at         INTEGER;

CREATE INDEX workflows_archived ON workflows (name, created_at) WHERE status = 'archived';
CREATE INDEX items_by_state ON items (workflow_id, state, item_id, attempt);
CREATE INDEX item_runs_of_item ON item_runs (workflow_id, item_id, attempt);
CREATE INDEX approvals_of_mutation ON approvals (mutation_id);
CREATE INDEX approvals_expired ON approvals (workflow_id, decided_at) WHERE status = 'expired';

CREATE TABLE new_handlers (
    workflow_id   TEXT NOT NULL REFERENCES workflows (id),
    name          TEXT NOT NULL,
    kind          TEXT NOT NULL CONSTRAINT handler_kind CHECK (kind IN ('producer', 'consumer', 'job')),
    declared      INTEGER NOT NULL CONSTRAINT handler_declared CHECK (declared IN (0, 1)),
    schedule      TEXT,
    next_run_at   INTEGER,
    wake_at       INTEGER,
    seen          INTEGER,
    failures      INTEGER NOT NULL DEFAULT 0 CONSTRAINT handler_failures CHECK (failures >= 0),
    failing_since INTEGER,
    retry_at      INTEGER,
    repairs       INTEGER NOT NULL DEFAULT 0 CONSTRAINT handler_repairs CHECK (repairs >= 0),
    updated_at    INTEGER NOT NULL,
    state         TEXT,   -- last: to read past a large one costs a page after the other
    PRIMARY KEY (workflow_id, name),
    CONSTRAINT only_consumers_wake CHECK (wake_at IS NULL OR kind = 'consumer'),
    CONSTRAINT only_consumers_see CHECK (seen IS NULL OR kind = 'consumer'),
    CONSTRAINT backoff_follows_a_failure CHECK (retry_at IS NULL OR failures > 0),
    CONSTRAINT failing_handler_says_since_when CHECK ((failures = 0) = (failing_since IS NULL)),
    CONSTRAINT consumers_have_no_schedule CHECK (kind <> 'consumer' OR (schedule IS NULL AND next_run_at IS NULL))
) STRICT, WITHOUT ROWID;

INSERT INTO new_handlers (
    workflow_id, name, kind, declared, schedule, next_run_at, wake_at, seen, failures, failing_since, retry_at,
    repairs, updated_at, state)
SELECT
    workflow_id, name, kind, declared, schedule, next_run_at, wake_at, seen, failures,
    CASE WHEN failures > 0 THEN updated_at END, retry_at, repairs, updated_at, state
FROM handlers;

DROP TABLE handlers;
ALTER TABLE new_handlers RENAME TO handlers;

CREATE INDEX handlers_due ON handlers (next_run_at) WHERE next_run_at IS NOT NULL AND declared = 1;
CREATE INDEX handlers_waking ON handlers (wake_at) WHERE wake_at IS NOT NULL AND declared = 1;
CREATE INDEX handlers_failing ON handlers (workflow_id) WHERE failing_since IS NOT NULL;

CREATE TABLE new_runs (
    id               TEXT NOT NULL PRIMARY KEY,
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
    parked, title, reserved_count, seen, prepare_result, mutation_result, output_state, error_class, error_message,
    error_place, logs, cost_micros, created_at, ended_at)
SELECT
    id, workflow_id, session_id, version_id, handler, kind, phase, status, mutation_outcome, retry_of, on_unknown,
    parked, title, reserved_count, seen, prepare_result, mutation_result, output_state, error_class, error_message,
    error_place, logs, cost_micros, created_at, ended_at
FROM runs;

DROP TABLE runs;
ALTER TABLE new_runs RENAME TO runs;

CREATE UNIQUE INDEX one_active_run ON runs (workflow_id) WHERE status = 'active';
-- With `parked` as a column: else SQLite would as soon walk through all runs of a workflow.
CREATE INDEX runs_parked ON runs (workflow_id, parked, id) WHERE parked = 1;
CREATE INDEX runs_of_session ON runs (session_id);
CREATE INDEX runs_of_workflow ON runs (workflow_id, id);
CREATE INDEX runs_of_version ON runs (version_id, id);
CREATE INDEX runs_retrying ON runs (retry_of) WHERE retry_of IS NOT NULL;
