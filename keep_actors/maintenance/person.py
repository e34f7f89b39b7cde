"""The default maintainer: a person, who deploys a repaired script when it is ready."""

from typing import ClassVar, NoReturn

from keep_actors.maintenance.task import RepairFailed, RepairTask


class PersonMaintainer:
    """Waits until a person deploys a repaired script.

    `is_automatic` is False, so the runtime never calls `repair` and counts no attempts.
    """

    is_automatic: ClassVar[bool] = False

    async def repair(self, task: RepairTask) -> NoReturn:
        """Always raises `RepairFailed`."""
        raise RepairFailed(f"{task.workflow_name!r} is repaired by a person: deploy a repaired script to go on.")
