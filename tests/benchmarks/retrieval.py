"""Weighted retrieval against the plain vector store it wraps: latency, exactness, many callers, cold open.

Run by ``make bench-retrieval``; prints a table and writes JSON. The bank holds random unit vectors, which no
index searches well, and short texts of its own; it is built once per size and kept. Every variant answers
each query before the next query comes, so that what else the machine does falls on all alike; compare
within a run. Before that each has answered often enough to hold what it would hold in a running process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
from langchain_chroma import Chroma
from langchain_core.embeddings import Embeddings

from langchain_dream import DreamRetriever
from shared_core import MemoryBank
from shared_core.bank.hot_records import PAGE_AHEAD, SETTLED_SECONDS
from tests.conftest import unit_rows

DIMENSION = 384
K = 4
BATCH = 5_000
WORDS = 5_000
CALLERS = 32
WARM = 100
"""Searches before anything is measured, beside two for each page of records that is read ahead."""
COLD = """
import sys, time
began = time.perf_counter()
import numpy as np
from shared_core import BankRetriever, MemoryBank, RetrievalConfig
loaded = time.perf_counter()
bank = MemoryBank.open(sys.argv[1], "bench")
retriever = BankRetriever(bank, RetrievalConfig(backend=sys.argv[2]), track_access=False)
retriever.search_by_vector(np.eye({dimension})[0], k={k})
print(time.perf_counter() - loaded)
"""


class Prepared(Embeddings):
    """Query embeddings that cost nothing: the text of a query is the number of its vector."""

    def __init__(self, queries: np.ndarray) -> None:
        self._queries = queries.tolist()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise NotImplementedError("the bank is built beforehand")

    def embed_query(self, text: str) -> list[float]:
        return self._queries[int(text.rpartition(" ")[2])]


def build(folder: Path, rows: int) -> Chroma:
    """Return the bank of this size, built if it is not there."""
    collection = chromadb.PersistentClient(str(folder)).get_or_create_collection(
        "bench", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
    )
    rng = np.random.default_rng(0)
    for start in range(0, rows, BATCH):
        matrix = unit_rows(rng, BATCH, DIMENSION)
        drawn = np.minimum(rng.zipf(1.3, size=(BATCH, 15)), WORDS) - 1
        if start >= collection.count():
            at = range(start, start + BATCH)
            collection.add(
                ids=[f"m{i}" for i in at],
                documents=[
                    f"memory {i}: " + " ".join(f"word{word}" for word in row)
                    for i, row in zip(at, drawn, strict=True)
                ],
                metadatas=[{"kind": "ab"[i % 2], "at": i} for i in at],
                embeddings=matrix.astype(np.float32),
            )
    return Chroma("bench", client=chromadb.PersistentClient(str(folder)))


def questions(count: int) -> list[str]:
    """Return texts that share two rare words and a common one with the bank's, and end in a number."""
    return [f"word{3 + i % 40} word{(i * 37) % WORDS} word2 {i}" for i in range(count)]


