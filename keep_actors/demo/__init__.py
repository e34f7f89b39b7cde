"""`keep demo`: three workflows, services that misbehave on purpose, and a SIGKILL in the middle of a payment."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keep_actors.connectors import Connector


def connectors() -> "list[Connector]":
    """Return the demo's services for `keep run`, in the folder named by `KEEP_DEMO`, or in `keep-demo`."""
    from keep_actors.demo.services import connectors_in

    return connectors_in(Path(os.environ.get("KEEP_DEMO", "keep-demo")))
