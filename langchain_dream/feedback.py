"""Which documents a run returned, so that feedback can name the run alone."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from langchain_core.documents import Document

from shared_core.errors import ConfigError

REMEMBERED_RUNS = 1_000


class FeedbackLog:
    """The last runs of one retriever; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, list[Document]] = OrderedDict()

    def remember(self, run_id: UUID, documents: Sequence[Document]) -> None:
        """Keep what a run returned, and let go of the oldest run."""
        with self._lock:
            self._runs[str(run_id)] = list(documents)
            while len(self._runs) > REMEMBERED_RUNS:
                self._runs.popitem(last=False)

    def resolve(self, docs_or_run: Any, prefix: str) -> tuple[list[str], list[float]]:
        """Return ids and scores of documents, of a run id, or of a tracer's run, be it a chain's around ours.

        Raises:
            ConfigError: An unknown run, no documents, or documents without id or score.
        """
        documents = self._documents(docs_or_run)
        if not documents:
            raise ConfigError("feedback got no documents: the search found none, so nothing can be credited")
        ids: dict[str, float] = {}
        for document in documents:
            score = document.metadata.get(f"{prefix}score")
            if document.id is None or not isinstance(score, (int, float)):
                raise ConfigError(
                    f"document {document.id!r} has no id or no {prefix}score: give back the documents that "
                    "this retriever returned, or the run's id"
                )
            ids.setdefault(document.id, float(score))
        return list(ids), list(ids.values())

    def _documents(self, docs_or_run: Any) -> Sequence[Document]:
        if isinstance(docs_or_run, Document):
            return [docs_or_run]
        if isinstance(docs_or_run, Sequence) and not isinstance(docs_or_run, str):
            if not all(isinstance(item, Document) for item in docs_or_run):
                raise ConfigError("feedback takes a list of documents, a run's id, or a run object")
            return docs_or_run
        run_ids = _run_ids(docs_or_run)
        with self._lock:
            for run_id in run_ids:
                if run_id in self._runs:
                    return self._runs[run_id]
        raise ConfigError(
            f"run {run_ids[0]!r} is not among the last {REMEMBERED_RUNS} runs of this retriever: "
            "give the documents it returned instead"
        )


def _run_ids(run: Any) -> list[str]:
    """Return a run's id, followed by those of the runs within it, as a chain's run holds the retriever's."""
    children = getattr(run, "child_runs", None) or []
    return [str(getattr(run, "id", run)), *(run_id for child in children for run_id in _run_ids(child))]
