"""The problems of a repaired script: one case for each sentence."""

import functools

import msgspec
import pytest

from keep_actors.maintenance import problems_of
from keep_actors.maintenance.validation import HANDLER_MAY_CHANGE
from keep_sandbox.declaration import PROBLEMS_SHOWN_MAX, Consumer, Declaration, Inspection, Schedule, Scheduled
from keep_sandbox.inspect import inspect
from tests.maintenance.world import GRANTED, METHODS, REPAIRED, SCRIPT

KINDS = {name: method.kind for name, method in METHODS.items()}


@functools.cache
def inspected(source: str) -> Inspection:
    return inspect(source, KINDS)


def declaration_of(source: str) -> Declaration:
    inspection = inspected(source)
    assert inspection.problems == []
    assert inspection.declaration is not None
    return inspection.declaration


OLD = declaration_of(SCRIPT)


def problems(new_source: str, old_source: str = SCRIPT) -> list[str]:
    old = declaration_of(old_source)
    return problems_of(old, inspected(new_source), GRANTED, old_source=old_source, new_source=new_source)


def changed(*replacements: tuple[str, str], source: str = REPAIRED) -> str:
    for before, after in replacements:
        assert source.count(before) == 1, f"{before!r} says where the change is"
        source = source.replace(before, after)
    return source


def test_a_changed_body_of_a_handler_is_a_repair() -> None:
    assert problems(REPAIRED) == []


@pytest.mark.parametrize(
    "same", [SCRIPT, SCRIPT.replace("\n", "\r\n"), f"\n{SCRIPT}\n\n", SCRIPT.replace(",\n", ",  \n")]
)
def test_the_same_script_again_is_no_repair(same: str) -> None:
    assert problems(same) == ["The script is the same as before; change what made it fail."]


