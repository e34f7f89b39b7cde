"""`keep types`: what the real `tsc --strict` makes of scripts beside the declarations."""

import os
import re
import shutil
import subprocess
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from click.testing import CliRunner

from examples.connectors import demo
from keep_actors.authoring.typescript import declarations
from keep_actors.cli.authoring import types
from keep_actors.connectors import Catalog, Connector, mutation, read
from keep_actors.demo import connectors as demo_connectors
from keep_actors.policy import Policy
from keep_actors.run.gate import ALLOWED, Ask, ScriptPhase
from keep_actors.text.schema_text import identifiers, type_of

ROOT = Path(__file__).parents[2]
STRICT = ("--strict", "--noEmit", "--checkJs", "--allowJs")
USUAL = ("--target", "es2022", "--module", "esnext", "--lib", "es2023")


@pytest.fixture(scope="session")
def tsc() -> str:
    """The real compiler. `.ci/run` installs it and says where; elsewhere it may be missing."""
    found = os.environ.get("KEEP_TSC") or shutil.which("tsc")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("KEEP_TSC names no TypeScript compiler, and CI has to have one: see .ci/run")
        pytest.skip("no TypeScript compiler: npm install typescript, and set KEEP_TSC to node_modules/.bin/tsc")
    return found


def compiled(tsc: str, folder: Path, catalog: Catalog, *scripts: str) -> list[str]:
    """The output for these scripts, each error with its details."""
    (folder / "keep.d.ts").write_text(declarations(catalog), "utf-8")
    names = [f"script{number}.js" for number in range(len(scripts))]
    for name, script in zip(names, scripts, strict=True):
        (folder / name).write_text(script, "utf-8")
    command = [tsc, *STRICT, *USUAL, "--pretty", "false", "keep.d.ts", *names]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    errors = re.findall(r"^\S+\(\d+,\d+\): error.*(?:\n  .*)*", done.stdout, re.MULTILINE)
    assert bool(errors) == (done.returncode != 0), done.stdout + done.stderr
    return errors


