"""Metrics for Prometheus, through OpenTelemetry's exporter, and the endpoint that serves them."""

import sys
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from keep_actors.kernel.foreign_code import attempt
from keep_actors.telemetry.names import ATTENTION, METRICS, Metric
from keep_actors.telemetry.otel import OpenTelemetry
from keep_actors.telemetry.protocol import NO_SPAN, AttributeValue, Span

_MS: Final = (1.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4, 3e4, 6e4, 3e5)
_MANY: Final = (0.0, *(2.0**power for power in range(11)))

Scope: TypeAlias = MutableMapping[str, Any]
App: TypeAlias = Callable[[Scope, Callable[[], Awaitable[Scope]], Callable[[Scope], Awaitable[None]]], Awaitable[None]]


class _OfWorkflow(Protocol):
    @property
    def workflow_id(self) -> str: ...


class KnowsAttention(Protocol):
    """The part of `Keep` that `metrics_app` asks."""

    async def attention(self) -> Sequence[_OfWorkflow]: ...


class PrometheusMetrics(OpenTelemetry):
    """Keep the metrics until Prometheus asks, in a registry of their own; keep no spans.

    Raises `ImportError` if the exporter is not installed.
    """

    label_prefix = ""

    def __init__(self, *, by_workflow: bool = False) -> None:
        try:
            import prometheus_client
            from opentelemetry.exporter.prometheus import PrometheusMetricReader
            from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
            from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
        except ImportError as error:
            raise ImportError(
                "OpenTelemetry's Prometheus exporter is not installed: pip install 'keep-actors[prometheus]'"
            ) from error
        self._client = prometheus_client
        self.registry = prometheus_client.CollectorRegistry()
        reader = PrometheusMetricReader(
            disable_target_info=True,
            scope_info_enabled=False,
            registry=self.registry,
            # By default one series takes the rest after 2,000, and `by_workflow` promises one for each workflow.
            cardinality_limits=dict.fromkeys((Counter, Histogram), sys.maxsize),
        )
        views = [
            View(
                instrument_name=each.name,
                aggregation=ExplicitBucketHistogramAggregation(_MS if each.unit == "ms" else _MANY),
            )
            for each in METRICS
            if each.kind == "distribution"
        ]
        meters = MeterProvider([reader], shutdown_on_exit=False, views=views)
        super().__init__(meter_provider=meters, by_workflow=by_workflow)
        self._attention: prometheus_client.Gauge | None = None

    def span(self, name: str, /, **_: AttributeValue) -> Span:  # noqa: ARG002
        return NO_SPAN

    def unit(self, metric: Metric) -> str:  # noqa: ARG002
        """Return none: the exporter would append it to the name (`keep_run_ms_milliseconds`)."""
        return ""

    def attention(self, workflows: float) -> None:
        """Set how many workflows wait for a person. Until then the metric is absent: 0 would be a guess."""
        if self._attention is None:
            # Not OpenTelemetry's gauge, which refuses NaN and would go on showing the last number.
            name = ATTENTION.name.replace(".", "_")
            self._attention = self._client.Gauge(name, ATTENTION.words, registry=self.registry)
        self._attention.set(workflows)

    @property
    def content_type(self) -> str:
        return self._client.CONTENT_TYPE_LATEST

    def text(self) -> str:
        """Return the metrics as Prometheus reads them."""
        return self._client.generate_latest(self.registry).decode()


def metrics_app(metrics: PrometheusMetrics, keep: Callable[[], KnowsAttention] | None = None) -> App:
    """Return an ASGI application that answers every request with the metrics.

    With `keep`, it asks `keep().attention()` how many workflows wait for a person.
    """

    async def app(scope: Scope, _: object, send: Callable[[Scope], Awaitable[None]]) -> None:
        if scope["type"] != "http":
            raise ValueError(f"metrics are served over http, not {scope['type']}")
        if keep is not None:
            waiting = float("nan")
            with attempt():  # a runtime that has ended cannot say
                waiting = len({each.workflow_id for each in await keep().attention()})
            metrics.attention(waiting)
        kind = metrics.content_type.encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": metrics.text().encode()})

    return app
