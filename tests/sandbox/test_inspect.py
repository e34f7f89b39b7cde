"""A script's declaration and its problems, found without running a handler."""

import json

import pytest

from keep_actors.sandbox_pool import SandboxPool
from keep_sandbox import Code, Consumer, Declaration, Inspection, Limits, Place, Schedule, Scheduled
from keep_sandbox.inspect import inspect
from tests.sandbox.world import needs_jail, prepare_script

EXAMPLE = """\
export default Keep.workflow({
  name: "example",

  topics: {
    "email.received": {},
    "row.created": {},
  },

  producers: {
    pollEmail: async (ctx, state) => {
      const emails = await ctx.gmail.search({ after: state?.cursor });
      for (const e of emails) {
        await ctx.publish("email.received", { messageId: e.id, title: `Email from ${e.from}`, payload: e });
      }
      return { cursor: emails.lastCursor };
    },
    nightly: {
      schedule: { cron: "0 3 * * *" },
      publishes: ["email.received"],
      async handler(ctx) { await ctx.publish("email.received", { messageId: "1", title: "T", payload: {} }); },
    },
  },

  consumers: {
    processEmail: Keep.consumer({
      subscribe: ["email.received"],
      publishes: ["row.created"],

      async prepare(ctx, state) {
        const pending = await ctx.peek("email.received");
        if (pending.length === 0) return { reservations: [], data: {} };
        return { reservations: [{ topic: "email.received", ids: [pending[0].messageId] }], data: pending[0].payload };
      },

      async mutate(ctx, prepared) {
        if (prepared.data.skip) {
          return;
        }
        await ctx.sheets.appendRow({ values: [prepared.data.from] });
      },

      async next(ctx, prepared, mutationResult) {
        if (mutationResult.status === "applied") {
          await ctx.publish("row.created", { messageId: "row:1", title: "Row", payload: {} });
        }
      },
    }),
  },

  jobs: {
    digest: {
      schedule: { interval: "1h" },
      async handler(ctx) {
        for (const row of await ctx.sheets.listRows({})) {
          await ctx.withItem(row.id, `Row ${row.id}`, async () => {
            if (ctx.item.isDone) return;
            await ctx.gmail.send({ to: row.owner });
            console.log("sent");
          });
        }
      },
    },
  },
});
"""


def consumer_script(prepare: str = "", mutate: str = "", more: str = "") -> str:
    return f"""\
export default Keep.workflow({{ name: "w", topics: {{ t: {{}} }}, {more}
consumers: {{ c: Keep.consumer({{ subscribe: ["t"],
async prepare(ctx, state) {{ {prepare} }},
async mutate(ctx, prepared) {{ {mutate} }} }}) }} }});
"""


def found(inspection: Inspection) -> list[tuple[Code, int | None]]:
    return [(problem.code, problem.place.line if problem.place else None) for problem in inspection.problems]


def test_a_good_script_is_declared_and_has_no_problems() -> None:
    inspection = inspect(EXAMPLE)
    assert inspection.problems == []
    assert inspection.problem_count == 0
    assert inspection.declaration == Declaration(
        name="example",
        topics=["email.received", "row.created"],
        producers={
            "pollEmail": Scheduled(),
            "nightly": Scheduled(schedule=Schedule(cron="0 3 * * *"), publishes=["email.received"]),
        },
        consumers={
            "processEmail": Consumer(
                subscribe=["email.received"], publishes=["row.created"], prepare=True, mutate=True, next=True
            )
        },
        jobs={"digest": Scheduled(schedule=Schedule(interval="1h"))},
    )


def test_handlers_are_not_called() -> None:
    source = (
        "export default Keep.workflow({ name: 'w', jobs: { a() { for(;;); }, get b() { return () => { throw 1 } } } })"
    )
    inspection = inspect(source, limits=Limits())
    assert inspection.declaration is not None
    assert set(inspection.declaration.jobs) == {"a", "b"}


