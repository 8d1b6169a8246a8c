"""The work itself: one bank after the other is opened, dreams, and is closed again; one embedder for all.

Runs in a worker process, or in the caller's. Nothing is raised for a bank: its outcome is plain data.
"""

from __future__ import annotations

import time
from dataclasses import replace

from shared_core.agents import DreamCycle
from shared_core.bank import MemoryBank
from shared_core.bank.chroma_client import opened_client
from shared_core.errors import BankLockedError, ConfigError, DimensionMismatchError, MissingExtraError
from shared_core.fleet.config import FleetConfig
from shared_core.fleet.jobs import FleetJob
from shared_core.fleet.outcome import Tried
from shared_core.scheduling.status import described
from shared_core.telemetry import told, traced
from shared_core.types import Embedder

SET_UP_WRONGLY = (ConfigError, DimensionMismatchError, MissingExtraError)


class BankDreamer:
    """Lets banks dream in this process."""

    def __init__(self, config: FleetConfig) -> None:
        self._config = config
        self._embedder: Embedder | None = None

    def load(self) -> Embedder:
        """Return the embedder, made at the first call.

        Raises:
            DreamError: What making it raises.
        """
        if self._embedder is None:
            self._embedder = self._config.embedder()
        return self._embedder

    @traced("dream.fleet.job", told.fleet_job, logged=True)
    def dream(self, job: FleetJob) -> Tried:
        """Let one bank dream, to its end."""
        began = time.perf_counter()
        try:
            tried = self._dream(job)
        except BankLockedError as error:
            tried = Tried(status="locked", error=described(error))
        except Exception as error:  # one bank's fault, whatever it is, must not end the others' dreams
            final = isinstance(error, SET_UP_WRONGLY)
            tried = Tried(status="failed", error=described(error), is_final=final)
        return replace(tried, seconds=time.perf_counter() - began)

    def _dream(self, job: FleetJob) -> Tried:
        # closed after each bank: an index that stays open does not learn what another worker writes
        with (
            opened_client(job.location) as client,
            MemoryBank.open(
                client, job.collection, state_url=job.state, where=job.where, embedder=self.load()
            ) as bank,
        ):
            cycle = DreamCycle(bank, config=self._config.dream, graph_keys=self._config.graph_keys)
            report = cycle.run()
        return Tried(
            status="done",
            run_id=report.run_id,
            memories=report.memories,
            repairs=len(report.repairs),
            f1_before=report.f1_before,
            f1_after=report.f1_after,
            stopped_by=report.stopped_by,
        )
