"""Command lines that a person can type next: each means what it says, whatever a script has called its things."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from keep_actors.api.item_views import REPROCESSABLE, SKIPPABLE
from keep_actors.api.verdicts import VERDICTS, PersonVerdict
from keep_actors.text.visible import is_plain
from keep_storage.model import ItemState

TYPED_VERDICTS: Final[Mapping[PersonVerdict, str]] = {each: each.replace("_", "-") for each in VERDICTS}

_SIMPLE: Final = re.compile(r"\w[\w .-]*")


def line(db: Path, command: str, *words: str) -> str:
    """A command about a database, as in `line(db, "repair show", "digest")`: only what is in a group takes options."""
    return shlex.join(["keep", *command.split(), "--db", str(db), *words])


def workflow_word(name: str, workflow_id: str) -> str:
    """A workflow in a command line: its name, unless a shell or an eye could take that for something else."""
    return name if _SIMPLE.fullmatch(name) and is_plain(name) else workflow_id


def answers_to_call(db: Path, approval_id: str) -> list[str]:
    """Answers to a call that waits for approval; the first says yes."""
    refuse = line(db, "reject", approval_id)
    return [line(db, "approve", approval_id), f"{refuse} --why TEXT", f"{refuse} --retry --why TEXT"]


def answers_to_item(db: Path, workflow: str, item_id: str, state: ItemState) -> list[str]:
    """Changes of an item in this state. One whose id cannot be typed is named by its state."""
    is_typeable = is_plain(item_id) and not item_id.startswith("-")
    named = (workflow, item_id) if is_typeable else (workflow, "--state", str(state))
    changes = (("skip-item", SKIPPABLE), ("reprocess-item", REPROCESSABLE))
    return [f"{line(db, command, *named)} --why TEXT" for command, states in changes if state in states]
