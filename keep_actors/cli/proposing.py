"""From a checked script to the command that proposes it: for which workflow, and made from which version."""

from keep_actors.api.commands import Propose
from keep_actors.authoring.admission import version_number
from keep_actors.cli.exit_codes import Exit, Stopped
from keep_actors.cli.reader import FileReader
from keep_sandbox.names import unfit_name
from keep_storage import reads
from keep_storage.errors import Rejected
from keep_storage.ids import Ids, wall_clock
from keep_storage.limits import PROPOSAL_NAME_CHARS_MAX
from keep_storage.model import ScriptVersion, Workflow


def proposal_of(
    look: FileReader, name: str, source: str, *, workflow: str, made_from: str | None, by: str, note: str
) -> Propose:
    """The command that proposes a script of this name. Without `workflow` it is for a new one; without `made_from` it
    was made from the version that runs. Raises `Stopped`."""
    if not name:
        raise Stopped(Exit.WRONG, "The script has no name: give its workflow one.")
    found = _meant(look, name, workflow)
    base = _base(look, found, made_from) if found is not None else None
    return Propose(
        proposal_id=Ids(wall_clock).new("prp"),
        name=name,
        source=source,
        workflow_id=found.id if found is not None else None,
        base_version_id=base.id if base is not None else None,
        by=by,
        note=note,
    )


def problem_with(by: str) -> str:
    """The reason why this cannot be the name of whoever proposes; empty if it can."""
    if not by:
        return "is empty"
    if len(by) > PROPOSAL_NAME_CHARS_MAX:
        return f"has more than {PROPOSAL_NAME_CHARS_MAX} characters"
    return unfit_name(by)


def _meant(look: FileReader, name: str, workflow: str) -> Workflow | None:
    if not workflow:
        known = reads.workflow_by_name(look.q, name)
        if known is not None:
            words = f"There is already a workflow of this name ({known.id}). To propose another script for it, name it."
            raise Stopped(Exit.WRONG, words)
        return None
    found = look.living(workflow)
    if found.name != name:
        raise Stopped(Exit.WRONG, f"The script has another name than workflow {found.id}: give it that name.")
    return found


def _base(look: FileReader, workflow: Workflow, made_from: str | None) -> ScriptVersion | None:
    """The version that it was made from. One that does not run any more is refused by the storage, in the commit."""
    if made_from is None:
        return reads.version(look.q, workflow.active_version_id) if workflow.active_version_id else None
    try:
        found = reads.version_by_number(look.q, workflow.id, *version_number(made_from))
    except Rejected as rejected:
        raise Stopped(Exit.WRONG, rejected.message) from None
    if found is None:
        raise Stopped(Exit.WRONG, f"Workflow {workflow.id} has no version {made_from}.")
    return found
