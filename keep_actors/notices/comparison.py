"""The notices to send: the difference between the matters that call a person now and the open notices. Pure.

It compares states, not events, so none can be missed: if a crash comes between a change and its notice, the next
comparison finds the difference.
"""

from collections.abc import Iterable

import msgspec

from keep_actors.notices.needs_attention import Matter
from keep_storage.model import NoticeRow


class NoticeChanges(msgspec.Struct, frozen=True):
    """Matters without a notice, and notices without a matter."""

    opened: list[Matter]
    settled: list[NoticeRow]


def compare(matters: Iterable[Matter], known: Iterable[NoticeRow]) -> NoticeChanges:
    """Compare matters with `known`, the open notices of their workflows."""
    now = {_key(each): each for each in matters}
    before = {_key(each): each for each in known}
    return NoticeChanges(
        opened=[matter for key, matter in now.items() if key not in before],
        settled=[notice for key, notice in before.items() if key not in now],
    )


def _key(each: Matter | NoticeRow) -> tuple[str, str, str]:
    return each.workflow_id, each.kind, each.about
