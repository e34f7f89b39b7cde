"""What a script declares, or a worker says that it does: a declaration without problems is sound, whoever says so."""

import json

import msgspec
from hypothesis import strategies as st

from keep_actors.authoring.admission import DeployRefused, judged
from keep_actors.policy import Policy
from keep_sandbox import Limits
from keep_sandbox.declaration import PROBLEMS_SHOWN_MAX
from keep_sandbox.declaration_checks import is_sound
from keep_sandbox.inspect import believed, inspect
from keep_sandbox.names import HANDLERS_MAX, TOPICS_MAX, unfit_name
from tests.fuzz.json_texts import json_texts, object_of
from tests.fuzz.target import Target

LIMITS = Limits(fuel=40_000_000_000, cpu_hard_ms=5_000)
NOW = 1_700_000_000_000

names = st.sampled_from(
    ["a", "b", "in", "out", "", "a.b", "__proto__", "toString", "x" * 101, "a\u202eb", "\x1b[2J", " "]
)
literals = names.map(json.dumps)
oddities = st.sampled_from(
    [
        "null",
        "1n",
        "() => 1",
        "async () => {}",
        "new Proxy({}, {})",
        "[,,]",
        "new Array(4e9)",
        "Symbol()",
        "new Date(0)",
        "{ get interval() { throw 1 } }",
        "{ toString() { return 1 } }",
        '"x".repeat(1e6)',
        "undefined",
        "[['in']]",
    ]
)
lists = st.lists(literals, max_size=3).map(lambda each: f"[{','.join(each)}]") | oddities
schedules = (
    st.sampled_from(
        ['{interval:"5m"}', '{cron:"0 9 * * 1-5"}', '{cron:"* * * * * *"}', '{interval:"0s"}', '{cron:"61 * * * *"}']
    )
    | json_texts
    | oddities
)
functions = st.sampled_from(["async (ctx) => {}", "async () => ({ reservations: [] })"]) | oddities
paths = st.sampled_from(['"a"', '"a.b"', '"a..b"', '"."', '""', "1"]) | oddities
timed = functions | st.tuples(schedules, lists, functions).map(
    lambda each: f"{{ schedule: {each[0]}, publishes: {each[1]}, handler: {each[2]} }}"
)
consumers = oddities | st.tuples(lists, lists, paths, functions, functions, functions).map(
    lambda each: (
        f"{{ subscribe: {each[0]}, publishes: {each[1]}, orderingKey: {each[2]}, "
        f"prepare: {each[3]}, mutate: {each[4]}, next: {each[5]} }}"
    )
)


def _group(entries: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.tuples(names, entries), max_size=3).map(object_of) | oddities


specs = st.tuples(literals | oddities, lists, _group(timed), _group(consumers), _group(timed)).map(
    lambda each: (
        f"export default Keep.workflow({{ name: {each[0]}, topics: {each[1]}, producers: {each[2]}, "
        f"consumers: {each[3]}, jobs: {each[4]} }});"
    )
)
# What is written here is what a worker would say: our own words for the same, with anything in the place of each.
some = st.fixed_dictionaries(
    {},
    optional={
        "schedule": st.none() | st.fixed_dictionaries({}, optional={"interval": names, "cron": names}),
        "publishes": st.none() | st.lists(names, max_size=3),
    },
)
phases = st.booleans()
said = st.fixed_dictionaries(
    {
        "declaration": st.none()
        | st.fixed_dictionaries(
            {
                "name": st.none() | names,
                "topics": st.lists(names, max_size=4),
                "producers": st.dictionaries(names, some, max_size=2),
                "consumers": st.dictionaries(
                    names,
                    st.fixed_dictionaries(
                        {"subscribe": st.lists(names, max_size=2), "prepare": phases, "mutate": phases, "next": phases},
                        optional={
                            "ordering_key": st.none() | names,
                            "publishes": st.none() | st.lists(names, max_size=2),
                        },
                    ),
                    max_size=2,
                ),
                "jobs": st.dictionaries(names, some, max_size=2),
            }
        ),
        "problems": st.lists(
            st.fixed_dictionaries(
                {"code": st.sampled_from(["too-large", "load-error", "odd"]), "message": st.text(), "hint": names}
            ),
            max_size=2,
        ),
        "problem_count": st.integers(-1, 3) | st.just(2**80),
    },
    optional={
        "uses": st.lists(st.fixed_dictionaries({"name": names, "place": st.just([1, 1]), "handler": names}), max_size=2)
    },
).map(json.dumps)


def check(text: str) -> None:
    """A script (`export …`) is inspected; anything else is what a worker says about one."""
    if not text.startswith("export"):
        told = believed(text)
    else:
        told = inspect(text, limits=LIMITS)
        assert believed(msgspec.json.encode(told).decode()) == told, "an honest worker is believed"
    if told is None:
        return
    assert max(len(told.problems), len(told.warnings)) <= PROBLEMS_SHOWN_MAX
    try:
        declared = judged(told, {}, "UTC", Policy(), NOW).declared()
    except DeployRefused:
        return
    declaration = declared.declaration
    assert is_sound(declaration)
    handlers = [*declaration.producers, *declaration.consumers, *declaration.jobs]
    assert len(handlers) <= HANDLERS_MAX
    assert len(declaration.topics) <= TOPICS_MAX
    assert not any(map(unfit_name, [declaration.name or "", *declaration.topics, *handlers]))
    assert msgspec.json.decode(declared.encoded(), type=type(declared)) == declared


TARGET = Target(
    "declaration",
    "what a script declares, or a worker says of it",
    specs | said | json_texts,
    check,
    read=bytes.decode,
    write=str.encode,
    suffix=".txt",
)
