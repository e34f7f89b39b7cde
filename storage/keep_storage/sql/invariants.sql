-- Promises that are true after every commit. Each query returns the rows that break its promise: none, ever.
-- Those marked (deep) look at finished work too; they are for tests and `keep doctor`, not for every start.

-- name: reserved_event_has_a_living_holder
-- A reserved event is held by an active run, by the pending retry of its workflow, or by a run that is parked.
SELECT e.id, e.message_id, r.id, r.status FROM events e
JOIN runs r ON r.id = e.reserved_by_run_id
JOIN workflows w ON w.id = r.workflow_id
WHERE e.status = 'reserved' AND r.status <> 'active' AND r.parked = 0 AND w.pending_retry_run_id IS DISTINCT FROM r.id;

-- name: reserved_event_is_of_its_holders_workflow
-- A run holds events of its own workflow only.
SELECT e.id, r.id FROM events e
JOIN topics t ON t.id = e.topic_id
JOIN runs r ON r.id = e.reserved_by_run_id
WHERE e.status = 'reserved' AND r.workflow_id <> t.workflow_id;

-- name: reserved_event_is_in_the_history_of_its_holder
-- The history of a run has every event that it holds.
SELECT e.id, e.reserved_by_run_id FROM events e
LEFT JOIN runs r ON r.id = e.reserved_by_run_id
LEFT JOIN reservations h ON h.run = r.number AND h.event = e.seq
WHERE e.status = 'reserved' AND (h.event IS NULL OR h.attempt <> e.attempt);

-- name: doubt_releases_nothing
-- While the effect of a run may exist, or its call waits for a person, every event it reserved stays reserved by it.
-- CROSS JOIN: from the few mutations to their events, and not the other way through all reservations.
SELECT m.id, e.id, e.status FROM mutations m CROSS JOIN runs r CROSS JOIN reservations h CROSS JOIN events e
WHERE r.id = m.run_id AND h.run = r.number AND e.seq = h.event AND m.status NOT IN ('applied', 'failed') AND m.item_id IS NULL
    AND (e.status <> 'reserved' OR e.reserved_by_run_id <> m.run_id);

-- name: doubt_has_a_run_that_waits
-- A mutation that is not settled belongs to an active run, or to one that is paused over it.
SELECT m.id, m.status, r.status FROM mutations m JOIN runs r ON r.id = m.run_id
WHERE m.status NOT IN ('applied', 'failed')
    AND r.status IN ('committed', 'failed:logic');

-- name: doubt_stops_the_workflow
-- A stopped run with an unsettled mutation shows as its workflow's error, unless it is parked.
SELECT m.id, w.id FROM mutations m
JOIN runs r ON r.id = m.run_id
JOIN workflows w ON w.id = m.workflow_id
WHERE m.status NOT IN ('applied', 'failed') AND r.status <> 'active' AND r.parked = 0
    AND w.error_run_id IS DISTINCT FROM r.id;

-- name: parked_doubt_stops_its_workflow_if_it_is_to
-- A run that was parked for approval and is now in doubt leaves its workflow with an error, unless doubts are parked.
SELECT r.id, w.id FROM runs r JOIN workflows w ON w.id = r.workflow_id
WHERE r.parked = 1 AND r.on_unknown = 'pause' AND r.status = 'paused:reconciliation' AND w.error = ''
    AND EXISTS (SELECT 1 FROM mutations m
        WHERE m.workflow_id = r.workflow_id AND m.run_id = r.id AND m.status NOT IN ('applied', 'failed'));

-- name: doubt_of_a_consumer_is_in_mutating
-- The mutation of a consumer is unsettled only while its run is in the phase `mutating`.
SELECT m.id, r.phase FROM mutations m JOIN runs r ON r.id = m.run_id
WHERE m.status NOT IN ('applied', 'failed') AND m.item_id IS NULL AND r.phase <> 'mutating';

-- name: pending_retry_can_be_retried
-- The pending retry is a stopped consumer run of that workflow, settled for good or still in doubt.
SELECT w.id, r.id, r.status, r.mutation_outcome FROM workflows w JOIN runs r ON r.id = w.pending_retry_run_id
WHERE r.workflow_id <> w.id OR r.kind <> 'consumer' OR r.status IN ('active', 'committed')
    OR NOT (r.mutation_outcome IN ('success', 'skipped')
        OR EXISTS (SELECT 1 FROM mutations m
        WHERE m.workflow_id = r.workflow_id AND m.run_id = r.id AND m.status NOT IN ('applied', 'failed')));

