"""The mutations, as they are offered if the settings allow to write: each with the way to find out its outcome."""

import base64
import binascii
from typing import Annotated, Any, Final

import msgspec

from keep_actors.connectors import (
    Applied,
    Connector,
    ConnectorError,
    InvalidCall,
    MutationCall,
    NotApplied,
    PreconditionFailed,
    Retry,
)
from keep_actors.connectors.declaration import Options
from keep_actors.connectors.offered import Offered, Param
from keep_actors.kernel.blocking import Blocking
from keep_actors.services.files import changes
from keep_actors.services.files.folder import hash_of
from keep_actors.services.files.notes import FileNote, forget_note, noted_by, write_note
from keep_actors.services.files.paths import Reach
from keep_actors.services.files.replacement import Edit, FileEvidence, FilePlace, clear, lay, look, replace
from keep_actors.services.files.settings import FilesSettings
from keep_actors.services.files.values import AppendedText, ChangedPath, WrittenFile

_BEHIND: Final = "this call wrote the file, but it has another content now, or is gone; a person has to look"
_HINT: Final = "Look at the file in the folder of the connector."
_HASH: Final = Param(name="expected_hash", spelled="expectedHash", type=str, default="")

FileVerdict = Applied | NotApplied | Retry


class FileMutations:
    """The changes that a script can make below one root."""

    def __init__(self, settings: FilesSettings, reach: Reach, threads: Blocking) -> None:
        self._settings = settings
        self._reach = reach
        self._threads = threads

    def offers(self) -> list[Offered]:
        """All of them, as data."""
        path = Param(name="path", type=str)
        text = Annotated[str, msgspec.Meta(min_length=1)]
        return [
            Offered(
                function=self.write,
                options=_options("write", "path"),
                params=[
                    path,
                    Param(name="text", type=str | msgspec.UnsetType, default=msgspec.UNSET),
                    Param(name="content", spelled="base64", type=str | msgspec.UnsetType, default=msgspec.UNSET),
                    Param(name="if_absent", spelled="ifAbsent", type=bool, default=False),
                    _HASH,
                ],
                result=WrittenFile,
                description="Write a file as a whole. `ifAbsent`, `expectedHash`: only if it is as you know it.",
                reconciler=self.find_written,
            ),
            Offered(
                function=self.append,
                options=_options("append", "path"),
                params=[path, Param(name="text", type=text)],
                result=AppendedText,
                description="Add a text to the end of a file, which is made if it is not there.",
                reconciler=self.find_appended,
            ),
            Offered(
                function=self.delete,
                options=_options("delete", "path"),
                params=[path, _HASH],
                result=ChangedPath,
                description="Delete a file.",
                reconciler=self.find_deleted,
            ),
            Offered(
                function=self.move,
                options=_options("move", "path", "to"),
                params=[path, Param(name="to", type=str)],
                result=ChangedPath,
                description="Give a file another name, in the same or another folder. No other file may have it.",
                reconciler=self.find_moved,
            ),
            Offered(
                function=self.make_folder,
                options=_options("makeFolder", "path"),
                params=[path],
                result=ChangedPath,
                description="Make a folder. One that is there stays as it is.",
                reconciler=self.find_folder,
            ),
        ]

    async def write(
        self,
        _: Connector,
        path: str,
        text: str | msgspec.UnsetType,
        content: str | msgspec.UnsetType,
        if_absent: bool,
        expected_hash: str,
        call: MutationCall,
    ) -> WrittenFile:
        """Write a whole file."""
        new = _content(text, content)
        has_condition = if_absent or bool(expected_hash)
        edit = _whole(path, new, if_absent, expected_hash)
        await self._replace(self._place(path), call, edit, needs_content=has_condition)
        return WrittenFile(path, len(new), hash_of(new))

    async def find_written(self, _: Connector, call: MutationCall) -> FileVerdict:
        """Tell if the content of a call is in its place."""
        found = await self._look(call)
        if isinstance(found, NotApplied):
            return found
        new = _content(call.params["text"], call.params["content"])
        return Applied(WrittenFile(call.params["path"], len(new), hash_of(new))) if found == new else Retry(_BEHIND)

    async def append(self, _: Connector, path: str, text: str, call: MutationCall) -> AppendedText:
        """Add to a file."""
        added = text.encode()
        await self._replace(self._place(path), call, lambda old: (old or b"") + added, needs_content=True)
        return AppendedText(path, len(added))

    async def find_appended(self, _: Connector, call: MutationCall) -> FileVerdict:
        """Tell if the text of a call is in its file. Others may have added to it since."""
        found = await self._look(call)
        if isinstance(found, NotApplied):
            return found
        added = call.params["text"].encode()
        is_in = found is not None and added in found
        return Applied(AppendedText(call.params["path"], len(added))) if is_in else Retry(_BEHIND)

    async def delete(self, _: Connector, path: str, expected_hash: str, call: MutationCall) -> ChangedPath:
        """Remove a file."""
        target = self._reach.file(path)
        seen = await self._threads.run(changes.see, self._settings, target, expected_hash)
        await write_note(call, FileNote(seen=seen))
        return await self._threads.run(changes.delete, self._settings, target, seen, call)

    async def find_deleted(self, _: Connector, call: MutationCall) -> FileVerdict:
        """Tell if the file of a call is gone."""
        note = noted_by(call)
        if note is None or note.seen is None:
            return NotApplied()
        target = self._reach.file(call.params["path"])
        return await self._threads.run(changes.find_deleted, self._settings, target, note.seen)

    async def move(self, _: Connector, path: str, to: str, call: MutationCall) -> ChangedPath:
        """Rename a file."""
        source, target = self._reach.file(path), self._reach.file(to)
        await self._threads.run(changes.see_free, self._settings, target)
        seen = await self._threads.run(changes.see, self._settings, source, "")
        await write_note(call, FileNote(seen=seen))
        return await self._threads.run(changes.move, self._settings, source, target, seen, call)

    async def find_moved(self, _: Connector, call: MutationCall) -> FileVerdict:
        """Tell which name the file of a call has."""
        note = noted_by(call)
        if note is None or note.seen is None:
            return NotApplied()
        source, target = self._reach.file(call.params["path"]), self._reach.file(call.params["to"])
        return await self._threads.run(changes.find_moved, self._settings, source, target, note.seen)

    async def make_folder(self, _: Connector, path: str, call: MutationCall) -> ChangedPath:
        """Make one folder."""
        target = self._reach.named_folder(path)
        await self._threads.run(changes.see_folder, self._settings, target)
        await write_note(call, FileNote())
        return await self._threads.run(changes.make_folder, self._settings, target, call)

    async def find_folder(self, _: Connector, call: MutationCall) -> FileVerdict:
        """Tell if the folder of a call is there."""
        if noted_by(call) is None:
            return NotApplied()
        target = self._reach.named_folder(call.params["path"])
        return await self._threads.run(changes.find_folder, self._settings, target)

    def _place(self, path: str) -> FilePlace:
        settings = self._settings
        return FilePlace(settings.root, self._reach.file(path), settings.bytes_max, settings.hard_links)

    async def _replace(self, place: FilePlace, call: MutationCall, edit: Edit, *, needs_content: bool) -> None:
        await write_note(call, await self._threads.run(lay, place, call))
        try:
            await self._threads.run(replace, place, call, edit, needs_content, True)
        except ConnectorError:
            # Nothing happened. Without the note its file proves nothing any more, and can go.
            await forget_note(call)
            await self._threads.run(clear, place, call)
            raise

    async def _look(self, call: MutationCall) -> bytes | NotApplied | None:
        """The content that is there now, if the call put its own there."""
        note = noted_by(call)
        if note is None:
            return NotApplied()  # it is durable before anything is sent
        evidence, content = await self._threads.run(look, self._place(call.params["path"]), note)
        return NotApplied() if evidence is FileEvidence.WAITS else content


def _options(name: str, *identity: str) -> Options:
    return Options(
        kind="mutation", risk="medium", name=name, marks_sent=True, identity=list(identity), check_hint=_HINT
    )


def _whole(path: str, new: bytes, if_absent: bool, expected_hash: str) -> Edit:
    def edit(old: bytes | None) -> bytes:
        if if_absent and old is not None:
            raise PreconditionFailed(f"{path}: is there already")
        if expected_hash and (old is None or hash_of(old) != expected_hash):
            raise PreconditionFailed(f"{path} has another content than `expectedHash` says; read it again")
        return new

    return edit


def _content(text: Any, encoded: Any) -> bytes:
    match text, encoded:
        case str(), msgspec.UNSET:
            return text.encode()
        case msgspec.UNSET, str():
            return _decoded(encoded)
        case _:
            raise InvalidCall("give either `text` or `base64`")


def _decoded(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidCall("`base64` is not base64") from None
