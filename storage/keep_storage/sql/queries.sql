-- Every statement there is, by name. SQL that SQLite and PostgreSQL both accept: ON CONFLICT, RETURNING, named
-- parameters; no function that only one of them has. A test parses each one with PostgreSQL's own grammar.

-- name: insert_workflow
-- A new workflow, without a script.
INSERT INTO workflows (id, name, timezone, status, maintenance, created_at, updated_at, owner)
VALUES (:id, :name, :timezone, :status, :maintenance, :created_at, :updated_at, :owner);

-- name: workflow_by_id
-- One workflow.
SELECT * FROM workflows WHERE id = :id;

-- name: all_workflows
-- Every workflow, oldest first.
SELECT * FROM workflows ORDER BY id;

-- name: workflow_by_name
-- The newest workflow of this name that is still wanted.
SELECT * FROM workflows WHERE name = :name AND status <> 'archived' ORDER BY created_at DESC, id DESC LIMIT 1;

-- name: archived_by_name
-- The newest archived workflow of this name.
SELECT * FROM workflows WHERE name = :name AND status = 'archived' ORDER BY created_at DESC, id DESC LIMIT 1;

-- name: save_workflow
-- All columns of a workflow that can change.
UPDATE workflows SET
    timezone = :timezone, status = :status, error = :error, error_class = :error_class, error_run_id = :error_run_id,
    maintenance = :maintenance, maintenance_run_id = :maintenance_run_id, pending_retry_run_id = :pending_retry_run_id,
    active_version_id = :active_version_id, updated_at = :updated_at, error_about = :error_about, owner = :owner
WHERE id = :id;

-- name: insert_version
-- A script, not yet active.
INSERT INTO script_versions (id, workflow_id, major, minor, source, declaration, created_at, activated_at, author)
VALUES (:id, :workflow_id, :major, :minor, :source, :declaration, :created_at, :activated_at, :author);

-- name: version_by_id
-- One script version.
SELECT * FROM script_versions WHERE id = :id;

-- name: version_by_number
-- One script version, by its number.
SELECT * FROM script_versions WHERE workflow_id = :workflow_id AND major = :major AND minor = :minor;

-- name: version_of_major
-- Some script version of a major number: all of one are by the same author.
SELECT * FROM script_versions WHERE workflow_id = :workflow_id AND major = :major LIMIT 1;

-- name: versions_of_workflow
-- Its script versions, the highest number first.
SELECT * FROM script_versions WHERE workflow_id = :workflow_id ORDER BY major DESC, minor DESC LIMIT :limit;

-- name: mark_version_activated
-- Remember when a version was last made the active one.
UPDATE script_versions SET activated_at = :activated_at WHERE id = :id;

-- name: retire_topics
-- Before a new script declares its topics: those it does not name again stay, without a reader.
UPDATE topics SET declared = 0, consumer = NULL, ordering = NULL WHERE workflow_id = :workflow_id;

-- name: declare_topic
-- A topic of the active script and the one consumer that subscribes to it.
INSERT INTO topics (workflow_id, name, declared, consumer, ordering)
VALUES (:workflow_id, :name, 1, :consumer, :ordering)
ON CONFLICT (workflow_id, name) DO UPDATE SET
    declared = 1, consumer = excluded.consumer, ordering = excluded.ordering;

-- name: topics_of_workflow
-- Its topics, declared or retired.
SELECT * FROM topics WHERE workflow_id = :workflow_id ORDER BY id;

-- name: retire_handlers
-- Before a new script declares its handlers: those it does not name again keep their state and never run. What the
-- old script saw says nothing about the new one, and how often it failed neither, unless a machine has repaired it.
-- One that was retired already has no next run: when it comes back it is as good as new.
UPDATE handlers SET declared = 0, seen = NULL, retry_at = NULL,
    next_run_at = CASE WHEN declared = 1 THEN next_run_at END,
    failures = CASE WHEN :is_repair = 1 THEN failures ELSE 0 END,
    failing_since = CASE WHEN :is_repair = 1 THEN failing_since END
WHERE workflow_id = :workflow_id;

-- name: declare_handler
-- A handler of the active script. Its state stays; its next run stays where the schedule did, unless it is planned again.
INSERT INTO handlers (workflow_id, name, kind, declared, schedule, next_run_at, updated_at)
VALUES (:workflow_id, :name, :kind, 1, :schedule, :next_run_at, :updated_at)
ON CONFLICT (workflow_id, name) DO UPDATE SET
    kind = excluded.kind, declared = 1, schedule = excluded.schedule, updated_at = excluded.updated_at,
    next_run_at = CASE
        WHEN :plan_anew = 0 AND handlers.schedule = excluded.schedule AND handlers.kind = excluded.kind
            AND handlers.next_run_at IS NOT NULL
        THEN handlers.next_run_at ELSE excluded.next_run_at END,
    wake_at = CASE WHEN excluded.kind = 'consumer' THEN handlers.wake_at ELSE NULL END;

-- name: handlers_of_workflow
-- Its handlers, declared or retired.
SELECT * FROM handlers WHERE workflow_id = :workflow_id ORDER BY name;

-- name: handler_by_name
-- One handler.
SELECT * FROM handlers WHERE workflow_id = :workflow_id AND name = :name;

-- name: set_wake_at
-- When `prepare` asked to be woken; NULL when it did not.
UPDATE handlers SET wake_at = :wake_at, updated_at = :updated_at
WHERE workflow_id = :workflow_id AND name = :name AND wake_at IS DISTINCT FROM :wake_at;

-- name: commit_handler
-- A run of the handler committed: its state, unless it returned none; when it is due again; what it has seen.
UPDATE handlers SET
    state = COALESCE(:state, state), next_run_at = :next_run_at, seen = :seen, failures = 0, failing_since = NULL,
    retry_at = NULL, repairs = 0, updated_at = :updated_at
WHERE workflow_id = :workflow_id AND name = :name
    AND (:state IS NOT NULL OR next_run_at IS DISTINCT FROM :next_run_at OR seen IS DISTINCT FROM :seen
        OR failures <> 0 OR repairs <> 0);

-- name: count_failure
-- A run of the handler stopped: once more in a row, and what it has seen it must look at again.
UPDATE handlers SET seen = NULL, failures = failures + 1,
    failing_since = COALESCE(:failing_since, failing_since, :updated_at), retry_at = :retry_at, updated_at = :updated_at
WHERE workflow_id = :workflow_id AND name = :name;

-- name: put_off
-- A person has stopped a run of the handler: it runs by the clock then, and a consumer also when something new comes.
UPDATE handlers SET updated_at = :updated_at,
    next_run_at = CASE WHEN kind <> 'consumer' AND next_run_at IS NOT NULL THEN :until END,
    wake_at = CASE WHEN kind = 'consumer' THEN :until END,
    seen = CASE WHEN kind = 'consumer' THEN (SELECT COALESCE(SUM(t.writes), 0) FROM topics t
        WHERE t.workflow_id = handlers.workflow_id AND t.consumer = handlers.name) END
WHERE workflow_id = :workflow_id AND name = :name;

-- name: look_again
-- Make everything news to a consumer.
UPDATE handlers SET seen = NULL, updated_at = :updated_at
WHERE workflow_id = :workflow_id AND name = :name AND seen IS NOT NULL;

-- name: look_again_everywhere
-- The same for all consumers of a workflow.
UPDATE handlers SET seen = NULL, updated_at = :updated_at WHERE workflow_id = :workflow_id AND seen IS NOT NULL;

