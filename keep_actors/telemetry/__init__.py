"""What a runtime tells those who operate it: spans, metrics, log lines. Never what a script or a connector says.

Nothing here needs a library to be imported: `OpenTelemetry` and `PrometheusMetrics` ask for theirs when they are made.
"""

from keep_actors.telemetry.guard import Guarded, Wanted, chosen
from keep_actors.telemetry.logs import JsonFormatter, RunFilter, json_handler
from keep_actors.telemetry.otel import OpenTelemetry
from keep_actors.telemetry.prometheus import PrometheusMetrics, metrics_app
from keep_actors.telemetry.protocol import NO_TELEMETRY, AttributeValue, NoTelemetry, Span, Telemetry

Value = AttributeValue
"""The earlier name of `AttributeValue`, which the sandbox uses for another thing."""

__all__ = [
    "NO_TELEMETRY",
    "AttributeValue",
    "Guarded",
    "JsonFormatter",
    "NoTelemetry",
    "OpenTelemetry",
    "PrometheusMetrics",
    "RunFilter",
    "Span",
    "Telemetry",
    "Value",
    "Wanted",
    "chosen",
    "json_handler",
    "metrics_app",
]
