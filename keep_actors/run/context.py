"""What the parts that carry out one run share: who is running, under which rules, and what it has done so far."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from keep_actors.host.host import Services
from keep_actors.host.script import Script
from keep_actors.permissions import Envelope
from keep_actors.policy import Policy
from keep_actors.run.failures import Failure
from keep_actors.run.record import Record
from keep_actors.run.topics import Topics
from keep_actors.text.visible import head
from keep_storage.model import HandlerKind, Json, Workflow
from keep_storage.operations import Operation, Publish, StopRun

_REQUEST_CHARS_MAX: Final = 500


class CannotGoOn(Exception):
    """The run ends here, for this reason. `first` is written with its end, before it."""

    def __init__(self, failure: Failure, *first: Operation[Any]) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.first = first


@dataclass
class RunContext:
    """One run of one handler."""

    host: Services
    workflow: Workflow
    script: Script
    handler: str
    kind: HandlerKind
    run_id: str
    envelope: Envelope
    record: Record
    topics: Topics
    publishes: list[Publish] = field(default_factory=list)
    """What waits for the commit. What is published inside an item waits there."""
    published: int = 0
    """How many events it has published, inside items too."""
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
    stopped: str = ""
    """Why it makes no further call: a person has paused or archived the workflow, or stopped the run."""
    stop: StopRun | None = None
    """What a person's stop writes, if the run was not in the file when it came."""
    parks: bool = True
    """Whether it is parked if its call waits for a person; else its workflow stops."""
    seen: set[tuple[str, str]] = field(default_factory=set)
    """The pending events, by topic and message id, that it was shown."""

    def keep_request(self, name: str, params: Json) -> None:
        """Keep what it asked for: the beginning of it, with how much is left out."""
        self.requests.append(f"{name} {head(params, _REQUEST_CHARS_MAX)}")

    @property
    def policy(self) -> Policy:
        return self.host.policy_of(self.workflow.name)