-- name: forgive_failures
-- The cause of failing handlers has been put right.
UPDATE handlers SET failures = 0, failing_since = NULL, retry_at = NULL, updated_at = :updated_at
WHERE workflow_id = :workflow_id AND failures <> 0;

-- name: forgive_handler
-- The handler has come as far as to a question: what made it fail before is over.
UPDATE handlers SET failures = 0, failing_since = NULL, retry_at = NULL, updated_at = :updated_at
WHERE workflow_id = :workflow_id AND name = :name AND failures <> 0;

-- name: forgive_idle_consumer
-- A person has skipped an event of the topic. If that was all that its consumer had to do, there is nothing to fail on.
UPDATE handlers SET failures = 0, failing_since = NULL, retry_at = NULL, updated_at = :updated_at
WHERE workflow_id = :workflow_id AND failures <> 0 AND wake_at IS NULL
    AND name = (SELECT t.consumer FROM topics t WHERE t.workflow_id = :workflow_id AND t.name = :topic)
    AND NOT EXISTS (SELECT 1 FROM topics t JOIN events e ON e.topic_id = t.id AND e.status = 'pending'
        WHERE t.workflow_id = :workflow_id AND t.consumer = handlers.name)
    AND NOT EXISTS (SELECT 1 FROM workflows w WHERE w.id = :workflow_id AND w.pending_retry_run_id IS NOT NULL);

-- name: stood_still
-- The workflow stood still for so long: that was no time of failing for its handlers.
UPDATE handlers SET updated_at = :updated_at,
    failing_since = CASE WHEN failing_since + :ms < :updated_at THEN failing_since + :ms ELSE :updated_at END
WHERE workflow_id = :workflow_id AND failures <> 0;

-- name: fail_since_now
-- The workflow was paused: the time of failing begins again.
UPDATE handlers SET failing_since = :updated_at, updated_at = :updated_at
WHERE workflow_id = :workflow_id AND failures <> 0;

-- name: count_repair
-- One more repair of the handler was tried.
UPDATE handlers SET repairs = repairs + 1, updated_at = :updated_at WHERE workflow_id = :workflow_id AND name = :name;

-- name: forgive_repairs
-- A person has repaired the script: every handler may be repaired afresh.
UPDATE handlers SET repairs = 0, updated_at = :updated_at WHERE workflow_id = :workflow_id AND repairs <> 0;

-- name: make_handlers_due
-- A person does not want to wait for the clock: producers and jobs, which go by one.
UPDATE handlers SET next_run_at = :now, retry_at = NULL, updated_at = :now
WHERE workflow_id = :workflow_id AND kind IN ('producer', 'job') AND declared = 1;

-- name: save_grant
-- A permission of a major version; granting it again replaces it.
INSERT INTO grants (workflow_id, major, permission, policy, limits, granted_by, granted_at)
VALUES (:workflow_id, :major, :permission, :policy, :limits, :granted_by, :granted_at)
ON CONFLICT (workflow_id, major, permission) DO UPDATE SET
    policy = excluded.policy, limits = excluded.limits,
    granted_by = excluded.granted_by, granted_at = excluded.granted_at;

-- name: delete_grant
-- A permission is taken back.
DELETE FROM grants WHERE workflow_id = :workflow_id AND major = :major AND permission = :permission RETURNING *;

-- name: grant_of_run
-- The permission of the major version that a run belongs to.
SELECT g.* FROM runs r JOIN script_versions v ON v.id = r.version_id
JOIN grants g ON g.workflow_id = r.workflow_id AND g.major = v.major AND g.permission = :permission
WHERE r.id = :run_id;

-- name: calls_on_day
-- How often a permission was used on a day.
SELECT calls FROM grant_uses WHERE workflow_id = :workflow_id AND permission = :permission AND day = :day;

-- name: count_call
-- Once more.
INSERT INTO grant_uses (workflow_id, permission, day, calls) VALUES (:workflow_id, :permission, :day, 1)
ON CONFLICT (workflow_id, permission, day) DO UPDATE SET calls = grant_uses.calls + 1;

-- name: grants_of_version
-- The envelope of a major version.
SELECT * FROM grants WHERE workflow_id = :workflow_id AND major = :major ORDER BY permission;

-- name: envelope_of_version
-- The same by a version of it, without its source.
SELECT g.* FROM script_versions v JOIN grants g ON g.workflow_id = v.workflow_id AND g.major = v.major
WHERE v.id = :version_id ORDER BY g.permission;

-- name: insert_session
-- An open session.
INSERT INTO sessions (id, workflow_id, trigger, started_at) VALUES (:id, :workflow_id, :trigger, :started_at);

-- name: session_by_id
-- One session.
SELECT * FROM sessions WHERE id = :id;

-- name: open_session
-- The session of a workflow that has not ended.
SELECT * FROM sessions WHERE workflow_id = :workflow_id AND ended_at IS NULL;

-- name: sessions_of_workflow
-- Its sessions, newest first, before a cursor.
SELECT * FROM sessions WHERE workflow_id = :workflow_id AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: count_committed_run
-- One more run of the session has committed.
UPDATE sessions SET handler_run_count = handler_run_count + 1 WHERE id = :id;

-- name: end_session
-- The session is over; its first end stands, and its cost is the sum of its runs'.
UPDATE sessions SET
    ended_at = COALESCE(ended_at, :ended_at), result = COALESCE(result, :result),
    error = CASE WHEN ended_at IS NULL THEN :error ELSE error END,
    cost_micros = (SELECT COALESCE(SUM(cost_micros), 0) FROM runs WHERE session_id = :id)
WHERE id = :id;

-- name: sum_cost
-- The cost of an ended session is that of its runs, also of what they cost later.
UPDATE sessions SET cost_micros = (SELECT COALESCE(SUM(cost_micros), 0) FROM runs WHERE session_id = :id)
WHERE id = :id AND ended_at IS NOT NULL;

-- name: uncommitted_run_of_session
-- A run that keeps the session from being completed.
SELECT id FROM runs WHERE session_id = :session_id AND status <> 'committed' LIMIT 1;

-- name: pending_event_of_workflow
-- A topic with an event that waits.
SELECT id FROM topics
WHERE workflow_id = :workflow_id AND EXISTS (SELECT 1 FROM events WHERE topic_id = topics.id AND status = 'pending')
LIMIT 1;

-- name: completed_open_sessions
-- Open sessions whose runs have all committed. In the order of the index of open ones: by id, all would be read.
SELECT * FROM sessions WHERE ended_at IS NULL
    AND (workflow_id = :workflow_id OR :everywhere = 1)
    AND NOT EXISTS (SELECT 1 FROM runs WHERE session_id = sessions.id AND status <> 'committed')
ORDER BY workflow_id, id;

-- name: workflow_at_work
-- A workflow, and what it is busy with: the active run, the open session, what is parked, and the run whose `next` is
-- to run: the pending retry, or the first that is parked with an outcome.
SELECT w.*,
    (SELECT id FROM runs WHERE workflow_id = w.id AND status = 'active'),
    (SELECT id FROM sessions WHERE workflow_id = w.id AND ended_at IS NULL),
    (SELECT COUNT(*) FROM runs WHERE workflow_id = w.id AND parked = 1 AND kind = 'consumer'),
    COALESCE(w.pending_retry_run_id,
        (SELECT MIN(id) FROM runs WHERE workflow_id = w.id AND parked = 1 AND mutation_outcome <> '')),
    (SELECT MIN(expires_at) FROM approvals WHERE workflow_id = w.id AND status = 'open'),
    (SELECT id FROM approvals WHERE workflow_id = w.id AND status = 'open' AND expires_at IS NOT NULL
        ORDER BY expires_at, id LIMIT 1),
    (SELECT MIN(next_reconcile_at) FROM mutations WHERE workflow_id = w.id AND next_reconcile_at IS NOT NULL),
    (SELECT id FROM mutations WHERE workflow_id = w.id AND next_reconcile_at IS NOT NULL
        ORDER BY next_reconcile_at, id LIMIT 1)
