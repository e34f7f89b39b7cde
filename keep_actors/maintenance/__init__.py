"""Repair of scripts that failed with an error of their own: tasks, proposals, their validation, two maintainers.

A maintainer only proposes. A proposal runs if `problems_of` finds no problems and its impact is `safe`, or a person
approves it.
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
