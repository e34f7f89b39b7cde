"""`files` as a subject of certification, on a real folder. The system itself tells how often each name changed.

A log has the text of a call as often as it was added. Two calls with one key are two effects: the runtime makes one.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Final

from keep_actors.connectors import Connector
from keep_actors.services.files import Files, FilesSettings
from keep_actors.testing.certification import Certification, RunningService
from tests.services.files.inotify import FolderEvents

_FILES: Final = 3_000
_LOG: Final = "log.txt"


class FilesCertification(Certification):
    """A folder with files to delete and to move."""

    refuses_repetition: ClassVar[bool] = False

    def __init__(self) -> None:
        self._events: FolderEvents | None = None

    @asynccontextmanager
    async def service(self) -> AsyncIterator[RunningService]:
        """Make the folder, and watch it."""
        with TemporaryDirectory(prefix="keep-files-") as name:
            root = Path(name)
            (root / "moved").mkdir()
            for number in range(_FILES):
                (root / f"delete-{number}").touch()
                (root / f"move-{number}").touch()
            with FolderEvents(root, root / "moved") as self._events:
                yield RunningService(places={"root": str(root)})

    def connector(self, service: RunningService) -> Connector:
        """The connector on this folder."""
        return Files(FilesSettings(root=Path(service.places["root"]), allow=("read", "write")), name="notes")

    def example(self, method: str, number: int) -> Mapping[str, Any]:
        """A name of its own for each number; all texts are added to one log."""
        match method:
            case "write":
                return {"path": f"write-{number}", "text": f"text {number}"}
            case "append":
                return {"path": _LOG, "text": f"line {number}.\n"}
            case "delete":
                return {"path": f"delete-{number}"}
            case "move":
                return {"path": f"move-{number}", "to": f"moved/{number}"}
            case _:
                return {"path": f"folder-{number}"}

    async def effects(self, service: RunningService, method: str, params: Mapping[str, Any]) -> int:
        """Count what the system has told."""
        root = Path(service.places["root"])
        assert self._events is not None, "the service runs"
        match method:
            case "append":
                log = root / _LOG
                return log.read_text("utf-8").splitlines(keepends=True).count(params["text"]) if log.exists() else 0
            case "delete":
                return self._events.went(root / params["path"])
            case "move":
                return self._events.came(root / params["to"])
            case _:
                return self._events.came(root / params["path"])
