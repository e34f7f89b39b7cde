"""The place of the control socket, and who may use it: the user that runs the runtime, and root.

It appears only once it is ready and closed to other users: a client finds a runtime there, or a dead one's socket.
"""

import errno
import os
import secrets
import socket
import stat
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anyio.abc import SocketListener

_ADDRESS_BYTES_MAX: Final = 100
"""Fits into the address of a Unix socket everywhere (Linux takes 107 bytes, others 103)."""
_BACKLOG: Final = 64
_DESCRIPTORS: Final = Path("/proc/self/fd")
_NO_LISTENER: Final = frozenset({errno.ENOENT, errno.ECONNREFUSED, errno.ENOTSOCK, errno.ENOTDIR})


class ControlUnavailable(Exception):
    """There can be no control socket at this place. The text says why and what to do."""


NO_SOCKETS: Final = (
    "Python has no Unix sockets on this system, so other processes cannot reach a runtime. Use `Keep` in the process "
    "of the runtime. Commands that only read (`keep status`, `keep attention`, …) use the file; those that need no "
    "runtime, and `keep run FILE.js`, work once it has ended"
)
"""The reason why there is no control socket on a system, and what to do without."""


class NoRuntimeThere(Exception):
    """No runtime listens at this place."""


def has_sockets() -> bool:
    """True if this system has the sockets for it, and the users that may use one."""
    return hasattr(socket, "AF_UNIX") and hasattr(os, "geteuid")


def place_of(database: Path) -> Path:
    """Beside the database file, whatever link it was named by."""
    return Path(f"{database.resolve()}-control")


@asynccontextmanager
async def listening(place: Path) -> "AsyncIterator[SocketListener]":
    """Listen at a place, for the block. A dead runtime's socket is replaced; a living one, or a file, is not.

    At the end the socket is removed, unless another one has taken its place. Raises `ControlUnavailable`.
    """
    if not has_sockets():
        raise ControlUnavailable(f"There is no control socket here: {NO_SOCKETS}. Open it without `control`.")
    import anyio  # here: a client loads no event loop

    _refuse_to_replace(place)
    # Under a name that is known to no one, until it is ready: bound, closed to other users, and listening.
    hidden = place.with_name(f".{secrets.token_hex(6)}.sock")
    try:
        with _reachable(hidden) as address:
            listener = await anyio.create_unix_listener(address, mode=0o600, backlog=_BACKLOG)
    except OSError as error:
        raise _unavailable(place, hidden, error) from error
    async with listener:
        try:
            made = _identity(hidden)
            hidden.rename(place)
        except OSError as error:
            raise _unavailable(place, hidden, error) from error
        try:
            yield listener
        finally:
            _remove(place, made)


def _remove(place: Path, made: tuple[int, int]) -> None:
    with suppress(FileNotFoundError):
        if _identity(place) == made:
            place.unlink()


def _unavailable(place: Path, hidden: Path, error: OSError) -> ControlUnavailable:
    with suppress(OSError):
        hidden.unlink()
    return ControlUnavailable(
        f"A control socket cannot be created at {place}: {error.strerror or error}. Name another place, in a folder "
        "of a local disk, or open the runtime without `control`."
    )


def connect(place: Path, trusted_uid: int, timeout_s: float) -> socket.socket:
    """A connection to the runtime at a place. Raises `NoRuntimeThere`, or `PermissionError` if it is another user's.

    The listener must be this user's, root's, or that of `trusted_uid`, the owner of the database: it is told scripts
    and verdicts.
    """
    if not has_sockets():
        raise NoRuntimeThere(f"No runtime listens at {place}: {NO_SOCKETS}.")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        with _connectable(place) as address:
            connection.connect(address)
    except OSError as error:
        connection.close()
        if error.errno in _NO_LISTENER:
            raise NoRuntimeThere(f"No runtime listens at {place}.") from error
        raise
    listening = peer_uid(connection)
    if listening is not None and listening not in (os.geteuid(), 0, trusted_uid):
        connection.close()
        raise PermissionError(errno.EPERM, f"user {listening} listens there, who does not own the database")
    return connection


def peer_uid(connection: socket.socket) -> int | None:
    """The user at the other end, as the system knows it; None where it does not say."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return int(uid)


def _refuse_to_replace(place: Path) -> None:
    try:
        found = place.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ControlUnavailable(f"A control socket cannot be created at {place}: {error.strerror}.") from error
    if not stat.S_ISSOCK(found.st_mode):
        raise ControlUnavailable(f"{place} is a file, not a socket, and was left as it is. Move it, or name another.")
    try:
        connect(place, os.geteuid(), timeout_s=1).close()
    except NoRuntimeThere:
        return
    except OSError as error:
        raise ControlUnavailable(f"{place} is another user's socket ({error.strerror}). Name another place.") from error
    raise ControlUnavailable(f"Another runtime listens at {place}. Name another place.")


@contextmanager
def _reachable(path: Path) -> Iterator[str]:
    """An address for a socket that is to be made: the path itself, or a short way through its folder."""
    if len(os.fsencode(path)) <= _ADDRESS_BYTES_MAX:
        yield str(path)
        return
    with _descriptor(path.parent) as folder:
        yield str(folder / path.name)


@contextmanager
def _connectable(path: Path) -> Iterator[str]:
    """An address for a socket that is there, however long its path."""
    if len(os.fsencode(path)) <= _ADDRESS_BYTES_MAX:
        yield str(path)
        return
    with _descriptor(path) as itself:
        yield str(itself)


@contextmanager
def _descriptor(target: Path) -> Iterator[Path]:
    if not _DESCRIPTORS.is_dir():
        raise OSError(errno.ENAMETOOLONG, f"its path has more than {_ADDRESS_BYTES_MAX} bytes")
    descriptor = os.open(target, os.O_PATH | os.O_CLOEXEC)
    try:
        yield _DESCRIPTORS / str(descriptor)
    finally:
        os.close(descriptor)


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino
