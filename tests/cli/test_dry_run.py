"""`keep dry-run`, as a person runs it: a real process, a real file, a real jail, a shop that writes down parcels."""

import json
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest

import keep_actors
from keep_actors import Connector, Grant, mutation
from tests.cli.operating import KEEP

SHOP = '''
"""A shop that ships by writing lines into a file."""

from pathlib import Path

from keep_actors import Connector, mutation, read

HERE = Path(__file__).parent


class Shop(Connector):
    name = "shop"

    @read
    async def stock(self) -> int:
        with (HERE / "asked").open("a") as asked:
            asked.write("stock\\n")
        return 3

    @mutation
    async def ship(self, order: str, parcels: int = 1) -> str:
        with (HERE / "shipped").open("a") as shipped:
            shipped.write(f"{order}\\n")
        return order
'''

SCRIPT = """
export default Keep.workflow({
  name: "shipping",
  topics: { orders: {} },
  producers: {
    poll: {
      schedule: { interval: "1d" },
      async handler(ctx, state) {
        await ctx.publish("orders", { messageId: "o9", title: "Order 9" });
        return { polls: (state?.polls ?? 0) + 1 };
      },
    },
  },
  consumers: {
    ship: Keep.consumer({
      subscribe: ["orders"],
      async prepare(ctx) {
        const [order] = await ctx.peek("orders", { limit: 1 });
        if (!order) return { reservations: [] };
        const parcels = await ctx.shop.stock();
        return {
          reservations: [{ topic: "orders", ids: [order.messageId] }],
          data: { id: order.messageId, parcels },
          ui: { title: `Ship ${order.title}` },
        };
      },
      async mutate(ctx, prepared) {
        await ctx.shop.ship({ order: prepared.data.id, parcels: prepared.data.parcels });
      },
    }),
  },
  jobs: { sweep: { schedule: { interval: "1d" }, async handler() {} } },
});
"""


class Described(Connector):
    """The shop as it was when the script was deployed."""

    name = "shop"

    @keep_actors.read
    async def stock(self) -> int:
        return 0

    @mutation
    async def ship(self, order: str, parcels: int = 1) -> str:
        return f"{order} {parcels}"


