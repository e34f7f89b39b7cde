"""A PostgreSQL server of its own for a driver, as a child of the driver's process. Its settings are the defaults."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

USER: Final = "postgres"
_START_S: Final = 30


@contextmanager
def running(programs: str, folder: Path) -> Iterator[str]:
    """Start a server on the files of `folder`, and yield the address of its database."""
    data, port = folder / "postgres", _port(folder)
    if not data.exists():
        data.mkdir()
        _owned(data)
        make = _command(programs, "initdb", "-D", str(data), "-A", "trust", "-U", USER)
        subprocess.run(make, check=True, capture_output=True)
    (data / "postmaster.pid").unlink(missing_ok=True)  # of a killed server; the port is in use if it still runs
    options = ("-h", "127.0.0.1", "-p", str(port), "-k", "")
    serve, nowhere = _command(programs, "postgres", "-D", str(data), *options), subprocess.DEVNULL
    with subprocess.Popen(serve, stdin=nowhere, stdout=nowhere, stderr=nowhere) as server:
        try:
            _await(programs, port)
            yield f"postgresql://{USER}@127.0.0.1:{port}/postgres"
        finally:
            server.send_signal(signal.SIGINT)  # it ends connections; at SIGTERM it would wait for their clients


def _owned(data: Path) -> None:
    """Give the folder to the user who runs the server: PostgreSQL refuses to be run by root."""
    if os.geteuid() == 0:
        shutil.chown(data, USER, USER)
        for each in (data, *list(data.parents)[:2]):
            each.chmod(each.stat().st_mode | 0o011)


def _command(programs: str, name: str, *words: str) -> list[str]:
    command = [str(Path(programs) / name), *words]
    if os.geteuid() != 0:
        return command
    user = pwd.getpwnam(USER)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *command]


def _await(programs: str, port: int) -> None:
    until = time.monotonic() + _START_S
    command = [str(Path(programs) / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    while subprocess.run(command, check=False).returncode != 0:
        assert time.monotonic() < until, "PostgreSQL did not start"
        time.sleep(0.02)


def _port(folder: Path) -> int:
    """A free port, the same after a restart."""
    path = folder / "port"
    if not path.exists():
        with socket.create_server(("127.0.0.1", 0)) as free:
            path.write_text(str(free.getsockname()[1]))
    return int(path.read_text())