@pytest.mark.parametrize(
    ("mutate", "has_problem"),
    [
        ("await ctx.gmail.send({});", False),
        ("return await ctx.gmail.send({});", False),
        ("if (prepared.a) { await ctx.gmail.send({}); return; } await ctx.gmail.reply({});", False),
        ("if (prepared.a) await ctx.gmail.send({}); else await ctx.gmail.reply({});", False),
        ("switch (prepared.a) { case 1: await ctx.gmail.send({}); break; default: await ctx.gmail.reply({}) }", False),
        ("await ctx.gmail.send({}); /* nothing */", False),
        ("await ctx.gmail.send({}); console.log(1);", True),
        ("await ctx.gmail.send({}); await ctx.gmail.send({});", True),
        ("const r = await ctx.gmail.send({}); return r.id;", True),
        ("if (prepared.a) { await ctx.gmail.send({}); } console.log(1);", True),
        ("try { await ctx.gmail.send({}); } catch (e) { console.log(e); }", True),
        ("try { await ctx.gmail.send({}); } finally { console.log(1); }", True),
        ("for (const x of prepared.all) { await ctx.gmail.send({ x }); }", True),
        ("ctx.gmail.send({}).then(() => console.log(1));", True),
        ("await Promise.all([ctx.gmail.send({}), ctx.gmail.send({})]);", True),
        ("switch (prepared.a) { case 1: await ctx.gmail.send({}); break; } console.log(1);", True),
        ("await ctx['gmail']['send']({}); console.log(1);", True),
    ],
)
def test_code_after_the_mutation_is_found(mutate: str, has_problem: bool) -> None:
    problems = found(inspect(consumer_script(mutate=mutate)))
    assert problems == ([(Code.CODE_AFTER_MUTATION, 4)] if has_problem else [])


@pytest.mark.parametrize(
    ("handler", "code"),
    [
        ("async prepare(ctx) { await ctx.gmail.send({}) }", Code.MUTATION_MISPLACED),
        ("async prepare({ gmail }) { await gmail.send({}) }", Code.MUTATION_MISPLACED),
        ("async prepare({ gmail: mail }) { await mail.createDraft({}) }", Code.MUTATION_MISPLACED),
        ("prepare: async c => { await c.gmail.deleteAll({}) }", Code.MUTATION_MISPLACED),
        ("async prepare(ctx) { const { gmail } = ctx; await gmail.send({}) }", Code.MUTATION_MISPLACED),
        ("async prepare(ctx) { const mail = ctx.gmail; await mail.send({}) }", Code.MUTATION_MISPLACED),
        ("async prepare(ctx) { const { send } = ctx.gmail; await send({}) }", Code.MUTATION_MISPLACED),
        ("async prepare({ gmail: { send: go } }) { await go({}) }", Code.MUTATION_MISPLACED),
        ("async prepare(ctx) { [1].map(ctx.gmail.send) }", Code.MUTATION_MISPLACED),
        ("prepare: async function (ctx) { await ctx.gmail.send({}) }", Code.MUTATION_MISPLACED),
        ("async prepare(ctx) { await ctx.publish('t', {}) }", Code.CALL_MISPLACED),
        ("async prepare(ctx) {}, async next(ctx) { await ctx.gmail.search({}) }", Code.CALL_MISPLACED),
        ("async prepare(ctx) {}, async next(ctx) { await ctx.gmail.send({}) }", Code.MUTATION_MISPLACED),
        ("async prepare(ctx) {}, async mutate(ctx) { await ctx.peek('t') }", Code.CALL_MISPLACED),
        ("async prepare(ctx) { await ctx.peek('nowhere') }", Code.TOPIC_UNKNOWN),
        ("async prepare(ctx) { await ctx.peek('u') }", Code.TOPIC_NOT_SUBSCRIBED),
        (
            "publishes: ['t'], async prepare(ctx) {}, async next(ctx) { await ctx.publish('u', { title: 'T' }) }",
            Code.TOPIC_NOT_PUBLISHED,
        ),
        ("async next(ctx) {}", Code.PREPARE_MISSING),
        ("publishes: ['nowhere'], async prepare(ctx) {}, async next(ctx) {}", Code.TOPIC_UNKNOWN),
        ("async prepare(ctx) { return eval('1') }", Code.DYNAMIC_CODE),
        ("async prepare(ctx) { return await import('fs') }", Code.DYNAMIC_CODE),
        ("async prepare(ctx) { await fetch('https://example.com') }", Code.GLOBAL_UNKNOWN),
        ("async prepare(ctx) { setTimeout(() => {}, 1) }", Code.GLOBAL_UNKNOWN),
    ],
)
def test_what_a_phase_may_not_do_is_found(handler: str, code: Code) -> None:
    source = f"""export default Keep.workflow({{ name: "w", topics: {{ t: {{}}, u: {{}} }},
      consumers: {{ c: Keep.consumer({{ subscribe: ["t"], {handler} }}) }} }});"""
    inspection = inspect(source)
    assert [problem.code for problem in inspection.problems] == [code]
    problem = inspection.problems[0]
    assert problem.place is not None
    assert problem.place.line == 2
    assert problem.hint
    assert problem.message


