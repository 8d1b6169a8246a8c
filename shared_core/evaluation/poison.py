"""``dream eval poison``: an attack case in a real collection, before and after a defence.

The defence sees the collection and nothing else: no labels, no queries, no trigger.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.bank import MemoryBank
from shared_core.bank.status import FORGOTTEN, WEAKENED
from shared_core.config import AgentKind, RetrievalConfig
from shared_core.evaluation.defences import (
    DefenceOptions,
    DefenceOutcome,
    check_defence,
    defend,
    outcome_of_sweep,
)
from shared_core.evaluation.metrics import auroc, overlap_at_k, share_with_poison
from shared_core.retrieval import BankRetriever
from shared_core.types import BatchEmbedder

if TYPE_CHECKING:
    from shared_core.bank import SweepReport
    from shared_core.evaluation.cases import AttackCase
    from shared_core.types import Embedder, FloatArray

TOP_K = 4
MAJORITY = 3
VALUE_KEY = "value"
ORIGIN_KEY = "origin"


@dataclass(frozen=True, kw_only=True)
class Retrieved:
    """What a bank retrieves for a case's queries: ids of the top-4."""

    triggered: list[list[str]]
    benign_only: list[list[str]]
    """Top-4 of the benign queries with the poison left out."""


@dataclass(frozen=True, kw_only=True)
class PoisonRow:
    """One line of the table."""

    case: str
    defence: str
    embedder: str
    auroc: float
    """Of "poison is more suspect" (a sweep: it responds less); NaN where a defence scores nothing."""
    asr_r: float
    """Share of triggered queries with a poison in the weighted top-4."""
    asr_r_majority: float
    """The same with at least 3 of 4."""
    asr_r_undefended: float
    benign_retention: float
    """Mean overlap of the benign-only top-4 before and after."""
    false_forget: float
    """Share of benign memories with w < 0.5."""
    poison_forget: float
    """Share of poison with w < 0.1."""
    memories: int
    poison: int
    seconds: float
    """Of the defence, on an embedded bank."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; what is undefined is null."""
        values = asdict(self)
        return {
            key: None if isinstance(value, float) and math.isnan(value) else value
            for key, value in values.items()
        }


@contextmanager
def case_bank(embedder: Embedder) -> Iterator[MemoryBank]:
    """Open an empty bank in a directory that is gone afterwards; it knows where values and origins are."""
    with (
        tempfile.TemporaryDirectory(prefix="dream-eval-") as folder,
        MemoryBank.open(
            folder, "case", create=True, embedder=embedder, value_key=VALUE_KEY, origin_key=ORIGIN_KEY
        ) as bank,
    ):
        yield bank


def fill_collection(bank: MemoryBank, case: AttackCase, vectors: FloatArray | None = None) -> None:
    """Write a case's memories, keys as texts, values and origins as metadata; never the ground truth.

    Args:
        bank: An empty bank with ``value_key``, and an embedder unless ``vectors`` are given.
        case: The case.
        vectors: Embeddings of the keys, shape (memories, d).
    """
    bank.add(
        [memory.key for memory in case.memories],
        ids=[memory.id for memory in case.memories],
        values=[memory.value for memory in case.memories],
        metadatas=[{ORIGIN_KEY: memory.origin} if memory.origin else {} for memory in case.memories],
        embeddings=vectors,
    )


def retrieve(bank: MemoryBank, case: AttackCase) -> Retrieved:
    """Run every query of a case against a bank as it is now."""
    # exact, and the same whenever it is asked: an index finds other neighbours in each filling of a bank
    retriever = BankRetriever(bank, RetrievalConfig(backend="scan"), track_access=False)
    poison = case.poison_ids

    def top(query: str, k: int) -> list[str]:
        return [hit.id for hit in retriever.search(query, k=k)]

    return Retrieved(
        triggered=[top(query, TOP_K) for query in case.triggered_queries],
        benign_only=[
            [i for i in top(query, TOP_K + len(poison)) if i not in poison][:TOP_K]
            for query in case.benign_queries
        ],
    )


