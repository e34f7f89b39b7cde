"""`keep run`, as a person runs it: a real process, a real file, a real jailed sandbox."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import keep_actors
from keep_storage import ExecutionModelManager, Store, reads
from tests.cli.operating import KEEP

SHOP = '''
"""A shop whose orders and parcels are lines in files. It ships when somebody opens the gate, if there is a gate."""

from pathlib import Path

import anyio.to_thread

from keep_actors import Connector, mutation, read

HERE = Path(__file__).parent


class Shop(Connector):
    name = "shop"

    @read
    async def orders(self) -> list[str]:
        return (HERE / "orders").read_text().split()

    @mutation
    async def ship(self, order: str) -> str:
        with (HERE / "shipped").open("a") as parcels:
            parcels.write(f"{order}\\n")
        if (HERE / "gate").exists():
            await anyio.to_thread.run_sync((HERE / "gate").read_text)
        return order
'''

SCRIPT = """
export default Keep.workflow({
  name: "shipping",
  topics: { orders: {} },
  producers: {
    poll: {
      schedule: { interval: "1s" },
      handler: async (ctx) => {
        for (const id of await ctx.shop.orders()) {
          await ctx.publish("orders", { messageId: id, title: `Order ${id}`, payload: { id } });
        }
      },
    },
  },
  consumers: {
    ship: Keep.consumer({
      subscribe: ["orders"],
      async prepare(ctx) {
        const [order] = await ctx.peek("orders", { limit: 1 });
        if (!order) return { reservations: [] };
        return { reservations: [{ topic: "orders", ids: [order.messageId] }], data: order.payload };
      },
      async mutate(ctx, prepared) {
        await ctx.shop.ship({ order: prepared.data.id });
      },
    }),
  },
});
"""


class Shell:
    """A folder with a script, a connector and three orders, and the command to run there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db = folder / "keep.db"
        self.write("shop.py", SHOP)
        self.write("shipping.js", SCRIPT)
        self.write("orders", "o1 o2 o3")

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text, "utf-8")
        return name

    @property
    def shipped(self) -> list[str]:
        return (self.folder / "shipped").read_text("utf-8").split()

    def keep(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([KEEP, *arguments], cwd=self.folder, capture_output=True, text=True, check=False)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.keep("run", *arguments, "--db", "keep.db", "--connectors", "shop:Shop", "--accept")

    @contextmanager
    def running(self, *arguments: str) -> Iterator["Running"]:
        """`keep run --json`, until it ends."""
        command = [str(KEEP), "run", *arguments, "--db", "keep.db", "--connectors", "shop:Shop", "--accept", "--json"]
        with subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                yield Running(process)
            finally:
                process.kill()

    def close_the_gate(self) -> None:
        """From now on a call that ships has started, and does not return."""
        os.mkfifo(self.folder / "gate")

    def open_the_gate(self) -> None:
        """Let the call that waits return, and later ones too."""
        gate = self.folder / "gate"
        with gate.open("w"):
            gate.unlink()

    def statuses(self) -> dict[str, str]:
        with Store.open(self.db) as store:
            workflow = reads.workflow_by_name(store.queries(), "shipping")
            assert workflow is not None
            events = reads.events(store.queries(), workflow.id, "orders")
        return {event.message_id: str(event.status) for event in events}


class Running:
    """A process that shows its journal."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def until(self, operation: str) -> dict[str, Any]:
        """Read its journal up to this operation."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            entry: dict[str, Any] = json.loads(line)
            if entry["operation"] == operation:
                return entry
        raise AssertionError(f"it ended without {operation}: {self.said()}")

    def said(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def rest(self) -> list[str]:
        """The operations up to its end."""
        assert self.process.stdout is not None
        return [json.loads(line)["operation"] for line in self.process.stdout]

    def hear(self, words: str) -> None:
        """Wait until it has said this."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if words in line:
                return
        raise AssertionError(f"it never said {words!r}")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


# What it does.


def test_a_script_is_deployed_and_run_and_the_journal_is_shown(shell: Shell) -> None:
    done = shell.run("shipping.js", "--once")
    assert done.returncode == 0, done.stderr
    assert shell.shipped == ["o1", "o2", "o3"]
    assert done.stdout.splitlines()[0].split()[1:3] == ["1", "create_workflow"]
    assert done.stdout.count("commit_consumer") == 3
    assert "mutation_status in_flight → applied" in done.stdout
    assert "None" not in done.stdout
    assert done.stderr.startswith("shipping.js: shipping 1.0 (wf_")


def test_as_json_every_line_is_an_entry_of_the_journal_and_none_is_missing(shell: Shell) -> None:
    entries = [json.loads(line) for line in shell.run("shipping.js", "--once", "--json").stdout.splitlines()]
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    assert entries[0]["changed"] == {"name": "shipping", "status": "draft"}
    assert entries[-1]["operation"] == "finish_session"


def test_what_is_in_the_file_goes_on_without_naming_the_script_again(shell: Shell) -> None:
    assert shell.run("shipping.js", "--once").returncode == 0
    shell.write("orders", "o1 o2 o3 o4")
    with shell.running() as keep:
        first = keep.until("create_mutation")
        keep.until("commit_consumer")
        keep.process.send_signal(signal.SIGTERM)
        assert keep.process.wait() == 0
    assert first["seq"] > 1
    assert shell.shipped == ["o1", "o2", "o3", "o4"]


def test_the_same_script_again_changes_nothing(shell: Shell) -> None:
    shell.run("shipping.js", "--once")
    done = shell.run("shipping.js", "--once")
    assert done.returncode == 0
    assert "shipping 1.0" in done.stderr
    assert "add_script_version" not in done.stdout


# When a person is needed.


def test_once_exits_with_4_when_a_script_failed_and_says_what_and_where(shell: Shell) -> None:
    shell.write("bad.js", SCRIPT.replace("for (const id", 'throw new Error("\\x1b[2Jno");\nfor (const id'))
    done = shell.run("bad.js", "--once")
    assert done.returncode == 4
    assert "shipping: failed:logic" in done.stderr
    assert "Error: \\x1b[2Jno (script 9:" in done.stderr
    assert "Deploy a repaired script" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr, "a script does not write to a person's terminal"
    assert "Traceback" not in done.stderr


def test_a_repaired_script_goes_on_where_the_broken_one_stopped(shell: Shell) -> None:
    broken = SCRIPT.replace("const [order] =", "const [order] = null;")
    shell.write("bad.js", broken.replace('await ctx.peek("orders", { limit: 1 });', ""))
    assert shell.run("bad.js", "--once").returncode == 4
    done = shell.run("shipping.js", "--workflow", "shipping", "--once")
    assert done.returncode == 0, done.stderr
    assert "shipping 1.1" in done.stderr
    assert shell.shipped == ["o1", "o2", "o3"]


def test_a_runtime_without_a_connector_says_at_the_start_which_workflow_needs_what(shell: Shell) -> None:
    assert shell.run("shipping.js", "--once").returncode == 0
    done = shell.keep("run", "--db", "keep.db", "--once")
    [said] = [line for line in done.stderr.splitlines() if "which no connector here has" in line]
    assert said.startswith("shipping: its script names `ctx.shop.orders`, `ctx.shop.ship`")
    assert "--connectors MODULE:NAME" in said
    assert done.stderr.index(said) < done.stderr.index("Running shipping")
    assert "which no connector here has" not in shell.run("--once").stderr


def test_an_archived_workflow_needs_no_connector(shell: Shell) -> None:
    assert shell.run("shipping.js", "--once").returncode == 0
    with Store.open(shell.db) as store:
        workflow = reads.workflow_by_name(store.queries(), "shipping")
        assert workflow is not None
        ExecutionModelManager(store).archive_workflow(workflow.id)
    assert "which no connector here has" not in shell.keep("run", "--db", "keep.db", "--once").stderr


def test_a_script_that_is_refused_exits_with_1_and_names_every_problem_and_its_place(shell: Shell) -> None:
    shell.write(
        "wrong.js", SCRIPT.replace('"1s"', '"soon"').replace("const [order]", "ctx.publish; eval(1); const [o]")
    )
    done = shell.run("wrong.js", "--once")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "wrong.js: the script has 2 problems and was not deployed:" in done.stderr
    assert "the schedule of producers.poll is not valid [schedule-invalid]" in done.stderr
    assert "19:22: `eval` does not exist here [dynamic-code]" in done.stderr
    assert "Traceback" not in done.stderr
    assert shell.run().returncode == 2, "nothing was deployed"


def test_a_second_runtime_on_the_same_file_is_refused_and_told_who_has_it(shell: Shell) -> None:
    with shell.running("shipping.js") as keep:
        keep.until("commit_consumer")
        second = shell.run("--once")
        assert second.returncode == 1
        assert f"keep.db is open in another runtime (process {keep.process.pid})" in second.stderr
        assert "Traceback" not in second.stderr
        keep.process.send_signal(signal.SIGTERM)
        assert keep.process.wait() == 0


CAN_RUN = ("shipping.js", "--db", "keep.db", "--connectors", "shop:Shop")
WRONG_USES = {
    "no database": (["shipping.js"], "Missing option '--db'"),
    "no such script": (["none.js", "--db", "keep.db"], "File 'none.js' does not exist"),
    "no text": (["noise.js", "--db", "keep.db"], "noise.js is not a script: it is not UTF-8 text"),
    "no such file": (["--db", "none.db"], "Name a script to deploy: keep run FILE.js --db none.db"),
    "no spec": (["shipping.js", "--db", "keep.db", "--connectors", "shop"], "is not of the form module:name"),
    "no such module": (["shipping.js", "--db", "keep.db", "--connectors", "shoop:Shop"], "there is no module 'shoop'"),
    "no such name": (["shipping.js", "--db", "keep.db", "--connectors", "shop:Shoop"], "connectors in it: Shop"),
    "two of one name": (
        ["shipping.js", "--db", "keep.db", "--connectors", "shop:Shop", "--connectors", "shop:Shop"],
        "has the name 'shop' of another connector",
    ),
    "no such permission": ([*CAN_RUN, "--grant", "shop.shop"], "no method needs the permission 'shop.shop'"),
    "all permissions, and one": ([*CAN_RUN, "--accept", "--ask", "shop.ship"], "--accept grants everything"),
    "an author without a face": ([*CAN_RUN, "--author", "\u200b"], "the author '\\u200b'"),
}


@pytest.mark.parametrize("what", WRONG_USES)
def test_a_wrong_use_exits_with_2_and_says_what_to_do(shell: Shell, what: str) -> None:
    (shell.folder / "noise.js").write_bytes(b"\xff\xfe\x00")
    arguments, words = WRONG_USES[what]
    done = shell.keep("run", *arguments, "--once")
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (shell.folder / "none.db").exists()


def test_a_permission_can_be_granted_so_that_a_person_approves_each_call(shell: Shell) -> None:
    shell.folder.joinpath("orders").write_text("o1")
    done = shell.keep("run", *CAN_RUN, "--grant", "shop.orders", "--ask", "shop.ship", "--once")
    assert done.returncode == 4, done.stderr
    assert not shell.folder.joinpath("shipped").exists()
    assert "shop.ship" in shell.keep("attention", "--db", "keep.db").stdout


def test_a_folder_that_is_not_there_exits_with_1_and_says_so(shell: Shell) -> None:
    done = shell.keep("run", "shipping.js", "--db", "nowhere/keep.db", "--once")
    assert done.returncode == 1
    assert "folder must exist and be writable" in done.stderr


# How it ends.


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order_and_the_run_under_way_commits(shell: Shell, sig: signal.Signals) -> None:
    shell.close_the_gate()
    with shell.running("shipping.js") as keep:
        keep.until("create_mutation")
        keep.process.send_signal(sig)
        keep.hear("Ending")
        shell.open_the_gate()
        assert keep.rest().count("commit_consumer") == 1, "the run under way is shown to its end, and no other begins"
        assert keep.process.wait() == 0
    assert shell.statuses() == {"o1": "consumed", "o2": "pending", "o3": "pending"}
    assert shell.run("--once").returncode == 0
    assert shell.shipped == ["o1", "o2", "o3"]


def test_a_second_signal_ends_it_at_once_and_the_next_start_tells_what_is_not_known(shell: Shell) -> None:
    shell.close_the_gate()
    with shell.running("shipping.js") as keep:
        keep.until("create_mutation")
        keep.process.send_signal(signal.SIGINT)
        keep.hear("Ending")
        keep.process.send_signal(signal.SIGINT)
        assert keep.process.wait() == -signal.SIGINT
    done = shell.run("--once")
    assert done.returncode == 4
    assert "status active → paused:reconciliation" in done.stdout, "what recovery did is shown"
    assert "shipping: Mutation outcome uncertain" in done.stderr
    assert shell.shipped == ["o1"]
    assert shell.statuses() == {"o1": "reserved", "o2": "pending", "o3": "pending"}


def test_when_nobody_reads_its_journal_any_more_it_ends_in_order(shell: Shell) -> None:
    with shell.running("shipping.js") as keep:
        keep.until("create_workflow")
        assert keep.process.stdout is not None
        keep.process.stdout.close()
        assert keep.process.wait() == 1
        assert "Traceback" not in keep.said()
    assert shell.run("--once").returncode == 0


# How it starts.


def test_it_can_be_run_as_a_module_of_python() -> None:
    command = [sys.executable, "-m", "keep_actors", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"keep, version {keep_actors.__version__}\n")


def test_the_command_starts_without_a_runtime_and_without_a_database() -> None:
    look = "import sys, keep_actors.cli.main; print({'anyio', 'apsw', 'msgspec', 'asyncio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_help_lists_every_command() -> None:
    done = subprocess.run([KEEP, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    listed = dict(re.findall(r"^  ([a-z-]+) +(.*)$", done.stdout.partition("Commands:")[2], re.MULTILINE))
    assert listed["doctor"].startswith("Check a database FILE")
    assert listed["run"] == "Deploy scripts into a database and run what is in it."
    assert {"check", "dry-run", "prompt", "types"} <= set(listed)


def test_every_public_name_is_there_when_it_is_asked_for() -> None:
    assert {name for name in keep_actors.__all__ if not hasattr(keep_actors, name)} == set()
    assert set(keep_actors.__all__) <= set(dir(keep_actors))
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        keep_actors.opne  # type: ignore[attr-defined]  # noqa: B018
