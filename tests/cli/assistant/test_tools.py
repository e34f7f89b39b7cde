"""Every tool of `keep mcp`: what it answers, that it decides nothing, and that it refuses what makes no sense."""

import ast
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import apsw
import jsonschema  # type: ignore[import-untyped]
import pytest
from mcp import Client

import keep_actors
from keep_actors.api.command import Right
from keep_actors.api.commands import COMMANDS, Propose
from keep_actors.cli import assistant
from keep_actors.cli.assistant.desk import PROPOSING, Desk
from keep_actors.cli.assistant.server import server_of
from keep_actors.cli.assistant.tools import TOOLS
from tests.cli.assistant.office import BETTER, OLD, answer, client_of, content_of, over_stdio, refused, texts
from tests.cli.hostile import Shop
from tests.runtime.fakes import Fake

pytestmark = pytest.mark.anyio

NAMED: dict[str, dict[str, Any]] = {
    "list_workflows": {},
    "show_workflow": {"workflow": "lost"},
    "read_script": {"workflow": "flow"},
    "list_inputs": {"workflow": "lost"},
    "list_outputs": {"workflow": "lost"},
    "list_runs": {"workflow": "lost"},
    "list_items": {"workflow": "job"},
    "show_item": {"workflow": "job", "item": "i2"},
    "list_attention": {},
    "explain": {"what": "o-1"},
    "read_journal": {},
    "list_methods": {},
    "get_writing_prompt": {"task": "File the mails."},
    "get_script_types": {},
    "check_script": {"source": OLD},
    "dry_run_script": {"source": OLD, "workflow": "flow"},
    "list_proposals": {},
}
"""A call of every tool that only looks."""
PROPOSED = {"source": BETTER, "workflow": "flow", "made_from": "1.0"}


@asynccontextmanager
async def opened(db: Path, *, running: bool) -> AsyncIterator[Client]:
    """A client, beside a runtime or alone."""
    async with AsyncExitStack() as stack:
        if running:
            more: dict[str, Any] = {"connectors": [Fake(), Shop()], "control": True, "sandbox": "thread"}
            await stack.enter_async_context(keep_actors.open(db, **more))
        yield await stack.enter_async_context(client_of(db, Fake(), Shop()))


# What there is.


def test_no_tool_decides_anything() -> None:
    assert set(PROPOSING) == {each for each in COMMANDS if each.right is Right.PROPOSE} == {Propose}
    assert [name for name, tool in TOOLS.items() if not tool.is_read_only] == ["propose_script"]
    verbs = {str(each.__struct_config__.tag).partition("_")[0] for each in COMMANDS if each.right is not Right.READ}
    assert {"approve", "resolve", "grant", "deploy", "publish", "pause", "accept", "reject"} < verbs
    assert {name for name in TOOLS if name.partition("_")[0] in verbs} == {"propose_script"}


def test_nothing_but_the_desk_can_reach_what_writes() -> None:
    """And the desk has two ways out: a file that is read, and the write path for what is in `PROPOSING`."""
    writes = {"keep_actors.cli.write_path", "keep_actors.cli.scripts", "keep_actors.api.keep", "keep_actors.control"}
    writes |= {
        "keep_storage.store",
        "keep_storage.operations",
        "keep_storage.manager",
        "keep_actors.runtime",
        "sqlite3",
    }
    found: dict[str, set[str]] = {}
    for file in Path(assistant.__path__[0]).glob("*.py"):
        nodes = list(ast.walk(ast.parse(file.read_text("utf-8"))))
        names = {
            f"{each.module}.{name.name}" for each in nodes if isinstance(each, ast.ImportFrom) for name in each.names
        }
        names |= {name.name for each in nodes if isinstance(each, ast.Import) for name in each.names}
        hit = {bad for bad in writes for name in names if f"{name}.".startswith(f"{bad}.")}
        found |= {file.name: hit} if hit else {}
    assert found == {"desk.py": {"keep_actors.cli.write_path"}}


async def test_a_client_is_told_what_each_tool_does_and_that_most_only_look(db: Path) -> None:
    async with client_of(db) as client:
        listed = (await client.list_tools()).tools
        assert client.instructions is not None
        assert "a person decides" in client.instructions
    assert {each.name for each in listed} == {*NAMED, "propose_script"}
    for each in listed:
        assert each.annotations is not None
        assert each.annotations.read_only_hint is (each.name != "propose_script")
        assert each.annotations.destructive_hint is False
        jsonschema.Draft202012Validator.check_schema(each.input_schema)


# What they do.


