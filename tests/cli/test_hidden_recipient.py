"""A script that hides whom a call is for, and a person who is asked to approve it: the recipient is always seen."""

import json
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import keep_actors
from keep_actors import Connector, Grant, Keep, mutation
from keep_actors.cli.calls import lines_of
from keep_actors.cli.exit_codes import Exit
from keep_actors.cli.terminal import columns
from keep_actors.text.call_text import call_text, preview
from keep_actors.text.visible import is_visible
from keep_storage import Store, reads
from tests.cli.at_work import Desk
from tests.cli.hostile import reached

ATTACKER = "attacker@evil.example"
BLANK = "\u3164"

SCRIPT = """
export default Keep.workflow({
  name: "mails",
  topics: { mails: {} },
  consumers: {
    send: Keep.consumer({
      subscribe: ["mails"],
      async prepare(ctx) {
        const [mail] = await ctx.peek("mails", { limit: 1 });
        if (!mail) return { reservations: [] };
        return {
          reservations: [{ topic: "mails", ids: [mail.messageId] }],
          data: mail.payload,
          ui: { title: "Send the invoice to boss@corp.example" },
        };
      },
      async mutate(ctx, prepared) {
        await ctx.mail.send(prepared.data);
      },
    }),
  },
});
"""


class Mail(Connector):
    """Sends what it is told, and keeps whom it was for."""

    name = "mail"

    def __init__(self) -> None:
        self.sent: list[str] = []

    @mutation(identity=["to"])
    async def send(self, to: str, subject: str, body: Any, headers: dict[str, str] | None = None) -> None:  # noqa: ARG002
        self.sent.append(to)


class Office(Desk):
    """A person beside a runtime that has the file."""

    def text(self, *words: str, code: Exit = Exit.OK) -> str:
        said = self.run(*words, code=code).stdout
        assert reached(said) == []
        return said

    def commands(self, text: str) -> list[str]:
        return [line.strip() for line in text.splitlines() if line.strip().startswith("keep ")]


def asked(db: Path, act: Callable[[Office], None], *mails: dict[str, Any], running: bool = True) -> list[str]:
    """Hold these mails for approval, and act beside the runtime, or after its end. Returns to whom something went."""
    mail = Mail()

    async def fill(keep: Keep) -> None:
        await keep.deploy(SCRIPT, grants=[Grant("mail.send", policy="ask")])
        for at, each in enumerate(mails):
            await keep.publish("mails", "mails", message_id=f"m{at}", title=f"m{at}", payload=each)
        await keep.wait_idle()

    async def work() -> None:
        async with keep_actors.open(db, connectors=[mail], sandbox="thread", control=True) as keep:
            await fill(keep)
            if running:
                await anyio.to_thread.run_sync(act, Office(db))
                await keep.wait_idle()

    anyio.run(work)
    if not running:
        act(Office(db))
    return mail.sent


HIDDEN: dict[str, dict[str, Any]] = {
    "behind blank characters": {"subject": "Invoice", "body": BLANK * 2100, "to": ATTACKER},
    "behind other blank characters": {"subject": "Invoice", "body": "\u2800\uffa0\u115f" * 700, "to": ATTACKER},
    "behind a long text": {"body": "Dear boss, " * 400, "subject": "Invoice", "to": ATTACKER},
    "behind spaces that wrap": {"body": "Hi" + " " * 1990 + 'to  "boss@corp.example"', "subject": "x", "to": ATTACKER},
    "behind many names": {"headers": {f"x-{at}": "y" for at in range(500)}, "subject": "x", "body": "", "to": ATTACKER},
    "behind a long name": {"headers": {"x" * 3000: "y"}, "subject": "x", "body": "", "to": ATTACKER},
}


@pytest.mark.parametrize("running", [True, False], ids=["with a runtime", "without one"])
@pytest.mark.parametrize("mail", HIDDEN.values(), ids=HIDDEN)
def test_the_recipient_is_on_a_line_of_its_own_wherever_a_call_is_shown(
    tmp_path: Path, mail: dict[str, Any], running: bool
) -> None:
    def act(office: Office) -> None:
        [approval] = office.asked("mails")
        [waiting] = office.objects("attention", code=Exit.WAITING)
        run_id = waiting["run_id"]
        for text in (
            office.text("attention", code=Exit.WAITING),
            office.text("attention", "--full", code=Exit.WAITING),
            office.text("explain", approval),
            office.text("explain", approval, "--full"),
            office.text("explain", run_id),
            office.text("outputs"),
        ):
            assert re.search(rf'^ +to +"{ATTACKER}"$', text, re.MULTILINE), text
            assert not re.search(r'^ +to +"boss', text, re.MULTILINE), text
            assert BLANK not in text
        assert ATTACKER in office.text("status", "mails"), "the words about it name the recipient too"

    asked(tmp_path / "keep.db", act, mail, running=running)


