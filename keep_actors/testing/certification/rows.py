"""The rows of a certification: every mishap that is tried, and why it matters. A closed table."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec


class CertificationRow(StrEnum):
    """The mishaps. The value is the name on the command line."""

    PLAIN = "plain"
    REFUSED = "refused"
    LOST_REQUEST = "lost-request"
    CUT_IN_THE_MIDDLE = "cut-in-the-middle"
    LOST_ANSWER = "lost-answer"
    NO_ANSWER = "no-answer"
    OWN_TIMEOUT = "own-timeout"
    HALF_ANSWER = "half-answer"
    SLOW_ANSWER = "slow-answer"
    LATE_COMMIT = "late-commit"
    DUPLICATE = "duplicate"
    FOUND = "found"
    NEVER_MADE = "never-made"
    ANOTHERS = "anothers"
    SLOW_RECONCILE = "slow-reconcile"
    FAILING_RECONCILE = "failing-reconcile"
    CANCELLED = "cancelled"
    TOO_LATE = "too-late"
    CONCURRENT = "concurrent"
    REPEATED = "repeated"
    KILLED_RECORD = "killed-record"
    KILLED_RECORDED = "killed-recorded"
    KILLED_SENDING = "killed-sending"
    KILLED_NOTED = "killed-noted"
    KILLED_WORKING = "killed-working"
    KILLED_REQUEST = "killed-request"
    KILLED_ANSWER = "killed-answer"
    KILLED_ANSWERED = "killed-answered"
    KILLED_CHECK = "killed-check"
    KILLED_CHECKED = "killed-checked"


class RowOutcome(StrEnum):
    """The result of a row."""

    HELD = "held"
    FAILED = "failed"
    DOES_NOT_APPLY = "does not apply"


class RowAbout(msgspec.Struct, frozen=True):
    """The words of a row."""

    mishap: str
    why: str
    """The harm that a runtime would do, and how to repair the connector."""


_TWICE: Final = "A runtime makes a call again when it is told that nothing happened: the effect would be there twice. "
_KILLED: Final = (
    "A runtime that starts again asks `reconcile`, or a person. Whatever it is told there must agree with the service."
)

ABOUT: Final[Mapping[CertificationRow, RowAbout]] = {
    CertificationRow.PLAIN: RowAbout(
        "nothing: the call is made", "Without one effect of one call nothing else can be tried."
    ),
    CertificationRow.REFUSED: RowAbout(
        "the service refuses connections", "It must not pass for a success, and the next call must find the way again."
    ),
    CertificationRow.LOST_REQUEST: RowAbout(
        "the connection is cut before the decisive bytes",
        "A request that never arrived must not pass for an effect, or work is lost.",
    ),
    CertificationRow.CUT_IN_THE_MIDDLE: RowAbout(
        "the connection is reset in the middle of the decisive bytes",
        _TWICE + "Raise a ConnectorError only for an answer of the service that refuses.",
    ),
    CertificationRow.LOST_ANSWER: RowAbout(
        "the request arrives, and its answer is lost",
        _TWICE + "Let a broken connection through after `call.sending()`: its outcome is unknown.",
    ),
    CertificationRow.NO_ANSWER: RowAbout(
        "the request arrives, and no answer comes until the time is over",
        _TWICE + "A time-out after `call.sending()` is an unknown outcome.",
    ),
    CertificationRow.OWN_TIMEOUT: RowAbout(
        "no answer comes, and the host waits longer than the connector does",
        _TWICE + "A time-out of your client says nothing about the request: let it through, or raise `Uncertain`.",
    ),
    CertificationRow.HALF_ANSWER: RowAbout(
        "the request arrives, and the connection breaks in the middle of its answer",
        _TWICE + "An answer that cannot be read is no refusal: raise `Uncertain`.",
    ),
    CertificationRow.SLOW_ANSWER: RowAbout(
        "the answer comes late", "A client that sends again by itself makes two effects."
    ),
    CertificationRow.LATE_COMMIT: RowAbout(
        "the request arrives after the time of its call",
        "`NotApplied` promises that it will not come. Declare `settle_ms`, longer than a request can be on its way.",
    ),
    CertificationRow.DUPLICATE: RowAbout(
        "the network delivers the request twice",
        "Send the idempotency key where the service refuses a second use of it; or set `refuses_repetition` to False.",
    ),
    CertificationRow.FOUND: RowAbout(
        "`reconcile` is asked about a call that happened, also after a restart",
        "Without `Applied` the call is made again; with another result a run continues with what it would not have "
        "seen without a crash.",
    ),
    CertificationRow.NEVER_MADE: RowAbout(
        "`reconcile` is asked about a call that was never made, alone and beside one with nearly the same key",
        "`Applied` would take for done what nobody did, and the work is lost.",
    ),
    CertificationRow.ANOTHERS: RowAbout(
        "`reconcile` is asked about a call that was never made, after an equal call with another key",
        "One of two equal calls would be lost. Look for the idempotency key, not for the content.",
    ),
    CertificationRow.SLOW_RECONCILE: RowAbout(
        "`reconcile` gets no answer from the service",
        "A question without an answer is no `NotApplied`: let the time-out through, or return `Retry`.",
    ),
    CertificationRow.FAILING_RECONCILE: RowAbout(
        "the connection of `reconcile` breaks, and then is refused",
        "An error while looking is no `NotApplied`: let it through, or return `Retry`.",
    ),
    CertificationRow.CANCELLED: RowAbout(
        "the host cancels the call: at once, in the middle, and when it is being sent",
        "A run that was stopped must not act afterwards. Send nothing after `call.sending()` has refused; do not "
        "shield or swallow the cancellation.",
    ),
    CertificationRow.TOO_LATE: RowAbout(
        "the host stops waiting before the connector calls `call.sending()`",
        "A call that the host has given up is made again. Call `sending` before the first byte that can matter, and "
        "let what it raises through.",
    ),
    CertificationRow.CONCURRENT: RowAbout(
        "several calls at once", "One connector serves all workflows: calls share no state."
    ),
    CertificationRow.REPEATED: RowAbout(
        "the call is made twice with one key",
        "Either it is one effect, and the second call answers as the first did, or set `refuses_repetition` to False.",
    ),
    CertificationRow.KILLED_RECORD: RowAbout("SIGKILL before the call is in the ledger", _KILLED),
    CertificationRow.KILLED_RECORDED: RowAbout("SIGKILL when the call is in the ledger and not made", _KILLED),
    CertificationRow.KILLED_SENDING: RowAbout("SIGKILL at `call.sending()`", _KILLED),
    CertificationRow.KILLED_NOTED: RowAbout(
        "SIGKILL when a note is durable and the connector does not know it", _KILLED
    ),
    CertificationRow.KILLED_WORKING: RowAbout("SIGKILL soon after the beginning, at several times", _KILLED),
    CertificationRow.KILLED_REQUEST: RowAbout("SIGKILL when the decisive bytes are on their way", _KILLED),
    CertificationRow.KILLED_ANSWER: RowAbout("SIGKILL when the answer is on its way", _KILLED),
    CertificationRow.KILLED_ANSWERED: RowAbout(
        "SIGKILL when the connector has answered and the ledger does not know", _KILLED
    ),
    CertificationRow.KILLED_CHECK: RowAbout("SIGKILL before `reconcile` is asked, after a first SIGKILL", _KILLED),
    CertificationRow.KILLED_CHECKED: RowAbout(
        "SIGKILL when `reconcile` has answered and the ledger does not know", _KILLED
    ),
}

assert list(ABOUT) == list(CertificationRow), "every row has its words, in order"
