"""Calls to the outside: permitted, checked, then made; a mutation only after the ledger has it as `in_flight`.

What a mutation did is known, known not to be, or unknown. Unknown is a result like the others: it is written down, and
the events stay held until somebody knows.
"""

from collections.abc import Awaitable
from typing import Any, TypeVar, assert_never

from keep_actors.connectors import (
    Answer,
    CallOutcome,
    DidNotHappen,
    Failed,
    Happened,
    Method,
    MutationCall,
    Params,
    ParamsError,
    ReadOutcome,
    Unknown,
)
from keep_actors.host.fault_points import Point
from keep_actors.host.host import Services
from keep_actors.permissions import use_of
from keep_actors.policy import Policy
from keep_actors.run import reconcile
from keep_actors.run.context import CannotGoOn, RunContext
from keep_actors.run.failures import Failure, logic
from keep_actors.telemetry import names
from keep_actors.text.call_text import preview
from keep_storage.model import FailureClass, Json, Mutation, MutationStatus
from keep_storage.operations import (
    ApplyMutation,
    AskFirst,
    CreateMutation,
    FailMutation,
    ItemScope,
    Operation,
    UpdateMutationStatus,
    UseGrant,
)
from keep_storage.outcomes import in_doubt

Outcome = TypeVar("Outcome", bound=ReadOutcome | CallOutcome)


def permitted(context: RunContext, method: Method) -> None:
    """Refuse what a person has stopped or what is outside the envelope, before anything is sent."""
    if context.stopped:
        raise CannotGoOn(stopped(context.handler, context.stopped), *([context.stop] if context.stop else []))
    if method.permission not in context.envelope:
        words = (
            f"{context.handler}: `ctx.{method.full_name}` needs the permission {method.permission!r} "
            f"(risk {method.risk}), which this workflow has not been granted."
        )
        # Nobody's failure: a person has taken it back, or not been asked for it yet.
        failure = Failure(FailureClass.PERMISSION, words, is_fault=False, about=f"permission:{method.permission}")
        raise CannotGoOn(failure)
    limits = context.envelope.limits(method.permission)
    context.calls[method.permission] += 1
    if limits.per_run is not None and context.calls[method.permission] > limits.per_run:
        raise CannotGoOn(
            Failure(
                FailureClass.PERMISSION,
                f"{context.handler}: the permission {method.permission!r} is for {limits.per_run} call(s) per run.",
                about=f"permission:{method.permission}",
            )
        )


def stopped(handler: str, why: str) -> Failure:
    """A person has stopped it: nobody's failure. What it did stays done."""
    return Failure(FailureClass.TRANSIENT, f"{handler}: stopped before its next call: {why}", is_fault=False)


def counted(context: RunContext, method: Method) -> None:
    """Count a call that is about to be made, where the grant says how many a day there may be."""
    use = use_of(context.envelope, method.permission, context.host.time.now())
    if use is not None:
        context.record.note(UseGrant(context.run_id, use.permission, use.day, use.per_day))


def checked_params(context: RunContext, method: Method, text: Json) -> Params:
    """The parameters of a call. A mistake in them is the script's, and is found before anything is written."""
    try:
        return method.decode_params(text)
    except ParamsError as error:
        raise CannotGoOn(logic(context.handler, str(error))) from None


async def recorded(
    context: RunContext, method: Method, params: Json, key: str | None = None, item: ItemScope | None = None
) -> Mutation:
    """The line of the ledger for this call, `in_flight` and durable. If a person is to be asked first, the run ends.

    Inside an item the ledger may know the call already, and then says what became of it.
    """
    mutation_id = context.host.ids.new("mut")
    asks_first = context.envelope.asks_first(method.permission)
    if not asks_first:
        # What a person may refuse counts when it is approved.
        counted(context, method)
    create = CreateMutation(
        id=mutation_id,
        run_id=context.run_id,
        connector=method.connector,
        method=method.name,
        params=params,
        idempotency_key=key or mutation_id,
        reconcilable=method.reconcilable,
        send=not asks_first,
        item=item,
        ask_first=_question(context) if asks_first else None,
        permission=method.permission,
    )
    context.host.reach(Point.RECORD, method.full_name)
    shown = preview(params, method.signature.names)
    words = f"Approval required: {context.handler} wants to call {method.full_name} with {shown}"
    # About the question: granting a permission that the parameters happen to name does not settle it.
    asked = Failure(FailureClass.PERMISSION, words, about="approval")
    if asks_first and item is None:
        # The question and the stop are written together: there is no moment in which only one of them is there.
        raise CannotGoOn(asked, create)
    [mutation] = await context.record.save(create)
    assert isinstance(mutation, Mutation), "the answer is the line of the ledger"
    if mutation.status is MutationStatus.PENDING:
        raise CannotGoOn(asked)
    return mutation


