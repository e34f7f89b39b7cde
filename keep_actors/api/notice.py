"""A message for a sink: one thing about one matter, with an id that stays the same however often it is sent."""

import msgspec

from keep_storage import model
from keep_storage.ids import Millis
from keep_storage.model import NoticeKind, Says


class Notice(msgspec.Struct, frozen=True):
    """A matter that needs a person, or does not any more. Parameters and results of calls are never in it."""

    id: str
    """The id of this message, the same at every attempt: drop a message whose id you have seen."""
    says: Says
    """`needs_person`, or `settled`."""
    matter: str
    """The id that both messages about one matter share."""
    kind: NoticeKind
    workflow_id: str
    workflow: str
    """The name that the script declares."""
    run_id: str | None
    about: str
    """The approval, the mutation (of an unknown outcome), the proposed version or the run; empty if it is about the
    workflow as a whole."""
    call: str
    """The external call that it is about, `connector.method`; empty if it is about none."""
    words: str
    """A description of the matter. May quote what a script, a service or a maintainer said: not to be trusted."""
    can_do: str
    opened_at: Millis
    settled_at: Millis | None
    """Also in `needs_person`, when that is delivered so late that the matter is settled."""
    outcome: str
    """The way it was settled and by whom, if that is known."""


def notice_of(row: model.NoticeRow, workflow: str, says: Says) -> Notice:
    """The message about a matter."""
    return Notice(
        id=f"{row.id}-{says}",
        says=says,
        matter=row.id,
        kind=row.kind,
        workflow_id=row.workflow_id,
        workflow=workflow,
        run_id=row.run_id,
        about=row.about,
        call=row.call,
        words=row.words,
        can_do=row.can_do,
        opened_at=row.opened_at,
        settled_at=row.settled_at,
        outcome=row.outcome,
    )
