"""`keep demo`: three workflows, services that misbehave on purpose, a SIGKILL in the middle of a payment.

`connectors` is for `keep run --connectors keep_actors.demo:connectors`: with it the workflows of a demo go on.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keep_actors.connectors import Connector


def connectors() -> "list[Connector]":
    """The demo's mailbox, sheets, bank and courier, in the folder that `KEEP_DEMO` names, or in `keep-demo`."""
    from keep_actors.demo.folder import Folder
    from keep_actors.demo.services import connectors_in

    return connectors_in(Folder(Path(os.environ.get("KEEP_DEMO", "keep-demo"))))
