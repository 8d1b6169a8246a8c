"""The metrics: names, units, and the boundaries of histograms.

OpenTelemetry's own boundaries begin at 5, so that every weight and every search would be in one bucket.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SEARCH_SECONDS, SWEEP_SECONDS, CYCLE_SECONDS = (
    "dream.search.duration",
    "dream.sweep.duration",
    "dream.cycle.duration",
)
WEIGHTS, SUSPECTS, REPAIRS, UNDONE, JOBS = (
    "dream.memory.weight",
    "dream.sweep.suspects",
    "dream.repairs",
    "dream.undone",
    "dream.fleet.jobs",
)
MILLISECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
MINUTES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
TENTHS = (0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.999)
"""Below 0.01 a memory is not retrieved, below 0.1 it counts as forgotten; above 0.999 as untouched."""


@dataclass(frozen=True)
class Metric:
    """One instrument."""

    name: str
    kind: Literal["counter", "histogram"]
    unit: str
    description: str
    boundaries: tuple[float, ...] = ()


METRICS = (
    Metric(SEARCH_SECONDS, "histogram", "s", "Seconds of one search.", MILLISECONDS),
    Metric(SWEEP_SECONDS, "histogram", "s", "Seconds of one forgetting sweep.", MINUTES),
    Metric(CYCLE_SECONDS, "histogram", "s", "Seconds of one dream cycle.", MINUTES),
    Metric(WEIGHTS, "histogram", "1", "Weight of each memory that took part in a sweep, after it.", TENTHS),
    Metric(SUSPECTS, "counter", "{memory}", "Memories whose weight a sweep lowered."),
    Metric(REPAIRS, "counter", "{repair}", "Repairs that were tried, by operation and outcome."),
    Metric(UNDONE, "counter", "{run}", "Runs that were undone, by kind."),
    Metric(JOBS, "counter", "{job}", "Banks of fleets, by outcome."),
)