FROM workflows w WHERE w.id = :id;

-- name: task_at_work
-- The open repair, and how often its handler was repaired.
SELECT t.id, t.run_id, r.handler, t.attempts, h.repairs, t.next_attempt_at, t.held_version_id
FROM maintenance_tasks t JOIN runs r ON r.id = t.run_id
JOIN handlers h ON h.workflow_id = r.workflow_id AND h.name = r.handler
WHERE t.workflow_id = :workflow_id AND t.status = 'open';

-- name: handlers_at_work
-- The declared handlers of a workflow: when each may run, and for a consumer its oldest pending event and whether its
-- topics were written to since it looked. The oldest is asked of each topic by itself: of several at once it would be
-- looked for among all.
SELECT h.name, h.kind, h.next_run_at, h.wake_at, h.retry_at, h.failures,
    h.kind = 'job' AND EXISTS (SELECT 1 FROM runs r
        WHERE r.workflow_id = h.workflow_id AND r.parked = 1 AND r.handler = h.name),
    COALESCE(SUM(t.writes), 0),
    MIN((SELECT MIN(e.seq) FROM events e WHERE e.topic_id = t.id AND e.status = 'pending')),
    h.seen IS DISTINCT FROM SUM(t.writes)
FROM handlers h LEFT JOIN topics t ON t.workflow_id = h.workflow_id AND t.consumer = h.name
WHERE h.workflow_id = :workflow_id AND h.declared = 1
GROUP BY h.workflow_id, h.name ORDER BY h.name;

-- name: workflows_that_may_run
-- Those that nothing stops, each with the time of its active run, open session or retry, which come first.
SELECT w.id, CASE
    WHEN EXISTS (SELECT 1 FROM runs r WHERE r.workflow_id = w.id AND r.status = 'active') THEN 0
    WHEN EXISTS (SELECT 1 FROM sessions s WHERE s.workflow_id = w.id AND s.ended_at IS NULL) THEN 0
    WHEN w.pending_retry_run_id IS NOT NULL THEN COALESCE((SELECT h.retry_at FROM runs r
        JOIN handlers h ON h.workflow_id = r.workflow_id AND h.name = r.handler WHERE r.id = w.pending_retry_run_id), 0)
    WHEN EXISTS (SELECT 1 FROM runs r WHERE r.workflow_id = w.id AND r.parked = 1 AND r.mutation_outcome <> '') THEN 0
    END
FROM workflows w WHERE w.status = 'active' AND w.error = '' AND w.maintenance = 0;

-- name: times_of_handlers
-- When something is to run, by workflow: consumers with news, and the first of those that run by the clock. A topic
-- without a pending event is passed over before anything else is looked up.
SELECT t.workflow_id, COALESCE(h.retry_at, 0)
FROM topics t JOIN handlers h ON h.workflow_id = t.workflow_id AND h.name = t.consumer
WHERE (SELECT MIN(e.seq) FROM events e WHERE e.topic_id = t.id AND e.status = 'pending') IS NOT NULL
    AND (h.seen IS NULL OR h.seen <> (
        SELECT SUM(o.writes) FROM topics o WHERE o.workflow_id = t.workflow_id AND o.consumer = t.consumer))
UNION ALL
SELECT workflow_id, MIN(CASE WHEN retry_at > COALESCE(next_run_at, wake_at) THEN retry_at
    ELSE COALESCE(next_run_at, wake_at) END)
FROM handlers WHERE declared = 1 AND COALESCE(next_run_at, wake_at) IS NOT NULL GROUP BY workflow_id;

-- name: times_of_questions
-- When something is to be done about a workflow that need not run: a question expires, a doubt is looked into (also if
-- it is archived), a repair is tried.
SELECT workflow_id, expires_at FROM approvals WHERE status = 'open' AND expires_at IS NOT NULL
UNION ALL
SELECT workflow_id, next_reconcile_at FROM mutations WHERE next_reconcile_at IS NOT NULL
UNION ALL
SELECT t.workflow_id, COALESCE(t.next_attempt_at, 0) FROM maintenance_tasks t JOIN workflows w ON w.id = t.workflow_id
WHERE t.status = 'open' AND t.held_version_id IS NULL AND w.status <> 'archived';

-- name: attention
-- All matters that need attention, the oldest of a workflow first: of pending events and expired questions only those
-- that are old enough, or new enough.
SELECT * FROM needs_attention
WHERE (kind <> 'stale' OR since < :stale_before) AND (kind <> 'expired' OR since > :expired_after)
ORDER BY workflow_id, since, about;

-- name: attention_of_workflow
-- The same for one workflow.
SELECT * FROM needs_attention
WHERE workflow_id = :workflow_id
    AND (kind <> 'stale' OR since < :stale_before) AND (kind <> 'expired' OR since > :expired_after)
ORDER BY since, about;

-- name: workflows_needing_attention
-- Workflows in which something waits for a person.
SELECT * FROM workflows WHERE id IN (SELECT workflow_id FROM needs_attention WHERE waits_on NOT IN ('retry', 'look'))
ORDER BY id;

-- name: workflows_in_error
-- Workflows that are stopped, archived ones too.
SELECT * FROM workflows WHERE error <> '' ORDER BY id;

-- name: failing_handlers
-- The handlers of a workflow, or of all, that keep failing and are tried again.
SELECT h.* FROM needs_attention n JOIN handlers h ON h.workflow_id = n.workflow_id AND h.name = n.about
WHERE n.kind = 'failing' AND (n.workflow_id = :workflow_id OR :everywhere = 1)
ORDER BY h.workflow_id, h.name;

-- name: admission
-- All that decides whether a run may start in a session.
SELECT w.id, w.status, w.error, w.maintenance, w.pending_retry_run_id, w.active_version_id, s.ended_at, h.kind,
    CASE WHEN h.kind = 'consumer' THEN
        (SELECT COALESCE(SUM(writes), 0) FROM topics WHERE workflow_id = w.id AND consumer = h.name) END,
    (SELECT id FROM runs WHERE workflow_id = w.id AND status = 'active'),
    CASE WHEN h.kind = 'job' THEN
        (SELECT MIN(r.id) FROM runs r WHERE r.workflow_id = w.id AND r.parked = 1 AND r.handler = h.name) END
FROM sessions s
JOIN workflows w ON w.id = s.workflow_id
LEFT JOIN handlers h ON h.workflow_id = w.id AND h.name = :handler AND h.declared = 1
WHERE s.id = :session_id;

-- name: insert_run
-- A run that starts.
INSERT INTO runs (
    id, workflow_id, session_id, version_id, handler, kind, phase, status, mutation_outcome, retry_of, on_unknown,
    title, reserved_count, seen, prepare_result, mutation_result, skip_reason, logs, cost_micros, created_at)
VALUES (
    :id, :workflow_id, :session_id, :version_id, :handler, :kind, :phase, :status, :mutation_outcome, :retry_of,
    :on_unknown, :title, :reserved_count, :seen, :prepare_result, :mutation_result, :skip_reason, :logs, :cost_micros,
    :created_at)
ON CONFLICT (id) DO NOTHING RETURNING number;

-- name: run_by_id
-- One run.
SELECT * FROM runs WHERE id = :id;

