"""Code that would run after a mutation, in every shape of code with one call or two. `S` sends, `R` replies."""

import re

import pytest

from keep_sandbox import Code
from keep_sandbox.inspect import inspect
from tests.sandbox.test_inspect import consumer_script, found

ONE_CALL_ON_EVERY_PATH = [
    "if (a) return S; await R;",
    "if (a) return await S; return R;",
    "if (a) { console.log(1); return S; } await R;",
    "if (a) { await S; return; } await R;",
    "if (a) { if (b) return S; } await R;",
    "if (a) { if (b) { await S; return; } return; } await R;",
    "if (a) return S; if (b) return R; return S;",
    "if (a) return S; else if (b) return R; else throw new Error('x');",
    "if (a) await S; else if (b) await R; else await S;",
    "if (!a) throw new Error('x'); await S;",
    "if (a) throw await S; await R;",
    "a ? await S : await R;",
    "return a ? S : b ? R : undefined;",
    "return a ? S : void 0;",
    "if (a) return b ? S : R; await S;",
    "a && await S;",
    "(a && await S) || await R;",
    "await (a ? S : R);",
    "switch (a) { case 1: return S; case 2: return R; } await S;",
    "switch (a) { case 1: await S; break; case 2: await R; break; }",
    "switch (a) { case 1: { await S; break; } default: { await R; } }",
    "switch (a) { case 1: case 2: await S; break; default: return R; }",
    "switch (a) { case 1: await S; return; default: console.log(1); } await R;",
    "switch (a) { case 1: await S; case 2: break; }",
    "for (const x of all) { if (x) return S; } await R;",
    "for (const x of all) { if (x) { await S; return; } }",
    "for (const x of all) { if (x) { await S; break; } }",
    "for (const x of all) { if (!x) continue; return S; }",
    "while (a) { return S; } return R;",
    "do { return S; } while (a);",
    "outer: for (const x of all) { for (const y of x) { if (y) { await S; break outer; } } }",
    "done: { if (a) { await S; break done; } }",
    "for (const x of all) { switch (x) { case 1: return S; } } await R;",
    "try { JSON.parse(a); } catch { return S; } await R;",
    "try { JSON.parse(a); } catch { await S; }",
    "let c; try { c = JSON.parse(a); } catch { return; } await S;",
    "try { console.log(1); } finally { await S; }",
    "try { await S; } finally {}",
    "try { if (a) return S; } finally { } return R;",
    "try { if (a) return S; return R; } finally { /* nothing */ }",
    "for (const x of all) { try { return S; } finally {} }",
    "const send = async (x) => { if (x) return S; return R; }; await send(a);",
    "const send = a ? () => S : () => R; await send();",
    "const by = { x: () => S, y: () => R }; return by[a]();",
    "while (true) { if (a) { await S; return; } await R; return; }",
    "if (a) { switch (b) { case 1: return S; default: return R; } } return S;",
    "if (a) { for (const x of all) return S; } return R;",
    "let t = 1; if (a) t = 2; else if (b) return S; await R;",
    "label: if (a) { await S; break label; } else { await R; }",
    "if (a) return void await S; return R;",
    "return (a && S) || (b && R) || S;",
    "const one = all.map((x) => x.id).find((x) => x); if (one) return S; return R;",
    "if (all.some((x) => x.ok)) return S; await R;",
    "await ctx.gmail.send({ to: all.map((x) => x.to) });",
    "await S; ;",
    "await S; /* done */",
    "{ await S; }",
    "{ return S; } ",
    "await S; function unused() {}",
    "return { sent: await S, ok: true };",
    "const text = `${await S} ${a}`;",
    "const one = await S, two = 2;",
]
A_SECOND_CALL_ON_SOME_PATH = [
    "if (a) await S; await R;",
    "if (a) { await S; } else { return; } await R;",
    "if (a) { await S; if (b) return; } await R;",
    "if (a) { await S; } if (b) return R;",
    "if (a) { return S; } else { await R; } await S;",
    "if (a) { if (b) await S; } await R;",
    "a ? await S : await R; await S;",
    "a && await S; await R;",
    "await S && await R;",
    "await S || await R;",
    "await S ?? await R;",
    "a = (await S) || await R;",
    "try { return await S; } catch {} await R;",
    "try { throw await S; } catch { await R; }",
    "for (let i = 0; i < await S; i++) {}",
    "while (a) { await S; if (b) return; }",
    "switch (a) { case 1: if (b) await S; case 2: return R; }",
    "if (a && await S) return R;",
    "const x = S; await R;",
    "await S + await R;",
    "(await S, await R);",
    "const one = await S, two = await R;",
    "return { one: await S, two: await R };",
    "return [await S, await R];",
    "return `${await S} ${await R}`;",
    "if (await S) await R;",
    "if (await S) console.log(1); else await R;",
    "return await S ? 1 : R;",
    "switch (await S) { case 1: await R; }",
    "switch (a) { case 1: await S; case 2: await R; }",
    "switch (a) { case 1: await S; case 2: case 3: default: return R; }",
    "switch (a) { case 1: await S; break; } await R;",
    "switch (a) { case 1: { await S; } default: await R; }",
    "for (const x of all) { if (x) { await S; break; } } await R;",
    "outer: for (const x of all) { for (const y of x) { await S; break outer; } } await R;",
    "done: { await S; break done; } await R;",
    "for (const x of all) { await S; }",
    "for (const x of all) { if (x) { await S; continue; } return; }",
    "outer: for (const x of all) { for (const y of x) { await S; continue outer; } }",
    "for (const x of all) { for (const y of x) { await S; break; } }",
    "while (a) { if (b) await S; }",
    "do { await S; } while (a);",
    "try { return S; } finally { await R; }",
    "try { await S; return; } finally { await R; }",
    "try { return await S; } catch { return R; }",
    "try { JSON.parse(a); } catch { return S; } finally { await R; }",
    "try { JSON.parse(a); } catch { await S; } await R;",
    "try { console.log(1); } finally { await S; } await R;",
    "try { if (a) return S; } finally { await R; }",
    "all.forEach((x) => S);",
    "all.forEach(async (x) => { if (x) await S; });",
    "await Promise.all(all.map((x) => S));",
    "return Promise.all(all.map(async (x) => { return S; }));",
    "await all.reduce(async (before, x) => { await before; await S; }, null);",
    "await ctx.gmail.send({ to: await R });",
    "return ctx.gmail.send({ to: [(await R).id] });",
]


