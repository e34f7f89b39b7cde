"""Values: each type comes back as it was given, on both databases, or is refused before anything is sent."""

from typing import Any

import msgspec
import pytest

from keep_actors.connectors import DidNotHappen, Failed, Happened, ParamsError
from keep_actors.services.sql.column_types import COLUMN_TYPES
from keep_storage.model import FailureClass
from tests.services.sql.worlds import Calls, PostgresWorld, World, opened

pytestmark = pytest.mark.anyio

POSTGRES = {
    "text": "text",
    "integer": "bigint",
    "number": "double precision",
    "boolean": "boolean",
    "decimal": "numeric",
    "timestamp": "timestamptz",
    "datetime": "timestamp",
    "date": "date",
    "uuid": "uuid",
    "json": "jsonb",
    "bytes": "bytea",
}
SQLITE = {
    "text": "TEXT",
    "integer": "INTEGER",
    "number": "REAL",
    "boolean": "BOOLEAN",
    "decimal": "TEXT",
    "timestamp": "TIMESTAMP",
    "datetime": "DATETIME",
    "date": "DATE",
    "uuid": "TEXT",
    "json": "TEXT",
    "bytes": "BLOB",
}
VALUES: dict[str, list[Any]] = {
    "text": ["", "Ann", "O'Hara\"; DROP TABLE people; --", "%s $1 ?1 :name \\", "\U0001f600\n"],
    "integer": [0, -1, 2**53 - 1, 1 - 2**53],
    "number": [0.1, 1e300, -2.0],
    "boolean": [True, False],
    "decimal": ["12.50", "-0.000000000000000001", "99999999999999999999999999.99"],
    "timestamp": ["2026-01-01T10:00:00.123456Z", "0001-01-01T00:00:00Z"],
    "datetime": ["2026-01-01T10:00:00", "9999-12-31T23:59:59.999999"],
    "date": ["2024-02-29"],
    "uuid": ["12345678-1234-5678-1234-567812345678"],
    "json": [{"a": [1, None, "é", 1.5, True]}, [], "text", 7],
    "bytes": ["", "AAECAw=="],
}


def typed(world: World, kinds: dict[str, str]) -> Any:
    """A table with a column of every type, and its settings."""
    declared = POSTGRES if world.kind == "postgres" else SQLITE
    columns = ", ".join(f"c_{name} {declared[name]}" for name in kinds)
    world.run(f"CREATE TABLE typed (id text PRIMARY KEY, {columns})")
    names = {"id": "text", **{f"c_{name}": kind for name, kind in kinds.items()}}
    return {"typed": {"columns": names, "key": ["id"], "allow": ["insert", "update", "get"]}}


def spelled(name: str) -> str:
    return f"c{name[0].upper()}{name[1:]}"


async def test_every_type_keeps_its_values(world: World) -> None:
    assert set(VALUES) == set(POSTGRES) == set(SQLITE) == set(COLUMN_TYPES)
    settings = world.settings(tables=typed(world, {name: f"{name}?" for name in VALUES}))
    async with opened(settings) as calls:
        for number in range(max(map(len, VALUES.values()))):
            row: dict[str, Any] = {spelled(name): values[number % len(values)] for name, values in VALUES.items()}
            row["id"] = str(number)
            made = await calls.mutate("insertTyped", row, f"k{number}")
            assert isinstance(made, Happened), made
            assert msgspec.json.decode(made.json_text) == row


async def test_a_moment_is_kept_in_universal_time(world: World) -> None:
    async with opened(world.settings(tables=typed(world, {"timestamp": "timestamp"}))) as calls:
        made = await calls.mutate("insertTyped", {"id": "1", "cTimestamp": "2026-01-01T01:00:00+02:00"})
        assert made == Happened('{"id":"1","cTimestamp":"2025-12-31T23:00:00Z"}')


MISFITS: list[tuple[str, Any]] = [
    ("text", 7),
    ("integer", 2**53),
    ("integer", 1.5),
    ("boolean", 1),
    ("decimal", 12.5),
    ("decimal", "NaN"),
    ("decimal", "1e5"),
    ("timestamp", "2026-01-01T10:00:00"),
    ("datetime", "2026-01-01T10:00:00Z"),
    ("date", "2026-02-30"),
    ("uuid", "1234"),
    ("bytes", "no base64!"),
]


@pytest.mark.parametrize(("kind", "value"), MISFITS)
async def test_a_value_of_another_type_never_reaches_the_connector(world: World, kind: str, value: Any) -> None:
    async with opened(world.settings(tables=typed(world, {kind: kind}))) as calls:
        with pytest.raises(ParamsError):
            calls.call("insertTyped", {"id": "1", spelled(kind): value}, "k")


