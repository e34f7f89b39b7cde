"""How far one event travels: the files of ours, and the changes of file, from `publish` to the committed `next`.

A change of file is a call, or the resumption of a coroutine, in another file than the one before on that thread. The
ceilings are what is reached today, with a little room for the order in which threads answer. Waits and threads of our
own count here, those of AnyIO did not: a shorter way in time may be a longer one in files.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import anyio

import keep_actors
from keep_actors import Connector, Keep, mutation

ROOT: Final = Path(__file__).parents[2]
ROOMS: Final = tuple(str(ROOT / room) for room in ("keep_actors", "storage", "sandbox"))
FILES_MAX: Final = 79
CHANGES_MAX: Final = 1060

SCRIPT: Final = """
export default Keep.workflow({
  name: "travels",
  topics: { mail: {} },
  consumers: {
    file: Keep.consumer({
      subscribe: ["mail"],
      prepare: async (ctx) => {
        const found = await ctx.peek("mail");
        return { reservations: [{ topic: "mail", ids: found.map((each) => each.messageId) }], data: found.length };
      },
      mutate: async (ctx) => { await ctx.shelf.put({ text: "x" }); },
      next: async () => ({ done: 1 }),
    }),
  },
});
"""


class Shelf(Connector):
    """Answers at once."""

    name = "shelf"

    @mutation
    async def put(self, text: str) -> str:
        return text


class Tracer:
    """Counts while `is_on`; switches itself off when the transaction with the commit is done."""

    def __init__(self) -> None:
        self.is_on = False
        self.files: set[str] = set()
        self.changes = 0
        self._last: dict[int, str] = {}
        self._commits = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if not self.is_on or not file.startswith(ROOMS):
            return
        if event == "call":
            thread = threading.get_ident()
            self.files.add(file)
            self.changes += self._last.get(thread) != file
            self._last[thread] = file
            self._commits = self._commits or name == "commit_consumer"
        elif event == "return" and self._commits and name == "commit" and file.endswith("store.py"):
            self.is_on = False


@contextmanager
def traced(tracer: Tracer) -> Iterator[None]:
    before = sys.getprofile()
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        yield
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


async def settled(keep: Keep, message_id: str) -> None:
    await keep.publish("travels", "mail", message_id=message_id, title=message_id)
    await keep.wait_idle()


def test_the_way_of_an_event_grows_no_longer(tmp_path: Path, record_property: Any) -> None:
    tracer = Tracer()

    async def live() -> None:
        async with keep_actors.open(tmp_path / "keep.db", connectors=[Shelf()], grants="all", sandbox="thread") as keep:
            await keep.deploy(SCRIPT)
            await settled(keep, "first")
            tracer.is_on = True
            await settled(keep, "second")

    with traced(tracer):
        anyio.run(live)
    assert not tracer.is_on, "the event was committed"
    record_property("files", len(tracer.files))
    record_property("changes", tracer.changes)
    assert len(tracer.files) <= FILES_MAX, sorted(tracer.files)
    assert tracer.changes <= CHANGES_MAX
    assert tracer.changes > 300, "the tracer sees the way"
