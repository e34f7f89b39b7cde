"""What the documentation says is so: its scripts deploy and run, its Python runs, its tables are those of the code."""

import ast
import inspect
import re
import textwrap
import tomllib
import types
from pathlib import Path
from typing import Any

import grimp
import pytest

import keep_actors
from examples.connectors import Gmail, Sheets, demo
from keep_actors import Connector, Keep, Policy, mutation
from keep_actors.kernel import RestartPolicy
from keep_actors.run.gate import ALLOWED, Ask, ScriptPhase, refusal
from keep_sandbox.json_text import CONTAINERS_MAX, SLOW_NUMBERS_MAX
from keep_sandbox.limits import DEFAULT_LIMITS
from keep_storage.limits import MESSAGE_ID_CHARS_MAX, PEEK_DEFAULT, PEEK_MAX, TITLE_CHARS_MAX
from keep_storage.model import AttentionKind, RunStatus
from tests.runtime.world import MINUTE, world

ROOT = Path(__file__).parents[2]
SCRIPTS = (ROOT / "docs" / "scripts.md").read_text("utf-8")
RUNTIME = (ROOT / "docs" / "runtime.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def table(text: str, first_header: str) -> list[list[str]]:
    """The rows of the table whose header begins so, without the header."""
    lines = text.partition(f"\n| {first_header} |")[2].partition("\n\n")[0].splitlines()[2:]
    assert lines, f"there is no table that begins with {first_header!r}"
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


# Scripts.


def name_of(script: str) -> str:
    found = re.search(r'name: "(.*?)"', script)
    assert found
    return found.group(1)


@pytest.mark.anyio
@pytest.mark.parametrize("script", blocks(SCRIPTS, "js"), ids=name_of)
async def test_every_script_of_the_documentation_runs(script: str) -> None:
    async with world(*demo()) as box:
        await box.keep.deploy(script)
        for _ in range(3):
            await box.advance(30 * MINUTE)
        workflow = await box.keep.workflow(name_of(script))
        runs = await box.keep.runs(workflow.id)
        assert (workflow.error, workflow.maintenance) == ("", False)
        assert {run.status for run in runs} == {RunStatus.COMMITTED}


@pytest.mark.anyio
async def test_the_scripts_of_the_documentation_do_what_it_says_they_do() -> None:
    gmail, sheets = demo()
    assert isinstance(gmail, Gmail)
    assert isinstance(sheets, Sheets)
    async with world(gmail, sheets) as box:
        for script in blocks(SCRIPTS, "js"):
            await box.keep.deploy(script)
        for _ in range(3):
            await box.advance(30 * MINUTE)
        filed = [event.title for event in await box.keep.events("invoices", "invoice.filed")]
    assert sheets.rows_of("invoices") == [["ann@example.com", "Invoice 7"], ["cleo@example.com", "Invoice 8"]]
    assert filed == ["Filed: Invoice 7", "Filed: Invoice 8"]
    assert sheets.rows_of("replies") == [["bob@example.com"]]
    assert sorted(mail.subject for mail in gmail.sent) == ["Digest 1", "Re: Lunch?"]


COLUMNS = [
    ScriptPhase.PRODUCER,
    ScriptPhase.PREPARE,
    ScriptPhase.MUTATE,
    ScriptPhase.NEXT,
    ScriptPhase.JOB,
    ScriptPhase.ITEM,
]


def test_the_table_of_what_may_be_asked_where_is_that_of_the_gate() -> None:
    text = SCRIPTS.partition("## What may be asked where")[2].partition("\n## ")[0]
    header, _, *rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in header[1:]] == ["producer", "`prepare`", "`mutate`", "`next`", "job", "item"]
    written = {
        (stage, Ask(row[0].strip(" `"))): cell.strip()
        for row in rows
        for stage, cell in zip(COLUMNS, row[1:], strict=True)
    }
    assert len(written) == len(ScriptPhase) * len(Ask)
    for (stage, ask), cell in written.items():
        by_id = Policy(mutate_reads="by_id")
        allowed, by_policy = ask in ALLOWED[stage], not refusal(stage, ask, "x", by_id)
        assert cell == ("yes" if allowed else "policy" if by_policy else ""), (stage, ask)


UNITS = {"": 1, "ms": 1, "s": 1_000, "KB": 1024, "MB": 1024**2, "characters": 1}


