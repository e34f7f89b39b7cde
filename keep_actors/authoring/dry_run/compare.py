"""Two scripts on the same events: which calls stay, change, go or come. Pure."""

from typing import Literal, TypeAlias

import msgspec

from keep_actors.authoring.dry_run.report import EventRef, Rehearsal, Simulated, WantedCall

DifferenceKind: TypeAlias = Literal["same", "changed", "only old", "only new"]


class Difference(msgspec.Struct, frozen=True):
    """The calls of two scripts for the same events."""

    kind: DifferenceKind
    handler: str
    events: list[EventRef]
    old: WantedCall | None
    new: WantedCall | None


def compare(old: Rehearsal, new: Rehearsal) -> list[Difference]:
    """By the events that the calls came from, in the order of the old script's runs, then of the new one's."""
    before, after = _by_events(old), _by_events(new)
    found: list[Difference] = []
    for key in dict.fromkeys([*before, *after]):
        was, will = before.get(key), after.get(key)
        run = will or was
        assert run is not None, "a key comes from a run"
        old_call, new_call = was.wants if was else None, will.wants if will else None
        if old_call is not None or new_call is not None:
            found.append(Difference(_kind(old_call, new_call), run.handler, run.events, old_call, new_call))
    return found


def _by_events(rehearsal: Rehearsal) -> dict[frozenset[tuple[str, str]], Simulated]:
    """A run that failed is no answer to what would be called, and is shown as what it is."""
    runs = (run for run in rehearsal.runs if run.events and run.failure is None)
    return {frozenset((event.topic, event.message_id) for event in run.events): run for run in runs}


def _kind(old: WantedCall | None, new: WantedCall | None) -> DifferenceKind:
    if old is None:
        return "only new"
    if new is None:
        return "only old"
    is_same = old.call == new.call and _canonical(old.params) == _canonical(new.params)
    return "same" if is_same else "changed"


def _canonical(params: msgspec.Raw) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(params), order="sorted")
