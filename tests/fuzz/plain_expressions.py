"""JavaScript expressions of values: plain ones, nearly plain ones, and all that could make `plain_text` run code."""

from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st

from tests.fuzz.json_texts import json_texts, scalars

TRAPS: Final = (
    "{get(){hit()},has(){hit();return true},ownKeys(){hit();return []},getPrototypeOf(){hit();return Object.prototype},"
    "getOwnPropertyDescriptor(){hit()}}"
)
ODD: Final = [
    *(
        "undefined",
        "NaN",
        "-0",
        "-Infinity",
        "10n",
        "Symbol('s')",
        "() => hit()",
        "1e21",
        "1/3",
        "-2147483648 | 0",
        "2**53",
    ),
    *("new Date(0)", "/x/g", "new Map([[1, 2]])", "new Uint8Array(3)", "new Error('e')", "Promise.resolve(1)"),
    *("Object('text')", "Object(1)", "Object(true)", "Object(1n)", "Object(Symbol())", "JSON.rawJSON('1e400')"),
    *("globalThis", "Math", "JSON", "Object.prototype", "Array.prototype", "hit", "(function(){return arguments})(1)"),
    *("[,1]", "[1,,2]", "new Array(5)", "new Array(4294967295)", "(() => { const a = [,1]; a.x = 2; return a })()"),
    *("(() => { const a = [1, 2]; a.length = 9; return a })()", "(() => { const a = [1]; a.x = 2; return a })()"),
    *("(() => { const a = []; a[0] = a; return a })()", "(() => { const o = {}; o.o = {o}; return o })()"),
    "(() => { const s = {a: [1]}; return [s, s, {s}] })()",
    "(() => { let s = []; for (let i = 0; i < 14; i++) s = [s, s]; return s })()",
    "(() => { let s = 0; for (let i = 0; i < 300; i++) s = [s]; return s })()",
    "(() => { const o = {}; for (let i = 0; i < 300; i++) o['m' + i] = undefined; return o })()",
    "(() => { const o = {}; for (let i = 0; i < 90; i++) o['m' + i] = undefined; return Array(90).fill(o) })()",
    *(
        "'x'.repeat(4000)",
        "'\\u00e9'.repeat(900)",
        "'\\u20ac'.repeat(900)",
        "'\\u{1f600}'.repeat(500)",
        "'\\0\\n\"'.repeat(99)",
    ),
    *(
        "'\\ud83d'",
        "'\\ude00'",
        "'\\ude00\\ud83d'",
        "'a\\ud7ff\\ue000\\uffff'",
        "'\\ud83d\\ud83d\\ude00'",
        "'\\u2028\\u007f'",
    ),
    "(() => { let s = ''; for (let i = 0; i < 40; i++) s += 'abc\\u00e9'.repeat(300); return s })()",
    *(
        "'abcdefghij'.repeat(900).slice(100, 8900)",
        "({'\\ud83d': 1})",
        "({'\\u00e9\\n': 1})",
        "({2: 1, 1: 2, '-1': 3, '01': 4})",
    ),
    *("Object.create(null)", "Object.create({a: 1})", "Object.create(Array.prototype)", "new (class { x = 1 })"),
    *(
        "new (class extends Array {})(1, 2)",
        "new (class extends Array { toJSON() { hit() } })(1)",
        "new Proxy({a: 1}, {})",
    ),
    *("Object.setPrototypeOf([1], null)", "Object.setPrototypeOf([1], {toJSON() { hit() }})", "new Proxy([1], {})"),
    *("Object.setPrototypeOf(new Map, Object.prototype)", "Object.setPrototypeOf(new Map, Array.prototype)"),
    *("Object.setPrototypeOf(() => hit(), Object.prototype)", "Object.setPrototypeOf({}, new Proxy({}, TRAPS))"),
    *("new Proxy({}, TRAPS)", "new Proxy([1, 2], TRAPS)", "new Proxy(function () { hit() }, TRAPS)"),
    *("({get a() { hit(); return 1 }})", "({set a(v) { hit() }})", "({toJSON() { hit() }})", "({toJSON: 1})"),
    *(
        "({get toJSON() { hit() }})",
        "({toString() { hit() }, valueOf() { hit() }})",
        "({[Symbol.toPrimitive]() { hit() }})",
    ),
    *(
        "({a: 1, [Symbol('s')]: 2})",
        "({__proto__: null, a: 1})",
        "({['__proto__']: 1})",
        "({constructor: 1, length: 2})",
    ),
    "Object.defineProperty({}, 'toJSON', {value() { hit() }, enumerable: false})",
    "Object.defineProperty([1], 'toJSON', {value() { hit() }, enumerable: false})",
    "Object.defineProperty([1, 2], 0, {get() { hit() }, enumerable: true})",
    "Object.defineProperty([1, 2], 1, {value: 3, enumerable: false})",
    "Object.defineProperty({a: 1}, 'b', {value: 3, enumerable: false})",
    "(() => { class A { constructor(o) { return o } } class B extends A { #x = 1 } return new B({a: 1}) })()",
]
BEFORE: Final = [
    "Object.prototype.toJSON = hit;",
    "Array.prototype.toJSON = () => hit();",
    "Object.defineProperty(Array.prototype, 'toJSON', {get() { hit() }});",
    "Object.setPrototypeOf(Array.prototype, {toJSON() { hit() }});",
    "Object.setPrototypeOf(Array.prototype, new Proxy({}, TRAPS));",
    "Object.defineProperty(Object.prototype, '0', {get() { hit() }, set() { hit() }});",
    "Object.defineProperty(Object.prototype, 'a', {get() { hit() }, set() { hit() }});",
    "Array.prototype[1] = 'inherited';",
    "String.prototype.toString = String.prototype.toJSON = Number.prototype.toJSON = Boolean.prototype.toJSON = hit;",
    "Array.prototype[Symbol.iterator] = Array.prototype.join = Object.prototype.valueOf = hit;",
    "globalThis.Array = globalThis.Object = hit;",
]
AROUND: Final = [
    *(
        "[VALUE]",
        "[undefined, VALUE]",
        "({a: VALUE})",
        "({a: VALUE, b: undefined, c: [VALUE]})",
        "Object.freeze([VALUE])",
    ),
    *(
        "Object.assign(Object.create(null), {a: VALUE})",
        "JSON.parse(JSON.stringify([VALUE]) ?? '[]')",
        "Object.seal({a: VALUE})",
    ),
    "(() => { const a = [1, 2, 3, VALUE]; delete a[1]; return a })()",
    "(() => { const a = [1, 2, 3, VALUE]; delete a[1]; a[1] = 5; return a })()",
    "(() => { const o = {a: 1, b: VALUE}; delete o.a; o.a = 2; return o })()",
    "Object.defineProperty({}, 'hidden', {value: VALUE})",
    "Object.defineProperty({b: 1}, 'seen', {value: VALUE, enumerable: true})",
]