-- name: save_run
-- All columns of a run that can change, but its phase alone: set_phase does that.
UPDATE runs SET
    phase = :phase, status = :status, parked = :parked, stop_until = :stop_until,
    mutation_outcome = :mutation_outcome, skip_reason = :skip_reason, title = :title,
    reserved_count = :reserved_count, prepare_result = :prepare_result, mutation_result = :mutation_result,
    output_state = :output_state, error_class = :error_class, error_message = :error_message,
    error_place = :error_place, logs = :logs, cost_micros = :cost_micros, ended_at = :ended_at
WHERE id = :id;

-- name: set_phase
-- The run moves on, and nothing else changes.
UPDATE runs SET phase = :phase WHERE id = :id;

-- name: set_prepared
-- The PrepareResult is pinned.
UPDATE runs SET phase = :phase, title = :title, reserved_count = :reserved_count, prepare_result = :prepare_result
WHERE id = :id;

-- name: set_outcome
-- The mutate phase is over and its outcome known.
UPDATE runs SET phase = :phase, mutation_outcome = :mutation_outcome, mutation_result = :mutation_result,
    skip_reason = :skip_reason
WHERE id = :id;

-- name: retry_of
-- The run that carried on from a run, at its `next`.
SELECT id FROM runs WHERE retry_of = :run_id ORDER BY id LIMIT 1;

-- name: unpark
-- The question that it was parked over is settled, and another run goes on from there.
UPDATE runs SET parked = 0 WHERE id = :id;

-- name: doubt_that_stops
-- The first parked run whose call may have happened and whose workflow is to stand still meanwhile.
SELECT r.* FROM runs r JOIN mutations m ON m.workflow_id = r.workflow_id AND m.run_id = r.id
WHERE r.workflow_id = :workflow_id AND r.parked = 1 AND r.on_unknown = 'pause'
    AND r.status = 'paused:reconciliation' AND m.status NOT IN ('applied', 'failed')
ORDER BY r.id LIMIT 1;

-- name: parked_runs
-- The runs of a workflow that wait for an outcome, or with one for their `next`.
SELECT * FROM runs WHERE workflow_id = :workflow_id AND parked = 1 ORDER BY id;

-- name: active_runs
-- Active runs, also those of a dead process. In the order of the index of active ones: by id, all would be read.
SELECT * FROM runs WHERE status = 'active' AND (workflow_id = :workflow_id OR :everywhere = 1)
ORDER BY workflow_id, id;

-- name: runs_of_workflow
-- Its runs, newest first, before a cursor. Each script version gives its newest, and of these the newest are taken.
SELECT r.* FROM script_versions v JOIN runs r ON r.number IN (
    SELECT i.number FROM runs i
    WHERE i.version_id = v.id AND i.number < COALESCE((SELECT b.number FROM runs b WHERE b.id = :before), :last)
    ORDER BY i.number DESC LIMIT :limit)
WHERE v.workflow_id = :workflow_id ORDER BY r.number DESC LIMIT :limit;

-- name: runs_of_version
-- Runs of a script version, oldest first, after a cursor.
SELECT * FROM runs
WHERE version_id = :version_id AND number > COALESCE((SELECT a.number FROM runs a WHERE a.id = :after), 0)
ORDER BY number LIMIT :limit;

-- name: publish_event
-- Append, or let the last write win while the event is pending. Nothing comes back if it is pinned, or if it is the
-- same and has no new cause.
INSERT INTO events (
    id, topic_id, message_id, title, payload, status, ordering_key, attempt, created_by_run_id, caused, created_at,
    updated_at)
VALUES (
    :id, :topic_id, :message_id, :title, :payload, 'pending', :ordering_key, 1, :created_by_run_id, :has_cause, :now,
    :now)
ON CONFLICT (topic_id, message_id) DO UPDATE SET
    title = excluded.title, payload = excluded.payload, ordering_key = excluded.ordering_key,
    updated_at = excluded.updated_at,
    caused = CASE WHEN excluded.caused = 1 THEN 1 ELSE events.caused END
WHERE events.status = 'pending'
    AND (:has_cause = 1 OR events.title <> excluded.title OR events.payload <> excluded.payload)
RETURNING id;

-- name: count_write
-- A topic got an event, or a pending one of it changed.
UPDATE topics SET writes = writes + 1 WHERE id = :id;

-- name: count_write_for_consumer
-- A consumer has work again, also for a run of it that has looked already.
UPDATE topics SET writes = writes + 1 WHERE workflow_id = :workflow_id AND consumer = :consumer;

-- name: place_of_event
-- The place of an event, by its id.
SELECT topic_id, message_id FROM events WHERE id = :id;

-- name: inherit_roots
-- The events that a run publishes have the causes of the events that it holds.
INSERT INTO event_roots (event, root)
SELECT DISTINCT e.seq, COALESCE(c.root, h.event)
FROM events e CROSS JOIN runs r CROSS JOIN reservations h LEFT JOIN event_roots c ON c.event = h.event
WHERE e.id = :event_id AND r.id = :run_id AND h.run = r.number
ON CONFLICT (event, root) DO NOTHING;

-- name: event_in_topic
-- One event of a workflow, by topic and message id.
SELECT e.* FROM topics t JOIN events e ON e.topic_id = t.id AND e.message_id = :message_id
WHERE t.workflow_id = :workflow_id AND t.name = :topic;

-- name: claimable_event
-- The facts by which a run may reserve an event: also found when the event is not there but the topic is. The last
-- one is the parked run of that consumer that holds an event with the same ordering key.
SELECT t.consumer, e.id, e.status, e.attempt, (
    SELECT MIN(r.id) FROM runs r JOIN events h ON h.reserved_by_run_id = r.id AND h.status = 'reserved'
    WHERE r.workflow_id = t.workflow_id AND r.parked = 1 AND r.handler = t.consumer
        AND h.ordering_key = e.ordering_key)
FROM topics t LEFT JOIN events e ON e.topic_id = t.id AND e.message_id = :message_id
WHERE t.workflow_id = :workflow_id AND t.name = :topic AND t.declared = 1;

-- name: reserve_event
-- Pin one event to a run.
UPDATE events SET status = 'reserved', reserved_by_run_id = :run_id, updated_at = :now
WHERE id = :event_id AND status = 'pending';

-- name: record_reservation
-- History: this run held this event.
INSERT INTO reservations (run, event, attempt, reserved_at)
SELECT r.number, e.seq, :attempt, :now FROM runs r CROSS JOIN events e WHERE r.id = :run_id AND e.id = :event_id;

-- name: consume_events
-- The run committed.
UPDATE events SET status = 'consumed', reserved_by_run_id = NULL, updated_at = :now
WHERE reserved_by_run_id = :run_id AND status = 'reserved';

-- name: release_events
-- Release them: nothing happened outside. A fresh run may take them at the next attempt.
UPDATE events SET status = 'pending', reserved_by_run_id = NULL, attempt = attempt + 1, updated_at = :now
WHERE reserved_by_run_id = :run_id AND status = 'reserved';

-- name: skip_events
-- A person gave up on the mutation of the run that holds them.
UPDATE events SET status = 'skipped', reserved_by_run_id = NULL, updated_at = :now
WHERE reserved_by_run_id = :run_id AND status = 'reserved';

-- name: transfer_reservations
-- The retry holds what the failed run held.
UPDATE events SET reserved_by_run_id = :to_run_id, updated_at = :now
WHERE reserved_by_run_id = :from_run_id AND status = 'reserved';

-- name: inherit_reservations
-- History: the retry works on the events of the failed run, skipped ones too.
INSERT INTO reservations (run, event, attempt, reserved_at)
SELECT t.number, h.event, h.attempt, :now FROM runs t CROSS JOIN runs f CROSS JOIN reservations h
WHERE t.id = :to_run_id AND f.id = :from_run_id AND h.run = f.number;

