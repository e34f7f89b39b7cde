-- The full truth about the tables. The migrations add up to exactly this; a test compares them.
--
-- Times are integer milliseconds. JSON is text. Each enum and each rule across columns is a named CHECK, so that
-- an illegal row cannot be written by any writer.

CREATE TABLE store (
    only_row   INTEGER NOT NULL PRIMARY KEY CONSTRAINT store_has_one_row CHECK (only_row = 1),
    created_at INTEGER NOT NULL,
    fences     INTEGER NOT NULL DEFAULT 0   -- grows after a failed commit, to make sure that it stays failed
) STRICT;

CREATE TABLE workflows (
    id                   TEXT NOT NULL PRIMARY KEY,
    name                 TEXT NOT NULL,
    timezone             TEXT NOT NULL,
    status               TEXT NOT NULL
        CONSTRAINT workflow_status CHECK (status IN ('draft', 'ready', 'active', 'paused', 'archived')),
    error                TEXT NOT NULL DEFAULT '',
    error_class          TEXT
        CONSTRAINT workflow_error_class CHECK (error_class IN
            ('transient', 'logic', 'auth', 'permission', 'precondition', 'indeterminate', 'internal')),
    error_run_id         TEXT REFERENCES runs (id),
    maintenance          INTEGER NOT NULL DEFAULT 0
        CONSTRAINT workflow_maintenance CHECK (maintenance IN (0, 1)),
    maintenance_run_id   TEXT REFERENCES runs (id),
    pending_retry_run_id TEXT REFERENCES runs (id),
    active_version_id    TEXT REFERENCES script_versions (id),
    created_at           INTEGER NOT NULL,
    updated_at           INTEGER NOT NULL,
    error_about          TEXT NOT NULL DEFAULT ''
        CONSTRAINT error_about_has_an_error CHECK (error_about = '' OR error <> ''),
    owner                TEXT NOT NULL DEFAULT '',
    CONSTRAINT error_has_a_class CHECK ((error = '') = (error_class IS NULL)),
    CONSTRAINT error_run_has_an_error CHECK (error_run_id IS NULL OR error <> ''),
    CONSTRAINT maintenance_names_its_run CHECK ((maintenance = 1) = (maintenance_run_id IS NOT NULL)),
    CONSTRAINT only_a_draft_has_no_script CHECK (status IN ('draft', 'archived') OR active_version_id IS NOT NULL)
) STRICT;

CREATE INDEX workflows_by_name ON workflows (name, created_at) WHERE status <> 'archived';
CREATE INDEX workflows_archived ON workflows (name, created_at) WHERE status = 'archived';
CREATE INDEX workflows_in_error ON workflows (id) WHERE error <> '';
CREATE INDEX workflows_in_maintenance ON workflows (id) WHERE maintenance = 1;

CREATE TABLE script_versions (
    id           TEXT NOT NULL PRIMARY KEY,
    workflow_id  TEXT NOT NULL REFERENCES workflows (id),
    major        INTEGER NOT NULL CONSTRAINT version_major CHECK (major >= 0),
    minor        INTEGER NOT NULL CONSTRAINT version_minor CHECK (minor >= 0),
    source       TEXT NOT NULL,
    declaration  TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    activated_at INTEGER,
    author       TEXT NOT NULL DEFAULT '',
    CONSTRAINT version_is_unique UNIQUE (workflow_id, major, minor)
) STRICT;

