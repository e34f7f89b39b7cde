"""A process to be killed: many callers at one storage actor, each saying what was answered as soon as it is.

python -m tests.crash.busy_child FILE BACKEND
"""

import os
import sys
from itertools import count
from pathlib import Path

import anyio

from keep_actors.host.storage_actor import StorageActor, StorageRef
from keep_storage import Store
from keep_storage.operations import PublishEvents
from tests.storage.world import WORKFLOW, World

CALLERS = 32


async def publish_for_ever(storage: StorageRef, world: World, caller: int) -> None:
    for number in count():
        message_id = f"{caller}-{number}"
        await storage.apply(PublishEvents(WORKFLOW, (world.mail(message_id),)))
        os.write(sys.stdout.fileno(), f"{message_id}\n".encode())


async def main(path: Path) -> None:
    with Store.open(path) as store:
        world = World(store)
        actor = StorageActor(store)
        async with anyio.create_task_group() as group:
            group.start_soon(actor.run)
            for caller in range(CALLERS):
                group.start_soon(publish_for_ever, actor.ref, world, caller)


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), backend=sys.argv[2])
