"""The memory bank: the one owner and writer of a bank's state, over the user's own Chroma collection.

Content stays in Chroma, untouched and usable without us; weights and journal live in SQL; numerics live
in ``dynamics``. Nothing is deleted or overwritten without a journal entry, and every entry can be undone.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shared_core.bank import intake
from shared_core.bank.chroma import ChromaContent
from shared_core.bank.chroma_client import open_collection
from shared_core.bank.deciding import read_decisions
from shared_core.bank.explaining import Explanation, explain_memory
from shared_core.bank.feedback import give_feedback
from shared_core.bank.location import default_state_url, scope_of
from shared_core.bank.opened import Opened
from shared_core.bank.quarantine import apply_quarantine
from shared_core.bank.records import Record
from shared_core.bank.revision import Revision
from shared_core.bank.state import BankState
from shared_core.bank.status import BankStatus, bank_status, visible_weights
from shared_core.bank.sweeping import SweepReport, sweep_bank
from shared_core.bank.watch import CollectionWatch
from shared_core.config import ConsolidationConfig, ForgettingConfig
from shared_core.errors import ConfigError, MemoryNotFoundError
from shared_core.types import Embedder, FloatArray, Memory, Metadata, Progress, Where

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

    from shared_core.bank.journal import Run

Id = str


class MemoryBank(Opened):
    """Memories of one Chroma collection, with weights that can be lowered and raised again.

    Make one with ``open`` or ``from_collection``. Safe for threads. Any number of processes may retrieve;
    writers of an embedded collection must be one process at a time, as Chroma itself demands. Once closed,
    every method raises ``BankClosedError``.

    Args:
        content: The collection, seen through the tenant's filter.
        state: The state of that same collection and tenant.
        embedder: Embeds what is added or rewritten; LangChain ``Embeddings`` fit as they are.
        value_key: Metadata field that holds a memory's value (its solution), where there is one.
        origin_key: Metadata field that says who wrote a memory, where there is one.
        quarantine: Weight of memories that no sweep has seen yet; 1 ends it, None follows the journal.
    """

    def __init__(
        self,
        content: ChromaContent,
        state: BankState,
        *,
        embedder: Embedder | None = None,
        value_key: str | None = None,
        origin_key: str | None = None,
        quarantine: float | None = None,
    ) -> None:
        super().__init__(content, state)
        self.embedder = embedder
        self.value_key = value_key
        self.origin_key = origin_key
        self._writer.recover()
        apply_quarantine(content, state, quarantine)

    @classmethod
    def open(
        cls,
        location: str | os.PathLike[str] | ClientAPI,
        collection: str,
        *,
        state_url: str | None = None,
        where: Where | None = None,
        embedder: Embedder | None = None,
        value_key: str | None = None,
        origin_key: str | None = None,
        quarantine: float | None = None,
        create: bool = False,
        space: str = "cosine",
    ) -> MemoryBank:
        """Open the bank of a collection.

        Args:
            location: Directory of an embedded Chroma, URL of a Chroma server, ``:memory:``, or a client.
            collection: Name of the collection.
            state_url: SQLAlchemy URL of the weights and the journal. Default: the environment's
                DREAM_STATE_URL, else a SQLite file beside the embedded collection.
            where: Metadata filter of one tenant; nothing outside it is read or changed.
            embedder: See the class.
            value_key: See the class.
            origin_key: See the class.
            quarantine: See the class.
            create: Create the collection if it does not exist.
            space: Distance space of a collection that is created: cosine, l2 or ip.

        Raises:
            BankNotFoundError: There is no such database, server (BankUnreachableError) or collection.
            StateError: The state database cannot be opened, or none is named for a server.
        """
        return cls.from_collection(
            open_collection(location, collection, create=create, space=space),
            state_url=state_url,
            where=where,
            embedder=embedder,
            value_key=value_key,
            origin_key=origin_key,
            quarantine=quarantine,
        )

    @classmethod
    def from_collection(
        cls,
        collection: Collection,
        *,
        state_url: str | None = None,
        where: Where | None = None,
        embedder: Embedder | None = None,
        value_key: str | None = None,
        origin_key: str | None = None,
        quarantine: float | None = None,
    ) -> MemoryBank:
        """Open the bank of a collection that is open already; arguments as for ``open``.

        Raises:
            StateError: The state database cannot be opened, or none is named for a server.
        """
        content = ChromaContent(collection, where)
        url = state_url or default_state_url(content)
        state = BankState(url, collection=content.key, name=content.name, scope=scope_of(where))
        keys = {"value_key": value_key, "origin_key": origin_key}
        return cls(content, state, embedder=embedder, quarantine=quarantine, **keys)

    # ---- reading

    def __len__(self) -> int:
        return len(self.ids()) if self.content.where else self.content.count()

    def ids(self) -> list[Id]:
        """Return all ids of the bank, softly deleted ones included, in order of insertion."""
        return self.content.ids()

    def get(self, ids: Sequence[Id]) -> list[Memory]:
        """Return memories by id, in the order asked.

        Raises:
            MemoryNotFoundError: An id is not in this bank.
        """
        records = self._require(ids := intake.as_ids(ids))
        return self._memories([records[memory_id] for memory_id in ids])

    def page(self, offset: int = 0, limit: int = 100) -> list[Memory]:
        """Return memories in order of insertion, softly deleted ones included.

        Raises:
            ConfigError: A negative offset, or a limit below 1.
        """
        intake.check_span("offset", offset, 0)
        intake.check_span("limit", limit, 1)
        return self._memories(self.content.page(offset, limit))

    def __iter__(self) -> Iterator[Memory]:
        for records in self.content.records():
            yield from self._memories(records)

    def weights(self, ids: Sequence[Id]) -> FloatArray:
        """Return the weight of each id as retrieval sees it, shape (len(ids),): 0 if softly deleted.

        In a tenant's bank also 0 for every id outside the tenant: nothing is told about others' memories.
        """
        return visible_weights(self.content, self.state, intake.as_ids(ids))

    def status(self) -> BankStatus:
        """Return counts, the distribution of weights, suspects and the last runs."""
        return bank_status(self.content, self.state)

    def watch(self) -> CollectionWatch:
        """Return a watch that tells what others add to or remove from the collection from now on."""
        return CollectionWatch(self.content)

    # ---- writing texts

    def add(
        self,
        texts: Sequence[str],
        *,
        ids: Sequence[Id] | None = None,
        metadatas: Sequence[Metadata] | None = None,
        values: Sequence[str] | None = None,
        embeddings: FloatArray | None = None,
        progress: Progress | None = None,
    ) -> list[Id]:
        """Add memories and return their ids; they start with w = 1 (or the quarantine's), found at once.

        Args:
            texts: Keys, the texts that are embedded.
            ids: Default: random UUIDs.
            metadatas: One mapping per text.
            values: Their values, stored under ``value_key``.
            embeddings: Shape (len(texts), d); default: the bank's embedder computes them.
            progress: Called as ``progress("store", done, total)``.

        Raises:
            InvalidMemoryError: Anything malformed; nothing was written then.
            DimensionMismatchError: The embeddings do not fit the collection.
            ConfigError: Embeddings are needed and the bank has no embedder; or values without value_key.
        """
        texts = intake.as_list("texts", texts)
        ids = [str(uuid.uuid4()) for _ in texts] if ids is None else intake.as_list("ids", ids)
        rows = intake.as_rows(ids, texts, metadatas, values, self.value_key, self.content.where)
        if not texts:
            return []
        matrix = self._embed(texts) if embeddings is None else intake.as_matrix(embeddings)
        self._writer.add(ids, texts, rows, matrix, progress)
        return ids

    def update(
        self,
        memory_id: Id,
        text: str | None = None,
        *,
        metadata: Metadata | None = None,
        embedding: FloatArray | None = None,
    ) -> Run:
        """Rewrite a memory's text or metadata; the old ones are journalled and come back by ``undo``.

        Args:
            memory_id: The memory.
            text: New text; None keeps it.
            metadata: The new metadata, whole; None keeps it.
            embedding: Shape (d,), of the new text; default: the bank's embedder computes it.

        Raises:
            MemoryNotFoundError: No such memory in this bank.
            InvalidMemoryError: The text or metadata is malformed.
            BankLockedError: A dreamer is at work.
        """
        record = self._require([memory_id])[memory_id]
        revision = Revision.of(record, text, metadata, embedding, embed=self._embed, where=self.content.where)
        return self._writer.update(memory_id, revision)

    def delete(self, ids: Sequence[Id]) -> Run:
        """Delete memories softly: they stay in the collection and are not retrieved until restored.

        Raises:
            MemoryNotFoundError: An id is not in this bank; nothing was deleted then.
        """
        return self.state.delete(list(self._require(intake.as_ids(ids))))

    # ---- weights

    def set_weights(self, weights: Mapping[Id, float]) -> Run:
        """Give memories weights by hand, as one run: ceilings, above which no sweep lets them recover.

        Raises:
            MemoryNotFoundError: An id is not in this bank.
            InvalidMemoryError: A weight outside [0, 1].
            BankLockedError: A dreamer is at work.
        """
        self._require(intake.as_weights(weights))
        return self.state.set_weights(weights)

    def restore(self, ids: Sequence[Id]) -> Run:
        """Give memories their full weight back, w = 1, s = 0, not deleted, and trust them from now on.

        No sweep or repair lowers them while text and metadata stay as they are; see ``distrust``.

        Raises:
            MemoryNotFoundError: An id is not in this bank.
            BankLockedError: A dreamer is at work.
        """
        return self.state.restore({i: one.digest for i, one in self._require(intake.as_ids(ids)).items()})

    def trusted(self) -> list[Id]:
        """Return the memories that somebody restored and that are as they were then, sorted."""
        return sorted(read_decisions(self.content, self.state).trusted)

    def distrust(self, ids: Sequence[Id]) -> Run:
        """Let sweeps judge restored memories again, whose weights stay until then; raises as ``restore``."""
        return self.state.distrust(list(self._require(intake.as_ids(ids))))

    def sweep(
        self,
        config: ForgettingConfig | None = None,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> SweepReport:
        """Run one DREAM forgetting sweep: one transaction, one ``undo``.

        Raises:
            BankLockedError: Another dreamer is at work (a dry run does not care).
            ConfigError: Preset ``hardened``, and the bank has no embedder, or not the one it was filled with.
        """
        config = ForgettingConfig.preset() if config is None else config
        return sweep_bank(self, config, dry_run=dry_run, progress=progress)

    async def asweep(self, config: ForgettingConfig | None = None, **options: Any) -> SweepReport:
        """``sweep`` in a thread, without blocking the event loop; options as for ``sweep``."""
        return await asyncio.to_thread(self.sweep, config, **options)

    def explain(self, memory_id: Id, config: ForgettingConfig | None = None) -> Explanation:
        """Tell why a memory is, or is not, suspect to each term, and what changed it; changes nothing.

        Raises:
            MemoryNotFoundError: No such memory in this bank; and what ``sweep`` raises.
        """
        return explain_memory(self, memory_id, ForgettingConfig.preset() if config is None else config)

    async def aexplain(self, memory_id: Id, config: ForgettingConfig | None = None) -> Explanation:
        """``explain`` in a thread."""
        return await asyncio.to_thread(self.explain, memory_id, config)

    def feedback(
        self,
        ids: Sequence[Id],
        scores: Sequence[float],
        success: float,
        config: ConsolidationConfig | None = None,
    ) -> Run:
        """Consolidate the memories that were retrieved for a task (source section 3.3, appendix G).

        Args:
            ids: The retrieved memories.
            scores: Their retrieval scores; credit is shared by the softmax over them.
            success: How well the task went, in [0, 1].
            config: Momentum and temperature.

        Raises:
            ConfigError: success outside [0, 1], or as many scores as ids are not given.
            MemoryNotFoundError: An id is not in this bank.
        """
        self._require(ids := intake.as_ids(ids))
        return give_feedback(self.state, ids, scores, success, config)

    # ---- journal

    def runs(self, limit: int | None = None) -> list[Run]:
        """Return the journal, newest first."""
        intake.check_span("limit", 0 if limit is None else limit, 0)
        return self.state.runs(limit)

    def undo(self, run_id: str) -> Run:
        """Undo a run of any kind; undoing the undo is a redo.

        Raises:
            JournalError: Unknown run, not applied, built upon by later runs, or memories left the tenant.
            BankLockedError: A dreamer is at work.
        """
        if not isinstance(run_id, str):
            raise ConfigError(f"undo takes a run's id, not {type(run_id).__name__}; a dry run has no id")
        run = self._writer.undo(run_id)
        apply_quarantine(self.content, self.state)
        return run

    # ---- inner

    def _memories(self, records: Sequence[Record]) -> list[Memory]:
        states = self.state.get([record.id for record in records])
        return [
            Memory(id=record.id, text=record.text, metadata=record.metadata, state=state)
            for record, state in zip(records, states, strict=True)
        ]

    def _require(self, ids: Sequence[Id]) -> dict[Id, Record]:
        records = self.content.get(list(dict.fromkeys(intake.as_ids(ids))))
        if missing := [memory_id for memory_id in ids if memory_id not in records]:
            raise MemoryNotFoundError(
                f"{len(missing)} of {len(ids)} ids are not in bank {self.content.name!r}, "
                f"such as {missing[0]!r}; nothing was changed"
            )
        return records

    def _embed(self, texts: list[str]) -> FloatArray:
        if self.embedder is None:
            raise ConfigError("this bank has no embedder: open it with embedder=..., or pass embeddings")
        return intake.embedded_once(self.embedder, texts)
