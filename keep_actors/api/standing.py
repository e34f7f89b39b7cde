"""The standing of a run now. Its stored status is history: the matter may have been settled since. Reads only."""

from typing import Final

import msgspec

from keep_storage import reads
from keep_storage.model import Mutation, Run, RunStatus, Workflow
from keep_storage.transaction import Queries
from keep_storage.transitions import SETTLED

RESOLVED: Final = "resolved"
INTERRUPTED: Final = "interrupted"

_PEOPLE_ANSWER: Final = frozenset({RunStatus.PAUSED_APPROVAL, RunStatus.PAUSED_RECONCILIATION})
"""Ways to stop over a matter that can be settled later, while the status stays."""


class RunView(Run, frozen=True):
    """A run, and how it stands now."""

    standing: str
    """Its `status`, unless that is history: `resolved` if the reason for its pause is settled, so that another run
    continues or has; `interrupted` if it was active when its process died."""
    settled: str
    """The settlement in words; empty if it is not `resolved`. Then `error_message` is empty: its doubt is none any
    more, and the journal has its words."""


def view(q: Queries, run: Run, workflow: Workflow, *, is_owned: bool = True) -> RunView:
    """`is_owned` is false where no runtime has the file: nothing is active there."""
    stored = msgspec.structs.asdict(run)
    if run.status is RunStatus.ACTIVE and not is_owned:
        return RunView(**stored, standing=INTERRUPTED, settled="")
    if run.status not in _PEOPLE_ANSWER or workflow.error_run_id == run.id:
        return RunView(**stored, standing=str(run.status), settled="")
    calls = reads.mutations_of_run(q, run.id)
    if any(each.status not in SETTLED for each in calls):
        return RunView(**stored, standing=str(run.status), settled="")
    words = "; ".join(map(_settled, calls)) or "its cause was fixed"
    return RunView(**{**stored, "error_message": "", "error_place": ""}, standing=RESOLVED, settled=words)


def _settled(mutation: Mutation) -> str:
    who = f" by {mutation.resolved_who}" if mutation.resolved_who else ""
    why = f": {mutation.resolved_why}" if mutation.resolved_why else ""
    return f"{mutation.connector}.{mutation.method} is {mutation.status} ({mutation.resolved_by}{who}{why})"
