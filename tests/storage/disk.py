"""A disk in memory, as an APSW VFS, that loses power, fills up, fails its syncs or turns read-only on demand.

What was synced is kept. What was written and not synced may be lost, reordered or torn when the power fails.
It has no shared memory, so every connection says `PRAGMA locking_mode=EXCLUSIVE` before it touches the WAL;
otherwise `PRAGMA journal_mode=WAL` answers "delete", and a database already in WAL mode cannot be opened.
"""
# ruff: noqa: N802 - the method names are SQLite's

import enum
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import apsw

# The unit that tears. SQLite is told the same number: it pads every commit in the WAL to a full sector, so a
# larger number would protect it more than this disk deserves, and a smaller one would be a lie.
SECTOR_BYTES: Final = 512


class Survival(enum.Enum):
    """What becomes of the unsynced writes when the power fails."""

    DROPPED = "none made it"
    KEPT = "all made it"
    SHUFFLED = "each made it or not, in any order"
    TORN = "as shuffled, and of a write perhaps only some sectors"


class Fault(enum.Enum):
    POWER = "power lost"
    FULL = "disk full"
    SYNC = "sync failed"
    READ_ONLY = "read-only medium"


class Disk(apsw.VFS):
    """A disk that forgets what was not synced when the power fails."""

    def __init__(self, name: str, files: Mapping[str, bytes] | None = None) -> None:
        self.vfs_name: Final = name
        self.syncs = 0
        # The last fault that struck, for a test that must know whether its own did.
        self.fail: Fault | None = None
        self.read_only = False
        self._files = {path: _File(content) for path, content in (files or {}).items()}
        self._power_lost_at: int | None = None
        self._power_is_lost = False
        self._bytes_left: int | None = None
        self._syncs_fail = False
        # The default VFS, below this one, is left with time, randomness and sleep.
        super().__init__(name, base="")

    def lose_power_at(self, sync: int) -> None:
        """This sync, counted from 1, makes nothing durable: it fails, and so does every later disk call."""
        assert sync > self.syncs, "that sync is in the past"
        self._power_lost_at = sync

    def full_after(self, bytes_left: int | None) -> None:
        """Writes beyond this fail, after writing what fits; None makes space again.

        Every byte written counts, as on a copy-on-write filesystem: overwriting in place fails too.
        """
        self._bytes_left = bytes_left

    def fail_syncs(self, failing: bool) -> None:
        """Every sync fails while this is set. What it left unsynced waits for the next sync that succeeds."""
        self._syncs_fail = failing

    def survivors(self, rng: random.Random, mode: Survival) -> dict[str, bytes]:
        """What is on the platter if the power fails now, or was when it failed."""
        return {path: file.survivor(rng, mode) for path, file in self._files.items()}

    def contents(self) -> dict[str, bytes]:
        """What the process sees, and so what it leaves behind when it is killed and the machine stays up."""
        return {path: bytes(file.current) for path, file in self._files.items()}

    def close(self) -> None:
        """Unregister, and cut the power, so that a connection closed late has no disk to checkpoint to."""
        self._power_is_lost = True
        self.unregister()

    # Creating or deleting a file is durable at once. On a real disk the directory has to be synced for that;
    # the unix VFS of SQLite does so itself before anything relies on it, and this model has no directories.

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> Any:
        self._need_power(apsw.SQLITE_CANTOPEN)
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        flags[1] = flags[0]
        if path is None or flags[0] & apsw.SQLITE_OPEN_DELETEONCLOSE:
            return _Handle(self, _File(b""))  # temporary: not on the platter
        if path not in self._files:
            if not flags[0] & apsw.SQLITE_OPEN_CREATE:
                raise apsw.exception_for(apsw.SQLITE_CANTOPEN)
            if self.read_only:
                self._strike(Fault.READ_ONLY, apsw.SQLITE_CANTOPEN)
            self._files[path] = _File(b"")
        if self.read_only:
            # As the unix VFS does: what cannot be opened for writing is opened for reading.
            flags[1] &= ~(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
            flags[1] |= apsw.SQLITE_OPEN_READONLY
        return _Handle(self, self._files[path], bool(flags[0] & apsw.SQLITE_OPEN_MAIN_JOURNAL))

    def xDelete(self, path: str, _sync_directory: bool) -> None:
        self._need_power(apsw.SQLITE_IOERR_DELETE)
        if self.read_only:
            self._strike(Fault.READ_ONLY, apsw.SQLITE_IOERR_DELETE)
        if self._files.pop(path, None) is None:
            raise apsw.exception_for(apsw.SQLITE_IOERR_DELETE_NOENT)

    def xAccess(self, path: str, flags: int) -> bool:
        self._need_power(apsw.SQLITE_IOERR_ACCESS)
        return path in self._files and not (self.read_only and flags == apsw.SQLITE_ACCESS_READWRITE)

    def xFullPathname(self, path: str) -> str:
        return path

    def _need_power(self, code: int) -> None:
        if self._power_is_lost:
            self._strike(Fault.POWER, code)

    def _need_writable(self, code: int) -> None:
        self._need_power(code)
        if self.read_only:
            self._strike(Fault.READ_ONLY, apsw.SQLITE_READONLY)

    def _take_space(self, wanted: int) -> int:
        if self._bytes_left is None:
            return wanted
        taken = min(wanted, self._bytes_left)
        self._bytes_left -= taken
        return taken

    def _begin_sync(self) -> None:
        self._need_power(apsw.SQLITE_IOERR_FSYNC)
        self.syncs += 1
        if self.syncs == self._power_lost_at:
            self._power_is_lost = True
        self._need_power(apsw.SQLITE_IOERR_FSYNC)
        if self._syncs_fail:
            self._strike(Fault.SYNC, apsw.SQLITE_IOERR_FSYNC)

    def _has_power(self) -> bool:
        return not self._power_is_lost

    def _strike(self, fault: Fault, code: int) -> NoReturn:
        self.fail = fault
        error = apsw.exception_for(code)
        error.args = (f"simulated: {fault.value}",)
        raise error


@dataclass(frozen=True, slots=True)
class _Write:
    offset: int
    data: bytes

    def apply(self, image: bytearray) -> None:
        end = self.offset + len(self.data)
        image.extend(bytes(max(0, end - len(image))))
        image[self.offset : end] = self.data

    def sectors(self) -> Iterator["_Write"]:
        """The same write in pieces, cut where the sectors of the disk meet."""
        start, end = self.offset, self.offset + len(self.data)
        while start < end:
            stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
            yield _Write(start, self.data[start - self.offset : stop - self.offset])
            start = stop


@dataclass(frozen=True, slots=True)
class _Truncate:
    size: int

    def apply(self, image: bytearray) -> None:
        del image[self.size :]
        image.extend(bytes(self.size - len(image)))


class _File:
    """A durable image, what was done since the last sync, and the sum of the two as the process sees it."""

    def __init__(self, content: bytes) -> None:
        self.durable = bytearray(content)
        self.pending: list[_Write | _Truncate] = []
        self.current = bytearray(content)
        self.locks: dict[_Handle, int] = {}

    def do(self, op: _Write | _Truncate) -> None:
        op.apply(self.current)
        self.pending.append(op)

    def sync(self) -> None:
        for op in self.pending:
            op.apply(self.durable)
        self.pending.clear()

    def survivor(self, rng: random.Random, mode: Survival) -> bytes:
        image = bytearray(self.durable)
        for op in self._surviving(rng, mode):
            op.apply(image)
        return bytes(image)

    def _surviving(self, rng: random.Random, mode: Survival) -> list[_Write | _Truncate]:
        if mode is Survival.DROPPED:
            return []
        if mode is Survival.KEPT:
            return self.pending
        pieces: list[_Write | _Truncate] = []
        for op in self.pending:
            if mode is Survival.TORN and isinstance(op, _Write) and rng.random() < 0.5:
                pieces.extend(op.sectors())
            else:
                pieces.append(op)
        # The odds are drawn too: with a fixed half, "all but one" would never be seen among many writes.
        odds = rng.random()
        return [piece for piece in rng.sample(pieces, len(pieces)) if rng.random() < odds]


class _Handle:
    def __init__(self, disk: Disk, file: _File, is_journal: bool = False) -> None:
        self._disk = disk
        self._file = file
        self._is_journal = is_journal

    def xRead(self, amount: int, offset: int) -> bytes:
        self._disk._need_power(apsw.SQLITE_IOERR_READ)
        return bytes(self._file.current[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk._need_writable(apsw.SQLITE_IOERR_WRITE)
        fitting = self._disk._take_space(len(data))
        if fitting:
            self._file.do(_Write(offset, bytes(data[:fitting])))
        if fitting < len(data):
            self._disk._strike(Fault.FULL, apsw.SQLITE_FULL)

    def xTruncate(self, size: int) -> None:
        self._disk._need_writable(apsw.SQLITE_IOERR_TRUNCATE)
        self._file.do(_Truncate(size))

    def xSync(self, _flags: int) -> None:
        if self._is_journal and not self._disk._has_power():
            # Closing syncs a leftover rollback journal, where an exception would only be noise. No commit can
            # be acknowledged on the strength of this: it would have to write first.
            return
        self._disk._begin_sync()
        self._file.sync()

    def xFileSize(self) -> int:
        return len(self._file.current)  # the kernel knows it: not a disk call, and closing asks for it

    def xLock(self, level: int) -> None:
        if not self._disk._has_power() and self._file.locks.get(self) == apsw.SQLITE_LOCK_EXCLUSIVE:
            # Only closing asks for the lock it already has, before its last checkpoint. Busy is the one
            # answer that APSW passes on without keeping the exception: the checkpoint is skipped, quietly.
            raise apsw.BusyError
        self._disk._need_power(apsw.SQLITE_IOERR_LOCK)
        others = max((held for handle, held in self._file.locks.items() if handle is not self), default=0)
        allowed_beside = {
            apsw.SQLITE_LOCK_SHARED: apsw.SQLITE_LOCK_RESERVED,
            apsw.SQLITE_LOCK_RESERVED: apsw.SQLITE_LOCK_SHARED,
            apsw.SQLITE_LOCK_PENDING: apsw.SQLITE_LOCK_SHARED,
            apsw.SQLITE_LOCK_EXCLUSIVE: apsw.SQLITE_LOCK_NONE,
        }
        if others > allowed_beside[level]:
            raise apsw.BusyError
        self._file.locks[self] = max(level, self._file.locks.get(self, 0))

    def xUnlock(self, level: int) -> None:
        self._file.locks[self] = level

    def xCheckReservedLock(self) -> bool:
        return any(held >= apsw.SQLITE_LOCK_RESERVED for held in self._file.locks.values())

    def xClose(self) -> None:
        self._file.locks.pop(self, None)

    def xSectorSize(self) -> int:
        return SECTOR_BYTES

    def xDeviceCharacteristics(self) -> int:
        return 0  # nothing is promised: no atomic write, no powersafe overwrite, no order

    def xFileControl(self, _op: int, _pointer: int) -> bool:
        return False
