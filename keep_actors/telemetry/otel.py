"""Spans and metrics for OpenTelemetry's API, which keeps nothing unless the process has an SDK."""

from contextvars import Token
from typing import TYPE_CHECKING, Any, ClassVar

from keep_actors.telemetry.names import METRICS, SPANS, Metric
from keep_actors.telemetry.protocol import AttributeValue, Span

if TYPE_CHECKING:
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context

_NAME = "keep_actors"


class OpenTelemetry:
    """Use the process's providers, or those given. With `by_workflow`, metrics have the label `workflow_id` too.

    Raises `ImportError` if opentelemetry-api is not installed.
    """

    label_prefix: ClassVar[str] = "keep."
    """Precedes every label of a metric."""

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
        self._meter = metrics.get_meter(_NAME, meter_provider=meter_provider)
        self._no_parent = Context()
        self._roots = {each.name for each in SPANS if each.is_root}
        self._labels = {each.name: set(each.labels_for(by_workflow=by_workflow)) for each in METRICS}
        self._instruments: dict[str, Any] = {each.name: self._instrument(each) for each in METRICS}

    def span(self, name: str, /, **attributes: AttributeValue) -> Span:
        parent = self._no_parent if name in self._roots else None
        return _Span(self._tracer, name, parent, {f"keep.{key}": value for key, value in attributes.items()})

    def count(self, name: str, amount: int = 1, /, **labels: str) -> None:
        self._instruments[name].add(amount, self._kept(name, labels))

    def observe(self, name: str, value: int, /, **labels: str) -> None:
        self._instruments[name].record(value, self._kept(name, labels))

    def unit(self, metric: Metric) -> str:
        """Return the unit of a metric in the notation of UCUM."""
        return metric.unit if metric.unit == "ms" else f"{{{metric.unit}}}"

    def _kept(self, name: str, labels: dict[str, str]) -> dict[str, str]:
        known = self._labels[name]
        return {f"{self.label_prefix}{key}": value for key, value in labels.items() if key in known}

    def _instrument(self, metric: Metric) -> object:
        unit = self.unit(metric)
        match metric.kind:
            case "counter":
                return self._meter.create_counter(metric.name, unit, metric.words)
            case "level":
                return self._meter.create_up_down_counter(metric.name, unit, metric.words)
            case "distribution":
                return self._meter.create_histogram(metric.name, unit, metric.words)


class _Span:
    """Begins and becomes current with the block, so that spans of a connector are its children."""

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
