"""Warnings about items whose promise is lost, and none about code that may be right."""

import pytest

from keep_sandbox import Code
from keep_sandbox.inspect import inspect

ITEM = "ctx.withItem(id, 'T', async () => {})"
LOST = {
    f"{ITEM};": "write `await",
    f"for (const id of ids) {ITEM};": "write `await",
    f"if (ids) {ITEM}; else await {ITEM};": "write `await",
    f"void {ITEM};": "write `await",
    f"ids.length > 0 && {ITEM};": "write `await",
    f"ids.length > 0 ? {ITEM} : 0;": "write `await",
    f"{ITEM}.then(() => 1);": "write `await",
    f"{ITEM}.then(() => 1).finally(() => 2);": "write `await",
    f"Promise.all(ids.map((id) => {ITEM}));": "write `await",
    f"[{ITEM}];": "write `await",
    f"ids.map(async (id) => {{ await {ITEM}; }});": "write `await",
    f"(async () => {{ await {ITEM}; }})();": "write `await",
    f"const {{ withItem }} = ctx; {ITEM.removeprefix('ctx.')};": "write `await",
    f"ids.forEach(async (id) => {{ await {ITEM}; }});": "`forEach` does not wait",
    f"ids.forEach((id) => {ITEM});": "`forEach` does not wait",
    f"ids.forEach((id) => {{ {ITEM}; }});": "`forEach` does not wait",
    f"ids.forEach(async function (id) {{ const x = await {ITEM}; }});": "`forEach` does not wait",
    f"ids.filter(Boolean).forEach(async (id) => await {ITEM});": "`forEach` does not wait",
    f"await Promise.race(ids.map((id) => {ITEM}));": "`Promise.race` and `Promise.any` wait for one item only",
    f"await Promise.race([{ITEM}, ctx.gmail.search({{}})]);": "`Promise.race` and `Promise.any` wait for one item only",
    f"return Promise.any([{ITEM}]);": "`Promise.race` and `Promise.any` wait for one item only",
    f"await ids.map((id) => {ITEM});": "to wait for a list of promises",
    f"await [{ITEM}];": "to wait for a list of promises",
    f"return ids.map((id) => {ITEM});": "to wait for a list of promises",
    f"const all = ids.map((id) => {ITEM}); await all;": "to wait for a list of promises",
    f"const p = {ITEM};": "write `await",
    f"const p = {ITEM}; p.then(() => 1);": "write `await",
    f"const all = ids.map((id) => {ITEM}); return 1;": "write `await",
    f"ids.filter(async (id) => {{ await {ITEM}; }});": "write `await",
    f"const one = async (id) => {{ await {ITEM}; }}; for (const id of ids) one(id);": "write `await",
    f"async function one(id) {{ await {ITEM}; }} one(id);": "write `await",
    f"function one(id) {{ return {ITEM}; }} await one(id); one(id);": "write `await",
    f"const one = (id) => {ITEM}; const two = (id) => one(id); two(id);": "write `await",
    f"const one = async (id) => {{ await {ITEM}; }}; ids.forEach(one);": "`forEach` does not wait",
    f"const one = (id) => {ITEM}; await ids.map(one);": "to wait for a list of promises",
    f"const p = {ITEM}; await Promise.race([p, p]);": "`Promise.race` and `Promise.any` wait for one item only",
}
WAITED_FOR = [
    f"await {ITEM};",
    f"return {ITEM};",
    f"return await {ITEM};",
    f"const p = {ITEM}; await p;",
    f"let p; p = {ITEM}; await p;",
    f"for (const id of ids) await {ITEM};",
    f"for (const id of ids) {{ const x = await {ITEM}; console.log(x); }}",
    f"await Promise.all(ids.map((id) => {ITEM}));",
    f"await Promise.allSettled(ids.map((id) => {ITEM}));",
    f"return Promise.all(ids.map((id) => {{ return {ITEM}; }}));",
    f"await Promise.all(ids.map(async (id) => {{ await {ITEM}; }}));",
    f"await Promise.all([...ids.map((id) => {ITEM}), {ITEM}]);",
    f"const all = ids.map((id) => {ITEM}); await Promise.all(all);",
    f"const all = []; for (const id of ids) all.push({ITEM}); await Promise.all(all);",
    f"await ids.reduce((before, id) => before.then(() => {ITEM}), Promise.resolve());",
    f"await {ITEM}.then((x) => x);",
    f"await Promise.resolve().then(() => {ITEM});",
    f"await (async () => {{ await {ITEM}; }})();",
    f"const one = async (id) => {{ await {ITEM}; }}; for (const id of ids) await one(id);",
    f"async function one(id) {{ return {ITEM}; }} await one(id);",
    f"if (ids) return {ITEM}; await {ITEM};",
    f"await (ids ? {ITEM} : {ITEM});",
    f"const p = {ITEM}; await Promise.race([p, ctx.gmail.search({{}})]); await p;",
    f"const p = {ITEM}, q = {ITEM}; await Promise.all([p, q]);",
    f"const p = {ITEM}; await each([p], (x) => x);",
    f"const p = {ITEM}; const kept = {{ p }}; await kept.p;",
    f"const one = async (id) => {{ await {ITEM}; }}; await Promise.all(ids.map(one));",
    f"const one = (id) => {ITEM}; const all = ids.map(one); for (const p of all) await p;",
    f"const one = async (n) => {{ await {ITEM}; if (n) return one(n - 1); }}; await one(9);",
    f"const one = (id) => {ITEM}; await each(ids, one);",
    f"await each(ids, async (id) => {{ await {ITEM}; }});",
    "ids.forEach((id) => console.log(id));",
]


def job(body: str) -> str:
    each = "const each = async (all, fn) => { for (const one of all) await fn(one); };"
    return f"{each} export default Keep.workflow({{ name: 'w', jobs: {{ async j(ctx, ids, id) {{ {body} }} }} }});"


@pytest.mark.parametrize(("body", "hint"), LOST.items())
def test_an_item_that_nothing_waits_for_is_warned_of_and_is_no_problem(body: str, hint: str) -> None:
    inspection = inspect(job(body))
    assert (inspection.problems, inspection.problem_count) == ([], 0)
    [warning] = inspection.warnings
    assert (warning.code, warning.handler) == (Code.ITEM_NOT_AWAITED, "jobs.j")
    assert warning.hint.startswith(hint)
    assert warning.place is not None


@pytest.mark.parametrize("body", WAITED_FOR)
def test_an_item_that_somebody_waits_for_or_may_is_not_warned_of(body: str) -> None:
    inspection = inspect(job(body))
    assert (inspection.problems, inspection.warnings) == ([], [])


def test_a_handler_that_is_an_expression_is_awaited_by_the_host() -> None:
    source = f"export default Keep.workflow({{ name: 'w', jobs: {{ j: (ctx, id) => {ITEM} }} }});"
    assert inspect(source).warnings == []


def test_only_the_first_warnings_are_shown() -> None:
    assert len(inspect(job(f"{ITEM};" * 60)).warnings) == 50
