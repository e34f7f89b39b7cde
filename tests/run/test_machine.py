"""The run as a machine, without an event loop: every place and every input, what follows or that it is refused."""

import ast
import random
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from keep_actors import Connector, mutation, read
from keep_actors.connectors import (
    Answer,
    Applied,
    Catalog,
    DidNotHappen,
    Failed,
    Happened,
    MutationCall,
    NotApplied,
    Retry,
    Unknown,
)
from keep_actors.permissions import Envelope
from keep_actors.policy import Policy
from keep_actors.run import effects
from keep_actors.run.effects import (
    AnswerRefused,
    AnswerScript,
    AwaitSave,
    CallEnded,
    CallMutation,
    CallRead,
    CheckOutcome,
    CheckReservations,
    EarlierCallsRead,
    EndScript,
    EventSkipped,
    EventsRead,
    Finish,
    GetEvents,
    GrantsChanged,
    Invoke,
    OutcomeChecked,
    PeekEvents,
    ReadEarlierCalls,
    ReadEnded,
    RunInput,
    Save,
    SaveAndInvoke,
    Saved,
    SaveRefused,
    ScriptAsked,
    ScriptFailed,
    ScriptIssued,
    ScriptReturned,
    ScriptStopped,
    StopRequested,
)
from keep_actors.run.failures import Failure
from keep_actors.run.gate import ScriptPhase
from keep_actors.run.machine import SAVES, STEPS, RunMachine, UnexpectedInput
from keep_actors.run.results import Prepared
from keep_actors.run.state import At, CheckedCall, ItemInHand, RunFacts, RunState
from keep_actors.script import Script
from keep_sandbox import IssuedMutation, Request
from keep_sandbox.declaration import Consumer, Declaration, Scheduled
from keep_sandbox.outcomes import Deadlock, Kind
from keep_storage.errors import Reason, Rejected
from keep_storage.ids import Ids
from keep_storage.model import (
    FailureClass,
    GrantPolicy,
    HandlerKind,
    Item,
    ItemState,
    Mutation,
    MutationOutcome,
    MutationStatus,
    Phase,
    Run,
    StoredGrant,
    Workflow,
    WorkflowStatus,
)
from keep_storage.operations import (
    ApplyMutation,
    CommitConsumer,
    CommitJob,
    CommitProducer,
    CreateMutation,
    CreateRun,
    FailMutation,
    HaltWorkflow,
    OpenItem,
    RecoverCrashedRuns,
    Reserve,
    StopRun,
    UpdateConsumerPhase,
    UpdateHandlerRunStatus,
    UpdateMutationStatus,
)

NOW = 1_700_000_000_000
OPENING = (CreateRun("run", "ses", "h", Phase.PREPARING, 0),)


class Shop(Connector):
    """Never called: a machine does nothing."""

    name = "shop"

    @read
    async def find(self, text: str) -> str:
        raise AssertionError(text)

    @mutation
    async def pay(self, to: str) -> str:
        raise AssertionError(to)

    @pay.reconcile
    async def paid(self, call: MutationCall) -> Applied | NotApplied | Retry:
        raise AssertionError(call)

    @mutation
    async def wire(self, to: str) -> str:
        raise AssertionError(to)


CATALOG = Catalog([Shop()])
GRANTS = [StoredGrant("w", 1, f"shop.{name}", GrantPolicy.ALLOW, "{}", "", 0) for name in ("find", "pay", "wire")]
ASKS = [msgspec.structs.replace(each, policy=GrantPolicy.ASK) for each in GRANTS]
TEXT = '{"to":"ann"}'
PREPARED = Prepared('{"reservations":[]}', (Reserve("in", ("m1",)),), "", None)
ITEM = Item("w", "7", 1, "Seven", ItemState.PROCESSING, "run", True, "", 0, 0)
REFUSED = Rejected(Reason.EVENT_ALREADY_RESERVED, "It is taken.")
PAUSED = Rejected(Reason.WORKFLOW_NOT_ACTIVE, "It is paused.")
BUG = Rejected(Reason.ID_TAKEN, "It exists.")


def wanted(name: str = "pay") -> CheckedCall:
    method = CATALOG.methods[f"shop.{name}"]
    text = '{"text":"x"}' if name == "find" else TEXT
    return CheckedCall(method, method.decode_params(text), text)