def named(rest: str) -> str:
    return f"export default Keep.workflow({{ name: 'w', {rest} }})"


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("export default Keep.workflow({ jobs: { j() {} } })", Code.NAME_MISSING),
        (named(""), Code.HANDLERS_MISSING),
        (named("producers: { p: {} }"), Code.HANDLER_MISSING),
        (named("consumers: { c: { prepare() {} } }"), Code.SUBSCRIBE_MISSING),
        (named("jobs: { j: { schedule: '5m', handler() {} } }"), Code.SCHEDULE_INVALID),
        (named("jobs: { j: { schedule: { cron: '* *' }, handler() {} } }"), Code.SCHEDULE_INVALID),
        (named("jobs: { async j(ctx) { await ctx.gmail.send({}) } }"), Code.MUTATION_MISPLACED),
        ("let n = 0;" + named("jobs: { j() { n++ } }"), Code.TOP_LEVEL_STATE),
        ("var n;" + named("jobs: { j() {} }"), Code.TOP_LEVEL_STATE),
        ("const seen = [];" + named("jobs: { j() { seen.push(1) } }"), Code.TOP_LEVEL_STATE),
        ("const c = {};" + named("jobs: { j() { c.n = 1 } }"), Code.TOP_LEVEL_STATE),
        ("export default Keep.workflow({", Code.LOAD_ERROR),
        ("throw new Error('x')", Code.LOAD_ERROR),
        ("export default 1", Code.LOAD_ERROR),
        ("for (;;);", Code.LOAD_ERROR),
        ("await new Promise(() => {}); export default Keep.workflow({})", Code.LOAD_ERROR),
        ("//" + "x" * 300_000, Code.TOO_LARGE),
    ],
)
def test_what_is_wrong_with_a_declaration_is_found(source: str, code: Code) -> None:
    inspection = inspect(source, limits=Limits(fuel=800_000_000))
    assert [problem.code for problem in inspection.problems] == [code]


def test_a_constant_that_is_only_read_is_no_state() -> None:
    source = "const names = ['a']; const of = (x) => names.includes(x);"
    inspection = inspect(
        source + "export default Keep.workflow({ name: 'w', jobs: { j() { const own = []; own.push(of(1)) } } })"
    )
    assert inspection.problems == []


def test_two_consumers_on_a_topic_are_found_at_the_second() -> None:
    source = """export default Keep.workflow({ name: "w", topics: { t: {} }, consumers: {
      a: Keep.consumer({ subscribe: ["t"], prepare() {} }),
      b: Keep.consumer({ subscribe: ["t"], prepare() {} }),
    } });"""
    inspection = inspect(source)
    assert found(inspection) == [(Code.TOPIC_SHARED, 3)]
    assert inspection.problems[0].handler == "consumers.b"


