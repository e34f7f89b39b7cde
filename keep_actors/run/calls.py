"""Calls to the outside, decided: whether a run may make one, what the ledger gets first, what an outcome means. Pure.

The outcome of a mutation is known, known not to be, or unknown. Unknown is a result like the others: it is written
down, and the events stay held until somebody knows.
"""

from typing import assert_never

from keep_actors.connectors import DidNotHappen, Method, Params, ParamsError, Unknown
from keep_actors.permissions import use_of
from keep_actors.run.failures import Failure, logic
from keep_actors.run.state import CheckedCall, RunFacts, RunState
from keep_actors.text.call_text import preview
from keep_actors.text.counted import counted
from keep_storage.ids import Ids, Millis
from keep_storage.model import FailureClass, Json, Mutation
from keep_storage.operations import (
    AskFirst,
    CreateMutation,
    FailMutation,
    ItemScope,
    UpdateMutationStatus,
    UseGrant,
)
from keep_storage.outcomes import in_doubt


def refusal(facts: RunFacts, state: RunState, method: Method) -> Failure | None:
    """The reason not to make one more call of this method: a person's stop, or the limits of the envelope."""
    handler, permission = facts.handler, method.permission
    if state.stopped:
        # A person's stop is no fault. What the run did stays done.
        words = f"{handler}: stopped before its next call: {state.stopped}"
        return Failure(FailureClass.TRANSIENT, words, is_fault=False)
    about = f"permission:{permission}"
    if permission not in state.envelope:
        words = (
            f"{handler}: `ctx.{method.full_name}` needs the permission {permission!r} "
            f"(risk {method.risk}), which this workflow has not been granted."
        )
        # No fault: a person has taken it back, or has not been asked for it yet.
        return Failure(FailureClass.PERMISSION, words, is_fault=False, about=about)
    per_run = state.envelope.limits(permission).per_run
    if per_run is not None and state.calls.get(permission, 0) >= per_run:
        words = f"{handler}: the permission {permission!r} is for {counted(per_run, 'call')} per run."
        return Failure(FailureClass.PERMISSION, words, about=about)
    return None


def decoded_params(facts: RunFacts, method: Method, text: Json) -> Params | Failure:
    """The parameters of a call. A mistake in them is the script's, and is found before anything is written."""
    try:
        return method.decode_params(text)
    except ParamsError as error:
        return logic(facts.handler, str(error))


def use(facts: RunFacts, state: RunState, method: Method, now: Millis) -> tuple[UseGrant, ...]:
    """Count a call that is about to be made, where its grant has a limit for a day."""
    counted = use_of(state.envelope, method.permission, now)
    return () if counted is None else (UseGrant(facts.run_id, counted.permission, counted.day, counted.per_day),)


def ledger_line(
    facts: RunFacts,
    call: CheckedCall,
    ids: Ids,
    now: Millis,
    *,
    asks_first: bool,
    key: str | None = None,
    item: ItemScope | None = None,
) -> CreateMutation:
    """The ledger's line for a call: `in_flight`, or held for a person's approval."""
    mutation_id, method = ids.new("mut"), call.method
    question = None
    if asks_first:
        lasts_ms = facts.policy.approval_expires_ms
        question = AskFirst(ids.new("apr"), now + lasts_ms if lasts_ms is not None else None)
    return CreateMutation(
        id=mutation_id,
        run_id=facts.run_id,
        connector=method.connector,
        method=method.name,
        params=call.text,
        idempotency_key=key or mutation_id,
        reconcilable=method.reconcilable,
        send=not asks_first,
        item=item,
        ask_first=question,
        permission=method.permission,
    )


def approval_needed(facts: RunFacts, call: CheckedCall) -> Failure:
    """A person is asked before this call."""
    shown = preview(call.text, call.method.signature.names)
    words = f"Approval required: {facts.handler} wants to call {call.method.full_name} with {shown}"
    # About the question: granting a permission that the parameters happen to name does not settle it.
    return Failure(FailureClass.PERMISSION, words, about="approval")


def consequence(
    method: Method, mutation: Mutation, outcome: DidNotHappen | Unknown
) -> tuple[Failure, FailMutation | UpdateMutationStatus]:
    """The reason why a run cannot continue after this call, and the change of the ledger."""
    message = f"{method.full_name}: {outcome.message}"
    match outcome:
        case DidNotHappen():
            failure = Failure(outcome.cls, message, retry_after_ms=outcome.retry_after_ms)
            return failure, FailMutation(mutation.id, error=message)
        case Unknown():
            doubt = f"Mutation outcome uncertain: {message}"
            failure = Failure(FailureClass.INDETERMINATE, doubt)
            return failure, UpdateMutationStatus(mutation.id, in_doubt(mutation), error=doubt)
        case _:
            assert_never(outcome)
