"""A system without `fcntl`, `resource`, `fork` and Unix sockets: everything that can work does, and the rest says so.

Simulated on Linux (`windows_like/sitecustomize.py`): it shows that nothing is used that Windows lacks.
"""

import json
import signal
from pathlib import Path
from typing import get_args

import pytest

from keep_actors.sandbox_pool.pool import PoolMode
from tests.portability.elsewhere import Elsewhere
from tests.portability.programs import EMBEDDED, EVERY_MODULE, FIRST, OWNER

NO_SOCKETS = "Python has no Unix sockets on this system"
IN_A_THREAD = ("--sandbox", "thread")
MODES = [mode for mode in get_args(PoolMode) if mode in ("wasm", "thread")]
"""The sandboxes that need nothing of Linux."""


@pytest.fixture
def shell(tmp_path: Path) -> Elsewhere:
    return Elsewhere(tmp_path, "windows_like")


def test_the_simulation_lacks_what_windows_lacks(shell: Elsewhere) -> None:
    said = shell.says("""
import importlib, os, signal, socket, subprocess, sys
from pathlib import Path
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        print(name)
for module, name in ((os, "fork"), (os, "geteuid"), (os, "getuid"), (os, "fchmod"), (os, "pread"), (socket, "AF_UNIX"),
                     (socket, "send_fds"), (signal, "SIGPROF"), (signal, "SIGKILL"), (signal, "setitimer")):
    assert not hasattr(module, name), name
assert not hasattr(Path(".").stat(), "st_blocks")
child = subprocess.Popen([sys.executable, "-c", "import fcntl"], stderr=subprocess.PIPE)
assert b"No module named 'fcntl'" in child.communicate()[1]
killed = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
killed.kill()
print(killed.wait())
""")
    assert said.split() == ["fcntl", "resource", "pwd", "grp", "termios", "1"]


def test_every_module_can_be_imported(shell: Elsewhere) -> None:
    assert int(shell.says(EVERY_MODULE, first=FIRST)) > 200


# A runtime.


@pytest.mark.parametrize("mode", MODES)
def test_an_event_is_processed_to_its_end(shell: Elsewhere, backend: str, mode: str) -> None:
    assert shell.says(EMBEDDED, backend, mode).splitlines() == ["ships o-1", "consumed applied ann"]
    assert shell.says(EMBEDDED, backend, mode).splitlines() == ["consumed applied ann"], "the same file, once more"


def test_a_jail_is_refused_in_words_that_name_the_mode_that_works(shell: Elsewhere, backend: str) -> None:
    done = shell.python(EMBEDDED, backend, "jailed")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "JailUnavailable: jailed workers need Linux" in last, done.stderr
    assert 'sandbox="wasm"' in last


def test_a_control_socket_is_refused_in_words_that_say_what_to_do(shell: Elsewhere, backend: str) -> None:
    done = shell.python(EMBEDDED.replace("sandbox=sandbox", "sandbox=sandbox, control=True"), backend, "thread")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert f"ControlUnavailable: There is no control socket here: {NO_SOCKETS}" in last
    assert "Open it without `control`." in last


# One runtime per file.


def test_one_runtime_has_a_file_until_its_process_ends_however_it_ends(shell: Elsewhere) -> None:
    for end in ("closed", "killed"):
        with shell.begin(OWNER, "keep.db") as first:
            assert first.stdout is not None
            assert first.stdin is not None
            assert first.stdout.readline() == "mine\n"
            for _ in range(2):
                said = shell.says(OWNER, "keep.db")
                assert said.startswith(f"owned {first.pid} keep.db is open in another runtime (process {first.pid})")
            if end == "killed":
                first.send_signal(signal.SIGKILL)
            else:
                first.stdin.close()
                assert first.stdout.readline() == "None\n"
            first.wait()
    with shell.begin(OWNER, "keep.db") as next_one:
        assert next_one.stdout is not None
        assert next_one.stdout.readline() == "mine\n"
        next_one.kill()