UNFIT: list[tuple[str, Any, str]] = [
    ("text", "a\0b", "cText has a NUL character"),
    ("json", {"a": ["\0"]}, "cJson has a NUL character"),
    ("json", {"a\0": 1}, "cJson has a NUL character"),
    ("timestamp", "0001-01-01T00:00:00+10:00", "cTimestamp is no moment between the years 1 and 9999"),
]


@pytest.mark.parametrize(("kind", "value", "words"), UNFIT)
async def test_a_value_that_a_database_would_change_is_refused_before_anything_is_sent(
    world: World, kind: str, value: Any, words: str
) -> None:
    async with opened(world.settings(tables=typed(world, {kind: kind}))) as calls:
        await refused(calls, {"id": "1", spelled(kind): value}, words)


async def test_a_decimal_that_would_be_rounded_is_refused(postgres: PostgresWorld) -> None:
    postgres.run("CREATE TABLE prices (id text PRIMARY KEY, price numeric(10, 2) NOT NULL)")
    table = {"columns": {"id": "text", "price": "decimal"}, "key": ["id"], "allow": ["insert"]}
    async with opened(postgres.settings(tables={"typed": {**table, "table": "prices"}})) as calls:
        await refused(calls, {"id": "1", "price": "1.005"}, "more decimals than the column, which is numeric(10,2)")
        assert await calls.mutate("insertTyped", {"id": "1", "price": "1.500"}) == Happened('{"id":"1","price":"1.50"}')


async def test_a_text_that_would_be_cut_is_refused(postgres: PostgresWorld) -> None:
    postgres.run("CREATE TABLE short (id text PRIMARY KEY, name varchar(3))")
    table = {"columns": {"id": "text", "name": "text?"}, "key": ["id"], "allow": ["insert"], "table": "short"}
    async with opened(postgres.settings(tables={"typed": table})) as calls:
        await refused(calls, {"id": "1", "name": "1234"}, "value too long for type character varying(3)")


async def refused(calls: Calls, params: Any, words: str) -> None:
    found = await calls.mutate("insertTyped", params)
    assert isinstance(found, DidNotHappen)
    assert found.cls == FailureClass.LOGIC
    assert words in found.message


SURPRISES: list[tuple[str, str, str, str]] = [
    ("sqlite", "text", "x'00'", "c_text is a bytes, not a str"),
    ("sqlite", "text", "NULL", 'c_text is null; declare it as "text?"'),
    ("sqlite", "integer", "9007199254740993", "c_integer is larger than JavaScript has exactly"),
    ("sqlite", "integer", "'many'", "c_integer is a str, not an integer"),
    ("sqlite", "boolean", "2", "c_boolean is 2, not a boolean"),
    ("sqlite", "decimal", "'NaN'", "c_decimal cannot be read"),
    ("sqlite", "timestamp", "'2026-01-01 10:00:00'", "c_timestamp cannot be read"),
    ("sqlite", "json", "'{'", "c_json"),
    ("postgres", "integer", "9007199254740993", "c_integer is larger than JavaScript has exactly"),
    ("postgres", "number", "'NaN'", "c_number is not a finite number"),
    ("postgres", "decimal", "'NaN'", "c_decimal cannot be read"),
    ("postgres", "timestamp", "'infinity'", "timestamp too large"),
]


@pytest.mark.parametrize(("kind", "column", "value", "words"), SURPRISES)
async def test_a_value_in_the_database_that_scripts_cannot_have_is_an_error(
    request: pytest.FixtureRequest, kind: str, column: str, value: str, words: str
) -> None:
    world: World = request.getfixturevalue(kind)
    async with opened(world.settings(tables=typed(world, {column: column}))) as calls:
        world.run(f"INSERT INTO typed VALUES ('1', {value})")
        found = await calls.read("getTyped", {"id": "1"})
        assert isinstance(found, Failed)
        assert found.cls == FailureClass.INTERNAL
        assert words in found.message


async def test_a_row_that_would_not_fit_is_not_committed(world: World) -> None:
    """A default that the settings do not allow is seen before the COMMIT, not after."""
    world.run("CREATE TABLE odd (id text PRIMARY KEY, n bigint DEFAULT 9007199254740993)")
    table = {"columns": {"id": "text", "n": "integer?"}, "key": ["id"], "allow": ["insert"], "table": "odd"}
    async with opened(world.settings(tables={"typed": table})) as calls:
        found = await calls.mutate("insertTyped", {"id": "1"})
        assert isinstance(found, DidNotHappen)
        assert "larger than JavaScript" in found.message
    assert world.run("SELECT * FROM odd") == []


async def test_a_row_that_is_too_large_is_not_committed(world: World) -> None:
    async with opened(world.settings(answer_bytes_max=1_000)) as calls:
        found = await calls.mutate("insertPeople", {"id": "1", "name": "x" * 2_000})
        assert isinstance(found, DidNotHappen)
        assert "more than the 1,000 allowed" in found.message
    assert world.run("SELECT * FROM people") == []
