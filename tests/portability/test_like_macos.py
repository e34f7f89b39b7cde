"""A system with users and Unix sockets, but without locks of open files, `/proc` and the peer of a socket: macOS.

Simulated on Linux (`macos_like/sitecustomize.py`).
"""

import signal
from pathlib import Path

import pytest

from tests.portability.elsewhere import Elsewhere
from tests.portability.programs import EMBEDDED, EVERY_MODULE, FIRST, OWNER

IN_A_THREAD = ("--sandbox", "thread")


@pytest.fixture
def shell(tmp_path: Path) -> Elsewhere:
    return Elsewhere(tmp_path, "macos_like")


def test_the_simulation_lacks_what_macos_lacks(shell: Elsewhere) -> None:
    shell.says("""
import fcntl, os, socket
from pathlib import Path
from keep_storage.file_lock import LOCKS, WholeFileLocks
assert not hasattr(fcntl, "F_OFD_SETLK") and not hasattr(socket, "SO_PEERCRED") and not hasattr(os, "pidfd_open")
assert not Path("/proc/self/fd").is_dir()
assert isinstance(LOCKS, WholeFileLocks)
""")


def test_every_module_can_be_imported(shell: Elsewhere) -> None:
    assert int(shell.says(EVERY_MODULE, first=FIRST)) > 200


def test_an_event_is_processed_to_its_end(shell: Elsewhere, backend: str) -> None:
    assert shell.says(EMBEDDED, backend, "thread").splitlines() == ["ships o-1", "consumed applied ann"]


def test_one_runtime_has_a_file_until_its_process_is_killed(shell: Elsewhere) -> None:
    with shell.begin(OWNER, "keep.db") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "mine\n"
        said = shell.says(OWNER, "keep.db")
        assert said.startswith(f"owned {first.pid} keep.db is open in another runtime (process {first.pid})")
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert shell.says(OWNER, "keep.db").splitlines() == ["mine", "None"]


def test_a_runtime_is_talked_to_over_its_socket(shell: Elsewhere) -> None:
    with shell.running(shell.write("orders"), more=IN_A_THREAD) as runtime:
        shell.keep("pause", "orders")
        shell.until(runtime, "pause_workflow")
        assert [each["status"] for each in shell.objects("status")] == ["paused"]
        shell.end(runtime)


def test_a_place_that_is_too_long_for_a_socket_is_refused_in_words(shell: Elsewhere) -> None:
    deep = shell.folder / ("x" * 100)
    deep.mkdir()
    asked = ("run", shell.write("orders"), "--accept", "--connectors", "shop:Shop", "--once", *IN_A_THREAD)
    said = shell.refused(*asked, "--db", str(deep / "keep.db"), code=1)
    assert "its path has more than 100 bytes" in said
    assert "Name another place" in said
