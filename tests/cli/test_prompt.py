"""`keep prompt`: all that a model has to know, within a budget, and nothing that is not so."""

import json
import re
from pathlib import Path
from typing import Literal, NoReturn

import msgspec
import pytest
from click.testing import CliRunner

from examples.connectors import Gmail, Mail, Sheets, demo
from keep_actors import Policy
from keep_actors.authoring.contract import contract
from keep_actors.authoring.writing import example, writing_prompt
from keep_actors.cli.authoring import prompt
from keep_actors.cli.main import main
from keep_actors.connectors import Catalog, Connector, mutation, read
from keep_actors.demo import connectors as demo_connectors
from keep_actors.maintenance.prompt import messages_for
from keep_actors.run.gate import ScriptPhase
from keep_sandbox.inspect import inspect
from keep_storage.model import RunStatus
from tests.maintenance.world import a_task
from tests.runtime.world import DAY, world

ROOT = Path(__file__).parents[2]
TOKENS_MAX = 6_000


def tokens_of(text: str) -> float:
    """More than any tokeniser would make of it.

    English has about 4 characters to a token, and source code, with its brackets and short names, about 3.3 in the
    worst of the common vocabularies; a word is 1.3 tokens on average. Whichever estimate is larger is taken.
    """
    return max(len(text) / 3.2, len(text.split()) * 1.5)


def only_described(*_: object) -> NoReturn:
    """Models are told of these methods; nobody calls them."""
    raise AssertionError("it was called")


class Account(msgspec.Struct, rename="camel"):
    iban: str
    owner_name: str
    balance_cents: int


class Payment(msgspec.Struct, rename="camel"):
    payment_id: str
    to_iban: str
    amount_cents: int
    reference: str
    status: Literal["pending", "booked", "rejected"]


class BankAccounts(Connector):
    name = "bank"

    @read
    async def accounts(self) -> list[Account]:
        """Every account that this customer may use."""
        return []

    @read
    async def list_payments(self, iban: str, since: str | None = None, limit: int = 100) -> list[Payment]:
        """Payments from an account, newest first."""
        only_described(iban, since, limit)

    @read(by_id=True)
    async def get_payment(self, payment_id: str) -> Payment | None:
        """One payment, or null."""
        only_described(payment_id)

    @mutation(risk="high")
    async def pay(self, from_iban: str, to_iban: str, amount_cents: int, reference: str) -> Payment:
        """Pay from one account to another. It cannot be taken back."""
        only_described(from_iban, to_iban, amount_cents, reference)


class Meeting(msgspec.Struct, rename="camel"):
    meeting_id: str
    title: str
    starts_at: str
    ends_at: str
    guests: list[str]


class Calendar(Connector):
    name = "calendar"

    @read
    async def list_meetings(self, from_: str, to: str) -> list[Meeting]:
        """Meetings that begin between two instants, oldest first."""
        only_described(from_, to)

    @mutation
    async def invite(self, title: str, starts_at: str, minutes: int, guests: list[str]) -> Meeting:
        """Make a meeting and invite its guests."""
        only_described(title, starts_at, minutes, guests)

    @mutation
    async def cancel(self, meeting_id: str, reason: str = "") -> None:
        """Call a meeting off; its guests are told."""
        only_described(meeting_id, reason)


class Contact(msgspec.Struct, rename="camel"):
    contact_id: str
    name: str
    mails: list[str]
    tags: dict[str, str]
    notes: list[str] = []


class Crm(Connector):
    name = "crm"

    @read
    async def find_contacts(self, query: str, limit: int = 20) -> list[Contact]:
        """Contacts whose name or mail contains the query."""
        only_described(query, limit)

    @mutation
    async def add_note(self, contact_id: str, text: str) -> Contact:
        """Add a note to a contact."""
        only_described(contact_id, text)

    @mutation
    async def set_tag(self, contact_id: str, name: str, value: str) -> Contact:
        """Set or replace a tag of a contact."""
        only_described(contact_id, name, value)