def line(status: MutationStatus = MutationStatus.IN_FLIGHT, *, reconcilable: bool = True, **changes: Any) -> Mutation:
    """A line of the ledger."""
    values: dict[str, Any] = dict.fromkeys((each.name for each in msgspec.structs.fields(Mutation)), None)
    values |= {"id": "mut", "workflow_id": "w", "run_id": "run", "connector": "shop", "method": "pay", "params": TEXT}
    values |= {"status": status, "reconcilable": reconcilable, "reconcile_attempts": 0, "error": "", "subkey": ""}
    return Mutation(**{**values, **changes})


def workflow() -> Workflow:
    return Workflow("w", "w", "UTC", WorkflowStatus.ACTIVE, "", None, None, False, None, None, "v", 0, 0, "", "")


def facts(kind: HandlerKind = HandlerKind.CONSUMER, *, mutate: bool = True, next_: bool = True) -> RunFacts:
    consumer = Consumer(subscribe=["in"], prepare=True, mutate=mutate, next=next_)
    declaration = Declaration(
        name="w",
        topics=["in", "out"],
        producers={"h": Scheduled()} if kind is HandlerKind.PRODUCER else {},
        consumers={"h": consumer} if kind is HandlerKind.CONSUMER else {},
        jobs={"h": Scheduled()} if kind is HandlerKind.JOB else {},
    )
    return RunFacts("run", workflow(), Script("v", "", declaration, []), "h", kind, Policy(), CATALOG)


def machine(given: RunFacts, at: At, **state: Any) -> RunMachine:
    state.setdefault("envelope", Envelope(GRANTS))
    return RunMachine(given, RunState(at, **state), Ids(lambda: NOW, random.Random(1)), random.Random(1))


def asks(kind: Kind, name: str, params: str) -> ScriptAsked:
    return ScriptAsked(Request(id=1, kind=kind, name=name, params=params))


@dataclass(frozen=True)
class Case:
    """In this place, this input leads to this effect and that place; `writes` are the last operations of a save."""

    at: At
    said: RunInput
    effect: type[Any]
    then: At
    writes: tuple[type[Any], ...] = ()
    kind: HandlerKind = HandlerKind.CONSUMER
    state: dict[str, Any] = field(default_factory=dict)
    declared: dict[str, bool] = field(default_factory=dict)


REQUEST = asks(Kind.PEEK, "peek", '{"topic":"in"}').request
JOB: dict[str, Any] = {"kind": HandlerKind.JOB}
WAITS: dict[str, Any] = {"request": REQUEST}
IN_ITEM: dict[str, Any] = {**WAITS, "phase": ScriptPhase.JOB, "item": ItemInHand(ITEM), "wanted": wanted()}
IN_MUTATE: dict[str, Any] = {"phase": ScriptPhase.MUTATE, "prepared": PREPARED, "wanted": wanted(), "mutation": line()}
IN_NEXT: dict[str, Any] = {**IN_MUTATE, "phase": ScriptPhase.NEXT}
DOUBT = Failure(FailureClass.INDETERMINATE, "unknown")
PRODUCER: dict[str, Any] = {"kind": HandlerKind.PRODUCER, "state": {"phase": ScriptPhase.PRODUCER}}
PAYS = asks(Kind.MUTATION, "shop.pay", TEXT)
ISSUED = ScriptIssued(IssuedMutation(id=1, name="shop.pay", params=TEXT))
CHOICE = '{"reservations":[{"topic":"in","ids":["m1"]}]}'
SEEN = frozenset({("in", "m1")})

