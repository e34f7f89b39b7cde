"""The comparison behind notices: whatever needs a person and whatever people know, afterwards they know what is so."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from keep_actors.notices.comparison import NoticeChanges, compare
from keep_actors.notices.needs_attention import Matter
from keep_storage.model import NoticeKind, NoticeRow

KEYS = st.tuples(st.sampled_from(["wf_1", "wf_2"]), st.sampled_from(NoticeKind), st.sampled_from(["", "a", "b"]))
MATTERS = st.lists(
    st.builds(
        lambda key, words: Matter(key[0], key[1], key[2], None, "", words, ""),
        KEYS,
        st.sampled_from(["it broke", "again"]),
    ),
    max_size=12,
)


def known_of(matter: Matter, number: int) -> NoticeRow:
    """The notice that tells of a matter."""
    return NoticeRow(
        id=f"ntc_{number}",
        workflow_id=matter.workflow_id,
        kind=matter.kind,
        about=matter.about,
        run_id=matter.run_id,
        call=matter.call,
        words=matter.words,
        can_do=matter.can_do,
        opened_at=number,
        settled_at=None,
        outcome="",
    )


NOTICES = MATTERS.map(lambda found: list({key(each): known_of(each, at) for at, each in enumerate(found)}.values()))
"""What people know: one open notice for one matter, as the storage has it."""


def key(each: Matter | NoticeRow) -> tuple[str, str, str]:
    return each.workflow_id, each.kind, each.about


def told(known: list[NoticeRow], difference: NoticeChanges) -> list[NoticeRow]:
    """What people know once they were told."""
    settled = {each.id for each in difference.settled}
    opened = [known_of(each, 1_000 + at) for at, each in enumerate(difference.opened)]
    return [each for each in known if each.id not in settled] + opened


@given(MATTERS, NOTICES)
def test_afterwards_people_know_exactly_what_is_so(now: list[Matter], known: list[NoticeRow]) -> None:
    after = told(known, compare(now, known))
    assert sorted(map(key, after)) == sorted({key(each) for each in now})


@given(MATTERS, NOTICES)
def test_what_they_know_is_not_said_again(now: list[Matter], known: list[NoticeRow]) -> None:
    difference = compare(now, known)
    assert not {key(each) for each in difference.opened} & {key(each) for each in known}
    assert not {key(each) for each in difference.settled} & {key(each) for each in now}
    assert compare(now, told(known, difference)) == NoticeChanges([], [])


@given(MATTERS, NOTICES)
def test_neither_the_order_nor_the_words_decide(now: list[Matter], known: list[NoticeRow]) -> None:
    difference = compare(now, known)
    other = compare([replace(each, words="otherwise") for each in reversed(now)], list(reversed(known)))
    assert {key(each) for each in other.opened} == {key(each) for each in difference.opened}
    assert {each.id for each in other.settled} == {each.id for each in difference.settled}


@given(MATTERS, NOTICES)
def test_a_matter_is_opened_once_and_a_notice_settled_once(now: list[Matter], known: list[NoticeRow]) -> None:
    difference = compare(now, known)
    assert len({key(each) for each in difference.opened}) == len(difference.opened)
    assert len({each.id for each in difference.settled}) == len(difference.settled)
