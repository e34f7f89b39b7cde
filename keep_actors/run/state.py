"""One run as values: the facts that it began with, and its state, which the machine replaces at every step."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from keep_actors.connectors import Catalog, Method, Params
from keep_actors.permissions import Envelope
from keep_actors.policy import Policy
from keep_actors.run.earlier_calls import EarlierCalls
from keep_actors.run.effects import Writes
from keep_actors.run.failures import Before, Failure
from keep_actors.run.gate import ScriptPhase
from keep_actors.run.results import Prepared
from keep_actors.script import Script
from keep_sandbox import IssuedMutation, Request
from keep_sandbox.declaration import Consumer, Declaration
from keep_storage.model import HandlerKind, Item, Json, Mutation, Run, Workflow
from keep_storage.operations import ApplyMutation, Publish, StopRun


class At(StrEnum):
    """The place of a run: the input it waits for, and the step that follows."""

    NEW = "new"
    """Before the first effect."""
    IN_SCRIPT = "in_script"
    """A function of the script is running."""
    READING_EVENTS = "reading_events"
    CHECKING_RESERVATIONS = "checking_reservations"
    SAVING_BEFORE_READ = "saving_before_read"
    """A connector is called only for a run that is in the file."""
    READING = "reading"
    OPENING_ITEM = "opening_item"
    READING_EARLIER_CALLS = "reading_earlier_calls"
    RECORDING_CALL = "recording_call"
    """The ledger gets the call as `in_flight`."""
    CALLING = "calling"
    RECORDING_DOUBT = "recording_doubt"
    """The outcome is unknown; that is written before the connector is asked."""
    CHECKING = "checking"
    SAVING_ITEM_CALL = "saving_item_call"
    AWAITING_OUTCOME = "awaiting_outcome"
    """`next` has ended; the outcome of the call is still being written."""
    COMMITTING = "committing"
    ENDING_SCRIPT = "ending_script"
    STOPPING = "stopping"
    STOPPING_REFUSED = "stopping_refused"
    """The storage refused the first stop because of what the run wanted: that is the failure to tell."""
    GIVING_UP = "giving_up"
    """The storage refuses even the stop: settled as after a crash, and the workflow halts."""
    SETTLING = "settling"
    """An archived workflow cannot be halted: only settled."""
    MAKING_APPROVED_CALL = "making_approved_call"
    RECONCILING = "reconciling"
    WRITING_FINDINGS = "writing_findings"
    """Writing the outcome of an approved call, or of a check."""
    WRITING_LESS = "writing_less"
    """The workflow was archived meanwhile: only what is still true."""
    FINISHED = "finished"


class RunFacts(msgspec.Struct, frozen=True):
    """The facts of a run: they do not change while it runs."""

    run_id: str
    workflow: Workflow
    script: Script
    handler: str
    kind: HandlerKind
    policy: Policy
    catalog: Catalog
    state: Json | None = None
    """The handler's last state."""
    before: Before = Before()
    retried: Run | None = None
    """The stopped run that this one continues, at `next`."""
    trigger: str = ""
    """The reason to run now: `event`, `wake`, `schedule` or `retry`."""
    session_id: str = ""
    """The session that ends with the commit, if nothing else is to be done. Empty for a call or a dry run."""
    parks: bool = True
    """A call that waits for a person parks the run; if false, it stops the workflow."""

    @classmethod
    def of_call(cls, workflow: Workflow, mutation: Mutation, policy: Policy, catalog: Catalog) -> "RunFacts":
        """The facts for a call whose run has stopped: an approved one, or one to be looked for."""
        nothing = Declaration(name=None, topics=[], producers={}, consumers={}, jobs={})
        script = Script("", "", nothing, [])
        return cls(mutation.run_id, workflow, script, "", HandlerKind.CONSUMER, policy, catalog)

    @property
    def consumer(self) -> Consumer:
        """The declaration of a consumer's handler."""
        return self.script.declaration.consumers[self.handler]


class CheckedCall(msgspec.Struct, frozen=True):
    """A call that the script wants, checked."""

    method: Method
    params: Params
    text: Json


class ItemInHand(msgspec.Struct, frozen=True):
    """The item that a job has open."""

    item: Item
    earlier: EarlierCalls = EarlierCalls()
    publishes: tuple[Publish, ...] = ()
    """Published inside the item; written when it is closed."""


class RunState(msgspec.Struct, frozen=True):
    """One run at one moment."""

    at: At
    envelope: Envelope
    opening: Writes = ()
    """Creates the run, together with the first thing that is written; empty once the run is in the file."""
    unsaved: Writes = ()
    """To be written with the next save."""
    phase: ScriptPhase = ScriptPhase.PREPARE
    """Of the function that runs, or ran last."""
    request: Request | None = None
    """The request that the script waits for."""
    issued: IssuedMutation | None = None
    """The mutation that `mutate` ended with."""
    wanted: CheckedCall | None = None
    """The call to be made for it, or for `mutate`."""
    mutation: Mutation | None = None
    """Its line in the ledger."""
    applied: ApplyMutation | None = None
    prepared: Prepared | None = None
    next_state: Json | None = None
    """The state that the handler returned; None keeps the last one."""
    item: ItemInHand | None = None
    publishes: tuple[Publish, ...] = ()
    """Published outside of items; written with the commit."""
    published: int = 0
    """Events published so far, inside items too."""
    peeked: str = ""
    """The topic that it is peeking at."""
    seen: frozenset[tuple[str, str]] = frozenset()
    """Pending events that it was shown, by topic and message id."""
    logs: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    """All its requests, in order: evidence for a repair."""
    calls: Mapping[str, int] = {}
    """Uses of each permission."""
    cost_micros: int = 0
    is_saving: bool = False
    """The outcome of the call is being written while `next` runs."""
    event_was_skipped: bool = False
    stopped: str = ""
    """The reason to make no further call; empty if it may."""
    stop: StopRun | None = None
    """Written with the end of a run that was stopped before it was in the file."""
    failure: Failure | None = None
    """The reason to stop."""
    status: str = ""
    """How it stops."""
    first: Writes = ()
    """Written with the stop, before it."""
    is_admitted: bool = True
    """False: the workflow was stopped before the run was in the file. Nothing is left of the run."""
    findings: Writes = ()
    """The operations that an approved call or a check writes."""

    @property
    def is_open(self) -> bool:
        """True once the run is in the file."""
        return not self.opening
