"""The question that an unknown outcome is to a person, the verdicts that answer it, and what each of them writes. Pure.

Loads no runtime and no connector: the command line and the control socket speak of verdicts too.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple, get_args

import msgspec

from keep_storage.ids import Millis
from keep_storage.model import Json, Mutation, MutationStatus, Resolver
from keep_storage.operations import ApplyMutation, FailMutation, Operation, SkipMutation, UpdateMutationStatus

PersonVerdict = Literal["happened", "did_not_happen", "skip", "try_again"]


class GivenVerdict(NamedTuple):
    """A verdict as a person gave it. `result` is for `happened` only, and was checked where its type is known."""

    mutation_id: str
    result: Json
    by: str
    why: str
    version: int | None
    """Refused if the mutation has changed since."""
    now: Millis


class VerdictMeaning(NamedTuple):
    """The consequence of a verdict: in words, and as an operation of the storage."""

    does: str
    operation: Callable[[GivenVerdict], Operation[Mutation]]


VERDICTS: Final[Mapping[PersonVerdict, VerdictMeaning]] = {
    "happened": VerdictMeaning(
        "The result you give is stored, and `next` runs with it. The call is not made again.",
        lambda said: ApplyMutation(
            said.mutation_id, said.result, Resolver.USER_ASSERT_APPLIED, said.by, said.why, said.version
        ),
    ),
    "did_not_happen": VerdictMeaning(
        "The events are released, and a fresh run makes the call.",
        lambda said: FailMutation(said.mutation_id, "", Resolver.USER_ASSERT_FAILED, said.by, said.why, said.version),
    ),
    "skip": VerdictMeaning(
        "The events are skipped, and `next` receives that. The call is not made again.",
        lambda said: SkipMutation(said.mutation_id, said.by, said.why, said.version),
    ),
    "try_again": VerdictMeaning(
        "The connector is asked again, as often as at first.",
        lambda said: UpdateMutationStatus(
            said.mutation_id,
            MutationStatus.NEEDS_RECONCILE,
            "",
            said.now,
            said.by,
            said.why,
            expected_version=said.version,
        ),
    ),
}
"""The one table of verdicts. The library, the socket and the storage's operations are mapped here and nowhere else."""

assert tuple(VERDICTS) == get_args(PersonVerdict), "every verdict has its meaning"


class Tried(msgspec.Struct, frozen=True):
    """A line of its history."""

    at: Millis
    what: str


class OpenVerdict(msgspec.Struct, frozen=True):
    """A verdict that a person can give, and its consequence."""

    verdict: PersonVerdict
    does: str


class Escalation(msgspec.Struct, frozen=True):
    """A call whose outcome is unknown."""

    mutation_id: str
    version: int
    """To be named with the verdict, which is refused if anything has changed since."""
    workflow_id: str
    workflow: str
    run_id: str
    call: str
    target: Json
    """The parameters that say what is changed."""
    params: Json
    """All parameters, as the host saw them."""
    title: str
    """The script's own words. Not to be trusted."""
    status: MutationStatus
    is_parked: bool
    """Only the events of its run, and those with an ordering key that it holds, wait; else the whole workflow does."""
    why: str
    sent_at: Millis | None
    tried: list[Tried]
    can_check: bool
    """True if the connector can be asked."""
    next_check_at: Millis | None
    how_to_check: str
    """A way for a person to find out, in the connector's words."""
    link: str | None
    verdicts: list[OpenVerdict]
    noted: str = ""
    """The connector's note about the call: the id that the service gave to it. To be looked for there."""
    result_type: str = ""
    """The type of the result of `happened`, as in TypeScript; empty if the connector is not there."""
    result_example: Json = ""
    """A result that fits, to show the shape: its values are made up."""


class ResultRefused(ValueError):
    """The result that a person gives is not what the call returns. Nothing was written.

    `path` says where in it (`rows[2].id`, or empty), `problem` what is wrong; `expected` is the type that it has to
    have, as in TypeScript, and `example` JSON that has it. Both are empty if the type is unknown here.
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