@pytest.mark.parametrize(
    ("fields", "is_right"),
    [
        ("publishes: ['u']", False),
        ("publishes: ['u'], mutate() {}", False),
        ("publishes: 'u'", False),
        ("publishes: ['u'], next() {}", True),
        ("publishes: []", True),
        ("next() {}", True),
        ("", True),
    ],
)
def test_a_consumer_that_publishes_without_next_is_a_problem(fields: str, is_right: bool) -> None:
    inspection = inspect(f"""export default Keep.workflow({{ name: "w", topics: ["t", "u"], consumers: {{
      c: Keep.consumer({{ subscribe: ["t"], prepare() {{}},
        {fields} }}) }} }});""")
    assert found(inspection) == ([] if is_right else [(Code.NEXT_MISSING, 3)])
    assert all(problem.handler == "consumers.c" and "next" in problem.hint for problem in inspection.problems)


def test_an_unknown_topic_is_found_wherever_it_is_named() -> None:
    source = """export default Keep.workflow({ name: "w", topics: ["t"], producers: {
      p: { publishes: ["gone"], async handler(ctx) {
        await ctx.publish("typo", { title: "T" }); } } }, consumers: {
      c: { subscribe: ["lost"], prepare() {} } } });"""
    assert found(inspect(source)) == [(Code.TOPIC_UNKNOWN, 2), (Code.TOPIC_UNKNOWN, 3), (Code.TOPIC_UNKNOWN, 4)]


@pytest.mark.parametrize(
    ("returned", "is_right"),
    [
        ("{ reservations: [] }", True),
        ('{ "reservations": [], data: { anything: 1 }, ui: { title: "T" }, wakeAt: undefined }', True),
        ("{ ...state }", True),
        ("{ [state]: [] }", True),
        ("{ /* nothing */ reservations: [] }", True),
        ("state", True),
        ("{}", False),
        ("{ data: 1 }", False),
        ("{ reservations: [], titel: 1 }", False),
        ("{ ...state, wakeat: 1 }", False),
    ],
)
def test_a_result_that_is_written_out_is_checked(returned: str, is_right: bool) -> None:
    inside = "[1].map(() => { return { any: 1 }; });"
    problems = found(inspect(consumer_script(prepare=f"{inside} const reservations = []; return {returned};")))
    assert problems == ([] if is_right else [(Code.RESULT_INVALID, 3)])


@pytest.mark.parametrize(
    ("event", "is_right"),
    [
        ('{ title: "T" }', True),
        ('{ messageId: "1", title: "T", payload: {} }', True),
        ("{ ...state }", True),
        ("state", True),
        ("{}", False),
        ('{ title: "T", data: 1 }', False),
    ],
)
def test_an_event_that_is_written_out_is_checked(event: str, is_right: bool) -> None:
    source = named(f"topics: ['t'], producers: {{ async p(ctx, state) {{ await ctx.publish('t', {event}) }} }}")
    assert found(inspect(source)) == ([] if is_right else [(Code.EVENT_INVALID, 1)])


@pytest.mark.parametrize(
    ("field", "is_known"),
    [("mutate() {}", True), ("mutation() {}", False), ("description: 1", True), ("publish: []", False)],
)
def test_a_field_that_looks_like_a_slip_of_the_pen_is_found(field: str, is_known: bool) -> None:
    source = named(f"topics: ['t'], consumers: {{ c: {{ subscribe: ['t'], prepare() {{}}, {field} }} }}")
    assert found(inspect(source)) == ([] if is_known else [(Code.FIELD_UNKNOWN, 1)])


