"""`certify`: a right connector holds every row, and each wrong one fails in exactly those that are about its fault."""

import logging
from collections.abc import Collection, Iterator, Mapping

import anyio
import pytest

from keep_actors.testing.certification import Certification, CertificationRow, RowOutcome, certify
from tests.testing.certification import naive, naive_looks, naive_shop, naive_subjects, till

AT_ONCE = 3

IN_PROCESS = [row for row in CertificationRow if not row.startswith("killed-")]
"""The rows without SIGKILL. Those with it have a table of their own below."""

LOST = {"lost-answer", "half-answer"}
UNANSWERED = {"no-answer", "own-timeout"}
BLIND = {"slow-reconcile", "failing-reconcile"}

FAILS: Mapping[type[Certification], Collection[str]] = {
    till.TillCertification: (),
    naive.AsksCertification: (),
    naive_looks.NotesFirstCertification: (),
    naive_looks.RepeatsCertification: (),
    naive.TransientAlwaysCertification: {*LOST, "own-timeout"},
    naive.TransientWhenLateCertification: {"own-timeout"},
    naive.HalfIsARefusalCertification: {"half-answer"},
    naive.NeverSendingCertification: {*LOST, *UNANSWERED, "late-commit", "cancelled", "too-late"},
    naive.SendingTooLateCertification: {"too-late"},
    naive.SendsAllTheSameCertification: {"too-late"},
    naive.SendsAgainCertification: LOST,
    naive.SendsAgainWhenLateCertification: {*UNANSWERED, "slow-answer", "late-commit"},
    naive.NoKeysCertification: {"duplicate", "repeated"},
    naive.NewKeysCertification: {"found", "repeated"},
    naive_looks.NeverFindsCertification: {*LOST, *UNANSWERED, "late-commit", "cancelled", "found", *BLIND},
    naive_looks.FindsAlwaysCertification: {
        "lost-request",
        "cut-in-the-middle",
        "cancelled",
        "never-made",
        "anothers",
        *BLIND,
    },
    naive_looks.FindsContentCertification: {"anothers"},
    naive_looks.FindsShortKeysCertification: {"anothers", "never-made"},
    naive_looks.FindsAnotherResultCertification: {"found"},
    naive_looks.NotAppliedOnErrorsCertification: BLIND,
    naive_looks.NoSettleCertification: {"late-commit"},
    naive_looks.RepeatsInSecretCertification: {"anothers", "never-made"},
    naive_looks.RepeatsWithoutKeysCertification: {*LOST, *UNANSWERED, "late-commit", "cancelled"},
    naive_looks.NotesLateCertification: {*LOST, *UNANSWERED, "late-commit", "cancelled"},
    naive_looks.TrustsItsNoteCertification: {"lost-request", "cut-in-the-middle", "cancelled"},
    naive.SwallowsCancellationCertification: {"late-commit", "cancelled"},
    naive.ShieldsItselfCertification: {*UNANSWERED, "late-commit", "cancelled"},
    naive.SharesStateCertification: {"concurrent"},
    naive.NeverReconnectsCertification: {"refused", "cancelled", "too-late", *BLIND},
    naive_shop.NaiveShopCertification: {*LOST, "own-timeout", "late-commit", "anothers", "repeated"},
}
"""The rows that each fails, and no others. Without a row: the connector is right."""

MAY_FAIL: Mapping[type[Certification], Collection[str]] = {
    # Late is what a slow machine makes of any answer.
    naive.SendsAgainWhenLateCertification: IN_PROCESS,
    # Cancelled halfway, which is no exact moment: the request may be on its way then, and is not waited for.
    naive_looks.NoSettleCertification: {"cancelled"},
    naive.SendingTooLateCertification: {"cancelled"},
    naive_shop.NaiveShopCertification: {"cancelled"},
}

