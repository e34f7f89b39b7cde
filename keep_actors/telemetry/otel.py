"""Spans and metrics for OpenTelemetry. Needs its API alone; without an SDK in the process, that keeps nothing."""

from contextvars import Token
from typing import TYPE_CHECKING, Any

from keep_actors.telemetry.names import METRICS, SPANS, Metric
from keep_actors.telemetry.protocol import AttributeValue, Span

if TYPE_CHECKING:
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context

_NAME = "keep_actors"


class OpenTelemetry:
    """Uses the process's providers unless it is given others. With `by_workflow`, metrics have a label for each.

    Raises `ImportError` if the library is not there.
    """

    def __init__(
        self,
        *,
        tracer_provider: "trace.TracerProvider | None" = None,
        meter_provider: "metrics.MeterProvider | None" = None,
        by_workflow: bool = False,
    ) -> None:
        try:
            from opentelemetry import metrics, trace
            from opentelemetry.context import Context
        except ImportError as error:
            raise ImportError(
                "OpenTelemetry is not installed: pip install 'keep-actors[telemetry]' (opentelemetry-api)"
            ) from error
        self._tracer = trace.get_tracer(_NAME, tracer_provider=tracer_provider)
        meter = metrics.get_meter(_NAME, meter_provider=meter_provider)
        self._nowhere = Context()
        self._roots = {each.name for each in SPANS if each.is_root}
        self._labels = {each.name: set(each.labels_for(by_workflow=by_workflow)) for each in METRICS}
        self._instruments: dict[str, Any] = {each.name: _instrument(meter, each) for each in METRICS}

    def span(self, name: str, /, **attributes: AttributeValue) -> Span:
        return _Span(self._tracer, name, self._nowhere if name in self._roots else None, _prefixed(attributes))

    def count(self, name: str, amount: int = 1, /, **labels: str) -> None:
        self._instruments[name].add(amount, self._chosen(name, labels))

    def observe(self, name: str, value: int, /, **labels: str) -> None:
        self._instruments[name].record(value, self._chosen(name, labels))

    def _chosen(self, name: str, labels: dict[str, str]) -> dict[str, AttributeValue]:
        known = self._labels[name]
        return _prefixed({key: value for key, value in labels.items() if key in known})


class _Span:
    """Begins and becomes the current one with the block, so that what a connector traces is inside."""

    def __init__(
        self, tracer: "trace.Tracer", name: str, parent: "Context | None", attributes: dict[str, AttributeValue]
    ) -> None:
        self._tracer = tracer
        self._name = name
        self._parent = parent
        self._attributes = attributes
        self._span: trace.Span | None = None
        self._token: Token[Context] | None = None

    def __enter__(self) -> "_Span":
        from opentelemetry import context, trace

        self._span = self._tracer.start_span(self._name, context=self._parent, attributes=self._attributes)
        self._token = context.attach(trace.set_span_in_context(self._span, self._parent))
        return self

    def ends(self, outcome: str, failure: str = "", /) -> None:
        from opentelemetry.trace import Status, StatusCode

        assert self._span is not None, "a span ends after it began"
        self._span.set_attribute("keep.outcome", outcome)
        if failure:
            self._span.set_attribute("keep.failure", failure)
            # The class alone: the words of a failure may quote a parameter.
            self._span.set_status(Status(StatusCode.ERROR, failure))

    def __exit__(self, *_: object) -> None:
        from opentelemetry import context

        assert self._span is not None, "a span ends after it began"
        assert self._token is not None, "a span ends after it began"
        context.detach(self._token)
        self._span.end()


def _instrument(meter: "metrics.Meter", metric: Metric) -> object:
    unit = metric.unit if metric.unit == "ms" else f"{{{metric.unit}}}"
    match metric.kind:
        case "counter":
            return meter.create_counter(metric.name, unit, metric.words)
        case "level":
            return meter.create_up_down_counter(metric.name, unit, metric.words)
        case "distribution":
            return meter.create_histogram(metric.name, unit, metric.words)


def _prefixed(attributes: dict[str, Any]) -> dict[str, AttributeValue]:
    return {f"keep.{key}": value for key, value in attributes.items()}