-- name: parked_run_waits_beside_its_workflow
-- A parked run is a question, or has an outcome and waits for its `next`; and it is not what stops its workflow, unless
-- its doubt is to.
SELECT r.id, r.mutation_outcome, w.error_run_id, w.pending_retry_run_id FROM runs r
JOIN workflows w ON w.id = r.workflow_id
WHERE r.parked = 1 AND (w.pending_retry_run_id = r.id
    OR (w.error_run_id = r.id AND NOT (r.on_unknown = 'pause' AND r.status = 'paused:reconciliation'))
    OR NOT (r.mutation_outcome IN ('success', 'skipped')
        OR EXISTS (SELECT 1 FROM mutations m
        WHERE m.workflow_id = r.workflow_id AND m.run_id = r.id AND m.status NOT IN ('applied', 'failed'))));

-- name: nobody_overtakes_a_parked_run
-- While a run is parked, no run of its handler holds another event with an ordering key that it holds. From the few that
-- are parked to those beside them, and not the other way.
SELECT p.id, r.id, e.id FROM runs p CROSS JOIN runs r CROSS JOIN events h CROSS JOIN events e
WHERE p.parked = 1
    AND r.id = (SELECT a.id FROM runs a WHERE a.workflow_id = p.workflow_id AND a.status = 'active')
    AND r.handler = p.handler AND r.retry_of IS NULL
    AND h.reserved_by_run_id = p.id AND h.status = 'reserved'
    AND e.reserved_by_run_id = r.id AND e.status = 'reserved' AND e.ordering_key = h.ordering_key;

-- name: active_run_means_nothing_in_the_way
-- While a run is active its workflow has no error of another run, no maintenance and no pending retry. The host may
-- give up on a workflow at any time, and the doubt of a run that is parked may stop it at any time.
SELECT w.id, r.id FROM runs r JOIN workflows w ON w.id = r.workflow_id
WHERE r.status = 'active' AND (w.maintenance = 1 OR w.pending_retry_run_id IS NOT NULL
    OR EXISTS (SELECT 1 FROM runs e WHERE e.id = w.error_run_id AND e.parked = 0));

-- name: active_run_has_an_open_session
-- An active run belongs to a session that has not ended.
SELECT r.id, s.id FROM runs r JOIN sessions s ON s.id = r.session_id
WHERE r.status = 'active' AND s.ended_at IS NOT NULL;

-- name: open_session_has_no_stopped_run
-- A run that stopped has ended its session.
SELECT s.id FROM sessions s
WHERE s.ended_at IS NULL
    AND EXISTS (SELECT 1 FROM runs r WHERE r.session_id = s.id AND r.status NOT IN ('active', 'committed'));

-- name: question_has_a_call_that_waits
-- An open approval belongs to a mutation that was never sent.
SELECT a.id, m.status FROM approvals a JOIN mutations m ON m.id = a.mutation_id
WHERE a.status = 'open' AND m.status <> 'pending';

-- name: call_that_waits_has_a_question
-- A pending mutation of a stopped run is an open question to a person.
SELECT m.id, r.status FROM mutations m JOIN runs r ON r.id = m.run_id
WHERE m.status NOT IN ('applied', 'failed') AND m.status = 'pending' AND r.status <> 'active'
    AND (r.status <> 'paused:approval'
        OR NOT EXISTS (SELECT 1 FROM approvals a WHERE a.mutation_id = m.id AND a.status = 'open'));

-- name: open_item_has_an_active_run
-- Only an active run is inside an item.
SELECT i.item_id, r.id, r.status FROM items i JOIN runs r ON r.id = i.run_id
WHERE i.is_open = 1 AND r.status <> 'active';

-- name: maintenance_has_a_failure
-- A workflow is under repair because of a run of its own that failed by its logic.
SELECT w.id, r.id FROM workflows w JOIN runs r ON r.id = w.maintenance_run_id
WHERE r.workflow_id <> w.id OR r.status <> 'failed:logic';

-- name: repair_means_maintenance
-- An open repair belongs to a workflow in maintenance.
SELECT t.id FROM maintenance_tasks t JOIN workflows w ON w.id = t.workflow_id
WHERE t.status = 'open' AND w.maintenance = 0;

