"""Metrics for Prometheus, in a registry of their own, and the endpoint that serves them."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from keep_actors.kernel.foreign_code import attempt
from keep_actors.telemetry.names import ATTENTION, METRICS, Metric
from keep_actors.telemetry.protocol import NO_SPAN, AttributeValue, Span

if TYPE_CHECKING:
    from keep_actors.api.keep import Keep

_MS: Final = (1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000)
_MANY: Final = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024)

Scope: TypeAlias = MutableMapping[str, Any]
App: TypeAlias = Callable[[Scope, Callable[[], Awaitable[Scope]], Callable[[Scope], Awaitable[None]]], Awaitable[None]]


class PrometheusMetrics:
    """Keeps the metrics until they are asked for; spans it lets be. With `by_workflow`, each has its own label.

    Raises `ImportError` if the library is not there.
    """

    def __init__(self, *, by_workflow: bool = False) -> None:
        try:
            import prometheus_client
        except ImportError as error:
            raise ImportError(
                "prometheus_client is not installed: pip install 'keep-actors[prometheus]' (prometheus-client)"
            ) from error
        self._client = prometheus_client
        self.registry = prometheus_client.CollectorRegistry()
        self._labels = {each.name: each.labels_for(by_workflow=by_workflow) for each in METRICS}
        self._series: dict[str, Any] = {each.name: self._made(each) for each in METRICS}

    def span(self, name: str, /, **_: AttributeValue) -> Span:  # noqa: ARG002
        return NO_SPAN

    def count(self, name: str, amount: int = 1, /, **labels: str) -> None:
        self._one(name, labels).inc(amount)

    def observe(self, name: str, value: int, /, **labels: str) -> None:
        self._one(name, labels).observe(value)

    def attention(self, workflows: float) -> None:
        """So many workflows wait for a person. Until this is called there is no such metric: 0 would be a guess."""
        if ATTENTION.name not in self._series:
            self._labels[ATTENTION.name] = ()
            self._series[ATTENTION.name] = self._made(ATTENTION)
        self._series[ATTENTION.name].set(workflows)

    @property
    def content_type(self) -> str:
        return self._client.CONTENT_TYPE_LATEST

    def text(self) -> str:
        """What Prometheus reads."""
        return self._client.generate_latest(self.registry).decode()

    def _made(self, metric: Metric) -> object:
        name, labels = metric.name.replace(".", "_"), self._labels[metric.name]
        match metric.kind:
            case "counter":
                return self._client.Counter(name, metric.words, labels, registry=self.registry)
            case "level":
                return self._client.Gauge(name, metric.words, labels, registry=self.registry)
            case "distribution":
                buckets = _MS if metric.unit == "ms" else _MANY
                return self._client.Histogram(name, metric.words, labels, registry=self.registry, buckets=buckets)

    def _one(self, name: str, labels: dict[str, str]) -> Any:
        series, known = self._series[name], self._labels[name]
        return series.labels(*(labels[each] for each in known)) if known else series


def metrics_app(metrics: PrometheusMetrics, keep: "Callable[[], Keep] | None" = None) -> App:
    """An ASGI application that answers every request with the metrics. It asks `keep()` how many wait for a person."""

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
