"""The findings of the connector suite, each with why it matters and what to do."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec


class Check(StrEnum):
    """The mistakes that a connector can make."""

    EXAMPLE_MISSING = "example-missing"
    EXAMPLE_REFUSED = "example-refused"
    EXAMPLE_FAILS = "example-fails"
    DESCRIPTION_MISSING = "description-missing"
    HINT_MISSING = "hint-missing"
    URL_UNUSABLE = "url-unusable"
    PARAMS_CHANGE = "params-change"
    SURPRISE = "surprise"
    NO_EXCEPTION = "no-exception"
    RESULT_TOO_LARGE = "result-too-large"
    READ_CHANGES = "read-changes"
    FINDS_WHAT_NEVER_WAS = "finds-what-never-was"
    FINDS_ANOTHERS = "finds-anothers"
    MISSES_WHAT_HAPPENED = "misses-what-happened"
    COMES_LATER = "comes-later"
    ANOTHER_RESULT = "another-result"
    CANNOT_TELL = "cannot-tell"
    RECONCILE_CHANGES = "reconcile-changes"
    DEAF = "deaf"
    COMPARES_WRONGLY = "compares-wrongly"


WHY: Final[Mapping[Check, str]] = {
    Check.EXAMPLE_MISSING: "Nothing of this method was tried. Give an example, or name it in `leave_out`.",
    Check.EXAMPLE_REFUSED: "The example is not what the method takes. Correct the example, or the annotations.",
    Check.EXAMPLE_FAILS: "The method refused its example. Choose one that works on the account of this test.",
    Check.DESCRIPTION_MISSING: "Who writes scripts, person or model, reads nothing else. Write a docstring.",
    Check.HINT_MISSING: "When nobody knows whether it happened a person is asked, and has to know where to look.",
    Check.URL_UNUSABLE: "A person who has to look would be shown no link.",
    Check.PARAMS_CHANGE: "A call is made from what the ledger stored. It would not be the call that was asked for.",
    Check.SURPRISE: "It raised or returned what it does not declare: nobody knows whether a mutation happened then. "
    "Turn what the service's client raises into the errors of `keep_actors.connectors`, and return what is annotated.",
    Check.NO_EXCEPTION: "What is not an Exception ends the runtime, and not only this call.",
    Check.RESULT_TOO_LARGE: "A script cannot be given it. Return less, or page by page.",
    Check.READ_CHANGES: "Reads are repeated after every failure, so they must change nothing. If the answer changes by "
    "itself, name the read in `moving`.",
    Check.FINDS_WHAT_NEVER_WAS: "A call that never happened would be taken for done, and what it was for is lost.",
    Check.FINDS_ANOTHERS: "It takes the effect of another call for its own: one of two equal calls would be lost. Look "
    "for the idempotency key, not for the content.",
    Check.MISSES_WHAT_HAPPENED: "The call would be made again, and done twice. Look where the effect is, or "
    "declare `settle_ms` if it takes time to be seen.",
    Check.COMES_LATER: "`NotApplied` says that it will not come: the call would have been made again by then. Declare "
    "`settle_ms`, longer than a request can be under way.",
    Check.ANOTHER_RESULT: "A run that goes on after a crash must see what it would have seen without one.",
    Check.CANNOT_TELL: "A person would be asked although the connector says that it can find out.",
    Check.RECONCILE_CHANGES: "It is asked again and again: it must only look.",
    Check.DEAF: "A run that is stopped, and the end of the runtime, wait for it. Do not block, shield or swallow the "
    "cancellation.",
    Check.COMPARES_WRONGLY: "A payload must be equivalent to itself, or a repaired script asks a person for nothing.",
}


class Finding(msgspec.Struct, frozen=True):
    """A mistake of a method."""

    check: Check
    method: str
    """As a script calls it: `sheets.appendRow`."""
    what: str
    """The observation."""

    @property
    def why(self) -> str:
        """Why it matters, and what to do."""
        return WHY[self.check]

    def __str__(self) -> str:
        return f"{self.method}: {self.check}: {self.what}\n    {self.why}"


class CertificationReport(msgspec.Struct, frozen=True):
    """The result of the checks. `assert not report.findings, report` is a whole test."""

    connector: str
    made: list[str]
    """The checks that passed, in words."""
    findings: list[Finding]

    def __str__(self) -> str:
        right = f"{self.connector}: {len(self.made)} checks passed, {len(self.findings)} findings"
        return "\n".join([right, *map(str, self.findings)])
