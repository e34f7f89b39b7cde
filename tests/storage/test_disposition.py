"""Rules 2a-2d and the tables of the execution model, for every state there is.

What is expected is written down here from the specification, in words, and not taken from the library.
"""

from collections.abc import Mapping
from enum import StrEnum
from itertools import product

import pytest

from keep_storage.disposition import Disposition, disposition
from keep_storage.model import EventStatus, MutationOutcome, MutationStatus, Phase, Resolver, RunStatus, WorkflowStatus
from keep_storage.transitions import (
    EVENT_NEXT,
    MAY_SETTLE,
    MUTATION_NEXT,
    PHASE_NEXT,
    POST_MUTATION,
    RUN_STATUS_ERROR,
    SETTLED,
    STATUS_NEXT,
    UNCERTAIN,
    VERDICTS,
    WORKFLOW_NEXT,
)

LEDGER: tuple[MutationStatus | None, ...] = (None, *MutationStatus)
"""What the ledger can say of a run: nothing at all, or where its mutation stands."""

THE_LEDGER_DECIDES = {
    "in_flight": "hold_uncertain",
    "needs_reconcile": "hold_uncertain",
    "indeterminate": "hold_uncertain",
    "pending": "hold_for_approval",
    "applied": "retry_forward",
}
THE_OUTCOME_DECIDES = {
    "success": "retry_forward",
    "skipped": "retry_forward",
    "failure": "release",
    "": "release",
}
"""When there is no mutation, or it failed: a failed one may have been skipped, and only the outcome knows."""


# Disposition.


def test_every_phase_outcome_and_mutation_has_the_disposition_of_the_rules() -> None:
    for phase, outcome, mutation in product(Phase, MutationOutcome, LEDGER):
        if phase is Phase.COMMITTED:
            continue
        expected = THE_LEDGER_DECIDES.get(mutation or "") or THE_OUTCOME_DECIDES[outcome]
        assert disposition(phase, outcome, mutation) == expected, (phase, outcome, mutation)


def test_a_committed_run_has_no_events_to_dispose_of() -> None:
    for outcome, mutation in product(MutationOutcome, LEDGER):
        with pytest.raises(AssertionError):
            disposition(Phase.COMMITTED, outcome, mutation)


def test_an_uncertain_mutation_never_releases_an_event_whatever_the_phase_and_outcome_say() -> None:
    uncertain = (MutationStatus.IN_FLIGHT, MutationStatus.NEEDS_RECONCILE, MutationStatus.INDETERMINATE)
    for phase, outcome, mutation in product(Phase, MutationOutcome, uncertain):
        if phase is not Phase.COMMITTED:
            assert disposition(phase, outcome, mutation) is Disposition.HOLD_UNCERTAIN


def test_an_empty_outcome_in_mutated_or_emitting_is_treated_as_pre_mutation() -> None:
    for phase in (Phase.MUTATED, Phase.EMITTING):
        assert disposition(phase, MutationOutcome.NONE, None) is Disposition.RELEASE


def test_a_recorded_call_that_waits_for_a_person_holds_its_events() -> None:
    assert disposition(Phase.MUTATING, MutationOutcome.NONE, MutationStatus.PENDING) is Disposition.HOLD_FOR_APPROVAL


def test_a_failed_mutation_releases_its_events_and_a_skipped_one_goes_forward() -> None:
    failed = MutationStatus.FAILED
    assert disposition(Phase.MUTATED, MutationOutcome.FAILURE, failed) is Disposition.RELEASE
    assert disposition(Phase.MUTATED, MutationOutcome.SKIPPED, failed) is Disposition.RETRY_FORWARD


def test_an_applied_mutation_never_releases_an_event() -> None:
    for phase, outcome in product(Phase, MutationOutcome):
        if phase is not Phase.COMMITTED:
            assert disposition(phase, outcome, MutationStatus.APPLIED) is Disposition.RETRY_FORWARD


def test_before_its_mutation_a_run_releases_its_events() -> None:
    for phase in (Phase.PENDING, Phase.PREPARING, Phase.PREPARED, Phase.MUTATING):
        assert disposition(phase, MutationOutcome.NONE, None) is Disposition.RELEASE


# The tables.


@pytest.mark.parametrize(
    ("table", "states"),
    [
        (PHASE_NEXT, Phase),
        (STATUS_NEXT, RunStatus),
        (RUN_STATUS_ERROR, RunStatus),
        (MUTATION_NEXT, MutationStatus),
        (EVENT_NEXT, EventStatus),
        (WORKFLOW_NEXT, WorkflowStatus),
    ],
)
def test_every_state_has_a_row(table: Mapping[StrEnum, object], states: type[StrEnum]) -> None:
    assert set(table) == set(states)


def test_phases_never_go_back_and_never_stand_still() -> None:
    order = list(Phase)
    for phase, following in PHASE_NEXT.items():
        assert all(order.index(each) > order.index(phase) for each in following)


def test_a_phase_is_followed_by_the_next_one_and_only_prepared_may_leave_out_the_mutation() -> None:
    order = list(Phase)
    for phase, following in PHASE_NEXT.items():
        expected = set(order[order.index(phase) + 1 :][:1])
        if phase is Phase.PREPARED:
            expected.add(Phase.EMITTING)
        assert following == expected


def test_a_run_commits_only_from_emitting() -> None:
    assert [phase for phase, following in PHASE_NEXT.items() if Phase.COMMITTED in following] == [Phase.EMITTING]


