"""The connector suite passes connectors that are right, and every check finds one that is wrong in its way."""
# ruff: noqa: ARG002 - connectors that are wrong do not look at what they are given

import inspect
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel
import msgspec
import pytest

from examples.connectors import Gmail, Sheets
from keep_actors.connectors import Applied, Connector, MutationCall, NotApplied, Retry, Similarity, mutation, read
from keep_actors.testing.connector_suite import check_connector
from keep_actors.testing.findings import WHY, Check, Finding
from keep_sandbox.limits import DEFAULT_LIMITS

pytestmark = pytest.mark.anyio

PAGE: Final = (Path(__file__).parents[2] / "docs" / "conformance.md").read_text("utf-8")
EXAMPLES: Final[Mapping[str, Mapping[str, Any]]] = {"look": {}, "add": {"page": "home", "text": "milk"}}
PATIENCE_MS: Final = 200


class Shelf(Connector):
    """Is right; each of those below is wrong in one way."""

    name = "shelf"

    def __init__(self) -> None:
        self.notes: dict[str, str] = {}
        self.looks = 0

    @read
    async def look(self) -> list[str]:
        """The contents."""
        return list(self.notes.values())

    @mutation(identity=["page"])
    async def add(self, page: str, text: str, call: MutationCall) -> str:
        """Put a note on a page."""
        await anyio.sleep(0.01)
        self.notes[call.idempotency_key] = text
        return text

    @add.reconcile
    async def find(self, call: MutationCall) -> Applied | NotApplied | Retry:
        return self.found(call)

    @add.compare_payload
    def compare(self, old: dict[str, Any], new: dict[str, Any]) -> Similarity:
        return self.compared(old, new)

    def found(self, call: MutationCall) -> Applied | NotApplied | Retry:
        key = call.idempotency_key
        return Applied(self.notes[key]) if key in self.notes else NotApplied()

    def compared(self, old: dict[str, Any], new: dict[str, Any]) -> Similarity:
        return "equivalent" if old == new else "significant"


class Silent(Shelf):
    @read
    async def look(self) -> list[str]:
        return []


class Unaided(Connector):
    name = "shelf"

    @mutation
    async def add(self, page: str, text: str) -> None:
        """Cannot be reconciled, and has no hint for a person."""


class Linkless(Connector):
    name = "shelf"

    @mutation(check_url=lambda call: f"/notes/{call.idempotency_key}")
    async def add(self, page: str, text: str) -> None:
        """Its link leads nowhere."""


class Rounded(msgspec.Struct):
    """Not read as it is written."""

    text: str

    def __post_init__(self) -> None:
        self.text += "!"


class Changing(Connector):
    name = "shelf"

    @read
    async def look(self, note: Rounded) -> str:
        """Takes what changes when it is read again."""
        return note.text


class Surprising(Shelf):
    @read
    async def look(self) -> list[str]:
        """Has a mistake."""
        raise KeyError("page")


class Leaving(Shelf):
    @read
    async def look(self) -> list[str]:
        """Ends the process."""
        raise SystemExit(3)


class Large(Shelf):
    @read
    async def look(self) -> list[str]:
        """Returns everything there is."""
        return ["x" * DEFAULT_LIMITS.value_bytes]


class Counting(Shelf):
    @read
    async def look(self) -> list[str]:
        """Says how often it was asked."""
        self.looks += 1
        return [str(self.looks)]


class Optimist(Shelf):
    def found(self, call: MutationCall) -> Applied:
        return Applied(call.params["text"])


class ByContent(Shelf):
    def found(self, call: MutationCall) -> Applied | NotApplied:
        text = call.params["text"]
        return Applied(text) if text in self.notes.values() else NotApplied()


class Blind(Shelf):
    def found(self, call: MutationCall) -> NotApplied:
        return NotApplied()


class Vague(Shelf):
    def found(self, call: MutationCall) -> Applied | NotApplied:
        return Applied("something") if call.idempotency_key in self.notes else NotApplied()


class Undecided(Shelf):
    def found(self, call: MutationCall) -> Retry:
        return Retry("the index is being built")


class Tidy(Shelf):
    def found(self, call: MutationCall) -> Applied | NotApplied | Retry:
        found = super().found(call)
        if isinstance(found, Applied):
            self.notes["tidied"] = "by reconcile"
        return found


class Deaf(Shelf):
    @mutation(check_hint="Listen.")
    async def add(self, page: str, text: str, call: MutationCall) -> str:
        """Hears nothing while it works."""
        time.sleep(1.5 * PATIENCE_MS / 1000)  # noqa: ASYNC251  # which is what is wrong with it
        await anyio.lowlevel.checkpoint()
        return text


