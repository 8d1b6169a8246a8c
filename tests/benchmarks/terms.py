"""What each term of preset hardened costs, from 10,000 to 1,000,000 memories: CPU, peak memory, growth.

Run by ``make bench-terms``; prints a line per measurement and writes JSON. Each measurement is a process of
its own, so that its peak memory is its own. Texts are made here: words drawn by Zipf's law, of which few
belong together, or requests by 40 templates about entities that come back, of which very many do. A text's
embedding is the sum of random directions of its words, rarer words longer: free next to a model's.
``nearest`` is what ``dominance`` and ``hearsay`` share; recall is against all cosines, on a sample of rows.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from shared_core import ForgettingConfig
from shared_core.dynamics.terms import BankView, evaluate_term, find_term

DIMENSION = 384
VOCABULARY = 30_000
TEMPLATES = 40
PER_ENTITY = 8
SOURCES = 200
SAMPLE = 300
MEGABYTE = 1e6
Words = np.ndarray[tuple[int, int], np.dtype[np.int64]]


def zipf(rng: np.random.Generator, rows: int) -> tuple[Words, Words]:
    """Return the words of keys, 20 each, and of values, 40 each."""
    frequency = 1.0 / np.arange(1, VOCABULARY + 1) ** 1.05
    cumulated = np.cumsum(frequency / frequency.sum())
    cumulated[-1] = 1.0
    return tuple(  # type: ignore[return-value]
        np.searchsorted(cumulated, rng.random((rows, words), np.float32)) for words in (20, 40)
    )


def templates(rng: np.random.Generator, rows: int) -> tuple[Words, Words]:
    """Return requests of 12 words and answers of 24: a template's own words, common ones and an entity's."""
    drawn = rng.integers(TEMPLATES, size=rows)
    entity = VOCABULARY + rng.integers(max(1, rows // PER_ENTITY), size=rows)
    detail = rng.integers(2000, 6000, size=(rows, 2))
    found = []
    for words, shift in ((12, 0), (24, 1)):
        of_template = rng.integers(400, size=(TEMPLATES, words))
        of_template[:, : words // 2] = (
            400 + (2 * np.arange(TEMPLATES)[:, None] + shift) * 20 + np.arange(words // 2)
        )
        texts = of_template[drawn]
        texts[:, -3] = entity
        texts[:, -6:-4] = detail
        found.append(texts)
    return found[0], found[1]


MAKERS: dict[str, Callable[[np.random.Generator, int], tuple[Words, Words]]] = {
    "zipf": zipf,
    "templates": templates,
}


class WordSum:
    """Embeds a text as the sum of its words' directions, scaled by rarity; counts what it is asked."""

    def __init__(self, words: Words) -> None:
        counts = np.bincount(words.ravel())
        rarity = np.log(1.0 + len(words) / np.maximum(counts, 1)).astype(np.float32)
        rng = np.random.default_rng(1)
        self._table = rng.standard_normal((len(counts), DIMENSION), np.float32) * rarity[:, None]
        self.asked = 0

    def rows(self, words: Words) -> np.ndarray:
        """Return (N, d) unit vectors."""
        found = np.empty((len(words), DIMENSION), np.float32)
        for start in range(0, len(words), 4096):
            part = self._table[words[start : start + 4096]].sum(axis=1)
            found[start : start + 4096] = part / np.linalg.norm(part, axis=1, keepdims=True)
        return found

    def __call__(self, texts: list[str]) -> np.ndarray:
        self.asked += len(texts)
        found = np.zeros((len(texts), DIMENSION), np.float32)
        for row, text in enumerate(texts):
            known = [int(word[1:]) for word in text.split() if word[1:].isdigit()]
            found[row] = self._table[known].sum(axis=0) if known else 1.0
        return found / np.linalg.norm(found, axis=1, keepdims=True)


def texts(words: Words) -> list[str]:
    """Return one text per row of words."""
    parts = (words[start : start + 4096].tolist() for start in range(0, len(words), 4096))
    return [" ".join([f"w{word}" for word in row]) for part in parts for row in part]