-- name: skip_pending_event
-- A person skips an event that no run holds.
UPDATE events SET status = 'skipped', updated_at = :now WHERE id = :event_id AND status = 'pending';

-- name: count_pending_events_of_topic
-- The number of pending events of a topic.
SELECT COUNT(*) FROM events WHERE topic_id = :topic_id AND status = 'pending';

-- name: held_events_of_workflow
-- Those that a parked run or the pending retry holds, in append order. From the few runs to their events.
SELECT e.* FROM (
    SELECT r.id FROM runs r WHERE r.workflow_id = :workflow_id AND r.parked = 1
    UNION ALL
    SELECT w.pending_retry_run_id FROM workflows w WHERE w.id = :workflow_id) AS holders
CROSS JOIN events e WHERE e.reserved_by_run_id = holders.id AND e.status = 'reserved' ORDER BY e.seq;

-- name: skip_events_of_topic
-- A person drops what is pending in a topic that the script does not declare any more.
UPDATE events SET status = 'skipped', updated_at = :now WHERE topic_id = :topic_id AND status = 'pending';

-- name: skip_events_of_both_topics
-- A message id that the other topic has already is the same event there.
UPDATE events SET status = 'skipped', updated_at = :now
WHERE topic_id = :from_topic_id AND status = 'pending' AND EXISTS (
    SELECT 1 FROM events o WHERE o.topic_id = :to_topic_id AND o.message_id = events.message_id);

-- name: move_pending_events
-- The topic has another name now. All else about the events stays, and with `seq` their order.
UPDATE events SET topic_id = :to_topic_id, updated_at = :now WHERE topic_id = :from_topic_id AND status = 'pending';

-- name: move_finished_events
-- Events that were finished under the old name are not taken again under the new one.
UPDATE events SET topic_id = :to_topic_id
WHERE topic_id = :from_topic_id AND status IN ('consumed', 'skipped') AND NOT EXISTS (
    SELECT 1 FROM events o WHERE o.topic_id = :to_topic_id AND o.message_id = events.message_id);

-- name: move_held_event
-- The same for one that a run holds: it goes on holding it.
UPDATE events SET topic_id = :to_topic_id, updated_at = :now WHERE id = :event_id AND status = 'reserved';

-- name: peek_events
-- Pending events of a topic that wait for no parked run, oldest first, after a cursor.
SELECT e.* FROM topics t JOIN events e ON e.topic_id = t.id
WHERE t.workflow_id = :workflow_id AND t.name = :topic AND e.status = 'pending' AND e.seq > :after
    AND (e.ordering_key IS NULL OR NOT EXISTS (
        SELECT 1 FROM runs r JOIN events h ON h.reserved_by_run_id = r.id AND h.status = 'reserved'
        WHERE r.workflow_id = t.workflow_id AND r.parked = 1 AND r.handler = t.consumer
            AND h.ordering_key = e.ordering_key))
ORDER BY e.seq LIMIT :limit;

-- name: unfinished_events_of_topic
-- Those whose ordering key matters, after a cursor.
SELECT e.* FROM events e WHERE e.topic_id = :topic_id AND e.seq > :after AND e.status IN ('pending', 'reserved')
ORDER BY e.seq LIMIT :limit;

-- name: set_ordering_key
-- Its consumer finds the key elsewhere now.
UPDATE events SET ordering_key = :ordering_key WHERE id = :id;

-- name: events_of_topic
-- All events of a topic in append order, whatever became of them.
SELECT e.* FROM topics t JOIN events e ON e.topic_id = t.id
WHERE t.workflow_id = :workflow_id AND t.name = :topic AND e.seq > :after
ORDER BY e.seq LIMIT :limit;

-- name: inputs_of_workflow
-- Events that no other event caused, newest first, before a cursor. Each topic gives its newest, and of these the
-- newest are taken: else all would be sorted.
SELECT t.name, e.* FROM topics t JOIN events e ON e.seq IN (
    SELECT i.seq FROM events i WHERE i.topic_id = t.id AND i.caused = 0 AND i.seq < :before
    ORDER BY i.seq DESC LIMIT :limit)
WHERE t.workflow_id = :workflow_id ORDER BY e.seq DESC LIMIT :limit;

-- name: events_of_run
-- The events a run held, in append order.
SELECT e.* FROM runs r JOIN reservations h ON h.run = r.number JOIN events e ON e.seq = h.event
WHERE r.id = :run_id ORDER BY e.seq;

-- name: events_of_version
-- Every event that a run of a script version held, in append order, after a cursor.
SELECT e.* FROM events e WHERE e.seq IN (
    SELECT DISTINCT h.event FROM runs r JOIN reservations h ON h.run = r.number
    WHERE r.version_id = :version_id AND h.event > :after ORDER BY h.event LIMIT :limit)
ORDER BY e.seq;

-- name: runs_of_event
-- Every run that ever held an event, oldest first.
SELECT * FROM runs_of_events WHERE event_id = :event_id ORDER BY run_id;

-- name: roots_of_event
-- The first causes of an event; none if it came from outside.
SELECT o.* FROM events e JOIN event_roots c ON c.event = e.seq JOIN events o ON o.seq = c.root
WHERE e.id = :event_id ORDER BY o.seq;

-- name: events_caused_by
-- All events that an event caused.
SELECT e.* FROM events o JOIN event_roots c ON c.root = o.seq JOIN events e ON e.seq = c.event
WHERE o.id = :event_id ORDER BY e.seq;

-- name: insert_mutation
-- A line of the ledger.
INSERT INTO mutations (
    id, identity_key, idempotency_key, workflow_id, run_id, item_id, item_attempt, connector, method, params,
    title, reconcilable, status, version, attempts, sent_at, created_at, updated_at, subkey)
VALUES (
    :id, :identity_key, :idempotency_key, :workflow_id, :run_id, :item_id, :item_attempt, :connector, :method,
    :params, :title, :reconcilable, :status, :version, :attempts, :sent_at, :created_at, :updated_at, :subkey)
ON CONFLICT (id) DO NOTHING RETURNING id;

-- name: mutation_by_id
-- One line of the ledger.
SELECT * FROM mutations WHERE id = :id;

-- name: mutation_by_identity
-- One line of the ledger, by what makes it the same call.
SELECT * FROM mutations WHERE identity_key = :identity_key;

-- name: mutation_of_older_identity
-- A call of a method in one attempt at an item, recorded when its words were part of its identity: the same words first.
SELECT * FROM mutations WHERE workflow_id = :workflow_id AND item_id = :item_id AND item_attempt = :attempt
    AND connector = :connector AND method = :method AND subkey IS NULL
ORDER BY CASE WHEN params = :params THEN 0 ELSE 1 END, id LIMIT 1;

-- name: mutations_of_run
-- Its mutations, oldest first. That of a consumer has its run as its identity.
SELECT * FROM mutations WHERE (identity_key = :run_id AND item_id IS NULL) OR (run_id = :run_id AND item_id IS NOT NULL)
ORDER BY id;

-- name: mutations_of_version
-- The mutations of the runs of a script version, oldest first, after a cursor.
SELECT m.* FROM runs r JOIN mutations m
    ON (m.identity_key = r.id AND m.item_id IS NULL) OR (m.run_id = r.id AND m.item_id IS NOT NULL)
WHERE r.version_id = :version_id AND m.id > :after ORDER BY m.id LIMIT :limit;

