"""Who repairs a script after an error of its own: the task, the proposal, what speaks against one, two maintainers.

A maintainer proposes and nothing more. Whether a proposal runs is decided by `problems_of`, by its impact, and by a
person where that is not `safe`.
"""

from keep_actors.maintenance.chat import ChatMaintainer
from keep_actors.maintenance.person import PersonMaintainer
from keep_actors.maintenance.task import Impact, Maintainer, MethodInfo, Proposal, RepairFailed, RepairTask
from keep_actors.maintenance.validation import problems_of

__all__ = [
    "ChatMaintainer",
    "Impact",
    "Maintainer",
    "MethodInfo",
    "PersonMaintainer",
    "Proposal",
    "RepairFailed",
    "RepairTask",
    "problems_of",
]
