"""Opening the device that a sweep's config names.

Does: finds out whether there is a GPU, and refuses what it cannot compute. torch is imported only where a
device other than the CPU is asked for.

Does not know: banks, the steps of a sweep.

Source: none, ours [O].
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from shared_core.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from shared_core.config import ForgettingConfig
    from shared_core.dynamics.arrays import Arrays


def opened(config: ForgettingConfig) -> Arrays | None:
    """Return where a sweep with this config computes its iterations; None for numpy.

    ``cpu`` is numpy; ``cuda`` is the current CUDA device; ``auto`` is that where torch is installed, sees one
    and the sweep has something to compute there, and numpy otherwise.

    Raises:
        ConfigError: ``cuda``, and torch sees no such device, or the sweep draws no scalar probes.
        MissingExtraError: ``cuda``, and torch is not installed.
    """
    if config.device == "cpu":
        return None
    asked = config.device == "cuda"
    if not _draws_scalars(config):
        if asked:
            raise ConfigError(
                f"device='cuda' draws scalar probes, and diagnosis={config.diagnosis!r} with probe="
                f"{config.probe!r} and {config.noise} noise has none: use device='cpu', or preset 'paper'"
            )
        return None
    if find_spec("torch") is None:
        if asked:
            raise MissingExtraError("torch", "embed")
        return None
    import torch

    if not torch.cuda.is_available():
        if asked:
            raise ConfigError(
                f"device='cuda', and torch {torch.__version__} sees no CUDA device: install a torch that is "
                "built for CUDA and a driver that fits it, or use device='cpu' (or 'auto')"
            )
        return None
    from shared_core.device.torch_arrays import TorchArrays

    return TorchArrays("cuda")


def _draws_scalars(config: ForgettingConfig) -> bool:
    scalar = config.probe == "scalar" or (config.probe == "auto" and config.noise == "isotropic")
    return scalar and config.diagnosis == "threshold"
