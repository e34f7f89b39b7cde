"""`keep demo`, as a program calls it and as a person sees it. What it claims is counted again, from the two files."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from keep_actors.connectors import Catalog
from keep_actors.demo import account
from keep_actors.demo.services import MARK, TRICKS, connectors_in, scripts
from keep_sandbox.inspect import inspect
from keep_storage import lookups, reads
from keep_storage.doctor import examine
from keep_storage.ownership import Ownership
from keep_storage.sqlite import open_reader
from tests.cli.operating import KEEP
from tests.cli.terminal_session import terminal
from tests.recording import PICTURE, draw

ROOT = Path(__file__).parents[2]

INVOICES = {"inv-1": 120, "inv-2": 80, "inv-3": 310, "inv-4": 45, "inv-5": 95}
MAILS = {"mail-1": "Receipt for the chairs", "mail-2": "Receipt for the lamp", "mail-3": "Receipt for the desk"}

LONG_S = 60
"""What the demo promises to stay under, in any case."""


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PATH": f"{KEEP.parent}:{os.environ['PATH']}", "LOGNAME": "olga"} | more


def processes_of(folder: Path) -> list[str]:
    """The command lines of all processes that have this folder in them."""
    found: list[str] = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                words = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(folder) in words and int(each.name) != os.getpid():
                found.append(words)
    return found


def wait_until_no_process_has(folder: Path) -> None:
    until = time.monotonic() + 30
    while left := processes_of(folder):
        assert time.monotonic() < until, left
        time.sleep(0.05)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]], float]:
    """The folder of a demo that was played, what it said, and how long it took."""
    home = tmp_path_factory.mktemp("demo")
    began = time.monotonic()
    done = subprocess.run(
        [KEEP, "demo", "--fast", "--json"],
        cwd=home, env=environment(), capture_output=True, text=True, check=False, timeout=LONG_S,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return home / "keep-demo", [json.loads(line) for line in done.stdout.splitlines()], time.monotonic() - began


@pytest.fixture
def copied(played: tuple[Path, Any, Any], tmp_path: Path) -> Path:
    """A copy of it, to answer the question in."""
    return Path(shutil.copytree(played[0], tmp_path / "keep-demo"))


def outside(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "outside.jsonl").read_text("utf-8").splitlines()]


def happened(folder: Path, service: str) -> Counter[str]:
    return Counter(each["about"] for each in outside(folder) if (each["service"], each["what"]) == (service, "effect"))


def shell(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", line],
        cwd=folder.parent, env=environment(), capture_output=True, text=True, check=False, timeout=LONG_S,
    )  # fmt: skip


def test_outside_everything_happened_once(played: tuple[Path, Any, Any]) -> None:
    folder = played[0]
    assert happened(folder, "bank") == dict.fromkeys(INVOICES, 1)
    paid = {each["about"]: each["amount"] for each in outside(folder) if each["service"] == "bank" and "amount" in each}
    assert paid == INVOICES
    assert happened(folder, "sheets") == dict.fromkeys(MAILS, 1)
    assert happened(folder, "courier") == {"parcel-2": 1, "parcel-5": 1}
    [digest] = [each for each in outside(folder) if each["service"] == "mail" and each["what"] == "effect"]
    assert digest["body"].splitlines() == list(MAILS.values())


def test_each_service_misbehaved_as_its_table_says(played: tuple[Path, Any, Any]) -> None:
    tricks = [each for each in outside(played[0]) if each["what"] == "trick"]
    assert {(each["service"], each["about"]): each["trick"] for each in tricks} == {
        key: trick.name.lower() for key, trick in TRICKS.items()
    }
    assert len(tricks) == len(TRICKS)


def test_the_ledger_says_the_same_and_leaves_one_question(played: tuple[Path, list[dict[str, Any]], Any]) -> None:
    folder, told, _ = played
    assert examine(folder / "keep.db").problems == []
    reader = open_reader(str(folder / "keep.db"))
    calls = [each for workflow in reads.workflows(reader) for each in reads.outputs(reader, workflow.id)]
    applied = Counter(f"{each.connector}.{each.method}" for each in calls if each.status == "applied")
    assert applied == {"bank.pay": 5, "sheets.appendRow": 3, "mail.send": 1, "courier.dispatch": 1}
    [question] = [each for each in calls if each.status not in ("applied", "failed")]
    assert (question.status, msgspec.json.decode(question.params)["parcel"]) == ("indeterminate", "parcel-5")
    assert told[-1]["question"] == question.id
    states = Counter(
        str(event.status)
        for workflow in reads.workflows(reader)
        for topic in reads.topics(reader, workflow.id)
        for event in reads.events(reader, workflow.id, topic.name)
    )
    assert states == {"consumed": 5 + 3 + 3 + 1, "reserved": 1}
    [held] = lookups.events_named(reader, "parcel-5")
    assert held.event.status == "reserved"
    reader.close()


def test_a_runtime_was_killed_in_the_middle_of_a_payment(played: tuple[Path, list[dict[str, Any]], Any]) -> None:
    folder, told, _ = played
    [killed] = [each for each in told if each["step"] == "killed"]
    assert (killed["exit_code"], killed["payment"], killed["outside"], killed["ledger"]) == (
        -9,
        "inv-3",
        1,
        "in_flight",
    )
    first, second = [each["pid"] for each in told if each["step"] == "started"]
    assert killed["pid"] == first != second
    [paid] = account.calls_about(folder / "keep.db", "inv-3")
    assert (paid.status, paid.attempts, paid.resolved_by) == ("applied", 1, "reconciliation")
    journal = [entry for entry, _ in account.news(folder / "keep.db", 0)]
    recovered = [msgspec.json.decode(each.changed) for each in journal if each.operation == "recover_crashed_runs"]
    assert paid.id in {each.get("mutation") for each in recovered}


def test_it_ends_in_time_and_leaves_no_process(played: tuple[Path, list[dict[str, Any]], float]) -> None:
    folder, told, took_s = played
    assert took_s < LONG_S
    assert told[-1]["step"] == "summary"
    assert told[-1]["problems"] == []
    assert processes_of(folder) == []


def test_the_commands_that_it_ends_with_work_as_they_stand(
    copied: Path, played: tuple[Path, list[dict[str, Any]], Any]
) -> None:
    look, explain, outside_too, happened_so, _, go_on = [each["line"] for each in played[1][-1]["commands"]]
    asked = shell(copied, look)
    assert asked.returncode == 4
    assert "courier.dispatch" in asked.stdout
    assert "reserved" in shell(copied, explain).stdout
    assert '"effect"' in shell(copied, outside_too).stdout
    answered = shell(copied, happened_so)
    assert (answered.returncode, "is applied, says olga" in answered.stdout) == (0, True), answered.stderr
    went_on = shell(copied, go_on)
    assert went_on.returncode == 0, went_on.stderr
    assert "consumed" in shell(copied, explain).stdout
    assert shell(copied, look).returncode == 0
    assert happened(copied, "courier") == {"parcel-2": 1, "parcel-5": 1}
    assert happened(copied, "bank") == dict.fromkeys(INVOICES, 1)
    wait_until_no_process_has(copied)


def test_the_readmes_answer_works_through_a_running_runtime_too(
    copied: Path, played: tuple[Path, list[dict[str, Any]], Any]
) -> None:
    _, explain, _, happened_so, _, go_on = [each["line"] for each in played[1][-1]["commands"]]
    assert "keep resolve --workflow payments happened --db keep-demo/keep.db" in (ROOT / "README.md").read_text("utf-8")
    running = shlex.split(go_on.replace(" --once", ""))
    with subprocess.Popen(running, cwd=copied.parent, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert any(line.startswith("Running") for line in process.stderr)
            answered = shell(copied, happened_so)
            assert answered.returncode == 0, answered.stderr
            assert "is applied, says olga. It returned null." in answered.stdout
            assert answered.stderr == "", "the runtime has the connectors, and checked it"
        finally:
            process.terminate()
    assert shell(copied, go_on).returncode == 0
    assert "consumed" in shell(copied, explain).stdout
    assert happened(copied, "courier") == {"parcel-2": 1, "parcel-5": 1}
    wait_until_no_process_has(copied)


def test_who_says_that_it_did_not_happen_has_it_done(
    copied: Path, played: tuple[Path, list[dict[str, Any]], Any]
) -> None:
    *_, did_not, go_on = [each["line"] for each in played[1][-1]["commands"]]
    assert shell(copied, did_not).returncode == 0
    assert shell(copied, go_on).returncode == 0
    assert happened(copied, "courier") == {"parcel-2": 1, "parcel-5": 2}
    assert shell(copied, "keep attention --db keep-demo/keep.db").returncode == 0


def test_a_folder_that_is_no_demos_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    done = shell(tmp_path, f"keep demo --dir {tmp_path}")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no demo's folder" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["mine.txt"]


def test_two_demos_do_not_share_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "keep-demo"
    folder.mkdir()
    (folder / MARK).touch()
    first = Ownership.take(folder / MARK)
    done = shell(folder, f"keep demo --dir {folder}")
    first.give_up()
    assert (done.returncode, done.stdout) == (1, "")
    assert "Another demo is running" in done.stderr


def test_its_connectors_want_the_folder_of_a_demo(copied: Path, played: tuple[Path, list[dict[str, Any]], Any]) -> None:
    *_, go_on = [each["line"] for each in played[1][-1]["commands"]]
    done = shell(copied, f"KEEP_DEMO=elsewhere {go_on}")
    assert done.returncode == 1
    assert "elsewhere is not a demo's folder. Name one: KEEP_DEMO=FOLDER" in done.stderr


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_it_is_ended_no_process_is_left(blow: signal.Signals, tmp_path: Path) -> None:
    folder = tmp_path / "keep-demo"
    with subprocess.Popen(
        [KEEP, "demo", "--json", "--dir", folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        steps = (json.loads(line)["step"] for line in process.stdout)
        assert "started" in steps, "it has a runtime"
        assert len(processes_of(folder)) >= 2
        process.send_signal(blow)
        _, said = process.communicate(timeout=LONG_S)
    assert process.returncode != 0
    assert "Traceback" not in said
    wait_until_no_process_has(folder)
    assert examine(folder / "keep.db").problems == []


@pytest.mark.parametrize("name", sorted(scripts()))
def test_its_scripts_have_no_problems(name: str, tmp_path: Path) -> None:
    assert inspect(scripts()[name], Catalog(connectors_in(tmp_path)).kinds()).problems == []


def test_its_scripts_pass_the_check_that_is_there_for_authors(played: tuple[Path, Any, Any]) -> None:
    done = shell(played[0], "keep check keep-demo/*.js --connectors keep_actors.demo:connectors")
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_would_say_so_if_something_had_happened_twice_or_not_at_all(played: tuple[Path, Any, Any]) -> None:
    folder = played[0]
    book, found = account.outside(folder), account.ledger(folder / "keep.db")
    assert list(account.problems(book, found, -9, [])) == []
    assert len(book) == 5 + 3 + 1 + 2 + len(TRICKS)
    for each in book:
        for wrong in (Counter([each]), Counter({each: -1})):
            assert list(account.problems(_sum(book, wrong), found, -9, [])), each
    assert len(found) == 13 + 5 + 3 + 1 + 2
    for each in found:
        for wrong in (Counter([each]), Counter({each: -1})):
            assert list(account.problems(book, _sum(found, wrong), -9, [])), each
        name, about, _ = each.split()
        another = _sum(found, Counter({each: -1, f"{name} {about} pending": 1}))
        assert list(account.problems(book, another, -9, [])), each
    assert list(account.problems(book, found, 0, []))
    assert list(account.problems(book, found, -9, ["corrupt"])) == ["corrupt"]


def _sum(counted: Counter[str], changed: Counter[str]) -> Counter[str]:
    return Counter({each: counted[each] + changed[each] for each in counted | changed})


def test_the_readme_shows_how_it_ends(tmp_path: Path) -> None:
    plain = os.environ | {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [KEEP, "demo", "--fast"], cwd=tmp_path, env=plain, capture_output=True, text=True, check=False, timeout=LONG_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not set(done.stdout) & set("\x1b\r"), "plain lines, where there is no terminal"
    readme = (ROOT / "README.md").read_text("utf-8")
    told = (
        "What happened, on both sides\n" + readme.partition("\nWhat happened, on both sides\n")[2].partition("```")[0]
    )
    assert done.stdout.replace(str(KEEP), ".venv/bin/keep").endswith(told)


def test_a_machine_without_a_jail_is_told_so_and_has_its_demo(tmp_path: Path) -> None:
    # Another machine: every process that is started believes to be on it.
    (tmp_path / "sitecustomize.py").write_text("import keep_sandbox.seccomp as s\ns.is_supported = lambda: False\n")
    with_it = environment(PYTHONPATH=str(tmp_path))
    done = subprocess.run(
        [KEEP, "demo", "--fast"], cwd=tmp_path, env=with_it, capture_output=True, text=True, check=False, timeout=LONG_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("This machine has no jail for scripts.") == 1
    assert "--connectors keep_actors.demo:connectors --sandbox wasm" in done.stdout


def test_who_stops_reading_ends_it(tmp_path: Path) -> None:
    done = shell(tmp_path / "keep-demo", "keep demo --fast | head -1")
    assert (done.stdout.count("\n"), "Traceback" in done.stderr) == (1, False)
    wait_until_no_process_has(tmp_path)


def test_its_picture_is_what_a_terminal_showed(tmp_path: Path) -> None:
    picture = PICTURE.read_text("utf-8")
    shown = "\n".join(re.sub(r"<[^>]*>", "", line) for line in picture.splitlines())
    for words in ("The runtime is killed now: SIGKILL", "it has it. Not sent again", "nothing was lost."):
        assert words in shown
    assert "keep run --once --db keep-demo/keep.db --connectors keep_actors.demo:connectors" in shown


def test_a_picture_has_the_colours_and_obeys_nothing_else() -> None:
    picture = draw("\x1b[31m\x1b[1m<killed> & gone\x1b[0m again\n\nlast\n")
    assert 'fill="#ff7b72" font-weight="bold"' in picture
    assert "&lt;killed&gt; &amp; gone</tspan>" in picture
    assert picture.count("<text") == 2
    ElementTree.fromstring(picture)


def test_a_person_sees_the_demo_asks_answers_and_understands(tmp_path: Path) -> None:
    with terminal(tmp_path) as window:
        seen, code = window.type("keep demo --fast")
        assert code == 0
        coloured = window.screen(colours=True)
        killed = re.search(r"The runtime is killed now: SIGKILL, process (\d+) \(exit -9\)", seen)
        assert killed
        before, after = seen.split(killed.group(0))
        assert re.search(r"payments +inv-3 +bank\.pay: written into the ledger, then sent", before)
        assert re.search(r"the bank +inv-3 +on purpose: it is done, and no answer comes", before)
        assert re.search(r"payments +inv-3 +the bank was asked: it has it\. Not sent again", after)
        assert len(re.findall(r"^  inv-\d +\d+ EUR +1 time +applied", after, re.MULTILINE)) == 5
        assert "Nothing was repeated, and nothing was lost." in after
        assert "\x1b[" in coloured
        assert re.search(r"\x1b\[[0-9;]*31m[^\n]*The runtime is killed now", coloured), "in red"

        seen, code = window.type("keep attention --db keep-demo/keep.db")
        assert code == 4
        assert "payments: unknown" in seen
        assert "courier.dispatch" in seen
        assert "keep resolve --db keep-demo/keep.db mut_" in seen

        seen, code = window.type("keep resolve --workflow payments happened --db keep-demo/keep.db --why 'I rang them'")
        assert code == 0
        assert "is applied, says olga." in seen

        seen, code = window.type("keep explain parcel-5 --db keep-demo/keep.db")
        assert code == 0
        assert re.search(r"state +reserved", seen)
        assert "I rang them" in seen

        seen, code = window.type(
            "keep run --once --db keep-demo/keep.db --connectors keep_actors.demo:connectors > run.txt"
        )
        assert code == 0
        seen, code = window.type("keep explain parcel-5 --db keep-demo/keep.db")
        assert re.search(r"state +consumed", seen)
        seen, code = window.type("keep attention --db keep-demo/keep.db")
        assert (code, "Nothing waits for a person." in seen) == (0, True)


def test_who_wants_no_colours_gets_none(tmp_path: Path) -> None:
    with terminal(tmp_path, NO_COLOR="1") as window:
        _, code = window.type("keep demo --fast --dir other")
        assert code == 0
        assert "\x1b[3" not in window.screen(colours=True)
        assert "KEEP_DEMO=other keep run --once --db other/keep.db" in window.screen()
