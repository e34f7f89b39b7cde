"""Spans, metrics and log lines for operators. None of them quotes a script or a connector.

Spans and metrics go to OpenTelemetry's API; Prometheus is behind OpenTelemetry's exporter. Both are optional, and are
imported when `OpenTelemetry` or `PrometheusMetrics` is made, not before.
"""

from keep_actors.telemetry.guard import Guarded, Wanted, chosen
from keep_actors.telemetry.logs import JsonFormatter, RunFilter, json_handler
from keep_actors.telemetry.otel import OpenTelemetry
from keep_actors.telemetry.prometheus import PrometheusMetrics, metrics_app
from keep_actors.telemetry.protocol import NO_TELEMETRY, AttributeValue, NoTelemetry, Span, Telemetry

Value = AttributeValue
"""The earlier name of `AttributeValue`."""

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