def scripts_of(document: Path) -> list[str]:
    return re.findall(r"^```js\n(.*?)^```$", document.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def test_every_example_passes_strictly(tsc: str, tmp_path: Path) -> None:
    examples = [file.read_text("utf-8") for file in (ROOT / "examples").glob("*.js")]
    documented = scripts_of(ROOT / "docs" / "scripts.md")
    assert examples
    assert len(documented) > 3
    assert compiled(tsc, tmp_path, Catalog(demo()), *examples, *documented) == []


def test_every_script_of_the_demo_passes_strictly(tsc: str, tmp_path: Path) -> None:
    scripts = [file.read_text("utf-8") for file in (ROOT / "keep_actors" / "demo").glob("*.js")]
    assert len(scripts) == 3
    assert compiled(tsc, tmp_path, Catalog(demo_connectors()), *scripts) == []


def test_the_compiler_finds_the_slip_in_the_example_of_the_specification(tsc: str, tmp_path: Path) -> None:
    script = (ROOT / "tests" / "runtime" / "email_to_sheets.js").read_text("utf-8")
    [error] = compiled(tsc, tmp_path, Catalog(demo()), script)
    assert "Property 'lastCursor' does not exist on type 'Mail[]'" in error


def a_script(prepare: str = "", mutate: str = "", next_: str = "", producer: str = "", job: str = "") -> str:
    return f"""\
export default Keep.workflow({{
  name: "w",
  topics: {{ "in": {{}}, "out": {{}} }},
  producers: {{ poll: {{ schedule: {{ interval: "5m" }}, async handler(ctx, state) {{ {producer} }} }} }},
  consumers: {{
    file: Keep.consumer({{
      subscribe: ["in"],
      publishes: ["out"],
      async prepare(ctx, state) {{
        const [event] = await ctx.peek("in", {{ limit: 1 }});
        if (!event) return {{ reservations: [] }};
        {prepare}
        return {{ reservations: [{{ topic: "in", ids: [event.messageId] }}], data: {{ n: 1, from: event.title }} }};
      }},
      async mutate(ctx, prepared) {{ {mutate} }},
      async next(ctx, prepared, mutationResult) {{ {next_} }},
    }}),
  }},
  jobs: {{ async sweep(ctx) {{ {job} }} }},
}});
"""


RIGHT = {
    "reads": a_script(prepare='await ctx.gmail.search(); await ctx.sheets.getRow({ rowId: "1" });'),
    "a mutation": a_script(mutate='await ctx.gmail.send({ to: prepared.data.from, subject: "s", body: "b" });'),
    "a narrowed result": a_script(
        next_='if (mutationResult.status === "applied") await ctx.publish("out", { title: mutationResult.result.id });'
    ),
    "an item": a_script(
        job="""await ctx.withItem("i", "I", async (ctx) => { if (ctx.item.isDone) return;
          const sent = await ctx.gmail.send({ to: "a", subject: "s", body: "b", subkey: "2" });
          console.log(sent.messageId.toUpperCase()); });"""
    ),
    "a producer": a_script(producer='await ctx.publish("in", { messageId: "1", title: "T", payload: state?.x });'),
}

WRONG = {
    "a mutation in prepare": (a_script(prepare='await ctx.gmail.send({ to: "a", subject: "s", body: "b" });'), "send"),
    "publish in prepare": (a_script(prepare='await ctx.publish("out", { title: "T" });'), "publish"),
    "a read in mutate": (a_script(mutate="await ctx.gmail.search();"), "search"),
    "a read in next": (a_script(next_="await ctx.gmail.search();"), "gmail"),
    "peek in a producer": (a_script(producer='await ctx.peek("in");'), "peek"),
    "a mutation in a producer": (a_script(producer="await ctx.gmail.send();"), "send"),
    "a mutation outside an item": (a_script(job="await ctx.sheets.appendRow({});"), "appendRow"),
    "an item in a consumer": (a_script(mutate='await ctx.withItem("i", "I", () => 1);'), "withItem"),
    "an unknown method": (a_script(prepare="await ctx.gmail.serach({});"), "serach"),
    "an unknown connector": (a_script(prepare="await ctx.slack.list();"), "slack"),
    "a parameter of another type": (a_script(prepare="await ctx.gmail.search({ query: 7 });"), "'number'"),
    "an unknown parameter": (a_script(prepare='await ctx.gmail.search({ q: "x" });'), "'q'"),
    "a missing parameter": (a_script(mutate='await ctx.gmail.send({ to: "a" });'), "subject"),
    "an undeclared topic": (a_script(producer='await ctx.publish("inn", { title: "T" });'), '"inn"'),
    "a topic it does not subscribe to": (a_script(prepare='await ctx.peek("out");'), '"out"'),
    "a topic it may not publish to": (a_script(next_='await ctx.publish("in", { title: "T" });'), '"in"'),
    "an event without a title": (a_script(producer='await ctx.publish("in", { messageId: "1" });'), "title"),
    "an event with another field": (a_script(producer='await ctx.publish("in", { title: "T", data: 1 });'), "data"),
    "data that prepare did not hand over": (a_script(mutate="console.log(prepared.data.subject);"), "subject"),
    "the result of a mutation in mutate": (
        a_script(mutate='const sent = await ctx.gmail.send({ to: "a", subject: "s", body: "b" }); sent.messageId;'),
        "never",
    ),
    "the result of what did not happen": (a_script(next_="mutationResult.result;"), "result"),
    "no reservations": (a_script(prepare="return { data: 1 };"), "reservations"),
    "a field that a result does not have": (a_script(prepare='return { reservations: [], titel: "T" };'), "titel"),
    "the network": (a_script(prepare='await fetch("https://example.com");'), "fetch"),
    "a timer": (a_script(prepare="setTimeout(() => {}, 1);"), "setTimeout"),
    "a bad interval": (a_script().replace('"5m"', '"5 minutes"'), "5 minutes"),
    "a subscription to nothing declared": (a_script().replace('subscribe: ["in"]', 'subscribe: ["gone"]'), "gone"),
    "a consumer without subscribe": (a_script().replace('subscribe: ["in"],', ""), "Consumer<string>"),
    "an ordering key that is a function": (
        a_script().replace('publishes: ["out"],', "orderingKey: (e) => e,"),
        "string",
    ),
    "no name": (a_script().replace('name: "w",', ""), "name"),
}


def test_right_uses_pass(tsc: str, tmp_path: Path) -> None:
    assert compiled(tsc, tmp_path, Catalog(demo()), *RIGHT.values()) == []


def test_every_wrong_use_fails_and_names_what_is_wrong(tsc: str, tmp_path: Path) -> None:
    errors = compiled(tsc, tmp_path, Catalog(demo()), *(script for script, _ in WRONG.values()))
    for number, (name, (_, word)) in enumerate(WRONG.items()):
        said = [error for error in errors if error.startswith(f"script{number}.js")]
        assert any(word in error for error in said), (name, said)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Tree(msgspec.Struct, tag="tree"):
    """A tree: it */ has branches."""

    branches: list["Tree"]
    colour: Colour = Colour.RED


class Leaf(msgspec.Struct, tag="leaf", rename={"odd_name": "odd-name"}):
    odd_name: dict[str, int] | None


class Odd(Connector):
    name = "odd"

    @read
    async def grow(
        self, seed: Tree | Leaf, pair: tuple[int, str], mode: Literal["a", "b", 3], more: Any = None
    ) -> list[Tree | Leaf]:
        """Many types.

        On */ two lines.
        """
        return [seed] * (len(pair) if more == mode else 1)

    @read
    async def nothing(self) -> None: ...

    @mutation
    async def paint(self, what: Annotated[str, msgspec.Meta(min_length=1)], colours: set[Colour]) -> dict[str, Any]:
        return {what: list(colours)}


def test_every_kind_of_type_can_be_said(tsc: str, tmp_path: Path) -> None:
    odd = Catalog([Odd()])
    leaf = '{ type: "leaf", "odd-name": { a: 1 } }'
    right = a_script(
        prepare=f"""const grown = await ctx.odd.grow({{ seed: {leaf}, pair: [1, "x"], mode: 3 }});
        for (const each of grown) if (each.type === "tree") each.branches[0]?.branches;
        const nothing = await ctx.odd.nothing(); nothing === null;""",
        mutate='await ctx.odd.paint({ what: "wall", colours: ["red"] });',
    )
    wrong = a_script(mutate='await ctx.odd.paint({ what: "wall", colours: ["green"] });')
    errors = compiled(tsc, tmp_path, odd, right, wrong)
    assert [error.partition("(")[0] for error in errors] == ["script1.js"]
    assert '"green"' in errors[0]


def test_connectors_are_not_needed(tsc: str, tmp_path: Path) -> None:
    assert compiled(tsc, tmp_path, Catalog([]), a_script(), "export {};\nconsole.log(1);") == []


PARTS = {
    Ask.PEEK: "Peeking",
    Ask.GET_BY_IDS: "GettingByIds",
    Ask.PUBLISH: "Publishing",
    Ask.READ: "Reads",
    Ask.READ_BY_ID: "ReadsById",
    Ask.MUTATION: "Mutations",
    Ask.ITEM: "OpeningItems",
}


@pytest.mark.parametrize("stage", ScriptPhase)
def test_a_context_has_what_the_gate_allows_and_nothing_else(stage: ScriptPhase) -> None:
    name = dict(zip(ScriptPhase, ("Producer", "Prepare", "Mutate", "Next", "Job", "Item"), strict=True))[stage]
    text = declarations(Catalog(demo()))
    [said] = re.findall(rf"^  type {name}Context(?:<.*?>)? = (.*);$", text, re.MULTILINE)
    parts = {re.sub(r"<.*|^Item", "", part) for part in said.split(" & ")} - {"InsideItem"}
    assert parts == {PARTS[ask] for ask in ALLOWED[stage]}


def test_the_policy_says_whether_mutate_may_read() -> None:
    assert "type MutateContext = ReadsById & Mutations;" in declarations(Catalog(demo()), Policy(mutate_reads="by_id"))


def test_the_command_writes_where_it_is_told(tmp_path: Path) -> None:
    arguments = ["--connectors", "examples.connectors:demo"]
    printed = CliRunner().invoke(types, arguments)
    assert (printed.exit_code, printed.stdout) == (0, declarations(Catalog(demo())))
    out = tmp_path / "keep.d.ts"
    assert CliRunner().invoke(types, [*arguments, "--out", str(out)]).exit_code == 0
    assert out.read_text("utf-8") == printed.stdout
    assert CliRunner().invoke(types, ["--out", str(tmp_path / "gone" / "x.d.ts")]).exit_code == 2
    assert CliRunner().invoke(types, ["--connectors", "nowhere:demo"]).exit_code == 2
    assert CliRunner().invoke(types, [*arguments, *arguments]).exit_code == 2


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": ["string", "null"]}, "string | null"),
        ({"type": "array"}, "any[]"),
        ({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "(string | null)[]"),
        ({"type": "object"}, "{ [key: string]: any }"),
        ({"const": 'a"b'}, '"a\\"b"'),
        ({"anyOf": []}, "any"),
        ({}, "any"),
    ],
)
def test_a_schema_is_said_in_typescript(schema: dict[str, Any], said: str) -> None:
    assert type_of(schema, str) == said


def test_no_two_types_have_one_name() -> None:
    assert identifiers(["a.B", "a_B", "1", "é"]) == {"a.B": "a_B", "a_B": "a_B2", "1": "_1", "é": "Type"}


def test_events_have_a_status_and_a_skipped_mutation_may_have_a_reason() -> None:
    text = declarations(Catalog([]))
    assert 'readonly status: "pending" | "reserved" | "consumed" | "skipped";' in text
    assert "getByIds(topic: Topic, ids: readonly string[]): Promise<StoredEvent[]>;" in text
    assert '{ readonly status: "skipped"; readonly reason?: string }' in text