def weigh(bank: MemoryBank, pattern: str) -> dict[str, float]:
    """Give the bank's memories a pattern of weights; return those that are not 1."""
    rng = np.random.default_rng(2)
    ids = bank.ids()
    bank.restore(ids)
    if pattern == "full":
        return {}
    if pattern == "5 % suppressed":
        given = dict.fromkeys((ids[row] for row in rng.choice(len(ids), len(ids) // 20, replace=False)), 0.0)
    else:
        given = dict(zip(ids, rng.uniform(size=len(ids)).tolist(), strict=True))
    bank.set_weights(given)
    return given


def brute_force(
    matrix: np.ndarray, ids: list[str], weights: dict[str, float], query: np.ndarray
) -> list[str]:
    """Return the ids of the K largest w * max(0, cos)."""
    similarity = matrix @ query
    weight = np.array([weights.get(memory_id, 1.0) for memory_id in ids])
    score = np.where(weight < 0.01, -1.0, weight * np.maximum(similarity, 0.0))
    return [ids[row] for row in np.argsort(-score, kind="stable")[:K]]


def timed(variants: dict[str, Callable[[str], Any]], asked: list[str]) -> dict[str, np.ndarray]:
    """Return milliseconds by the clock and of CPU, (n, 2), of each; the first tenth does not count."""
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    for text in asked:
        for name, ask in variants.items():
            began, used = time.perf_counter(), time.process_time()
            ask(text)
            took[name].append((time.perf_counter() - began, time.process_time() - used))
    return {name: 1e3 * np.array(values[len(values) // 10 :]) for name, values in took.items()}


async def throughput(ask: Callable[[str], Any], asked: list[str]) -> float:
    """Return queries per second of so many concurrent callers."""
    texts: Iterator[str] = iter(asked)

    async def caller() -> None:
        for text in texts:
            await ask(text)

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return len(asked) / (time.perf_counter() - began)


def cold_open(folder: Path, backend: str) -> float:
    """Return the seconds that a new process takes to open the bank and answer once, imports left out."""
    program = COLD.format(dimension=DIMENSION, k=K)
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder), backend], check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def measure(folder: Path, rows: int, count: int, hybrids: int) -> Iterator[dict[str, Any]]:
    """Yield one record per pattern of weights and per measurement."""
    store = build(folder, rows)
    queries = unit_rows(np.random.default_rng(1), 4 * count, DIMENSION)
    store._embedding_function = Prepared(queries)
    dream = {
        name: DreamRetriever.from_vectorstore(store, k=K, backend=name, track_access=name == "auto")
        for name in ("index", "scan", "auto")
    }
    hybrid = DreamRetriever.from_vectorstore(store, k=K, search_type="hybrid", track_access=False)
    bank = dream["auto"].bank
    variants: dict[str, Callable[[str], Any]] = {
        "similarity_search": lambda text: store.similarity_search(text, k=K),
        **{name: retriever.invoke for name, retriever in dream.items()},
    }
    asked = questions(len(queries))
    ids, matrix = bank.content.embeddings()
    # a file that was just opened proves nothing, and what is read beside searches must have been read
    time.sleep(SETTLED_SECONDS + 0.5)
    for text in asked[-2 * (rows // PAGE_AHEAD) - WARM :]:
        for ask in [*variants.values(), hybrid.invoke]:
            ask(text)
    for pattern in ("uniform", "5 % suppressed", "full"):
        weights = weigh(bank, pattern)
        for heat, texts in (("new", asked[:count]), ("repeated", asked[:25] * (count // 25))):
            yield {"rows": rows, "weights": pattern, "queries": heat, "ms": quantiles(timed(variants, texts))}
        right = {text: brute_force(matrix, ids, weights, queries[row]) for row, text in enumerate(asked[:25])}
        yield {
            "rows": rows,
            "weights": pattern,
            "same ids, in order, as brute force": {
                name: float(np.mean([[d.id for d in ask(text)] == found for text, found in right.items()]))
                for name, ask in variants.items()
            },
        }
    pair = {"similarity_search": variants["similarity_search"], "hybrid": hybrid.invoke}
    yield {"rows": rows, "weights": "full", "queries": "new", "ms": quantiles(timed(pair, asked[:hybrids]))}
    callers = {
        "similarity_search": store.as_retriever(search_kwargs={"k": K}).ainvoke,
        **{name: retriever.ainvoke for name, retriever in dream.items()},
    }
    speed = {name: asyncio.run(throughput(ask, asked[count : 3 * count])) for name, ask in callers.items()}
    yield {"rows": rows, "callers": CALLERS, "per second": speed}
    yield {
        "rows": rows,
        "cold open, s": {name: min(cold_open(folder, name) for _ in range(3)) for name in ("index", "scan")},
    }


def quantiles(took: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """Return p50 and p90 by the clock, median CPU, and each median against the plain search's."""
    plain, plain_cpu = np.median(took["similarity_search"], axis=0)
    found = {}
    for name, values in took.items():
        (p50, cpu), p90 = np.median(values, axis=0), np.quantile(values[:, 0], 0.9)
        numbers = {"p50": p50, "p90": p90, "cpu": cpu, "ratio": p50 / plain, "cpu_ratio": cpu / plain_cpu}
        found[name] = {key: round(float(value), 3) for key, value in numbers.items()}
    return found


def shown(record: dict[str, Any]) -> str:
    """Return one line for people."""
    about = ", ".join(f"{key} {value}" for key, value in record.items() if not isinstance(value, dict))
    measured = next((key, value) for key, value in record.items() if isinstance(value, dict))
    numbers = "; ".join(
        f"{name} {value['p50']:.2f} ({value['ratio']:.2f} x, CPU {value['cpu_ratio']:.2f} x)"
        if isinstance(value, dict)
        else f"{name} {value:.2f}"
        for name, value in measured[1].items()
    )
    return f"{about} | {measured[0]}: {numbers}"


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--hybrids", type=int, default=60)
    parser.add_argument("--folder", type=Path, default=Path(".benchmarks"))
    parser.add_argument("--out", type=Path, default=Path(".benchmarks/retrieval.json"))
    given = parser.parse_args()
    records = []
    for rows in given.rows:
        for record in measure(given.folder / f"retrieval-{rows}", rows, given.queries, given.hybrids):
            records.append(record)
            print(shown(record), flush=True)  # noqa: T201
    load = os.getloadavg()
    given.out.write_text(json.dumps({"load average": load, "records": records}, indent=1), encoding="utf-8")
    print(f"load average of the machine: {load[0]:.1f}; written to {given.out}")  # noqa: T201


if __name__ == "__main__":
    main()
