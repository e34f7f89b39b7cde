"""Validate a repaired script: compare two declarations and return problems as sentences to act on. Pure.

A repair changes code only. The name, the schedules, subscriptions, publications and grants of a workflow stay the
same; only a person's deployment changes them. All fields are compared, and `HANDLER_MAY_CHANGE` is the closed list of
allowed differences. The static list of used methods misses computed names, so it is no security boundary.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from keep_actors.maintenance.evidence import legible
from keep_actors.text.counted import counted
from keep_sandbox.declaration import PROBLEMS_SHOWN_MAX, Consumer, Declaration, Inspection, Problem, Schedule, Scheduled
from keep_sandbox.outcomes import Place

DeclaredHandler: TypeAlias = Consumer | Scheduled

_KINDS: Final = {"producers": "a producer", "consumers": "a consumer", "jobs": "a job"}
_NAME_CHARS_MAX: Final = 100
_NAMES_SHOWN_MAX: Final = 20


def problems_of(
    old: Declaration, new: Inspection, allowed_methods: Collection[str], *, old_source: str, new_source: str
) -> list[str]:
    """The reasons why the new script may not become the next minor version; empty if it may."""
    found = list(_problems(old, new, allowed_methods, old_source, new_source))
    hidden = len(found) - PROBLEMS_SHOWN_MAX
    return (
        found if hidden <= 0 else [*found[:PROBLEMS_SHOWN_MAX], f"{counted(hidden, 'more problem')}; fix these first."]
    )


def _problems(
    old: Declaration, new: Inspection, allowed_methods: Collection[str], old_source: str, new_source: str
) -> Iterator[str]:
    if _normal(old_source) == _normal(new_source):
        yield "The script is the same as before; change what made it fail."
    yield from map(_sentence, new.problems)
    if new.problem_count > len(new.problems):
        more = counted(new.problem_count - len(new.problems), "more problem")
        yield f"Inspection found {more}; fix the ones above first."
    if new.declaration is None:
        if not new.problems:
            yield "The script does not load; it must `export default Keep.workflow({...})`."
        return
    yield from _changes(old, new.declaration)
    only = f"use only {_listed(sorted(allowed_methods))}" if allowed_methods else "it was granted none, so use none"
    for use in new.uses:
        if use.name not in allowed_methods:
            yield (
                f"At {_at(use.place)}, {_cut(use.handler)} uses `ctx.{_cut(use.name)}`, which this workflow was not "
                f"granted; {only}."
            )


def _normal(source: str) -> str:
    """The source without differences in line ends that an editor, or a model's answer, may cause."""
    return "\n".join(line.rstrip() for line in source.strip().split("\n"))


def _sentence(problem: Problem) -> str:
    where = f"At {_at(problem.place)}: " if problem.place is not None else ""
    return f"{where}{problem.message.rstrip('.')} ({problem.code}); {problem.hint.rstrip('.')}."


def _changes(old: Declaration, new: Declaration) -> Iterator[str]:
    if new.name != old.name:
        yield f"The name is {_quoted(new.name)} now; keep `name: {_quoted(old.name)}`."
    if gone := _without(old.topics, new.topics):
        yield f"The topics no longer have {_listed(gone)}; declare them again."
    if added := _without(new.topics, old.topics):
        yield f"The topics also have {_listed(added)} now; remove them, since a repair adds no topics."
    yield from _handlers_changed(old, new)
    for group in _KINDS:
        before, after = getattr(old, group), getattr(new, group)
        for name in before:
            if name in after:
                yield from _handler_changed(f"{group}.{_cut(name)}", before[name], after[name], new.topics)
    compared = {"name", "topics", *_KINDS}
    for field in _differing(old, new):
        if field not in compared:
            yield _kept("The workflow", field, old, new)


def _handlers_changed(old: Declaration, new: Declaration) -> Iterator[str]:
    """Report handlers that were added, removed or moved: a handler's name is the key of its state."""
    before, after = _handlers(old), _handlers(new)
    replaced: set[tuple[str, str]] = set()
    for group, name in before:
        if (group, name) in after:
            continue
        elsewhere = [(other, name) for other in _KINDS if (other, name) in after and (other, name) not in before]
        replaced.update(elsewhere)
        if elsewhere:
            yield (
                f"{_quoted(name)} is {_KINDS[elsewhere[0][0]]} now and was {_KINDS[group]}; move it back to `{group}`."
            )
        else:
            yield f"{group}.{_cut(name)} is missing; a repair keeps every handler."
    for group, name in after:
        if (group, name) not in before and (group, name) not in replaced:
            yield f"{group}.{_cut(name)} is new; remove it, since a repair adds no handlers."


