"""Ids: sortable, prefixed, unique, and never going back, whatever the clock does."""

import random
import re
import threading
from collections.abc import Iterator
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keep_storage.ids import IdKind, Ids

KINDS: tuple[IdKind, ...] = get_args(IdKind)
NOW = 1_700_000_000_000

moments = st.integers(min_value=0, max_value=2**45 - 1)


class Clock:
    """Shows what it is told, and the last moment for ever after."""

    def __init__(self, *moments: int) -> None:
        self._rest: Iterator[int] = iter(moments)
        self._now = 0

    def __call__(self) -> int:
        self._now = next(self._rest, self._now)
        return self._now


def number(identifier: str) -> int:
    return int(identifier.split("_")[1], 32)


@pytest.mark.parametrize("kind", KINDS)
def test_an_id_is_its_prefix_and_a_number_of_fixed_width(kind: IdKind) -> None:
    identifier = Ids(Clock(NOW), random.Random(1)).new(kind)
    assert re.fullmatch(rf"{kind}_[0-9a-v]{{19}}", identifier)


@given(times=st.lists(moments, min_size=2, max_size=20), seed=st.integers())
def test_ids_are_unique_and_sort_as_they_were_made_also_when_the_clock_goes_back(times: list[int], seed: int) -> None:
    ids = Ids(Clock(*times), random.Random(seed))
    made = [ids.new("run") for _ in times]
    assert made == sorted(set(made))


@given(times=st.lists(moments, min_size=2, max_size=20, unique=True), seed=st.integers())
def test_ids_of_different_sources_sort_by_the_time_they_were_made(times: list[int], seed: int) -> None:
    rng = random.Random(seed)
    made = [Ids(Clock(moment), rng).new("run") for moment in sorted(times)]
    assert made == sorted(made)


@given(earlier=st.integers(min_value=0, max_value=2**44 - 1), now=st.integers(min_value=2**40, max_value=2**45 - 1))
def test_ids_of_earlier_versions_sort_before_those_of_now(earlier: int, now: int) -> None:
    """They had the time and a random number in 28 digits to the base 16."""
    assert f"run_{earlier:012x}{2**64 - 1:016x}" < Ids(Clock(now), random.Random(1)).new("run")


def test_many_ids_of_one_millisecond_are_unique_and_sorted() -> None:
    ids = Ids(Clock(NOW), random.Random(1))
    made = [ids.new("evt") for _ in range(10_000)]
    assert made == sorted(set(made))


def test_ids_of_all_kinds_come_from_one_sequence() -> None:
    ids = Ids(Clock(NOW), random.Random(1))
    made = [number(ids.new(kind)) for kind in KINDS * 3]
    assert made == sorted(set(made))


def test_a_clock_that_goes_back_does_not_take_ids_back() -> None:
    ids = Ids(Clock(NOW, NOW - 3_600_000, NOW - 3_600_000, NOW + 1), random.Random(1))
    first, second, third, fourth = (ids.new("run") for _ in range(4))
    assert first < second < third < fourth


def test_an_id_carries_the_time_it_was_made() -> None:
    assert number(Ids(Clock(NOW), random.Random(1)).new("run")) >> 50 == NOW


@given(times=st.lists(moments, min_size=1, max_size=10), seed=st.integers())
def test_the_same_seed_and_the_same_clock_give_the_same_ids(times: list[int], seed: int) -> None:
    one, other = (Ids(Clock(*times), random.Random(seed)) for _ in range(2))
    assert [one.new("run") for _ in times] == [other.new("run") for _ in times]


def test_another_seed_gives_other_ids() -> None:
    assert Ids(Clock(NOW), random.Random(1)).new("run") != Ids(Clock(NOW), random.Random(2)).new("run")


def test_without_a_seed_two_sources_do_not_collide() -> None:
    made = {Ids(Clock(NOW)).new("run") for _ in range(1_000)}
    assert len(made) == 1_000


def test_the_last_moment_of_the_clock_still_fits_the_width() -> None:
    ids = Ids(Clock(2**45 - 1), random.Random(1))
    assert {len(ids.new("run")) for _ in range(1_000)} == {len("run_") + 19}


def test_threads_may_share_a_source() -> None:
    ids = Ids(Clock(NOW), random.Random(1))
    made: list[list[str]] = [[] for _ in range(4)]

    def take(into: list[str]) -> None:
        into.extend(ids.new("run") for _ in range(1_000))

    threads = [threading.Thread(target=take, args=(into,)) for into in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(each == sorted(each) for each in made)
    assert len({identifier for each in made for identifier in each}) == 4_000