class Delivering(Shelf):
    """Hands a note over, and what was handed over arrives whoever still waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.arrives: dict[str, tuple[float, str]] = {}

    @mutation(identity=["page"])
    async def add(self, page: str, text: str, call: MutationCall) -> str:
        """Posts a note."""
        self.arrives[call.idempotency_key] = (anyio.current_time() + 0.05, text)
        await anyio.sleep(0.06)
        return text

    @add.reconcile
    async def find_delivered(self, call: MutationCall) -> Applied | NotApplied:
        at, text = self.arrives.get(call.idempotency_key, (float("inf"), ""))
        return Applied(text) if at <= anyio.current_time() else NotApplied()


class Picky(Shelf):
    def compared(self, old: dict[str, Any], new: dict[str, Any]) -> Similarity:
        return "significant"


class Busy(Shelf):
    @read
    async def look(self) -> list[str]:
        """Cannot be reached."""
        raise ConnectionError("no route")


WRONG: Final[Mapping[Check, tuple[Callable[[], Connector], Mapping[str, Mapping[str, Any]]]]] = {
    Check.EXAMPLE_MISSING: (Shelf, {"look": {}}),
    Check.EXAMPLE_REFUSED: (Shelf, {"look": {}, "add": {"page": "home", "text": 7}}),
    Check.EXAMPLE_FAILS: (Busy, EXAMPLES),
    Check.DESCRIPTION_MISSING: (Silent, EXAMPLES),
    Check.HINT_MISSING: (Unaided, {"add": EXAMPLES["add"]}),
    Check.URL_UNUSABLE: (Linkless, {"add": EXAMPLES["add"]}),
    Check.PARAMS_CHANGE: (Changing, {"look": {"note": {"text": "milk"}}}),
    Check.SURPRISE: (Surprising, EXAMPLES),
    Check.NO_EXCEPTION: (Leaving, EXAMPLES),
    Check.RESULT_TOO_LARGE: (Large, EXAMPLES),
    Check.READ_CHANGES: (Counting, EXAMPLES),
    Check.FINDS_WHAT_NEVER_WAS: (Optimist, EXAMPLES),
    Check.FINDS_ANOTHERS: (ByContent, EXAMPLES),
    Check.MISSES_WHAT_HAPPENED: (Blind, EXAMPLES),
    Check.COMES_LATER: (Delivering, EXAMPLES),
    Check.ANOTHER_RESULT: (Vague, EXAMPLES),
    Check.CANNOT_TELL: (Undecided, EXAMPLES),
    Check.RECONCILE_CHANGES: (Tidy, EXAMPLES),
    Check.DEAF: (Deaf, EXAMPLES),
    Check.COMPARES_WRONGLY: (Picky, EXAMPLES),
}


async def test_a_connector_that_is_right_passes() -> None:
    report = await check_connector(Shelf(), examples=EXAMPLES)
    assert not report.findings, report
    assert "shelf.add: `reconcile` finds what happened, with its result" in report.made


async def test_the_connectors_of_the_examples_pass() -> None:
    send = {"to": "ann@example.com", "subject": "Lunch", "body": "At noon."}
    report = await check_connector(Gmail(), examples={"search": {"query": "lunch"}, "send": send})
    assert not report.findings, report
    row = {"spreadsheetId": "s1", "values": ["a"]}
    looks = {"rows": {"spreadsheetId": "s1"}, "getRow": {"rowId": "row_1"}}
    report = await check_connector(Sheets(), examples={**looks, "appendRow": row})
    assert not report.findings, report


@pytest.mark.parametrize("check", Check)
async def test_a_connector_that_is_wrong_is_found_out(check: Check) -> None:
    make, examples = WRONG[check]
    report = await check_connector(make(), examples=examples, patience_ms=PATIENCE_MS)
    assert check in {finding.check for finding in report.findings}, report
    assert WHY[check] in str(report)


async def test_an_effect_that_takes_time_to_be_seen_is_no_finding_if_that_is_declared() -> None:
    class Patient(Delivering):
        @mutation(identity=["page"], settle_ms=100)
        async def add(self, page: str, text: str, call: MutationCall) -> str:
            """Posts a note."""
            self.arrives[call.idempotency_key] = (anyio.current_time() + 0.05, text)
            return text

        @add.reconcile
        async def find_sent(self, call: MutationCall) -> Applied | NotApplied:
            return await self.find_delivered(call)

    report = await check_connector(Patient(), examples=EXAMPLES)
    assert not report.findings, report


async def test_a_read_that_moves_by_itself_is_no_finding_if_that_is_said() -> None:
    report = await check_connector(Counting(), examples=EXAMPLES, moving=["look"])
    assert not report.findings, report


async def test_what_is_left_out_is_not_called() -> None:
    shelf = Shelf()
    report = await check_connector(shelf, examples={"look": {}}, leave_out=["add"])
    assert not report.findings, report
    assert shelf.notes == {}


async def test_a_name_that_is_no_method_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="shelf has no method 'put'; there are: look, add"):
        await check_connector(Shelf(), examples={"put": {}})


async def test_a_connector_is_opened_before_and_closed_after() -> None:
    class Watched(Shelf):
        def __init__(self) -> None:
            super().__init__()
            self.told: list[str] = []

        async def open(self) -> None:
            self.told.append("open")

        async def close(self) -> None:
            self.told.append(f"close with {len(self.notes)} notes")

    watched = Watched()
    await check_connector(watched, examples=EXAMPLES)
    assert watched.told[0] == "open"
    assert watched.told[1:] == ["close with 1 notes"]


async def test_the_python_of_the_documentation_runs() -> None:
    [block] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(block, names)
    await names["test_notes_is_a_connector_that_a_runtime_can_rest_on"]()


async def test_every_check_and_argument_is_documented_and_every_check_has_its_reason() -> None:
    assert set(WHY) == set(WRONG) == set(Check)
    assert [check for check in Check if f"| `{check}` |" not in PAGE] == []
    assert [name for name in inspect.signature(check_connector).parameters if f"| `{name}` |" not in PAGE] == []
    assert str(Finding(Check.DEAF, "shelf.add", "it went on")).startswith("shelf.add: deaf: it went on\n")
