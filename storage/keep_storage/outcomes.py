"""The outcome of a mutation, as `next` is told it and as a doubt. Pure."""

import msgspec

from keep_storage.model import Json, Mutation, MutationOutcome, MutationStatus, Run


def mutation_result_for_next(run: Run) -> Json:
    """The `mutationResult` of a run, as JSON.

    The outcome decides, not the phase: a retry is given exactly what the run it continues was given.
    """
    return mutation_result(run.mutation_outcome, run.mutation_result, run.skip_reason)


def mutation_result(outcome: MutationOutcome, result: Json | None = None, reason: str = "") -> Json:
    """The same, for who knows the outcome and need not read the run."""
    match outcome:
        case MutationOutcome.SUCCESS:
            return f'{{"status":"applied","result":{result}}}'
        case MutationOutcome.SKIPPED:
            said = msgspec.json.encode(reason).decode()
            return f'{{"status":"skipped","reason":{said}}}' if reason else '{"status":"skipped"}'
        case MutationOutcome.NONE:
            return '{"status":"none"}'
        case MutationOutcome.FAILURE:
            raise AssertionError("`next` never runs after a failed mutation")


def in_doubt(mutation: Mutation) -> MutationStatus:
    """The status of a call that may have happened: a question to its connector, or to a person."""
    return MutationStatus.NEEDS_RECONCILE if mutation.reconcilable else MutationStatus.INDETERMINATE
