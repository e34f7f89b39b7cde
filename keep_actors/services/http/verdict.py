"""The verdict that one answer of a service allows about the effect of a call. Pure.

Only a whole and well-formed answer of status 200, or a status that the operator declared, decides. A field that nothing
has, a further page, a call that the service still works on: nobody can tell yet.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any

from keep_actors.connectors import Applied, NotApplied, Retry, Verdict
from keep_actors.outbound.web import WebReply
from keep_actors.services.http.answers import ABSENT, AnswerUnusable, at, decoded, has_all, is_name, matches, resolved
from keep_actors.services.http.outcomes import said
from keep_actors.services.http.settings import HttpReconcile


class State(Enum):
    """How much is known about the call."""

    ANY = auto()
    ACCEPTED = auto()
    """The service has accepted it, so that its absence proves nothing."""
    POLLED = auto()
    """The answer is from the address that the service named when it accepted the call."""


def verdict_of(reply: WebReply, rules: HttpReconcile, values: Mapping[str, Any], state: State) -> Verdict:
    """Judge an answer. `values` are the parameters and the key, by the names that settings use."""
    if state is not State.POLLED and reply.status in (*rules.applied, *rules.not_applied):
        return Applied() if reply.status in rules.applied else _absent(state)
    if reply.status != 200 or not rules.found:
        return Retry(f"the service answered {said(reply)}")
    try:
        document = decoded(reply)
        candidates = _candidates(document, rules)
    except AnswerUnusable as error:
        return Retry(str(error))
    found = {path: resolved(value, values) for path, value in rules.found.items()}
    if missing := [path for path, value in rules.found.items() if value is not None and found[path] is None]:
        return Retry(f"the call has no value for {missing[0]!r}, so that any other could be taken for it")
    effect = next((each for each in candidates if matches(each, found)), ABSENT)
    if effect is not ABSENT:
        result = at(effect, rules.result)
        return Retry(f"it is there, but has nothing at {rules.result!r}") if result is ABSENT else Applied(result)
    # Elsewhere than at the address of this call, what failed may be another call.
    if state is State.POLLED and rules.failed and any(matches(each, rules.failed) for each in candidates):
        return NotApplied()
    if candidates and not any(has_all(each, found) for each in candidates):
        return Retry(f"nothing in the answer has {' and '.join(map(repr, found))}; check `found`")
    if (strange := _unfiltered(candidates, found, rules)) is not None:
        return Retry(f"others than were asked for are there, by {strange!r}: the query may not be understood")
    if _has_more(document, reply, rules):
        return Retry("it is not on the first page of the answer, and there are more; make the query narrower")
    return _absent(state)


def _absent(state: State) -> Verdict:
    return NotApplied() if state is State.ANY else Retry("the service has accepted it, and not done it yet")


def _candidates(document: Any, rules: HttpReconcile) -> list[Any]:
    found = at(document, rules.items)
    match found:
        case list():
            return found
        case dict():
            return [found]
        case _:
            raise AnswerUnusable(f"the answer has no list and no object at {rules.items!r}")


def _unfiltered(candidates: Sequence[Any], found: Mapping[str, Any], rules: HttpReconcile) -> str | None:
    """The path of a value that the query asked for and an item does not have: what else is there may not be shown."""
    asked = [path for path, value in rules.found.items() if is_name(value) and value in rules.query.values()]
    others = (
        path
        for path in asked
        for each in candidates
        if has_all(each, [path]) and not matches(each, {path: found[path]})
    )
    return next(others, None)


def _has_more(document: Any, reply: WebReply, rules: HttpReconcile) -> bool:
    links = reply.headers.get("link", "").lower()
    if 'rel="next"' in links or "rel=next" in links:
        return True
    more = at(document, rules.more) if rules.more else ABSENT
    return more is not ABSENT and bool(more)
