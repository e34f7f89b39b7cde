"""A demo's folder: the names of what is in it. It is made, or made anew; what is not a demo's is never touched."""

import fcntl
import os
from importlib.resources import files
from pathlib import Path
from typing import Final

from keep_storage.ownership import owner_of

SCRIPTS: Final = ("mail_to_sheet.js", "mail_digest.js", "payments.js")
_MARK: Final = ".keep-demo"


class NotOurs(Exception):
    """The folder cannot be used. The text is for people."""


def script(name: str) -> str:
    """One of the scripts, as it is shipped."""
    return (files("keep_actors.demo") / name).read_text("utf-8")


class Folder:
    """Where a demo lives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.db = path / "keep.db"
        self.outside = path / "outside.jsonl"
        """What happened outside. Only the services write it."""
        self.address = path / "services.json"
        """Where the services listen, while they do."""
        self.log = path / "runtime.log"
        self._mark = path / _MARK

    @property
    def is_demo(self) -> bool:
        return self._mark.is_file()

    def begin(self) -> int:
        """Make the folder, or empty one of an earlier demo, and write the scripts. Raises `NotOurs`.

        Returns a descriptor: while it is open nobody else begins a demo here.
        """
        if self.path.exists() and not self.is_demo and (not self.path.is_dir() or any(self.path.iterdir())):
            raise NotOurs(f"{self.path} is there, and no demo's folder: nothing in it is touched. Name another: --dir")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = self._lock()
            if (owner := owner_of(self.db)) is not None:
                raise NotOurs(f"A runtime has {self.db} (process {owner}). End it, or name another folder: --dir")
            for each in self._made():
                each.unlink(missing_ok=True)
            for name in SCRIPTS:
                (self.path / name).write_text(script(name), "utf-8")
        except OSError as error:
            raise NotOurs(f"{self.path} cannot be used: {error.strerror}. Name another folder: --dir") from None
        return lock

    def _lock(self) -> int:
        # Two demos in one folder would delete each other's files. A runtime of `keep run` locks its database itself.
        lock = os.open(self._mark, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise NotOurs(f"Another demo is running in {self.path}. Wait for its end, or name another: --dir") from None
        return lock

    def _made(self) -> list[Path]:
        beside = [self.db.with_name(f"{self.db.name}{end}") for end in ("", "-wal", "-shm", "-owner", "-control")]
        return [*beside, self.outside, self.address, self.log]
