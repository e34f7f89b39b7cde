"""People at a shell: what they want goes over the control socket of the process, as bytes, and so does the answer."""

import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import anyio
import msgspec
from anyio.abc import SocketListener, TaskStatus
from anyio.streams.buffered import BufferedByteReceiveStream

from keep_actors import Keep
from keep_actors.control.server import Server
from keep_storage.errors import Reason, Rejected

_ANSWER_BYTES_MAX: Final = 1 << 20

POSITIONAL: Final[dict[str, tuple[str, ...]]] = {
    "pause": ("workflow",),
    "resume": ("workflow",),
    "archive": ("workflow",),
    "unarchive": ("workflow",),
    "run_now": ("workflow",),
    "clear_error": ("workflow",),
    "stop_run": ("workflow",),
    "revoke": ("workflow", "permission"),
    "publish": ("workflow", "topic"),
    "skip_event": ("workflow", "topic", "message_id"),
    "approve": ("approval_id",),
    "reject": ("approval_id",),
    "resolve": ("mutation_id", "verdict"),
    "amend": ("mutation_id",),
    "rollback": ("workflow", "version"),
}
"""Methods of `Keep` that the shell has, with their positional arguments: the word on the wire is the method's name."""


class NoAnswer(Exception):
    """It may have happened or not: the process is gone, or says that it does not know."""


class ControlSocket:
    """Serves a `Keep` at a place, as a runtime with `control=PATH` does."""

    def __init__(self, place: Path) -> None:
        self._place = place

    async def run(self, keep: Keep, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        # By hand, and not with `listening`: that binds in a thread, whose time no seed decides.
        self._place.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(self._place))
            bound.listen()
            bound.setblocking(False)
            async with await SocketListener.from_socket(bound) as listener:
                await Server(listener).run(keep, task_status=task_status)


class Shell:
    """A `Keep` as a person at a shell has it: changes go over the socket, reads look into the same database."""

    def __init__(self, keep: Keep, place: Path) -> None:
        self._keep = keep
        self._place = place

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name not in POSITIONAL:
            return cast(Callable[..., Awaitable[Any]], getattr(self._keep, name))
        names = POSITIONAL[name]

        async def ask(*given: Any, **named: Any) -> Any:
            return await self._ask({"v": 1, "do": name, **dict(zip(names, given, strict=True)), **named})

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
