"""Columns of a sweep as torch tensors, on any torch device.

Does: what ``dynamics.arrays`` asks of an array library, in the precision that numpy has there.

Does not know: the steps of a sweep.

Source: none, ours [O].
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from shared_core.dynamics.blocks import BLOCK

if TYPE_CHECKING:
    from shared_core.types import Array, FloatArray


class TorchArrays:
    """Tensors on one device.

    Args:
        device: torch's name of it. ``cpu`` works in blocks that stay in cache, others on all at once.
    """

    xp: Any = torch
    shared = False

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self.block = self.drawn = BLOCK if self._device.type == "cpu" else sys.maxsize

    def put(self, column: FloatArray) -> Any:
        """Return a copy of the column on the device."""
        return torch.tensor(column, dtype=torch.float64, device=self._device)

    def take(self, column: Any) -> Array:
        """Return a copy of the column in this process's memory."""
        return np.array(column.cpu().numpy())

    def streams(self, rng: np.random.Generator, count: int) -> list[TorchDraws]:
        """Return one stream for all blocks, which are drawn in order."""
        seed = int(rng.integers(0, 1 << 63))
        return [TorchDraws(seed, self._device)] * count


class TorchDraws:
    """A random stream on a device; other numbers than numpy's, or another device's, from the same seed."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._device = device
        self._generator = torch.Generator(device).manual_seed(seed)

    def standard_normal(self, size: int, dtype: Any) -> Any:  # noqa: ARG002
        """(size,) normal numbers in single precision."""
        return torch.randn(size, generator=self._generator, dtype=torch.float32, device=self._device)

    def standard_gamma(self, shape: float, size: int, dtype: Any) -> Any:  # noqa: ARG002
        """(size,) gamma numbers in single precision; zeros where the shape is 0, as numpy has it."""
        shapes = torch.full((size,), shape, dtype=torch.float32, device=self._device)
        if shape == 0.0:
            return shapes
        # torch's public distributions draw from the process's own stream only, and call this too
        return torch._standard_gamma(shapes, generator=self._generator)