@dataclass(frozen=True)
class Question:
    """An expression, and the limits that its text is asked for with."""

    source: str
    room: int = 100_000
    depth: int = 64
    failures: bool = False
    """Whether memory runs out, everywhere it can."""


def _wrapped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    wrappers = st.integers(0, len(AROUND) - 1).map(AROUND.__getitem__)
    return (
        st.tuples(wrappers, inner).map(lambda each: each[0].replace("VALUE", f"({each[1]})"))
        | st.lists(inner, max_size=4).map(lambda each: f"[{','.join(each)}]")
        | st.lists(st.tuples(st.sampled_from(["a", "b", "1", "'\\u00e9'", "''", "toString"]), inner), max_size=4).map(
            lambda each: f"({{{','.join(f'{key}: ({value})' for key, value in each)}}})"
        )
    )


values: Final = st.recursive(
    scalars.map("({})".format) | st.integers(0, len(ODD) - 1).map(ODD.__getitem__) | json_texts.map("({})".format),
    _wrapped,
    max_leaves=8,
)
_beginnings: Final = st.just("") | st.integers(0, len(BEFORE) - 1).map(BEFORE.__getitem__)

questions: Final[st.SearchStrategy[Question]] = st.builds(
    lambda before, value, room, depth, failures: Question(
        f"const TRAPS = {TRAPS}; {before} ({value})", room, depth, failures
    ),
    st.one_of(st.just(""), st.just(""), st.just(""), _beginnings),
    values,
    st.integers(0, 64) | st.integers(0, 5_000) | st.just(100_000) | st.just(2**32 - 1),
    st.integers(0, 8) | st.just(64) | st.sampled_from([255, 256, 257, 2**32 - 1]),
    st.booleans(),
)
