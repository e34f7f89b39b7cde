"""`keep demo`: the promises of this library, shown on this machine in less than a minute, and checked."""

import shutil
import signal
import sys
from pathlib import Path
from typing import Any, Final

import anyio
import click

from keep_actors.cli.exit_codes import Exit, Stopped
from keep_actors.cli.options import json_option
from keep_actors.cli.terminal import json_line, plain, show, style
from keep_actors.demo.stage import PACE_S, DemoFailed, Stage, claim

_TONES: Final = {"good": "green", "doubt": "yellow", "trick": "magenta"}
_BEGAN: Final = """Three workflows on one SQLite file, and services that misbehave on purpose
  {folder}/keep.db         the ledger of the runtime
  {folder}/outside.jsonl   what happens at the bank and the others, apart from the ledger
  {folder}/*.js            the workflows, to read"""
_KILLED: Final = """The runtime is killed now: SIGKILL, process {pid} (exit {exit_code})
  the bank    {payment} is booked {outside} time(s)
  the ledger  {payment} is {ledger}: sent, and no answer is recorded"""
_NO_JAIL: Final = "This machine has no jail for scripts. The engine is the only wall around them."
_NO_PROCESSES: Final = "Scripts have no process of their own here. These can be trusted; others could not."
_PAYMENTS: Final = """What happened, on both sides
  payment   amount    at the bank  in the ledger  how it is known"""
_SURE: Final = "Nothing was repeated, and nothing was lost."
_OPEN: Final = "One question is open: has the courier left with {about}? Only a person can find out."


@click.command()
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("keep-demo"),
    show_default=True,
    help="The folder to use. That of an earlier demo is emptied, any other is left alone.",
)
@click.option("--fast", is_flag=True, help="Without pauses for a reader.")
@json_option
def demo(folder: Path, fast: bool, as_json: bool) -> None:
    """Play a demo: three workflows, services that misbehave, and a SIGKILL in the middle of a payment.

    The effects outside are counted and compared with the ledger; one question stays open, with the commands that answer
    it. Takes about twenty seconds. Exits with 0 only if everything it says is true.

    \b
    keep demo
    keep demo --fast --json | tail -1
    """
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        lock = claim(folder)
        stage = Stage(folder, _tell_json if as_json else _tell, 0 if fast else PACE_S)
        is_true = anyio.run(stage.play, _program())
        lock.give_up()
    except DemoFailed as error:
        raise Stopped(Exit.WRONG, str(error)) from None
    sys.exit(Exit.OK if is_true else Exit.WRONG)


def _program() -> list[str]:
    """Return how this command is called here, so that the commands it shows can be typed as they stand."""
    called, found = Path(sys.argv[0]), shutil.which("keep")
    if found is not None and called.exists() and called.samefile(found):
        return ["keep"]
    return [str(called)] if called.name == "keep" else ["python", "-m", "keep_actors"]


def _tell_json(step: str, /, **facts: Any) -> None:
    show(json_line({"step": step, **facts}))
    sys.stdout.flush()


def _tell(step: str, /, **facts: Any) -> None:
    match step:
        case "began":
            _show(_BEGAN.format(folder=plain(facts["folder"])), "cyan")
        case "started":
            again = "" if facts["life"] == 1 else " again, on the same file"
            _show("\nA runtime starts{0} (process {pid}, sandbox {sandbox})".format(again, **facts), "cyan")
            if facts["sandbox"] != "jailed" and facts["life"] == 1:
                show(f"  {_NO_PROCESSES if facts['sandbox'] == 'thread' else _NO_JAIL}")
        case "seen":
            line, colour = facts["line"], _TONES.get(facts["line"].tone)
            words = style(plain(line.words), colour) if colour else plain(line.words)
            show(f"  {plain(line.who):<13}  {plain(line.about):<8}  {words}")
        case "killed":
            _show("\n" + _KILLED.format(**facts), "red")
        case "payment":
            if facts["invoice"] == "inv-1":
                _show("\n" + _PAYMENTS, "cyan")
            once = style("1 time", "green") if facts["outside"] == 1 else style(f"{facts['outside']} times", "red")
            show("  {invoice:<8}  {amount:>3} EUR   {0}       {ledger:<13}  {how}".format(once, **facts))
        case "summary":
            _tell_summary(**facts)
    sys.stdout.flush()


def _tell_summary(*, problems: list[str], about: str, commands: list[dict[str, str]], **counts: Any) -> None:
    if problems:
        _show("\n".join(["\nThis is not as it should be:", *(f"  {plain(each)}" for each in problems)]), "red")
        return
    show("\n5 invoices: {payments} payments. 3 mails: {rows} rows, {digests} digest.".format(**counts))
    _show(_SURE, "green")
    _show(_OPEN.format(about=about), "yellow")
    for command in commands:
        show(f"  {command['what']:<14}{plain(command['line'])}")


def _show(text: str, colour: str) -> None:
    """Show a text, its first line in colour, after an empty line if it begins with one."""
    start = len(text) - len(text.lstrip("\n"))
    first, *rest = text[start:].split("\n")
    show("\n".join(["\n" * start + style(first, colour, bold=True), *rest]))
