"""The servers, the runtime between them, and what comes in from outside."""

import logging
import os
import shutil
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from string import Template

import anyio
import httpx2
from anyio.to_thread import run_sync

import keep_actors
from examples.at_work.report import CALLS, account, calls
from examples.at_work.servers import PASSWORD, MailServer, mail_server, webhook
from keep_actors.services import load_configuration
from keep_storage import StorageOwned

HERE = Path(__file__).parent
SCRIPTS = ["orders_from_mail.js", "signups_to_sheet.js", "tickets_to_mail.js"]
MARK = ".at-work"
"""The file that tells a folder of this example from others. It says `done` when everything has happened."""
WITHIN_S = 240
"""For all of it; it takes about ten seconds."""


def run(arguments: list[str]) -> None:
    """Run in the folder that is named, and say what happened. Exits with 1 if it did not."""
    folder = Path(arguments[0] if arguments else "at-work")
    goes_on = prepare(folder)
    # What programs log is for those who look for it; the story is told by its report.
    logging.basicConfig(filename=folder / "log.txt", level=logging.INFO)
    more = ", which go on where they were killed" if goes_on else ""
    print(f"Three workflows on local servers, in the folder {folder}{more}: about ten seconds.", flush=True)
    try:
        with mail_server(folder / "mails") as mail:
            anyio.run(work, folder, mail)
    except TimeoutError:
        sys.exit(f"Not everything has happened within {WITHIN_S} s; {folder / 'log.txt'} may say why. Run it again.")
    except StorageOwned as error:
        sys.exit(f"{error} This example is running there: wait for it, or name another folder.")


def prepare(folder: Path) -> bool:
    """Make the folder, or keep it as it is if an earlier run did not end. Returns True for that."""
    mark = folder / MARK
    if folder.exists() and any(folder.iterdir()) and not mark.is_file():
        sys.exit(f"{folder} is no folder of this example; name another: python -m examples.at_work FOLDER")
    if mark.is_file() and not mark.read_text("utf-8"):
        return True
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    mark.touch()
    return False


def make_settings(folder: Path, mail: MailServer) -> Path:
    """Write the settings, which name the ports, and make the table."""
    with closing(sqlite3.connect(folder / "orders.db")) as db:
        columns = "number TEXT NOT NULL PRIMARY KEY, amount INTEGER NOT NULL, customer TEXT NOT NULL"
        db.execute(f"CREATE TABLE IF NOT EXISTS orders ({columns})")
    template = Template((HERE / "keep.toml").read_text("utf-8"))
    places = {"python": sys.executable, "here": HERE, "smtp_port": mail.port, "imap_port": mail.imap_port}
    settings = folder / "keep.toml"
    settings.write_text(template.substitute(places), "utf-8")
    os.environ["MAILBOX_PASSWORD"] = PASSWORD
    return settings


async def work(folder: Path, mail: MailServer) -> None:
    """Run the workflows until everything has happened, and say what did."""
    connectors = load_configuration(make_settings(folder, mail))
    with anyio.fail_after(WITHIN_S):
        async with keep_actors.open(folder / "keep.db", connectors=connectors) as keep:
            async with webhook(keep) as signups:
                for script in SCRIPTS:
                    await keep.deploy((HERE / script).read_text("utf-8"), grants="declared")
                await come_in(mail, signups)
                await until(lambda: all_applied(keep))
            lines, is_once = await account(keep, folder, mail)
    print(*lines, sep="\n")
    if not is_once:
        sys.exit(1)
    (folder / MARK).write_text("done", "utf-8")


async def come_in(mail: MailServer, signups: str) -> None:
    """Two people order by mail, two sign up. One sign-up is delivered twice."""
    await run_sync(mail.receive, "ann@example.com", "Order A-1 over 120 EUR")
    await run_sync(mail.receive, "bob@example.com", "Order A-2 over 80 EUR")
    async with httpx2.AsyncClient(trust_env=False, timeout=WITHIN_S) as client:
        for name in ("Cleo", "Dora", "Dora"):
            answer = await client.post(signups, json={"name": name, "email": f"{name.lower()}@example.com"})
            answer.raise_for_status()


async def all_applied(keep: keep_actors.Keep) -> bool:
    """Return True if every call has been made, and its outcome is known."""
    return sorted(each.call for each in await calls(keep) if each.status == "applied") == CALLS


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that tells nobody."""
    while not await is_so():  # noqa: ASYNC110  # the ledger is asked again and again
        await anyio.sleep(0.1)
