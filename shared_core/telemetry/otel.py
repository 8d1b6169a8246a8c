"""Spans and metrics by way of opentelemetry-api; where they go is what the application's SDK decides.

The one module that imports OpenTelemetry. Without an SDK the API's own no-ops take what is told.
An error's message may quote a memory: a failed span has the error's class, no message and no traceback.

Source: none, ours [O].
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shared_core import __version__
from shared_core.errors import MissingExtraError
from shared_core.telemetry.metrics import METRICS, Metric
from shared_core.telemetry.seam import Measure, Span

try:
    from opentelemetry import metrics, trace
    from opentelemetry.trace import StatusCode
except ModuleNotFoundError:
    raise MissingExtraError("opentelemetry-api", "otel") from None

SCOPE = "dream_memory"
"""Name of the instrumentation, as OpenTelemetry's filters know it."""


class OpenTelemetryBackend:
    """Tells a tracer and a meter.

    Args:
        tracer_provider: None for the global one, whenever that is set.
        meter_provider: None for the global one, whenever that is set.
    """

    def __init__(self, tracer_provider: Any = None, meter_provider: Any = None) -> None:
        self._tracer = trace.get_tracer(SCOPE, __version__, tracer_provider)
        meter = metrics.get_meter(SCOPE, __version__, meter_provider)
        self._instruments = {metric.name: _instrument(meter, metric) for metric in METRICS}

    @contextmanager
    def span(self, name: str) -> Iterator[Span]:
        """Begin a span inside the current one."""
        with self._tracer.start_as_current_span(
            name, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.set_status(StatusCode.ERROR, type(error).__name__)
                span.set_attribute("error.type", type(error).__name__)
                raise

    def measure(self, measure: Measure) -> None:
        """Add one value to a metric."""
        self._instruments[measure.name](measure.value, measure.attributes)


def _instrument(meter: metrics.Meter, metric: Metric) -> Any:
    if metric.kind == "counter":
        return meter.create_counter(metric.name, metric.unit, metric.description).add
    return meter.create_histogram(
        metric.name,
        metric.unit,
        metric.description,
        explicit_bucket_boundaries_advisory=list(metric.boundaries),
    ).record
