"""Scripts that Hypothesis makes: small programs that always end, of all that authors use."""

import json

from hypothesis import strategies as st

NAMES = ("a", "b", "c")
_TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["", "0", "1e3", "é", "😀", "\ud83d", "__proto__", "constructor", "\u2028", "NaN"]),
)
_NUMBERS = st.one_of(
    st.integers(-5, 5).map(str),
    st.sampled_from(
        ["-0", "1e21", "5e-324", "0.1", "1/3", "2**53", "2**31", "NaN", "-Infinity", "1e400", "0x1f", "10n"]
    ),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: f"({number!r})"),
)
_LEAVES = st.one_of(
    _NUMBERS,
    _TEXTS.map(json.dumps),
    st.sampled_from(
        ["null", "undefined", "true", "false", "[]", "({})", "ev", "Symbol('s')", "new Date(0)", "Date.now()", "/a+/g"]
    ),
    st.sampled_from(NAMES),
)
_BINARY = ("+", "-", "*", "/", "%", "**", "==", "===", "<", "&&", "||", "??", "&", "|", "<<", ">>>", ",", "in")
_UNARY = ("!", "-", "+", "~", "typeof ", "void ", "await ")
_METHODS = (
    "toString()", "valueOf()", "length", "slice(1)", "at(-1)", "concat([1])", "includes(1)", "indexOf('a')",
    "split('')", "padStart(5, '*')", "toUpperCase()", "normalize()", "map((x) => [x])", "filter(Boolean)", "sort()",
    "reverse()", "flat()", "join('-')", "replace(/./u, '$&$&')", "match(/(?<n>.)/u)", "toFixed(2)", "x", "[0]",
    "toISOString()", "localeCompare('b')", "reduce((x, y) => x + y)", "toLocaleString()", "codePointAt(0)",
    "toSorted()", "with(0, 1)",
)  # fmt: skip
_CALLS = (
    "JSON.stringify({})", "JSON.parse(JSON.stringify({}))", "Object.keys(Object({}))", "Object.entries(Object({}))",
    "Array.from({})", "String({})", "Number({})", "new Map([[{}, 1]]).size", "[...new Set([{}])]", "structure({})",
    "(await ctx.gmail.search({{q: {}}}))", "encodeURIComponent({})", "parseFloat({})", "Math.round({})", "[...{}]",
    "Object.fromEntries([['k', {}]])", "Array.isArray({})", "Number.isInteger({})", "new Error({}).message",
    "String.raw`${{ {} }}`", "new Intlless({})", "Object.freeze({})", "Reflect.ownKeys(Object({})).length",
)  # fmt: skip


def _joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, st.sampled_from(_BINARY), inner).map(lambda parts: f"(({parts[0]}) {parts[1]} ({parts[2]}))"),
        st.tuples(st.sampled_from(_UNARY), inner).map(lambda parts: f"({parts[0]}({parts[1]}))"),
        st.tuples(inner, st.sampled_from(_METHODS)).map(_member),
        st.tuples(st.sampled_from(_CALLS), inner).map(lambda parts: parts[0].format(parts[1])),
        st.lists(inner, max_size=3).map(lambda parts: f"[{', '.join(parts)}]"),
        st.lists(st.tuples(_TEXTS, inner), max_size=3).map(
            lambda parts: "({" + ", ".join(f"[{json.dumps(key)}]: {value}" for key, value in parts) + "})"
        ),
        st.tuples(inner, inner, inner).map(lambda parts: f"({parts[0]} ? {parts[1]} : {parts[2]})"),
        inner.map(lambda part: f"`x${{{part}}}y`"),
        inner.map(lambda part: f"(await (async (...all) => all.concat({part}))(1, 2))"),
        inner.map(lambda part: f"(await (async () => {part})())"),
        inner.map(lambda part: f"(await Array.fromAsync((async function* () {{ yield 1; yield {part} }})()))"),
    )


def _member(parts: tuple[str, str]) -> str:
    owner, name = parts
    return f"({owner})?.{name}"


EXPRESSIONS = st.recursive(_LEAVES, _joined, max_leaves=8)


def _block(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    body = st.lists(inner, max_size=3).map("\n".join)
    return st.one_of(
        st.tuples(EXPRESSIONS, body, body).map(lambda parts: f"if ({parts[0]}) {{ {parts[1]} }} else {{ {parts[2]} }}"),
        body.map(lambda text: f"for (let i = 0; i < 3; i++) {{ {text} }}"),
        st.tuples(EXPRESSIONS, body).map(
            lambda parts: f"for (const each of [1, {parts[0]}]) {{ a = each; {parts[1]} }}"
        ),
        st.tuples(EXPRESSIONS, body).map(
            lambda parts: f"for (const key in Object({parts[0]})) {{ b = key; {parts[1]} }}"
        ),
        st.tuples(body, body, body).map(
            lambda parts: (
                f"try {{ {parts[0]} }} catch (error) {{ c = String(error); {parts[1]} }} finally {{ {parts[2]} }}"
            )
        ),
        st.tuples(EXPRESSIONS, body).map(
            lambda parts: f"switch ({parts[0]}) {{ case 1: {parts[1]} break; default: a = 2 }}"
        ),
        body.map(lambda text: f"await Promise.all([(async () => {{ {text} }})(), null])"),
    )


STATEMENTS = st.recursive(
    st.one_of(
        st.tuples(st.sampled_from(NAMES), EXPRESSIONS).map(lambda parts: f"{parts[0]} = {parts[1]};"),
        EXPRESSIONS.map(lambda text: f"console.log({text});"),
        EXPRESSIONS.map(lambda text: f"throw {text};"),
        EXPRESSIONS.map(lambda text: f"[a, ...b] = {text};"),
        EXPRESSIONS.map(lambda text: f"({{ x: a = 1, ...b }} = {text});"),
        EXPRESSIONS.map(lambda text: f"return {text};"),
        EXPRESSIONS.map(lambda text: f"ctx.gmail.search({{ q: {text} }});"),
        EXPRESSIONS.map(lambda text: f"await ctx.gmail.send({text});"),
    ),
    _block,
    max_leaves=6,
)

_HEAD = """let a = 1, b = "b", c = [3];
const structure = (value) => (value !== null && typeof value === "object" ? Object.keys(value).length : typeof value);
class Intlless { #inner; constructor(value) { this.#inner = value } get inner() { return this.#inner } }
"""

BODIES = st.tuples(st.lists(STATEMENTS, max_size=5).map("\n".join), EXPRESSIONS).map(
    lambda parts: f"{_HEAD}{parts[0]}\nreturn {parts[1]};"
)
"""Bodies of `prepare`."""

TOPS = st.one_of(
    st.just(""),
    EXPRESSIONS.map(
        lambda text: f"let top; try {{ top = {text.replace('await ', '').replace('ev', '1')} }} catch {{}}"
    ),
)
"""What stands before the declaration."""