-- name: held_proposal_is_of_its_workflow
-- A script that waits for a person is one of the workflow that it would repair.
SELECT t.id, v.id FROM maintenance_tasks t JOIN script_versions v ON v.id = t.held_version_id
WHERE t.status = 'open' AND v.workflow_id <> t.workflow_id;

-- name: settlement_waits_behind_its_opening
-- The end of a matter is delivered exactly if its beginning is not still to be delivered.
SELECT d.notice_id, d.sink, d.next_attempt_at FROM deliveries d
LEFT JOIN deliveries o ON o.notice_id = d.notice_id AND o.sink = d.sink AND o.says = 'needs_person'
WHERE d.status = 'waiting' AND d.says = 'settled'
    AND (o.status IS NULL OR (o.status = 'waiting') <> (d.next_attempt_at IS NULL));

-- name: topic_is_read_by_a_declared_consumer
-- The reader of a topic is a declared consumer of its workflow.
SELECT t.id, t.consumer FROM topics t
LEFT JOIN handlers h ON h.workflow_id = t.workflow_id AND h.name = t.consumer
WHERE t.consumer IS NOT NULL AND (h.name IS NULL OR h.kind <> 'consumer' OR h.declared = 0);

-- name: outcome_is_what_the_ledger_says (deep)
-- A run knows of its own mutation what the ledger knows.
SELECT r.id, r.mutation_outcome, m.status, m.resolved_by FROM mutations m JOIN runs r ON r.id = m.run_id
WHERE m.item_id IS NULL AND r.mutation_outcome <> CASE
    WHEN m.status = 'applied' THEN 'success'
    WHEN m.status = 'failed' AND m.resolved_by = 'user_skip' THEN 'skipped'
    -- A refusal is a no, or sends the events back.
    WHEN m.resolved_by IN ('approval_rejected', 'approval_expired') AND r.mutation_outcome = 'skipped' THEN 'skipped'
    WHEN m.status = 'failed' THEN 'failure'
    ELSE '' END;

-- name: result_is_what_the_ledger_says (deep)
-- `next` is given the result that the connector returned, also in a retry of a retry.
SELECT r.id FROM runs r JOIN runs f ON f.id = r.retry_of
WHERE r.mutation_outcome <> f.mutation_outcome
    OR r.mutation_result IS DISTINCT FROM f.mutation_result
    OR r.skip_reason <> f.skip_reason
    OR r.prepare_result IS DISTINCT FROM f.prepare_result;

-- name: outcome_has_a_mutation (deep)
-- A run that is not a retry has an outcome only from its own mutation.
SELECT r.id FROM runs r
WHERE r.mutation_outcome <> '' AND r.retry_of IS NULL
    AND NOT EXISTS (SELECT 1 FROM mutations m WHERE m.identity_key = r.id);

-- name: mutation_is_of_a_consumer_or_an_item (deep)
-- Producers mutate nothing, consumers outside items, jobs inside them.
SELECT m.id, r.kind FROM mutations m JOIN runs r ON r.id = m.run_id
WHERE r.kind = 'producer' OR (r.kind = 'consumer') <> (m.item_id IS NULL);

-- name: event_is_consumed_by_one_commit (deep)
-- A consumed event was held by exactly one run that committed; a pending one by none.
SELECT e.id, e.status FROM events e
WHERE e.status IN ('consumed', 'pending') AND (
    SELECT COUNT(*) FROM reservations h JOIN runs r ON r.number = h.run
    WHERE h.event = e.seq AND r.status = 'committed') <> CASE WHEN e.status = 'consumed' THEN 1 ELSE 0 END;

-- name: applied_effect_never_returns_to_pending (deep)
-- The events of an applied mutation are reserved or consumed: never again pending.
SELECT m.id, e.id, e.status FROM mutations m
JOIN runs r ON r.id = m.run_id
JOIN reservations h ON h.run = r.number
JOIN events e ON e.seq = h.event
WHERE m.status = 'applied' AND m.item_id IS NULL AND e.status NOT IN ('reserved', 'consumed');

