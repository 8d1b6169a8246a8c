"""The curves of a training run as a picture, one panel each.

Knows a run's card and matplotlib (extra ``report``), which is imported when something is drawn.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from shared_core.training.run_card import RunCard

FILE = "curve.png"
FIRST = ("reward", "loss", "valid")
"""Drawn before the others."""
COLUMNS = 3
PANEL = (3.0, 2.0)
"""Inches per panel."""
SMOOTH = 20
"""Steps that the heavy line averages over, where there are more than that."""
COLOR = "#3b6fb6"
STYLE: Any = {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}


def draw_training(card: RunCard) -> Figure:
    """Draw every curve of a card over the steps: each value, and their mean over the last ``SMOOTH`` steps.

    Raises:
        ConfigError: The card has no curve yet.
        MissingExtraError: matplotlib is not installed.
    """
    steps = card.curves.get("step", [])
    names = [name for name in FIRST if name in card.curves]
    names += [name for name in card.curves if name not in {"step", *FIRST}]
    if not steps or not names:
        raise ConfigError(f"the card of this {card.kind} run has no curve yet: train it first")
    mpl, figure_class = _matplotlib()
    rows = math.ceil(len(names) / COLUMNS)
    columns = min(COLUMNS, len(names))
    with mpl.rc_context(STYLE):
        figure: Figure = figure_class(
            figsize=(PANEL[0] * columns, PANEL[1] * rows + 0.4), layout="constrained"
        )
        figure.suptitle(f"{card.kind} of {' and '.join(card.agents)}: {card.done} of {card.steps} steps")
        panels = figure.subplots(rows, columns, squeeze=False).flat
        for panel, name in zip(panels, names, strict=False):
            values = np.array([math.nan if one is None else one for one in card.curves[name]], float)
            panel.plot(steps, values, color=COLOR, alpha=0.35, linewidth=0.8, marker=".", markersize=2)
            if len(values) > SMOOTH:
                panel.plot(steps, _smooth(values), color=COLOR)
            panel.set_title(name.removeprefix("term/"), fontsize=8)
        for panel in list(figure.axes)[len(names) :]:
            panel.set_axis_off()
        for panel in figure.axes[max(0, len(names) - columns) : len(names)]:
            panel.set_xlabel("step")
    return figure


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure; the same figure gives the same file.

    Raises:
        OSError: The place cannot be written to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png", dpi=150, metadata={"Software": None})


# ---- inner


def _smooth(values: np.ndarray[Any, np.dtype[np.float64]]) -> list[float]:
    """Return the mean of each value and those up to ``SMOOTH`` steps before it; NaN where none is known."""
    found = []
    for at in range(len(values)):
        part = values[max(0, at + 1 - SMOOTH) : at + 1]
        known = part[~np.isnan(part)]
        found.append(float(known.mean()) if len(known) else math.nan)
    return found


def _matplotlib() -> tuple[Any, Any]:
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise  # it is installed, and something it needs is broken
        raise MissingExtraError("matplotlib", "report") from None
    return mpl, Figure
