-- Scripts that were proposed from outside, such as by an assistant: held until a person accepts or rejects them.

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
