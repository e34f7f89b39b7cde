"""A real IMAP server for tests: Dovecot, in a folder of its own on loopback. Any user logs in with `PASSWORD`.

Runs as the user of the tests, or, as root, for the user `nobody`: Dovecot has no mailboxes of root.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import NamedTuple

import pytest

PASSWORD = "s3cret-password"
_START_S = 20
_ATTEMPTS = 5
_NOBODY = 65_534

_CONFIGURATION = """
protocols = imap
base_dir = {folder}/run
state_dir = {folder}/state
log_path = {folder}/log
listen = 127.0.0.1
disable_plaintext_auth = no
auth_failure_delay = 0 secs
mail_max_userip_connections = 200
default_internal_user = {user}
default_internal_group = {group}
default_login_user = {user}
mail_location = maildir:{folder}/mail/%u
first_valid_uid = 1
mail_fsync = never
{tls}
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={folder}/mail/%u
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = {tls_port}
    ssl = yes
  }}
}}
service anvil {{
  chroot =
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
namespace inbox {{
  inbox = yes
  mailbox Sent {{
    auto = create
    special_use = \\Sent
  }}
  mailbox "Weg damit" {{
    auto = create
    special_use = \\Trash
  }}
}}
"""


class Certificate(NamedTuple):
    """Files of a server's certificate, and of the authority that issued it."""

    chain: Path
    key: Path
    authority: Path


class Dovecot:
    """A server in a folder. Its mails survive when it is killed and started again."""

    def __init__(self, program: str, folder: Path, certificate: Certificate | None) -> None:
        self._program = program
        self._folder = folder
        self._certificate = certificate
        self._process: subprocess.Popen[bytes] | None = None
        self.mails = folder / "mail"
        """A folder for each user, written by the server."""
        self.address = ("127.0.0.1", 0)
        self.tls_address: tuple[str, int] | None = None

    def start(self) -> None:
        """Start it, at the same address as before."""
        for _ in range(_ATTEMPTS):
            ports = [each[1] if each and each[1] else free_port() for each in (self.address, self.tls_address)]
            configuration = _written(self._folder, (ports[0], ports[1]), self._certificate)
            command = [self._program, "-F", "-c", str(configuration)]
            # In a group of its own: it has a process for each connection.
            self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
            if listens(("127.0.0.1", ports[0]), self._process):
                self.address = ("127.0.0.1", ports[0])
                self.tls_address = None if self._certificate is None else ("127.0.0.1", ports[1])
                return
            self.end()
        raise RuntimeError(f"dovecot did not start: {(self._folder / 'log').read_text()}")

    def kill(self) -> None:
        """Kill it with all of its processes, in the middle of whatever they do."""
        assert self._process is not None, "started"
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(_START_S)

    def end(self) -> None:
        """End it in order."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_START_S)


@contextmanager
def dovecot(certificate: Certificate | None = None) -> Iterator[Dovecot]:
    """Start a server, and end it. Skips the test where there is none."""
    program = shutil.which("dovecot") or shutil.which("dovecot", path="/usr/sbin")
    if program is None:
        if "CI" in os.environ:
            pytest.fail("dovecot is missing; install dovecot-imapd")
        pytest.skip("dovecot is not installed")
    # Its sockets are in it: their paths may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="keep-imap-", dir="/tmp") as name:
        folder = Path(name)
        _let_it_write(folder)
        server = Dovecot(program, folder, certificate)
        try:
            server.start()
            yield server
        finally:
            server.end()


def delivered(mails: Path, user: str, folder: str = "") -> list[EmailMessage]:
    """The mails in a folder of a user, read from the server's files. The empty name is INBOX."""
    at = mails / user / (f".{folder}" if folder else "")
    files = sorted(path for kind in ("new", "cur") for path in (at / kind).glob("*"))
    return [message_from_bytes(path.read_bytes(), policy=policy.default) for path in files]


def free_port() -> int:
    """A port that was free a moment ago: Dovecot cannot choose one itself."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def listens(address: tuple[str, int], process: "subprocess.Popen[bytes]") -> bool:
    """Wait until something answers at the address. False: the process ended before."""
    end = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < end:
        with suppress(OSError), socket.create_connection(address, 1) as connected:
            return bool(connected.recv(1))
        time.sleep(0.02)  # another process: it has nothing to wait for
    return False


def give_to_server(folder: Path) -> None:
    """Make a folder of mails, which a test has written, the server's own."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, _NOBODY, _NOBODY)


def _let_it_write(folder: Path) -> None:
    for each in (folder, folder / "mail"):
        each.mkdir(exist_ok=True)
        if os.geteuid() == 0:
            os.chown(each, _NOBODY, _NOBODY)
        each.chmod(0o755)


def _written(folder: Path, ports: tuple[int, int], certificate: Certificate | None) -> Path:
    import grp
    import pwd

    uid, gid = (_NOBODY, _NOBODY) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    tls = "ssl = no"
    if certificate is not None:
        tls = f"ssl = yes\nssl_cert = <{certificate.chain}\nssl_key = <{certificate.key}"
    path = folder / "dovecot.conf"
    path.write_text(
        _CONFIGURATION.format(
            folder=folder,
            user=pwd.getpwuid(uid).pw_name,
            group=grp.getgrgid(gid).gr_name,
            uid=uid,
            gid=gid,
            password=PASSWORD,
            port=ports[0],
            tls=tls,
            tls_port=ports[1] if certificate is not None else 0,
        )
    )
    return path
