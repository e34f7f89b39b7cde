"""Changes of maintenance tasks, and recovery after a crash."""

from keep_storage.ids import Millis
from keep_storage.model import Json, MaintenanceTask, Run, Session, Workflow
from keep_storage.operations.operation import Operation


class CreateMaintenanceTask(Operation[MaintenanceTask], frozen=True):
    """The durable order to repair the script, for the run whose logic error set the flag."""

    workflow_id: str
    evidence: Json = "{}"


class NoteRepairAttempt(Operation[MaintenanceTask], frozen=True):
    """An attempt at repairing failed, or its proposal was refused: counted, and a held proposal is dropped."""

    workflow_id: str
    problem: str
    next_attempt_at: Millis | None = None
    by: str = ""


class HoldProposal(Operation[MaintenanceTask], frozen=True):
    """A proposed script waits for a person. Nothing else is tried meanwhile."""

    workflow_id: str
    version_id: str
    problem: str = ""


class ExitMaintenanceMode(Operation[Workflow], frozen=True):
    """The script is repaired. A pending retry stays pending.

    If a person saw to it, every handler may be repaired afresh; if not, it was one more repair of the handler.
    """

    workflow_id: str
    by: str = ""
    by_person: bool = True


class RecoverCrashedRuns(Operation[tuple[Run, ...]], frozen=True):
    """Settle what a dead process left active: in one workflow, or everywhere."""

    workflow_id: str | None = None


class RecoverUnfinishedSessions(Operation[tuple[Session, ...]], frozen=True):
    """Finish open sessions whose runs have all committed."""

    workflow_id: str | None = None


class RecoverMaintenanceMode(Operation[tuple[MaintenanceTask, ...]], frozen=True):
    """Create the tasks that a crash swallowed."""

    workflow_id: str | None = None
