"""What can be asked over the control socket. A closed list: a struct for each request, which carries its answer's type.

One request per connection, a line of JSON; then a line with the answer or the error, before it any number of lines
with entries if the request was to follow the journal. Sizes are bounded, versions are compared, what is unknown is
refused.
"""

import re
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from keep_actors.api.verdicts import PersonVerdict
from keep_storage.model import Event, Item, ItemState, JournalEntry, Mutation, Workflow

if TYPE_CHECKING:
    from keep_actors.api.escalation import Escalation
    from keep_actors.api.keep_answers import Deployed
    from keep_actors.api.views import ApprovalQuestion
else:
    # Only answers have these types: a command that asks for something else need not load a runtime.
    Escalation = Deployed = ApprovalQuestion = Any

VERSION: Final = 1
REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024

T_co = TypeVar("T_co", covariant=True)


def _tag(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


class Request(
    msgspec.Struct, Generic[T_co], frozen=True, kw_only=True, tag_field="do", tag=_tag, forbid_unknown_fields=True
):
    """Something that a shell asks of a runtime, answered with a `T`."""

    v: int = VERSION


class About(msgspec.Struct, frozen=True):
    """Who listens."""

    pid: int
    version: str
    """That of keep-actors."""


class Hello(Request[About], frozen=True):
    """Who are you?"""


class GrantOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A permission, and its limits."""

    permission: str
    policy: Literal["allow", "ask"] = "allow"
    per_run: int | None = None
    per_day: int | None = None


class Deploy(Request[Deployed], frozen=True, kw_only=True):
    source: str
    workflow: str | None = None
    new: bool | None = None
    author: str = ""
    grants: list[GrantOf] | Literal["declared"] = []
    """`declared`: everything that the script names."""
    timezone: str | None = None
    major: bool = False
    drop: list[str] = []
    move: dict[str, str] = {}
    by: str = ""


class Rollback(Request[Deployed], frozen=True, kw_only=True):
    workflow: str
    version: str
    drop: list[str] = []
    move: dict[str, str] = {}
    by: str = ""


class Pause(Request[Workflow], frozen=True, kw_only=True):
    workflow: str
    by: str = ""


class Resume(Request[Workflow], frozen=True, kw_only=True):
    workflow: str
    by: str = ""


class Archive(Request[Workflow], frozen=True, kw_only=True):
    workflow: str
    by: str = ""


class Unarchive(Request[Workflow], frozen=True, kw_only=True):
    workflow: str
    by: str = ""


class Stop(Request[str], frozen=True, kw_only=True):
    """End the run that is active at its next call. Answered with its id."""

    workflow: str
    run_id: str | None = None
    """Refused if it is another one."""
    by: str = ""
    why: str = ""


class RunNow(Request[Workflow], frozen=True, kw_only=True):
    workflow: str
    by: str = ""


class ClearError(Request[Workflow], frozen=True, kw_only=True):
    workflow: str
    by: str
    why: str = ""


class Grant(Request[Workflow], frozen=True, kw_only=True):
    workflow: str
    grant: GrantOf
    by: str


class Revoke(Request[Workflow], frozen=True, kw_only=True):
    workflow: str
    permission: str
    by: str


class Approvals(Request[list[ApprovalQuestion]], frozen=True, kw_only=True):
    """Asked of a runtime, because it has the connectors: only they know which call needs which permission."""

    workflow: str | None = None
    permission: str | None = None


class Approve(Request[Mutation], frozen=True, kw_only=True):
    approval_id: str
    by: str
    why: str = ""


class Reject(Request[Mutation], frozen=True, kw_only=True):
    approval_id: str
    by: str
    why: str = ""
    retry: bool = False


class Resolve(Request[Mutation], frozen=True, kw_only=True):
    mutation_id: str
    verdict: PersonVerdict
    by: str
    why: str = ""
    result: Any = None
    version: int | None = None


class Amend(Request[Mutation], frozen=True, kw_only=True):
    mutation_id: str
    result: Any
    by: str
    why: str = ""
    version: int | None = None


class Publish(Request[list[Event]], frozen=True, kw_only=True):
    workflow: str
    topic: str
    message_id: str
    title: str
    payload: Any = None


class SkipEvent(Request[Event], frozen=True, kw_only=True):
    workflow: str
    topic: str
    message_id: str
    by: str = ""
    why: str = ""


class SkipItems(Request[list[Item]], frozen=True, kw_only=True):
    """These items, or all in a state; with both, these as long as they are in it."""

    workflow: str
    item_ids: list[str] | None = None
    state: ItemState | None = None
    by: str
    why: str = ""


class ReprocessItems(Request[list[Item]], frozen=True, kw_only=True):
    workflow: str
    item_ids: list[str] | None = None
    state: ItemState | None = None
    by: str
    why: str = ""


class AcceptRepair(Request[Deployed], frozen=True, kw_only=True):
    workflow: str
    version: str
    by: str


class RefuseRepair(Request[Workflow], frozen=True, kw_only=True):
    workflow: str
    by: str
    why: str


class Unknowns(Request[list[Escalation]], frozen=True, kw_only=True):
    """Asked of a runtime, because it has the connectors and what they say about checking."""

    workflow: str | None = None


class ParameterNames(Request[dict[str, list[str]]], frozen=True, kw_only=True):
    """Asked of a runtime, because it has the connectors: only they know the order of parameters."""

    calls: list[str]


class Follow(Request[None], frozen=True, kw_only=True):
    """The journal behind a sequence number, as it is written. Answered when the runtime ends."""

    after: int
    workflow: str | None = None


AnyRequest: TypeAlias = (
    Hello
    | Deploy
    | Rollback
    | Pause
    | Resume
    | Archive
    | Unarchive
    | Stop
    | RunNow
    | ClearError
    | Grant
    | Revoke
    | Approvals
    | Approve
    | Reject
    | Resolve
    | Amend
    | Publish
    | SkipEvent
    | SkipItems
    | ReprocessItems
    | AcceptRepair
    | RefuseRepair
    | Unknowns
    | ParameterNames
    | Follow
)

ErrorKind = Literal[
    "rejected", "refused", "permissions", "result", "invalid", "request", "unavailable", "unknown", "internal"
]
"""`result`: a person's result does not fit the type of the call. `unknown`: it may have happened. After every other one
it did not."""


class Error(msgspec.Struct, frozen=True):
    """Why there is no answer."""

    kind: ErrorKind
    words: str
    reason: str = ""
    """Of a `Rejected`: for code."""
    example: str = ""
    """Of a result that does not fit: JSON that would."""
    topics: dict[str, int] = {}
    declared: list[str] = []
    """Of `EventsWouldWait`: how many events wait in each topic, and the topics that the script has."""


class Reply(msgspec.Struct, frozen=True):
    """A line from the runtime: exactly one of the three is there."""

    v: int = VERSION
    answer: msgspec.Raw | UnsetType = UNSET
    entry: JournalEntry | UnsetType = UNSET
    error: Error | UnsetType = UNSET


class _Versioned(msgspec.Struct, frozen=True):
    v: int = 0


class RequestRefused(Exception):
    """What came in is no request. The text says why."""


_DECODER: Final = msgspec.json.Decoder(AnyRequest)


def decode(line: bytes) -> AnyRequest:
    """Raises `RequestRefused`."""
    try:
        version = msgspec.json.decode(line, type=_Versioned).v
        if version != VERSION:
            raise RequestRefused(
                f"This runtime speaks version {VERSION} of the protocol, and was asked in version {version}: `keep` "
                "and the runtime are of different versions of keep-actors."
            )
        request: AnyRequest = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestRefused(f"That is no request: {error}.") from error
    return request


def encode(line: msgspec.Struct) -> bytes:
    """A line. Line ends inside of texts are escaped by JSON."""
    return msgspec.json.encode(line) + b"\n"