def peak() -> float:
    """Return the peak memory of this process, in bytes."""
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(held if sys.platform == "darwin" else held * 1024)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return a result, and the CPU seconds of this process that it took."""
    began = time.process_time()
    found = work()
    return found, time.process_time() - began


def measure(kind: str, rows: int, part: str) -> dict[str, Any]:
    """Return what ``coupling``, or the two terms about origins, cost on a bank of this size."""
    rng = np.random.default_rng(0)
    keys, values = MAKERS[kind](rng, rows)
    embed = WordSum(keys)
    view = BankView(
        keys=texts(keys),
        values=texts(values),
        unit=embed.rows(keys),
        embed=embed,
        origins=[f"source {number}" for number in rng.integers(SOURCES, size=rows)],
        config=ForgettingConfig.preset("hardened"),
    )
    del keys, values
    record: dict[str, Any] = {"kind": kind, "rows": rows, "part": part, "bank_mb": round(peak() / MEGABYTE)}
    if part == "coupling":
        found, seconds = timed(partial(evaluate_term, find_term("coupling"), view))
        record |= {"cpu": {"coupling": seconds}, "embedded": embed.asked, "flagged": int(found.flagged.sum())}
    else:
        near, seconds = timed(lambda: view.nearest)
        record["cpu"] = {"nearest": seconds}
        for name in ("dominance", "hearsay"):
            record["cpu"][name] = timed(partial(evaluate_term, find_term(name), view))[1]
        record["peak_mb"] = round(peak() / MEGABYTE)
        record["recall"] = recall(view.unit, near)
    record.setdefault("peak_mb", round(peak() / MEGABYTE))
    return record


def recall(unit: np.ndarray, near: np.ndarray) -> float:
    """Return which share of the truly nearest was found, on a sample of rows."""
    sample = np.random.default_rng(2).choice(len(unit), min(SAMPLE, len(unit)), replace=False)
    cosines = unit[sample] @ unit.T
    cosines[np.arange(len(sample)), sample] = -2.0
    # of equally near ones any will do
    least = -np.partition(-cosines, near.shape[1] - 1, axis=1)[:, near.shape[1] - 1]
    found = np.take_along_axis(cosines, near[sample], axis=1)
    return float(np.mean(found >= least[:, None] - 1e-5))


def exponents(records: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the log-log slope of CPU time between each size and the next."""
    for kind, part in dict.fromkeys((record["kind"], record["part"]) for record in records):
        series = [record for record in records if (record["kind"], record["part"]) == (kind, part)]
        for small, large in pairwise(series):
            ratio = np.log(large["rows"] / small["rows"])
            slopes = {
                name: round(float(np.log(large["cpu"][name] / seconds) / ratio), 2)
                for name, seconds in small["cpu"].items()
            }
            yield {"kind": kind, "part": part, "from": small["rows"], "to": large["rows"], "slope": slopes}


def child(kind: str, rows: int, part: str) -> dict[str, Any]:
    """Measure in a new process."""
    command = [sys.executable, "-m", "tests.benchmarks.terms", "--child", kind, str(rows), part]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 30_000, 100_000, 300_000, 1_000_000])
    parser.add_argument("--kinds", nargs="+", choices=list(MAKERS), default=list(MAKERS))
    parser.add_argument(
        "--parts", nargs="+", choices=["coupling", "sources"], default=["coupling", "sources"]
    )
    parser.add_argument("--out", type=Path, default=Path(".benchmarks/terms.json"))
    parser.add_argument("--child", nargs=3, metavar=("KIND", "ROWS", "PART"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        kind, rows, part = given.child
        print(json.dumps(measure(kind, int(rows), part)))  # noqa: T201
        return
    records = []
    for rows in given.rows:
        for kind in given.kinds:
            for part in given.parts:
                records.append(child(kind, rows, part))
                print(json.dumps(records[-1]), flush=True)  # noqa: T201
    growth = list(exponents(records))
    for line in growth:
        print(json.dumps(line))  # noqa: T201
    result = {"load average": os.getloadavg(), "records": records, "growth": growth}
    given.out.parent.mkdir(exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1), encoding="utf-8")
    print(f"written to {given.out}")  # noqa: T201


if __name__ == "__main__":
    main()
