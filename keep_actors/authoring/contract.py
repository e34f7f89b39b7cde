"""The rules of scripts, as text for a language model that writes or repairs one. Pure.

The calls that each part may make come from the gate that enforces them.
"""

from collections.abc import Mapping
from typing import Final

from keep_actors.policy import Policy
from keep_actors.run.gate import Ask, ScriptPhase, refusal

SHAPE: Final[Mapping[ScriptPhase, str]] = {
    ScriptPhase.PRODUCER: (
        "`producers: {name: async (ctx, state) => ...}`, or `{schedule, publishes, handler}`. "
        "Runs on a schedule. Returns its next state; returning nothing keeps the last one, `null` replaces it."
    ),
    ScriptPhase.PREPARE: (
        "`async prepare(ctx, state)` of a consumer. Looks at pending events and chooses. Returns `{reservations: "
        "[{topic, ids}], data, ui?: {title}, wakeAt?}`; `ids` are messageIds, `data` is JSON."
    ),
    ScriptPhase.MUTATE: (
        "`async mutate(ctx, prepared)` of a consumer; `prepared` is what `prepare` returned. At most one mutation, as "
        "the last thing it does: the script ends there, and nothing after it runs, no `catch`, no `finally`."
    ),
    ScriptPhase.NEXT: (
        "`async next(ctx, prepared, mutationResult)` of a consumer. mutationResult is `{status: 'applied', result}`, "
        "`{status: 'skipped', reason}` or `{status: 'none'}`. Returns the consumer's next state."
    ),
    ScriptPhase.JOB: (
        "`jobs: {name: async (ctx, state) => ...}`, or `{schedule, publishes, handler}`. Runs on a schedule. "
        "Returns its next state."
    ),
    ScriptPhase.ITEM: (
        "`fn` in `await ctx.withItem(id, title, fn)` of a job. `ctx.item.isDone` is true if the item was finished "
        "before. A mutation returns its result. Items do not nest; await each, with `for … of` and not `forEach`."
    ),
}
CALLS: Final[Mapping[Ask, str]] = {
    Ask.PEEK: "`ctx.peek(topic, {limit, after})`",
    Ask.GET_BY_IDS: "`ctx.getByIds(topic, ids)`",
    Ask.PUBLISH: "`ctx.publish(topic, {messageId, title, payload})`",
    Ask.READ: "connector methods marked read",
    Ask.READ_BY_ID: "connector methods marked read by id",
    Ask.MUTATION: "connector methods marked mutation",
    Ask.ITEM: "`ctx.withItem(id, title, fn)`",
}
assert set(SHAPE) == set(ScriptPhase), "every stage is described"
assert set(CALLS) == set(Ask), "every request is described"

_SCRIPT: Final = """\
# What a script is

One ES module, `export default Keep.workflow({name, topics, producers, consumers, jobs})`; a consumer is \
`Keep.consumer({subscribe, publishes, orderingKey, prepare, mutate, next})`. There are no imports, timers, network, \
`eval` or shared top-level variables. Only `ctx` reaches anything outside; a connector's method takes one object: \
`await ctx.<connector>.<method>({...})`. Values are JSON: no Date, Map, class instance, NaN or BigInt. A script cannot \
catch the error of such a call. A call that a part may not make ends the run:
"""


def contract(policy: Policy) -> str:
    """The section that is part of every prompt."""
    stages = "".join(f"- {stage}: {SHAPE[stage]} May use: {_allowed(stage, policy)}.\n" for stage in ScriptPhase)
    return f"{_SCRIPT}\n{stages}"


def _allowed(stage: ScriptPhase, policy: Policy) -> str:
    return ", ".join(CALLS[ask] for ask in Ask if not refusal(stage, ask, "", policy)) or "nothing"
