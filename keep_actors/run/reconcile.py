"""Reconciliation, decided: the answer of a connector about an unknown outcome becomes an operation. Pure.

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
"""Written to the ledger when the connector of a call is missing."""

Learned = ApplyMutation | FailMutation | UpdateMutationStatus


def learned(mutation: Mutation, verdict: Verdict, policy: Policy, now: Millis, rng: random.Random) -> Learned:
    """Turn an answer into an operation. A connector that cannot tell is asked again, later and later, up to a limit."""
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
    """An early look counts as no check: the next one can tell. A changed clock or many restarts never ask a person."""
    words = f"Mutation outcome uncertain: {said.message}"
    at = now + (said.retry_after_ms or 0)
    return UpdateMutationStatus(mutation.id, MutationStatus.NEEDS_RECONCILE, words, at, counts=False)


def _not_yet(mutation: Mutation, said: Retry, policy: Policy, now: Millis, rng: random.Random) -> UpdateMutationStatus:
    attempts = mutation.reconcile_attempts + 1
    words = f"Mutation outcome uncertain, and check {attempts} could not tell: {said.message or 'no words were left'}"
    # Counted from the first check, which a person can start again; older files know only when the call was sent.
    since = mutation.doubted_at or mutation.sent_at or now
    too_long = attempts > 1 and now - since > policy.reconcile_for_ms
    if policy.reconcile.is_used_up(attempts) or too_long:
        return UpdateMutationStatus(mutation.id, MutationStatus.INDETERMINATE, f"{words} A person has to look.")
    wait_ms = max(policy.reconcile.delay_ms(attempts, rng), said.retry_after_ms or 0)
    return UpdateMutationStatus(mutation.id, MutationStatus.NEEDS_RECONCILE, words, now + wait_ms)


def ask_again(mutation: Mutation, now: Millis) -> Together:
    """Have a call looked into from the first check on: its connector was not there, and is now."""
    why = f"{mutation.connector}.{mutation.method} can be asked again"
    again = UpdateMutationStatus(mutation.id, MutationStatus.NEEDS_RECONCILE, "", now, by="runtime", why=why)
    if mutation.status is MutationStatus.INDETERMINATE:
        return Together((again,))
    # Only a doubt that was given up starts again, with all of its checks.
    return Together((UpdateMutationStatus(mutation.id, MutationStatus.INDETERMINATE, "", by="runtime", why=why), again))