def _handlers(declaration: Declaration) -> list[tuple[str, str]]:
    return [
        *(("producers", name) for name in declaration.producers),
        *(("consumers", name) for name in declaration.consumers),
        *(("jobs", name) for name in declaration.jobs),
    ]


def _handler_changed(handler: str, old: DeclaredHandler, new: DeclaredHandler, topics: list[str]) -> Iterator[str]:
    """Compare all fields: a difference is refused unless a rule allows it."""
    for field in _differing(old, new):
        rule = HANDLER_MAY_CHANGE.get((type(new), field))
        if rule is None or not rule(getattr(old, field), getattr(new, field), topics):
            yield _changed_words(handler, field, old, new, topics)


def _differing(old: msgspec.Struct, new: msgspec.Struct) -> Iterator[str]:
    """The fields in which two structs differ, including those that only one of them has."""
    nothing = object()
    for field in dict.fromkeys((*new.__struct_fields__, *old.__struct_fields__)):
        if getattr(old, field, nothing) != getattr(new, field, nothing):
            yield field


def _changed_words(handler: str, field: str, old: DeclaredHandler, new: DeclaredHandler, topics: list[str]) -> str:
    """The problem of a changed field, with what to do."""
    match field, old, new:
        case "subscribe", Consumer(), Consumer():
            now, before = _listed(new.subscribe), _listed(old.subscribe)
            return f"{handler} subscribes to {now} now; keep `subscribe` at {before}."
        case "publishes", _, _:
            return _publishes_widened(handler, old.publishes, new.publishes, topics)
        case "ordering_key", Consumer(), Consumer():
            return (
                f"The `orderingKey` of {handler} is {_quoted(new.ordering_key)} now and was "
                f"{_quoted(old.ordering_key)}; keep it, since it orders calls whose outcome is unknown."
            )
        case (("mutate" | "next"), Consumer(), Consumer()):
            return f"{handler} has no `{field}` any more; a repair keeps every phase."
        case "schedule", Scheduled(), Scheduled():
            return f"The schedule of {handler} is {_when(new.schedule)} now; keep it at {_when(old.schedule)}."
    return _kept(handler, field, old, new)


def _kept(where: str, field: str, old: msgspec.Struct, new: msgspec.Struct) -> str:
    now, before = (_cut(repr(getattr(each, field, None))) for each in (new, old))
    return f"{where} has another `{_cut(field)}`: {now}; keep it at {before}, since a repair changes code only."


def _publishes_widened(handler: str, old: list[str] | None, new: list[str] | None, topics: list[str]) -> str:
    added = _listed(_without(topics if new is None else new, old or []))
    what = "has no `publishes` any more, so it may also publish" if new is None else "may also publish"
    return f"{handler} {what} to {added}; keep `publishes` at {_listed(old or [])}."


def _is_no_wider(old: list[str] | None, new: list[str] | None, topics: list[str]) -> bool:
    # Without `publishes` a handler may publish to every topic, and a repair adds no topics.
    return old is None or not _without(topics if new is None else new, old)


def _is_reordered(old: list[str], new: list[str], _: list[str]) -> bool:
    return set(old) == set(new)


def _is_added(old: bool, new: bool, _: list[str]) -> bool:
    return new and not old


HANDLER_MAY_CHANGE: Final[Mapping[tuple[type[DeclaredHandler], str], Callable[[Any, Any, list[str]], bool]]] = {
    (Scheduled, "publishes"): _is_no_wider,
    (Consumer, "publishes"): _is_no_wider,
    (Consumer, "subscribe"): _is_reordered,
    (Consumer, "mutate"): _is_added,
    (Consumer, "next"): _is_added,
}
"""The changes that a repair may make in a handler's declaration. Not `orderingKey`: the order of one customer's calls
would be lost while the outcome of one of them is unknown."""


def _when(schedule: Schedule | None) -> str:
    if schedule is None:
        return "the default one"
    return f'`{{cron: "{schedule.cron}"}}`' if schedule.cron is not None else f'`{{interval: "{schedule.interval}"}}`'


def _without(names: Iterable[str], others: Collection[str]) -> list[str]:
    return sorted({name for name in names if name not in others})


def _listed(names: Collection[str]) -> str:
    """Quote names that an untrusted script may have chosen, up to a maximum."""
    shown = [_quoted(name) for name in list(names)[:_NAMES_SHOWN_MAX]]
    return ", ".join([*shown, *(["…"] if len(names) > _NAMES_SHOWN_MAX else [])]) or "none"


def _quoted(name: str | None) -> str:
    return "missing" if name is None else f'"{_cut(name)}"'


def _cut(name: str) -> str:
    return legible(name, _NAME_CHARS_MAX, keep="")


def _at(place: Place) -> str:
    return f"{place.line}:{place.column}"