CREATE TABLE handlers (
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

CREATE INDEX handlers_due ON handlers (next_run_at) WHERE next_run_at IS NOT NULL AND declared = 1;
CREATE INDEX handlers_waking ON handlers (wake_at) WHERE wake_at IS NOT NULL AND declared = 1;
CREATE INDEX handlers_failing ON handlers (workflow_id) WHERE failing_since IS NOT NULL;

CREATE TABLE topics (
    id          INTEGER NOT NULL PRIMARY KEY,
    workflow_id TEXT NOT NULL REFERENCES workflows (id),
    name        TEXT NOT NULL,
    declared    INTEGER NOT NULL CONSTRAINT topic_declared CHECK (declared IN (0, 1)),
    consumer    TEXT,
    ordering    TEXT,   -- where in a payload the ordering key is
    writes      INTEGER NOT NULL DEFAULT 0,
    CONSTRAINT topic_is_unique UNIQUE (workflow_id, name),
    CONSTRAINT undeclared_topic_has_no_consumer CHECK (declared = 1 OR consumer IS NULL)
) STRICT;

CREATE TABLE sessions (
    id                TEXT NOT NULL PRIMARY KEY,
    workflow_id       TEXT NOT NULL REFERENCES workflows (id),
    trigger           TEXT NOT NULL,
    started_at        INTEGER NOT NULL,
    ended_at          INTEGER,
    result            TEXT CONSTRAINT session_result CHECK (result IN ('completed', 'failed')),
    error             TEXT NOT NULL DEFAULT '',
    cost_micros       INTEGER NOT NULL DEFAULT 0,
    handler_run_count INTEGER NOT NULL DEFAULT 0,
    CONSTRAINT ended_session_has_a_result CHECK ((ended_at IS NULL) = (result IS NULL))
) STRICT;

CREATE UNIQUE INDEX one_open_session ON sessions (workflow_id) WHERE ended_at IS NULL;
CREATE INDEX sessions_of_workflow ON sessions (workflow_id, id);

CREATE TABLE runs (
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

CREATE UNIQUE INDEX one_active_run ON runs (workflow_id) WHERE status = 'active';
-- With `parked` as a column: else SQLite would as soon walk through all runs of a workflow.
CREATE INDEX runs_parked ON runs (workflow_id, parked, id) WHERE parked = 1;
CREATE INDEX runs_of_session ON runs (session_id);
CREATE INDEX runs_of_version ON runs (version_id);
CREATE INDEX runs_retrying ON runs (retry_of) WHERE retry_of IS NOT NULL;

CREATE TABLE events (
    seq                INTEGER NOT NULL PRIMARY KEY,
    id                 TEXT NOT NULL CONSTRAINT event_id_is_unique UNIQUE,
    topic_id           INTEGER NOT NULL REFERENCES topics (id),
    message_id         TEXT NOT NULL
        CONSTRAINT event_message_id CHECK (length(message_id) BETWEEN 1 AND 512),
    title              TEXT NOT NULL CONSTRAINT event_title CHECK (length(title) BETWEEN 1 AND 500),
    payload            TEXT NOT NULL,
    status             TEXT NOT NULL
        CONSTRAINT event_status CHECK (status IN ('pending', 'reserved', 'consumed', 'skipped')),
    ordering_key       TEXT,
    attempt            INTEGER NOT NULL DEFAULT 1 CONSTRAINT event_attempt CHECK (attempt >= 1),
    reserved_by_run_id TEXT REFERENCES runs (id),
    created_by_run_id  TEXT REFERENCES runs (id),
    caused             INTEGER NOT NULL CONSTRAINT event_caused CHECK (caused IN (0, 1)),
    created_at         INTEGER NOT NULL,
    updated_at         INTEGER NOT NULL,
    CONSTRAINT event_is_unique_in_its_topic UNIQUE (topic_id, message_id),
    CONSTRAINT reserved_event_names_its_run CHECK ((status = 'reserved') = (reserved_by_run_id IS NOT NULL))
) STRICT;

CREATE INDEX events_pending ON events (topic_id, seq) WHERE status = 'pending';
CREATE INDEX events_reserved ON events (reserved_by_run_id) WHERE status = 'reserved';
CREATE INDEX events_from_outside ON events (topic_id, seq) WHERE caused = 0;

CREATE TABLE event_roots (
    event INTEGER NOT NULL REFERENCES events (seq),
    root  INTEGER NOT NULL REFERENCES events (seq),
    PRIMARY KEY (event, root)
) STRICT, WITHOUT ROWID;

CREATE INDEX events_of_root ON event_roots (root);

CREATE TABLE reservations (
    run         INTEGER NOT NULL REFERENCES runs (number),
    event       INTEGER NOT NULL REFERENCES events (seq),
    attempt     INTEGER NOT NULL,
    reserved_at INTEGER NOT NULL,
    PRIMARY KEY (run, event)
) STRICT, WITHOUT ROWID;

CREATE INDEX reservations_of_event ON reservations (event);

CREATE TABLE items (
    workflow_id TEXT NOT NULL REFERENCES workflows (id),
    item_id     TEXT NOT NULL CONSTRAINT item_id_is_not_empty CHECK (item_id <> ''),
    attempt     INTEGER NOT NULL CONSTRAINT item_attempt CHECK (attempt >= 1),
    title       TEXT NOT NULL,
    state       TEXT NOT NULL
        CONSTRAINT item_state CHECK (state IN ('processing', 'done', 'failed', 'skipped', 'needs_attention')),
    run_id      TEXT NOT NULL REFERENCES runs (id),
    is_open     INTEGER NOT NULL CONSTRAINT item_is_open CHECK (is_open IN (0, 1)),
    error       TEXT NOT NULL DEFAULT '',
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    PRIMARY KEY (workflow_id, item_id, attempt)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX one_open_item ON items (run_id) WHERE is_open = 1;
CREATE INDEX items_by_state ON items (workflow_id, state, item_id, attempt);

CREATE TABLE item_runs (
    run_id      TEXT NOT NULL REFERENCES runs (id),
    workflow_id TEXT NOT NULL,
    item_id     TEXT NOT NULL,
    attempt     INTEGER NOT NULL,
    PRIMARY KEY (run_id, workflow_id, item_id, attempt),
    FOREIGN KEY (workflow_id, item_id, attempt) REFERENCES items (workflow_id, item_id, attempt)
) STRICT, WITHOUT ROWID;

CREATE INDEX item_runs_of_item ON item_runs (workflow_id, item_id, attempt);

CREATE TABLE mutations (
    id                 TEXT NOT NULL PRIMARY KEY,
    identity_key       TEXT NOT NULL CONSTRAINT mutation_identity_is_unique UNIQUE,
    idempotency_key    TEXT NOT NULL,
    workflow_id        TEXT NOT NULL REFERENCES workflows (id),
    run_id             TEXT NOT NULL REFERENCES runs (id),
    item_id            TEXT,
    item_attempt       INTEGER,
    connector          TEXT NOT NULL,
    method             TEXT NOT NULL,
    params             TEXT NOT NULL,
    title              TEXT NOT NULL,
    reconcilable       INTEGER NOT NULL CONSTRAINT mutation_reconcilable CHECK (reconcilable IN (0, 1)),
    status             TEXT NOT NULL
        CONSTRAINT mutation_status CHECK (status IN
            ('pending', 'in_flight', 'applied', 'failed', 'needs_reconcile', 'indeterminate')),
    version            INTEGER NOT NULL DEFAULT 1,
    result             TEXT,
    error              TEXT NOT NULL DEFAULT '',
    attempts           INTEGER NOT NULL,
    reconcile_attempts INTEGER NOT NULL DEFAULT 0,
    next_reconcile_at  INTEGER,
    sent_at            INTEGER,
    resolved_by        TEXT
        CONSTRAINT mutation_resolved_by CHECK (resolved_by IN
            ('connector', 'reconciliation', 'recovery', 'user_assert_applied', 'user_assert_failed',
             'user_skip', 'approval_rejected', 'approval_expired')),
    resolved_at        INTEGER,
    resolved_who       TEXT NOT NULL DEFAULT '',
    resolved_why       TEXT NOT NULL DEFAULT '',
    created_at         INTEGER NOT NULL,
    updated_at         INTEGER NOT NULL,
    subkey             TEXT,      -- NULL: recorded before subkeys were kept
    doubted_at         INTEGER,   -- since when its outcome is looked for
    note               TEXT NOT NULL DEFAULT ''
        CONSTRAINT note_is_bounded CHECK (length(note) <= 2000),
    CONSTRAINT consumer_mutation_is_keyed_by_its_run CHECK ((item_id IS NULL) = (identity_key = run_id)),
    CONSTRAINT item_mutation_names_the_attempt CHECK ((item_id IS NULL) = (item_attempt IS NULL)),
    CONSTRAINT applied_mutation_has_a_result CHECK ((status = 'applied') = (result IS NOT NULL)),
    CONSTRAINT settled_mutation_says_by_whom CHECK
        ((status IN ('applied', 'failed')) = (resolved_by IS NOT NULL)
         AND (resolved_by IS NULL) = (resolved_at IS NULL)),
    CONSTRAINT sent_mutation_counts CHECK (status IN ('pending', 'failed') OR attempts >= 1),
    CONSTRAINT needs_reconcile_says_when CHECK ((status = 'needs_reconcile') = (next_reconcile_at IS NOT NULL)),
    CONSTRAINT only_reconcilable_needs_reconcile CHECK (status <> 'needs_reconcile' OR reconcilable = 1)
) STRICT;

CREATE INDEX mutations_of_workflow ON mutations (workflow_id, id);
-- A call outside items is found by its identity, which is its run.
CREATE INDEX mutations_of_run ON mutations (run_id) WHERE item_id IS NOT NULL;
CREATE INDEX mutations_of_item ON mutations (workflow_id, item_id, item_attempt) WHERE item_id IS NOT NULL;
CREATE INDEX mutations_unsettled ON mutations (workflow_id, run_id) WHERE status NOT IN ('applied', 'failed');
CREATE INDEX mutations_to_reconcile ON mutations (next_reconcile_at) WHERE next_reconcile_at IS NOT NULL;
CREATE INDEX mutations_to_reconcile_of_workflow ON mutations (workflow_id, next_reconcile_at)
    WHERE next_reconcile_at IS NOT NULL;

CREATE TABLE approvals (
    id           TEXT NOT NULL PRIMARY KEY,
    workflow_id  TEXT NOT NULL REFERENCES workflows (id),
    mutation_id  TEXT NOT NULL REFERENCES mutations (id),
    status       TEXT NOT NULL
        CONSTRAINT approval_status CHECK (status IN ('open', 'approved', 'rejected', 'expired')),
    requested_at INTEGER NOT NULL,
    expires_at   INTEGER,
    decided_at   INTEGER,
    decided_by   TEXT NOT NULL DEFAULT '',
    reason       TEXT NOT NULL DEFAULT '',
    CONSTRAINT decided_approval_says_when CHECK ((status = 'open') = (decided_at IS NULL))
) STRICT;

CREATE UNIQUE INDEX one_open_approval ON approvals (mutation_id) WHERE status = 'open';
CREATE INDEX approvals_of_mutation ON approvals (mutation_id);
CREATE INDEX approvals_expired ON approvals (workflow_id, decided_at) WHERE status = 'expired';
CREATE INDEX approvals_open ON approvals (workflow_id, expires_at) WHERE status = 'open';

CREATE TABLE grants (
    workflow_id TEXT NOT NULL REFERENCES workflows (id),
    major       INTEGER NOT NULL,
    permission  TEXT NOT NULL CONSTRAINT grant_permission CHECK (permission <> ''),
    policy      TEXT NOT NULL CONSTRAINT grant_policy CHECK (policy IN ('allow', 'ask')),
    limits      TEXT NOT NULL,
    granted_by  TEXT NOT NULL,
    granted_at  INTEGER NOT NULL,
    PRIMARY KEY (workflow_id, major, permission)
) STRICT, WITHOUT ROWID;

CREATE TABLE grant_uses (
    workflow_id TEXT NOT NULL REFERENCES workflows (id),
    permission  TEXT NOT NULL CONSTRAINT used_permission CHECK (permission <> ''),
    day         INTEGER NOT NULL,
    calls       INTEGER NOT NULL CONSTRAINT used_at_least_once CHECK (calls >= 1),
    PRIMARY KEY (workflow_id, permission, day)
) STRICT, WITHOUT ROWID;

CREATE TABLE maintenance_tasks (
    id              TEXT NOT NULL PRIMARY KEY,
    workflow_id     TEXT NOT NULL REFERENCES workflows (id),
    run_id          TEXT NOT NULL CONSTRAINT one_task_per_failure UNIQUE REFERENCES runs (id),
    status          TEXT NOT NULL CONSTRAINT task_status CHECK (status IN ('open', 'done')),
    evidence        TEXT NOT NULL,
    attempts        INTEGER NOT NULL DEFAULT 0 CONSTRAINT task_attempts CHECK (attempts >= 0),
    next_attempt_at INTEGER,
    held_version_id TEXT REFERENCES script_versions (id),
    problem         TEXT NOT NULL DEFAULT '',
    created_at      INTEGER NOT NULL,
    ended_at        INTEGER,
    CONSTRAINT open_task_has_not_ended CHECK ((status = 'open') = (ended_at IS NULL)),
    CONSTRAINT only_an_open_task_waits CHECK
        (status = 'open' OR (next_attempt_at IS NULL AND held_version_id IS NULL)),
    CONSTRAINT held_proposal_waits_for_a_person CHECK (held_version_id IS NULL OR next_attempt_at IS NULL)
) STRICT;

CREATE UNIQUE INDEX one_open_task ON maintenance_tasks (workflow_id) WHERE status = 'open';
CREATE INDEX tasks_of_workflow ON maintenance_tasks (workflow_id, id);

CREATE TABLE proposals (
    id              TEXT NOT NULL PRIMARY KEY,
    workflow_id     TEXT REFERENCES workflows (id),   -- NULL: a new workflow
    base_version_id TEXT REFERENCES script_versions (id),   -- what was active when it was proposed
    name            TEXT NOT NULL CONSTRAINT proposal_name CHECK (name <> '' AND length(name) <= 200),
    source          TEXT NOT NULL CONSTRAINT proposal_source CHECK (length(source) <= 262144),
    note            TEXT NOT NULL CONSTRAINT proposal_note CHECK (length(note) <= 4000),
    proposed_by     TEXT NOT NULL CONSTRAINT proposal_says_by_whom CHECK (proposed_by <> '' AND length(proposed_by) <= 200),
    status          TEXT NOT NULL
        CONSTRAINT proposal_status CHECK (status IN ('open', 'accepted', 'rejected', 'replaced', 'expired')),
    proposed_at     INTEGER NOT NULL,
    expires_at      INTEGER NOT NULL,
    decided_at      INTEGER,
    decided_by      TEXT NOT NULL DEFAULT '',
    reason          TEXT NOT NULL DEFAULT '',
    version_id      TEXT REFERENCES script_versions (id),   -- as what it was accepted
    CONSTRAINT open_proposal_is_not_decided CHECK ((status = 'open') = (decided_at IS NULL)),
    CONSTRAINT accepted_proposal_is_a_version CHECK ((status = 'accepted') = (version_id IS NOT NULL)),
    CONSTRAINT only_what_is_looked_at_keeps_its_source CHECK ((status IN ('open', 'rejected')) = (source <> ''))
) STRICT;

CREATE UNIQUE INDEX one_open_proposal ON proposals (workflow_id) WHERE status = 'open' AND workflow_id IS NOT NULL;
CREATE UNIQUE INDEX one_open_proposal_of_a_name ON proposals (name) WHERE status = 'open' AND workflow_id IS NULL;
CREATE INDEX proposals_open ON proposals (expires_at) WHERE status = 'open';
CREATE INDEX proposals_rejected ON proposals (name) WHERE status = 'rejected';
CREATE INDEX proposals_by_time ON proposals (proposed_at);

CREATE TABLE notices (
    id          TEXT NOT NULL PRIMARY KEY,
    workflow_id TEXT NOT NULL REFERENCES workflows (id),
    kind        TEXT NOT NULL
        CONSTRAINT notice_kind CHECK (kind IN ('approval', 'repair', 'maintenance', 'unknown', 'error')),
    about       TEXT NOT NULL,
    run_id      TEXT REFERENCES runs (id),
    call        TEXT NOT NULL,
    words       TEXT NOT NULL,
    can_do      TEXT NOT NULL,
    opened_at   INTEGER NOT NULL,
    settled_at  INTEGER,
    outcome     TEXT NOT NULL DEFAULT '',
    CONSTRAINT only_what_is_settled_has_an_outcome CHECK (outcome = '' OR settled_at IS NOT NULL)
) STRICT;

CREATE UNIQUE INDEX one_open_notice ON notices (workflow_id, kind, about) WHERE settled_at IS NULL;
CREATE INDEX notices_open ON notices (id) WHERE settled_at IS NULL;
CREATE INDEX notices_of_workflow ON notices (workflow_id, id);

CREATE TABLE deliveries (
    notice_id       TEXT NOT NULL REFERENCES notices (id),
    sink            TEXT NOT NULL CONSTRAINT delivery_sink CHECK (sink <> ''),
    says            TEXT NOT NULL CONSTRAINT delivery_says CHECK (says IN ('needs_person', 'settled')),
    status          TEXT NOT NULL
        CONSTRAINT delivery_status CHECK (status IN ('waiting', 'delivered', 'given_up')),
    attempts        INTEGER NOT NULL DEFAULT 0 CONSTRAINT delivery_attempts CHECK (attempts >= 0),
    next_attempt_at INTEGER,
    problem         TEXT NOT NULL DEFAULT '',
    ended_at        INTEGER,
    PRIMARY KEY (notice_id, sink, says),
    CONSTRAINT ended_delivery_says_when CHECK ((status = 'waiting') = (ended_at IS NULL)),
    CONSTRAINT ended_delivery_was_tried CHECK (status = 'waiting' OR attempts >= 1),
    CONSTRAINT ended_delivery_is_not_tried_again CHECK (status = 'waiting' OR next_attempt_at IS NULL),
    CONSTRAINT opening_waits_for_nothing CHECK
        (says = 'settled' OR status <> 'waiting' OR next_attempt_at IS NOT NULL)
) STRICT, WITHOUT ROWID;

CREATE INDEX deliveries_waiting ON deliveries (sink, next_attempt_at) WHERE status = 'waiting';

-- Names that the journal has as numbers: those of operations, and the ids of workflows.
CREATE TABLE names (
    number INTEGER NOT NULL PRIMARY KEY,
    name   TEXT NOT NULL CONSTRAINT name_is_unique UNIQUE
) STRICT;

CREATE TABLE journal (
    seq       INTEGER NOT NULL PRIMARY KEY,
    at        INTEGER NOT NULL,
    operation INTEGER NOT NULL REFERENCES names (number),
    workflow  INTEGER REFERENCES names (number),
    run       INTEGER REFERENCES runs (number),
    changed   TEXT NOT NULL,
    why       TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE INDEX journal_of_run ON journal (run) WHERE run IS NOT NULL;

-- Where a workflow is in the journal: in which blocks of 4,096 entries, each by the first number that it can have. An
-- index of all entries would change a page of its own with every step of every workflow.
CREATE TABLE journal_blocks (
    workflow INTEGER NOT NULL REFERENCES names (number),
    block    INTEGER NOT NULL CONSTRAINT block_begins_at_its_first CHECK (block % 4096 = 0),
    PRIMARY KEY (workflow, block)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER journal_is_never_updated BEFORE UPDATE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is never changed'); END;

CREATE TRIGGER journal_is_never_deleted BEFORE DELETE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is never deleted from'); END;
