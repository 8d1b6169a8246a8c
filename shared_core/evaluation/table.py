"""From rows of ``dream eval poison`` to the table per family: pure, knows neither banks nor cases.

A cell is the mean over the cases and embedders of a family, for one count of poisons and one defence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from shared_core.evaluation.runner import family_of
from shared_core.evaluation.saved import Row, key_of

METRICS = ("auroc", "asr_r", "benign_retention", "false_forget")
UNDEFENDED = "none"
OURS = ("hardened",)
"""Not baselines."""
FAMILIES_MEAN = "mean of families"
CASES_MEAN = "mean of cases"
NOTHING = "–"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Means over ``cases`` pairs of case and embedder; NaN where no row has a value."""

    cases: int
    auroc: float
    asr_r: float
    benign_retention: float
    false_forget: float

    @property
    def harm(self) -> float:
        """Attacks that succeed plus benign answers lost, in [0, 2]; the best baseline has least of it [O]."""
        return self.asr_r + 1 - self.benign_retention

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; what is undefined is null."""
        values = {name: getattr(self, name) for name in METRICS}
        return {"cases": self.cases, **{k: None if math.isnan(v) else v for k, v in values.items()}}


@dataclass(frozen=True, kw_only=True)
class Line:
    """One family, or a mean of all."""

    name: str
    cases: int
    """Pairs of case and embedder that any defence was measured on."""
    undefended: float
    """asr_r before any defence."""
    cells: dict[str, Cell]
    """By defence."""

    @property
    def best_baseline(self) -> str | None:
        """Return the published defence that harms least, the first of equals; None where there is none."""
        rivals = {
            name: cell.harm
            for name, cell in self.cells.items()
            if name not in (*OURS, UNDEFENDED) and not math.isnan(cell.harm)
        }
        return min(rivals, key=lambda name: rivals[name]) if rivals else None


@dataclass(frozen=True, kw_only=True)
class CountTable:
    """All families at one count of poisons."""

    title: str
    defences: list[str]
    """In the order of the table; without ``none``, which is the undefended column."""
    lines: list[Line]
    """The families, then the two means."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "title": self.title,
            "lines": [
                {
                    "family": line.name,
                    "cases": line.cases,
                    "asr_r_undefended": None if math.isnan(line.undefended) else line.undefended,
                    "best_baseline": line.best_baseline,
                    "defences": {name: cell.to_dict() for name, cell in line.cells.items()},
                }
                for line in self.lines
            ],
        }


def tabulate(rows: Iterable[Row], *, by_embedder: bool = False) -> list[CountTable]:
    """Return a table per count of poisons, fewest first; rows of other agents, or small ones, stand apart.

    Args:
        rows: Of ``dream eval poison``; of two with the same key the later one counts.
        by_embedder: A table per embedder too, instead of means over embedders.
    """
    last = list({key_of(row): row for row in rows}.values())

    def section(row: Row) -> tuple[Any, ...]:
        return (
            bool(row.get("small")),
            str(row.get("agent", "structured")),
            row["embedder"] if by_embedder else "",
            row["injected"] if "injected" in row else row.get("poison", 0),
        )

    return [_table(_title(*key), list(group)) for key, group in groupby(sorted(last, key=section), section)]


def to_markdown(tables: Sequence[CountTable]) -> str:
    """Return the tables for a document; the best baseline of a line is bold."""
    legend = (
        f"Cells: {' / '.join(METRICS)}; bold: the baseline with the least asr_r + 1 - benign_retention; "
        "in brackets: pairs of case and embedder, where a defence was measured on fewer."
    )
    parts = [legend]
    for table in tables:
        header = ["family", "cases", "undefended asr_r", *table.defences]
        lines = [
            [line.name, str(line.cases), _number(line.undefended), *_cells(table, line)]
            for line in table.lines
        ]
        body = [_markdown_line(cells) for cells in [header, ["---"] * len(header), *lines]]
        parts.append("\n".join([f"**{table.title}**", "", *body]))
    return "\n\n".join(parts)


def _table(title: str, rows: list[Row]) -> CountTable:
    defences = list(dict.fromkeys(row["defence"] for row in rows if row["defence"] not in OURS))
    defences += [name for name in OURS if any(row["defence"] == name for row in rows)]
    families: dict[str, list[Row]] = {}
    for row in rows:
        families.setdefault(row.get("family", family_of(row["case"])), []).append(row)
    lines = [_line(name, group, defences) for name, group in families.items()]
    means = [_mean_line(lines, defences), _line(CASES_MEAN, rows, defences)]
    return CountTable(
        title=title, defences=[name for name in defences if name != UNDEFENDED], lines=[*lines, *means]
    )


def _line(name: str, rows: list[Row], defences: list[str]) -> Line:
    pairs = {(row["case"], row["embedder"], row.get("seed")): row["asr_r_undefended"] for row in rows}
    cells = {}
    for defence in defences:
        of_defence = [row for row in rows if row["defence"] == defence]
        means = {metric: _mean(row[metric] for row in of_defence) for metric in METRICS}
        cells[defence] = Cell(cases=len(of_defence), **means)
    return Line(name=name, cases=len(pairs), undefended=_mean(pairs.values()), cells=cells)


def _mean_line(lines: list[Line], defences: list[str]) -> Line:
    cells = {}
    for defence in defences:
        of_defence = [line.cells[defence] for line in lines]
        means = {metric: _mean(getattr(cell, metric) for cell in of_defence) for metric in METRICS}
        cells[defence] = Cell(cases=sum(cell.cases for cell in of_defence), **means)
    return Line(
        name=FAMILIES_MEAN,
        cases=sum(line.cases for line in lines),
        undefended=_mean(line.undefended for line in lines),
        cells=cells,
    )


def _mean(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None and not math.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def _title(small: bool, agent: str, embedder: str, injected: int) -> str:
    parts = [f"{injected} injected", embedder, "" if agent == "structured" else f"agent {agent}"]
    return ", ".join(part for part in [*parts, "small" if small else ""] if part)


def _cells(table: CountTable, line: Line) -> list[str]:
    shown = []
    for name in table.defences:
        cell = line.cells[name]
        text = " / ".join(_number(getattr(cell, metric)) for metric in METRICS) if cell.cases else NOTHING
        if cell.cases:
            text = f"**{text}**" if name == line.best_baseline else text
            text += f" ({cell.cases})" if cell.cases < line.cases else ""
        shown.append(text)
    return shown


def _number(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{value:.2f}"


def _markdown_line(cells: Sequence[str]) -> str:
    # a family of a case of the user's own may be called anything
    return f"| {' | '.join(' '.join(cell.split()).replace('|', '&#124;') for cell in cells)} |"
