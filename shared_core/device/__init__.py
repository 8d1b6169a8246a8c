"""Where a sweep's iterations are computed, if not by numpy: torch, on a GPU."""

from shared_core.device.opening import opened

__all__ = ["opened"]
