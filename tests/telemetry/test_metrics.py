"""What is counted, what is refused a label, and that a telemetry cannot hurt a run."""

import logging
import math
import re
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from keep_actors import Grant
from keep_actors.api.keep import Keep
from keep_actors.connectors import AuthRequired, Uncertain
from keep_actors.telemetry import NO_TELEMETRY, Guarded, NoTelemetry, PrometheusMetrics, Span, chosen, metrics_app
from keep_actors.telemetry.names import ATTENTION, CRASHED, CUT_OFF, METRICS, SPANS
from tests.runtime.fakes import Fake, applies_and_raises, ok, raises
from tests.runtime.pager import Pager
from tests.runtime.world import TimedBox, script, world

pytestmark = pytest.mark.anyio

ADD = "await c.fake.add({ text: prepared.data.id });"
FLOW = script(producer="await c.fake.search({});", mutate=ADD)
DOCS = Path(__file__).parents[2] / "docs" / "observability.md"


class Strict:
    """Keeps what it is told, and refuses what is not in the tables."""

    def __init__(self) -> None:
        self.told: set[str] = set()
        self.level = 0
        self._spans = {each.name: each for each in SPANS}
        self._metrics = {each.name: each for each in METRICS}

    def span(self, name: str, /, **attributes: object) -> Span:
        assert set(attributes) == set(self._spans[name].attributes)
        self.told.add(name)
        return _StrictSpan((*self._spans[name].outcomes, CUT_OFF, CRASHED))

    def count(self, name: str, amount: int = 1, /, **labels: str) -> None:
        self._tell(name, labels)
        self.level += amount if name == "keep.workflows.active" else 0

    def observe(self, name: str, value: int, /, **labels: str) -> None:
        assert value >= 0
        self._tell(name, labels)

    def _tell(self, name: str, labels: dict[str, str]) -> None:
        assert set(labels) == set(self._metrics[name].labels_for(by_workflow=True))
        self.told.add(name)


class _StrictSpan:
    def __init__(self, outcomes: tuple[str, ...]) -> None:
        self._outcomes = outcomes

    def __enter__(self) -> "_StrictSpan":
        return self

    def ends(self, outcome: str, _failure: str = "", /) -> None:
        assert outcome in self._outcomes

    def __exit__(self, *_: object) -> None:
        pass


class Broken:
    """Raises in every method; with `later`, only once a span has begun."""

    def __init__(self, *, later: bool) -> None:
        self._later = later

    def span(self, name: str, /, **_: object) -> Span:
        if not self._later:
            raise RuntimeError(name)
        return _BrokenSpan()

    def count(self, name: str, _amount: int = 1, /, **_: str) -> None:
        raise RuntimeError(name)

    def observe(self, name: str, _value: int, /, **_: str) -> None:
        raise RuntimeError(name)


class _BrokenSpan:
    def __enter__(self) -> "_BrokenSpan":
        return self

    def ends(self, outcome: str, _failure: str = "", /) -> None:
        raise RuntimeError(outcome)

    def __exit__(self, *_: object) -> None:
        raise RuntimeError("at the end")


async def a_day(box: TimedBox) -> None:
    """Two commits of a consumer, one uncertain mutation, one producer."""
    await box.keep.deploy(FLOW)
    await box.publish("flow", "in", "one", "two", "three")
    await box.settle()


def planned() -> Fake:
    fake = Fake()
    fake.plan("add", *[ok, ok, applies_and_raises(Uncertain("lost"))])
    return fake


def value(text: str, series: str) -> float:
    return next((float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(series + " ")), 0)


async def test_known_runs_are_known_numbers() -> None:
    metrics = PrometheusMetrics()
    async with world(planned(), telemetry=metrics) as box:
        await a_day(box)
        runs = await box.keep.runs("flow")
    text = metrics.text()
    committed = sum(run.kind == "consumer" and run.status == "committed" for run in runs)
    assert value(text, 'keep_runs_total{failure="",kind="consumer",status="committed"}') == committed
    assert value(text, 'keep_runs_total{failure="",kind="producer",status="committed"}') == 1
    stopped = 'keep_runs_total{failure="indeterminate",kind="consumer",status="paused:reconciliation"}'
    assert value(text, stopped) == 1
    assert value(text, 'keep_mutations_total{failure="",method="fake.add",outcome="happened"}') == 2
    assert value(text, 'keep_mutations_total{failure="indeterminate",method="fake.add",outcome="unknown"}') == 1
    assert value(text, 'keep_call_ms_count{access="read",method="fake.search",outcome="answered"}') == 1
    assert value(text, "keep_commit_operations_count") > 3
    assert value(text, "keep_workflows_active") == 0
    assert not re.search(r"(wf|run|mut)_[0-9a-v]{8}|one|two|three", re.sub("(?m)^#.*", "", text))


async def test_workflows_have_their_own_series_if_that_is_switched_on() -> None:
    metrics = PrometheusMetrics(by_workflow=True)
    async with world(planned(), telemetry=metrics) as box:
        await a_day(box)
        [workflow] = await box.keep.workflows()
    assert f'keep_runs_total{{failure="",kind="producer",status="committed",workflow_id="{workflow.id}"}} 1.0' in (
        metrics.text()
    )


