"""The one place where work is watched: nothing happens here until ``enable_telemetry`` is called.

Explicit, because Chroma installs opentelemetry-api anyway: that it can be imported says nothing about what
the user wants to be told. Where there is no place for a call, as under ``opentelemetry-instrument``,
DREAM_TELEMETRY=1 in the environment does the same when this module is imported.

Knows neither OpenTelemetry, see ``otel``, nor what is told of each kind of work, see ``told``.

Source: none, ours [O].
"""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Value: TypeAlias = str | bool | int | float

VARIABLE = "DREAM_TELEMETRY"
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One value of a metric."""

    name: str
    value: float
    attributes: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Told:
    """What is told of one piece of work: numbers, names of collections, run ids; never a memory's text."""

    attributes: dict[str, Value]
    measures: list[Measure] = field(default_factory=list)


class Span(Protocol):
    """A piece of work under way."""

    def set_attributes(self, attributes: dict[str, Value]) -> None:
        """Say something about it."""
        ...


class Backend(Protocol):
    """Where spans and metrics go."""

    def span(self, name: str) -> AbstractContextManager[Span]:
        """Begin a span inside the current one; an error that leaves it marks it as failed."""
        ...

    def measure(self, measure: Measure) -> None:
        """Add one value to a metric."""
        ...


_backend: Backend | None = None


def enable_telemetry(*, tracer_provider: Any = None, meter_provider: Any = None) -> None:
    """Tell OpenTelemetry from now on, in this process, what searches, sweeps and dreams do.

    Args:
        tracer_provider: Makes the tracer; default: OpenTelemetry's global one.
        meter_provider: Makes the metrics; default: OpenTelemetry's global one.

    Raises:
        MissingExtraError: opentelemetry-api is not installed.
    """
    global _backend  # noqa: PLW0603 (the switch is the process's, as OpenTelemetry's providers are)
    from shared_core.telemetry.otel import OpenTelemetryBackend

    _backend = OpenTelemetryBackend(tracer_provider, meter_provider)


def disable_telemetry() -> None:
    """Tell nothing any more."""
    global _backend  # noqa: PLW0603
    _backend = None


def telemetry_enabled() -> bool:
    """Tell whether ``enable_telemetry`` is in force."""
    return _backend is not None


def traced(
    name: str, tell: Callable[..., Told], *, logged: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function with a span; one comparison is all that it costs while telemetry is off.

    Args:
        name: The span's name.
        tell: Called as ``tell(seconds, result, *args, **kwargs)`` once the work is done.
        logged: Log what is told at level INFO too, whether telemetry is on or off.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def observed(*args: P.args, **kwargs: P.kwargs) -> R:
            if _backend is None and not logged:
                return function(*args, **kwargs)
            return _observed(_backend, name, tell, logged, function, *args, **kwargs)

        return observed

    return decorate


def _observed(
    backend: Backend | None,
    name: str,
    tell: Callable[..., Told],
    logged: bool,
    function: Callable[P, R],
    *args: P.args,
    **kwargs: P.kwargs,
) -> R:
    started = time.perf_counter()
    with nullcontext() if backend is None else backend.span(name) as span:
        result = function(*args, **kwargs)
        logs = logged and logger.isEnabledFor(logging.INFO)
        if span is not None or logs:
            try:
                told = tell(time.perf_counter() - started, result, *args, **kwargs)
                _pass_on(name, told, span, backend, logs=logs)
            except Exception:
                # the work is done, and may be written: watching it must not undo that
                logger.exception("telemetry of %s failed", name)
        return result


def _pass_on(name: str, told: Told, span: Span | None, backend: Backend | None, *, logs: bool) -> None:
    if span is not None:
        span.set_attributes(told.attributes)
    if backend is not None:
        for measure in told.measures:
            backend.measure(measure)
    if logs:
        values = ", ".join(f"{key.removeprefix('dream.')}={value}" for key, value in told.attributes.items())
        logger.info("%s: %s", name, values)


if os.environ.get(VARIABLE, "").strip().lower() in {"1", "true", "on", "yes"}:
    enable_telemetry()