def mutating(shape: str) -> str:
    text = re.sub(r"\bS\b", "ctx.gmail.send({})", re.sub(r"\bR\b", "ctx.gmail.reply({})", shape))
    return f"const {{ a, b, all }} = prepared.data; {text}"


@pytest.mark.parametrize("shape", ONE_CALL_ON_EVERY_PATH)
def test_calls_of_which_only_one_is_made_are_no_problem(shape: str) -> None:
    assert found(inspect(consumer_script(mutate=mutating(shape)))) == []


@pytest.mark.parametrize("shape", A_SECOND_CALL_ON_SOME_PATH)
def test_a_second_call_is_found_on_whatever_path_it_is(shape: str) -> None:
    assert (Code.CODE_AFTER_MUTATION, 4) in found(inspect(consumer_script(mutate=mutating(shape))))


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ("if (a) await S; await R;", "a second mutation"),
        ("await S; if (a) { if (b) { console.log(1); console.log(2); await R; } }", "a second mutation"),
        ("for (const x of all) await S;", "a mutation in a loop"),
        ("await Promise.all(all.map((x) => S));", "a mutation in a loop"),
        ("await ctx.gmail.send({ to: await R });", "a second mutation"),
        ("await S; console.log(1);", "code after the mutation"),
        ("S.then(() => console.log(1));", "code after the mutation"),
        ("try { return S; } finally { console.log(1); }", "code after the mutation"),
    ],
)
def test_what_follows_a_mutation_is_called_what_it_is(shape: str, words: str) -> None:
    [problem] = inspect(consumer_script(mutate=mutating(shape))).problems
    assert problem.message.startswith(words)