@pytest.mark.parametrize("running", [True, False], ids=["beside a runtime", "alone"])
async def test_every_tool_answers_as_it_says_and_only_a_proposal_changes_the_file(db: Path, running: bool) -> None:
    async with opened(db, running=running) as client:
        schemas = {each.name: each.output_schema for each in (await client.list_tools()).tools}
        before = content_of(db)
        for name, arguments in NAMED.items():
            said = await answer(client, name, **arguments)
            jsonschema.validate(said, schemas[name] or {})
            assert content_of(db) == before, name
        made = await answer(client, "propose_script", **PROPOSED)
        jsonschema.validate(made, schemas["propose_script"] or {})
        changed = {table for table, rows in content_of(db).items() if rows != before[table]}
    assert {"proposals", "journal"} <= changed
    assert changed & {"workflows", "script_versions", "grants", "events", "runs", "mutations", "approvals"} == set()


async def test_what_is_looked_at_is_what_there_is(db: Path) -> None:
    async with client_of(db, Fake(), Shop()) as client:
        listed = await answer(client, "list_workflows", limit=2)
        assert [each["name"]["untrusted"] for each in listed["workflows"]] == ["flow", "lost"]
        rest = await answer(client, "list_workflows", after=listed["workflows"][-1]["workflow_id"])
        assert [each["name"]["untrusted"] for each in rest["workflows"]] == ["job"]
        assert listed["runtime"] == "not running"
        shown = await answer(client, "show_workflow", workflow="lost")
        assert (shown["version"], shown["workflow"]["needs_a_person"]) == ("1.0", True)
        assert (await answer(client, "read_script", workflow="flow"))["source"]["untrusted"] == OLD
        [came] = (await answer(client, "list_inputs", workflow="lost"))["inputs"]
        assert [each["call"] for each in came["outputs"]] == ["shop.ship"]
        [call] = (await answer(client, "list_outputs", workflow="lost"))["outputs"]
        assert (call["status"], call["params"]["untrusted"]) == ("indeterminate", '{"order":"lost1"}')
        items = (await answer(client, "list_items", workflow="job", state="failed"))["items"]
        assert [each["item_id"]["untrusted"] for each in items] == ["i2"]
        story = await answer(client, "show_item", workflow="job", item="i1")
        assert [each["call"] for each in story["attempts"][0]["calls"]] == ["shop.ship"]
        kinds = [each["kind"] for each in (await answer(client, "list_attention"))["matters"]]
        assert sorted(kinds) == ["maintenance", "unknown"]
        explained = await answer(client, "explain", what=call["mutation_id"])
        assert explained["call"]["mutation_id"] == call["mutation_id"]
        assert {each["name"] for each in (await answer(client, "list_methods"))["methods"]} > {"fake.add", "shop.ship"}
        assert "File the mails." in (await answer(client, "get_writing_prompt", task="File the mails."))["prompt"]
        assert "fake" in (await answer(client, "get_script_types"))["declarations"]


async def test_a_script_is_checked_as_a_deployment_would(db: Path) -> None:
    async with client_of(db) as client:
        good = await answer(client, "check_script", source=OLD)
        assert (good["is_deployable"], good["uses"], good["problems"]) == (True, ["fake.add"], [])
        bad = await answer(client, "check_script", source=OLD.replace("fake.add", "fake.addd"))
        assert (bad["is_deployable"], [each["code"] for each in bad["problems"]]) == (False, ["method-unknown"])


@pytest.mark.parametrize(("call_reads", "looked"), [(False, []), (True, ["search"])])
async def test_a_dry_run_makes_no_call_and_reads_only_if_the_operator_says_so(
    db: Path, call_reads: bool, looked: list[str]
) -> None:
    fake = Fake()
    reading = OLD.replace(
        'const [first] = await c.peek("in");', 'await ctx.fake.search({}); const [first] = await c.peek("in");'
    )
    async with client_of(db, fake, call_reads=call_reads) as client:
        told = await answer(client, "dry_run_script", source=reading, workflow="flow", against="1.0")
    assert told["reads_were_real"] is call_reads
    if call_reads:
        [run] = told["new"]["runs"]
        assert run["wants"]["call"] == "fake.add"
    assert fake.effects == []
    assert fake.calls == looked


async def test_a_dry_run_of_a_script_that_could_not_be_deployed_says_why(db: Path) -> None:
    async with client_of(db) as client:
        told = await answer(client, "dry_run_script", source=OLD, workflow="job")
    assert (told["new"], [each["code"] for each in told["problems"]]) == (None, ["name-differs"])