CASES: dict[str, Case] = {
    "a request to peek": Case(At.IN_SCRIPT, asks(Kind.PEEK, "peek", '{"topic":"in"}'), PeekEvents, At.READING_EVENTS),
    "a request by id": Case(
        At.IN_SCRIPT, asks(Kind.GET_BY_IDS, "getByIds", '{"topic":"in","ids":["a"]}'), GetEvents, At.READING_EVENTS
    ),
    "a request for another's topic": Case(
        At.IN_SCRIPT, asks(Kind.PEEK, "peek", '{"topic":"out"}'), EndScript, At.ENDING_SCRIPT
    ),
    "a publish in a producer": Case(
        At.IN_SCRIPT,
        asks(Kind.PUBLISH, "publish", '{"topic":"out","event":{"title":"T"}}'),
        AnswerScript,
        At.IN_SCRIPT,
        **PRODUCER,
    ),
    "a publish in prepare": Case(
        At.IN_SCRIPT,
        asks(Kind.PUBLISH, "publish", '{"topic":"out","event":{"title":"T"}}'),
        EndScript,
        At.ENDING_SCRIPT,
    ),
    "a read of a run that is in the file": Case(
        At.IN_SCRIPT, asks(Kind.READ, "shop.find", '{"text":"x"}'), CallRead, At.READING
    ),
    "a read of a run that is not": Case(
        At.IN_SCRIPT,
        asks(Kind.READ, "shop.find", '{"text":"x"}'),
        Save,
        At.SAVING_BEFORE_READ,
        (CreateRun,),
        state={"opening": OPENING},
    ),
    "a read without a grant": Case(
        At.IN_SCRIPT,
        asks(Kind.READ, "shop.find", '{"text":"x"}'),
        EndScript,
        At.ENDING_SCRIPT,
        state={"envelope": Envelope(())},
    ),
    "a read with wrong parameters": Case(
        At.IN_SCRIPT, asks(Kind.READ, "shop.find", '{"text":1}'), EndScript, At.ENDING_SCRIPT
    ),
    "a read of a run that a person has stopped": Case(
        At.IN_SCRIPT,
        asks(Kind.READ, "shop.find", '{"text":"x"}'),
        EndScript,
        At.ENDING_SCRIPT,
        state={"stopped": "paused"},
    ),
    "a mutation in prepare": Case(At.IN_SCRIPT, PAYS, EndScript, At.ENDING_SCRIPT),
    "a mutation that mutate waits for": Case(At.IN_SCRIPT, PAYS, EndScript, At.ENDING_SCRIPT, state=IN_MUTATE),
    "a mutation in a job outside of items": Case(
        At.IN_SCRIPT, PAYS, EndScript, At.ENDING_SCRIPT, state={"phase": ScriptPhase.JOB}, **JOB
    ),
    "a mutation in an item": Case(At.IN_SCRIPT, PAYS, Save, At.RECORDING_CALL, (CreateMutation,), state=IN_ITEM, **JOB),
    "an item is entered": Case(
        At.IN_SCRIPT,
        asks(Kind.ITEM_OPEN, "withItem", '{"id":"7","title":"T"}'),
        Save,
        At.OPENING_ITEM,
        (OpenItem,),
        state={"phase": ScriptPhase.JOB},
        **JOB,
    ),
    "an item in an item": Case(
        At.IN_SCRIPT,
        asks(Kind.ITEM_OPEN, "withItem", '{"id":"8","title":"T"}'),
        EndScript,
        At.ENDING_SCRIPT,
        state=IN_ITEM,
        **JOB,
    ),
    "an item is left": Case(
        At.IN_SCRIPT,
        asks(Kind.ITEM_CLOSE, "withItem", '{"id":"7"}'),
        AnswerScript,
        At.IN_SCRIPT,
        state=IN_ITEM,
        **JOB,
    ),
    "another item is left": Case(
        At.IN_SCRIPT,
        asks(Kind.ITEM_CLOSE, "withItem", '{"id":"8"}'),
        EndScript,
        At.ENDING_SCRIPT,
        state=IN_ITEM,
        **JOB,
    ),
    "a producer returns": Case(At.IN_SCRIPT, ScriptReturned("1"), Save, At.COMMITTING, (CommitProducer,), **PRODUCER),
    "a job returns": Case(
        At.IN_SCRIPT, ScriptReturned(None), Save, At.COMMITTING, (CommitJob,), state={"phase": ScriptPhase.JOB}, **JOB
    ),
    "a job returns inside an item": Case(At.IN_SCRIPT, ScriptReturned(None), Save, At.STOPPING, state=IN_ITEM, **JOB),
    "prepare chooses what it was shown": Case(
        At.IN_SCRIPT, ScriptReturned(CHOICE), Invoke, At.IN_SCRIPT, state={"seen": SEEN}
    ),
    "prepare chooses what it was not shown": Case(
        At.IN_SCRIPT, ScriptReturned(CHOICE), CheckReservations, At.CHECKING_RESERVATIONS
    ),
    "prepare chooses nothing": Case(At.IN_SCRIPT, ScriptReturned('{"reservations":[]}'), Invoke, At.IN_SCRIPT),
    "prepare chooses nothing and there is no next": Case(
        At.IN_SCRIPT,
        ScriptReturned('{"reservations":[]}'),
        Save,
        At.COMMITTING,
        (UpdateConsumerPhase, UpdateConsumerPhase, CommitConsumer),
        declared={"next_": False},
    ),
    "prepare returns nothing": Case(At.IN_SCRIPT, ScriptReturned(None), Save, At.STOPPING),
    "mutate returns without a call": Case(At.IN_SCRIPT, ScriptReturned(None), Invoke, At.IN_SCRIPT, state=IN_MUTATE),
    "next returns": Case(At.IN_SCRIPT, ScriptReturned("1"), Save, At.COMMITTING, (CommitConsumer,), state=IN_NEXT),
    "next returns before the outcome is written": Case(
        At.IN_SCRIPT, ScriptReturned("1"), AwaitSave, At.AWAITING_OUTCOME, state={**IN_NEXT, "is_saving": True}
    ),
    "mutate issues its call": Case(At.IN_SCRIPT, ISSUED, Save, At.RECORDING_CALL, (CreateMutation,), state=IN_MUTATE),
    "mutate issues a call that a person approves": Case(
        At.IN_SCRIPT,
        ISSUED,
        Save,
        At.STOPPING,
        (CreateMutation, UpdateHandlerRunStatus),
        state={**IN_MUTATE, "envelope": Envelope(ASKS)},
    ),
    "mutate issues a call after a person's stop": Case(
        At.IN_SCRIPT,
        ISSUED,
        Save,
        At.STOPPING,
        (StopRun, UpdateHandlerRunStatus),
        state={**IN_MUTATE, "stopped": "by ann", "stop": StopRun("run", NOW, "ann", "")},
    ),
    "prepare issues a call": Case(At.IN_SCRIPT, ISSUED, Save, At.STOPPING),
    "a script fails": Case(At.IN_SCRIPT, ScriptFailed(Deadlock()), Save, At.STOPPING),
    "next fails before the outcome is written": Case(
        At.IN_SCRIPT, ScriptFailed(Deadlock()), AwaitSave, At.AWAITING_OUTCOME, state={**IN_NEXT, "is_saving": True}
    ),
    "an answer does not fit": Case(At.IN_SCRIPT, AnswerRefused("too large"), EndScript, At.ENDING_SCRIPT, state=WAITS),
    "a script is ended": Case(
        At.ENDING_SCRIPT, ScriptStopped(), Save, At.STOPPING, state={"failure": Failure(FailureClass.LOGIC, "wrong")}
    ),
    "next is ended before the outcome is written": Case(
        At.ENDING_SCRIPT,
        ScriptStopped(),
        AwaitSave,
        At.AWAITING_OUTCOME,
        state={**IN_NEXT, "is_saving": True, "failure": Failure(FailureClass.LOGIC, "wrong")},
    ),
    "a script is ended of a run that was not admitted": Case(
        At.ENDING_SCRIPT, ScriptStopped(), Finish, At.FINISHED, state={"is_admitted": False}
    ),
    "events are read": Case(At.READING_EVENTS, EventsRead(()), AnswerScript, At.IN_SCRIPT, state=WAITS),
    "the reservations can be had": Case(
        At.CHECKING_RESERVATIONS, Saved(), Invoke, At.IN_SCRIPT, state={"prepared": PREPARED}
    ),
    "the reservations cannot be had": Case(
        At.CHECKING_RESERVATIONS, SaveRefused(REFUSED), Save, At.STOPPING, state={"prepared": PREPARED}
    ),
    "saved before a read": Case(
        At.SAVING_BEFORE_READ, Saved(), CallRead, At.READING, state={**WAITS, "wanted": wanted("find")}
    ),
    "refused before a read": Case(
        At.SAVING_BEFORE_READ, SaveRefused(REFUSED), EndScript, At.ENDING_SCRIPT, state=WAITS
    ),
    "not admitted before a read": Case(
        At.SAVING_BEFORE_READ, SaveRefused(PAUSED), EndScript, At.ENDING_SCRIPT, state={**WAITS, "opening": OPENING}
    ),
    "a read answers": Case(
        At.READING, ReadEnded(Answer("1")), AnswerScript, At.IN_SCRIPT, state={**WAITS, "wanted": wanted("find")}
    ),
    "a read fails": Case(
        At.READING,
        ReadEnded(Failed(FailureClass.TRANSIENT, "away")),
        EndScript,
        At.ENDING_SCRIPT,
        state={**WAITS, "wanted": wanted("find")},
    ),
    "an item is open": Case(
        At.OPENING_ITEM, Saved((ITEM,)), ReadEarlierCalls, At.READING_EARLIER_CALLS, state=WAITS, **JOB
    ),
    "an item was done before": Case(
        At.OPENING_ITEM,
        Saved((msgspec.structs.replace(ITEM, state=ItemState.DONE),)),
        AnswerScript,
        At.IN_SCRIPT,
        state=WAITS,
        **JOB,
    ),
    "an item cannot be opened": Case(
        At.OPENING_ITEM, SaveRefused(REFUSED), EndScript, At.ENDING_SCRIPT, state=WAITS, **JOB
    ),
    "earlier calls are read": Case(
        At.READING_EARLIER_CALLS, EarlierCallsRead(()), AnswerScript, At.IN_SCRIPT, state=IN_ITEM, **JOB
    ),
    "a call is recorded": Case(At.RECORDING_CALL, Saved((line(),)), CallMutation, At.CALLING, state=IN_MUTATE),
    "a call in an item is recorded": Case(
        At.RECORDING_CALL, Saved((line(),)), CallMutation, At.CALLING, state=IN_ITEM, **JOB
    ),
    "a call in an item was made before": Case(
        At.RECORDING_CALL,
        Saved((line(MutationStatus.APPLIED, result='"r"'),)),
        AnswerScript,
        At.IN_SCRIPT,
        state=IN_ITEM,
        **JOB,
    ),
    "a call in an item was made before with other words": Case(
        At.RECORDING_CALL,
        Saved((line(MutationStatus.APPLIED, result='"r"', params='{"to":"bob"}'),)),
        EndScript,
        At.ENDING_SCRIPT,
        state=IN_ITEM,
        **JOB,
    ),
    "a call in an item waits for a person": Case(
        At.RECORDING_CALL,
        Saved((line(MutationStatus.PENDING),)),
        EndScript,
        At.ENDING_SCRIPT,
        state=IN_ITEM,
        **JOB,
    ),
    "a call cannot be recorded": Case(At.RECORDING_CALL, SaveRefused(REFUSED), Save, At.STOPPING, state=IN_MUTATE),
    "a call of a run that was not admitted": Case(
        At.RECORDING_CALL, SaveRefused(PAUSED), Finish, At.FINISHED, state={**IN_MUTATE, "opening": OPENING}
    ),
    "a call in an item that is done": Case(
        At.RECORDING_CALL,
        SaveRefused(Rejected(Reason.ITEM_IS_DONE, "It is done.")),
        EndScript,
        At.ENDING_SCRIPT,
        state=IN_ITEM,
        **JOB,
    ),
    "a call happened": Case(At.CALLING, CallEnded(Happened('"r"')), SaveAndInvoke, At.IN_SCRIPT, state=IN_MUTATE),
    "a call happened and there is no next": Case(
        At.CALLING,
        CallEnded(Happened('"r"')),
        Save,
        At.COMMITTING,
        (ApplyMutation, UpdateConsumerPhase, CommitConsumer),
        state=IN_MUTATE,
        declared={"next_": False},
    ),
    "a call in an item happened": Case(
        At.CALLING,
        CallEnded(Happened('"r"')),
        Save,
        At.SAVING_ITEM_CALL,
        (ApplyMutation,),
        state={**IN_ITEM, "mutation": line()},
        **JOB,
    ),
    "a call did not happen": Case(
        At.CALLING,
        CallEnded(DidNotHappen(FailureClass.TRANSIENT, "away")),
        Save,
        At.STOPPING,
        (FailMutation, UpdateHandlerRunStatus),
        state=IN_MUTATE,
    ),
    "a call in an item did not happen": Case(
        At.CALLING,
        CallEnded(DidNotHappen(FailureClass.TRANSIENT, "away")),
        EndScript,
        At.ENDING_SCRIPT,
        state={**IN_ITEM, "mutation": line()},
        **JOB,
    ),
    "an outcome is unknown and the connector can be asked": Case(
        At.CALLING, CallEnded(Unknown("gone")), Save, At.RECORDING_DOUBT, (UpdateMutationStatus,), state=IN_MUTATE
    ),
    "an outcome is unknown and nobody can be asked": Case(
        At.CALLING,
        CallEnded(Unknown("gone")),
        Save,
        At.STOPPING,
        (UpdateMutationStatus, UpdateHandlerRunStatus),
        state={**IN_MUTATE, "mutation": line(reconcilable=False)},
    ),
    "a doubt is recorded": Case(
        At.RECORDING_DOUBT,
        Saved((line(MutationStatus.NEEDS_RECONCILE),)),
        CheckOutcome,
        At.CHECKING,
        state={**IN_MUTATE, "failure": DOUBT},
    ),
    "a doubt cannot be recorded": Case(
        At.RECORDING_DOUBT, SaveRefused(BUG), Save, At.STOPPING, state={**IN_MUTATE, "failure": DOUBT}
    ),
    "the connector found the effect": Case(
        At.CHECKING,
        OutcomeChecked(Applied('"r"')),
        SaveAndInvoke,
        At.IN_SCRIPT,
        state={**IN_MUTATE, "failure": DOUBT},
    ),
    "the connector found no effect": Case(
        At.CHECKING,
        OutcomeChecked(NotApplied()),
        Save,
        At.STOPPING,
        (FailMutation, UpdateHandlerRunStatus),
        state={**IN_MUTATE, "failure": DOUBT},
    ),
    "the connector cannot tell": Case(
        At.CHECKING,
        OutcomeChecked(Retry("busy")),
        Save,
        At.STOPPING,
        (UpdateMutationStatus, UpdateHandlerRunStatus),
        state={**IN_MUTATE, "failure": DOUBT},
    ),
    "the outcome of a call in an item is written": Case(
        At.SAVING_ITEM_CALL,
        Saved((line(),)),
        AnswerScript,
        At.IN_SCRIPT,
        state={**IN_ITEM, "applied": ApplyMutation("mut", '"r"')},
        **JOB,
    ),
    "the outcome of a call in an item is refused": Case(
        At.SAVING_ITEM_CALL, SaveRefused(BUG), EndScript, At.ENDING_SCRIPT, state=IN_ITEM, **JOB
    ),
    "the outcome is written after next": Case(
        At.AWAITING_OUTCOME, Saved((line(),)), Save, At.COMMITTING, (CommitConsumer,), state=IN_NEXT
    ),
    "the outcome is written after next failed": Case(
        At.AWAITING_OUTCOME,
        Saved((line(),)),
        Save,
        At.STOPPING,
        state={**IN_NEXT, "failure": Failure(FailureClass.LOGIC, "wrong")},
    ),
    "the outcome is refused": Case(At.AWAITING_OUTCOME, SaveRefused(BUG), Save, At.STOPPING, state=IN_NEXT),
    "a commit": Case(At.COMMITTING, Saved((None,)), Finish, At.FINISHED),
    "a commit is refused": Case(At.COMMITTING, SaveRefused(REFUSED), Save, At.STOPPING),
    "a commit of a run that was not admitted": Case(
        At.COMMITTING, SaveRefused(PAUSED), Finish, At.FINISHED, state={"opening": OPENING}
    ),
    "a stop": Case(At.STOPPING, Saved((None,)), Finish, At.FINISHED, state={"failure": DOUBT}),
    "a stop is refused for what the run wants": Case(
        At.STOPPING, SaveRefused(REFUSED), Save, At.STOPPING_REFUSED, state={"failure": DOUBT}
    ),
    "a stop is refused for an unknown reason": Case(
        At.STOPPING, SaveRefused(BUG), Save, At.GIVING_UP, (RecoverCrashedRuns, HaltWorkflow), state={"failure": DOUBT}
    ),
    "a stop of a run that was not admitted": Case(
        At.STOPPING, SaveRefused(PAUSED), Finish, At.FINISHED, state={"opening": OPENING, "failure": DOUBT}
    ),
    "a second stop": Case(At.STOPPING_REFUSED, Saved((None,)), Finish, At.FINISHED, state={"failure": DOUBT}),
    "a second stop is refused": Case(
        At.STOPPING_REFUSED, SaveRefused(REFUSED), Save, At.GIVING_UP, (RecoverCrashedRuns, HaltWorkflow)
    ),
    "given up": Case(At.GIVING_UP, Saved((None, None)), Finish, At.FINISHED),
    "giving up is refused": Case(At.GIVING_UP, SaveRefused(BUG), Save, At.SETTLING, (RecoverCrashedRuns,)),
    "settled": Case(At.SETTLING, Saved((None,)), Finish, At.FINISHED),
    "an approved call happened": Case(
        At.MAKING_APPROVED_CALL,
        CallEnded(Happened('"r"')),
        Save,
        At.WRITING_FINDINGS,
        (ApplyMutation,),
        state=IN_MUTATE,
    ),
    "the outcome of an approved call is unknown": Case(
        At.MAKING_APPROVED_CALL,
        CallEnded(Unknown("gone")),
        Save,
        At.WRITING_FINDINGS,
        (UpdateMutationStatus, UpdateHandlerRunStatus),
        state=IN_MUTATE,
    ),
    "an approved call did not happen and may be tried again": Case(
        At.MAKING_APPROVED_CALL,
        CallEnded(DidNotHappen(FailureClass.TRANSIENT, "away")),
        Save,
        At.WRITING_FINDINGS,
        (FailMutation,),
        state=IN_MUTATE,
    ),
    "an approved call did not happen for good": Case(
        At.MAKING_APPROVED_CALL,
        CallEnded(DidNotHappen(FailureClass.PRECONDITION, "no such account")),
        Save,
        At.WRITING_FINDINGS,
        (FailMutation, HaltWorkflow),
        state=IN_MUTATE,
    ),
    "a call was looked for": Case(
        At.RECONCILING,
        OutcomeChecked(NotApplied()),
        Save,
        At.WRITING_FINDINGS,
        (FailMutation,),
        state=IN_MUTATE,
    ),
    "findings are written": Case(At.WRITING_FINDINGS, Saved(()), Finish, At.FINISHED),
    "a person was quicker": Case(
        At.WRITING_FINDINGS,
        SaveRefused(Rejected(Reason.MUTATION_ALREADY_SETTLED, "It is settled.")),
        Finish,
        At.FINISHED,
    ),
    "the workflow was archived": Case(
        At.WRITING_FINDINGS,
        SaveRefused(Rejected(Reason.WORKFLOW_STATUS_REFUSED, "It is archived.")),
        Save,
        At.WRITING_LESS,
        (FailMutation,),
        state={"findings": (FailMutation("mut", ""), HaltWorkflow("w", ""))},
    ),
    "less is written": Case(At.WRITING_LESS, Saved(()), Finish, At.FINISHED),
}

