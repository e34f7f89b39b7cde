"""A sheet that others use too: office programs, people, other processes; and what is told about a call afterwards."""

import multiprocessing
from pathlib import Path
from typing import Any

import anyio
import pytest

from keep_actors.connectors import Applied, DidNotHappen, Happened, NotApplied, Retry, Unknown
from keep_storage.model import FailureClass
from tests.services.files.calls import Caller, said
from tests.services.sheet.sheets import (
    ROWS,
    caller,
    cells,
    content,
    made,
    ours,
    people_see,
    put,
    row,
    texts,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("sign", [".~lock.{}#", "~${}"])
async def test_a_sheet_that_is_open_in_an_office_program_is_changed_later(sign: str, file: Path) -> None:
    before = content(file)
    opened = put(file.parent / sign.format(file.name), "ann")
    sheet = caller(file)
    outcome = await sheet.mutate("appendRow", dict(row()))
    assert isinstance(outcome, DidNotHappen), outcome
    assert outcome.cls is FailureClass.TRANSIENT
    assert "an office program has" in outcome.message
    assert content(file) == before
    assert len(said(await sheet.read("rows"))["rows"]) == 2, "it can be read"
    assert isinstance(await caller(file, while_open="write").mutate("appendRow", dict(row())), Happened)
    put(opened, None)
    assert isinstance(await sheet.mutate("updateRow", {"id": "3", "amount": 31}), Happened)


async def test_a_row_that_a_person_adds_between_the_note_and_the_change_stays(file: Path) -> None:
    sheet = caller(file)

    async def meanwhile(_: str) -> None:
        made(file, [*ROWS, ("9", "by hand", 9)])

    call = sheet.call("appendRow", dict(row()), keep_note=meanwhile)
    assert isinstance(await sheet.mutate("appendRow", dict(row()), call), Happened)
    assert people_see(file) == texts([*ROWS, ("9", "by hand", 9), ("3", "Cleo", 30)])
    assert isinstance(await sheet.reconcile("appendRow", call), Applied)


async def test_a_file_that_comes_in_the_last_moment_is_not_replaced(file: Path) -> None:
    put(file, None)
    sheet = caller(file, create=True)

    def come() -> None:
        made(file)

    call = sheet.call("appendRow", dict(row()), on_sending=come)
    outcome = await sheet.mutate("appendRow", dict(row()), call)
    assert isinstance(outcome, DidNotHappen), outcome
    assert people_see(file) == texts(ROWS)


def _append(file: Path, name: str, count: int) -> None:
    async def run() -> None:
        sheet = caller(file)
        for number in range(count):
            params = dict(row(id=f"{name}-{number}", name=name, amount=number))
            call = sheet.call("appendRow", params, idempotency_key=f"{name}-{number}")
            outcome = await sheet.mutate("appendRow", params, call)
            assert isinstance(outcome, Happened), outcome

    anyio.run(run)


async def test_two_processes_that_add_rows_at_once_lose_none(file: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    processes = [context.Process(target=_append, args=(file, name, 8)) for name in ("left", "right")]
    for process in processes:
        process.start()
    for process in processes:
        await anyio.to_thread.run_sync(process.join, 60)
    assert [process.exitcode for process in processes] == [0, 0]
    ids = [each[0] for each in people_see(file)]
    assert [each for each in ids if each.startswith("left")] == [f"left-{number}" for number in range(8)]
    assert len(ids) == len(set(ids)) == 2 + 16


async def test_calls_at_once_lose_none(file: Path) -> None:
    sheet = caller(file)
    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(sheet.mutate, "appendRow", dict(row(id=f"k-{number}")))
    assert sorted(each[0] for each in people_see(file)[2:]) == [f"k-{number}" for number in range(8)]


# What is told about a call whose outcome is unknown.


async def lost(sheet: Caller, name: str, params: dict[str, Any], file: Path, *, effect: bool) -> Any:
    """Make a call whose answer is lost: with its effect, or without."""
    note: list[str] = []

    async def keep(text: str) -> None:
        note.append(text)

    call = sheet.call(name, params, keep_note=keep)
    if effect:
        assert isinstance(await sheet.mutate(name, params, call), Happened)
    else:
        await sheet.mutate(name, {**params, "name": "\0"}, call)
    [noted] = note
    return sheet.call(name, params, idempotency_key=call.idempotency_key, earlier_note=noted)


CALLS = {"appendRow": dict(row()), "updateRow": {"id": "1", "name": "Anna"}}


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_is_found_by_its_key_and_answers_with_its_row(name: str, file: Path) -> None:
    sheet = caller(file)
    call = await lost(sheet, name, CALLS[name], file, effect=True)
    after = said(await sheet.read("getRow", id=CALLS[name]["id"]))
    assert await sheet.reconcile(name, call) == Applied(after)


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_did_nothing_may_be_made_again(name: str, file: Path) -> None:
    sheet = caller(file)
    call = await lost(sheet, name, CALLS[name], file, effect=False)
    assert await sheet.reconcile(name, call) == NotApplied()
    assert await sheet.reconcile(name, sheet.call(name, CALLS[name])) == NotApplied(), "it came to no note"


@pytest.mark.parametrize("name", CALLS)
async def test_an_equal_row_of_a_person_is_not_that_of_the_call(name: str, file: Path) -> None:
    sheet = caller(file)
    call = await lost(sheet, name, CALLS[name], file, effect=True)
    made(file, [("1", "Anna", 10), ("2", "Bob", 20), ("3", "Cleo", 30)])  # without the column for calls
    verdict = await sheet.reconcile(name, call)
    assert isinstance(verdict, Retry), verdict
    assert "a person has to look" in verdict.message


@pytest.mark.parametrize("name", CALLS)
async def test_a_second_attempt_finds_the_effect_of_the_first(name: str, file: Path) -> None:
    sheet = caller(file)
    call = await lost(sheet, name, CALLS[name], file, effect=True)
    before = content(file)
    again = sheet.call(name, CALLS[name], idempotency_key=call.idempotency_key, attempt=2)
    assert isinstance(await sheet.mutate(name, CALLS[name], again), Happened)
    assert content(file) == before
    assert ours(file.parent) == []


async def test_a_row_that_was_moved_and_changed_by_a_person_is_still_the_one_of_the_call(file: Path) -> None:
    sheet = caller(file)
    call = await lost(sheet, "appendRow", dict(row()), file, effect=True)
    header, *rows = cells(file)
    made(file, [[*rows[2][:2], 31, rows[2][3]], *rows[:2]], header)
    assert await sheet.reconcile("appendRow", call) == Applied({"id": "3", "name": "Cleo", "amount": 31})


async def test_a_sheet_that_cannot_be_read_says_nothing_about_a_call(file: Path) -> None:
    sheet = caller(file)
    call = await lost(sheet, "appendRow", dict(row()), file, effect=True)
    for data in (b"\xff\xfe", None):
        put(file, data)
        assert isinstance(await sheet.reconcile("appendRow", call), Retry)


async def test_a_call_whose_time_is_over_changes_nothing(file: Path) -> None:
    sheet = caller(file)
    call = sheet.call("appendRow", dict(row()))
    call.end()
    outcome = await sheet.mutate("appendRow", dict(row()), call)
    assert isinstance(outcome, DidNotHappen), outcome
    assert not isinstance(outcome, Unknown)
    assert people_see(file) == texts(ROWS)
