"""The tree of spans of a run, as OpenTelemetry's own SDK sees it; and that nothing private is in it."""

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from keep_actors import Grant
from keep_actors.connectors import AuthRequired, Uncertain
from keep_actors.maintenance import Proposal, RepairTask
from keep_actors.telemetry import OpenTelemetry
from tests.runtime.fakes import Attempt, Fake, applies_and_raises, raises
from tests.runtime.world import TAKE, TimedBox, script, world

pytestmark = pytest.mark.anyio

PRIVATE = "private-words"
READ_THEN_TAKE = f'await c.fake.search({{ query: "{PRIVATE}" }});{TAKE}'
ADD = f'await c.fake.add({{ text: prepared.data.id + "{PRIVATE}" }});'
PUBLISH = f'await c.publish("out", {{ title: "{PRIVATE}", payload: "{PRIVATE}" }});'
CONSUMER = script(prepare=READ_THEN_TAKE, mutate=ADD, next_=PUBLISH)


class Seen:
    """What was exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.telemetry = OpenTelemetry(tracer_provider=self.provider, meter_provider=self.meters)

    @property
    def spans(self) -> list[ReadableSpan]:
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def roots(self, name: str = "keep.run") -> list[ReadableSpan]:
        return [span for span in self.spans if span.parent is None and span.name == name]

    def tree(self, root: ReadableSpan, depth: int = 0) -> Iterator[str]:
        """A line for each span: what it is, and what came of it."""
        known = {key.removeprefix("keep."): value for key, value in (root.attributes or {}).items()}
        what = known.get("phase") or known.get("method") or known.get("errand") or known.get("handler")
        failure = f" ({known['failure']})" if "failure" in known else ""
        yield f"{'  ' * depth}{root.name.removeprefix('keep.')} {what}: {known.get('outcome')}{failure}"
        for span in self.spans:
            if span.parent is not None and root.context is not None and span.parent.span_id == root.context.span_id:
                yield from self.tree(span, depth + 1)

    def last(self) -> list[str]:
        return list(self.tree(self.roots()[-1]))

    def everything(self) -> str:
        metrics = self.reader.get_metrics_data()
        return "".join(span.to_json() for span in self.spans) + (metrics.to_json() if metrics is not None else "")


@pytest.fixture
def seen() -> Seen:
    return Seen()


async def one(box: TimedBox, source: str) -> None:
    await box.keep.deploy(source, workflow="flow")
    await box.publish("flow", "in", f"one-{PRIVATE}", payload=PRIVATE)
    await box.settle()


async def test_a_consumer_that_reads_mutates_and_publishes(seen: Seen) -> None:
    async with world(Fake(), telemetry=seen.telemetry) as box:
        await one(box, CONSUMER)
        run = await box.last_run("flow", "file")
    committed = next(root for root in seen.roots() if (root.attributes or {})["keep.run_id"] == run.id)
    assert (
        list(seen.tree(committed))
        == [
            "run file: committed",
            "  phase prepare: returned",
            "    call fake.search: answered",
            "  phase mutate: mutation",
            "  call fake.add: happened",
            "  phase next: returned",
        ]
        or run.mutation_outcome == ""
    )
    assert dict(committed.attributes or {}) == {
        "keep.workflow_id": run.workflow_id,
        "keep.workflow": "flow",
        "keep.run_id": run.id,
        "keep.handler": "file",
        "keep.kind": "consumer",
        "keep.trigger": "event",
        "keep.outcome": "committed",
    }


async def test_a_script_that_fails(seen: Seen) -> None:
    async with world(Fake(), telemetry=seen.telemetry) as box:
        await one(box, script(prepare=f'throw new Error("{PRIVATE}");'))
    assert seen.last() == ["run file: failed:logic (logic)", "  phase prepare: failed (logic)"]
    root = seen.roots()[-1]
    assert root.status.status_code is StatusCode.ERROR
    assert root.status.description == "logic"


async def test_a_read_that_fails_ends_the_phase_that_wanted_it(seen: Seen) -> None:
    fake = Fake()
    fake.plan("search", raises(AuthRequired(PRIVATE)))
    async with world(fake, telemetry=seen.telemetry) as box:
        await one(box, CONSUMER)
    assert seen.last() == [
        "run file: paused:approval (auth)",
        "  phase prepare: failed (auth)",
        "    call fake.search: failed (auth)",
    ]


async def test_a_mutation_that_nobody_knows_about(seen: Seen) -> None:
    fake = Fake()
    fake.plan("add", applies_and_raises(Uncertain(PRIVATE)))
    async with world(fake, telemetry=seen.telemetry) as box:
        await one(box, CONSUMER)
    assert seen.last() == [
        "run file: paused:reconciliation (indeterminate)",
        "  phase prepare: returned",
        "    call fake.search: answered",
        "  phase mutate: mutation",
        "  call fake.add: unknown (indeterminate)",
    ]


async def test_a_mutation_that_did_not_happen(seen: Seen) -> None:
    fake = Fake()
    fake.plan("add", raises(AuthRequired(PRIVATE)))
    async with world(fake, telemetry=seen.telemetry) as box:
        await one(box, CONSUMER)
    assert seen.last()[-1] == "  call fake.add: did_not_happen (auth)"


async def test_a_producer_and_a_job(seen: Seen) -> None:
    job = 'await c.withItem("a", "A", async () => { await c.fake.add({ text: "a" }); });'
    async with world(Fake(), telemetry=seen.telemetry) as box:
        await box.keep.deploy(script(producer="await c.fake.search({});", job=job))
        await box.settle()
    producer, worker = seen.roots()
    assert list(seen.tree(producer)) == [
        "run poll: committed",
        "  phase producer: returned",
        "    call fake.search: answered",
    ]
    assert list(seen.tree(worker)) == ["run sweep: committed", "  phase job: returned", "    call fake.add: happened"]
    assert (producer.attributes or {})["keep.trigger"] == "schedule"


async def test_an_approved_call_is_an_errand(seen: Seen) -> None:
    async with world(Fake(), telemetry=seen.telemetry) as box:
        await box.keep.deploy(script(mutate=ADD), grants=[Grant("fake.add", policy="ask")])
        await box.publish("flow", "in", "one")
        await box.settle()
        assert seen.last() == [
            "run file: paused:approval (permission)",
            "  phase prepare: returned",
            "  phase mutate: mutation",
        ]
        [question] = await box.keep.approvals()
        await box.keep.approve(question.approval_id, by="alice")
        await box.settle()
    [errand] = seen.roots("keep.errand")
    assert list(seen.tree(errand)) == ["errand call: done", "  call fake.add: happened"]


async def test_a_repair_is_an_errand(seen: Seen) -> None:
    class Mechanic:
        is_automatic = True

        async def repair(self, _: RepairTask) -> Proposal:
            return Proposal(script(prepare="return { reservations: [] };"), "safe")

    async with world(telemetry=seen.telemetry, maintainer=Mechanic()) as box:
        await one(box, script(prepare="null.x;"))
    assert list(seen.tree(seen.roots("keep.errand")[0])) == ["errand repair: done"]


async def test_a_run_that_is_cut_off_says_so(seen: Seen) -> None:
    fake = Fake()
    hang = fake.hang("add")
    async with world(fake, telemetry=seen.telemetry, shutdown_grace_ms=0) as box:
        await box.keep.deploy(CONSUMER)
        await box.publish("flow", "in", "one")
        await hang.reached.wait()
    assert seen.last()[0] == "run file: cut_off"
    assert seen.last()[-1] == "  call fake.add: cut_off"


async def test_whoever_wakes_a_workflow_is_not_the_parent_of_its_run(seen: Seen) -> None:
    async with world(Fake(), telemetry=seen.telemetry) as box:
        with seen.provider.get_tracer("service").start_as_current_span("request"):
            await one(box, CONSUMER)
            assert trace.get_current_span().get_span_context().is_valid
    assert seen.roots()
    assert len(seen.roots("request")) == 1


async def test_what_a_connector_traces_is_inside_its_call(seen: Seen) -> None:
    fake = Fake()

    async def traced(attempt: Attempt) -> object:
        with seen.provider.get_tracer("client").start_as_current_span("GET"):
            return attempt.do()

    fake.plan("search", traced)
    async with world(fake, telemetry=seen.telemetry) as box:
        await box.keep.deploy(script(producer="await c.fake.search({});"))
        await box.settle()
    by_id = {span.context.span_id: span for span in seen.spans if span.context is not None}
    [get] = [span for span in seen.spans if span.name == "GET"]
    assert get.parent is not None
    assert by_id[get.parent.span_id].name == "keep.call"


@pytest.mark.parametrize("error", [None, AuthRequired(PRIVATE), Uncertain(PRIVATE), ValueError(PRIVATE)], ids=repr)
async def test_nothing_that_a_script_or_a_service_says_is_exported(seen: Seen, error: Exception | None) -> None:
    fake = Fake()
    if error is not None:
        fake.plan("add", raises(error))
    async with world(fake, telemetry=seen.telemetry) as box:
        await one(box, CONSUMER)
        await one(box, script(prepare=f'console.log("{PRIVATE}"); throw new Error("{PRIVATE}");'))
    assert "fake.add" in seen.everything()
    assert PRIVATE not in seen.everything()