SAMPLES: dict[type[Any], RunInput] = {type(case.said): case.said for case in CASES.values()}
REFUSED_PAIRS = [pair for pair in product(At, SAMPLES) if pair not in STEPS]


@pytest.mark.parametrize("name", CASES)
def test_every_step_of_the_table_leads_where_it_says(name: str) -> None:
    case = CASES[name]
    run = machine(facts(case.kind, **case.declared), case.at, **case.state)
    effect = run.on(case.said, NOW)
    assert (type(effect), run.state.at) == (case.effect, case.then)
    if case.writes:
        assert isinstance(effect, Save)
        assert tuple(type(each) for each in effect.operations) == case.writes


def test_the_cases_cover_the_whole_table() -> None:
    assert {(case.at, type(case.said)) for case in CASES.values()} == set(STEPS)


@pytest.mark.parametrize(("at", "said"), REFUSED_PAIRS, ids=lambda each: str(getattr(each, "__name__", each)))
def test_an_input_that_nothing_asked_for_is_refused_and_changes_nothing(at: At, said: type[RunInput]) -> None:
    run = machine(facts(), at)
    before = run.state
    with pytest.raises(UnexpectedInput):
        run.on(SAMPLES[said], NOW)
    assert run.state is before


def test_every_input_there_is_has_its_place() -> None:
    assert set(SAMPLES) == set(effects.RunInput.__args__)
    assert {said for _, said in STEPS} == set(SAMPLES)


