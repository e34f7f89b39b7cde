"""The settings: what they allow, what they refuse, and how long is waited."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keep_actors.policy import Backoff, Policy

NOW = 1_700_000_000_000


@given(failures=st.integers(1, 10_000), seed=st.integers())
def test_a_wait_is_at_least_the_plain_one_and_never_much_above_the_cap(failures: int, seed: int) -> None:
    backoff = Backoff(first_ms=10, cap_ms=1000, jitter=0.5)
    delay = backoff.delay_ms(failures, random.Random(seed))
    assert min(10 * 2 ** min(failures - 1, 50), 1000) <= delay <= 1500


def test_without_jitter_a_wait_doubles_until_its_cap() -> None:
    backoff = Backoff(first_ms=10_000, cap_ms=60_000, jitter=0)
    assert [backoff.delay_ms(n, random.Random(0)) for n in range(1, 6)] == [10_000, 20_000, 40_000, 60_000, 60_000]


@given(wanted=st.integers(-(2**60), 2**60))
def test_a_wake_is_always_inside_its_window(wanted: int) -> None:
    policy = Policy()
    assert NOW + 30_000 <= policy.wake_at(wanted, NOW) <= NOW + 86_400_000


def test_a_wake_inside_the_window_is_taken_as_it_is() -> None:
    assert Policy().wake_at(NOW + 3_600_000, NOW) == NOW + 3_600_000


@pytest.mark.parametrize(
    ("timeouts", "own_ms", "expected"),
    [
        ({}, None, 60_000),
        ({}, 5, 5),
        ({"gmail": 7}, 5, 7),
        ({"gmail": 7, "gmail.send": 9}, 5, 9),
        ({"gmail.sendDraft": 9}, 5, 5),
    ],
)
def test_a_timeout_is_said_by_method_then_connector_then_the_method_itself(
    timeouts: dict[str, int], own_ms: int | None, expected: int
) -> None:
    assert Policy(timeouts=timeouts).timeout_ms("gmail.send", own_ms, is_mutation=True) == expected


def test_a_read_has_a_default_timeout_of_its_own() -> None:
    assert Policy(read_timeout_ms=3).timeout_ms("gmail.search", None, is_mutation=False) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Policy(wake_after_min_ms=0),
        lambda: Policy(wake_after_min_ms=10, wake_after_max_ms=9),
        lambda: Policy(read_timeout_ms=0),
        lambda: Policy(timeouts={"gmail": 0}),
        lambda: Backoff(first_ms=0),
        lambda: Backoff(first_ms=10, cap_ms=9),
        lambda: Backoff(attempts_max=0),
        lambda: Backoff(jitter=2),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: object) -> None:
    assert callable(wrong)
    with pytest.raises(ValueError, match=r"must wait|must be > 0"):
        wrong()