-- name: mutations_of_workflow
-- Its mutations, newest first, before a cursor.
SELECT * FROM mutations WHERE workflow_id = :workflow_id AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: mutations_of_event
-- Of every run that ever held an event or one that it caused, oldest first. Such runs are of consumers.
SELECT m.* FROM mutations m WHERE m.item_id IS NULL AND m.identity_key IN (
    SELECT r.id FROM events e JOIN reservations h ON h.event = e.seq JOIN runs r ON r.number = h.run
    WHERE e.id = :event_id
    UNION
    SELECT r.id FROM events e JOIN event_roots c ON c.root = e.seq
    JOIN reservations h ON h.event = c.event JOIN runs r ON r.number = h.run
    WHERE e.id = :event_id)
ORDER BY m.id;

-- name: save_mutation
-- All columns of a mutation that can change.
UPDATE mutations SET
    run_id = :run_id, params = :params, status = :status, version = :version, result = :result, error = :error,
    attempts = :attempts, reconcile_attempts = :reconcile_attempts, next_reconcile_at = :next_reconcile_at,
    sent_at = :sent_at, resolved_by = :resolved_by, resolved_at = :resolved_at, resolved_who = :resolved_who,
    resolved_why = :resolved_why, updated_at = :updated_at, subkey = :subkey, doubted_at = :doubted_at,
    note = :note
WHERE id = :id;

-- name: unsettled_mutation_of_run
-- A mutation of the run whose outcome is not known, or that was never sent.
SELECT * FROM mutations WHERE workflow_id = (SELECT workflow_id FROM runs WHERE id = :run_id)
    AND run_id = :run_id AND status NOT IN ('applied', 'failed') ORDER BY id LIMIT 1;

-- name: unsettled_mutation_of_item
-- The same, for one attempt at an item.
SELECT * FROM mutations WHERE workflow_id = :workflow_id AND item_id = :item_id AND item_attempt = :attempt
    AND status NOT IN ('applied', 'failed') ORDER BY id LIMIT 1;

-- name: calls_left_in_doubt
-- Calls of stopped runs that a dead process left unanswered: in flight, or approved and not yet paused over.
SELECT m.* FROM mutations m JOIN runs r ON r.id = m.run_id
WHERE m.status NOT IN ('applied', 'failed') AND m.status <> 'pending' AND r.status <> 'active'
    AND (m.status = 'in_flight' OR r.status = 'paused:approval')
    AND (m.workflow_id = :workflow_id OR :everywhere = 1)
ORDER BY m.workflow_id, m.created_at, m.id;

-- name: mutations_to_reconcile
-- Mutations whose next check is due.
SELECT * FROM mutations WHERE next_reconcile_at IS NOT NULL AND next_reconcile_at <= :now
ORDER BY next_reconcile_at LIMIT :limit;

-- name: mutations_due
-- The same for one workflow.
SELECT * FROM mutations WHERE workflow_id = :workflow_id AND next_reconcile_at IS NOT NULL AND next_reconcile_at <= :now
ORDER BY next_reconcile_at, id;

-- name: unsettled_mutations
-- The calls of a workflow that are in doubt, or not sent.
SELECT * FROM mutations WHERE workflow_id = :workflow_id AND status NOT IN ('applied', 'failed') ORDER BY id;

-- name: doubts
-- The calls of stopped runs that may have happened.
SELECT * FROM mutations WHERE status NOT IN ('applied', 'failed') AND status IN ('needs_reconcile', 'indeterminate')
ORDER BY workflow_id;

-- name: insert_approval
-- A question to a person.
INSERT INTO approvals (id, workflow_id, mutation_id, status, requested_at, expires_at)
VALUES (:id, :workflow_id, :mutation_id, :status, :requested_at, :expires_at)
ON CONFLICT (id) DO NOTHING RETURNING id;

-- name: approval_by_id
-- One question.
SELECT * FROM approvals WHERE id = :id;

-- name: open_approval
-- The question that a mutation waits for.
SELECT * FROM approvals WHERE mutation_id = :mutation_id AND status = 'open';

-- name: open_approvals
-- All questions to people, oldest first.
SELECT * FROM approvals WHERE status = 'open' ORDER BY requested_at, id;

-- name: open_approvals_of_workflow
-- The same for one workflow.
SELECT * FROM approvals WHERE workflow_id = :workflow_id AND status = 'open' ORDER BY requested_at, id;

-- name: approvals_of_mutation
-- Every question about a mutation, the last one last.
SELECT * FROM approvals WHERE mutation_id = :mutation_id ORDER BY requested_at, id;

-- name: approvals_due
-- Questions of a workflow that expired, the longest due first.
SELECT * FROM approvals WHERE workflow_id = :workflow_id AND status = 'open' AND expires_at <= :now
ORDER BY expires_at, id;

-- name: decide_approval
-- The answer, given once.
UPDATE approvals SET status = :status, decided_at = :decided_at, decided_by = :decided_by, reason = :reason
WHERE id = :id AND status = 'open';

-- name: save_item
-- One attempt at an item, new or changed.
INSERT INTO items (workflow_id, item_id, attempt, title, state, run_id, is_open, error, created_at, updated_at)
VALUES (:workflow_id, :item_id, :attempt, :title, :state, :run_id, :is_open, :error, :created_at, :updated_at)
ON CONFLICT (workflow_id, item_id, attempt) DO UPDATE SET
    title = excluded.title, state = excluded.state, run_id = excluded.run_id, is_open = excluded.is_open,
    error = excluded.error, updated_at = excluded.updated_at;

-- name: record_item_run
-- History: this run entered this item before it was finished.
INSERT INTO item_runs (run_id, workflow_id, item_id, attempt) VALUES (:run_id, :workflow_id, :item_id, :attempt)
ON CONFLICT (run_id, workflow_id, item_id, attempt) DO NOTHING;

-- name: items_of_version
-- The attempts at items that runs of a script version entered before they were finished, by item, after a cursor.
SELECT DISTINCT i.* FROM runs r JOIN item_runs h ON h.run_id = r.id
JOIN items i ON i.workflow_id = h.workflow_id AND i.item_id = h.item_id AND i.attempt = h.attempt
WHERE r.version_id = :version_id AND (i.item_id, i.attempt) > (:item_id, :attempt)
ORDER BY i.item_id, i.attempt LIMIT :limit;

-- name: latest_item
-- The current attempt at an item.
SELECT * FROM items WHERE workflow_id = :workflow_id AND item_id = :item_id ORDER BY attempt DESC LIMIT 1;

-- name: item_attempts
-- Every attempt at an item, oldest first.
SELECT * FROM items WHERE workflow_id = :workflow_id AND item_id = :item_id ORDER BY attempt;

-- name: items_of_workflow
-- The current attempt at each item of a workflow, by item, after a cursor.
SELECT i.* FROM items i WHERE i.workflow_id = :workflow_id AND i.item_id > :after AND NOT EXISTS (
    SELECT 1 FROM items n WHERE n.workflow_id = i.workflow_id AND n.item_id = i.item_id AND n.attempt > i.attempt)
ORDER BY i.item_id LIMIT :limit;

-- name: items_in_state
-- The same, of those in one state.
SELECT i.* FROM items i
WHERE i.workflow_id = :workflow_id AND i.item_id > :after AND i.state = :state AND NOT EXISTS (
    SELECT 1 FROM items n WHERE n.workflow_id = i.workflow_id AND n.item_id = i.item_id AND n.attempt > i.attempt)
ORDER BY i.item_id LIMIT :limit;

-- name: workflows_with_items
-- Workflows that have opened an item.
SELECT w.id FROM workflows w WHERE EXISTS (SELECT 1 FROM items i WHERE i.workflow_id = w.id);

