"""What the parts that carry out one run share: who is running, under which rules, and what it has done so far."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from keep_actors.failures import Failure
from keep_actors.host import Doors, Script
from keep_actors.permissions import Envelope
from keep_actors.policy import Policy
from keep_actors.record import Record
from keep_actors.topics import Topics
from keep_storage.model import HandlerKind, Workflow
from keep_storage.operations import Operation, Publish


class CannotGoOn(Exception):
    """The run ends here, for this reason. `first` is written with its end, before it."""

    def __init__(self, failure: Failure, *first: Operation[Any]) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.first = first


@dataclass
class RunContext:
    """One run of one handler."""

    host: Doors
    workflow: Workflow
    script: Script
    handler: str
    kind: HandlerKind
    run_id: str
    envelope: Envelope
    record: Record
    topics: Topics
    publishes: list[Publish] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    """What it asked for, in order: evidence for whoever has to repair it."""
    calls: Counter[str] = field(default_factory=Counter)
    """How often each permission was used."""
    cost_micros: int = 0
    trigger: str = ""
    """Why it runs now: `event`, `wake`, `schedule` or `retry`."""
    event_was_skipped: bool = False
    """A person skipped an event of this workflow since the run began."""

    @property
    def policy(self) -> Policy:
        return self.host.policy_of(self.workflow.name)
