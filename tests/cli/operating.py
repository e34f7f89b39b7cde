"""A folder with a shop to operate: a script with hostile titles, a connector that loses answers, and the command."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keep_actors.control.place import place_of

KEEP = Path(sys.executable).with_name("keep")

HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202eevil\x9b31m"


@contextmanager
def impostor(db: Path) -> Iterator[socket.socket]:
    """A socket that listens where the runtime of a database would."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place_of(db)))
        listener.listen()
        yield listener
    place_of(db).unlink()


SHOP = '''
"""A shop. The answer to an order that is called lost is lost; one that hangs waits for the gate."""

from pathlib import Path

import anyio.to_thread

from keep_actors import Connector, MutationCall, mutation

HERE = Path(__file__).parent


class Shop(Connector):
    name = "shop"

    @mutation(
        identity=["order"],
        check_hint="Look into the parcels.\\x1b[31m",
        check_url=lambda call: f"https://shop.example/{call.params['order']}",
    )
    async def ship(self, order: str) -> str:
        with (HERE / "shipped").open("a") as parcels:
            parcels.write(f"{order}\\n")
        if order.startswith("lost"):
            raise ConnectionError("the line went dead\\x1b[31m")
        if order.startswith("hangs"):
            await anyio.to_thread.run_sync((HERE / "gate").read_text)
        return order
'''

SCRIPT = """
export default Keep.workflow({
  name: "NAME",
  topics: { orders: {} },
  consumers: {
    ship: Keep.consumer({
      subscribe: ["orders"],
      async prepare(ctx) {
        const [order] = await ctx.peek("orders", { limit: 1 });
        if (!order) return { reservations: [] };
        return {
          reservations: [{ topic: "orders", ids: [order.messageId] }],
          data: order.payload,
          ui: { title: `Ship ${order.payload}${HOSTILE}` },
        };
      },
      async mutate(ctx, prepared) {
        await ctx.shop.ship({ order: prepared.data });
      },
    }),
  },
});
"""


def script(name: str) -> str:
    return SCRIPT.replace("NAME", name).replace("${HOSTILE}", HOSTILE.encode("unicode_escape").decode())


class Shell:
    """The folder, and the command as a person types it there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db = folder / "keep.db"
        (folder / "shop.py").write_text(SHOP, "utf-8")

    def write(self, name: str) -> str:
        """A script of this name, as a file."""
        file = f"{name}.js"
        (self.folder / file).write_text(script(name), "utf-8")
        return file

    def keep(self, *words: str, code: int = 0, **environment: str) -> str:
        """What it writes to its standard output. Fails if it ends with another code."""
        done = self.call(*words, **environment)
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stdout

    def refused(self, *words: str, code: int) -> str:
        """What it says when it ends with this code."""
        done = self.call(*words)
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stderr

    def objects(self, *words: str, code: int = 0) -> list[Any]:
        return [json.loads(line) for line in self.keep(*words, "--json", code=code).splitlines()]

    def call(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"KEEP_DB": "keep.db", "LOGNAME": "olga"} | environment
        return subprocess.run(
            [KEEP, *words], cwd=self.folder, env=env, capture_output=True, text=True, check=False, timeout=60
        )

    def start(self, *words: str) -> "subprocess.Popen[str]":
        env = os.environ | {"KEEP_DB": "keep.db", "LOGNAME": "olga"}
        return subprocess.Popen(
            [KEEP, *words], cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    @contextmanager
    def running(self, *scripts: str, more: tuple[str, ...] = ()) -> Iterator["subprocess.Popen[str]"]:
        """A runtime, from when it runs to its end."""
        process = self.start("run", *scripts, "--connectors", "shop:Shop", "--accept", "--json", *more)
        with process:
            try:
                assert process.stderr is not None
                for line in process.stderr:
                    if line.startswith("Running"):
                        break
                else:
                    raise AssertionError("it did not start")
                yield process
            finally:
                process.kill()

    def until(self, process: "subprocess.Popen[str]", operation: str, word: str = "") -> dict[str, Any]:
        """Read the journal that a runtime shows, up to this operation."""
        assert process.stdout is not None
        for line in process.stdout:
            entry: dict[str, Any] = json.loads(line)
            if entry["operation"] == operation and word in line:
                return entry
        raise AssertionError(f"it ended without {operation}")

    def end(self, process: "subprocess.Popen[str]") -> None:
        process.send_signal(signal.SIGTERM)
        process.communicate()
        assert process.returncode == 0

    @property
    def shipped(self) -> list[str]:
        return (self.folder / "shipped").read_text("utf-8").split()
