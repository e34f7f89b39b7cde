"""The maintainer of a runtime that was given no other: a person, who deploys a repaired script when it is ready."""

from typing import ClassVar, NoReturn

from keep_actors.maintenance.task import RepairFailed, RepairTask


class PersonMaintainer:
    """Waits for a person's upload.

    It never proposes by itself, and says so by `is_automatic`, which the runtime reads before it asks a maintainer:
    False here, so `repair` is not called and no attempt is counted. Who calls it all the same is told so.
    """

    is_automatic: ClassVar[bool] = False

    async def repair(self, task: RepairTask) -> NoReturn:
        """Raises `RepairFailed`, always."""
        raise RepairFailed(f"{task.workflow_name!r} is repaired by a person: deploy a repaired script to go on.")
