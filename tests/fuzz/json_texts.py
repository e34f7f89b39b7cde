"""JSON texts, and nearly JSON: what a script or a worker that it took over could send, with what is known to hurt."""

import json

from hypothesis import strategies as st

HOSTILE = [
    "1e400",
    "-1e400",
    "1E+309",
    "1e0000999",
    "5e-324",
    "1e308",
    "9" * 201,
    "9" * 5_000,
    "18446744073709551616",
    "-9223372036854775809",
    "9007199254740993",
    "-0",
    '""',
    '"\\u0000"',
    '"\\ud800"',
    '"\\ud83d\\ude00"',
    '"\\u202e"',
    '"\x7f"',
    '"1e400"',
    "null",
    "true",
    "[" * 64 + "]" * 64,
    "[" * 65 + "]" * 65,
    "[" * 3_000 + "]" * 3_000,
    '"9999-12-31T23:59:59.999999+00:00"',
    '"0001-01-01T00:00:00+14:00"',
    '"2024-01-01T00:00:00"',
    '"' + "x" * 9_000 + '"',
]
FIELDS = [
    *("topic", "options", "limit", "after", "ids", "event", "title", "payload", "messageId", "id", "subkey", "to"),
    *("reservations", "data", "ui", "wakeAt", "customer", "cursor", "isDone", "__proto__", "", "\0", "a\u202e"),
]
scalars = (
    st.integers(0, len(HOSTILE) - 1).map(HOSTILE.__getitem__)  # by number: Hypothesis shows a strategy with all it has
    | st.integers().map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(json.dumps)
    | st.text(max_size=20).map(json.dumps)
    | st.from_regex(r"-?(0|[1-9][0-9]{0,5})(\.[0-9]{1,4})?([eE][+-]?[0-9]{1,6})?", fullmatch=True)
)


def _member(key: str, value: str) -> str:
    return f"{json.dumps(key, ensure_ascii=False) if key.isprintable() else json.dumps(key)}:{value}"


def object_of(members: list[tuple[str, str]]) -> str:
    """An object with these members, in this order, as often as they are named."""
    return f"{{{','.join(_member(key, value) for key, value in members)}}}"


json_texts: st.SearchStrategy[str] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda each: f"[{','.join(each)}]")
        | st.lists(st.tuples(st.sampled_from(FIELDS) | st.text(max_size=5), inner), max_size=4).map(object_of)
    ),
    max_leaves=8,
)
