"""What the ledger learns from a connector that was asked about an unknown outcome. Pure.

The connector is asked again, later and later; then a person. A check that fails, hangs or raises counts like any other.
"""

import random
from typing import Final, assert_never

from keep_actors.connectors import Applied, NotApplied, Retry, Verdict
from keep_actors.connectors.outcomes import TooEarly
from keep_actors.policy import Policy
from keep_storage.ids import Millis
from keep_storage.model import Mutation, MutationStatus, Resolver
from keep_storage.operations import ApplyMutation, FailMutation, Together, UpdateMutationStatus

NO_CONNECTOR: Final = "cannot be asked: this runtime has no connector that could"
"""What the ledger says of a call whose connector was not there."""

Learned = ApplyMutation | FailMutation | UpdateMutationStatus


def learned(mutation: Mutation, verdict: Verdict, policy: Policy, now: Millis, rng: random.Random) -> Learned:
    """What the ledger learns from an answer. Who cannot tell is asked again, later and later, and not for ever."""
    match verdict:
        case Applied():
            return ApplyMutation(mutation.id, verdict.result, Resolver.RECONCILIATION, why="the connector found it")
        case NotApplied():
            words = "It did not happen: the connector looked for it."
            return FailMutation(mutation.id, words, Resolver.RECONCILIATION, why="the connector did not find it")
        case TooEarly():
            return _too_early(mutation, verdict, now)
        case Retry():
            return _not_yet(mutation, verdict, policy, now, rng)
        case _:
            assert_never(verdict)


def _too_early(mutation: Mutation, said: TooEarly, now: Millis) -> UpdateMutationStatus:
    """No check in vain: the next one can tell. A clock that was set, or many short lives of a process, ask nobody."""
    words = f"Mutation outcome uncertain: {said.message}"
    at = now + (said.retry_after_ms or 0)
    return UpdateMutationStatus(mutation.id, MutationStatus.NEEDS_RECONCILE, words, at, counts=False)


def _not_yet(mutation: Mutation, said: Retry, policy: Policy, now: Millis, rng: random.Random) -> UpdateMutationStatus:
    attempts = mutation.reconcile_attempts + 1
    words = f"Mutation outcome uncertain, and check {attempts} could not tell: {said.message or 'no words were left'}"
    # Since it is looked for, which a person can have begin anew; lines of older files know only when it was sent.
    since = mutation.doubted_at or mutation.sent_at or now
    too_long = attempts > 1 and now - since > policy.reconcile_for_ms
    if policy.reconcile.is_used_up(attempts) or too_long:
        return UpdateMutationStatus(mutation.id, MutationStatus.INDETERMINATE, f"{words} A person has to look.")
    wait_ms = max(policy.reconcile.delay_ms(attempts, rng), said.retry_after_ms or 0)
    return UpdateMutationStatus(mutation.id, MutationStatus.NEEDS_RECONCILE, words, now + wait_ms)


def ask_anew(mutation: Mutation, now: Millis) -> Together:
    """Have a call looked into from the first check on: its connector was not there, and is now."""
    why = f"{mutation.connector}.{mutation.method} can be asked again"
    again = UpdateMutationStatus(mutation.id, MutationStatus.NEEDS_RECONCILE, "", now, by="runtime", why=why)
    if mutation.status is MutationStatus.INDETERMINATE:
        return Together((again,))
    # Only a doubt that was given up begins anew, with all of its checks.
    return Together((UpdateMutationStatus(mutation.id, MutationStatus.INDETERMINATE, "", by="runtime", why=why), again))