def test_prometheus_has_the_names_and_labels_of_the_documentation_and_no_others() -> None:
    metrics = PrometheusMetrics()
    for each in METRICS:
        labels = dict.fromkeys(each.labels_for(by_workflow=True), "x")
        (metrics.observe if each.kind == "distribution" else metrics.count)(each.name, 300, **labels)
    samples = [line.rpartition(" ")[0] for line in metrics.text().splitlines() if not line.startswith("#")]
    ends = {"counter": ("_total",), "level": ("",), "distribution": ("_bucket", "_count", "_sum")}
    shown = {each.partition("{")[0] for each in samples}
    assert shown == {f"{each.name.replace('.', '_')}{end}" for each in METRICS for end in ends[each.kind]}
    assert 'keep_runs_total{failure="x",kind="x",status="x"}' in samples
    assert value(metrics.text(), 'keep_run_ms_bucket{kind="x",le="250.0"}') == 0
    assert value(metrics.text(), 'keep_run_ms_bucket{kind="x",le="500.0"}') == 1
    assert value(metrics.text(), 'keep_commit_operations_bucket{le="512.0"}') == 1


def test_as_many_workflows_as_there_are_have_a_series() -> None:
    metrics = PrometheusMetrics(by_workflow=True)
    for number in range(2_500):
        metrics.count("keep.runs", kind="job", status="committed", failure="", workflow_id=f"wf_{number}")
    assert metrics.text().count("keep_runs_total{") == 2_500


async def test_the_runtime_tells_exactly_what_the_tables_list(caplog: pytest.LogCaptureFixture) -> None:
    strict = Strict()
    fake = planned()
    fake.plan("search", raises(AuthRequired("no")))
    async with world(fake, telemetry=strict, notices=Pager()) as box:
        await box.keep.deploy(script(name="reader", producer="await c.fake.search({});"))
        await box.keep.deploy(script(name="careful", mutate=ADD), grants=[Grant("fake.add", policy="ask")])
        await box.publish("careful", "in", "zero")
        await a_day(box)
        [question] = await box.keep.approvals()
        await box.keep.approve(question.approval_id, by="alice")
        await box.settle()
    assert strict.told == {each.name for each in (*SPANS, *METRICS)}
    assert strict.level == 0
    # What it refuses would be its own failure.
    assert [record for record in caplog.records if record.name == "keep_actors.telemetry"] == []


async def served(metrics: PrometheusMetrics, keep: Keep | None) -> tuple[int, str]:
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request"}

    app = metrics_app(metrics, None if keep is None else lambda: keep)
    await app({"type": "http", "path": "/"}, receive, send)
    return sent[0]["status"], sent[1]["body"].decode()


async def test_the_endpoint_says_how_many_workflows_wait_for_a_person() -> None:
    metrics = PrometheusMetrics()
    async with world(planned(), telemetry=metrics) as box:
        await a_day(box)
        keep = box.keep
        status, text = await served(metrics, None)
        assert (status, "keep_workflows_attention" in text) == (200, False)
        _, text = await served(metrics, keep)
        assert value(text, "keep_workflows_attention") == 1
    status, text = await served(metrics, keep)
    assert status == 200
    assert math.isnan(value(text, "keep_workflows_attention"))


@pytest.mark.parametrize("later", [False, True])
async def test_a_telemetry_that_raises_changes_nothing_and_is_blamed_once(
    later: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "keep_actors.telemetry")
    ends: list[list[tuple[str, str]]] = []
    metrics = PrometheusMetrics()
    for telemetry in (None, [Broken(later=later), metrics]):
        async with world(planned(), telemetry=telemetry) as box:
            await a_day(box)
            ends.append([(run.handler, run.status) for run in await box.keep.runs("flow")])
    assert ends[0] == ends[1]
    assert "keep_runs_total{" in metrics.text()
    blamed = [record.getMessage() for record in caplog.records if record.name == "keep_actors.telemetry"]
    assert blamed == ["The telemetry (Broken) fails. Runs go on; this is said once."]


@pytest.mark.parametrize("telemetry", [None, [], NoTelemetry(), [NoTelemetry()]])
def test_no_telemetry_is_not_wrapped(telemetry: Any) -> None:
    assert chosen(telemetry) is NO_TELEMETRY


def test_what_is_no_telemetry_is_refused_at_once() -> None:
    with pytest.raises(AssertionError, match="not 'otel'"):
        chosen("otel")  # type: ignore[arg-type]


def test_auto_is_open_telemetry_where_it_is_installed() -> None:
    assert isinstance(chosen("auto"), Guarded)


def rows(heading: str) -> list[list[str]]:
    table = DOCS.read_text("utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line] for line in lines]


def code(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def test_the_documentation_lists_every_span() -> None:
    listed = [row[:3] for row in rows("Spans")]
    assert listed == [[f"`{each.name}`", code(each.attributes), code(each.outcomes)] for each in SPANS]


def test_the_documentation_lists_every_metric() -> None:
    metrics = (*METRICS, ATTENTION)
    assert rows("Metrics") == [[f"`{each.name}`", each.kind, code(each.labels), each.words] for each in metrics]
