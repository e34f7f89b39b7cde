"""A real PostgreSQL on loopback, for as long as a block: with a free port, files of its own, and no password."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

USER: Final = "keep"
_SERVER_USER: Final = "postgres"
_START_S: Final = 30
_TRIES: Final = 10
_PAUSE_S: Final = 0.2


class PostgresServer(NamedTuple):
    """A server that runs."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        """Its database, without a password."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"


def programs() -> Path | None:
    """The folder of the newest PostgreSQL on this machine."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("postgres")
    return found[-1].parent if found else Path(on_path).resolve().parent if on_path else None


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """Start a server, and end it."""
    with postgres_data() as data, serving_postgres(data) as server:
        yield server


@contextmanager
def postgres_data() -> Iterator[Path]:
    """Make the files of a database, which survive their servers."""
    with tempfile.TemporaryDirectory(prefix="keep-pg-", ignore_cleanup_errors=True) as home:
        data = Path(home) / "data"
        data.mkdir()
        _owned(data)
        make = _command(_programs(), "initdb", "-D", str(data), "-A", "trust", "-U", USER, "--no-sync", "-E", "UTF8")
        subprocess.run(make, check=True, capture_output=True)
        yield data


@contextmanager
def serving_postgres(data: Path, port: int = 0) -> Iterator[PostgresServer]:
    """Start a server on these files, and end it. Port 0: a free one."""
    # Another program may take the free port first; and after a kill the last process of the server has to end.
    for _ in range(_TRIES):
        with _serving(data, port) as server:
            if server is not None:
                yield server
                return
        time.sleep(_PAUSE_S)
    raise AssertionError("PostgreSQL does not start")


def _programs() -> Path:
    folder = programs()
    assert folder is not None, "install postgresql"
    return folder


@contextmanager
def _serving(data: Path, wanted: int) -> Iterator[PostgresServer | None]:
    with socket.create_server(("127.0.0.1", wanted)) as free:
        port = free.getsockname()[1]
    folder = _programs()
    options = ("-h", "127.0.0.1", "-p", str(port), "-k", "", "-F", "-c", "max_prepared_transactions=4")
    serve, nowhere = _command(folder, "postgres", "-D", str(data), *options), subprocess.DEVNULL
    with subprocess.Popen(serve, stdin=nowhere, stdout=nowhere, stderr=nowhere) as server:
        try:
            yield PostgresServer(port, server.pid) if _is_ready(folder, server, port) else None
        finally:
            server.send_signal(signal.SIGQUIT)  # at once: its files are thrown away


def _is_ready(folder: Path, server: subprocess.Popen[bytes], port: int) -> bool:
    until = time.monotonic() + _START_S
    command = [str(folder / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    while server.poll() is None and time.monotonic() < until:
        if subprocess.run(command, check=False).returncode == 0:
            return True
        time.sleep(0.05)
    return False


def _owned(data: Path) -> None:
    """Give the folder to a user of its own: PostgreSQL refuses to be run by root."""
    if os.geteuid() == 0:
        shutil.chown(data, _SERVER_USER, _SERVER_USER)
        data.parent.chmod(0o711)


def _command(folder: Path, name: str, *words: str) -> list[str]:
    command = [str(folder / name), *words]
    if os.geteuid() != 0:
        return command
    user = pwd.getpwnam(_SERVER_USER)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *command]
