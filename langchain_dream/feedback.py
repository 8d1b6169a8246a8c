"""Feedback names a run, or the documents that it returned; which scores they had is remembered by the core.

A document's metadata is the user's, or whoever wrote the memory's: no score is taken from it, or a memory
could give itself all the credit of a task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langchain_core.documents import Document

from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core import Hit

REMEMBERED_RUNS = 1_000


class FeedbackLog:
    """The last runs of one retriever; safe for threads."""

    def __init__(self) -> None:
        from shared_core.retrieval.given_scores import GivenScores

        self._given = GivenScores(REMEMBERED_RUNS)

    def remember(self, run_id: UUID | str, hits: Sequence[Hit]) -> None:
        """Keep what a run returned, and let go of the oldest run."""
        self._given.remember({hit.id: hit.score for hit in hits}, str(run_id))

    def resolve(self, docs_or_run: Any, prefix: str) -> tuple[list[str], list[float]]:
        """Return ids and scores of documents, of a run id, or of a tracer's run, be it a chain's around ours.

        A document has the score that we gave it: in the run whose score it still shows, else in the last run
        that returned it. Where one is not remembered, as after a restart, all share the credit equally.

        Raises:
            ConfigError: An unknown run, no documents, or documents that a retriever of ours did not return.
        """
        from shared_core.retrieval.given_scores import shared_credit

        if isinstance(docs_or_run, Document):
            docs_or_run = [docs_or_run]
        if isinstance(docs_or_run, Sequence) and not isinstance(docs_or_run, str):
            return shared_credit(self._of_documents(docs_or_run, f"{prefix}score"))
        return shared_credit(self._of_run(_run_ids(docs_or_run)))

    def _of_run(self, run_ids: list[str]) -> dict[str, float]:
        for run_id in run_ids:
            if (found := self._given.of_run(run_id)) is not None:
                return found
        raise ConfigError(
            f"run {run_ids[0]!r} is not among the last {REMEMBERED_RUNS} runs of this retriever: "
            "give the documents it returned instead"
        )

    def _of_documents(self, documents: Sequence[Any], key: str) -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        for document in documents:
            if not isinstance(document, Document):
                raise ConfigError("feedback takes a list of documents, a run's id, or a run object")
            if document.id is None or key not in document.metadata:
                raise ConfigError(
                    f"document {document.id!r} has no id or no {key}: give back the documents that "
                    "this retriever returned, or the run's id"
                )
            found.setdefault(document.id, self._given.of_memory(document.id, document.metadata[key]))
        return found


def _run_ids(run: Any) -> list[str]:
    """Return a run's id, followed by those of the runs within it, as a chain's run holds the retriever's."""
    children = getattr(run, "child_runs", None) or []
    return [str(getattr(run, "id", run)), *(run_id for child in children for run_id in _run_ids(child))]
