"""What the services do wrong, on purpose: one closed table. Each trick is played once; nothing is left to chance."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Trick(StrEnum):
    REFUSE = "503, and nothing is done"
    HANG = "it is done, and no answer comes"
    LOSE_ANSWER = "it is done, and the answer gets lost"
    LOSE_REQUEST = "the request gets lost, nothing is done"


KILLED: Final = "inv-3"
"""The payment in the middle of which the runtime is killed."""

UNANSWERED: Final = "parcel-5"
"""The call that nobody can be asked about."""

TRICKS: Final[Mapping[tuple[str, str], Trick]] = {
    ("mail", "inbox"): Trick.REFUSE,
    ("sheets", "mail-2"): Trick.LOSE_ANSWER,
    ("bank", "inv-2"): Trick.REFUSE,
    ("bank", KILLED): Trick.HANG,
    ("bank", "inv-4"): Trick.LOSE_ANSWER,
    ("bank", "inv-5"): Trick.LOSE_REQUEST,
    ("courier", UNANSWERED): Trick.LOSE_ANSWER,
}
"""By service and by what it is asked about."""

SERVICES: Final = ("mail", "sheets", "bank", "courier")
assert {service for service, _ in TRICKS} <= set(SERVICES), "a trick is played by a service that there is"

RETRY_AFTER_MS: Final = 300
"""What a service that refuses says about when to come back."""

MAILS: Final = (
    ("mail-1", "ann@example.com", "Receipt for the chairs"),
    ("mail-2", "bob@example.com", "Receipt for the lamp"),
    ("mail-3", "cleo@example.com", "Receipt for the desk"),
)
INVOICES: Final = (
    ("inv-1", 120, False),
    ("inv-2", 80, True),
    ("inv-3", 310, False),
    ("inv-4", 45, False),
    ("inv-5", 95, True),
)
"""Number, amount, whether a courier brings it."""
