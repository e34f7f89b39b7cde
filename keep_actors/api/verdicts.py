"""What a person can say of a call whose outcome nobody knows, what follows from it, and what it writes. Pure.

Loads no runtime and no connector: the command line and the control socket speak of verdicts too.
"""

from collections.abc import Mapping
from typing import Final, Literal, assert_never

from keep_storage.ids import Millis
from keep_storage.model import Json, Mutation, MutationStatus, Resolver
from keep_storage.operations import ApplyMutation, FailMutation, Operation, SkipMutation, UpdateMutationStatus

PersonVerdict = Literal["happened", "did_not_happen", "skip", "try_again"]

WHAT_IT_DOES: Final[Mapping[PersonVerdict, str]] = {
    "happened": "The result you give is stored, and `next` runs with it. The call is not made again.",
    "did_not_happen": "The events are released, and a fresh run makes the call.",
    "skip": "The events are skipped, and `next` is told so. The call is not made again.",
    "try_again": "The connector is asked anew, as often as at first.",
}


class ResultRefused(ValueError):
    """The result that a person gives is not what the call returns. Nothing was written.

    `path` says where in it (`rows[2].id`, or empty), `problem` what is wrong; `expected` is the type that it has to
    have, as in TypeScript, and `example` JSON that has it. Both are empty if nobody here knows the type.
    """

    def __init__(self, call: str, path: str, problem: str, expected: str = "", example: Json = "") -> None:
        words = f"The result of {call} {problem}."
        if expected:
            place = f"{path}: " if path else ""
            shown = f", for example {example}" if example else ""
            words = f"The result of {call} does not fit: {place}{problem}. Expected {expected}{shown}."
        super().__init__(words)
        self.call = call
        self.path = path
        self.problem = problem
        self.expected = expected
        self.example = example


def operation_for(
    mutation_id: str, verdict: PersonVerdict, by: str, why: str, result: Json, version: int | None, now: Millis
) -> Operation[Mutation]:
    """What a person's verdict writes. `result` is for what happened, and was checked by who knows its type."""
    match verdict:
        case "happened":
            return ApplyMutation(mutation_id, result, Resolver.USER_ASSERT_APPLIED, by, why, version)
        case "did_not_happen":
            return FailMutation(mutation_id, "", Resolver.USER_ASSERT_FAILED, by, why, version)
        case "skip":
            return SkipMutation(mutation_id, by, why, version)
        case "try_again":
            return UpdateMutationStatus(
                mutation_id, MutationStatus.NEEDS_RECONCILE, "", now, by, why, expected_version=version
            )
        case _:
            assert_never(verdict)
