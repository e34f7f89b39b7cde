"""The declaration example of the specification, word for word, with a mailbox and a spreadsheet in memory."""

from pathlib import Path

import pytest

from examples.connectors import Gmail, Sheets
from tests.runtime.world import MINUTE, world

pytestmark = pytest.mark.anyio

SCRIPT = Path(__file__).with_name("email_to_sheets.js").read_text("utf-8")
EXAMPLE = (Path(__file__).parents[2] / "examples" / "mail_to_sheets.js").read_text("utf-8")


async def test_the_example_of_the_specification_runs_as_it_stands() -> None:
    gmail, sheets = Gmail(), Sheets()
    gmail.receive("alice@example.com", "Invoice December")
    async with world(gmail, sheets) as box:
        deployed = await box.keep.deploy(SCRIPT)
        await box.settle()
        assert (deployed.name, deployed.version) == ("example", "1.0")
        assert sheets.rows_of("...") == [["alice@example.com", "Invoice December"]]
        assert await box.statuses("example", "email.received") == {"mail_1": "consumed"}
        [row] = await box.keep.events("example", "row.created")
        assert (row.title, row.payload, row.status) == (
            "Row created for alice@example.com",
            '{"rowId":"row_1"}',
            "pending",
        )


async def test_what_comes_later_is_found_by_the_next_poll_and_nothing_is_filed_twice() -> None:
    gmail, sheets = Gmail(), Sheets()
    gmail.receive("alice@example.com", "Invoice December")
    async with world(gmail, sheets) as box:
        await box.keep.deploy(SCRIPT)
        await box.settle()
        gmail.receive("bob@example.com", "Lunch?")
        gmail.receive("carol@example.com", "Report")
        await box.advance(5 * MINUTE)
        assert [row[0] for row in sheets.rows_of("...")] == [
            "alice@example.com",
            "bob@example.com",
            "carol@example.com",
        ]
        assert set((await box.statuses("example", "email.received")).values()) == {"consumed"}


async def test_what_came_of_an_event_can_be_followed_from_input_to_output() -> None:
    gmail, sheets = Gmail(), Sheets()
    gmail.receive("alice@example.com", "Invoice December")
    async with world(gmail, sheets) as box:
        await box.keep.deploy(SCRIPT)
        await box.settle()
        [came_in] = await box.keep.inputs("example")
        [done] = await box.keep.outputs("example")
        assert came_in.title == 'Email from alice@example.com: "Invoice December"'
        assert came_in.outputs == [done]
        assert (done.call, done.status, done.result) == ("sheets.appendRow", "applied", '{"rowId":"row_1"}')
        explained = await box.keep.explain(done.run_id)
        assert [event.message_id for event in explained.selected] == ["mail_1"]
        assert (explained.why, explained.can_do) == ("", [])


async def test_the_example_that_people_copy_remembers_what_it_has_seen_and_names_each_row() -> None:
    gmail, sheets = Gmail(), Sheets()
    gmail.receive("alice@example.com", "Invoice December")
    gmail.receive("bob@example.com", "Lunch?")
    async with world(gmail, sheets) as box:
        await box.keep.deploy(EXAMPLE)
        await box.settle()
        gmail.receive("carol@example.com", "Report")
        await box.advance(5 * MINUTE)
        assert [row[0] for row in sheets.rows_of("...")] == [
            "alice@example.com",
            "bob@example.com",
            "carol@example.com",
        ]
        assert set(await box.statuses("example", "row.created")) == {"row:mail_1", "row:mail_2", "row:mail_3"}
        polls = await box.runs("example", "pollEmail")
        assert [run.output_state for run in polls] == ['{"cursor":"mail_2"}', '{"cursor":"mail_3"}']