FIVE = Catalog([Gmail(), Sheets(), BankAccounts(), Calendar(), Crm()])


def test_the_prompt_fits_its_budget_with_five_connectors() -> None:
    text = writing_prompt(FIVE, task="Pay every invoice that comes by mail, and note it in the CRM.")
    assert len(FIVE.methods) >= 15
    assert tokens_of(text) < TOKENS_MAX


DEMO = Catalog(demo_connectors())


def test_the_prompt_fits_its_budget_with_the_connectors_of_the_demo() -> None:
    assert tokens_of(writing_prompt(DEMO)) < TOKENS_MAX


@pytest.mark.parametrize("file", sorted((ROOT / "keep_actors" / "demo").glob("*.js")), ids=lambda file: str(file.name))
def test_everything_that_a_script_of_the_demo_uses_is_in_the_prompt(file: Path) -> None:
    text, script = writing_prompt(DEMO).replace(example(), ""), file.read_text("utf-8")
    assert used_by(script) - {each for each in used_by(script) if each in text} == set()


def scripts() -> dict[str, str]:
    found = {file.name: file.read_text("utf-8") for file in (ROOT / "examples").glob("*.js")}
    documented = re.findall(r"^```js\n(.*?)^```$", (ROOT / "docs" / "scripts.md").read_text("utf-8"), re.DOTALL | re.M)
    return found | {f"docs {number}": script for number, script in enumerate(documented)} | {"shown": example()}


OWN = ("peek", "getByIds", "publish", "withItem", "item")


@pytest.mark.parametrize("name", scripts())
def test_everything_that_an_example_uses_is_in_the_prompt(name: str) -> None:
    without_example = writing_prompt(Catalog(demo())).replace(example(), "")
    used = used_by(scripts()[name])
    assert len(used) >= 3
    assert {each for each in used if each not in without_example} == set()


def used_by(script: str) -> set[str]:
    """Every helper of `Keep` and every member of `ctx` that a script names."""
    named = re.findall(r"\bctx\.(\w+)\.(\w+)", script)
    return {
        *re.findall(r"\bKeep\.\w+", script),
        *(f"ctx.{first}" for first in re.findall(r"\bctx\.(\w+)", script) if first in OWN),
        *(f"ctx.{first}.{second}" for first, second in named if first not in OWN),
    }


WORDS = [
    *("name", "topics", "producers", "consumers", "jobs", "schedule", "interval", "cron", "publishes", "handler"),
    *("subscribe", "orderingKey", "prepare", "mutate", "next", "state", "prepared", "mutationResult"),
    *("reservations", "topic", "ids", "data", "ui", "title", "wakeAt"),
    *("messageId", "payload", "createdAt", "cursor", "limit", "after"),
    *("applied", "none", "skipped", "result", "isDone", "subkey", "console.log", "Date"),
]


@pytest.mark.parametrize("word", WORDS)
def test_every_field_is_explained(word: str) -> None:
    text = writing_prompt(Catalog([])).replace(example(), "")
    assert re.search(rf"(?<![\w.]){re.escape(word)}(?!\w)", text)


@pytest.mark.parametrize(
    "said",
    [
        '`schedule: {interval: "30s"}` (s, m, h, d; at least 1s) runs at deploy',
        "runs at its next time in the workflow's time zone, which is UTC unless it is deployed with another; never at ",
        "Await each item, with `for … of`",
        "A second call of the same method in one item needs a parameter `subkey",
        '`{status: "skipped", reason}`',
        "returning nothing keeps it, `null` replaces it",
        "gives these events in any status: look at `status`",
    ],
)
def test_a_writer_is_told_what_runs_when_and_what_is_waited_for(said: str) -> None:
    assert said in writing_prompt(Catalog([]))


