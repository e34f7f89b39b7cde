"""JSON text of plain values, in C (`sandbox/engine/plain.c`): what it writes, what it leaves alone, and its judge.

Asked natively, with AddressSanitizer and UBSan. Every answer was also compared with the judge's, with memory running
out at every allocation, and no code of the script has run (`fuzz_plain.c`).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.build import HERE, archive, build_natively
from tests.engine import compilers
from tests.engine.plain_program import Harm, PlainProgram, built
from tests.fuzz.plain_expressions import Question
from tests.fuzz.plain_text import TARGET

PLAIN = [
    ("null", "null"),
    ("[true, false]", "[true,false]"),
    ("[-0, 1e21, 5e-324, 1e-7, 0.1, -2147483648 | 0, 4294967296]", "[0,1e+21,5e-324,1e-7,0.1,-2147483648,4294967296]"),
    (r'"\u0000\b\t\n\f\r\u001f\"\\/\u007f\u2028"', '"\\u0000\\b\\t\\n\\f\\r\\u001f\\"\\\\/\x7f\u2028"'),
    (r'"é€\u{1f600}\ud7ff\ue000"', '"é€\U0001f600\ud7ff\ue000"'),
    ("({})", "{}"),
    ("({b: 1, 2: [], a: undefined, 1: {}})", '{"1":{},"2":[],"b":1}'),
    ("[undefined]", "[null]"),
    ("Object.assign(Object.create(null), {a: 1})", '{"a":1}'),
    ("({a: 1, [Symbol()]: 2})", '{"a":1}'),
    ("(() => { const a = [1]; a.x = 2; return a })()", "[1]"),
    ("(() => { const s = {}; return [s, s] })()", "[{},{}]"),
    ("Object.freeze({a: Object.freeze([1])})", '{"a":[1]}'),
]
NOT_PLAIN = [
    *(
        "undefined",
        "NaN",
        "Infinity",
        "1n",
        "Symbol()",
        "() => 1",
        "new Date(0)",
        "new Map()",
        "Object(1)",
        "new Proxy({}, {})",
    ),
    *(
        '"\\ud83d"',
        '["\\ude00x"]',
        '({"\\ud83d": 1})',
        "[() => 1]",
        "({a: NaN})",
        "[,]",
        "[, 1]",
        "new Array(4294967295)",
    ),
    *(
        "({toJSON: 1})",
        "[Object.create({})]",
        "new (class {})",
        "new (class extends Array {})(1)",
        "({get a() { hit() }})",
    ),
    *("(() => { const a = [, 1]; a.x = 2; return a })()", "(() => { const a = []; a[0] = a; return a })()"),
    *(
        "Object.prototype.toJSON = hit; ({})",
        "Array.prototype.toJSON = hit; 1",
        "Object.setPrototypeOf(Array.prototype, {}); 1",
    ),
]
MISTAKES = {
    "a byte too many": ("{.ctx = ctx, .room = room}", "{.ctx = ctx, .room = room + 1}"),
    "half a pair": ("(unsigned char)bytes[at + 1] >= 0xa0)", "(unsigned char)bytes[at + 1] >= 0xc0)"),
    "a hidden toJSON": ("|| has_to_json(text->ctx, array)) return false", ") return false"),
    "a toJSON for all": ("!has_to_json(ctx, captured.object_prototype) && ", ""),
    "an inherited toJSON": ("!inherits(text->ctx, array, captured.array_prototype) || ", ""),
    "a getter's descriptor for a value": ("if ((found.flags & JS_PROP_GETSET) == 0) return true;", "return true;"),
    "no end of depth": ("if (depth > DEPTH_MAX) depth = DEPTH_MAX;", "depth = UINT32_MAX;"),
    "members without end": ("text->members++ < text->room", "text->members++ < UINT32_MAX"),
    "a reference lost": ("  JS_FreeValue(ctx, found.setter);\n", ""),
    "a reference too many": (
        "JS_FreePropertyEnum(ctx, members, count);",
        "JS_FreePropertyEnum(ctx, members, count); JS_FreeValue(ctx, object);",
    ),
    "an exception left behind": ("JS_FreeValue(ctx, JS_GetException(ctx));", ""),
    "the text never freed": ("  js_free(ctx, text.bytes);\n", ""),
    "half a text": (
        "if (bytes == NULL) return false;\n  text->bytes",
        "if (bytes == NULL) { text->used = 0; return true; }\n  text->bytes",
    ),
    "infinity": ("!isfinite(number)", "isnan(number)"),
    "the smallest integer": (
        "uint32_t left = value < 0 ? 0u - (uint32_t)value",
        "uint32_t left = value < 0 ? (uint32_t)-value",
    ),
}
"""Mistakes that could be made in plain.c: the text that is there, and the one with the mistake."""


@pytest.fixture(scope="module")
def program() -> Iterator[PlainProgram]:
    compilers.skip_for(compilers.missing())
    with PlainProgram(built()) as active:
        yield active


@pytest.mark.parametrize(("expression", "text"), PLAIN)
def test_a_plain_value_is_written_as_json_writes_it(program: PlainProgram, expression: str, text: str) -> None:
    assert program.text_of(Question(expression, failures=True)) == text


@pytest.mark.parametrize("expression", NOT_PLAIN)
def test_anything_else_is_left_to_the_prelude(program: PlainProgram, expression: str) -> None:
    assert program.text_of(Question(expression, failures=True)) is None


@pytest.mark.parametrize(("room", "text"), [(7, '["abc"]'), (6, None), (0, None)])
def test_the_text_is_never_longer_than_its_room(program: PlainProgram, room: int, text: str | None) -> None:
    assert program.text_of(Question("['abc']", room)) == text


def test_the_room_is_counted_in_bytes(program: PlainProgram) -> None:
    assert program.text_of(Question("'€'", 5)) == '"€"'
    assert program.text_of(Question("'€'", 4)) is None


@pytest.mark.parametrize(("depth", "text"), [(3, "[[{}]]"), (2, None), (0, None)])
def test_no_value_is_deeper_than_it_may_be(program: PlainProgram, depth: int, text: str | None) -> None:
    assert program.text_of(Question("[[{}]]", depth=depth)) == text


def test_a_value_without_objects_has_no_depth(program: PlainProgram) -> None:
    assert program.text_of(Question("'text'", depth=0)) == '"text"'


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_noticed(mistake: str, tmp_path: Path) -> None:
    compilers.skip_for(compilers.missing())
    built()
    right, wrong = MISTAKES[mistake]
    source = (HERE / "plain.c").read_text("utf-8")
    assert source.count(right) == 1
    build_natively(archive(), tmp_path / "mistaken", source.replace(right, wrong))
    with pytest.raises(Harm), PlainProgram(tmp_path / "mistaken") as active:  # noqa: PT012  # at one of them
        for file in TARGET.corpus:
            active.text_of(TARGET.read(file.read_bytes()))
