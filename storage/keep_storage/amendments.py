"""A result that a person gave, put right before anything has used it. No other result is ever changed."""

from msgspec.structs import replace

from keep_storage import mutation_rows, mutations, rows, runs
from keep_storage.errors import Reason, reject
from keep_storage.ids import Millis
from keep_storage.journal import Change, changed
from keep_storage.model import HandlerKind, Mutation, Resolver
from keep_storage.operations import AmendResult
from keep_storage.transaction import Queries, Transaction


def amend_result(tx: Transaction, op: AmendResult, now: Millis) -> Change[Mutation]:
    mutation = mutations.existing(tx, op.mutation_id)
    if mutation.resolved_by is not Resolver.USER_ASSERT_APPLIED:
        said = f"{mutation.status} ({mutation.resolved_by})" if mutation.resolved_by else str(mutation.status)
        reject(
            Reason.RESULT_NOT_A_PERSONS,
            f"Mutation {mutation.id!r} is {said}; only a result that a person gave can be amended.",
        )
    mutations.check_version(mutation, op.expected_version)
    run = runs.existing(tx, mutation.run_id)
    user = _user_of_item(tx, mutation) if mutation.item_id is not None else rows.retry_of(tx, run.id)
    if user is not None:
        reject(
            Reason.RESULT_ALREADY_USED,
            f"Run {user!r} has used the result of mutation {mutation.id!r}; it cannot be amended any more.",
        )
    amended = replace(
        mutation,
        result=op.result,
        version=mutation.version + 1,
        resolved_who=op.by,
        resolved_why=op.why,
        updated_at=now,
    )
    mutation_rows.save_mutation(tx, amended)
    if run.kind is HandlerKind.CONSUMER:
        rows.set_outcome(tx, replace(run, mutation_result=op.result, skip_reason=""))
    return changed(
        amended,
        run.workflow_id,
        run.id,
        op.why,
        mutation=mutation.id,
        result=[mutation.result, op.result],
        by=op.by,
    )


def _user_of_item(q: Queries, mutation: Mutation) -> str | None:
    """The run that has entered the item since, and was given the result or will be. None if there is none."""
    assert mutation.item_id is not None, "a job mutates inside an item"
    item = mutation_rows.item(q, mutation.workflow_id, mutation.item_id)
    assert item is not None, "an item is never deleted"
    is_as_it_was = item.attempt == mutation.item_attempt and item.run_id == mutation.run_id and not item.is_open
    return None if is_as_it_was else item.run_id
