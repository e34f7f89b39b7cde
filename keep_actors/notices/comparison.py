"""What people are to be told: the difference between what needs a person now and what they know. Pure.

It asks for no event to have been seen, so none can be missed: whatever was lost between a change and its notice, a
crash for example, is found by the next comparison.
"""

from collections.abc import Iterable

import msgspec

from keep_actors.notices.matters import Matter
from keep_storage.model import NoticeRow


class NoticeChanges(msgspec.Struct, frozen=True):
    """What people do not know yet."""

    opened: list[Matter]
    settled: list[NoticeRow]


def compare(matters: Iterable[Matter], known: Iterable[NoticeRow]) -> NoticeChanges:
    """`known` are the open notices of the workflows that `matters` are about."""
    now = {_key(each): each for each in matters}
    before = {_key(each): each for each in known}
    return NoticeChanges(
        opened=[matter for key, matter in now.items() if key not in before],
        settled=[notice for key, notice in before.items() if key not in now],
    )


def _key(each: Matter | NoticeRow) -> tuple[str, str, str]:
    return each.workflow_id, each.kind, each.about
