"""`keep demo`: what this library promises, shown on this machine in less than a minute, and checked."""

import shutil
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn, assert_never

import click

from keep_actors.cli.exits import Exit, Stopped
from keep_actors.cli.options import json_option
from keep_actors.cli.terminal import json_line, plain, show, style
from keep_actors.demo.folder import Folder, NotOurs
from keep_actors.demo.processes import Broken
from keep_actors.demo.stage import PACE_S, play
from keep_actors.demo.steps import Began, Killed, Payment, Seen, Started, Step, Summary
from keep_actors.demo.story import Line, Tone
from keep_actors.demo.tricks import INVOICES

_COLOURS: Final[dict[Tone, str]] = {"plain": "", "good": "green", "doubt": "yellow", "trick": "magenta"}


@click.command()
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("keep-demo"),
    show_default=True,
    help="Where it takes place. A folder of an earlier demo is emptied, any other is left alone.",
)
@click.option("--fast", is_flag=True, help="Without pauses for a reader.")
@json_option
def demo(folder: Path, fast: bool, as_json: bool) -> None:
    """Show it: three workflows, services that misbehave, and a SIGKILL in the middle of a payment.

    What happened outside is counted and compared with the ledger; one question is left open, with what to type to
    answer it. Takes about twenty seconds. Exits with 0 only if everything it says is true.

    \b
    keep demo
    keep demo --fast --json | tail -1
    """
    signal.signal(signal.SIGTERM, _interrupted)
    tell = _tell_json if as_json else _tell
    try:
        summary = play(Folder(folder), tell, _program(), pace_s=0 if fast else PACE_S)
    except (NotOurs, Broken) as error:
        raise Stopped(Exit.WRONG, str(error)) from None
    tell(summary)
    sys.exit(Exit.WRONG if summary.problems else Exit.OK)


def _program() -> list[str]:
    """How this command is called here, so that what is shown can be typed as it stands."""
    called, found = Path(sys.argv[0]), shutil.which("keep")
    if found is not None and called.exists() and called.samefile(found):
        return ["keep"]
    return [str(called)] if called.name == "keep" else ["python", "-m", "keep_actors"]


def _interrupted(_: int, __: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _tell_json(step: Step) -> None:
    show(json_line(step))
    sys.stdout.flush()


def _tell_began(folder: str) -> None:
    show(style("Three workflows on one SQLite file, and services that misbehave on purpose", "cyan", bold=True))
    show(f"  {plain(folder)}/keep.db         the ledger of the runtime")
    show(f"  {plain(folder)}/outside.jsonl   what happens at the bank and the others, a process apart")
    show(f"  {plain(folder)}/*.js            the workflows, to read")


def _tell(step: Step) -> None:
    match step:
        case Began():
            _tell_began(step.folder)
        case Started():
            again = "A runtime starts" if step.life == 1 else "A runtime starts again, on the same file"
            show()
            show(style(f"{again} (process {step.pid}, sandbox {step.sandbox})", "cyan", bold=True))
            if step.sandbox != "jailed" and step.life == 1:
                show("  This machine has no jail for scripts. These can be trusted; others could not.")
        case Seen():
            _tell_line(step.line)
        case Killed():
            _tell_killed(step)
        case Payment():
            _tell_payment(step)
        case Summary():
            _tell_summary(step)
        case _:
            assert_never(step)
    sys.stdout.flush()


def _tell_line(line: Line) -> None:
    colour = _COLOURS[line.tone]
    words = style(plain(line.words), colour) if colour else plain(line.words)
    show(f"  {plain(line.who):<13}  {plain(line.about):<8}  {words}")


def _tell_killed(step: Killed) -> None:
    show()
    show(style(f"The runtime is killed now: SIGKILL, process {step.pid} (exit {step.exit_code})", "red", bold=True))
    show(f"  the bank    {step.payment} is booked {step.outside} time(s)")
    show(f"  the ledger  {step.payment} is {step.ledger}: sent, and no answer is recorded")


def _tell_payment(step: Payment) -> None:
    if step.invoice == "inv-1":
        show()
        show(style("What happened, on both sides", "cyan", bold=True))
        show("  payment   amount    at the bank  in the ledger  how it is known")
    once = style(f"{step.outside} time", "green") if step.outside == 1 else style(f"{step.outside} times", "red")
    show(f"  {step.invoice:<8}  {step.amount:>3} EUR   {once}       {step.ledger:<13}  {step.how}")


def _tell_summary(step: Summary) -> None:
    show()
    if step.problems:
        show(style("This is not as it should be:", "red", bold=True))
        for each in step.problems:
            show(f"  {plain(each)}")
        return
    mails = f"{step.mails} mails: {step.rows} rows, {step.digests} digest"
    show(f"{len(INVOICES)} invoices: {step.payments} payments. {mails}.")
    show(style("Nothing was repeated, and nothing was lost.", "green", bold=True))
    show(
        style(
            f"One question is open: has the courier left with {step.about}? Nobody can be asked.", "yellow", bold=True
        )
    )
    for command in step.commands:
        show(f"  {command.what:<14}{plain(command.line)}")
