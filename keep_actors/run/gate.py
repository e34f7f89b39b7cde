"""Requests that are allowed in each phase: a closed table. The host asks it on every request.

A refusal ends the invocation, cannot be caught, and is a logic error of the script.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from keep_actors.policy import Policy


class ScriptPhase(StrEnum):
    """The code that is running."""

    PRODUCER = "a producer"
    PREPARE = "`prepare`"
    MUTATE = "`mutate`"
    NEXT = "`next`"
    JOB = "a job"
    ITEM = "an item"


class Ask(StrEnum):
    """Kinds of requests."""

    PEEK = "peek"
    GET_BY_IDS = "getByIds"
    PUBLISH = "publish"
    READ = "read"
    READ_BY_ID = "read by id"
    MUTATION = "mutation"
    ITEM = "withItem"


ALLOWED: Final[Mapping[ScriptPhase, frozenset[Ask]]] = {
    ScriptPhase.PRODUCER: frozenset({Ask.READ, Ask.READ_BY_ID, Ask.PUBLISH}),
    ScriptPhase.PREPARE: frozenset({Ask.READ, Ask.READ_BY_ID, Ask.PEEK, Ask.GET_BY_IDS}),
    ScriptPhase.MUTATE: frozenset({Ask.MUTATION}),
    ScriptPhase.NEXT: frozenset({Ask.PUBLISH}),
    ScriptPhase.JOB: frozenset({Ask.READ, Ask.READ_BY_ID, Ask.PUBLISH, Ask.ITEM}),
    ScriptPhase.ITEM: frozenset({Ask.READ, Ask.READ_BY_ID, Ask.PUBLISH, Ask.MUTATION}),
}

INSTEAD: Final[Mapping[Ask, str]] = {
    Ask.PEEK: "Read topics in `prepare`, and hand what `mutate` and `next` need over in `data`.",
    Ask.GET_BY_IDS: "Read topics in `prepare`, and hand what `mutate` and `next` need over in `data`.",
    Ask.PUBLISH: "Publish from a producer, from a job or from `next`.",
    Ask.READ: "Read in a producer or in `prepare`, and hand what `mutate` and `next` need over in `data`.",
    Ask.READ_BY_ID: "Read in `prepare`, hand it over in `data`; the policy mutate_reads='by_id' allows it in `mutate`.",
    Ask.MUTATION: "Change the outside in `mutate` of a consumer, or inside `ctx.withItem` in a job.",
    Ask.ITEM: "Open items in a job, one after the other.",
}
"""Advice for the author of a refused request."""

assert set(ALLOWED) == set(ScriptPhase), "every stage has its row"
assert set(INSTEAD) == set(Ask), "every refusal says what to do"


def refusal(stage: ScriptPhase, ask: Ask, name: str, policy: Policy) -> str:
    """Why this request is refused here; empty if it is allowed. `name` is what the script called."""
    if ask in ALLOWED[stage]:
        return ""
    if stage is ScriptPhase.MUTATE and ask is Ask.READ_BY_ID and policy.mutate_reads == "by_id":
        return ""
    return f"`ctx.{name}` ({ask}) is not allowed in {stage}. {INSTEAD[ask]}"
