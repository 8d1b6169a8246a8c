"""Where a joint training stands, in one safetensors file: adapters, optimizer, and what was rewarded so far.

Nothing is unpickled. The file is replaced in one step, so that a training that is killed goes on from the
checkpoint before.

Source: none, ours [O].
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared_core.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    import torch

FILE = "checkpoint.safetensors"
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What AdamW keeps per parameter."""


def save_checkpoint(
    folder: Path,
    parameters: Mapping[str, torch.nn.Parameter],
    optimizer: torch.optim.Optimizer,
    state: Mapping[str, Any],
) -> None:
    """Write a checkpoint, in place of the one before.

    Args:
        folder: Of the training; made where it is missing.
        parameters: By name: all that the optimizer moves.
        optimizer: AdamW over them.
        state: JSON values.
    """
    save_file = _safetensors().save_file
    tensors = {f"value.{name}": one.detach().cpu().contiguous() for name, one in parameters.items()}
    for name, one in parameters.items():
        # an adapter that has not had its turn yet has no moments
        for moment, value in optimizer.state.get(one, {}).items():
            tensors[f"{moment}.{name}"] = value.detach().cpu().contiguous()
    folder.mkdir(parents=True, exist_ok=True)
    half = folder / f"{FILE}.part"
    save_file(tensors, half, metadata={"state": json.dumps(state)})
    half.replace(folder / FILE)


def load_checkpoint(
    folder: Path,
    parameters: Mapping[str, torch.nn.Parameter],
    optimizer: torch.optim.Optimizer,
) -> dict[str, Any] | None:
    """Put a checkpoint's numbers into parameters and optimizer, and return its state; None where none is.

    Args:
        folder: Of the training.
        parameters: By name, as saved.
        optimizer: AdamW over them.

    Raises:
        ConfigError: The file cannot be read, or is of another training; nothing was changed.
    """
    import torch

    path = folder / FILE
    if not path.exists():
        return None
    try:
        with _safetensors().safe_open(path, framework="pt") as opened:
            state: dict[str, Any] = json.loads(opened.metadata()["state"])
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (no mapping)
    except Exception as error:
        raise ConfigError(f"cannot read the checkpoint {path}: {error}; use another folder") from error
    shapes = {f"value.{name}": tuple(one.shape) for name, one in parameters.items()}
    held = {name: tuple(one.shape) for name, one in tensors.items() if name.startswith("value.")}
    if shapes != held:
        raise ConfigError(f"{path} is a checkpoint of another model or other adapters: use another folder")
    with torch.no_grad():
        for name, one in parameters.items():
            one.copy_(tensors[f"value.{name}"])
    for name, one in parameters.items():
        moments = {key: tensors[f"{key}.{name}"] for key in _MOMENTS if f"{key}.{name}" in tensors}
        if moments:
            optimizer.state[one] = {
                key: value if key == "step" else value.to(one) for key, value in moments.items()
            }
    return state


def remove_checkpoint(folder: Path) -> None:
    """Remove the checkpoint of a training that is done."""
    (folder / FILE).unlink(missing_ok=True)


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise MissingExtraError("safetensors", "train") from None
    return safetensors.torch