# What makes no sense.

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("list_inputs", {}, "missing required field `workflow`"),
    ("list_inputs", {"workflow": "flow", "limit": 0}, ">= 1"),
    ("list_inputs", {"workflow": "flow", "limit": 101}, "<= 100"),
    ("list_inputs", {"workflow": 7}, "Expected `str`, got `int`"),
    ("list_inputs", {"workflow": "flow", "sql": "DROP TABLE runs"}, "unknown field `sql`"),
    ("list_items", {"workflow": "job", "state": "gone"}, "Invalid enum value 'gone'"),
    ("list_workflows", {"after": "x" * 400}, "length <= 300"),
    ("show_workflow", {"workflow": "nope"}, "There is no workflow 'nope'"),
    ("read_script", {"workflow": "flow", "version": "9.9"}, "has no version 9.9"),
    ("read_script", {"workflow": "flow", "version": "newest"}, "is not a version"),
    ("show_item", {"workflow": "job", "item": "nope"}, "nope"),
    ("explain", {"what": "nope"}, "nope"),
    ("check_script", {"source": "x" * 300_000}, "length <="),
    ("check_script", {"source": ""}, "length >= 1"),
    ("dry_run_script", {"source": OLD, "workflow": "flow", "against": "7.0"}, "7.0"),
    ("propose_script", {"source": OLD, "note": "x" * 5_000}, "length <= 4000"),
    ("approve", {"approval_id": "apr_1"}, "There is no tool of this name"),
    ("deploy", {"source": OLD}, "There is no tool of this name"),
]


@pytest.mark.parametrize(
    ("tool", "arguments", "words"), WRONG, ids=[f"{each[0]} {at}" for at, each in enumerate(WRONG)]
)
async def test_what_does_not_fit_is_refused_with_the_reason(
    db: Path, tool: str, arguments: dict[str, Any], words: str
) -> None:
    before = content_of(db)
    async with client_of(db) as client:
        assert words in await refused(client, tool, **arguments)
    assert content_of(db) == before


async def test_a_missing_file_is_an_error_and_not_the_end(db: Path) -> None:
    async with client_of(db) as client:
        await anyio.Path(db).rename(db.with_name("elsewhere"))
        assert "there is no such file" in await refused(client, "list_workflows")
        await anyio.Path(db.with_name("elsewhere")).rename(db)
        assert (await answer(client, "list_workflows"))["workflows"]


async def test_a_file_that_is_no_database_is_an_error_and_not_the_end(tmp_path: Path) -> None:
    (tmp_path / "keep.db").write_bytes(b"no database" * 1000)
    async with client_of(tmp_path / "keep.db") as client:
        for tool in ("list_workflows", "list_attention", "list_proposals"):
            assert "cannot be read" in await refused(client, tool)


# Over the standard input and output.


async def test_a_client_of_the_older_protocol_is_served(db: Path) -> None:
    async with Client(server_of(Desk(db, [Fake()], sandbox="thread")), mode="legacy") as client:
        assert {each.name for each in (await client.list_tools()).tools} == set(TOOLS)
        assert len((await answer(client, "list_workflows"))["workflows"]) == 3


async def test_a_process_serves_the_official_client(db: Path) -> None:
    async with Client(over_stdio(db, "--name", "ann's assistant")) as client:
        assert {each.name for each in (await client.list_tools()).tools} == set(TOOLS)
        assert len((await answer(client, "list_workflows"))["workflows"]) == 3
        assert (await answer(client, "check_script", source=OLD))["is_deployable"]
        assert (await answer(client, "dry_run_script", source=OLD, workflow="flow"))["new"]["is_well"]
        assert (await answer(client, "propose_script", **PROPOSED))["is_held"]
        [held] = (await answer(client, "list_proposals"))["proposals"]
        assert held["proposed_by"] == {"untrusted": "ann's assistant"}
        assert "There is no tool" in await refused(client, "pause", workflow="flow")


# Floods.


async def test_a_flood_of_calls_is_answered_or_refused_and_then_all_is_well(db: Path) -> None:
    ends: list[bool] = []
    async with client_of(db) as client:

        async def ask() -> None:
            result = await client.call_tool("list_workflows", {})
            ends.append(result.is_error or False)
            assert not result.is_error or texts(result) == ["Too many calls at once. Wait for their answers."]

        async with anyio.create_task_group() as tasks:
            for _ in range(150):
                tasks.start_soon(ask)
        assert (await answer(client, "list_workflows"))["workflows"]
    assert len(ends) == 150
    assert not all(ends)


async def test_an_answer_that_is_too_long_is_refused_with_its_size(db: Path) -> None:
    connection = apsw.Connection(str(db))
    connection.execute("UPDATE script_versions SET source = ?", ["\u202e\u2066" * 130_000])
    connection.close()
    async with client_of(db) as client:
        assert "bytes. Ask for less" in await refused(client, "read_script", workflow="flow")
