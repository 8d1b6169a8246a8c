"""Small real banks, and embedders for worker processes that go wrong in a way a test asks for."""

from __future__ import annotations

import os
import signal
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from shared_core import MemoryBank
from shared_core.agents import DreamConfig
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.embedding import WordLlamaEmbedder
from shared_core.fleet import FleetConfig, FleetJob

START = datetime(2024, 5, 6, 9, tzinfo=timezone.utc)
TALK = {
    "monday": [
        "Nora keeps the spare key of the boat in a jar of buttons.",
        "The heron came back to the pond.",
    ],
    "thursday": ["Nora sold the boat to her cousin Emil.", "Emil paints the hull dark green in April."],
    "sunday": ["Emil lost the key on the ferry and Nora laughed.", "We ate plums on the jetty until dusk."],
}
PAGES = sum(map(len, TALK.values()))
SMALL = DreamConfig(rounds=1, partitions=1, probes=8, repairs=4)
KILL = "DREAM_TEST_KILL"
"""Names a folder: while it holds a file kill-*, a worker takes one away and kills itself."""


def config(**options: Any) -> FleetConfig:
    return FleetConfig(**{"dream": SMALL, "embedder": WordLlamaEmbedder, "backoff": 0.05, **options})


def fill(
    place: str | Path, name: str, embedder: Any, *, tenant: str | None = None, state: str | None = None
) -> None:
    where = None if tenant is None else {"user": tenant}
    with MemoryBank.open(place, name, create=True, embedder=embedder, state_url=state) as bank:
        pages = [
            Page(
                text=text,
                session=f"{session}{tenant or ''}",
                speaker="Nora",
                time=START + timedelta(days=3 * day, minutes=minute),
                id=f"{tenant or 'all'}-{session}-{minute}",
            )
            for day, (session, texts) in enumerate(TALK.items())
            for minute, text in enumerate(texts)
        ]
        if where is None:
            ConversationMemory(bank).add_pages(pages)
        else:
            bank.add(
                [page.stored_text() for page in pages],
                ids=[page.id or "" for page in pages],
                metadatas=[{**page.stored_metadata(), **where} for page in pages],
            )


def made_banks(folder: Path, count: int, embedder: Any) -> list[FleetJob]:
    """Return the jobs of ``count`` embedded banks, each in a directory of its own."""
    jobs = []
    for number in range(count):
        fill(folder / f"bank{number}", "talks", embedder)
        jobs.append(FleetJob(location=str(folder / f"bank{number}"), collection="talks"))
    return jobs


class Deadly(WordLlamaEmbedder):
    """Notes that it was made, and kills its process in mid-dream when ``KILL`` orders it."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = 0
        with (Path(os.environ[KILL]) / "made").open("a") as file:
            file.write(f"{os.getpid()}\n")

    def embed_queries(self, texts: list[str]) -> Any:
        self._calls += 1
        for order in sorted(Path(os.environ[KILL]).glob("kill-*")):
            # in the second batch of questions, after the groundwork was written
            if self._calls >= 2:
                order.unlink(missing_ok=True)
                os.kill(os.getpid(), signal.SIGKILL)
        return super().embed_queries(texts)


def broken() -> WordLlamaEmbedder:
    raise OSError("the model's file is gone")