def test_every_effect_there_is_is_asked_for() -> None:
    asked = {case.effect for case in CASES.values()}
    assert asked == set(effects.RunEffect.__args__)


def test_a_refusal_that_belongs_to_no_rule_is_raised_and_not_swallowed() -> None:
    run = machine(facts(), At.WRITING_FINDINGS)
    with pytest.raises(Rejected):
        run.on(SaveRefused(BUG), NOW)


@pytest.mark.parametrize(
    ("kind", "effect"), [(HandlerKind.PRODUCER, Invoke), (HandlerKind.CONSUMER, Invoke), (HandlerKind.JOB, Invoke)]
)
def test_a_run_begins_with_its_function(kind: HandlerKind, effect: type[Any]) -> None:
    run = machine(facts(kind), At.NEW, opening=OPENING)
    assert isinstance(run.start(NOW), effect)
    assert not run.state.is_open


def test_a_run_whose_connector_is_missing_stops_before_its_script() -> None:
    given = facts()
    script = msgspec.structs.replace(given.script, uses=["gone.method"])
    run = machine(msgspec.structs.replace(given, script=script), At.NEW, opening=OPENING)
    effect = run.start(NOW)
    assert isinstance(effect, Save)
    assert [type(each) for each in effect.operations] == [CreateRun, UpdateHandlerRunStatus]


