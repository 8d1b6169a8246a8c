"""``DreamRetriever``: the one-line swap for ``vectorstore.as_retriever(...)``.

Translates LangChain's types, options and callbacks to the core and back; all ranking, state and science
live in ``shared_core``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever
from pydantic import ConfigDict, Field, PrivateAttr, ValidationError
from typing_extensions import override

from langchain_dream.documents import to_documents
from langchain_dream.feedback import FeedbackLog
from langchain_dream.search import DocumentSearch, open_search
from shared_core.errors import ConfigError, refusal_of

if TYPE_CHECKING:
    from langchain_core.callbacks import (
        AsyncCallbackManagerForRetrieverRun,
        CallbackManagerForRetrieverRun,
    )

    from shared_core import ConsolidationConfig, ForgettingConfig, MemoryBank, Run, SweepReport
    from shared_core.types import Progress


class DreamRetriever(VectorStoreRetriever):
    """A vector store retriever that ranks by w * cos, and whose memories can be forgotten and restored.

    Over Chroma it does everything; over another vector store it weighs by document id, and says clearly
    what needs embeddings that the store cannot give. Fields that name the bank are fixed once it is open.

    Example:
        .. code-block:: python

            retriever = DreamRetriever.from_vectorstore(vectorstore, k=4)
            docs = retriever.invoke("Which patients had a void output?")
            report = retriever.sweep()  # offline: poison decays
            retriever.bank.undo(report.run_id)  # and comes back, if you want it

    Raises:
        ConfigError: An option that there is not, or a value that makes no sense.
        StateError: The state database cannot be opened, or none is named where there is no default.
        UnsupportedStoreError: The vector store cannot do what is asked of it.
    """

    vectorstore: VectorStore = Field(exclude=True, frozen=True)
    """The user's own vector store; left out of ``model_dump``, for it does not serialise."""
    k: int | None = Field(default=None, ge=1)
    """How many documents are returned; goes before ``search_kwargs["k"]``. Default 4."""
    where: dict[str, Any] | None = Field(default=None, frozen=True)
    """Metadata filter of one tenant: nothing outside it is retrieved, read by a sweep, or changed."""
    state_url: str | None = Field(default=None, frozen=True)
    """SQLAlchemy URL of weights and journal; default: beside an embedded Chroma collection."""
    bank_name: str | None = Field(default=None, frozen=True)
    """Names the bank where the vector store is not Chroma."""
    value_key: str | None = Field(default=None, frozen=True)
    """Metadata field that holds a memory's value (its solution or answer), where there is one."""
    origin_key: str | None = Field(default=None, frozen=True)
    """Metadata field that says who wrote a memory, where there is one; sweeps rank by it too."""
    quarantine: float | None = Field(default=None, frozen=True)
    """Weight of memories that no sweep has seen yet, from now on; 1 ends it, None follows the journal."""
    backend: str = Field(default="auto", frozen=True)
    """``index``, ``scan`` or ``auto``; see ``RetrievalConfig``."""
    reranker: Any | None = Field(default=None, exclude=True, frozen=True)
    """An object with ``score(query, texts)``, each score in [0, 1]; the weights apply to it too."""
    metadata_prefix: str = Field(default="dream_", min_length=1, frozen=True)
    """Prefix of the metadata we add: score, similarity and weight. Your own keys are never overwritten."""
    track_access: bool = Field(default=True, frozen=True)
    """Count retrievals in the bank's statistics."""

    allowed_search_types: ClassVar[Sequence[str]] = (
        "similarity",
        "similarity_score_threshold",
        "mmr",
        "hybrid",
        "associative",
    )

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    _search: DocumentSearch = PrivateAttr()
    _feedback: FeedbackLog = PrivateAttr(default_factory=FeedbackLog)

    if not TYPE_CHECKING:  # whoever checks types knows the fields

        def __init__(self, **options: Any) -> None:
            try:
                super().__init__(**options)
            except ValidationError as error:
                raise refusal_of(error, type(self).model_fields) from None

    def model_post_init(self, context: Any, /) -> None:
        """Open the bank, so that what is wrong shows at construction and not at the first question."""
        super().model_post_init(context)
        self._search = open_search(
            self.vectorstore,
            where=self.where,
            state_url=self.state_url,
            bank_name=self.bank_name,
            value_key=self.value_key,
            origin_key=self.origin_key,
            quarantine=self.quarantine,
            backend=self.backend,
            reranker=self.reranker,
            track_access=self.track_access,
        )
        self._search.check(self._options({}))

    @classmethod
    def from_vectorstore(cls, vectorstore: VectorStore, **options: Any) -> DreamRetriever:
        """Wrap a vector store; options are this class's fields, as for ``vectorstore.as_retriever``."""
        if isinstance(vectorstore, VectorStoreRetriever):
            raise ConfigError("from_vectorstore takes a vector store; for a retriever use from_retriever")
        return cls(vectorstore=vectorstore, **options)

    @classmethod
    def from_retriever(cls, retriever: VectorStoreRetriever, **options: Any) -> DreamRetriever:
        """Replace a retriever that is configured already, keeping every field that both have.

        Of one of ours that is all of them: a tenant's filter above all must not get lost.
        """
        if not isinstance(retriever, VectorStoreRetriever):
            raise ConfigError(
                f"from_retriever takes a VectorStoreRetriever, not {type(retriever).__name__}; for a vector "
                "store use from_vectorstore"
            )
        shared = cls.model_fields.keys() & type(retriever).model_fields.keys()
        return cls(**{**{name: getattr(retriever, name) for name in shared}, **options})

    @property
    def bank(self) -> MemoryBank:
        """The memory bank: weights, journal, undo.

        Raises:
            UnsupportedStoreError: The vector store is not Chroma.
        """
        return self._search.bank

    # ---- retrieval

    @override
    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        options = self._options(kwargs)
        hits = self._search.search(query, **options)
        self._feedback.remember(run_manager.run_id, hits)
        return to_documents(hits, self.metadata_prefix)

    @override
    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        options = self._options(kwargs)
        hits = await self._search.asearch(query, **options)
        self._feedback.remember(run_manager.run_id, hits)
        return to_documents(hits, self.metadata_prefix)

    def _options(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        own = {} if self.k is None else {"k": self.k}
        return {"search_type": self.search_type, **self.search_kwargs, **own, **kwargs}

    # ---- learning and forgetting

    def feedback(
        self,
        docs_or_run: Any,
        success: bool | float,
        config: ConsolidationConfig | None = None,
    ) -> Run:
        """Tell how the task went for which documents were retrieved; helpful ones consolidate.

        Args:
            docs_or_run: The documents that this retriever returned, or the run that returned them: its
                id, or a tracer's run object. The last 1,000 runs are remembered with their scores; where
                a document is of no remembered run (of another process), all share the credit equally,
                for no score is taken from metadata, which a memory can bring along.
            success: True or False, or how well it went in [0, 1].
            config: Momentum and temperature of the consolidation.

        Returns:
            The journal's run, which can be undone.

        Raises:
            ConfigError: Unknown run, documents that no DreamRetriever returned, bad success.
            MemoryNotFoundError: A document is not in this bank.
        """
        ids, scores = self._feedback.resolve(docs_or_run, self.metadata_prefix)
        return self._search.feedback(ids, scores, success, config)

    async def afeedback(
        self,
        docs_or_run: Any,
        success: bool | float,
        config: ConsolidationConfig | None = None,
    ) -> Run:
        """``feedback`` in a thread, without blocking the event loop."""
        return await asyncio.to_thread(self.feedback, docs_or_run, success, config)

    def sweep(
        self,
        config: ForgettingConfig | None = None,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> SweepReport:
        """Run one forgetting sweep over the bank: one transaction, one ``bank.undo``.

        Raises:
            UnsupportedStoreError: The vector store cannot give every embedding.
            BankLockedError: Another dreamer is at work.
        """
        return self.bank.sweep(config, dry_run=dry_run, progress=progress)

    async def asweep(
        self,
        config: ForgettingConfig | None = None,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> SweepReport:
        """``sweep`` in a thread, without blocking the event loop."""
        return await self.bank.asweep(config, dry_run=dry_run, progress=progress)

    def __deepcopy__(self, memo: Any = None) -> Any:
        """Refuse to be copied deeply, as to be pickled; ``copy.copy`` shares the open store."""
        raise TypeError(
            "DreamRetriever holds an open vector store and cannot be deep-copied: use copy.copy, or "
            "DreamRetriever.from_retriever for one of its own"
        )

    def __reduce__(self) -> Any:
        """Refuse to be pickled: an open database and vector store cannot travel between processes."""
        raise TypeError(
            "DreamRetriever holds an open vector store and cannot be pickled: send its configuration "
            "(model_dump) and build it in the other process"
        )
