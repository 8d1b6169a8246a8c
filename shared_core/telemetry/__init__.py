"""Spans and metrics of what a memory does: off until asked for, and then through OpenTelemetry."""

from shared_core.telemetry import told
from shared_core.telemetry.seam import disable_telemetry, enable_telemetry, telemetry_enabled, traced

__all__ = ["disable_telemetry", "enable_telemetry", "telemetry_enabled", "told", "traced"]
