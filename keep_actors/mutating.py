"""The external call itself: made only after the ledger has it as `in_flight`, and never made twice.

What the call did is known, known not to be, or unknown. Unknown is a result like the others: it is written down, and
the events stay held until somebody knows.
"""

from typing import assert_never

from keep_actors.connectors import DidNotHappen, Happened, Method, MutationCall, Params, ParamsError, Unknown
from keep_actors.context import CannotGoOn, RunContext
from keep_actors.failures import Failure, logic
from keep_storage.model import FailureClass, Json, Mutation, MutationStatus
from keep_storage.operations import FailMutation, UpdateMutationStatus


def checked_params(context: RunContext, method: Method, text: Json) -> Params:
    """The parameters of a call. A mistake in them is the script's, and is found before anything is written."""
    try:
        return method.decode_params(text)
    except ParamsError as error:
        raise CannotGoOn(logic(context.handler, str(error))) from None


async def call_outside(context: RunContext, method: Method, params: Params, mutation: Mutation) -> Json:
    """Make the call that the ledger has as `in_flight`, and return its result, which the caller writes down."""
    assert mutation.status is MutationStatus.IN_FLIGHT, "the ledger knows of a call before it is made"
    call = MutationCall(
        idempotency_key=mutation.idempotency_key,
        workflow_id=mutation.workflow_id,
        run_id=mutation.run_id,
        mutation_id=mutation.id,
        params=params.values,
        sent_at=mutation.sent_at,
        attempt=mutation.attempts,
    )
    timeout_ms = context.policy.timeout_ms(method.full_name, method.timeout_ms, is_mutation=True)
    with context.host.turnstile.outside():
        outcome = await method.mutate(params, call, timeout_ms)
    context.cost_micros += call.cost_micros
    match outcome:
        case Happened():
            return outcome.json_text
        case DidNotHappen():
            message = f"{method.full_name}: {outcome.message}"
            failure = Failure(outcome.cls, message, retry_after_ms=outcome.retry_after_ms)
            raise CannotGoOn(failure, FailMutation(mutation.id, error=message))
        case Unknown():
            raise unknown(mutation, f"{method.full_name}: {outcome.message}")
        case _:
            assert_never(outcome)


def unknown(mutation: Mutation, why: str) -> CannotGoOn:
    """Nobody knows whether it happened. The connector is asked if it can tell, and a person if it cannot."""
    status = MutationStatus.NEEDS_RECONCILE if mutation.reconcilable else MutationStatus.INDETERMINATE
    message = f"Mutation outcome uncertain: {why}"
    return CannotGoOn(
        Failure(FailureClass.INDETERMINATE, message), UpdateMutationStatus(mutation.id, status, error=message)
    )
