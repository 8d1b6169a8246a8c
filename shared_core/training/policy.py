"""The small policy: a few hundred numbers that decide how, and whether, to repair; and its file.

A residual of the rules: score = PRIOR where the rules' choice is, plus a network of one hidden layer whose
last layer begins at zero. So an untrained policy is the rules. Runs on numpy; only its training needs torch.

Source: none, ours [O].
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shared_core.errors import ConfigError, MissingExtraError
from shared_core.training.features import CHOICES, NAMES, VERSION
from shared_core.types import FloatArray

FORMAT = "dream-policy"
HIDDEN = 12
PRIOR = 2.0
"""Advantage of the rules' choice before training: two thirds of the probability among five choices."""
SHAPES: Mapping[str, tuple[int, ...]] = {
    "inner": (len(NAMES), HIDDEN),
    "inner_bias": (HIDDEN,),
    "outer": (HIDDEN, len(CHOICES)),
    "outer_bias": (len(CHOICES),),
}
LARGEST_CARD = 1_000_000
"""Bytes."""


@dataclass(frozen=True, eq=False)
class Policy:
    """Weights by name, float32, of ``SHAPES``, and what the rules' choice has to begin with.

    Raises:
        ConfigError: A name or shape is not that of this version, or a weight or the prior is no finite
            number.
    """

    weights: Mapping[str, FloatArray]
    prior: float = PRIOR
    """Added to the score of the rules' choice; with 0 the rules are one feature among others."""

    def __post_init__(self) -> None:
        """Check names, shapes and numbers."""
        shapes = {name: tuple(np.shape(value)) for name, value in self.weights.items()}
        if shapes != dict(SHAPES):
            raise ConfigError(f"the policy has weights {shapes}, not {dict(SHAPES)}: train it anew")
        if not (np.isfinite(self.prior) and all(np.isfinite(one).all() for one in self.weights.values())):
            raise ConfigError("a weight of the policy is no finite number: train it anew")

    @classmethod
    def untrained(cls, seed: int = 0, prior: float = PRIOR) -> Policy:
        """Return the policy that does what the rules do; with a prior of 0 one that does nothing yet."""
        rng = np.random.default_rng(seed)
        weights = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
        weights["inner"] = rng.normal(0, len(NAMES) ** -0.5, SHAPES["inner"]).astype(np.float32)
        return cls(weights, prior)

    @property
    def parameters(self) -> int:
        """How many numbers it has."""
        return sum(int(np.size(value)) for value in self.weights.values())

    def scores(self, features: FloatArray, allowed: FloatArray) -> FloatArray:
        """Return a score per choice, shape (N, 5); minus infinity where it cannot be made.

        Args:
            features: Shape (N, len(NAMES)).
            allowed: Shape (N, 5), above 0 where a choice can be made.
        """
        own = self.weights
        hidden = np.tanh(features @ own["inner"] + own["inner_bias"])
        prior = self.prior * features[:, : len(CHOICES)]
        found: FloatArray = np.where(allowed > 0, prior + hidden @ own["outer"] + own["outer_bias"], -np.inf)
        return found


def save_policy(policy: Policy, card: Mapping[str, Any], path: Path, *, replace: bool = False) -> None:
    """Write ``path`` (safetensors) and its card beside it (JSON), whole or not at all.

    Args:
        policy: The policy.
        card: Plain JSON values; what it says of format, version and digest is set here.
        path: Ends in .safetensors.
        replace: Whether an earlier policy there may be replaced.

    Raises:
        ConfigError: The name is another, the folder is missing, or there is a policy already.
        MissingExtraError: The extra ``train`` is not installed.
    """
    check_place(path, replace=replace)
    content = _safetensors().save(
        {name: np.ascontiguousarray(value, np.float32) for name, value in policy.weights.items()}
    )
    told = {
        **card,
        "format": FORMAT,
        "features_version": VERSION,
        "features": list(NAMES),
        "choices": list(CHOICES),
        "parameters": policy.parameters,
        "prior": policy.prior,
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    # the card last: weights without their card are refused
    _write(path, content)
    _write(card_path(path), json.dumps(told, indent=2, allow_nan=False).encode())


def load_policy(path: Path) -> tuple[Policy, dict[str, Any]]:
    """Return a policy and its card.

    Raises:
        ConfigError: A file is missing or broken, belongs to another format or version, or to another card.
        MissingExtraError: The extra ``train`` is not installed.
    """
    card = _read_card(card_path(path))
    if card.get("format") != FORMAT or card.get("features_version") != VERSION:
        raise ConfigError(
            f"{path} is {card.get('format')!r} with features of version {card.get('features_version')!r}, "
            f"not {FORMAT!r} of version {VERSION}: train it anew"
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the policy {path}: {error}") from None
    if hashlib.sha256(content).hexdigest() != card.get("sha256"):
        raise ConfigError(f"{path} is not the policy that its card describes: train it anew")
    loader = _safetensors()
    try:
        weights = loader.load(content)
    except Exception as error:
        # the package raises an error type of its own, depending on its version
        raise ConfigError(f"{path} is no safetensors file ({error}): train it anew") from None
    # earlier cards do not name it
    prior = card.get("prior", PRIOR)
    if not isinstance(prior, (int, float)):
        raise ConfigError(f"prior={prior!r} in the card of {path} is no number: train it anew")
    return Policy(weights, prior), card


def card_path(path: Path) -> Path:
    """Return where the card of a policy is."""
    return path.with_suffix(".json")


def check_place(path: Path, *, replace: bool) -> None:
    """Check that a policy may be written somewhere; arguments and errors as for ``save_policy``."""
    if path.suffix != ".safetensors":
        raise ConfigError(f"{path} must end in .safetensors")
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {path.parent}: make it first")
    card = card_path(path)
    if not replace and (path.exists() or card.exists()):
        raise ConfigError(f"there is a policy at {path} already: allow to replace it, or name another path")
    if card.exists() and _read_card(card).get("format") != FORMAT:
        raise ConfigError(f"{card} is no policy's card, and is not replaced: name another path")


def _read_card(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > LARGEST_CARD:
            raise ConfigError(f"{path} is larger than a policy's card can be")
        card = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"there is no policy ({path} is missing): train one with dream train policy"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"cannot read the policy's card {path}: {error}") from None
    if not isinstance(card, dict):
        raise ConfigError(f"{path} is no policy's card")
    return card


def _write(path: Path, content: bytes) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {path}: {error}") from None


def _safetensors() -> Any:
    try:
        from safetensors import numpy as tensors
    except ImportError:
        raise MissingExtraError("safetensors", "train") from None
    return tensors
