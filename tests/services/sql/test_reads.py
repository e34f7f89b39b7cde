"""Queries: they are typed and bounded, cannot write, and have places for values only."""

from typing import Any

import pytest

from keep_actors.connectors import Answer, ConnectorNotOpened, Failed, Happened
from keep_storage.model import FailureClass
from tests.services.sql.worlds import PostgresWorld, SqliteWorld, World, opened

pytestmark = pytest.mark.anyio

PEOPLE = "INSERT INTO people VALUES ('a', 'Ann'), ('b', 'Bob'), ('c', 'Cleo')"


def asking(sql: str, columns: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Settings of one query."""
    return {"tables": {}, "queries": {"found": {"sql": sql, "columns": columns or {"id": "text"}, **more}}}


async def test_a_query_answers_rows_of_the_declared_types(world: World) -> None:
    world.run(PEOPLE)
    sql = "SELECT name AS full_name, count(*) AS n, id FROM people WHERE id > :after GROUP BY id, name ORDER BY id"
    columns = {"id": "text", "full_name": "text?", "n": "integer"}
    async with opened(world.settings(**asking(sql, columns, parameters={"after": "text"}))) as calls:
        found = await calls.read("found", {"after": "b"})
        assert found == Answer('{"rows":[{"id":"c","fullName":"Cleo","n":1}],"more":false}')
        schema = calls.catalog.methods["sql.found"].params_schema()
        assert '"required": ["after"]'.replace('"', "'") in str(schema)


async def test_a_parameter_may_stand_in_several_places_and_may_be_left_out(world: World) -> None:
    world.run(PEOPLE)
    sql = "SELECT id FROM people WHERE :name IS NULL OR name = :name ORDER BY id"
    async with opened(world.settings(**asking(sql, parameters={"name": "text?"}))) as calls:
        assert await calls.read("found", {"name": "Bob"}) == Answer('{"rows":[{"id":"b"}],"more":false}')
        assert await calls.read("found", {}) == Answer('{"rows":[{"id":"a"},{"id":"b"},{"id":"c"}],"more":false}')


async def test_what_looks_like_a_parameter_and_is_none_stays_as_it_is(world: World) -> None:
    sql = """SELECT ':a' || '''; :b' AS id, 1 AS ":c" -- :d; 'e
        /* :f ' */ WHERE 'x' = :x"""
    columns = {"id": "text", ":c": {"type": "integer", "name": "c"}}
    settings = world.settings(**asking(sql, columns, parameters={"x": "text"}))
    async with opened(settings) as calls:
        assert await calls.read("found", {"x": "x"}) == Answer('{"rows":[{"id":":a\'; :b","c":1}],"more":false}')


async def test_casts_and_dollar_quotes_of_postgresql_stay_as_they_are(postgres: PostgresWorld) -> None:
    sql = r"SELECT 1::text || $$:a;$$ || $t$:b$t$ || E'\':c' || :x::text AS id"
    async with opened(postgres.settings(**asking(sql, parameters={"x": "text"}))) as calls:
        assert await calls.read("found", {"x": "!"}) == Answer('{"rows":[{"id":"1:a;:b\':c!"}],"more":false}')


async def test_more_rows_than_allowed_are_told_and_not_answered(world: World) -> None:
    world.run(PEOPLE)
    async with opened(world.settings(**asking("SELECT id FROM people ORDER BY id", rows_max=2))) as calls:
        assert await calls.read("found", {}) == Answer('{"rows":[{"id":"a"},{"id":"b"}],"more":true}')


async def test_more_bytes_than_allowed_are_told_and_not_answered(world: World) -> None:
    world.run(PEOPLE)
    world.run("UPDATE people SET id = ? WHERE id = 'b'", ["b" * 900])
    settings = world.settings(**asking("SELECT id FROM people ORDER BY id DESC"), answer_bytes_max=1_000)
    async with opened(settings) as calls:
        found = await calls.read("found", {})
        assert isinstance(found, Answer)
        assert found.json_text.endswith(f'{{"id":"{"b" * 900}"}},{{"id":"a"}}],"more":false}}')
    world.run("UPDATE people SET id = ? WHERE id = 'a'", ["a" * 900])
    async with opened(settings) as calls:
        found = await calls.read("found", {})
        assert isinstance(found, Answer)
        assert found.json_text.endswith(f'{{"id":"{"b" * 900}"}}],"more":true}}')


async def test_a_value_that_is_too_large_is_refused_where_it_is(world: World) -> None:
    world.run("INSERT INTO people VALUES ('a', ?)", ["x" * 100_000])
    settings = world.settings(**asking("SELECT name AS id FROM people"), answer_bytes_max=10_000)
    async with opened(settings) as calls:
        found = await calls.read("found", {})
        assert isinstance(found, Failed)
        assert found.cls == FailureClass.LOGIC


async def test_a_query_that_takes_too_long_is_ended(world: World) -> None:
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000)"
    sql = f"{numbers} SELECT CAST(count(*) AS text) AS id FROM n"
    async with opened(world.settings(**asking(sql), timeout_ms=100)) as calls:
        method = calls.catalog.methods["sql.found"]
        assert method.timeout_ms == 100
        found = await calls.read("found", {})
        assert isinstance(found, Failed)
        assert found.cls == FailureClass.TRANSIENT


# It cannot write.

WRITES = {
    "a function that writes": ("postgres", "SELECT write_it() AS id"),
    "a sequence": ("postgres", "SELECT nextval('numbers')::text AS id"),
    "a lock": ("postgres", "SELECT id FROM people FOR UPDATE"),
    "a pragma": ("sqlite", "SELECT CAST(user_version AS text) AS id FROM pragma_user_version"),
}


@pytest.mark.parametrize("case", WRITES)
async def test_a_query_cannot_write(request: pytest.FixtureRequest, case: str) -> None:
    kind, sql = WRITES[case]
    world: World = request.getfixturevalue(kind)
    world.run(PEOPLE)
    if kind == "postgres":
        world.run("CREATE SEQUENCE numbers")
        insert = f"INSERT INTO {world.settings().schema}.people VALUES ('w'); SELECT 'w'"
        world.run(f"CREATE FUNCTION write_it() RETURNS text LANGUAGE sql AS $$ {insert} $$")
        schema = f"{world.settings().schema}."
        for name in ("write_it", "people FOR"):
            sql = sql.replace(name, f"{schema}{name}")
        sql = sql.replace("'numbers'", f"'{schema}numbers'")
    try:
        async with opened(world.settings(**asking(sql))) as calls:
            found: object = await calls.read("found", {})
    except ConnectorNotOpened as error:
        found = error
    assert isinstance(found, Failed) or "cannot be asked" in str(found)
    assert len(world.run("SELECT id FROM people")) == 3


# Values are values.

ATTACKS = [
    "a'; DROP TABLE people; --",
    "' OR '1'='1",
    "a' UNION SELECT name FROM people --",
    '"; DELETE FROM people; --',
    "$1",
    "?1",
    ":after",
    "%s%(x)s",
    "\\'; DROP TABLE people; --",
    "a\r\nCOMMIT; DROP TABLE people",
    "\uff07 OR 1=1",
]


@pytest.mark.parametrize("attack", ATTACKS)
async def test_sql_in_a_value_is_text(world: World, attack: str) -> None:
    world.run("INSERT INTO people VALUES ('x', 'X')")
    more = asking("SELECT id FROM people WHERE id = :id", parameters={"id": "text"})
    async with opened(world.settings(queries=more["queries"])) as calls:
        assert await calls.read("found", {"id": attack}) == Answer('{"rows":[],"more":false}')
        assert await calls.read("getPeople", {"id": attack}) == Answer("null")
        made = await calls.mutate("insertPeople", {"id": attack, "name": attack}, attack)
        assert isinstance(made, Happened)
        assert world.run("SELECT id, name FROM people WHERE id <> 'x'") == [(attack, attack)]
        changed = await calls.mutate("updatePeople", {"id": attack, "name": f"{attack}!"}, f"{attack}2")
        assert isinstance(changed, Happened)
        assert isinstance(await calls.mutate("deletePeople", {"id": attack}, f"{attack}3"), Happened)
    assert world.run("SELECT id, name FROM people") == [("x", "X")]


NAMES = ['id" = id OR "1"="1', "id; DROP TABLE people", "name)--", "a.b", "naïve", "select", "%s", "$1", "?"]


async def test_sql_in_a_name_of_the_settings_is_a_name(world: World) -> None:
    quoted = ", ".join('"{}" text'.format(name.replace('"', '""')) for name in NAMES)
    table = 'odd"; DROP TABLE people; --'
    there = '"{}"'.format(table.replace('"', '""'))
    statement = f"CREATE TABLE {there} (id text PRIMARY KEY, {quoted})"
    world.run(statement.replace("?", "w") if world.kind == "postgres" else statement)
    names = [name.replace("?", "w") if world.kind == "postgres" else name for name in NAMES]
    columns = {name: {"type": "text", "name": f"c{number}"} for number, name in enumerate(names)}
    settings = {"table": table, "columns": {"id": "text", **columns}, "key": ["id"], "allow": ["insert", "update"]}
    async with opened(world.settings(tables={"odd": settings})) as calls:
        row = {"id": "1", **{f"c{number}": str(number) for number in range(len(NAMES))}}
        assert isinstance(await calls.mutate("insertOdd", row, "k1"), Happened)
        assert isinstance(await calls.mutate("updateOdd", {"id": "1", "c0": "new"}, "k2"), Happened)
    assert world.run(f"SELECT * FROM {there}") == [("1", "new", *map(str, range(1, len(NAMES))))]
    assert world.run("SELECT count(*) FROM people") == [(0,)]


async def test_json_is_a_value_too(sqlite: SqliteWorld) -> None:
    sqlite.run("CREATE TABLE docs (id text PRIMARY KEY, doc text NOT NULL)")
    table = {"columns": {"id": "text", "doc": "json"}, "key": ["id"], "allow": ["insert"]}
    doc = {"$.a": "'; DROP TABLE people; --", "a[0]": {'"]': [1]}}
    async with opened(sqlite.settings(tables={"docs": table})) as calls:
        assert isinstance(await calls.mutate("insertDocs", {"id": "1", "doc": doc}), Happened)
    [(stored,)] = sqlite.run("SELECT json_extract(doc, '$.\"$.a\"') FROM docs")
    assert stored == "'; DROP TABLE people; --"


async def test_a_query_finds_the_tables_of_the_schema_by_their_names_alone(postgres: PostgresWorld) -> None:
    odd = 'Odd "schema", public'
    there = '"{}"'.format(odd.replace('"', '""'))
    postgres.run(f"CREATE SCHEMA IF NOT EXISTS {there}")
    postgres.run(f"CREATE TABLE IF NOT EXISTS {there}.people (id text PRIMARY KEY, name text)")
    postgres.run(f"INSERT INTO {there}.people VALUES ('odd', 'Odd') ON CONFLICT DO NOTHING")
    async with opened(postgres.settings(schema=odd, receipts="", **asking("SELECT id FROM people"))) as calls:
        assert await calls.read("found", {}) == Answer('{"rows":[{"id":"odd"}],"more":false}')


async def test_a_trigger_finds_what_it_finds_without_the_connector(postgres: PostgresWorld) -> None:
    postgres.run("CREATE TABLE paths (path text)")
    insert = f"INSERT INTO {postgres.schema}.paths VALUES (current_setting('search_path')); RETURN NEW;"
    postgres.run(f"CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {insert} END $$")
    postgres.run("CREATE TRIGGER note BEFORE INSERT ON people FOR EACH ROW EXECUTE FUNCTION note()")
    async with opened(postgres.settings()) as calls:
        assert isinstance(await calls.mutate("insertPeople", {"id": "1", "name": "1"}), Happened)
    assert postgres.run("SELECT path FROM paths") == [('"$user", public',)]