def test_parameters_are_in_the_order_of_the_connector_and_without_a_runtime_by_name(tmp_path: Path) -> None:
    mail = {"subject": "s", "headers": {}, "body": "b", "to": "t"}

    def names(text: str) -> list[str]:
        return re.findall(r"^    (\w+) +(?:\"|\{)", text, re.MULTILINE)

    def act(office: Office) -> None:
        for text in (office.text("attention", code=Exit.WAITING), office.text("explain", *office.asked("mails"))):
            assert names(text)[:4] == ["to", "subject", "body", "headers"]
            assert "in the order of the connector" in text

    def later(office: Office) -> None:
        for text in (office.text("attention", code=Exit.WAITING), office.text("explain", *office.asked("mails"))):
            assert names(text)[:4] == ["body", "headers", "subject", "to"]
            assert "by name: no running runtime knows their order" in text

    asked(tmp_path / "keep.db", act, mail)
    asked(tmp_path / "other.db", later, mail, running=False)


def test_a_name_inside_of_a_parameter_is_set_in_under_it(tmp_path: Path) -> None:
    def act(office: Office) -> None:
        text = office.text("attention", code=Exit.WAITING)
        assert re.findall(r'^( +)to +"(.*)"$', text, re.MULTILINE) == [
            ("    ", ATTACKER),
            ("      ", "boss@corp.example"),
        ]
        assert re.search(r'^      "to\\u\{200b\}" +1$', text, re.MULTILINE), "a look-alike is spelled out"

    asked(
        tmp_path / "keep.db",
        act,
        {"body": {"to": "boss@corp.example", "to\u200b": 1}, "subject": "x", "to": ATTACKER},
    )


def test_what_is_cut_says_how_much_is_left_out(tmp_path: Path) -> None:
    def act(office: Office) -> None:
        text = office.text("attention", code=Exit.WAITING)
        assert "… 1,612 characters left out" in text
        assert "left out" not in office.text("attention", "--full", code=Exit.WAITING)
        full = office.text("attention", "--full", code=Exit.WAITING)
        assert sum(line.count("x") for line in full.splitlines() if "xx" in line) == 2012

    asked(tmp_path / "keep.db", act, {"to": "t", "subject": "s", "body": "x" * 2012})


def test_nothing_to_type_approves_a_call_that_was_not_shown_whole(tmp_path: Path) -> None:
    def act(office: Office) -> None:
        text = office.text("attention", code=Exit.WAITING)
        [long, short] = office.asked("mails")
        assert not any("keep approve" in each and long in each for each in office.commands(text))
        assert any("reject" in each and long in each for each in office.commands(text)), "no is always safe"
        assert any("keep approve" in each and short in each for each in office.commands(text))
        assert not any("keep approve" in each and "--all" in each for each in office.commands(text))
        assert "not shown whole" in text
        explained = office.text("explain", long)
        assert not any("keep approve" in each for each in office.commands(explained))
        [see] = [each for each in office.commands(text) if each.endswith(f"{long} --full")]
        assert see in office.commands(explained), "both say how to see all of it"
        [_, *words] = shlex.split(see.replace(f"--db {office.db}", ""))
        [approves] = [each for each in office.commands(office.text(*words)) if "keep approve" in each]
        full = office.commands(office.text("attention", "--full", code=Exit.WAITING))
        assert approves in full
        assert any("keep approve" in each and "--all" in each for each in full)
        [_, *words] = shlex.split(approves.replace(f"--db {office.db}", ""))
        office.run(*words)

    sent = asked(
        tmp_path / "keep.db",
        act,
        {"to": "long", "subject": "s", "body": "x" * 2012},
        {"to": "short", "subject": "s", "body": "x"},
    )
    assert sent == ["long"]


@pytest.mark.parametrize(("answer", "sent"), [("y", [ATTACKER]), ("n", [])])
def test_on_a_terminal_such_a_call_is_shown_whole_before_it_is_approved(
    tmp_path: Path, answer: str, sent: list[str]
) -> None:
    def act(office: Office) -> None:
        [approval] = office.asked("mails")
        done = office.type(answer, "approve", approval)
        assert "Approve this call?" in done.stderr
        assert re.search(rf'^ +to +"{ATTACKER}"$', done.stderr, re.MULTILINE)
        assert "left out" not in done.stderr
        assert done.stderr.count("x") >= 2012
        assert done.returncode == (0 if answer == "y" else 1)

    mail = {"body": "x" * 2012, "subject": "s", "to": ATTACKER}
    assert asked(tmp_path / "keep.db", act, mail) == sent


