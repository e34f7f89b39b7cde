"""Which worker gets a call, which scripts it holds, whose turn it is: without processes."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keep_actors.sandbox_pool import PoolPolicy
from keep_actors.sandbox_pool.placement import SLOW_S, Candidate, Shelf, Turns, choose, group_of
from keep_actors.sandbox_pool.policy import Sharing


def worker(turns: int = 0, *, computing_s: float = 0.0, calls: int = 0, scripts: int = 0, ran_at: int = 0) -> Candidate:
    return Candidate(turns, computing_s, calls, scripts, ran_at)


def test_a_call_goes_where_its_script_ran_last() -> None:
    assert choose([worker(ran_at=1), worker(ran_at=2), worker()], can_start=False) == 1
    assert choose([worker(turns=1, ran_at=1), worker()], can_start=False) == 0


def test_a_call_leaves_a_worker_that_has_much_more_to_do() -> None:
    assert choose([worker(turns=2, ran_at=1), worker()], can_start=False) == 1
    assert choose([worker(turns=3, ran_at=1), worker(turns=2)], can_start=False) == 0


def test_a_call_is_not_put_behind_a_turn_that_takes_long() -> None:
    busy = worker(turns=1, computing_s=2 * SLOW_S, ran_at=1)
    assert choose([busy, worker(turns=1)], can_start=False) == 1
    assert choose([busy, worker(turns=3)], can_start=False) == 0


def test_a_script_that_is_new_goes_to_the_worker_with_the_least_to_do() -> None:
    assert choose([worker(turns=1), worker()], can_start=False) == 1
    assert choose([worker(calls=3), worker(calls=2)], can_start=False) == 1
    assert choose([worker(scripts=3), worker(scripts=2)], can_start=False) == 1


def test_another_worker_is_started_only_if_all_compute() -> None:
    assert choose([], can_start=True) is None
    assert choose([worker(turns=1), worker(turns=1)], can_start=True) is None
    assert choose([worker(turns=1), worker()], can_start=True) == 1
    assert choose([worker(turns=1)], can_start=False) == 0
    # One that has run the script is waited for, unless it has much to do.
    assert choose([worker(turns=1, ran_at=1)], can_start=True) == 0
    assert choose([worker(turns=2, ran_at=1)], can_start=True) is None


@given(
    st.lists(
        st.builds(
            Candidate, st.integers(0, 4), st.sampled_from([0.0, 1.0]), st.integers(0, 9), st.just(0), st.integers(0, 3)
        ),
        max_size=4,
    ),
    st.booleans(),
)
def test_no_call_waits_for_much_more_work_than_it_must(workers: list[Candidate], can_start: bool) -> None:
    chosen = choose(workers, can_start=can_start)
    if chosen is None:
        assert can_start or not workers
    else:
        least = 0 if can_start else min(each.load for each in workers)
        assert workers[chosen].load <= least + 1


@pytest.mark.parametrize(
    ("sharing", "meet"),
    [
        ("all", {("w", "s", "ann"), ("v", "t", "ann"), ("w", "t", "ann"), ("w", "s", "bob")}),
        ("owner", {("w", "s", "ann"), ("v", "t", "ann"), ("w", "t", "ann")}),
        ("none", {("w", "s", "ann")}),
    ],
)
def test_calls_that_may_meet_in_a_process(sharing: Sharing, meet: set[tuple[str, str, str]]) -> None:
    mine = group_of(sharing, "ann", "w", "s")
    everyone = set(product("wv", "st", ("ann", "bob")))
    found = {each for each in everyone if group_of(sharing, each[2], each[0], each[1]) == mine}
    assert meet <= found
    assert sharing == "all" or all(owner == "ann" or sharing == "none" for _, _, owner in found)
    assert len(found) == {"all": 8, "owner": 4, "none": 2}[sharing]


def test_a_policy_is_refused_with_words() -> None:
    with pytest.raises(ValueError, match=r'"owner", "all" or "none", not .some.'):
        PoolPolicy(sharing="some")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="workers is 0; it must be at least 1"):
        PoolPolicy(workers=0)
    assert PoolPolicy(workers=7).workers_max == 7
    assert PoolPolicy(workers=7, sharing="none").workers_max == 1


def test_a_script_is_sent_once_and_forgotten_when_others_need_the_room() -> None:
    shelf = Shelf(10)
    assert shelf.take("aaaa", 1) == (1, True, [])
    assert shelf.take("bbbb", 2) == (2, True, [])
    assert shelf.take("aaaa", 3) == (1, False, [])
    # The one that ran least recently goes first, though it came last.
    assert shelf.take("cccc", 4) == (3, True, [2])
    assert (shelf.ran_at("aaaa"), shelf.ran_at("bbbb"), len(shelf)) == (3, 0, 2)
    # One that is too large for the shelf is held alone.
    assert shelf.take("d" * 11, 5) == (4, True, [1, 3])
    assert shelf.take("aaaa", 6) == (5, True, [4])


def test_a_script_that_cannot_be_sent_is_not_held() -> None:
    shelf = Shelf(100)
    with pytest.raises(UnicodeEncodeError):
        shelf.take("\ud800", 1)
    assert shelf.take("a", 2) == (1, True, [])


@given(st.lists(st.text("abé", min_size=1, max_size=6), max_size=40))
def test_a_worker_that_obeys_holds_what_the_host_believes(scripts: list[str]) -> None:
    shelf = Shelf(12)
    held: dict[int, str] = {}
    for now, source in enumerate(scripts, 1):
        number, is_new, forgotten = shelf.take(source, now)
        for each in forgotten:
            del held[each]
        if is_new:
            assert number not in held
            held[number] = source
        assert held[number] == source
        assert sum(len(each.encode()) for each in held.values()) <= 12
        assert len(shelf) == len(held)


def test_only_the_oldest_turn_computes_and_only_its_time_counts() -> None:
    turns = Turns()
    turns.begin(1, 10.0)
    turns.begin(2, 11.0)
    assert (turns.computing, turns.since) == (1, 10.0)
    assert turns.end(14.0, is_over=False) == 4.0
    assert (turns.computing, turns.since) == (2, 14.0)
    assert turns.end(15.0, is_over=False) == 1.0
    assert turns.computing is None
    turns.begin(1, 20.0)
    assert turns.since == 20.0


def test_when_a_call_is_over_its_other_turns_are_too() -> None:
    turns = Turns()
    for call in (1, 2, 1):
        turns.begin(call, 0.0)
    turns.end(1.0, is_over=True)
    assert (turns.computing, len(turns), turns.owes(1)) == (2, 1, False)
