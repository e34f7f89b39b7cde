"""The account of a demo, from two files: the runtime's ledger and `outside.jsonl`. The runtime is not asked."""

import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from keep_actors.demo.services import MAILS, TRICKS, UNANSWERED, Trick, read_outside
from keep_storage import reads
from keep_storage.model import JournalEntry, Mutation
from keep_storage.sqlite import open_reader
from keep_storage.transaction import Queries

INVOICES: Final = {"inv-1": 120, "inv-2": 80, "inv-3": 310, "inv-4": 45, "inv-5": 95}
URGENT: Final = ("inv-2", "inv-5")
"""Invoices that a courier brings, as parcel-2 and parcel-5."""

_OUTSIDE: Final = Counter(
    [f"bank {number} {amount}" for number, amount in INVOICES.items()]
    + [f"sheets {mail.id} " for mail in MAILS]
    + ["courier parcel-2 ", f"courier {UNANSWERED} ", "mail digest-1 " + "\n".join(mail.subject for mail in MAILS)]
    + [f"{service} {about} {trick.name.lower()}" for (service, about), trick in TRICKS.items()]
)
_LEDGER: Final = Counter(
    [f"{topic} {mail.id} consumed" for topic in ("mail.received", "mail.seen") for mail in MAILS]
    + [f"invoice.approved {number} consumed" for number in INVOICES]
    + ["parcel.ready parcel-2 consumed", f"parcel.ready {UNANSWERED} reserved"]
    + [f"bank.pay {number} applied" for number in INVOICES]
    + [f"sheets.appendRow {mail.id} applied" for mail in MAILS]
    + [
        "mail.send digest-1 applied",
        "courier.dispatch parcel-2 applied",
        f"courier.dispatch {UNANSWERED} indeterminate",
    ]
)
"""Both files as they are at the end: every effect once, every event done, and one question open."""

_KILLED: Final = -int(getattr(signal, "SIGKILL", -1))
"""The exit code of a process that was killed. Windows has no signals: 1."""

_NAMES: Final = {"mail": "mailbox", "sheets": "sheet", "bank": "bank", "courier": "courier"}
_CHANGES: Final[Mapping[tuple[str, ...], tuple[str, str]]] = {
    ("in_flight", "applied"): ("good", "answered: it is done"),
    ("in_flight", "failed"): ("plain", "refused (503): nothing happened, so it is tried again"),
    ("in_flight", "needs_reconcile"): ("doubt", "no answer: the outcome is unknown"),
    ("in_flight", "indeterminate"): ("doubt", "no answer, and the {} cannot be asked: a person is"),
    ("needs_reconcile", "needs_reconcile"): ("doubt", "the {} was asked: not there, but it may still arrive"),
    ("needs_reconcile", "applied"): ("good", "the {} was asked: it has it. Not sent again"),
    ("needs_reconcile", "failed"): ("plain", "the {} was asked: it does not have it. Sent again"),
}
"""By the status of a call before and after: a tone and words."""
_KNOWN: Final[Mapping[tuple[str, str | None], str]] = {
    ("applied", "connector"): "answered",
    ("failed", "connector"): "refused",
    ("applied", "reconciliation"): "no answer, asked: there",
    ("failed", "reconciliation"): "no answer, asked: not there",
}


class Line(msgspec.Struct, frozen=True):
    """One line of the account."""

    tone: str
    who: str
    about: str
    words: str


def news(db: Path, after: int) -> list[tuple[JournalEntry, Line | None]]:
    """Read the journal after a sequence number, with the line about each entry that is worth one."""
    with closing(open_reader(str(db))) as q:
        return [(entry, _line(q, entry)) for entry in reads.journal(q, after=after)]