KILLED: Mapping[type[Certification], Mapping[str, str]] = {
    naive_looks.NotesFirstCertification: {"killed-noted": "held", "killed-answer": "held"},
    naive_looks.NotesLateCertification: {"killed-noted": "held", "killed-answer": "failed"},
    naive_looks.TrustsItsNoteCertification: {"killed-noted": "failed", "killed-answer": "held"},
    naive.NewKeysCertification: {"killed-noted": "does not apply", "killed-answered": "failed"},
    naive_looks.NeverFindsCertification: {"killed-request": "failed", "killed-checked": "failed"},
    naive_looks.FindsAlwaysCertification: {"killed-recorded": "failed", "killed-answered": "held"},
    naive.NeverSendingCertification: {"killed-sending": "failed", "killed-answered": "held"},
    naive.AsksCertification: {"killed-answered": "held", "killed-check": "does not apply"},
}
"""The outcomes of rows with SIGKILL, for connectors about which they say something."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Do not log the errors of wrong connectors, which are expected."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


async def failed_rows(subjects: Collection[type[Certification]]) -> dict[type[Certification], set[str]]:
    """Certify some at once: most of the time a certification waits."""
    failed: dict[type[Certification], set[str]] = {}
    places = anyio.CapacityLimiter(AT_ONCE)

    async def one(subject: type[Certification]) -> None:
        async with places:
            table = await certify(subject(), only=IN_PROCESS)
        assert {each.row for each in table.results} == set(IN_PROCESS)
        failed[subject] = {str(each.row) for each in table.failed}

    async with anyio.create_task_group() as tasks:
        for subject in subjects:
            tasks.start_soon(one, subject)
    return failed


@pytest.mark.anyio
async def test_each_wrong_connector_fails_with_exactly_the_rows_that_are_about_its_fault() -> None:
    failed = await failed_rows(FAILS)
    surely = {each: rows - set(MAY_FAIL.get(each, ())) | set(FAILS[each]) & rows for each, rows in failed.items()}
    assert surely == {each: set(rows) for each, rows in FAILS.items()}


@pytest.mark.anyio
async def test_a_right_connector_holds_every_row_and_none_is_left_out() -> None:
    table = await certify(till.TillCertification())
    assert [each.row for each in table.results] == list(CertificationRow)
    outcomes = {each.row: each.outcome for each in table.results}
    assert outcomes.pop(CertificationRow.KILLED_NOTED) is RowOutcome.DOES_NOT_APPLY
    assert set(outcomes.values()) == {RowOutcome.HELD}, table


@pytest.mark.parametrize(("place", "subject"), list(enumerate(KILLED)), ids=lambda each: getattr(each, "__name__", ""))
def test_rows_of_sigkill_fail_for_connectors_that_know_less_after_it(place: int, subject: type[Certification]) -> None:
    expected = KILLED[subject]

    async def run() -> dict[str, str]:
        table = await certify(subject(), only=[CertificationRow(row) for row in expected])
        return {str(each.row): str(each.outcome) for each in table.results}

    assert anyio.run(run, backend=("asyncio", "trio")[place % 2]) == expected


@pytest.mark.parametrize(
    ("subject", "backend"), [(naive.BlocksCertification, "trio"), (naive_shop.BlockingShopCertification, "asyncio")]
)
def test_a_connector_that_blocks_the_event_loop_is_told_so_and_the_suite_ends(
    subject: type[Certification], backend: str
) -> None:
    table = anyio.run(certify, subject(), backend=backend)
    [only] = table.results
    assert only.row is CertificationRow.PLAIN
    assert only.outcome is RowOutcome.FAILED
    assert "the event loop stood still" in only.seen


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("subject", "row", "words"),
    [
        (naive_subjects.ForgetsCertification, "plain", "it happened, and there are 0 effects"),
        (naive_subjects.HangsCertification, "plain", "it was not over after 0.5 s"),
        (naive_subjects.SharesEffectsCertification, "plain", "two examples are the same"),
        (naive_subjects.MisspelledCertification, "lost-request", "it happened without the decisive bytes b'PUT '"),
        (naive_subjects.MisspelledCertification, "duplicate", "no connection had the decisive bytes b'PUT '"),
        (naive_looks.RepeatsInSecretCertification, "never-made", "set `reconcile_repeats`"),
    ],
)
async def test_a_subject_that_is_wrong_is_told_what_to_correct(
    subject: type[Certification], row: str, words: str
) -> None:
    table = await certify(subject(), only=[CertificationRow(row)])
    [failed] = table.failed
    assert failed.row == row
    assert words in failed.seen


@pytest.mark.anyio
async def test_nothing_else_is_tried_when_a_plain_call_does_not_work() -> None:
    table = await certify(naive_subjects.ForgetsCertification())
    assert [each.row for each in table.results] == [CertificationRow.PLAIN]


@pytest.mark.anyio
async def test_a_service_that_does_not_start_raises_its_own_error() -> None:
    with pytest.raises(ConnectionRefusedError, match="closed today"):
        await certify(naive_subjects.DoesNotStartCertification())


@pytest.mark.anyio
async def test_a_connector_without_a_mutation_cannot_be_certified() -> None:
    with pytest.raises(ValueError, match="till has no mutation: there is nothing to certify"):
        await certify(naive_subjects.ReadsOnlyCertification())


@pytest.mark.anyio
async def test_a_subject_that_makes_another_connector_is_refused() -> None:
    with pytest.raises(ValueError, match="TillCertification makes a TillConnector, no ReadsOnly"):
        await certify(till.TillCertification(), connector_class=naive_subjects.ReadsOnly)


@pytest.mark.anyio
async def test_results_are_told_as_they_come_and_only_those_that_were_asked_for() -> None:
    told: list[str] = []
    wanted = [CertificationRow.REPEATED, CertificationRow.NEVER_MADE]
    table = await certify(till.TillCertification(), only=wanted, on_row=lambda result: told.append(result.row))
    assert sorted(told) == ["never-made", "repeated"]
    assert [each.row for each in table.results] == ["never-made", "repeated"], "in the order of the table"
