"""Insert, update, delete and get, on both databases: what they do, and what a repetition and a look find."""

from typing import Any

import anyio
import pytest

from keep_actors.connectors import Answer, Applied, DidNotHappen, Happened, NotApplied, Retry, Unknown
from keep_storage.model import FailureClass
from tests.services.sql.worlds import ALL, NAMES, PostgresWorld, World, opened

pytestmark = pytest.mark.anyio
ANN = {"id": "ann", "name": "Ann"}
ANN_ROW = '{"id":"ann","name":"Ann"}'


async def test_a_row_is_inserted_changed_read_and_deleted(world: World) -> None:
    async with opened(world.settings()) as calls:
        assert await calls.mutate("insertPeople", ANN, "k1") == Happened(ANN_ROW)
        changed = Happened('{"id":"ann","name":null}')
        assert await calls.mutate("updatePeople", {"id": "ann", "name": None}, "k2") == changed
        assert await calls.read("getPeople", {"id": "ann"}) == Answer('{"id":"ann","name":null}')
        assert await calls.mutate("deletePeople", {"id": "ann"}, "k3") == Happened("null")
        assert await calls.read("getPeople", {"id": "ann"}) == Answer("null")


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("insertPeople", {"id": "bob", "name": "Bob"}),
    ("updatePeople", {"id": "ann", "name": "Anna"}),
    ("deletePeople", {"id": "ann"}),
]


@pytest.mark.parametrize(("method", "params"), CHANGES)
async def test_a_call_that_is_repeated_has_one_effect_and_the_first_result(
    world: World, method: str, params: dict[str, Any]
) -> None:
    world.run("INSERT INTO people VALUES ('ann', 'Ann')")
    async with opened(world.settings()) as calls:
        assert await calls.look(method, params) == NotApplied()
        first = await calls.mutate(method, params)
        assert isinstance(first, Happened)
        # Others go on with the row: what the call did is still known.
        world.run("DELETE FROM people")
        world.run("INSERT INTO people VALUES ('ann', 'another'), ('bob', 'another')")
        assert await calls.look(method, params) == Applied(first.json_text)
        assert await calls.mutate(method, params, attempt=2) == first
        assert world.run("SELECT id, name FROM people ORDER BY id") == [("ann", "another"), ("bob", "another")]


