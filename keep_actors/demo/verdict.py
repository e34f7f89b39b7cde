"""Is what the demo claims true? Counted from what happened outside, beside what the ledger says. Pure."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from keep_actors.demo.ledger import Facts
from keep_actors.demo.tricks import INVOICES, MAILS, TRICKS, UNANSWERED
from keep_storage.model import EventStatus, MutationStatus

Outside = list[dict[str, Any]]


def effects(outside: Outside, service: str) -> Counter[str]:
    """How often something happened, by what it is about."""
    return Counter(each["about"] for each in outside if each["service"] == service and each["what"] == "effect")


def digested(outside: Outside) -> Counter[str]:
    """How often a subject was in a digest."""
    bodies = [e["body"] for e in outside if e["service"] == "mail" and e["what"] == "effect"]
    return Counter(line for body in bodies for line in body.splitlines())


def parcels() -> list[str]:
    return [number.replace("inv", "parcel") for number, _, urgent in INVOICES if urgent]


def is_done(found: Facts) -> bool:
    """Everything came in, and nothing is left to do but what a person has to say."""
    wanted = {
        "mail.received": {mail for mail, _, _ in MAILS},
        "mail.seen": {mail for mail, _, _ in MAILS},
        "invoice.approved": {number for number, _, _ in INVOICES},
        "parcel.ready": set(parcels()),
    }
    if any(set(found.of(topic)) != ids for topic, ids in wanted.items()):
        return False
    left = [each for each in found.events if each.status is not EventStatus.CONSUMED]
    return bool(found.waiting) and [each.message_id for each in left] == [UNANSWERED]


def problems(outside: Outside, found: Facts, exit_code: int, unhealthy: list[str]) -> list[str]:
    """Everything that is not as it should be, in words. Nothing, if what the demo claims is true."""
    return [*_counted(outside), *_recorded(found), *_played(outside, exit_code), *unhealthy]


def _counted(outside: Outside) -> Iterator[str]:
    numbers = [number for number, _, _ in INVOICES]
    mails = [mail for mail, _, _ in MAILS]
    subjects = [subject for _, _, subject in MAILS]
    for what, there, wanted in (
        ("payment", effects(outside, "bank"), numbers),
        ("row", effects(outside, "sheets"), mails),
        ("courier", effects(outside, "courier"), parcels()),
        ("digested mail", digested(outside), subjects),
    ):
        for about in sorted({*there, *wanted}):
            if there[about] != 1 or about not in wanted:
                yield f"{what} {about}: {there[about]} times outside, and should be {int(about in wanted)} time(s)"
    amounts = {e["about"]: e["amount"] for e in outside if e["service"] == "bank" and e["what"] == "effect"}
    for number, amount, _ in INVOICES:
        if amounts.get(number, amount) != amount:
            yield f"payment {number}: {amounts[number]} EUR outside, and should be {amount}"


def _recorded(found: Facts) -> Iterator[str]:
    for each in found.events:
        where = f"{each.message_id} in {each.topic}"
        applied = sum(call.status is MutationStatus.APPLIED for call in each.calls)
        if each.message_id == UNANSWERED:
            if each.status is not EventStatus.RESERVED or applied:
                yield f"{where} is {each.status}, and should be held by the open question"
        elif each.status is not EventStatus.CONSUMED or applied != 1:
            yield f"{where} is {each.status} with {applied} applied call(s), and should be consumed by one"
    if not is_done(found):
        yield "not everything that came in is in the ledger and done"
    if [each.kind for each in found.waiting] != ["unknown"]:
        yield f"{len(found.waiting)} thing(s) wait for a person, and it should be the one question"


def _played(outside: Outside, exit_code: int) -> Iterator[str]:
    if exit_code != -9:
        yield f"the runtime ended with {exit_code}, and should have been killed (-9)"
    played = [(each["service"], each["about"]) for each in outside if each["what"] == "trick"]
    if sorted(played) != sorted(TRICKS):
        yield f"the services should have misbehaved {len(TRICKS)} times, and did {len(played)} times"
