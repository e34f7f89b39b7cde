"""Tell what happened, on both sides: in the database, the sheet and the mailbox, and in the ledger of keep-actors."""

import csv
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import keep_actors
from examples.at_work.servers import MailServer
from keep_actors.views import Output

WORKFLOWS = ["orders-from-mail", "signups-to-sheet", "tickets-to-mail"]
CALLS = sorted([*["orders.insertOrders"] * 2, *["signups.appendRow"] * 2, "mailbox.send"])
"""The calls that change something, when everything has happened."""
PLACES = {"orders": "the database", "signups": "the sheet", "mailbox": "the sent folder"}
"""Where each connector looks for the effect of a call."""
ABOUT = {"orders": "number", "signups": "name", "mailbox": "subject"}


async def calls(keep: keep_actors.Keep) -> list[Output]:
    """All calls of the ledger."""
    return [each for name in WORKFLOWS for each in sorted(await keep.outputs(name), key=lambda each: each.params)]


async def account(keep: keep_actors.Keep, folder: Path, mail: MailServer) -> tuple[list[str], bool]:
    """Lines for a person, and True if each call has happened exactly once, by a count of what is outside."""
    orders, rows, mails = rows_of_orders(folder), rows_of_signups(folder), mail.subjects_of_the_team()
    lines = [
        "",
        f"mail → database   2 mails came in; orders.db has {counted(orders, 'row')}",
        *(f"  {number}  {amount:>3} EUR  {customer}" for number, amount, customer in orders),
        f"webhook → sheet   3 calls came in, one of them twice; signups.csv has {counted(rows, 'row')}",
        *(f"  {name:<4}  {email}" for name, email in rows),
        f"MCP → mail        1 ticket is urgent; the mailbox of the team has {counted(mails, 'mail')}",
        *(f"  {subject}" for subject in mails),
        "",
        "How each outcome is known",
    ]
    made = await calls(keep)
    for each in made:
        journal = (await keep.explain(each.run_id)).journal
        lines += ledger_lines(each, [(entry.operation, json.loads(entry.changed), entry.why) for entry in journal])
    is_once = (len(set(orders)), len(set(rows)), len(mails)) == (len(orders), len(rows), 1) == (2, 2, 1)
    lines += ["", f"{len(made)} calls, {len(orders) + len(rows) + len(mails)} effects: each happened once."]
    return (lines if is_once else [*lines[:-1], "Something was lost or repeated."]), is_once


def ledger_lines(call: Output, journal: list[tuple[str, dict[str, object], str]]) -> list[str]:
    """The steps in which the outcome of a call became known, as the ledger has them."""
    connector = call.call.partition(".")[0]
    place = PLACES[connector]
    steps = []
    for operation, changed, why in journal:
        match operation, changed.get("mutation_status"):
            case "recover_crashed_runs", _ if changed.get("mutation"):
                steps.append("unknown: the process was killed after the call was written into the ledger")
            case _, [_, "needs_reconcile" | "indeterminate"]:
                steps.append(f"unknown: {why.partition(f'{call.call}: ')[2] or why}")
            case _, ["in_flight", "applied"]:
                steps.append("applied: answered")
            case _, [_, "applied"]:
                steps.append(f"applied: the connector looked into {place}: it is there. Not called again")
            case _, ["in_flight", "failed"]:
                steps.append(f"did not happen: {why}. Called again")
            case _, [_, "failed"]:
                steps.append(f"did not happen: the connector looked into {place}: it is not there. Called again")
    title = f"  {call.call} {json.loads(call.params)[ABOUT[connector]]!r}"
    return [f"{title}: {steps[0]}"] if len(steps) == 1 else [title, *(f"    {each}" for each in steps)]


def counted(things: list[object] | list[str], word: str) -> str:
    """A number with its word."""
    return f"{len(things)} {word}{'' if len(things) == 1 else 's'}"


def rows_of_orders(folder: Path) -> list[tuple[str, int, str]]:
    """The rows of the database."""
    with closing(sqlite3.connect(folder / "orders.db")) as db:
        return db.execute("SELECT number, amount, customer FROM orders ORDER BY number").fetchall()


def rows_of_signups(folder: Path) -> list[tuple[str, str]]:
    """The rows of the sheet."""
    with (folder / "signups.csv").open(encoding="utf-8", newline="") as file:
        return sorted((row["name"], row["email"]) for row in csv.DictReader(file))
