"""The note of a call about a file: all that its `reconcile` has, beside the parameters."""

import msgspec

from keep_actors.connectors import MutationCall
from keep_actors.services.files.folder import SeenFile


class FileNote(msgspec.Struct, frozen=True):
    """A call that is about to be sent. No note: it never was."""

    mark: str = ""
    """The name of its own file beside the target."""
    seen: SeenFile | None = None
    """The target before. None: there was none."""


async def write_note(call: MutationCall, note: FileNote) -> None:
    """Make it durable."""
    await call.note(msgspec.json.encode(note).decode())


async def forget_note(call: MutationCall) -> None:
    """Take it back: the call was not made, and that is known."""
    await call.note("")


def noted_by(call: MutationCall) -> FileNote | None:
    """The note of the last attempt, if it came so far."""
    return msgspec.json.decode(call.noted, type=FileNote) if call.noted else None
