-- Rules that several queries ask. Each is a temporary view of every connection, made from this file: a database may
-- come from others, so no view that is stored in one is ever opened.

-- name: needs_attention
-- Each matter that waits for a person, or has waited for long: its kind, the row that it is about, its run, its time,
-- and what it waits on before a person is called (`WaitsOn` in states.py). An archived workflow has only its questions
-- and the calls that may have happened. (SQLite looks into a view only if the types of its parts agree: so the casts.)
SELECT a.workflow_id, 'approval' AS kind, a.id AS about, m.run_id, a.requested_at AS since, 'person' AS waits_on
FROM approvals a JOIN mutations m ON m.id = a.mutation_id
WHERE a.status = 'open'
UNION ALL
SELECT w.id, 'repair', k.held_version_id, k.run_id, k.created_at, 'person'
FROM workflows w JOIN maintenance_tasks k ON k.workflow_id = w.id AND k.status = 'open'
WHERE w.maintenance = 1 AND w.status <> 'archived' AND k.held_version_id IS NOT NULL
UNION ALL
SELECT w.id, 'maintenance', CAST(NULL AS TEXT), w.maintenance_run_id, w.updated_at,
    CASE WHEN w.error = '' THEN 'maintainer' ELSE 'person' END
FROM workflows w
WHERE w.maintenance = 1 AND w.status <> 'archived' AND NOT EXISTS (SELECT 1 FROM maintenance_tasks k
    WHERE k.workflow_id = w.id AND k.status = 'open' AND k.held_version_id IS NOT NULL)
UNION ALL
SELECT w.id, 'error', CAST(NULL AS TEXT), w.error_run_id, w.updated_at, 'person'
FROM workflows w
WHERE w.error <> '' AND w.maintenance = 0 AND w.status <> 'archived' AND NOT EXISTS (SELECT 1 FROM mutations m
    WHERE m.workflow_id = w.id AND m.run_id = w.error_run_id AND m.status NOT IN ('applied', 'failed'))
UNION ALL
SELECT m.workflow_id, 'unknown', m.id, m.run_id, m.created_at, CASE
    WHEN m.status = 'indeterminate' THEN 'person'
    WHEN m.status = 'needs_reconcile' THEN 'connector'
    WHEN w.status = 'archived' THEN 'call'
    ELSE 'approved_call' END
FROM mutations m JOIN runs r ON r.id = m.run_id JOIN workflows w ON w.id = m.workflow_id
WHERE m.status NOT IN ('applied', 'failed') AND m.status <> 'pending' AND (r.status <> 'active' OR w.status = 'archived')
UNION ALL
SELECT h.workflow_id, 'failing', h.name, CAST(NULL AS TEXT), h.failing_since, 'retry'
FROM handlers h JOIN workflows w ON w.id = h.workflow_id
WHERE h.failing_since IS NOT NULL AND h.retry_at IS NOT NULL AND h.declared = 1
    AND w.status = 'active' AND w.error = '' AND w.maintenance = 0
    AND (h.kind <> 'consumer' OR h.wake_at IS NOT NULL OR w.pending_retry_run_id IS NOT NULL
        OR EXISTS (SELECT 1 FROM runs r WHERE r.workflow_id = h.workflow_id AND r.status = 'active')
        OR EXISTS (SELECT 1 FROM topics t JOIN events e ON e.topic_id = t.id AND e.status = 'pending'
            WHERE t.workflow_id = h.workflow_id AND t.consumer = h.name))
UNION ALL
SELECT t.workflow_id, 'stale', e.id, CAST(NULL AS TEXT), e.created_at, 'look'
FROM topics t JOIN workflows w ON w.id = t.workflow_id JOIN events e ON e.seq = (
    SELECT o.seq FROM events o WHERE o.topic_id = t.id AND o.status = 'pending' ORDER BY o.seq LIMIT 1)
WHERE t.consumer IS NOT NULL AND w.status <> 'archived'
UNION ALL
SELECT a.workflow_id, 'expired', m.id, m.run_id, a.decided_at, 'look'
FROM approvals a JOIN workflows w ON w.id = a.workflow_id JOIN mutations m ON m.id = a.mutation_id
WHERE a.status = 'expired' AND w.status <> 'archived'
    AND m.status = 'failed' AND m.resolved_by = 'approval_expired' AND m.resolved_at = a.decided_at
    AND a.id = (SELECT l.id FROM approvals l WHERE l.mutation_id = m.id ORDER BY l.requested_at DESC, l.id DESC LIMIT 1);

-- name: journal_entries
-- The journal in words: the names and ids behind its numbers. LEFT JOIN: from the entries to their names, and never the
-- other way.
SELECT j.seq, j.at, o.name AS operation, w.name AS workflow_id, r.id AS run_id, j.changed, j.why
FROM journal j LEFT JOIN names o ON o.number = j.operation LEFT JOIN names w ON w.number = j.workflow
LEFT JOIN runs r ON r.number = j.run;

-- name: runs_of_events
-- Which run held which event, by their ids.
SELECT r.id AS run_id, e.id AS event_id, h.attempt, h.reserved_at
FROM reservations h JOIN events e ON e.seq = h.event JOIN runs r ON r.number = h.run;
