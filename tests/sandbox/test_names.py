"""Names that people are shown: short, and all of them to be seen."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keep_sandbox import Code
from keep_sandbox.inspect import believed, inspect
from keep_sandbox.names import HANDLERS_MAX, TOPICS_MAX, hidden_in, shown, unfit_name

HIDDEN = {
    "a line feed": "a\nb",
    "an escape": "a\x1b[2Jb",
    "a control of eight bits": "a\x9bb",
    "the direction of text": "a\u202eb",
    "an isolate": "a\u2066b",
    "a mark of direction": "a\u200fb",
    "no width": "a\u200bb",
    "a byte order mark": "a\ufeffb",
    "a tag": "a\U000e0041b",
    "a blank letter": "a\u3164b",
    "a blank in Braille": "a\u2800b",
    "a variation": "a\U000e0100b",
    "a separator of lines": "a\u2028b",
    "a variation of nothing": "a\ufe0fb",
    "another variation": "\u6ce8\ufe00",
    "a joiner of nothing": "a\u200db",
    "a joiner at the end": "\u6ce8\u200c",
    "a space that does not break": "a\u00a0b",
    "a space of no width to speak of": "a\u200ab",
    "a note without a head": "a\U0001d159b",
    "a filler": "a\U00016fe4b",
    "what is kept free for tags": "a\U000e0080b",
    "what is kept free beside them": "a\u2065b",
    "a letter of one's own": "a\ue000b",
}
SEEN = [
    "order.paid",
    "Rechnung nötig",
    "注文",
    "\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "👨\u200d👩\u200d👧",
    "✔\ufe0f",
    "1\ufe0f\u20e3",
    "\u2139\ufe0f",
    "❤\ufe0f\u200d🔥",
    "注文\u3000一覧",
    "a b",
    "x" * 100,
]


def script(name: str = "w", topic: str = "t", handler: str = "c") -> str:
    consumer = f"{{ subscribe: [{json.dumps(topic)}], async prepare(ctx) {{ return {{ reservations: [] }} }} }}"
    declared = f"topics: [{json.dumps(topic)}], consumers: {{ {json.dumps(handler)}: {consumer} }}"
    return f"export default Keep.workflow({{ name: {json.dumps(name)}, {declared} }})"


@pytest.mark.parametrize("where", ["name", "topic", "handler"])
@pytest.mark.parametrize("bad", [*HIDDEN.values(), "x" * 101, " a", "a "])
def test_a_name_that_cannot_be_seen_or_is_too_long_is_a_problem(where: str, bad: str) -> None:
    inspection = inspect(script(**{where: bad}))
    assert [problem.code for problem in inspection.problems] == [Code.NAME_INVALID]
    assert inspection.problems[0].message.isprintable()


@pytest.mark.parametrize("where", ["name", "topic", "handler"])
@pytest.mark.parametrize("good", SEEN)
def test_a_name_in_any_language_is_none(where: str, good: str) -> None:
    assert inspect(script(**{where: good})).problems == []


@given(st.text())
def test_a_title_is_shown_without_what_is_hidden_in_it(text: str) -> None:
    assert hidden_in(shown(text)) == ""
    assert len(shown(text)) == len(text)
    assert shown(shown(text)) == shown(text)
    assert unfit_name(text) or hidden_in(text) == ""


@pytest.mark.parametrize("group", ["producers", "consumers", "jobs"])
def test_too_many_handlers_are_refused_with_their_number(group: str) -> None:
    handlers = ", ".join(f"h{number}: async (ctx) => {{}}" for number in range(5_000))
    inspection = inspect(f'export default Keep.workflow({{ name: "w", topics: [], {group}: {{ {handlers} }} }})')
    [problem] = [each for each in inspection.problems if each.code is Code.TOO_MANY]
    assert problem.message == f"the workflow has 5000 handlers; at most {HANDLERS_MAX} are allowed"


@pytest.mark.parametrize("topics", [[f"t{n}" for n in range(5_000)], {f"t{n}": {} for n in range(5_000)}])
def test_too_many_topics_are_refused_with_their_number(topics: object) -> None:
    inspection = inspect(
        f'export default Keep.workflow({{ name: "w", topics: {json.dumps(topics)}, jobs: {{ j() {{}} }} }})'
    )
    [problem] = [each for each in inspection.problems if each.code is Code.TOO_MANY]
    assert problem.message == f"the workflow has 5000 topics; at most {TOPICS_MAX} are allowed"


def test_an_array_that_only_claims_its_length_is_refused() -> None:
    inspection = inspect('export default Keep.workflow({ name: "w", topics: new Array(4e9), jobs: { j() {} } })')
    assert Code.TOO_MANY in [each.code for each in inspection.problems]


def lie(**declaration: object) -> str:
    """The inspection of a worker that its script took over: it claims that there are no problems."""
    honest = {"name": "w", "topics": ["t"], "producers": {}, "consumers": {}, "jobs": {"j": {}}}
    return json.dumps({"declaration": {**honest, **declaration}, "problems": [], "problem_count": 0})


PHASES = {"prepare": True, "mutate": False, "next": False}


def test_a_sound_declaration_is_believed() -> None:
    assert believed(lie()) is not None


@pytest.mark.parametrize(
    "declaration",
    [
        {"name": "a\u202eb"},
        {"name": None},
        {"name": "x" * 500_000},
        {"topics": ["t", "u\x1b[2J"]},
        {"topics": [f"t{n}" for n in range(100_000)]},
        {"jobs": {f"j{n}": {} for n in range(60_000)}},
        {"jobs": {"a\nb": {}}},
        {"jobs": {}},
        {"jobs": {"j": {"publishes": ["elsewhere"]}}},
        {"jobs": {"j": {"publishes": ["t"] * 100_000}}},
        {"jobs": {"j": {"schedule": {}}}},
        {"jobs": {"j": {"schedule": {"cron": "\x1b * * * *"}}}},
        {"jobs": {"j": {"schedule": {"interval": "1e9h"}}}},
        {"consumers": {"c": {"subscribe": ["elsewhere"], **PHASES}}},
        {"consumers": {"c": {"subscribe": ["t"], **PHASES}, "d": {"subscribe": ["t"], **PHASES}}},
        {"consumers": {"c": {"subscribe": ["t"], **PHASES, "prepare": False}}},
        {"consumers": {"c": {"subscribe": ["t"], **PHASES, "ordering_key": "a..b"}}},
    ],
)
def test_a_worker_that_says_nothing_is_wrong_is_not_believed_if_something_is(declaration: dict[str, object]) -> None:
    assert believed(lie(**declaration)) is None


@pytest.mark.parametrize("job", [{"schedule": {}}, {"schedule": {"interval": "a"}}, {"publishes": ["t"] * 1_001}])
def test_beside_a_problem_a_declaration_that_cannot_be_read_is_left_out(job: dict[str, object]) -> None:
    problem = {"code": "name-missing", "message": "m", "hint": "h"}
    told = believed(json.dumps({**json.loads(lie(jobs={"j": job})), "problems": [problem], "problem_count": 1}))
    assert told is not None
    assert told.declaration is None
    assert told.problem_count == 1


@pytest.mark.parametrize(
    "text",
    [
        "1",
        '{"declaration":null,"problems":[],"problem_count":0}',
        json.dumps(
            {
                "declaration": None,
                "problem_count": 1,
                "problems": [{"code": "too-large", "message": "x" * 601, "hint": ""}],
            }
        ),
        json.dumps(
            {
                "declaration": None,
                "problem_count": 51,
                "problems": [{"code": "too-large", "message": "", "hint": ""}] * 51,
            }
        ),
        json.dumps(
            {
                "declaration": None,
                "problem_count": 10**100,
                "problems": [{"code": "too-large", "message": "", "hint": ""}],
            }
        ),
    ],
)
def test_an_inspection_that_no_worker_of_ours_says_is_none(text: str) -> None:
    assert believed(text) is None