-- name: item_counts
-- How many items of a workflow are in one state, counted up to a limit: a long list costs no more.
SELECT COUNT(*) FROM (
    SELECT 1 FROM items i WHERE i.workflow_id = :workflow_id AND i.state = :state AND NOT EXISTS (
        SELECT 1 FROM items n WHERE n.workflow_id = i.workflow_id AND n.item_id = i.item_id AND n.attempt > i.attempt)
    LIMIT :limit) AS few;

-- name: mutations_of_item
-- Every call in an item, by attempt, oldest first.
SELECT * FROM mutations WHERE workflow_id = :workflow_id AND item_id = :item_id ORDER BY item_attempt, id;

-- name: runs_of_attempt
-- The runs that entered an attempt at an item before it was finished, oldest first.
SELECT run_id FROM item_runs WHERE workflow_id = :workflow_id AND item_id = :item_id AND attempt = :attempt
ORDER BY run_id;

-- name: item_in_need
-- The item that a run left in need of a person, as long as it is.
SELECT i.* FROM item_runs h
JOIN items i ON i.workflow_id = h.workflow_id AND i.item_id = h.item_id AND i.attempt = h.attempt
WHERE h.run_id = :run_id AND i.run_id = :run_id AND i.state = 'needs_attention' AND NOT EXISTS (
    SELECT 1 FROM items n WHERE n.workflow_id = i.workflow_id AND n.item_id = i.item_id AND n.attempt > i.attempt)
ORDER BY h.item_id LIMIT 1;

-- name: open_item_of_run
-- The item whose scope the run is in.
SELECT * FROM items WHERE run_id = :run_id AND is_open = 1;

-- name: insert_task
-- The order to repair a script.
INSERT INTO maintenance_tasks (id, workflow_id, run_id, status, evidence, created_at)
VALUES (:id, :workflow_id, :run_id, :status, :evidence, :created_at);

-- name: open_task
-- The open repair.
SELECT * FROM maintenance_tasks WHERE workflow_id = :workflow_id AND status = 'open';

-- name: tasks_of_workflow
-- Its repairs, newest first, before a cursor.
SELECT * FROM maintenance_tasks WHERE workflow_id = :workflow_id AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: save_task
-- All columns of a repair that can change.
UPDATE maintenance_tasks SET
    attempts = :attempts, next_attempt_at = :next_attempt_at, held_version_id = :held_version_id, problem = :problem
WHERE id = :id;

-- name: end_task
-- The repair is over, and nothing waits any more.
UPDATE maintenance_tasks SET status = 'done', next_attempt_at = NULL, held_version_id = NULL, ended_at = :ended_at
WHERE workflow_id = :workflow_id AND status = 'open';

-- name: maintenance_without_task
-- Workflows in maintenance without a repair, because a crash came between.
SELECT * FROM workflows WHERE maintenance = 1 AND (id = :workflow_id OR :everywhere = 1)
    AND NOT EXISTS (SELECT 1 FROM maintenance_tasks t WHERE t.workflow_id = workflows.id AND t.status = 'open')
ORDER BY id;

-- name: insert_proposal
-- A script that was proposed; nothing if the id is taken.
INSERT INTO proposals
    (id, workflow_id, base_version_id, name, source, note, proposed_by, status, proposed_at, expires_at)
VALUES (:id, :workflow_id, :base_version_id, :name, :source, :note, :proposed_by, :status, :proposed_at, :expires_at)
ON CONFLICT (id) DO NOTHING RETURNING id;

-- name: proposal_by_id
-- One proposal.
SELECT * FROM proposals WHERE id = :id;

-- name: open_proposal_of_workflow
-- The open proposal for a workflow.
SELECT * FROM proposals WHERE workflow_id = :workflow_id AND status = 'open';

-- name: open_proposal_of_name
-- The open proposal for a new workflow of this name.
SELECT * FROM proposals WHERE name = :name AND workflow_id IS NULL AND status = 'open';

-- name: rejected_proposal
-- The newest proposal of exactly this script that a person rejected.
SELECT * FROM proposals WHERE name = :name AND status = 'rejected' AND source = :source
    AND workflow_id IS NOT DISTINCT FROM :workflow_id ORDER BY id DESC LIMIT 1;

-- name: count_open_proposals
-- How many proposals wait, without the one that is replaced.
SELECT COUNT(*) FROM proposals WHERE status = 'open' AND expires_at > :now AND id <> :replaced;

-- name: count_new_proposals
-- How many proposals were made since a time.
SELECT COUNT(*) FROM proposals WHERE proposed_at > :since;

-- name: expire_proposals
-- Proposals that nobody decided about in time.
UPDATE proposals SET status = 'expired', source = '', decided_at = :now WHERE status = 'open' AND expires_at <= :now;

-- name: decide_proposal
-- What became of a proposal.
UPDATE proposals SET
    status = :status, source = :source, workflow_id = :workflow_id, decided_at = :decided_at, decided_by = :decided_by,
    reason = :reason, version_id = :version_id
WHERE id = :id;

-- name: open_proposals
-- The proposals that wait, oldest first.
SELECT * FROM proposals WHERE status = 'open' AND expires_at > :now ORDER BY expires_at, id LIMIT :limit;

-- name: proposals_between
-- The ids that begin with a text.
SELECT id FROM proposals WHERE id >= :first AND id <= :last ORDER BY id LIMIT :limit;

-- name: all_proposals
-- Proposals, newest first.
SELECT * FROM proposals WHERE id < :before ORDER BY id DESC LIMIT :limit;

-- name: insert_notice
-- A matter needs a person, and sinks are told.
INSERT INTO notices (id, workflow_id, kind, about, run_id, call, words, can_do, opened_at)
VALUES (:id, :workflow_id, :kind, :about, :run_id, :call, :words, :can_do, :opened_at)
ON CONFLICT (id) DO NOTHING RETURNING id;

-- name: notice_by_id
-- One notice.
SELECT * FROM notices WHERE id = :id;

-- name: open_notice
-- The open notice about a matter.
SELECT * FROM notices WHERE workflow_id = :workflow_id AND kind = :kind AND about = :about AND settled_at IS NULL;

-- name: open_notices_of_workflow
-- The open notices of a workflow. (`kind > ''` leads to the index of what is open.)
SELECT * FROM notices WHERE workflow_id = :workflow_id AND kind > '' AND settled_at IS NULL ORDER BY kind, about;

-- name: all_notices
-- Notices, newest first, before a cursor.
SELECT * FROM notices WHERE id < :before ORDER BY id DESC LIMIT :limit;

-- name: notices_of_workflow
-- The same for one workflow.
SELECT * FROM notices WHERE workflow_id = :workflow_id AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: untold_notices
-- Open notices that a sink does not know of, or was given up over, after a cursor.
SELECT n.* FROM notices n WHERE n.settled_at IS NULL AND n.id > :after AND NOT EXISTS (
    SELECT 1 FROM deliveries d
    WHERE d.notice_id = n.id AND d.sink = :sink AND d.says = 'needs_person' AND d.status <> 'given_up')
ORDER BY n.id LIMIT :limit;

-- name: settle_notice
-- The matter is settled.
UPDATE notices SET settled_at = :settled_at, outcome = :outcome WHERE id = :id AND settled_at IS NULL;

-- name: insert_delivery
-- Tell a sink that a person is needed; a delivery that was given up is tried again.
INSERT INTO deliveries (notice_id, sink, says, status, next_attempt_at)
VALUES (:notice_id, :sink, 'needs_person', 'waiting', :now)
ON CONFLICT (notice_id, sink, says) DO UPDATE SET
    status = 'waiting', attempts = 0, next_attempt_at = excluded.next_attempt_at, problem = '', ended_at = NULL;

