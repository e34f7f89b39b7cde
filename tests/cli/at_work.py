"""A command beside a runtime that runs in this process, or none; and a person at a terminal."""

import json
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
from click.testing import CliRunner, Result

import keep_actors
from keep_actors import Connector, Keep, mutation
from keep_actors.cli.exit_codes import Exit
from keep_actors.cli.main import main
from keep_actors.connectors import Transient
from tests.cli.operating import KEEP, script


class Shop(Connector):
    """A shop that keeps what it has shipped."""

    name = "shop"

    def __init__(self) -> None:
        self.shipped: list[str] = []

    @mutation(identity=["order"])
    async def ship(self, order: str) -> str:
        if order.startswith("lost"):
            raise ConnectionError("the line went dead")
        if order.startswith("busy"):
            raise Transient("come back later")
        self.shipped.append(order)
        return order

    @mutation(identity=["order"], permission="shop.money")
    async def refund(self, order: str) -> str:
        self.shipped.append(f"refund of {order}")
        return order


def refunds(name: str) -> str:
    return script(name).replace("ctx.shop.ship", "ctx.shop.refund")


class Desk:
    """The command about a file, in this process."""

    def __init__(self, db: Path) -> None:
        self.db = db

    def run(self, *words: str, code: Exit = Exit.OK) -> Result:
        done = CliRunner().invoke(main, [*words, "--db", str(self.db)], catch_exceptions=False)
        assert done.exit_code == code, (done.stdout, done.stderr)
        assert "\x1b" not in done.stdout + done.stderr
        return done

    def objects(self, *words: str, code: Exit = Exit.OK) -> list[Any]:
        return [json.loads(line) for line in self.run(*words, "--json", code=code).stdout.splitlines()]

    def states(self, workflow: str) -> dict[str, str]:
        return {each["message_id"]: each["status"] for each in self.objects("inputs", workflow)}

    def asked(self, workflow: str) -> list[str]:
        """The approvals that are open, oldest first."""
        found = CliRunner().invoke(main, ["attention", "--workflow", workflow, "--json", "--db", str(self.db)])
        return [each["about"] for each in map(json.loads, found.stdout.splitlines()) if each["kind"] == "approval"]

    def type(self, answer: str, *words: str) -> "subprocess.CompletedProcess[str]":
        """A person at a terminal who types the command, and then this answer to its question."""
        keyboard, terminal = os.openpty()
        os.write(keyboard, f"{answer}\n".encode())
        env = os.environ | {"KEEP_DB": str(self.db), "LOGNAME": "olga"}
        done = subprocess.run(
            [KEEP, *words], env=env, stdin=terminal, capture_output=True, text=True, check=False, timeout=60
        )
        os.close(keyboard)
        os.close(terminal)
        return done


def copied(db: Path, folder: Path) -> Desk:
    """The command beside a copy of a file that no runtime has."""
    for file in db.parent.glob(f"{db.name}*"):
        shutil.copy(file, folder)
    return Desk(folder / db.name)


class Office(Desk):
    """The same beside a runtime; called in a thread."""

    def __init__(self, db: Path, keep: Keep, shop: Shop) -> None:
        super().__init__(db)
        self.keep = keep
        self.shop = shop

    def settle(self) -> None:
        anyio.from_thread.run(self.keep.wait_idle)


async def order(keep: Keep, workflow: str, *orders: str) -> None:
    for each in orders:
        await keep.publish(workflow, "orders", message_id=each, title=each, payload=each)


def at_work(db: Path, fill: Callable[[Keep], Awaitable[None]], act: Callable[[Office], None], **options: Any) -> Shop:
    """Fill a file, and act beside the runtime that has it."""
    shop = Shop()

    async def work() -> None:
        async with keep_actors.open(db, connectors=[shop], sandbox="thread", control=True, **options) as keep:
            await fill(keep)
            await keep.wait_idle()
            await anyio.to_thread.run_sync(act, Office(db, keep, shop))
            await keep.wait_idle()

    anyio.run(work)
    return shop