def test_who_writes_or_repairs_a_script_is_told_to_await_every_item_and_of_the_reason_of_a_skip() -> None:
    said = contract(Policy())
    assert "await each, with `for … of` and not `forEach`" in said
    assert "`{status: 'skipped', reason}`" in said


def test_a_writer_and_a_repairer_are_told_the_same_contract() -> None:
    for policy in (Policy(), Policy(mutate_reads="by_id")):
        said = contract(policy)
        assert all(f"- {stage}: " in said for stage in ScriptPhase)
        assert said.rstrip() in writing_prompt(FIVE, policy)
        [system, _] = messages_for(a_task(mutate_reads=policy.mutate_reads))
        assert said in system.content


def test_nothing_is_left_to_be_filled_in() -> None:
    assert "<<" not in writing_prompt(FIVE)
    assert ">>" not in writing_prompt(FIVE)


def test_every_method_is_there_with_its_types_and_kind() -> None:
    text = writing_prompt(FIVE)
    assert all(f"- `ctx.{name}(" in text for name in FIVE.methods)
    for line in (
        "type Payment = { paymentId: string; toIban: string; amountCents: number; reference: string; "
        'status: "booked" | "pending" | "rejected" }',
        "- `ctx.bank.accounts()` → `Account[]` (read). Every account that this customer may use.",
        "- `ctx.bank.getPayment({ paymentId: string })` → `Payment | null` (read by id). One payment, or null.",
        "- `ctx.calendar.cancel({ meetingId: string; reason?: string })` → `null` (mutation). "
        "Call a meeting off; its guests are told.",
        "- `ctx.gmail.search({ query?: string; after?: string | null }?)` → `Mail[]` (read). ",
    ):
        assert line in text


def test_the_example_that_is_shown_has_no_problems() -> None:
    assert inspect(example(), Catalog(demo()).kinds()).problems == []


@pytest.mark.anyio
async def test_the_example_that_is_shown_runs() -> None:
    gmail, sheets = Gmail(), Sheets()
    mails: list[Mail] = [gmail.receive("ann@example.com", "Invoice 7"), gmail.receive("bob@example.com", "Thank you")]
    async with world(gmail, sheets) as box:
        await box.keep.deploy(example())
        await box.settle()
        await box.advance(DAY)
        assert {run.status for run in await box.keep.runs("invoices")} == {RunStatus.COMMITTED}
        assert set(await box.statuses("invoices", "invoice.filed")) == {f"filed:{mails[0].id}"}
    assert sheets.rows_of("invoices") == [[mails[0].id, "ann@example.com", "Invoice 7"]]
    assert [mail.to for mail in gmail.sent] == ["bob@example.com"]


def test_the_command_prints_the_prompt_with_the_task_last() -> None:
    arguments = ["--connectors", "examples.connectors:demo"]
    plain = CliRunner().invoke(prompt, arguments)
    assert (plain.exit_code, plain.stdout) == (0, writing_prompt(Catalog(demo())))
    told = CliRunner().invoke(prompt, [*arguments, "--task", " File every invoice. "])
    assert told.stdout == f"{plain.stdout}\n# The task\n\nFile every invoice.\n"
    assert CliRunner().invoke(prompt, ["--connectors", "nowhere:demo"]).exit_code == 2
    nothing = CliRunner().invoke(prompt, [])
    assert "None: a script can only publish." in nothing.stdout


def test_the_prompt_can_be_had_as_json() -> None:
    plain = CliRunner().invoke(main, ["prompt", "--task", "file mails"])
    as_json = CliRunner().invoke(main, ["prompt", "--task", "file mails", "--json"])
    assert json.loads(as_json.output) == {"prompt": plain.output}


def test_the_declarations_can_be_had_as_json() -> None:
    plain, as_json = (CliRunner().invoke(main, ["types", *options]) for options in ([], ["--json"]))
    assert json.loads(as_json.output) == {"declarations": plain.output}
