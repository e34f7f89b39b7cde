"""`keep check`: each script under broken/ names its own problems at its end, and the command finds exactly those."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from keep_actors.cli.authoring import check, problem_text
from keep_sandbox import Code, Place
from keep_sandbox.declaration import Problem
from tests.cli.operating import KEEP

ROOT = Path(__file__).parents[2]
BROKEN = sorted((Path(__file__).parent / "broken").glob("*.js"))
DEMO = ("--connectors", "examples.connectors:demo")
GOOD = ROOT / "examples" / "mail_to_sheets.js"


def expected(file: Path) -> list[tuple[str, str, str]]:
    """Place, code and hint of each problem, as the script itself says."""
    return re.findall(r"^// expect (\d+:\d+) ([\w-]+): (.*)$", file.read_text("utf-8"), re.MULTILINE)


def checked(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(check, [*map(str, arguments), *DEMO, "--sandbox", "thread"])
    return done.exit_code, done.stdout


@pytest.mark.parametrize("file", BROKEN, ids=lambda file: str(file.stem))
def test_a_broken_script_is_shown_where_it_is_broken_and_what_to_do(file: Path) -> None:
    wanted = expected(file)
    assert wanted, f"{file.name} does not say what is wrong with it"
    code, text = checked(file, "--json")
    [found] = json.loads(text)["files"]
    problems = [(f"{each['line']}:{each['column']}", each["code"], each["hint"]) for each in found["problems"]]
    assert (code, problems) == (1, wanted)
    assert all(each["message"] and each["hint"] for each in found["problems"])


@pytest.mark.parametrize("file", BROKEN, ids=lambda file: str(file.stem))
def test_the_place_that_is_shown_is_in_the_script(file: Path) -> None:
    source = file.read_text("utf-8").split("\n")
    for place, code, hint in expected(file):
        line, column = map(int, place.split(":"))
        assert column <= len(source[line - 1])
        _, text = checked(file)
        lines = text.splitlines()
        head = next(n for n, each in enumerate(lines) if f"{file.name}:{place}: error[{code}]: " in each)
        excerpt, caret, advice = lines[head + 1 : head + 4]
        assert excerpt == f"{line:>5} | {source[line - 1]}"
        assert caret.index("^") == len(f"{line:>5} | ") + column - 1
        assert advice == f"  hint: {hint}"


def test_there_are_mistakes_of_every_kind() -> None:
    """Every code that a script alone can earn, but for what needs half a megabyte, and for warnings."""
    found = {code for file in BROKEN for _, code, _ in expected(file)}
    assert len(BROKEN) >= 20
    assert {str(code) for code in Code} - found == {
        Code.TOO_LARGE,
        Code.NAME_DIFFERS,
        Code.NAME_TAKEN,
        Code.ITEM_NOT_AWAITED,
    }


FORGETFUL = """export default Keep.workflow({
  name: "replies",
  jobs: {
    async answer(ctx) {
      const mails = await ctx.gmail.search({});
      mails.forEach(async (mail) => {
        await ctx.withItem(mail.id, "Reply", async () => {});
      });
    },
  },
});
"""


def test_a_forgotten_await_on_an_item_is_a_warning_and_no_error(tmp_path: Path) -> None:
    file = tmp_path / "replies.js"
    file.write_text(FORGETFUL, "utf-8")
    code, text = checked(file)
    assert code == 0
    assert text.splitlines() == [
        f"{file}:7:15: warning[item-not-awaited]: this item is not awaited: a handler that returns before it is "
        "finished fails",
        '    7 |         await ctx.withItem(mail.id, "Reply", async () => {});',
        "      |               ^",
        "  hint: `forEach` does not wait: write `for (const each of all) { await ctx.withItem(...); }`",
        f"{file}: ok: replies",
    ]
    code, text = checked(file, GOOD)
    assert (code, text.splitlines()[-1]) == (0, "2 files, 0 errors in 0 of them, 1 warning")


def test_warnings_are_told_apart_from_problems_for_a_program_too(tmp_path: Path) -> None:
    file = tmp_path / "replies.js"
    file.write_text(FORGETFUL, "utf-8")
    code, text = checked(file, "--json")
    [found] = json.loads(text)["files"]
    assert (code, found["errors"], found["problems"]) == (0, 0, [])
    [warning] = found["warnings"]
    assert (warning["code"], warning["line"], warning["column"]) == ("item-not-awaited", 7, 15)
    assert (warning["handler"], warning["hint"].startswith("`forEach`")) == ("jobs.answer", True)


def test_good_scripts_pass_and_are_named() -> None:
    code, text = checked(GOOD)
    assert (code, text) == (0, f"{GOOD}: ok: example\n")


def test_several_files_have_a_summary() -> None:
    code, text = checked(GOOD, BROKEN[0], GOOD)
    assert code == 1
    assert text.endswith("3 files, 1 error in 1 of them\n")
    _, said = checked(GOOD, BROKEN[0], "--json")
    summary: dict[str, Any] = json.loads(said)
    assert summary["errors"] == 1
    assert [(each["workflow"], each["errors"]) for each in summary["files"]] == [("example", 0), ("orders", 1)]


def test_without_connectors_methods_are_judged_by_their_names_and_that_is_said() -> None:
    misspelled = next(file for file in BROKEN if file.stem == "method_misspelled")
    done = CliRunner().invoke(check, [str(misspelled), "--sandbox", "thread"])
    assert done.exit_code == 0
    assert "their methods were not checked" in done.stderr
    in_prepare = next(file for file in BROKEN if file.stem == "mutation_in_prepare")
    assert CliRunner().invoke(check, [str(in_prepare), "--sandbox", "thread"]).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Missing argument"),
        (["gone.js"], "does not exist"),
        ([str(GOOD), "--connectors", "nowhere:demo"], "there is no module 'nowhere'"),
    ],
)
def test_a_wrong_use_is_told_apart_from_a_wrong_script(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(check, arguments)
    assert done.exit_code == 2
    assert words in done.stderr


def test_the_command_checks_in_the_jail_and_colours_only_a_terminal() -> None:
    done = subprocess.run([KEEP, "check", BROKEN[0], *DEMO], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{BROKEN[0]}:{expected(BROKEN[0])[0][0]}: error[" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(("unwanted", "coloured"), [("", True), ("1", False)])
def test_colours_can_be_refused(monkeypatch: pytest.MonkeyPatch, unwanted: str, coloured: bool) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", unwanted)
    problem = Problem(code=Code.LOAD_ERROR, message="m", hint="h", place=Place(1, 1))
    assert ("\x1b[31m" in problem_text(Path("x.js"), "x", problem)) is coloured


def shown(source: str, line: int, column: int) -> list[str]:
    problem = Problem(code=Code.LOAD_ERROR, message="m", hint="h", place=Place(line, column))
    text = re.sub(r"\x1b\[[0-9;]*m", "", problem_text(Path("x.js"), source, problem))
    return text.splitlines()


def test_a_caret_stands_under_what_it_means_whatever_is_before_it() -> None:
    for before in ("", "\t\t", "日本 ", "é" * 7, "x" * 500):
        _, excerpt, caret, _ = shown(f"{before}HERE;", 1, len(before) + 1)
        width = sum(2 if each in "日本" else 1 for each in excerpt[: excerpt.index("HERE")])
        assert caret.index("^") == width
        assert len(excerpt) < 120


def test_a_script_cannot_speak_to_the_terminal() -> None:
    lines = shown("a\x1b]0;title\x07b", 1, 1)
    assert not any("\x1b" in line or "\x07" in line for line in lines)


EARLY_RETURN = """
export default Keep.workflow({
  name: "early", topics: { mail: {} },
  consumers: { file: Keep.consumer({
    subscribe: ["mail"],
    async prepare(ctx) { return { reservations: [], data: {} }; },
    async mutate(ctx, prepared) {
      FIRST
      await ctx.sheets.appendRow({ sheet: "s", values: ["v"] });
    },
  }) },
});
"""


@pytest.mark.parametrize(
    ("first", "code"),
    [
        ('if (prepared.data.a) return ctx.gmail.send({ to: "a", subject: "s" });', 0),
        ('if (prepared.data.a) { await ctx.gmail.send({ to: "a", subject: "s" }); return; }', 0),
        ('if (prepared.data.a) await ctx.gmail.send({ to: "a", subject: "s" });', 1),
    ],
)
def test_a_call_after_an_early_return_is_no_second_mutation(tmp_path: Path, first: str, code: int) -> None:
    file = tmp_path / "early.js"
    file.write_text(EARLY_RETURN.replace("FIRST", first), "utf-8")
    exit_code, text = checked(file)
    assert exit_code == code, text
    assert ("a second mutation" in text) == bool(code)