-- name: insert_settled_deliveries
-- Tell each sink that was told of the beginning of the end, too: after the first delivery has ended.
INSERT INTO deliveries (notice_id, sink, says, status, next_attempt_at)
SELECT notice_id, sink, 'settled', 'waiting', CASE WHEN status = 'waiting' THEN NULL ELSE :now END
FROM deliveries WHERE notice_id = :notice_id AND says = 'needs_person';

-- name: delivery
-- One notice to one sink.
SELECT * FROM deliveries WHERE notice_id = :notice_id AND sink = :sink AND says = :says;

-- name: deliveries_of_notice
-- The deliveries of a notice.
SELECT * FROM deliveries WHERE notice_id = :notice_id ORDER BY sink, says;

-- name: save_delivery
-- The result of an attempt.
UPDATE deliveries SET status = :status, attempts = :attempts, next_attempt_at = :next_attempt_at, problem = :problem,
    ended_at = :ended_at
WHERE notice_id = :notice_id AND sink = :sink AND says = :says;

-- name: release_settled_delivery
-- The end of a matter is delivered once its beginning is.
UPDATE deliveries SET next_attempt_at = :now
WHERE notice_id = :notice_id AND sink = :sink AND says = 'settled' AND status = 'waiting';

-- name: next_delivery
-- The next delivery to a sink.
SELECT * FROM deliveries WHERE sink = :sink AND status = 'waiting' AND next_attempt_at IS NOT NULL
ORDER BY next_attempt_at, notice_id LIMIT 1;

-- name: workflows_to_compare
-- Workflows in which a person may be called for something, or was, after a cursor.
SELECT workflow_id FROM needs_attention
WHERE waits_on IN ('person', 'maintainer', 'retry') AND workflow_id > :after
UNION SELECT workflow_id FROM notices WHERE settled_at IS NULL AND workflow_id > :after
ORDER BY 1 LIMIT :limit;

-- name: changed_workflows_to_compare
-- The same, of those that the journal names between two sequence numbers.
SELECT c.workflow_id FROM (
    SELECT w.name AS workflow_id FROM names w WHERE w.number IN (
        SELECT j.workflow FROM journal j WHERE j.seq > :after AND j.seq <= :until)) c
WHERE EXISTS (SELECT 1 FROM needs_attention n
        WHERE n.workflow_id = c.workflow_id AND n.waits_on IN ('person', 'maintainer', 'retry'))
    OR EXISTS (SELECT 1 FROM notices o WHERE o.workflow_id = c.workflow_id AND o.kind > '' AND o.settled_at IS NULL)
ORDER BY c.workflow_id;

-- name: append_journal
-- One operation that happened.
INSERT INTO journal (at, operation, workflow, run, changed, why)
VALUES (:at, :operation, :workflow, (SELECT r.number FROM runs r WHERE r.id = :run_id), :changed, :why);

-- name: note_journal_blocks
-- Which workflows the entries after a sequence number are about.
INSERT INTO journal_blocks (workflow, block)
SELECT DISTINCT workflow, seq - seq % 4096 FROM journal WHERE seq > :after AND workflow IS NOT NULL
ON CONFLICT (workflow, block) DO NOTHING;

-- name: number_of_name
-- The number that the journal has instead of a name.
SELECT number FROM names WHERE name = :name;

-- name: insert_name
-- A name that the journal has not had before.
INSERT INTO names (name) VALUES (:name) RETURNING number;

-- name: journal_after
-- The feed: what happened after a sequence number.
SELECT * FROM journal_entries WHERE seq > :after ORDER BY seq LIMIT :limit;

-- name: journal_end
-- The last sequence number.
SELECT COALESCE(MAX(seq), 0) FROM journal;

-- name: journal_of_workflow
-- The feed of one workflow: through the blocks in which it has entries, in order. (`+ 0`: each block is to be read from
-- its own beginning, and not from the cursor.)
SELECT * FROM journal_entries WHERE seq IN (
    SELECT j.seq FROM journal_blocks b CROSS JOIN journal j
    WHERE b.workflow = (SELECT number FROM names WHERE name = :workflow_id) AND b.block > :after - 4096
        AND j.seq >= b.block AND j.seq < b.block + 4096 AND j.seq + 0 > :after AND j.workflow = b.workflow
    ORDER BY b.block, j.seq LIMIT :limit)
ORDER BY seq;

-- name: journal_of_run
-- The journal of one run.
SELECT * FROM journal_entries WHERE seq IN (
    SELECT j.seq FROM journal j WHERE j.run = (SELECT number FROM runs WHERE id = :run_id))
ORDER BY seq;

-- name: journal_newest
-- The end of the journal, newest first, before a cursor.
SELECT * FROM journal_entries WHERE seq < :before ORDER BY seq DESC LIMIT :limit;

-- name: journal_newest_of_workflow
-- The same for one workflow.
SELECT * FROM journal_entries WHERE seq IN (
    SELECT j.seq FROM journal_blocks b CROSS JOIN journal j
    WHERE b.workflow = (SELECT number FROM names WHERE name = :workflow_id) AND b.block < :before
        AND j.seq >= b.block AND j.seq < b.block + 4096 AND j.seq + 0 < :before AND j.workflow = b.workflow
    ORDER BY b.block DESC, j.seq DESC LIMIT :limit)
ORDER BY seq DESC;

-- name: runs_between
-- Ids of runs from one id to another: what begins with what a person typed.
SELECT id FROM runs WHERE id >= :first AND id <= :last ORDER BY id LIMIT :limit;

-- name: mutations_between
-- The same for mutations.
SELECT id FROM mutations WHERE id >= :first AND id <= :last ORDER BY id LIMIT :limit;

-- name: approvals_between
-- The same for approvals.
SELECT id FROM approvals WHERE id >= :first AND id <= :last ORDER BY id LIMIT :limit;

-- name: events_between
-- The same for events.
SELECT id FROM events WHERE id >= :first AND id <= :last ORDER BY id LIMIT :limit;

-- name: workflows_between
-- The same for workflows.
SELECT id FROM workflows WHERE id >= :first AND id <= :last ORDER BY id LIMIT :limit;

-- name: event_by_id
-- One event, with its workflow and its topic.
SELECT t.workflow_id, t.name, e.* FROM events e JOIN topics t ON t.id = e.topic_id WHERE e.id = :id;

-- name: events_named
-- Events of one message id, in any topic: each topic is asked for it, since no index has the id alone.
SELECT t.workflow_id, t.name, e.* FROM topics t CROSS JOIN events e
WHERE e.topic_id = t.id AND e.message_id = :message_id LIMIT :limit;

-- name: pending_by_topic
-- How many events are pending in each topic that has a reader, counted up to a limit: a long queue costs no more.
SELECT t.workflow_id, t.name, (
    SELECT COUNT(*) FROM (
        SELECT 1 FROM events e WHERE e.topic_id = t.id AND e.status = 'pending' LIMIT :limit) AS few)
FROM topics t WHERE t.consumer IS NOT NULL;

-- name: unsettled_by_workflow
-- How many calls of each workflow are not settled.
SELECT workflow_id, COUNT(*) FROM mutations WHERE status NOT IN ('applied', 'failed') GROUP BY workflow_id;

-- name: fence
-- A write that succeeds after a commit that failed: what was left of that commit in the log is overwritten.
UPDATE store SET fences = fences + 1 WHERE only_row = 1;

-- name: insert_store
-- The one row that every file has.
INSERT INTO store (only_row, created_at) VALUES (1, :created_at);
