"""Three workflows on local servers: mail to database, webhook to sheet, Model Context Protocol to mail.

    python -m examples.at_work

Everything runs on this machine, in the folder `at-work`. The mail server breaks a connection after it has taken the
mail: the connector finds the mail in the sent folder, and it is not sent again.
"""

import csv
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from string import Template

import anyio
import httpx2
from anyio.to_thread import run_sync

import keep_actors
from examples.at_work.servers import PASSWORD, MailServer, mail_server, webhook
from keep_actors.services import load_configuration

HERE = Path(__file__).parent
FOLDER = Path("at-work")
SCRIPTS = ["orders_from_mail.js", "signups_to_sheet.js", "tickets_to_mail.js"]
WITHIN_S = 60


def prepare(folder: Path, mail: MailServer) -> Path:
    """Make the folder anew, with an empty table and the settings, which name the ports."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with closing(sqlite3.connect(folder / "orders.db")) as db:
        db.execute(
            "CREATE TABLE orders (number TEXT NOT NULL PRIMARY KEY, amount INTEGER NOT NULL, customer TEXT NOT NULL)"
        )
    settings = folder / "keep.toml"
    template = Template((HERE / "keep.toml").read_text("utf-8"))
    places = {"python": sys.executable, "here": HERE, "smtp_port": mail.port, "imap_port": mail.imap_port}
    settings.write_text(template.substitute(places), "utf-8")
    os.environ["MAILBOX_PASSWORD"] = PASSWORD
    return settings


async def happen(mail: MailServer, signups: str) -> None:
    """Two people order by mail, two sign up. One sign-up is delivered twice."""
    await run_sync(mail.receive, "ann@example.com", "Order A-1 over 120 EUR")
    await run_sync(mail.receive, "bob@example.com", "Order A-2 over 80 EUR")
    async with httpx2.AsyncClient(trust_env=False) as client:
        for name in ("Cleo", "Dora", "Dora"):
            await client.post(signups, json={"name": name, "email": f"{name.lower()}@example.com"})


def orders(folder: Path) -> Iterator[str]:
    """The rows of the database."""
    with closing(sqlite3.connect(folder / "orders.db")) as db:
        for number, amount, customer in db.execute("SELECT number, amount, customer FROM orders ORDER BY number"):
            yield f"{number}  {amount:>3}  {customer}"


def rows(folder: Path) -> Iterator[str]:
    """The rows of the sheet."""
    if (folder / "signups.csv").exists():
        with (folder / "signups.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                yield f"{row['name']}  {row['email']}"


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for the world outside, which tells nobody."""
    with anyio.fail_after(WITHIN_S):
        while not is_so():  # noqa: ASYNC110  # files and a mailbox
            await anyio.sleep(0.05)


async def work(folder: Path, mail: MailServer) -> None:
    """Run the workflows until everything has happened, and say what did."""
    connectors = load_configuration(prepare(folder, mail))
    async with keep_actors.open(folder / "keep.db", connectors=connectors) as keep, webhook(keep) as signups:
        for script in SCRIPTS:
            await keep.deploy((HERE / script).read_text("utf-8"), grants="declared")
        await happen(mail, signups)
        await until(lambda: len([*orders(folder)]) >= 2 and len([*rows(folder)]) >= 2 and bool(mail.to_team))
        await keep.wait_idle()
        calls = [done for script in SCRIPTS for done in await keep.outputs(Path(script).stem.replace("_", "-"))]
        entries = [entry.operation for done in calls for entry in (await keep.explain(done.run_id)).journal]
    show("mail → database   orders.db", orders(folder))
    show("webhook → sheet   signups.csv", rows(folder))
    show("MCP → mail        team@example.com", iter(mail.to_team))
    print(entries, calls)


def show(title: str, lines: Iterator[str]) -> None:
    """Print what is there now."""
    print(title, *lines, sep="\n    ")


def main() -> None:
    """Start the servers, and the work."""
    with mail_server() as mail:
        anyio.run(work, FOLDER, mail)


if __name__ == "__main__":
    main()
