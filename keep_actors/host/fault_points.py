"""Fault points: the named places where a test may have something go wrong. In production nothing is there.

A `Faults` is called with the point and whose work it is. It may do nothing, raise (the actor crashes, or the commit
fails with the `StorageUnavailable` it raised), or end the process. It must not wait.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias


class Point(StrEnum):
    """Where. The value is the name that reports and command lines use."""

    COMMIT = "storage.commit"
    """The storage actor has a batch, and nothing of it is in the file."""
    COMMITTED = "storage.committed"
    """The batch is durable, and no caller has been answered."""
    RECEIVED = "workflow.received"
    """A workflow actor has taken a message from its mailbox, and done nothing about it."""
    STARTED = "workflow.started"
    """A run or a side task begins beside the mailbox."""
    ENDED = "workflow.ended"
    """A run or a side task has finished, and its actor has not been told."""
    INVOKE = "sandbox.invoke"
    """A handler is about to be run."""
    INVOKED = "sandbox.invoked"
    """A handler has ended, and its result has not been looked at."""
    SAVE = "run.save"
    """A run is about to write. Called with the place of its machine (`keep_actors.run.state.At`)."""
    SAVED = "run.saved"
    """It has written, and its machine has not been told."""
    RECORD = "call.record"
    """A script wants a mutation, and the ledger does not have it."""
    RECORDED = "call.recorded"
    """The ledger has it as `in_flight`, and the call has not been made."""
    SENDING = "call.sending"
    """A connector says that its next step may have an effect. Perhaps in a worker thread."""
    NOTED = "call.noted"
    """The ledger has a connector's note, and the connector has not been told."""
    ANSWERED = "call.answered"
    """The connector has answered, and the ledger does not know."""
    CHECK = "call.check"
    """A connector is about to be asked what became of a call."""
    CHECKED = "call.checked"
    """It has answered, and the ledger does not know."""


Faults: TypeAlias = Callable[[Point, str], None]
"""Called with the point, and with the workflow's id, the method's full name or the place of a run."""


def no_faults(_: Point, __: str) -> None:
    """Do nothing: the faults of production."""
