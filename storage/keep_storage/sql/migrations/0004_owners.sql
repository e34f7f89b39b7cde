-- A workflow says to whom it belongs, as the caller who deployed it named them. Workflows of one owner may share a process.

ALTER TABLE workflows ADD COLUMN owner                TEXT NOT NULL DEFAULT '';