-- name: accepted_proposal_ran (deep)
-- A proposal is accepted only as a version of its workflow that was activated.
SELECT p.id, p.version_id FROM proposals p LEFT JOIN script_versions v ON v.id = p.version_id
WHERE p.status = 'accepted' AND (v.activated_at IS NULL OR v.workflow_id IS DISTINCT FROM p.workflow_id);

-- name: one_effect_for_one_event (deep)
-- An event is behind at most one applied mutation, in all runs that held it.
SELECT h.event FROM mutations m JOIN runs r ON r.id = m.run_id JOIN reservations h ON h.run = r.number
WHERE m.status = 'applied' AND m.item_id IS NULL
GROUP BY h.event HAVING COUNT(*) > 1;

-- name: session_counts_its_commits (deep)
-- A session counts the runs that committed in it.
SELECT s.id, s.handler_run_count FROM sessions s
WHERE s.handler_run_count <> (SELECT COUNT(*) FROM runs r WHERE r.session_id = s.id AND r.status = 'committed');

-- name: ended_session_says_how (deep)
-- A completed session has only committed runs; a failed one has one that stopped; the cost is the sum.
SELECT s.id, s.result FROM sessions s
WHERE s.ended_at IS NOT NULL AND (
    (s.result = 'completed') <> NOT EXISTS (SELECT 1 FROM runs r WHERE r.session_id = s.id AND r.status <> 'committed')
    OR s.cost_micros <> (SELECT COALESCE(SUM(r.cost_micros), 0) FROM runs r WHERE r.session_id = s.id));

-- name: roots_are_events_of_the_same_workflow (deep)
-- The cause of an event is an event of the same workflow, and has no cause itself.
SELECT e.id, o.id FROM event_roots c
JOIN events e ON e.seq = c.event JOIN topics te ON te.id = e.topic_id
JOIN events o ON o.seq = c.root JOIN topics tr ON tr.id = o.topic_id
WHERE te.workflow_id <> tr.workflow_id
    OR EXISTS (SELECT 1 FROM event_roots deeper WHERE deeper.event = c.root);

-- name: caused_event_has_a_root (deep)
-- An event counts as an input exactly if nothing is known that caused it.
SELECT e.id, e.caused FROM events e
WHERE e.caused <> CASE WHEN EXISTS (SELECT 1 FROM event_roots c WHERE c.event = e.seq) THEN 1 ELSE 0 END;

-- name: nobody_has_seen_what_was_not_written (deep)
-- A consumer or a run of it has seen only writes that happened.
SELECT h.workflow_id, h.name, h.seen FROM handlers h
WHERE h.seen > (SELECT COALESCE(SUM(t.writes), 0) FROM topics t
    WHERE t.workflow_id = h.workflow_id AND t.consumer = h.name);

-- name: item_is_in_the_history_of_its_run (deep)
-- The run inside an unfinished item is in the history of that attempt.
SELECT i.item_id, i.attempt, i.run_id FROM items i
WHERE i.is_open = 1 AND i.state NOT IN ('done', 'skipped')
    AND NOT EXISTS (SELECT 1 FROM item_runs h WHERE h.run_id = i.run_id AND h.workflow_id = i.workflow_id
        AND h.item_id = i.item_id AND h.attempt = i.attempt);

-- name: earlier_attempts_are_finished (deep)
-- Only the latest attempt at an item can be processing.
SELECT i.item_id, i.attempt FROM items i
WHERE i.state = 'processing'
    AND EXISTS (SELECT 1 FROM items n WHERE n.workflow_id = i.workflow_id AND n.item_id = i.item_id
        AND n.attempt > i.attempt);

-- name: everyone_is_told_the_end (deep)
-- Sinks that are told that a person is needed are told that it is settled, exactly if it is.
SELECT d.notice_id, d.sink FROM deliveries d JOIN notices n ON n.id = d.notice_id
WHERE d.says = 'needs_person' AND (n.settled_at IS NOT NULL) <> EXISTS (
    SELECT 1 FROM deliveries e WHERE e.notice_id = d.notice_id AND e.sink = d.sink AND e.says = 'settled');

-- name: journal_is_found_by_its_workflow (deep)
-- Every entry of the journal about a workflow is in a block that the workflow is known to be in.
SELECT j.seq, w.name FROM journal j JOIN names w ON w.number = j.workflow
WHERE NOT EXISTS (SELECT 1 FROM journal_blocks b WHERE b.workflow = j.workflow AND b.block = j.seq - j.seq % 4096);
