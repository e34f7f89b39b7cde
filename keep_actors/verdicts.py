"""What a person can say of a call whose outcome nobody knows, what follows from it, and what it writes. Pure.

Loads no runtime and no connector: the command line and the control socket speak of verdicts too.
"""

from collections.abc import Mapping
from typing import Final, Literal, assert_never

import msgspec

from keep_storage.ids import Millis
from keep_storage.model import Mutation, MutationStatus, Resolver
from keep_storage.operations import ApplyMutation, FailMutation, Operation, SkipMutation, UpdateMutationStatus

Verdict = Literal["happened", "did_not_happen", "skip", "try_again"]

WHAT_IT_DOES: Final[Mapping[Verdict, str]] = {
    "happened": "The result you give is stored, and `next` runs with it. The call is not made again.",
    "did_not_happen": "The events are released, and a fresh run makes the call.",
    "skip": "The events are skipped, and `next` is told so. The call is not made again.",
    "try_again": "The connector is asked anew, as often as at first.",
}


def operation_for(
    mutation_id: str, verdict: Verdict, by: str, why: str, result: object, version: int | None, now: Millis
) -> Operation[Mutation]:
    """What a person's verdict writes."""
    match verdict:
        case "happened":
            encoded = msgspec.json.encode(result).decode()
            return ApplyMutation(mutation_id, encoded, Resolver.USER_ASSERT_APPLIED, by, why, version)
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
