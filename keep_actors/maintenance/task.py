"""The task of a maintainer, its proposal, and the interface of a maintainer.

All parts of a task that come from a script, an event or a service (source, error, logs, requests, prepared data) are
untrusted: evidence, never instructions.
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
        """The same task may succeed later: the model's server is down, slow or limits the rate."""


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
        """The part of a definition that a maintainer sees."""
        return cls(
            full_name=definition.full_name,
            kind=definition.kind,
            description=definition.description,
            params_schema=definition.params_schema(),
            result_schema=definition.result_schema(),
            by_id=definition.by_id,
        )


class RepairTask(msgspec.Struct, frozen=True, kw_only=True):
    """A script that failed with a logic error, with the evidence."""

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
    """The requests of the run to the host, in order."""
    prepare_result: Json | None
    """The result of `prepare`, if the run got that far."""
    attempt: int
    """From 1."""
    attempts_max: int
    earlier_problems: list[str]
    """The reasons why earlier proposals for this failure were refused."""
    methods: list[MethodInfo]
    """All methods that the workflow was granted. A repair cannot add any."""
    topics: list[str]
    mutate_reads: Literal["none", "by_id"] = "none"
    """As in the workflow's policy."""


class Proposal(msgspec.Struct, frozen=True):
    """A whole script that may replace the failing one, once the host has validated it."""

    source: str
    impact: Impact = "potentially_impactful"
    """`safe` if no earlier run can have done something wrong and the repair changes nothing that is done outside."""
    note: str = ""
    """The maintainer's explanation, for people. It decides nothing."""


class Maintainer(Protocol):
    """Repairs scripts. It proposes; the host validates, and a person approves what is not safe."""

    @property
    def is_automatic(self) -> bool:
        """True if the host shall call `repair`. If not, the workflow waits until a person deploys a repaired script."""

    async def repair(self, task: RepairTask) -> Proposal:
        """Propose a repaired script. Raises `RepairFailed`."""
