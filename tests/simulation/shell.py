"""People at a shell: what they want goes over the control socket of the process, as bytes, and so does the answer."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import anyio
import msgspec
from anyio.abc import TaskStatus
from anyio.streams.buffered import BufferedByteReceiveStream

from keep_actors import Keep
from keep_actors.control.place import listen
from keep_actors.control.server import Server
from keep_storage.errors import Reason, Rejected

_ANSWER_BYTES_MAX: Final = 1 << 20

COMMANDS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "pause": ("pause", ("workflow",)),
    "resume": ("resume", ("workflow",)),
    "archive": ("archive", ("workflow",)),
    "unarchive": ("unarchive", ("workflow",)),
    "run_now": ("run_now", ("workflow",)),
    "clear_error": ("clear_error", ("workflow",)),
    "stop_run": ("stop", ("workflow",)),
    "revoke": ("revoke", ("workflow", "permission")),
    "publish": ("publish", ("workflow", "topic")),
    "skip_event": ("skip_event", ("workflow", "topic", "message_id")),
    "approve": ("approve", ("approval_id",)),
    "reject": ("reject", ("approval_id",)),
    "resolve": ("resolve", ("mutation_id", "verdict")),
    "amend": ("amend", ("mutation_id",)),
    "rollback": ("rollback", ("workflow", "version")),
}
"""Methods of `Keep` that the shell has: the word on the wire, and its positional arguments."""


class NoAnswer(Exception):
    """It may have happened or not: the process is gone, or says that it does not know."""


class ControlSocket:
    """Serves a `Keep` at a place, as a runtime with `control=PATH` does."""

    def __init__(self, place: Path) -> None:
        self._place = place

    async def run(self, keep: Keep, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        listening = listen(self._place)
        try:
            await Server(listening).run(keep, task_status=task_status)
        finally:
            listening.close()


class Shell:
    """A `Keep` as a person at a shell has it: changes go over the socket, reads look into the same database."""

    def __init__(self, keep: Keep, place: Path) -> None:
        self._keep = keep
        self._place = place

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name not in COMMANDS:
            return cast(Callable[..., Awaitable[Any]], getattr(self._keep, name))
        word, names = COMMANDS[name]

        async def ask(*given: Any, **named: Any) -> Any:
            return await self._ask({"v": 1, "do": word, **dict(zip(names, given, strict=True)), **named})

        return ask

    async def _ask(self, request: dict[str, Any]) -> Any:
        try:
            async with await anyio.connect_unix(self._place) as stream:
                await stream.send(msgspec.json.encode(request) + b"\n")
                line = await BufferedByteReceiveStream(stream).receive_until(b"\n", _ANSWER_BYTES_MAX)
        except (OSError, anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead) as error:
            raise NoAnswer("the connection broke") from error
        reply = msgspec.json.decode(line)
        if (refused := reply.get("error")) is None:
            return _shown(reply["answer"])
        if refused["kind"] == "rejected":
            raise Rejected(Reason(refused["reason"]), refused["words"])
        if refused["kind"] in ("unknown", "unavailable"):
            raise NoAnswer(refused["words"])
        raise AssertionError(f"{request} was answered with {refused}")


def _shown(value: Any) -> Any:
    """An answer, with attributes where the library's has some."""
    if isinstance(value, dict):
        return SimpleNamespace(**{key: _shown(each) for key, each in value.items()})
    return [_shown(each) for each in value] if isinstance(value, list) else value