def test_the_limits_are_those_of_the_code() -> None:
    found: dict[str, int] = {}
    for what, most, where in table(SCRIPTS, "what"):
        number, _, unit = most.partition(" ")
        value = int(number.replace(",", "")) * UNITS[unit]
        setting = re.match(r"`(?:Limits|Policy)\.(\w+)`", where)
        found[setting.group(1) if setting else what] = value
    assert found.pop("a title") == TITLE_CHARS_MAX
    assert found.pop("a `messageId`") == MESSAGE_ID_CHARS_MAX
    assert found.pop("lists and objects in the parameters of a call") == CONTAINERS_MAX
    assert found.pop("numbers with an exponent of three digits in them") == SLOW_NUMBERS_MAX
    assert found.pop("host_calls") == 2_000, "the runtime's own default; the next test meets it"
    for name, value in found.items():
        assert value in (getattr(DEFAULT_LIMITS, name, None), getattr(Policy(), name, None)), name
    assert f"`limit` is 1 to {PEEK_MAX:,}; {PEEK_DEFAULT} by default" in SCRIPTS


@pytest.mark.anyio
@pytest.mark.parametrize(("calls", "status"), [(2_000, RunStatus.COMMITTED), (2_001, RunStatus.FAILED_LOGIC)])
async def test_the_number_of_requests_is_limited_as_documented(calls: int, status: RunStatus) -> None:
    script = """
    export default Keep.workflow({ name: "calls", topics: { t: {} }, consumers: { c: Keep.consumer({
      subscribe: ["t"],
      async prepare(ctx) { for (let i = 0; i < CALLS; i++) ctx.getByIds("t", []); return { reservations: [] }; },
    }) } });
    """
    async with world() as box:
        await box.keep.deploy(script.replace("CALLS", str(calls)))
        await box.publish("calls", "t", "m1")
        await box.settle()
        [run] = await box.keep.runs("calls")
        assert run.status is status


# The runtime.


def test_every_method_and_argument_is_documented() -> None:
    methods = [name for name, _ in inspect.getmembers(Keep, inspect.isfunction) if not name.startswith("_")]
    assert len(methods) > 12
    for name in methods:
        [said] = re.findall(rf"`{name}\((.*?)\)`", RUNTIME.partition("| method of `Keep` |")[2].partition("\n\n")[0])
        assert said.split(", ") == [*inspect.signature(getattr(Keep, name)).parameters][1:] or not said, name
    arguments = {name for row in table(RUNTIME, "argument of `open`") for name in re.findall(r"`(\w+)`", row[0])}
    assert arguments == set(inspect.signature(keep_actors.open).parameters)


def test_every_policy_is_documented_with_its_default() -> None:
    rows = {name: row[1] for row in table(RUNTIME, "setting") for name in re.findall(r"`(\w+)`", row[0])}
    assert set(rows) == set(Policy.__struct_fields__)
    for name, said in rows.items():
        default = getattr(Policy(), name)
        if isinstance(default, int):
            assert f"{default:,}" in said, name
    retry = RUNTIME.partition("| `retry` |")[2].partition("\n")[0]
    backoff = Policy().retry
    for field in ("first_ms", "cap_ms", "jitter", "attempts_max"):
        default = getattr(backoff, field)
        said = "none" if default is None else f"{default:,}"
        assert said in retry.partition(f"`{field}`")[2], field


def test_the_numbers_of_supervision_are_those_of_the_code() -> None:
    policy = RestartPolicy()
    text = RUNTIME.partition("**A workflow's actor crashes.**")[2].partition("\n\n")[0]
    assert (
        f"after {policy.backoff_ms} ms, {2 * policy.backoff_ms} ms, … at most {policy.backoff_max_ms // 1000} s" in text
    )
    assert " ".join(text.split()).count(f"more than {policy.restarts_max} crashes within a minute") == 1
    assert policy.within_ms == MINUTE
    said = re.findall(r"`RestartPolicy\((.*?)\)`", text)
    assert said == [", ".join(policy.__struct_fields__)]