def _question(context: RunContext) -> AskFirst:
    lasts_ms, now = context.policy.approval_expires_ms, context.host.time.now()
    return AskFirst(context.host.ids.new("apr"), now + lasts_ms if lasts_ms is not None else None)


async def call(
    host: Services, policy: Policy, method: Method, params: Params, mutation: Mutation
) -> tuple[CallOutcome, int]:
    """Make the call that the ledger has as `in_flight`. Returns what came of it, and what it cost."""
    assert mutation.status is MutationStatus.IN_FLIGHT, "the ledger knows of a call before it is made"
    made = MutationCall.of(mutation, params.values)
    timeout_ms = policy.timeout_ms(method.full_name, method.timeout_ms, is_mutation=True)
    host.reach(Point.RECORDED, method.full_name)
    with host.call_times.making(mutation.id, timeout_ms):
        outcome = await watched(host, method, mutation.workflow_id, method.mutate(params, made, timeout_ms))
    host.reach(Point.ANSWERED, method.full_name)
    said, failure = _said(outcome)
    host.telemetry.count(
        names.MUTATIONS.name, method=method.full_name, outcome=said, failure=failure, workflow_id=mutation.workflow_id
    )
    return outcome, made.cost_micros


async def watched(host: Services, method: Method, workflow_id: str, answer: Awaitable[Outcome]) -> Outcome:
    """Wait for a connector, and tell the telemetry how long that took and how it ended."""
    began = host.time.now()
    with host.telemetry.span(names.CALL.name, method=method.full_name, access=method.kind) as span:
        outcome = await answer
        said, failure = _said(outcome)
        span.ends(said, failure)
    took_ms = max(host.time.now() - began, 0)
    host.telemetry.observe(
        names.CALL_MS.name,
        took_ms,
        method=method.full_name,
        access=method.kind,
        outcome=said,
        workflow_id=workflow_id,
    )
    return outcome


def _said(outcome: ReadOutcome | CallOutcome) -> tuple[str, str]:
    """How it ended, and the class of failure, in the words of the telemetry."""
    match outcome:
        case Answer():
            return "answered", ""
        case Failed():
            return "failed", outcome.cls
        case Happened():
            return "happened", ""
        case DidNotHappen():
            return "did_not_happen", outcome.cls
        case Unknown():
            return "unknown", FailureClass.INDETERMINATE
        case _:
            assert_never(outcome)


async def call_in_run(context: RunContext, method: Method, params: Params, mutation: Mutation) -> ApplyMutation:
    """Make the call for a run. Returns what has to be written if it happened; anything else ends the run."""
    with context.host.turnstile.outside():
        outcome, cost_micros = await call(context.host, context.policy, method, params, mutation)
    context.cost_micros += cost_micros
    if isinstance(outcome, Happened):
        return ApplyMutation(mutation.id, outcome.json_text)
    failure, write = what_followed(method, mutation, outcome)
    if isinstance(outcome, DidNotHappen) or not mutation.reconcilable:
        raise CannotGoOn(failure, write)
    return await _found_out(context, failure, write)


async def _found_out(context: RunContext, failure: Failure, doubt: Operation[Any]) -> ApplyMutation:
    """The doubt is written down first; then the connector is asked at once, which spares most runs a pause."""
    [mutation] = await context.record.save(doubt)
    with context.host.turnstile.outside():
        verdict = await reconcile.check(context.host, context.policy, mutation)
    now = context.host.time.now()
    write = reconcile.learned(mutation, verdict, context.policy, now, context.host.rng)
    match write:
        case ApplyMutation():
            return write
        case FailMutation():
            words = f"{failure.message} The connector looked: it did not happen."
            raise CannotGoOn(Failure(FailureClass.TRANSIENT, words), write)
        case UpdateMutationStatus():
            raise CannotGoOn(failure, write)
        case _:
            assert_never(write)


def what_followed(
    method: Method, mutation: Mutation, outcome: DidNotHappen | Unknown
) -> tuple[Failure, Operation[Any]]:
    """Why the run cannot go on after this call, and what the ledger has to learn."""
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
