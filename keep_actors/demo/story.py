"""The words of the demo: what an entry of the journal, or a trick of a service, means to a person. Pure."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from keep_actors.demo.ledger import Entry
from keep_actors.demo.tricks import Trick
from keep_storage.model import Mutation

Tone = Literal["plain", "good", "doubt", "trick"]

_CALLS: Final[Mapping[tuple[str, str, str], tuple[Tone, str]]] = {
    ("in_flight", "applied", "connector"): ("good", "answered: it is done"),
    ("in_flight", "failed", "connector"): ("plain", "refused (503): nothing happened, so it is tried again"),
    ("in_flight", "needs_reconcile", ""): ("doubt", "no answer: nobody knows whether it happened"),
    ("in_flight", "indeterminate", ""): ("doubt", "no answer, and the {service} cannot be asked: a person is"),
    ("needs_reconcile", "needs_reconcile", ""): (
        "doubt",
        "the {service} was asked: not there, but it may still arrive",
    ),
    ("needs_reconcile", "applied", "reconciliation"): ("good", "the {service} was asked: it has it. Not sent again"),
    ("needs_reconcile", "failed", "reconciliation"): (
        "plain",
        "the {service} was asked: it does not have it. Sent anew",
    ),
}
"""By what a call was, what it is now, and who settled it."""

_NAMES: Final[Mapping[str, str]] = {"mail": "mailbox", "sheets": "sheet", "bank": "bank", "courier": "courier"}
"""What people call a service."""

_SUBJECT: Final = ("invoice", "row", "parcel", "subject")
"""The parameter that names what a call is about."""


class Line(msgspec.Struct, frozen=True):
    """One line of the account."""

    tone: Tone
    who: str
    about: str
    words: str


def told(entry: Entry) -> Line | None:
    """The line about an entry. None if it is not worth one."""
    if entry.mutation is not None:
        return _call(entry, entry.mutation)
    changed = entry.changed
    match entry.operation:
        case "commit_producer" if changed["published"]:
            return Line("plain", entry.workflow, "inbox", f"{changed['published']} mails are there")
        case "update_handler_run_status" if "mail.inbox" in entry.why:
            return Line("plain", entry.workflow, "inbox", "refused (503): it was only a read, tried again")
        case "update_consumer_phase" if changed.get("wake_at") is not None:
            return Line("plain", entry.workflow, "digest", "waits for more mails, and is to be woken (wakeAt)")
        case "create_session" if changed["trigger"] == "wake":
            return Line("good", entry.workflow, "digest", "is woken: wakeAt was in the file")
        case _:
            return None


def _call(entry: Entry, mutation: Mutation) -> Line:
    about = subject(mutation)
    if entry.operation == "create_mutation":
        words = f"{mutation.connector}.{mutation.method}: written into the ledger, then sent"
        return Line("plain", entry.workflow, about, words)
    before, after = entry.changed["mutation_status"]
    if entry.operation == "recover_crashed_runs":
        return Line("doubt", entry.workflow, about, "found as sent and not answered: nobody knows")
    tone, words = _CALLS.get((before, after, entry.changed.get("resolved_by") or ""), ("plain", f"{before}, {after}"))
    return Line(tone, entry.workflow, about, words.format(service=_NAMES[mutation.connector]))


def misbehaved(trick: Mapping[str, str]) -> Line:
    """The line about a trick, as the services wrote it down."""
    words = f"on purpose: {Trick[trick['trick'].upper()]}"
    return Line("trick", f"the {_NAMES[trick['service']]}", trick["about"], words)


def subject(mutation: Mutation) -> str:
    """What a call is about, in a word."""
    params = msgspec.json.decode(mutation.params)
    return next((str(params[name]) for name in _SUBJECT if name in params), "")


def how(calls: list[Mutation]) -> str:
    """How the ledger came to know about a call, in words."""
    return "; ".join(_HOW.get((each.status, each.resolved_by or ""), str(each.status)) for each in calls)


_HOW: Final[Mapping[tuple[str, str], str]] = {
    ("applied", "connector"): "answered",
    ("failed", "connector"): "refused",
    ("applied", "reconciliation"): "no answer, asked: there",
    ("failed", "reconciliation"): "no answer, asked: not there",
    ("indeterminate", ""): "no answer, nobody to ask",
}
