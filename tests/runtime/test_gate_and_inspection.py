"""What inspection calls misplaced and what the gate refuses are two tables in two rooms. They say the same."""

import pytest

from keep_actors.policy import Policy
from keep_actors.run import gate
from keep_actors.run.gate import Ask, ScriptPhase
from keep_sandbox.declaration import Code
from keep_sandbox.inspect import inspect
from keep_sandbox.invocation import MethodKind

METHODS: dict[str, MethodKind] = {"fake.get": "read", "fake.add": "mutation"}
CALLS = {
    Ask.PEEK: 'await ctx.peek("in");',
    Ask.GET_BY_IDS: 'await ctx.getByIds("in", ["a"]);',
    Ask.PUBLISH: 'await ctx.publish("in", { title: "a" });',
    Ask.READ_BY_ID: "await ctx.fake.get({});",
    Ask.MUTATION: "await ctx.fake.add({});",
    Ask.ITEM: 'await ctx.withItem("a", "A", async () => {});',
}
"""Inspection does not know which reads are by id: it lets `mutate` have them, as the policy `by_id` does."""
LENIENT = Policy(mutate_reads="by_id")


def script(stage: ScriptPhase, call: str) -> str:
    inside = f'await ctx.withItem("b", "B", async (ctx) => {{ {call} }});'
    match stage:
        case ScriptPhase.PRODUCER:
            handlers = f"producers: {{ p: async (ctx) => {{ {call} }} }}"
        case ScriptPhase.JOB | ScriptPhase.ITEM:
            handlers = f"jobs: {{ j: async (ctx) => {{ {inside if stage is ScriptPhase.ITEM else call} }} }}"
        case _:
            phases = dict.fromkeys(("prepare", "mutate", "next"), "")
            phases[stage.strip("`")] = call
            bodies = ", ".join(f"{name}: async (ctx) => {{ {body} }}" for name, body in phases.items())
            handlers = f'consumers: {{ c: Keep.consumer({{ subscribe: ["in"], {bodies} }}) }}'
    return f'export default Keep.workflow({{ name: "w", topics: {{ in: {{}} }}, {handlers} }});'


# A nested item is found when it runs: nothing in the text tells it from two in a row.
CELLS = [(stage, ask) for stage in ScriptPhase for ask in CALLS if (stage, ask) != (ScriptPhase.ITEM, Ask.ITEM)]


@pytest.mark.parametrize(("stage", "ask"), CELLS)
def test_inspection_finds_misplaced_exactly_what_the_gate_refuses(stage: ScriptPhase, ask: Ask) -> None:
    problems = inspect(script(stage, CALLS[ask]), METHODS).problems
    found = {each.code for each in problems} & {Code.CALL_MISPLACED, Code.MUTATION_MISPLACED}
    assert bool(found) == bool(gate.refusal(stage, ask, "it", LENIENT)), problems
