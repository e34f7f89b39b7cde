"""`python -m examples.at_work`, as the README calls it: what it says is so, counted in the files that it leaves."""

import csv
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from contextlib import closing
from email import message_from_bytes
from pathlib import Path
from string import Template

import pytest

pytest.importorskip("aiosmtpd", reason="the extra `examples` is not installed") if "CI" not in os.environ else None

ROOT = Path(__file__).parents[2]
HERE = ROOT / "examples" / "at_work"
LONG_S = 280


def started(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "examples.at_work", folder],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def played(folder: Path) -> str:
    process = started(folder)
    try:
        said, errors = process.communicate(timeout=LONG_S)
    finally:
        process.kill()
    assert (process.returncode, errors) == (0, ""), said + errors
    return said


# What is outside, read without a line of the example or of keep-actors.


def orders(folder: Path) -> list[tuple[str, int, str]]:
    if not (folder / "orders.db").exists():
        return []
    with closing(sqlite3.connect(folder / "orders.db")) as db:
        if not db.execute("SELECT * FROM sqlite_schema WHERE name = 'orders'").fetchall():
            return []
        return sorted(db.execute("SELECT number, amount, customer FROM orders").fetchall())


def signups(folder: Path) -> list[tuple[str, str]]:
    if not (folder / "signups.csv").exists():
        return []
    with (folder / "signups.csv").open(encoding="utf-8", newline="") as file:
        return sorted((row["name"], row["email"]) for row in csv.DictReader(file))


def to_the_team(folder: Path) -> list[str]:
    found = (folder / "mails" / "team").glob("*.eml")
    return [str(message_from_bytes(each.read_bytes())["Subject"]) for each in found]


def everything_is_there_once(folder: Path) -> None:
    assert orders(folder) == [("A-1", 120, "ann@example.com"), ("A-2", 80, "bob@example.com")]
    assert signups(folder) == [("Cleo", "cleo@example.com"), ("Dora", "dora@example.com")]
    assert to_the_team(folder) == ["Urgent: The shop is down"]


def nothing_is_left_running(folder: Path) -> None:
    """Its mail servers, whose ports are in its settings, end with it, and so do all programs that name its folder."""
    settings = tomllib.loads((folder / "keep.toml").read_text("utf-8"))["connectors"]["mailbox"]
    until = time.monotonic() + 30
    for server in ("smtp", "imap"):
        while is_listening(settings[server]["port"]):
            assert time.monotonic() < until, f"the {server} server is still there"
            time.sleep(0.05)


def is_listening(port: int) -> bool:
    with socket.socket() as tried:
        tried.settimeout(5)
        return tried.connect_ex(("127.0.0.1", port)) == 0


def test_it_tells_what_is_so_and_leaves_nothing_behind_also_the_second_time(tmp_path: Path) -> None:
    folder, said = tmp_path / "at-work", ""
    for _ in range(2):
        said = played(folder)
        everything_is_there_once(folder)
        nothing_is_left_running(folder)
        for words in (
            "2 mails came in; orders.db has 2 rows\n  A-1  120 EUR  ann@example.com\n  A-2   80 EUR  bob@example.com\n",
            "signups.csv has 2 rows\n  Cleo  cleo@example.com\n  Dora  dora@example.com\n",
            "the mailbox of the team has 1 mail\n  Urgent: The shop is down\n",
            "    unknown: the connection broke at the mail: the server closed the connection\n"
            "    applied: the connector looked into the sent folder: it is there. Not called again\n",
        ):
            assert words in said
        assert said.endswith("5 calls, 5 effects: each happened once.\n")
    readme = (ROOT / "README.md").read_text("utf-8")
    assert said.partition("\n\n")[2] in readme, "the README shows what it says"
    assert max(len(line) for line in said.splitlines() if str(tmp_path) not in line) <= 90, "it fits a terminal"


KILLED_WHEN: dict[str, Callable[[Path], bool]] = {
    "the sheet has a row": lambda folder: bool(signups(folder)),
    "the mail is taken": lambda folder: bool([*(folder / "mails" / "Sent").glob("*.eml")]),
    "the database has a row": lambda folder: bool(orders(folder)),
}


def test_killed_at_three_moments_it_goes_on_and_nothing_is_lost_or_repeated(tmp_path: Path) -> None:
    folder = tmp_path / "at-work"
    for is_time in KILLED_WHEN.values():
        process = started(folder)
        until = time.monotonic() + LONG_S
        while not is_time(folder) and process.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        nothing_is_left_running(folder)
    said = played(folder)
    assert "go on where they were killed" in said
    assert said.endswith("5 calls, 5 effects: each happened once.\n")
    everything_is_there_once(folder)
    nothing_is_left_running(folder)


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("mine")
    process = started(tmp_path)
    _, errors = process.communicate(timeout=LONG_S)
    assert process.returncode == 1
    assert "is no folder of this example; name another" in errors
    assert [each.name for each in tmp_path.iterdir()] == ["letters.txt"]


def test_the_page_shows_the_settings_and_the_script_that_run() -> None:
    page = (ROOT / "docs" / "services.md").read_text("utf-8")
    places = {"python": "python", "here": "tickets", "smtp_port": 2525, "imap_port": 1143}
    assert Template((HERE / "keep.toml").read_text("utf-8")).substitute(places) in page
    assert (HERE / "tickets_to_mail.js").read_text("utf-8") in page