class Shell:
    """A folder with a database in which two orders wait, and the command to run there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("shop.py", SHOP)
        self.write("shipping.js", SCRIPT)
        anyio.run(self._fill)

    async def _fill(self) -> None:
        async with keep_actors.open(self.folder / "keep.db", connectors=[Described()], sandbox="thread") as keep:
            await keep.deploy(SCRIPT, grants=["shop.stock", Grant("shop.ship", policy="ask")], start=False)
            for order in ("o1", "o2"):
                await keep.publish("shipping", "orders", message_id=order, title=f"Order {order[1:]}", payload={})

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, "utf-8")

    def dry_run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(KEEP), "dry-run", *arguments, "--db", "keep.db", "--connectors", "shop:Shop"]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)

    def json(self, *arguments: str) -> Any:
        done = self.dry_run(*arguments, "--json")
        assert not done.stderr
        return json.loads(done.stdout)

    @property
    def has_shipped(self) -> bool:
        return (self.folder / "shipped").exists()

    @property
    def asked(self) -> int:
        file = self.folder / "asked"
        return len(file.read_text("utf-8").split()) if file.exists() else 0


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_every_call_is_shown_and_none_is_made(shell: Shell) -> None:
    done = shell.dry_run("shipping.js")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "ship: Ship Order 1\n"
        "  takes   orders o1: Order 1\n"
        "  calls   shop.ship  [a person is asked first]\n"
        '            order    "o1"\n'
        "            parcels  3\n"
        "ship: Ship Order 2\n"
        "  takes   orders o2: Order 2\n"
        "  calls   shop.ship  [a person is asked first]\n"
        '            order    "o2"\n'
        "            parcels  3\n"
        "ship: 0 events left; nothing is left\n"
        "No call was made and nothing was written. `next` was not run.\n"
        "Jobs are not dry-run: sweep.\n"
    )
    assert not shell.has_shipped
    assert shell.asked == 2


def test_a_program_can_read_it(shell: Shell) -> None:
    said = shell.json("shipping.js", "--limit", "1")
    [run] = said["new"]["runs"]
    assert run["wants"] == {
        "call": "shop.ship",
        "params": {"order": "o1", "parcels": 3},
        "verdict": "asked",
        "why": "",
        "names": ["order", "parcels"],
    }
    assert run["events"] == [{"topic": "orders", "message_id": "o1", "title": "Order 1"}]
    assert said["new"]["ends"] == [{"handler": "ship", "rest": "limit", "pending": 1, "is_more": False}]
    assert (said["not_run"], said["differences"]) == (["sweep"], None)
    assert not shell.has_shipped


def test_a_new_script_is_compared_with_a_version(shell: Shell) -> None:
    shell.write("new.js", SCRIPT.replace("order: prepared.data.id", 'order: prepared.data.id.replace("2", "two")'))
    done = shell.dry_run("new.js", "--workflow", "shipping", "--against", "1.0")
    assert done.returncode == 0
    assert "= ship: orders o1\n" in done.stdout
    assert "~ ship: orders o2\n" in done.stdout
    assert '  - shop.ship  [a person is asked first]\n      order    "o2"\n      parcels  3\n' in done.stdout
    assert '  + shop.ship  [a person is asked first]\n      order    "otwo"\n      parcels  3\n' in done.stdout
    assert "1.0 and new: 1 same, 1 changed, 0 only old, 0 only new\n" in done.stdout
    kinds = [each["kind"] for each in shell.json("new.js", "--workflow", "shipping", "--against", "1.0")["differences"]]
    assert kinds == ["same", "changed"]
    assert not shell.has_shipped


def test_a_producer_is_shown_with_what_it_publishes_and_keeps(shell: Shell) -> None:
    done = shell.dry_run("shipping.js", "--producer", "poll")
    assert done.returncode == 0
    assert done.stdout == (
        "shipping new, producer poll:\n"
        "  publishes orders o9: Order 9 null  [new]\n"
        '  keeps   {"polls":1}\n'
        "No call was made and nothing was written.\n"
        "Jobs are not dry-run: sweep.\n"
    )


def test_without_reads_nothing_outside_is_asked(shell: Shell) -> None:
    done = shell.dry_run("shipping.js", "--no-reads")
    assert done.returncode == 1
    assert "shop.stock is not called in a dry run" in done.stdout
    assert "ship: 2 events left; it would stop here\n" in done.stdout
    assert (shell.has_shipped, shell.asked) == (False, 0)


def test_a_call_that_would_be_refused_is_an_exit_of_one(shell: Shell) -> None:
    shell.write("shop.py", SHOP.replace("    @mutation\n", '    @mutation(permission="shop.everything")\n'))
    done = shell.dry_run("shipping.js")
    assert done.returncode == 1
    assert "[refused: ship: `ctx.shop.ship` needs the permission 'shop.everything'" in done.stdout
    assert shell.dry_run("shipping.js", "--grant", "shop.everything").returncode == 0


def test_which_workflow_is_meant_is_said_unless_the_script_is_the_one_that_runs(shell: Shell) -> None:
    shell.write("new.js", SCRIPT.replace("order: prepared.data.id", 'order: "theirs"'))
    done = shell.dry_run("new.js")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error[name-taken]: the workflow 'shipping' (" in done.stderr
    assert "`--workflow`" in done.stderr
    assert shell.asked == 0
    assert shell.dry_run("new.js", "--workflow", "shipping").returncode == 0
    theirs = shell.dry_run("new.js", "--workflow", "shipping", "--author", "mallory")
    assert theirs.returncode == 1
    assert "has not been granted" in theirs.stdout


def test_a_script_that_could_not_be_deployed_is_shown_as_check_shows_it(shell: Shell) -> None:
    shell.write("broken.js", SCRIPT.replace("ctx.shop.ship(", "ctx.shop.shipp("))
    done = shell.dry_run("broken.js")
    assert (done.returncode, done.stdout) == (1, "")
    assert "broken.js:28:15: error[method-unknown]: `ctx.shop.shipp` does not exist here" in done.stderr
    assert "did you mean `shop.ship`?" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["shipping.js", "--against", "3.1"], 1, "has no version 3.1; there are: 1.0"),
        (["shipping.js", "--producer", "sweep"], 1, "is a job, and jobs are not dry-run"),
        (["shipping.js", "--grant", "x"], 2, "no method needs the permission 'x'"),
        (["shipping.js", "--limit", "0"], 2, "0 is not in the range"),
        (["gone.js"], 2, "does not exist"),
    ],
)
def test_what_cannot_be_done_is_said(shell: Shell, arguments: list[str], code: int, words: str) -> None:
    done = shell.dry_run(*arguments)
    assert done.returncode == code
    assert words in done.stderr


def test_a_connector_that_cannot_be_opened_is_named(shell: Shell) -> None:
    opening = '    async def open(self) -> None:\n        raise OSError("no route to the shop")\n\n    @read\n'
    shell.write("shop.py", SHOP.replace("    @read\n", opening))
    done = shell.dry_run("shipping.js")
    assert (done.returncode, done.stdout) == (1, "")
    assert "The connector 'shop' could not be opened: OSError: no route to the shop" in done.stderr
    assert "Traceback" not in done.stderr
    assert "could not be opened" not in shell.dry_run("shipping.js", "--no-reads").stderr


def test_a_file_that_is_no_database_of_ours_is_refused(shell: Shell) -> None:
    (shell.folder / "keep.db").unlink()
    shell.write("keep.db", "")
    done = shell.dry_run("shipping.js")
    assert done.returncode == 1
    assert "an empty database" in done.stderr
