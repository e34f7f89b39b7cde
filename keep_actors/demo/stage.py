"""The demo itself: start, watch, kill in the middle of a payment, start again, compare, leave one question open.

What is told comes from two files: the runtime's ledger, and the book of what happened outside. The runtime is not
asked.
"""

import json
import os
import shlex
import time
from collections.abc import Callable
from typing import Final

from keep_actors.demo import ledger, verdict
from keep_actors.demo.folder import Folder
from keep_actors.demo.ledger import Facts
from keep_actors.demo.outside import read
from keep_actors.demo.processes import Broken, Child, Processes
from keep_actors.demo.steps import Began, Command, Killed, Payment, Seen, Started, Step, Summary
from keep_actors.demo.story import how, misbehaved, told
from keep_actors.demo.tricks import INVOICES, KILLED, MAILS, UNANSWERED
from keep_actors.demo.verdict import Outside, effects
from keep_storage.doctor import examine

WITHIN_S: Final = 50
"""Whatever hangs is killed then: nobody waits for longer than a minute."""

PACE_S: Final = 0.8
"""How long a service takes to answer when somebody is to read along."""

_LOOK_S: Final = 0.03

Tell = Callable[[Step], None]


def play(folder: Folder, tell: Tell, keep: list[str], *, pace_s: float) -> Summary:
    """Play it. `keep` is how the command is called here. Raises `NotOurs` and `Broken`."""
    began = time.monotonic()
    lock = folder.begin()
    try:
        tell(Began(str(folder.path)))
        with Processes(folder, WITHIN_S) as processes:
            try:
                killed, sandbox = _Play(folder, processes, tell).lives(pace_s)
            except Broken:
                if not processes.is_late:
                    raise
                raise Broken(f"It took longer than {WITHIN_S} s. What there is of it is in {folder.path}.") from None
        outside, found = read(folder.outside), ledger.facts(folder.db)
        for each in _payments(outside, found):
            tell(each)
        unhealthy = examine(folder.db).problems
        wrong = verdict.problems(outside, found, killed.exit_code, unhealthy)
        took_ms = int((time.monotonic() - began) * 1000)
        return _summary(outside, found, wrong, _commands(folder, sandbox, keep), took_ms)
    finally:
        os.close(lock)


class _Play:
    """Two lives of a runtime, and what is told meanwhile."""

    def __init__(self, folder: Folder, processes: Processes, tell: Tell) -> None:
        self._folder = folder
        self._processes = processes
        self._tell = tell
        self._seen = 0
        self._sent: set[str] = set()
        self._tricks = 0

    def lives(self, pace_s: float) -> tuple[Killed, str]:
        """How the first one ended, and the sandbox that this machine has."""
        services, _ = self._processes.start("outside", str(pace_s))
        first, _ = self._start(1)
        self._follow(first, self._is_in_the_middle)
        self._tell_tricks()
        time.sleep(pace_s)
        killed = self._kill(first)
        self._tell(killed)
        second, sandbox = self._start(2)
        self._follow(second, lambda: verdict.is_done(ledger.facts(self._folder.db)))
        code = second.end()
        self._look()
        services.end()
        if code != 0:
            raise Broken(f"The runtime ended with {code}. Its words are in {self._folder.log}.")
        return killed, sandbox

    def _start(self, life: int) -> tuple[Child, str]:
        child, said = self._processes.start("life")
        started = Started(life, child.pid, json.loads(said)["sandbox"])
        self._tell(started)
        return child, started.sandbox

    def _is_in_the_middle(self) -> bool:
        """The bank has it, and nobody has told the runtime."""
        return KILLED in self._sent and effects(read(self._folder.outside), "bank")[KILLED] > 0

    def _follow(self, child: Child, is_enough: Callable[[], bool]) -> None:
        """Tell what the ledger says as it is written."""
        while not is_enough():
            if child.has_ended:
                raise Broken(f"The runtime ended by itself. Its words are in {self._folder.log}.")
            time.sleep(_LOOK_S)
            self._look()

    def _look(self) -> None:
        for entry in ledger.entries(self._folder.db, self._seen):
            self._seen = entry.seq
            line = told(entry)
            if line is None:
                continue
            if entry.operation == "create_mutation":
                self._sent.add(line.about)
            else:
                # What the services did comes before what the ledger learned from it.
                self._tell_tricks()
            self._tell(Seen(line))

    def _tell_tricks(self) -> None:
        played = [each for each in read(self._folder.outside) if each["what"] == "trick"]
        for trick in played[self._tricks :]:
            if trick["about"] in (*self._sent, "inbox"):
                self._tell(Seen(misbehaved(trick)))
                self._tricks += 1
            else:
                # Its call is in the ledger, and has not been told yet.
                return

    def _kill(self, child: Child) -> Killed:
        code = child.kill()
        calls = ledger.facts(self._folder.db).of("invoice.approved")[KILLED].calls
        outside = effects(read(self._folder.outside), "bank")[KILLED]
        return Killed(child.pid, code, KILLED, outside, calls[-1].status)


def _payments(outside: Outside, found: Facts) -> list[Payment]:
    booked, invoices = effects(outside, "bank"), found.of("invoice.approved")
    return [
        Payment(number, amount, booked[number], invoices[number].calls[-1].status, how(invoices[number].calls))
        for number, amount, _ in INVOICES
        if number in invoices and invoices[number].calls
    ]


def _summary(outside: Outside, found: Facts, wrong: list[str], commands: list[Command], took_ms: int) -> Summary:
    question = next((each.about for each in found.waiting if each.kind == "unknown"), None)
    return Summary(
        problems=wrong,
        payments=effects(outside, "bank").total(),
        rows=effects(outside, "sheets").total(),
        mails=len(MAILS),
        digests=effects(outside, "mail").total(),
        couriers=effects(outside, "courier").total(),
        took_ms=took_ms,
        question=question,
        about=UNANSWERED,
        commands=commands,
    )


def _commands(folder: Folder, sandbox: str, keep: list[str]) -> list[Command]:
    """What a person can type now. They work as they stand, from where the demo was started."""
    db = ["--db", str(folder.db)]
    here = f"KEEP_DEMO={shlex.quote(str(folder.path))} " if str(folder.path) != "keep-demo" else ""
    weaker = ["--sandbox", sandbox] if sandbox != "jailed" else []
    return [
        Command("look at it", shlex.join([*keep, "attention", *db])),
        Command("", shlex.join([*keep, "explain", UNANSWERED, *db])),
        Command("look outside", shlex.join(["grep", UNANSWERED, str(folder.outside)])),
        Command("answer it", shlex.join([*keep, "resolve", "--workflow", "payments", "happened", *db])),
        Command("or", shlex.join([*keep, "resolve", "--workflow", "payments", "did-not-happen", *db])),
        Command(
            "let it go on",
            here + shlex.join([*keep, "run", "--once", *db, "--connectors", "keep_actors.demo:connectors", *weaker]),
        ),
    ]