async def run_block(code: str, names: dict[str, Any]) -> None:
    """Run Python that may await at the top level."""
    compiled = compile(code, "a block of the documentation", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    waits = compiled.co_flags & inspect.CO_COROUTINE
    if waits:
        await types.FunctionType(compiled, names)()
    else:
        exec(compiled, names)


@pytest.mark.anyio
async def test_a_person_settles_an_unknown_outcome_as_documented() -> None:
    names: dict[str, Any] = {}
    await run_block(next(each for each in blocks(RUNTIME, "python") if "say_that_it_happened" in each), names)
    program: dict[str, Any] = {}
    exec(blocks(RUNTIME, "python")[0].replace("anyio.run(main)", ""), program)

    class Lost(Connector):
        """Its answers are always lost."""

        name = "outbox"

        @mutation
        async def send(self, to: str, text: str) -> str:
            raise ConnectionError(f"lost: {text} ({to})")

    async with world(Lost()) as box:
        await box.keep.deploy(program["SCRIPT"])
        await box.publish("orders", "order.paid", "o-1", payload={"customer": "ann"})
        await box.settle()
        assert await box.statuses("orders", "order.paid") == {"o-1": "reserved"}
        assert [each.kind for each in await box.keep.attention()] == ["unknown"]
        await names["say_that_it_happened"](box.keep, "orders", "found it")
        await box.settle()
        assert await box.statuses("orders", "order.paid") == {"o-1": "consumed"}
        [output] = await box.keep.outputs("orders")
        assert (output.status, output.result) == ("applied", '"found it"')
        assert await box.keep.attention() == []


def test_every_kind_of_attention_is_documented() -> None:
    assert [row[0] for row in table(RUNTIME, "`kind`")] == [f"`{kind}`" for kind in AttentionKind]


# The README.


def test_every_document_is_linked_from_the_readme() -> None:
    assert {each.name for each in (ROOT / "docs").glob("*.md") if f"docs/{each.name}" not in README} == set()


@pytest.mark.parametrize(
    "document", [ROOT / "README.md", *(ROOT / "docs").glob("*.md")], ids=lambda each: str(each.name)
)
def test_every_file_that_a_document_names_is_there(document: Path) -> None:
    named = set(
        re.findall(
            r"`((?:docs|examples|tests|keep_actors|sandbox|storage)/[\w./-]+\.\w+)`", document.read_text("utf-8")
        )
    )
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_every_module_that_the_architecture_names_is_there() -> None:
    """By its name alone, or by the end of its path."""
    modules = [f"/{each.relative_to(ROOT).as_posix()}" for each in ROOT.rglob("*.py") if ".venv" not in each.parts]
    named = set(re.findall(r"`([\w/]+\.py)`", (ROOT / "docs" / "architecture.md").read_text("utf-8")))
    assert len(named) > 20
    assert {name for name in named if not any(each.endswith(f"/{name}") for each in modules)} == set()


def test_the_picture_of_the_rooms_is_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    [layers] = [each["layers"] for each in contracts if each["type"] == "layers"]
    facades = {each.stem for each in (ROOT / "keep_actors").glob("*.py")} - {
        "backoff",
        "permissions",
        "policy",
        "script",
    }
    rooms = [[name for name in each.split(" | ") if name not in facades] for each in layers]
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    picture = text.partition("keep_actors ─┐\n")[2].partition("└")[0]
    known = {name for each in rooms for name in each}
    drawn = [[word for word in line.strip("│").split() if word in known] for line in picture.splitlines()]
    # A word of a caption may be the name of a room as well: only the room itself stands at the left, or beside one.
    assert [each[: len(room)] for each, room in zip(drawn, rooms, strict=True)] == rooms
    folders = {
        each for row in table(text, "room") for each in re.findall(r"`(?:storage/|sandbox/)?([\w/]+)(?:\.py)?`", row[0])
    }
    assert {f"keep_actors/{each}" for each in known} == {
        each.rstrip("/") for each in folders if each.startswith("keep_actors")
    }


def test_the_way_of_an_event_follows_the_imports() -> None:
    graph = grimp.build_graph("keep_actors", "keep_storage", "keep_sandbox")
    rows = table((ROOT / "docs" / "architecture.md").read_text("utf-8"), "from")
    assert len(rows) > 12
    for row in rows:
        importer, imported = (_module(each) for each in row[:2])
        assert imported in graph.find_modules_directly_imported_by(importer), f"{importer} does not import {imported}"


def _module(cell: str) -> str:
    path = cell.strip("`").removeprefix("storage/").removeprefix("sandbox/")
    return path.removesuffix(".py").rstrip("/").replace("/", ".")


PUBLIC = [name for name in dir(Keep) if not name.startswith("_")]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_method_has_an_example_that_is_python(name: str) -> None:
    text = inspect.getdoc(getattr(Keep, name)) or ""
    [example] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    compile(f"async def example(keep):\n{textwrap.indent(example, '    ')}", name, "exec")
    assert f"keep.{name}(" in example