def test_only_an_active_run_stops_and_a_stopped_one_is_never_resumed() -> None:
    for status, following in STATUS_NEXT.items():
        assert RunStatus.ACTIVE not in following
        if status is RunStatus.ACTIVE:
            assert following == set(RunStatus) - {RunStatus.ACTIVE}
        elif status is RunStatus.PAUSED_APPROVAL:
            assert following == {RunStatus.PAUSED_RECONCILIATION}, "an approved call can turn out unknown"
        else:
            assert not following


def test_only_what_needs_a_person_sets_the_workflow_error() -> None:
    loud = {RunStatus.PAUSED_APPROVAL, RunStatus.PAUSED_RECONCILIATION, RunStatus.FAILED_INTERNAL}
    assert {status for status, words in RUN_STATUS_ERROR.items() if words} == loud


def test_an_applied_mutation_is_the_end() -> None:
    assert not MUTATION_NEXT[MutationStatus.APPLIED]


def test_a_failed_mutation_is_at_most_attempted_again_and_never_becomes_applied_by_itself() -> None:
    assert MUTATION_NEXT[MutationStatus.FAILED] == {MutationStatus.PENDING, MutationStatus.IN_FLIGHT}


def test_nobody_may_settle_what_is_settled() -> None:
    assert set(MAY_SETTLE) == set(MutationOutcome) - {MutationOutcome.NONE}
    for rows in MAY_SETTLE.values():
        assert not set(rows) & SETTLED


def test_a_call_that_was_never_sent_cannot_have_been_applied() -> None:
    assert MUTATION_NEXT[MutationStatus.PENDING] == {MutationStatus.IN_FLIGHT, MutationStatus.FAILED}


def test_doubt_is_left_only_by_knowing_or_by_doubting_on() -> None:
    doubt = {MutationStatus.IN_FLIGHT, MutationStatus.NEEDS_RECONCILE, MutationStatus.INDETERMINATE}
    assert doubt == UNCERTAIN
    for status in doubt:
        assert MUTATION_NEXT[status] <= (doubt - {MutationStatus.IN_FLIGHT}) | SETTLED
        assert MUTATION_NEXT[status] >= SETTLED


def test_every_mutation_status_is_unsent_or_in_doubt_or_settled() -> None:
    assert {MutationStatus.PENDING} | UNCERTAIN | SETTLED == set(MutationStatus)
    assert not UNCERTAIN & SETTLED


VERDICT = {
    MutationOutcome.SUCCESS: Resolver.USER_ASSERT_APPLIED,
    MutationOutcome.FAILURE: Resolver.USER_ASSERT_FAILED,
    MutationOutcome.SKIPPED: Resolver.USER_SKIP,
}


@pytest.mark.parametrize("outcome", VERDICT)
def test_a_doubt_is_settled_by_people_only_once_the_call_has_ended(outcome: MutationOutcome) -> None:
    rows, verdict = MAY_SETTLE[outcome], {VERDICT[outcome]}
    assert not rows.get(MutationStatus.IN_FLIGHT, frozenset()) & VERDICTS
    assert rows[MutationStatus.NEEDS_RECONCILE] & VERDICTS == verdict
    assert rows[MutationStatus.INDETERMINATE] == verdict, "machines have given up"


def test_a_verdict_says_one_thing_only() -> None:
    assert set(VERDICT.values()) == VERDICTS
    for outcome, rows in MAY_SETTLE.items():
        assert {who for may in rows.values() for who in may & VERDICTS} == {VERDICT[outcome]}


def test_an_approval_decides_only_about_a_call_that_was_never_sent() -> None:
    for outcome, rows in MAY_SETTLE.items():
        for status, who in rows.items():
            decides = bool(who & {Resolver.APPROVAL_REJECTED, Resolver.APPROVAL_EXPIRED})
            assert decides == (status is MutationStatus.PENDING and outcome is not MutationOutcome.SUCCESS)


def test_only_forward_after_success_and_after_a_skip() -> None:
    assert {MutationOutcome.SUCCESS, MutationOutcome.SKIPPED} == POST_MUTATION


def test_a_finished_event_never_changes_and_only_a_reserved_one_is_consumed() -> None:
    assert dict(EVENT_NEXT) == {
        EventStatus.PENDING: {EventStatus.RESERVED, EventStatus.SKIPPED},
        EventStatus.RESERVED: {EventStatus.PENDING, EventStatus.CONSUMED, EventStatus.SKIPPED},
        EventStatus.CONSUMED: set(),
        EventStatus.SKIPPED: set(),
    }


def test_an_archived_workflow_comes_back_paused_or_as_the_draft_that_it_was() -> None:
    assert WORKFLOW_NEXT[WorkflowStatus.ARCHIVED] == {WorkflowStatus.PAUSED, WorkflowStatus.DRAFT}
    for status, following in WORKFLOW_NEXT.items():
        assert (WorkflowStatus.DRAFT in following) == (status is WorkflowStatus.ARCHIVED)
        assert (WorkflowStatus.ARCHIVED in following) == (status is not WorkflowStatus.ARCHIVED)


def test_a_workflow_is_paused_and_resumed_and_runs_only_with_a_script() -> None:
    assert WorkflowStatus.PAUSED in WORKFLOW_NEXT[WorkflowStatus.ACTIVE]
    active_after = {status for status, following in WORKFLOW_NEXT.items() if WorkflowStatus.ACTIVE in following}
    assert active_after == {WorkflowStatus.READY, WorkflowStatus.PAUSED}
