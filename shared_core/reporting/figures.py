"""Figures as SVG, the same bytes for the same numbers: no date, no random ids.

Knows arrays and matplotlib (extra ``report``), which is imported when something is drawn. Knows no banks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from shared_core.reporting.measured import CaseWeights, TermScores

BENIGN, POISON = "#3b6fb6", "#c8402f"
BAND = (5, 95)
"""Percentiles of the benign memories that the band spans."""
BINS = 30
PANEL = (2.6, 2.3)
"""Inches per panel."""
STYLE: Any = {
    "svg.hashsalt": "dream-memory",
    "svg.fonttype": "none",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw_weights(measured: Sequence[CaseWeights], title: str) -> Figure:
    """Draw every poison's weight, and the benign memories' median and 5 to 95 % band, per iteration.

    Args:
        measured: One panel each.
        title: Above all.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure, panels = _panels(len(measured), title)
    for panel, case in zip(panels, measured, strict=True):
        steps = np.arange(len(case.weights))
        benign = case.weights[:, ~case.poison]
        low, high = np.percentile(benign, BAND, axis=1)
        panel.fill_between(steps, low, high, color=BENIGN, alpha=0.25, linewidth=0)
        panel.plot(steps, np.median(benign, axis=1), color=BENIGN, label="benign: median, 5-95 %")
        panel.plot(steps, benign.mean(axis=1), color=BENIGN, linestyle=":", label="benign: mean")
        lines = panel.plot(steps, case.weights[:, case.poison], color=POISON, linewidth=0.9)
        if lines:
            lines[0].set_label("poison, each")
        panel.set_title(f"preset {case.preset}", fontsize=8)
        panel.set(xlabel="iteration", ylim=(-0.03, 1.03))
    panels[0].set_ylabel("weight w")
    _legend(figure, panels[0])
    return figure


def draw_terms(measured: TermScores, title: str) -> Figure:
    """Draw the distribution of every term over benign memories, with a mark for each poison.

    Args:
        measured: One panel per term.
        title: Above all.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure, panels = _panels(len(measured.terms), title)
    for panel, (name, values) in zip(panels, measured.terms.items(), strict=True):
        panel.hist(values[~measured.poison], bins=BINS, color=BENIGN, alpha=0.6, label="benign")
        bad = values[measured.poison]
        panel.plot(bad, np.zeros(len(bad)), "^", color=POISON, clip_on=False, label="poison, each")
        panel.set_title(name, fontsize=8)
        panel.set(yticks=[])
    panels[0].set_ylabel("memories")
    _legend(figure, panels[0])
    return figure


def save_svg(figure: Figure, path: Path) -> None:
    """Write a figure; the same figure gives the same file.

    Raises:
        OSError: The place cannot be written to.
    """
    import matplotlib as mpl

    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _legend(figure: Figure, panel: Any) -> None:
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=7)


def _panels(count: int, title: str) -> tuple[Figure, list[Any]]:
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise  # it is installed, and something it needs is broken
        raise MissingExtraError("matplotlib", "report") from None
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(PANEL[0] * count, PANEL[1]), layout="constrained")
        figure.suptitle(title, fontsize=9)
        return figure, list(figure.subplots(1, count, squeeze=False)[0])
