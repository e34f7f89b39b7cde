"""A process that is killed by its own sink, between a delivery and the note that it was delivered.

`python -m tests.runtime.notices_child FILE LOG`: writes the id of what it was told to LOG, and is gone.
"""

import os
import signal
import sys
from pathlib import Path

import anyio

import keep_actors
from keep_actors import Grant
from keep_actors.notices import Notice
from tests.runtime.fakes import Fake
from tests.runtime.world import script


async def main(path: str, log: Path) -> None:
    async def pager(notice: Notice) -> None:
        with log.open("a") as lines:
            lines.write(f"{notice.id}\n")
        os.kill(os.getpid(), signal.SIGKILL)

    async with keep_actors.open(path, connectors=[Fake()], sandbox="thread", notices=pager) as keep:
        await keep.deploy(
            script(mutate="await c.fake.add({ text: prepared.data.id });"), grants=[Grant("fake.add", policy="ask")]
        )
        await keep.publish("flow", "in", message_id="one", title="One")
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], Path(sys.argv[2]))