def _line(q: Queries, entry: JournalEntry) -> Line | None:
    changed: dict[str, Any] = msgspec.json.decode(entry.changed)
    workflow = reads.workflow(q, entry.workflow_id) if entry.workflow_id is not None else None
    who = workflow.name if workflow is not None else ""
    call = reads.mutation(q, changed["mutation"]) if changed.get("mutation") is not None else None
    match entry.operation:
        case "create_mutation" if call is not None:
            return Line("plain", who, _subject(call), f"{_method(call)}: written into the ledger, then sent")
        case "recover_crashed_runs" if call is not None:
            return Line("doubt", who, _subject(call), "found as sent and not answered: the outcome is unknown")
        case _ if call is not None:
            tone, words = _CHANGES[tuple(changed["mutation_status"])]
            return Line(tone, who, _subject(call), words.format(_NAMES[call.connector]))
        case "commit_producer" if changed["published"]:
            return Line("plain", who, "inbox", f"{changed['published']} mails are there")
        case "update_handler_run_status" if "mail.inbox" in entry.why:
            return Line("plain", who, "inbox", "refused (503): it was only a read, tried again")
        case "update_consumer_phase" if changed.get("wake_at") is not None:
            return Line("plain", who, "digest", "waits for more mails, and is to be woken (wakeAt)")
        case "create_session" if changed["trigger"] == "wake":
            return Line("good", who, "digest", "is woken: wakeAt was in the file")
    return None


def tricks_about(folder: Path, about: str) -> list[Line]:
    """Return the lines about the tricks that a service played on a subject."""
    played = [each for each in read_outside(folder) if (each["what"], each["about"]) == ("trick", about)]
    words = [(_NAMES[each["service"]], Trick[each["trick"].upper()]) for each in played]
    return [Line("trick", f"the {service}", about, f"on purpose: {trick}") for service, trick in words]


def calls_about(db: Path, about: str) -> list[Mutation]:
    """Return the calls about a subject, oldest first."""
    with closing(open_reader(str(db))) as q:
        calls = [call for flow in reads.workflows(q) for call in reads.outputs(q, flow.id)]
        return [call for call in reversed(calls) if _subject(call) == about]


def how_known(calls: list[Mutation]) -> str:
    """Say in words how the ledger learned the outcomes."""
    return "; ".join(_KNOWN.get((each.status, each.resolved_by), each.status) for each in calls)


def outside(folder: Path) -> "Counter[str]":
    """Count the effects and the tricks outside: service, subject, and the amount, text or trick."""
    lines = [(each, each.get("amount") or each.get("body") or each.get("trick") or "") for each in read_outside(folder)]
    return Counter(f"{each['service']} {each['about']} {detail}" for each, detail in lines)


def ledger(db: Path) -> "Counter[str]":
    """Count the events, and the calls that took effect or may have: name, subject and status."""
    with closing(open_reader(str(db))) as q, q.snapshot():
        flows = reads.workflows(q)
        topics = [topic for flow in flows for topic in reads.topics(q, flow.id)]
        events = [(topic.name, each) for topic in topics for each in reads.events(q, topic.workflow_id, topic.name)]
        calls = [call for flow in flows for call in reads.outputs(q, flow.id) if call.status != "failed"]
        return Counter(
            [f"{topic} {each.message_id} {each.status}" for topic, each in events]
            + [f"{_method(each)} {_subject(each)} {each.status}" for each in calls]
        )


def is_done(db: Path) -> bool:
    """Return True once nothing is left but the question to a person."""
    return ledger(db) == _LEDGER


def problems(outside: "Counter[str]", ledger: "Counter[str]", exit_code: int, unhealthy: list[str]) -> Iterator[str]:
    """Compare both files, and the end of the first runtime, with the claims of the demo."""
    killed = Counter([f"exit code {exit_code}"])
    for where, there, wanted in (
        ("outside", outside, _OUTSIDE),
        ("in the ledger", ledger, _LEDGER),
        ("in the first life", killed, Counter([f"exit code {_KILLED}"])),
    ):
        for each in sorted((there - wanted) | (wanted - there)):
            yield f"{each}: {there[each]} time(s) {where}, and should be {wanted[each]}"
    yield from unhealthy


def _method(call: Mutation) -> str:
    return f"{call.connector}.{call.method}"


def _subject(call: Mutation) -> str:
    params = msgspec.json.decode(call.params)
    return next(str(params[name]) for name in ("invoice", "row", "parcel", "subject") if name in params)