def test_the_place_of_an_error_in_a_text_is_that_of_the_script_that_reads_it() -> None:
    source = named("jobs: { j() {} }") + ";\nconst settings =\n  JSON.parse('{ broken');"
    assert found(inspect(source)) == [(Code.LOAD_ERROR, 3)]


def test_the_host_decides_what_mutates() -> None:
    source = consumer_script(prepare="await ctx.crm.touch({}); await ctx.crm.sendPreview({});")
    assert found(inspect(source, {"crm.touch": "mutation", "crm.sendPreview": "read"})) == [
        (Code.MUTATION_MISPLACED, 3)
    ]


def test_handlers_that_are_named_functions_are_checked_too() -> None:
    source = """const poll = async (ctx) => { await ctx.gmail.send({}) };
async function prepare(ctx) { await ctx.gmail.send({}) }
export default Keep.workflow({ name: "w", topics: { t: {} }, producers: { poll },
  consumers: { c: Keep.consumer({ subscribe: ["t"], prepare }) } });"""
    assert found(inspect(source)) == [(Code.MUTATION_MISPLACED, 1), (Code.MUTATION_MISPLACED, 2)]


def test_places_count_characters_not_bytes() -> None:
    source = consumer_script(prepare="const s = 'é😀'; await ctx.gmail.send({});")
    place = inspect(source).problems[0].place
    assert place is not None
    assert source.split("\n")[place.line - 1][place.column - 1 :].startswith("ctx.gmail.send")


def test_a_script_with_a_thousand_problems_gets_the_first_fifty_and_a_count() -> None:
    source = (
        "".join(f"let v{n};\n" for n in range(1_000)) + "export default Keep.workflow({ name: 'w', jobs: { j() {} } })"
    )
    inspection = inspect(source)
    assert inspection.problem_count == 1_000
    assert [problem.place for problem in inspection.problems] == [Place(line, 5) for line in range(1, 51)]


HOSTILE = [
    "(" * 100_000,
    "a(" * 80_000,
    "`${" * 60_000,
    "if(1)" * 50_000,
    "{" * 200_000,
    "/*" * 100_000,
    "\\u0000" * 1_000,
    "\ufeff" * 1_000,
    "export default Keep.workflow({ consumers: { c: { async mutate(ctx) {" + "await ctx.a.send();" * 8_000 + "}}}})",
    "export default Keep.workflow({ topics: " + json.dumps([f"t{n}" for n in range(5_000)]) + ", jobs: { j() {} } })",
    "export default Keep.workflow(new Proxy({}, { getOwnPropertyDescriptor() { throw 1 } }))",
    "export default Keep.workflow({ get jobs() { for(;;); } })",
    "export default Keep.workflow({ name: 'x'.repeat(1e7) })",
    "export default Keep.workflow({ jobs: { j: { schedule: { get interval() { for(;;); } } } } })",
]


@needs_jail
@pytest.mark.anyio
async def test_a_hostile_script_is_inspected_inside_the_jail() -> None:
    async with SandboxPool.open() as pool:
        assert await pool.inspect(EXAMPLE) == inspect(EXAMPLE)
        for source in HOSTILE:
            inspection = await pool.inspect(source)
            assert inspection.problem_count > 0
            assert len(inspection.problems) <= 50
        assert await pool.inspect(EXAMPLE, {"sheets.appendRow": "read"}) == inspect(EXAMPLE)
        assert pool.stats.kept == 0


def test_the_methods_that_handlers_name_are_listed_each_where_it_is_named_first() -> None:
    source = prepare_script(
        "const { gmail: mail } = ctx; await mail.search({}); await ctx.gmail.search({}); ctx.peek('t')"
    )
    [use] = inspect(source).uses
    assert (use.name, use.handler, use.place.line) == ("gmail.search", "consumers.c.prepare", 2)
    assert [use.name for use in inspect(EXAMPLE).uses] == [
        "gmail.search",
        "gmail.send",
        "sheets.appendRow",
        "sheets.listRows",
    ]
