"""What `next` is told about the mutation. Pure."""

from keep_storage.model import Json, MutationOutcome, Run


def mutation_result_for_next(run: Run) -> Json:
    """The `mutationResult` of a run, as JSON.

    The outcome decides, not the phase: a retry is given exactly what the run it continues was given.
    """
    match run.mutation_outcome:
        case MutationOutcome.SUCCESS:
            return f'{{"status":"applied","result":{run.mutation_result}}}'
        case MutationOutcome.SKIPPED:
            return '{"status":"skipped"}'
        case MutationOutcome.NONE:
            return '{"status":"none"}'
        case MutationOutcome.FAILURE:
            raise AssertionError("`next` never runs after a failed mutation")