def measure_bank(
    bank: MemoryBank,
    case: AttackCase,
    before: Retrieved,
    after: Retrieved,
    *,
    report: SweepReport | DefenceOutcome | None = None,
    defence: str,
    embedder: str,
) -> PoisonRow:
    """Score a bank against the ground truth.

    Args:
        bank: The bank, after the defence.
        case: The case it holds.
        before: What was retrieved before the defence.
        after: What is retrieved now.
        report: Of the sweep, or the outcome of another defence; without one there is no AUROC.
        defence: Name for the table.
        embedder: Name for the table.
    """
    poison = case.poison_ids
    ids = [memory.id for memory in case.memories]
    weight = bank.weights(ids)
    bad = np.array([memory_id in poison for memory_id in ids])
    outcome = report if report is None or isinstance(report, DefenceOutcome) else outcome_of_sweep(report)
    area = float("nan")
    if outcome is not None and len(outcome.score):
        truth = np.array([memory_id in poison for memory_id in outcome.ids], bool)
        area = auroc(outcome.score, truth)
    return PoisonRow(
        case=case.name,
        defence=defence,
        embedder=embedder,
        auroc=area,
        asr_r=share_with_poison(after.triggered, poison),
        asr_r_majority=share_with_poison(after.triggered, poison, MAJORITY),
        asr_r_undefended=share_with_poison(before.triggered, poison),
        benign_retention=overlap_at_k(before.benign_only, after.benign_only),
        false_forget=float(np.mean(weight[~bad] < WEAKENED)) if not bad.all() else float("nan"),
        poison_forget=float(np.mean(weight[bad] < FORGOTTEN)) if bad.any() else float("nan"),
        memories=len(ids),
        poison=int(bad.sum()),
        seconds=outcome.seconds if outcome is not None else 0.0,
    )


def evaluate_case(
    case: AttackCase,
    defences: Sequence[str],
    embedder: Embedder,
    *,
    embedder_name: str,
    agent: AgentKind = "structured",
    seed: int = 0,
    data: Path | None = None,
) -> list[PoisonRow]:
    """Build a real embedded collection for a case and measure each defence on it.

    Args:
        case: The case.
        defences: Names in ``DEFENCES``.
        embedder: Embeds keys and queries; a ``CachedEmbedder`` spares what cases share.
        embedder_name: For the table.
        agent: Whose published parameters ``paper`` uses.
        seed: Of the sweep.
        data: Directory of the published data, for ``classifier``, which is trained on some of it.

    Raises:
        ConfigError: There is no such defence, or it lacks its data.
        MissingExtraError: A defence needs a package that is not installed.
    """
    rows: list[PoisonRow] = []
    for defence in defences:
        check_defence(defence)
    options = DefenceOptions(agent=agent, seed=seed, data=data)
    with case_bank(embedder) as bank:
        fill_collection(bank, case)
        before = retrieve(bank, case)
        for defence in defences:
            outcome = defend(defence, bank, options)
            after = before if outcome.run_id is None else retrieve(bank, case)
            rows.append(
                measure_bank(
                    bank, case, before, after, report=outcome, defence=defence, embedder=embedder_name
                )
            )
            if outcome.run_id is not None:
                bank.undo(outcome.run_id)
    return rows


class CachedEmbedder:
    """Embeds every distinct text once; cases of one suite share most of their texts."""

    def __init__(self, embedder: Embedder) -> None:
        self.inner = embedder
        self._documents: dict[str, Any] = {}
        self._queries: dict[str, Any] = {}

    def embed_documents(self, texts: list[str]) -> list[Any]:
        """Return one vector per text."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._documents]
        if missing:
            self._documents.update(zip(missing, self.inner.embed_documents(missing), strict=True))
        return [self._documents[text] for text in texts]

    def embed_query(self, text: str) -> Any:
        """Return the vector of one query."""
        return self.embed_queries([text])[0]

    def embed_queries(self, texts: list[str]) -> list[Any]:
        """Return one vector per query."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._queries]
        if missing:
            inner = self.inner
            if isinstance(inner, BatchEmbedder):
                rows = list(inner.embed_queries(missing))
            else:
                rows = [inner.embed_query(text) for text in missing]
            self._queries.update(zip(missing, rows, strict=True))
        return [self._queries[text] for text in texts]