async def test_two_calls_at_once_with_one_key_are_one_effect(world: World) -> None:
    world.run("INSERT INTO people VALUES ('ann', '0')")
    found: list[Any] = []
    async with opened(world.settings()) as calls:

        async def change() -> None:
            found.append(await calls.mutate("updatePeople", {"id": "ann", "name": "1"}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(change)
            tasks.start_soon(change)
    assert found == [Happened('{"id":"ann","name":"1"}')] * 2
    assert world.run("SELECT count(*) FROM keep_calls") == [(1,)]


async def test_the_key_of_another_call_is_refused_and_proves_nothing(world: World) -> None:
    async with opened(world.settings()) as calls:
        await calls.mutate("insertPeople", ANN, "k1")
        other = {"id": "bob", "name": "Bob"}
        refused = await calls.mutate("insertPeople", other, "k1")
        assert isinstance(refused, DidNotHappen)
        assert refused.cls == FailureClass.INTERNAL
        assert isinstance(await calls.look("insertPeople", other, "k1"), Retry)
    assert world.run("SELECT id FROM people") == [("ann",)]


REFUSED = {
    "a row that is there": ("insertPeople", {"id": "bob", "name": "other"}, "there is a row with this key"),
    "a change of no row": ("updatePeople", ANN, "there is no row with this key"),
    "a deletion of no row": ("deletePeople", {"id": "ann"}, "there is no row with this key"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_row_that_is_not_as_the_call_assumes_is_a_precondition(world: World, case: str) -> None:
    method, params, words = REFUSED[case]
    world.run("INSERT INTO people VALUES ('bob', 'Bob')")
    async with opened(world.settings()) as calls:
        refused = await calls.mutate(method, params)
        assert isinstance(refused, DidNotHappen)
        assert refused.cls == FailureClass.PRECONDITION
        assert words in refused.message
        assert await calls.look(method, params) == NotApplied()
    assert world.run("SELECT * FROM people") == [("bob", "Bob")]


async def test_an_update_of_nothing_is_the_fault_of_the_script(world: World) -> None:
    async with opened(world.settings()) as calls:
        refused = await calls.mutate("updatePeople", {"id": "ann"})
        assert isinstance(refused, DidNotHappen)
        assert (refused.cls, refused.message) == (FailureClass.LOGIC, "nothing is to be changed; give one of name")
        assert await calls.look("updatePeople", {"id": "ann"}) == NotApplied()


async def test_only_what_is_allowed_is_offered(world: World) -> None:
    tables = {"people": {**NAMES, "allow": ["insert"]}}
    async with opened(world.settings(tables=tables)) as calls:
        [method] = calls.catalog.methods.values()
        assert (method.name, method.marks_sent, method.reconcilable) == ("insertPeople", True, True)
        assert method.identity_of(method.decode_params('{"id":"a","name":"b"}')) == '{"id":"a"}'


async def test_reading_by_key_may_be_done_beside_a_mutation(world: World) -> None:
    async with opened(world.settings()) as calls:
        assert calls.catalog.methods["sql.getPeople"].by_id


# Without receipts.


async def test_a_call_column_proves_an_insert(world: World) -> None:
    world.run("CREATE TABLE notes (id text PRIMARY KEY, name text, keep_call text UNIQUE)")
    table = {**NAMES, "allow": ["insert"], "call_column": "keep_call", "keeps_rows": True}
    async with opened(world.settings(receipts="", tables={"notes": table})) as calls:
        assert await calls.look("insertNotes", ANN) == NotApplied()
        assert await calls.mutate("insertNotes", ANN) == Happened(ANN_ROW)
        assert await calls.mutate("insertNotes", ANN) == Happened(ANN_ROW)
        assert await calls.look("insertNotes", ANN) == Applied(ANN_ROW)
        assert await calls.look("insertNotes", ANN, "another") == NotApplied()


async def test_without_receipts_only_an_equal_row_proves_an_insert(world: World) -> None:
    settings = world.settings(receipts="", tables={"people": {**NAMES, "allow": ["insert"], "keeps_rows": True}})
    async with opened(settings) as calls:
        assert await calls.look("insertPeople", ANN) == NotApplied()
        assert await calls.mutate("insertPeople", ANN) == Happened(ANN_ROW)
        assert await calls.look("insertPeople", ANN) == Applied(ANN_ROW)
        assert isinstance(await calls.mutate("insertPeople", ANN, "another"), DidNotHappen)
        assert await calls.mutate("insertPeople", ANN, attempt=2) == Happened(ANN_ROW)
        world.run("UPDATE people SET name = 'changed'")
        assert isinstance(await calls.look("insertPeople", ANN), Retry)
        assert isinstance(await calls.mutate("insertPeople", ANN, attempt=2), Unknown)


@pytest.mark.parametrize("column", ["", "keep_call"])
async def test_a_row_that_may_have_been_deleted_proves_nothing(world: World, column: str) -> None:
    world.run("CREATE TABLE notes (id text PRIMARY KEY, name text, keep_call text UNIQUE)")
    table = {**NAMES, "allow": ["insert"], "call_column": column}
    async with opened(world.settings(receipts="", tables={"notes": table})) as calls:
        assert isinstance(await calls.look("insertNotes", ANN), Retry)


async def test_without_receipts_a_person_is_asked_about_changes_and_deletions(world: World) -> None:
    tables = {"people": {**NAMES, "allow": ALL}}
    async with opened(world.settings(receipts="", tables=tables)) as calls:
        methods = calls.catalog.methods
        found = {name: method.reconcilable for name, method in methods.items() if method.kind == "mutation"}
        assert found == {"sql.insertPeople": True, "sql.updatePeople": False, "sql.deletePeople": False}
        assert "table people" in methods["sql.updatePeople"].check_hint
        world.run("INSERT INTO people VALUES ('ann', 'Ann')")
        assert isinstance(await calls.mutate("updatePeople", {"id": "ann", "name": "A"}), Happened)
        assert isinstance(await calls.mutate("deletePeople", {"id": "ann"}), Happened)


async def test_a_trigger_that_leaves_a_row_out_is_no_success(postgres: PostgresWorld) -> None:
    postgres.run("CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
    postgres.run("CREATE TRIGGER no BEFORE INSERT ON people FOR EACH ROW EXECUTE FUNCTION no()")
    async with opened(postgres.settings()) as calls:
        refused = await calls.mutate("insertPeople", ANN)
        assert isinstance(refused, DidNotHappen)
        assert "a trigger or a rule has refused it" in refused.message
        assert await calls.look("insertPeople", ANN) == NotApplied()