CASES = {
    "does not load": (
        [("export default Keep.workflow({", "export default Keep.workflow({{")],
        "At 1:31: SyntaxError: invalid property name (load-error); "
        "this is not valid JavaScript: look for a missing bracket, comma or quote just before this place.",
    ),
    "has a problem with a place": (
        [("if (!mail) return", "fetch(1); if (!mail) return")],
        "At 21:9: `fetch` does not exist here (global-unknown); "
        "there is no network: call a connector, `ctx.<connector>.<method>({...})`, in a producer or `prepare`.",
    ),
    "another name": (
        [('name: "mail to sheet"', 'name: "mail to \\n sheet"')],
        'The name is "mail to \\n sheet" now; keep `name: "mail to sheet"`.',
    ),
    "a topic added": (
        [("spare: {} }", "spare: {}, more: {} }")],
        'The topics also have "more" now; remove them, since a repair adds no topics.',
    ),
    "a handler added": (
        [("  jobs: {", "  jobs: {\n    extra: async (ctx) => {},")],
        "jobs.extra is new; remove it, since a repair adds no handlers.",
    ),
    "a handler renamed away": (
        [("digest: {", "summary: {")],
        "jobs.digest is missing; a repair keeps every handler.",
    ),
    "subscribes to more": (
        [('subscribe: ["mail"]', 'subscribe: ["mail", "spare"]')],
        'consumers.file subscribes to "mail", "spare" now; keep `subscribe` at "mail".',
    ),
    "subscribes to something else": (
        [('subscribe: ["mail"]', 'subscribe: ["spare"]'), ('ctx.peek("mail")', 'ctx.peek("spare")')],
        'consumers.file subscribes to "spare" now; keep `subscribe` at "mail".',
    ),
    "a consumer publishes to more": (
        [('publishes: ["row"]', 'publishes: ["row", "spare"]')],
        'consumers.file may also publish to "spare"; keep `publishes` at "row".',
    ),
    "a consumer publishes everywhere": (
        [('      publishes: ["row"],\n', "")],
        'consumers.file has no `publishes` any more, so it may also publish to "mail", "spare"; '
        'keep `publishes` at "row".',
    ),
    "a producer publishes to more": (
        [('publishes: ["mail"]', 'publishes: ["mail", "row"]')],
        'producers.poll may also publish to "row"; keep `publishes` at "mail".',
    ),
    "no mutate": (
        [("async mutate(", "async mutates(")],
        "consumers.file has no `mutate` any more; a repair keeps every phase.",
    ),
    "no next": (
        [("async next(", "async afterwards(")],
        "consumers.file has no `next` any more; a repair keeps every phase.",
    ),
    "another ordering key": (
        [('subscribe: ["mail"],', 'subscribe: ["mail"], orderingKey: "subject",')],
        'The `orderingKey` of consumers.file is "subject" now and was missing; keep it, since it orders calls '
        "whose outcome is unknown.",
    ),
    "another interval": (
        [('interval: "5m"', 'interval: "1m"')],
        'The schedule of producers.poll is `{interval: "1m"}` now; keep it at `{interval: "5m"}`.',
    ),
    "another kind of schedule": (
        [('cron: "0 9 * * 1"', 'interval: "7d"')],
        'The schedule of jobs.digest is `{interval: "7d"}` now; keep it at `{cron: "0 9 * * 1"}`.',
    ),
    "no schedule": (
        [('      schedule: { cron: "0 9 * * 1" },\n', "")],
        'The schedule of jobs.digest is the default one now; keep it at `{cron: "0 9 * * 1"}`.',
    ),
    "a method that exists and was not granted": (
        [("await ctx.sheets.appendRow({", "await ctx.gmail.send({")],
        "At 25:15, consumers.file.mutate uses `ctx.gmail.send`, which this workflow was not granted; "
        'use only "gmail.search", "sheets.appendRow".',
    ),
    "a method that does not exist": (
        [('ctx.gmail.search({ query: "invoice" })', "ctx.gmail.list({})")],
        "At 9:34, producers.poll uses `ctx.gmail.list`, which this workflow was not granted; "
        'use only "gmail.search", "sheets.appendRow".',
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_repair_that_changes_more_than_code_is_told_so(case: str) -> None:
    replacements, sentence = CASES[case]
    assert sentence in problems(changed(*replacements))


def test_a_topic_that_is_gone_is_asked_for() -> None:
    gone = changed(("spare: {} }", "}"), ('ctx.publish("spare"', 'ctx.publish("row"'))
    assert problems(gone) == ['The topics no longer have "spare"; declare them again.']


def test_a_topic_that_is_renamed_is_asked_for_by_its_old_name() -> None:
    renamed = changed(("spare: {} }", "other: {} }"), ('ctx.publish("spare"', 'ctx.publish("other"'))
    assert problems(renamed) == [
        'The topics no longer have "spare"; declare them again.',
        'The topics also have "other" now; remove them, since a repair adds no topics.',
    ]


def test_a_handler_that_is_gone_is_asked_for() -> None:
    start = REPAIRED.index("  jobs: {")
    assert problems(REPAIRED[:start] + "});\n") == ["jobs.digest is missing; a repair keeps every handler."]


def test_a_handler_of_another_kind_is_one_problem_and_not_two() -> None:
    start = REPAIRED.index("  jobs: {")
    job = REPAIRED[start:].removeprefix("  jobs: {\n").removesuffix("  },\n});\n")
    moved = REPAIRED[:start].replace("  producers: {\n", f"  producers: {{\n{job}") + "});\n"
    assert problems(moved) == ['"digest" is a producer now and was a job; move it back to `jobs`.']


def test_a_second_handler_of_the_same_name_is_a_new_one() -> None:
    twice = changed(("  producers: {", "  producers: {\n    digest: async (ctx) => {},"))
    assert problems(twice) == ["producers.digest is new; remove it, since a repair adds no handlers."]


def test_a_renamed_handler_is_one_missing_and_one_new() -> None:
    assert problems(changed(("digest: {", "summary: {"))) == [
        "jobs.digest is missing; a repair keeps every handler.",
        "jobs.summary is new; remove it, since a repair adds no handlers.",
    ]


def test_the_order_of_topics_and_of_handlers_means_nothing() -> None:
    assert problems(changed(("{ mail: {}, row: {}, spare: {} }", '["spare", "row", "mail"]'))) == []


def test_fewer_publishes_and_more_phases_are_allowed() -> None:
    without_next = changed(("async next(", "async afterwards("), ('      publishes: ["row"],\n', ""), source=SCRIPT)
    assert problems(REPAIRED, without_next) == []
    assert problems(changed(('publishes: ["row"]', 'publishes: ["row"].concat([])'))) == []
    everywhere = changed(('      publishes: ["row"],\n', ""), source=SCRIPT)
    assert problems(REPAIRED, everywhere) == []


def test_a_handler_that_may_publish_everywhere_may_go_on_so() -> None:
    everywhere = changed(('      publishes: ["row"],\n', ""), source=SCRIPT)
    assert problems(changed(('      publishes: ["row"],\n', "")), everywhere) == []


def test_a_workflow_without_grants_is_told_that_it_has_none() -> None:
    new = inspected(REPAIRED)
    [first, second] = problems_of(OLD, new, [], old_source=SCRIPT, new_source=REPAIRED)
    assert first.endswith("which this workflow was not granted; it was granted none, so use none.")
    assert "ctx.sheets.appendRow" in second


def test_a_script_that_gave_no_reason_for_not_loading_is_still_refused() -> None:
    silent = Inspection(declaration=None, problems=[], problem_count=0)
    assert problems_of(OLD, silent, GRANTED, old_source=SCRIPT, new_source="x") == [
        "The script does not load; it must `export default Keep.workflow({...})`."
    ]


def test_what_inspection_did_not_list_is_counted() -> None:
    broken = changed(("if (!mail) return", f"{'fetch();' * 60} if (!mail) return"))
    inspection = inspected(broken)
    assert inspection.problem_count > len(inspection.problems)
    found = problems_of(OLD, inspection, GRANTED, old_source=SCRIPT, new_source=broken)
    assert len(found) == PROBLEMS_SHOWN_MAX + 1
    assert found[-1] == "1 more problem; fix these first."
    few = msgspec.structs.replace(inspection, problems=inspection.problems[:1])
    found = problems_of(OLD, few, GRANTED, old_source=SCRIPT, new_source=broken)
    assert found[1:] == ["Inspection found 59 more problems; fix the ones above first."]


def test_names_that_a_script_chose_are_bounded_and_legible() -> None:
    name = "x" * 5_000 + "\\u202e\\n"
    hostile = changed(
        ("  jobs: {", f'  jobs: {{\n    "{name}": async (ctx) => {{}}, "a\\u202eb\\n": async () => {{}},')
    )
    found = problems(hostile)
    # Each is new, and no name that a handler may have.
    assert len(found) == 4
    assert all(len(each) < 300 and each.isprintable() for each in found)
    assert any("a\\u202eb\\n" in each for each in found)


# Every field there is, also one that does not exist yet.

ORDERED = changed(('subscribe: ["mail"],', 'subscribe: ["mail"], orderingKey: "customer",'), source=SCRIPT)


@pytest.mark.parametrize("key", ["", 'orderingKey: "sender",', 'orderingKey: "customer.id",'])
def test_a_repair_neither_drops_nor_changes_the_order_of_a_customers_calls(key: str) -> None:
    repaired = changed(('subscribe: ["mail"],', f'subscribe: ["mail"], {key}'))
    [problem] = problems(repaired, ORDERED)
    assert "orderingKey" in problem
    assert problems(changed(('subscribe: ["mail"],', 'subscribe: ["mail"], orderingKey: "customer",')), ORDERED) == []


STRUCTS: dict[str, type[msgspec.Struct]] = {"producers": Scheduled, "jobs": Scheduled, "consumers": Consumer}
FIELDS = [(group, field) for group, struct in STRUCTS.items() for field in struct.__struct_fields__]
OTHER_VALUES = {
    "schedule": Schedule(interval="1m"),
    "publishes": ["mail", "row", "spare"],
    "subscribe": ["mail", "spare"],
    "ordering_key": "customer",
    "prepare": False,
    "mutate": False,
    "next": False,
}
"""A value for each field that no handler of the script has, and that no repair may give it."""


def repaired(declaration: Declaration) -> list[str]:
    """The problems of a repair with this declaration, whose code is right."""
    inspection = Inspection(declaration=declaration, problems=[], problem_count=0)
    return problems_of(OLD, inspection, GRANTED, old_source=SCRIPT, new_source=REPAIRED)


@pytest.mark.parametrize(("group", "field"), FIELDS)
def test_a_repair_may_change_no_field_of_a_handler(group: str, field: str) -> None:
    handlers = getattr(OLD, group)
    [name] = handlers
    if field == "publishes" and group == "jobs":
        assert handlers[name].publishes is None, "it may publish everywhere already"
        return
    other = msgspec.structs.replace(handlers[name], **{field: OTHER_VALUES[field]})
    [problem] = repaired(msgspec.structs.replace(OLD, **{group: {name: other}}))
    assert f"{group}.{name}" in problem


@pytest.mark.parametrize("field", Declaration.__struct_fields__)
def test_a_repair_may_change_no_field_of_the_workflow(field: str) -> None:
    other = {"name": "other", "topics": ["mail"], "producers": {}, "consumers": {}, "jobs": {}}[field]
    assert repaired(msgspec.structs.replace(OLD, **{field: other}))


def test_what_a_repair_may_change_in_a_declaration_is_a_closed_list() -> None:
    assert {(struct.__name__, field) for struct, field in HANDLER_MAY_CHANGE} == {
        ("Scheduled", "publishes"),
        ("Consumer", "publishes"),
        ("Consumer", "subscribe"),
        ("Consumer", "mutate"),
        ("Consumer", "next"),
    }


@pytest.mark.parametrize(("group", "field"), [(group, "priority") for group in STRUCTS] + [("", "retention")])
def test_a_field_that_is_new_in_the_language_is_refused_until_it_is_in_the_list(group: str, field: str) -> None:
    struct = STRUCTS.get(group, Declaration)
    newer = msgspec.defstruct("Newer", [(field, str, "")], bases=(struct,), frozen=True, kw_only=True)
    if group:
        [name] = handlers = getattr(OLD, group)
        other = newer(**msgspec.structs.asdict(handlers[name]), **{field: "high"})
        found = repaired(msgspec.structs.replace(OLD, **{group: {name: other}}))
    else:
        declaration = newer(**msgspec.structs.asdict(OLD), **{field: "high"})
        assert isinstance(declaration, Declaration)
        found = repaired(declaration)
    [problem] = found
    assert f"another `{field}`: 'high'" in problem
