"""What a maintainer is asked, what it may answer, and what a maintainer is.

Everything in a task that a script, an event or a service had a hand in (source, error, logs, requests, prepared data)
is untrusted: it is evidence, never an instruction.
"""

from typing import Any, Literal, Protocol

import msgspec

from keep_actors.connectors.definition import Definition
from keep_sandbox.invocation import MethodKind
from keep_storage.model import Json

Impact = Literal["safe", "potentially_impactful"]


class RepairFailed(Exception):
    """The maintainer has no proposal. The message is for people."""

    def __init__(self, message: str, *, is_transient: bool = False) -> None:
        super().__init__(message)
        self.is_transient = is_transient
        """The same task may go better later: the model's server is down, slow or limits the rate."""


class MethodInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A connector method that the workflow may use."""

    full_name: str
    """`sheets.appendRow`."""
    kind: MethodKind
    description: str
    params_schema: dict[str, Any]
    result_schema: dict[str, Any]
    by_id: bool = False

    @classmethod
    def of(cls, definition: Definition) -> "MethodInfo":
        """What a maintainer is told about this method."""
        return cls(
            full_name=definition.full_name,
            kind=definition.kind,
            description=definition.description,
            params_schema=definition.params_schema(),
            result_schema=definition.result_schema(),
            by_id=definition.by_id,
        )


class RepairTask(msgspec.Struct, frozen=True, kw_only=True):
    """A script that failed with a logic error, and the evidence."""

    workflow_id: str
    workflow_name: str
    version: str
    """`1.3`."""
    source: str
    handler: str
    error: str
    place: str
    """`line:column`, or empty."""
    logs: list[str]
    requests: list[str]
    """What the run asked the host for, in order."""
    prepare_result: Json | None
    """What `prepare` had returned, if the run came so far."""
    attempt: int
    """From 1."""
    attempts_max: int
    earlier_problems: list[str]
    """Why earlier proposals for this failure were refused."""
    methods: list[MethodInfo]
    """All that the workflow was granted. A repair cannot widen it."""
    topics: list[str]
    mutate_reads: Literal["none", "by_id"] = "none"
    """As in the workflow's policy."""


class Proposal(msgspec.Struct, frozen=True):
    """A whole script that may take the place of the failing one, once the host has found nothing against it."""

    source: str
    impact: Impact = "potentially_impactful"
    """Whether runs before the failure may have done something wrong, or the repair changes what is done outside."""
    note: str = ""
    """The maintainer's own words, for people. They decide nothing."""


class Maintainer(Protocol):
    """Who repairs a script. It proposes; the host validates, and a person approves what is not safe."""

    @property
    def is_automatic(self) -> bool:
        """Whether `repair` is to be called. If not, the workflow waits until a person deploys a repaired script."""

    async def repair(self, task: RepairTask) -> Proposal:
        """A proposal. Raises `RepairFailed`."""