@pytest.mark.parametrize("words", [["--all"], ["--workflow", "mails"]], ids=" ".join)
def test_so_it_is_where_no_id_is_named(tmp_path: Path, words: list[str]) -> None:
    def act(office: Office) -> None:
        done = office.type("n", "approve", *words)
        assert re.search(rf'^ +to +"{ATTACKER}"$', done.stderr, re.MULTILINE)
        granted = office.type("n", "grant", "mails", "mail.send")
        assert re.search(rf'^ +to +"{ATTACKER}"$', granted.stderr, re.MULTILINE)
        assert "Approve?" in granted.stderr

    mail = {"body": "x" * 2012, "subject": "s", "to": ATTACKER}
    assert asked(tmp_path / "keep.db", act, mail) == []


def test_a_short_call_is_approved_without_a_question_and_an_id_without_a_terminal_is_a_persons_word(
    tmp_path: Path,
) -> None:
    def act(office: Office) -> None:
        long, short = office.asked("mails")
        assert "?" not in office.type("", "approve", short).stderr
        office.run("approve", long)

    mails = {"body": "x" * 2012, "subject": "s", "to": "long"}, {"body": "x", "subject": "s", "to": "short"}
    assert asked(tmp_path / "keep.db", act, *mails) == ["short", "long"]


@pytest.mark.parametrize("name", ["x" * 80 + " " * 16 + "to  boss@corp.example" + " " * 16 + "x" * 400, "\u6ce8" * 58])
@pytest.mark.parametrize("full", [True, False])
def test_a_name_that_is_wider_than_a_line_does_not_reach_the_place_of_another_name(name: str, full: bool) -> None:
    text = call_text(json.dumps({"headers": {name: "y"}, "to": ATTACKER}), ["to", "headers"], full=full)
    shown = list(lines_of(text, "    "))
    assert shown[:2] == [f'    to       "{ATTACKER}"', "    headers"]
    assert max(map(columns, shown)) <= 100, "a terminal would go on at its left side"
    assert all(each.startswith("      ") for each in shown[2:])
    assert shown[-1].strip() == '"y"'


@pytest.mark.parametrize("body", [[1] * 500_000, [{"": 0}] * 140_000, {str(at): 1 for at in range(90_000)}])
def test_the_words_about_a_large_call_take_the_runtime_a_moment(body: object) -> None:
    params = json.dumps({"body": body, "to": ATTACKER}, separators=(",", ":"))
    before = time.thread_time()
    # At first all of it was put into words, for seconds, while everybody else waited.
    words = preview(params, ["to", "body"])
    assert time.thread_time() - before < 0.25
    assert words.startswith(f'to: "{ATTACKER}", body: ')
    assert words.endswith("characters left out")


def test_a_filler_that_is_blank_is_spelled_out() -> None:
    assert is_visible("\U00016fe4") is False
    [line] = lines_of(call_text(json.dumps({"to": "boss\U00016fe4@corp.example"})), "")
    assert line == 'to  "boss\\u{16fe4}@corp.example"'


def test_the_words_that_are_stored_about_a_call_name_the_recipient_and_mark_their_cut(tmp_path: Path) -> None:
    asked(tmp_path / "keep.db", lambda _: None, {"body": "x" * 2012, "subject": "s", "to": ATTACKER})
    with Store.open(tmp_path / "keep.db") as store:
        q = store.queries()
        [workflow] = reads.workflows(q)
        [run] = [each for each in reads.runs(q, workflow.id, limit=10) if each.error_message]
    assert f'with to: "{ATTACKER}", subject: "s", body: "' in run.error_message
    assert "… 1,912 characters left out" in run.error_message


def test_json_has_all_of_it_and_it_is_the_same_value(tmp_path: Path) -> None:
    mail = {"subject": "Invoice", "body": BLANK * 2100, "to": ATTACKER}

    def act(office: Office) -> None:
        [waiting] = office.objects("attention", code=Exit.WAITING)
        assert json.loads(waiting["call"]["params"]) == mail
        assert BLANK not in office.run("attention", "--json", code=Exit.WAITING).stdout

    asked(tmp_path / "keep.db", act, mail)
