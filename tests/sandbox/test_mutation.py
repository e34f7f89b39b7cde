"""After a mutation request nothing of a script has an effect, and the worker is as good as new."""

import pytest

from keep_actors.sandbox_pool import SandboxPool
from keep_sandbox import Capabilities, IssuedMutation, Request, Value
from tests.sandbox.world import drive, invocation, needs_jail, prepare, run

pytestmark = [pytest.mark.anyio, needs_jail]

EVERYTHING = Capabilities(
    peek=True, publish=True, connectors={"gmail": {"search": "read", "send": "mutation"}, "bank": {"pay": "mutation"}}
)
AFTER = "console.log('AFTER'); ctx.publish('t',{}); ctx.bank.pay({}); ctx.gmail.search({});"

TRICKS = {
    "no await": f"ctx.gmail.send({{to:1}}); {AFTER} return 1",
    "two in Promise.all": f"await Promise.all([ctx.gmail.send({{to:1}}), ctx.bank.pay({{}})]); {AFTER}",
    "two in allSettled": f"await Promise.allSettled([ctx.gmail.send({{to:1}}), ctx.bank.pay({{}})]); {AFTER}",
    "catch": f"try {{ await ctx.gmail.send({{to:1}}) }} catch {{ {AFTER} }} {AFTER}",
    "finally": f"try {{ await ctx.gmail.send({{to:1}}) }} finally {{ {AFTER} }}",
    "finally without await": f"try {{ ctx.gmail.send({{to:1}}) }} finally {{ {AFTER} }}",
    "an async iterator": (
        f"const it={{ [Symbol.asyncIterator](){{ return {{ next(){{ ctx.gmail.send({{to:1}}); {AFTER} return {{}} }},"
        f" return(){{ {AFTER} return {{}} }} }} }} }}; for await (const x of it) {{ {AFTER} }}"
    ),
    "an iterator that is closed": (
        "const it={ [Symbol.iterator](){ return { next:()=>({done:false,value:1}),"
        f" return(){{ {AFTER} return {{}} }} }} }} }};"
        " for (const x of it) ctx.gmail.send({to:1});"
    ),
    "an async generator": (
        f"async function* g(){{ try {{ yield ctx.gmail.send({{to:1}}) }} finally {{ {AFTER} }} }}"
        f" for await (const x of g()) {{ {AFTER} }}"
    ),
    "a thenable": f"return {{ then(r){{ ctx.gmail.send({{to:1}}); {AFTER} r(1) }} }}",
    "a thenable that is awaited": f"await {{ then(r){{ ctx.gmail.send({{to:1}}); {AFTER} r(1) }} }}; {AFTER}",
    "a Proxy argument": f"ctx.gmail.send(new Proxy({{to:1}},{{ ownKeys(t){{ return Reflect.ownKeys(t) }} }})); {AFTER}",
    "a Proxy argument that mutates": (
        "ctx.bank.pay(new Proxy({a:1},{ get(t,k){ if(k==='a') { ctx.gmail.send({to:1});"
        f" {AFTER} }} return t[k] }} }})); {AFTER}"
    ),
    "a getter that mutates": f"ctx.bank.pay({{ get a(){{ ctx.gmail.send({{to:1}}); {AFTER} return 1 }} }}); {AFTER}",
    "a getter in the result": f"return {{ get a(){{ ctx.gmail.send({{to:1}}); {AFTER} return 1 }} }}",
    "toJSON in the result": f"return {{ toJSON(){{ ctx.gmail.send({{to:1}}); {AFTER} return 1 }} }}",
    "an executor": f"new Promise(()=>{{ ctx.gmail.send({{to:1}}) }}).catch(()=>{{ {AFTER} }}); {AFTER}",
    "many executors": f"for(let i=0;i<99;i++) {{ new Promise(()=>ctx.gmail.send({{to:1}})); {AFTER} }}",
    "a job that was queued": f"Promise.resolve().then(()=>{{ {AFTER} }}); ctx.gmail.send({{to:1}})",
    "queueMicrotask": f"queueMicrotask(()=>{{ {AFTER} }}); ctx.gmail.send({{to:1}})",
    "an endless loop": f"ctx.gmail.send({{to:1}}); for(;;) {{ {AFTER} }}",
    "a native that cannot be stopped": "ctx.gmail.send({to:1}); new Array(2**32-1).join()",
    "an error": "ctx.gmail.send({to:1}); throw new Error('AFTER')",
    "too little memory": "ctx.gmail.send({to:1}); let s='x'; for(;;) s+=s",
    "too deep a stack": "ctx.gmail.send({to:1}); const f=()=>f(); f()",
    "a read that is pending": f"const p=ctx.peek('t').then(()=>{{ {AFTER} }}); ctx.gmail.send({{to:1}}); await p",
}


async def test_nothing_after_a_mutation_has_an_effect() -> None:
    async with SandboxPool.open() as pool:
        for trick, body in TRICKS.items():
            async with pool.invoke("w", prepare(f"globalThis.leak=1; {body}", capabilities=EVERYTHING)) as call:
                outcome = await call.next()
                while isinstance(outcome, Request):
                    assert outcome.name == "peek", trick
                    outcome = await call.next()
            assert isinstance(outcome, IssuedMutation), trick
            assert (outcome.name, outcome.params) == ("gmail.send", '{"to":1}'), trick
            assert call.logs == [], trick
            # Whatever became of that worker, the workflow's next invocation is served, and knows nothing of the last.
            assert await run(pool, prepare("return typeof globalThis.leak")) == Value(value='"undefined"'), trick


async def test_the_worker_of_a_mutation_is_used_again() -> None:
    async with SandboxPool.open() as pool:
        await pool.wait_for_spares()
        before = pool.stats.spawned
        for _ in range(10):
            assert isinstance(
                await run(pool, prepare("try { await ctx.gmail.send({}) } finally { for(;;); }")), IssuedMutation
            )
        assert pool.stats.spawned <= before + 1


async def test_a_mutation_inside_an_item_scope_returns_to_the_script() -> None:
    capabilities = Capabilities(with_item=True, connectors={"gmail": {"send": "mutation"}}, mutation_is_terminal=False)
    source = """export default Keep.workflow({ jobs: { async j(ctx) {
      return await ctx.withItem('1', 'One', async () => (await ctx.gmail.send({to:1})).id) } } })"""
    async with SandboxPool.open() as pool:
        job = invocation(source, "jobs.j", capabilities=capabilities, args="[]")
        async with pool.invoke("w", job) as call:
            assert await drive(call, lambda _: '{"id":"m"}') == Value(value='"m"')
