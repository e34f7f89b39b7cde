-- What a connector noted about the attempt that it was making: the id that the service gave to it.

ALTER TABLE mutations ADD COLUMN note               TEXT NOT NULL DEFAULT ''
        CONSTRAINT note_is_bounded CHECK (length(note) <= 2000);