def test_the_lock_is_not_taken_through_a_link_there_either(shell: Elsewhere) -> None:
    (shell.folder / "precious").write_text("precious")
    (shell.folder / "keep.db-owner").symlink_to(shell.folder / "precious")
    done = shell.python(OWNER, "keep.db")
    assert "it is a link, which is not followed; remove it" in done.stderr
    assert (shell.folder / "precious").read_text() == "precious"


# The command line.


@pytest.mark.parametrize("mode", MODES)
def test_a_script_is_checked(shell: Elsewhere, mode: str) -> None:
    assert "orders.js" in shell.keep("check", shell.write("orders"), "--sandbox", mode)
    (shell.folder / "wrong.js").write_text("export default Keep.workflow({ name: 7 });", "utf-8")
    assert "wrong.js" in shell.call("check", "wrong.js", "--sandbox", mode).stdout
    assert 'sandbox="wasm"' in shell.refused("check", "orders.js", code=1)


def test_the_commands_work_on_a_file_without_a_runtime(shell: Elsewhere) -> None:
    shell.write("orders")
    done = shell.call("run", "orders.js", "--connectors", "shop:Shop", "--accept", "--once", *IN_A_THREAD)
    assert done.returncode == 0, done.stderr
    assert f"Other processes cannot reach this runtime: {NO_SOCKETS}" in done.stderr
    [line] = shell.objects("status")
    assert (line["name"], line["status"]) == ("orders", "active")
    shell.keep("pause", "orders")
    assert [each["status"] for each in shell.objects("status")] == ["paused"]
    shell.keep("attention")
    shell.keep("backup", "copy.db")
    for file in ("keep.db", "copy.db"):
        shell.keep("doctor", file)
    assert "No runtime is running on keep.db. Start one" in shell.refused("run-now", "orders", code=3)


def test_a_runtime_that_runs_is_seen_and_cannot_be_talked_to_and_ctrl_c_ends_it(shell: Elsewhere) -> None:
    with shell.running(shell.write("orders"), more=IN_A_THREAD) as runtime:
        done = shell.call("status")
        assert f"Runtime: running (process {runtime.pid})." in done.stderr
        for command in (("pause", "orders"), ("deploy", "orders.js"), ("log", "--follow")):
            said = shell.refused(*command, code=3)
            assert f"The runtime of keep.db (process {runtime.pid}) cannot be reached: {NO_SOCKETS}" in said
        runtime.send_signal(signal.SIGINT)
        _, said = runtime.communicate(timeout=30)
        assert runtime.returncode == 0
        assert "Ending: active runs finish" in said
    assert "Traceback" not in said


def test_who_asks_for_a_control_socket_is_told_that_there_is_none(shell: Elsewhere) -> None:
    asked = ("run", shell.write("orders"), "--accept", "--connectors", "shop:Shop", "--control", *IN_A_THREAD)
    said = shell.refused(*asked, code=1)
    assert f"There is no control socket here: {NO_SOCKETS}" in said


def test_who_has_no_login_name_is_asked_for_one(shell: Elsewhere) -> None:
    shell.keep("run", shell.write("orders"), "--accept", "--connectors", "shop:Shop", "--once", *IN_A_THREAD)
    nameless = dict.fromkeys(("LOGNAME", "USER", "LNAME", "USERNAME"), "")
    done = shell.call("pause", "orders", **nameless)
    assert (done.returncode, "Name yourself: --by WHO" in done.stderr) == (2, True), done.stderr


def test_the_demo_shows_what_it_promises(shell: Elsewhere) -> None:
    lines = [json.loads(line) for line in shell.keep("demo", "--fast", "--json").splitlines()]
    [killed] = [each for each in lines if each["step"] == "killed"]
    assert (killed["exit_code"], killed["outside"], killed["ledger"]) == (1, 1, "in_flight")
    assert lines[-1]["problems"] == []
    assert {each["sandbox"] for each in lines if each["step"] == "started"} <= {"wasm", "thread"}
