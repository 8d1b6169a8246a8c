"""What a training run was: its settings, data and versions, how far it came, and its curves.

The card is written when a run begins, with every checkpoint and at the end, as ``card.json`` in the run's
folder. A finished run is known by it and not repeated; a run with other settings is not mistaken for it.

Source: none, ours [O].
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from shared_core.errors import ConfigError
from shared_core.training.dataset_forms import AgentName

CARD = "card.json"
PACKAGES = ("torch", "transformers", "peft", "trl", "dream-memory")
_SAME = ("kind", "agents", "model", "data", "settings", "steps")
"""Fields that two cards of one run share."""

Kind = Literal["sft", "grpo", "joint"]


@dataclass(frozen=True, kw_only=True)
class RunCard:
    """One training run."""

    kind: Kind
    agents: tuple[AgentName, ...]
    """Whose adapters are trained."""
    model: str
    """As ``Backbone.load`` was given it."""
    data: str
    """SHA-256 of the training set."""
    settings: dict[str, Any]
    """Every option, with the seed and the shape of the adapters."""
    steps: int
    """Of the optimizer, planned."""
    start: str
    """SHA-256 of the adapters that it began with."""
    done: int = 0
    """Steps made."""
    result: str = ""
    """SHA-256 of the adapters after ``done`` steps."""
    counts: dict[str, int] = field(default_factory=dict)
    """Of examples: how many are used, and left out by which reason."""
    curves: dict[str, list[float | None]] = field(default_factory=dict)
    """By name, one value per entry of ``step``; None where a step has none."""
    seconds: float = 0.0
    """Over all parts of a run that was resumed."""
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Hold settings as they are read back: lists, no tuples."""
        object.__setattr__(self, "settings", json.loads(json.dumps(self.settings)))

    @property
    def finished(self) -> bool:
        """Whether every planned step was made."""
        return self.done >= self.steps

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "agents": list(self.agents), "finished": self.finished}

    def write(self, folder: Path) -> Path:
        """Write ``card.json``, in one step, over that of the same run.

        Raises:
            ConfigError: The folder cannot be written to.
        """
        path, half = folder / CARD, folder / f"{CARD}.part"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            half.write_text(json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
            half.replace(path)
        except OSError as error:
            raise ConfigError(f"cannot write {path} ({error.strerror}): give another folder") from error
        return path


def read_card(folder: Path) -> RunCard | None:
    """Return the card of a run's folder, None where there is none.

    Raises:
        ConfigError: The file is no card.
    """
    path = folder / CARD
    try:
        found = dict(json.loads(path.read_text(encoding="utf-8")))
        found.pop("finished", None)
        return TypeAdapter(RunCard).validate_python(found)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, RecursionError, ValidationError) as error:
        raise ConfigError(f"{path} is no card of a training run: give another folder") from error


def earlier_part(folder: Path, card: RunCard) -> RunCard | None:
    """Return the card of the same run, begun or finished earlier; None where the folder has no run.

    Args:
        folder: Of the run.
        card: Of the run that is about to begin.

    Raises:
        ConfigError: The folder holds another run; it is left as it is.
    """
    if (found := read_card(folder)) is None:
        return None
    for name in _SAME:
        if getattr(found, name) != getattr(card, name):
            what = _difference(getattr(found, name), getattr(card, name), name)
            raise ConfigError(f"{folder} holds a run with other options ({what}): give another folder")
    if card.start not in (found.start, found.result):
        raise ConfigError(
            f"the run in {folder} began with another adapter: load that one, or give another folder"
        )
    return found


def curves_of(
    history: Iterable[Mapping[str, Any]], names: Mapping[str, str]
) -> dict[str, list[float | None]]:
    """Return curves of a trainer's log.

    Args:
        history: Entries with ``step``; those that have none of the names are passed over.
        names: Names in the card by names in the log.
    """
    entries = [entry for entry in history if any(name in entry for name in names)]
    found: dict[str, list[float | None]] = {"step": [float(entry["step"]) for entry in entries]}
    for logged, name in names.items():
        values = [_finite(entry.get(logged)) for entry in entries]
        if any(value is not None for value in values):
            found[name] = values
    return found


def installed_versions() -> dict[str, str]:
    """Return the versions that a card tells."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


# ---- inner


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _difference(before: Any, now: Any, name: str) -> str:
    """Name the first value that differs."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [*now, *(key for key in before if key not in now)]
        for key in keys:
            if before.get(key) != now.get(key):
                return _difference(before.get(key), now.get(key), key)
    return f"{name}={before!r}, now {now!r}"