def test_a_retry_begins_at_next_with_the_result_that_the_stopped_run_had() -> None:
    values: dict[str, Any] = dict.fromkeys((each.name for each in msgspec.structs.fields(Run)), None)
    values |= {"prepare_result": '{"data":1}', "mutation_outcome": MutationOutcome.SUCCESS, "mutation_result": '"r"'}
    run = machine(msgspec.structs.replace(facts(), retried=Run(**{**values, "skip_reason": ""})), At.NEW)
    effect = run.start(NOW)
    assert isinstance(effect, Invoke)
    assert (effect.phase, effect.arguments) == (
        ScriptPhase.NEXT,
        '[{"data":1},{"status":"applied","result":"r"}]',
    )


def test_an_approved_call_is_made_exactly_and_one_that_cannot_be_is_recorded_as_not_made() -> None:
    made = machine(facts(), At.NEW).start_approved(line(), NOW)
    assert isinstance(made, CallMutation)
    for gone in (line(method="gone"), line(params='{"to":1}')):
        effect = machine(facts(), At.NEW).start_approved(gone, NOW)
        assert isinstance(effect, Save)
        assert [type(each) for each in effect.operations] == [FailMutation]


def test_a_check_asks_and_never_calls() -> None:
    assert isinstance(machine(facts(), At.NEW).start_reconcile(line(), NOW), CheckOutcome)


def test_news_change_what_the_next_call_may_do_and_ask_for_no_effect() -> None:
    run = machine(facts(), At.READING, wanted=wanted("find"))
    run.told(EventSkipped())
    run.told(StopRequested("the workflow was paused"))
    run.told(GrantsChanged(Envelope(())))
    assert (run.state.event_was_skipped, run.state.stopped) == (True, "the workflow was paused")
    assert "shop.pay" not in run.state.envelope
    assert run.state.at is At.READING


def test_nothing_is_called_that_the_ledger_does_not_have() -> None:
    """Every call follows a save: there is no other way to `CallMutation` from a script."""
    leads_to_a_call = {case.at for case in CASES.values() if case.effect is CallMutation}
    assert leads_to_a_call == {At.RECORDING_CALL}
    assert At.RECORDING_CALL in SAVES


def test_only_the_driver_of_this_room_awaits() -> None:
    room = Path(effects.__file__).parent
    awaits = {
        file.name
        for file in room.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.AsyncFunctionDef | ast.Await)
    }
    assert awaits == {"drive.py"}
