"""An entry of the journal as a line: for people, or for programs."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from keep_actors.cli.terminal import json_line, plain
from keep_storage.ids import Millis
from keep_storage.model import JournalEntry


def as_text(entry: JournalEntry) -> str:
    changed = msgspec.json.decode(entry.changed)
    words = ", ".join(f"{name} {_word(name, value)}" for name, value in changed.items() if value not in (None, ""))
    why = f": {entry.why}" if entry.why else ""
    whom = entry.run_id or entry.workflow_id or ""
    return plain(f"{_clock(entry.at)} {entry.seq:>6}  {entry.operation:<26} {whom:<32} {words}{why}")


def as_json(entry: JournalEntry) -> str:
    return json_line(msgspec.structs.asdict(entry) | {"changed": msgspec.Raw(entry.changed.encode())})


def _word(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{each} {_word(each, what)}" for each, what in value.items())
    if isinstance(value, list):
        return " → ".join(str(each) if each != "" else "none" for each in value)
    return _clock(value) if name in ("due", "wake_at") else str(value)


def _clock(at: Millis) -> str:
    # UTC, whoever reads it: lines of several machines are compared.
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
