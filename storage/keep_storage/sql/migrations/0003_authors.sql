-- A version says who wrote it, as the caller who deployed it named them. Grants are for the words of one author.

ALTER TABLE script_versions ADD COLUMN author       TEXT NOT NULL DEFAULT '';
