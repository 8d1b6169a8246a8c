"""Spans and metrics as OpenTelemetry's own SDK receives them, of real work on real banks."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from shared_core import (
    AssociativeRetriever,
    BankRetriever,
    ForgettingConfig,
    MemoryBank,
    disable_telemetry,
    enable_telemetry,
)
from shared_core.agents import DreamConfig, DreamCycle
from shared_core.bank.conversation import ConversationMemory
from shared_core.embedding import WordLlamaEmbedder
from shared_core.errors import ConfigError, JournalError
from shared_core.fleet.dreamer import BankDreamer
from shared_core.scheduling import DreamScheduler, SchedulerConfig
from shared_core.telemetry import telemetry_enabled, traced
from shared_core.telemetry.metrics import METRICS
from shared_core.telemetry.seam import Told
from tests.agents.nut_story import pages
from tests.conftest import OpenBank, fill
from tests.fleet.parts import config as fleet_config
from tests.fleet.parts import made_banks

SAID = "the vault opens with 4711"


class Watched:
    """What an application's SDK was told."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader])

    def spans(self, name: str | None = None) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if name in (None, span.name)]

    def span(self, name: str) -> ReadableSpan:
        (found,) = self.spans(name)
        return found

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        if data is None:
            return []
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def all_told(self) -> str:
        metrics = [str(self.points(metric.name)) for metric in METRICS]
        spans = [
            f"{span.name} {dict(span.attributes or {})} {span.status.description} {span.events}"
            for span in self.spans()
        ]
        return "\n".join([*spans, *metrics])


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    enable_telemetry(tracer_provider=watched.tracers, meter_provider=watched.meters)
    yield watched
    disable_telemetry()
    watched.meters.shutdown()


@pytest.fixture
def talk(open_bank: OpenBank, embedder: Any) -> MemoryBank:
    bank = open_bank(embedder=embedder)
    ConversationMemory(bank).add_pages(pages())
    return bank


def test_a_sweep(bank: MemoryBank, watched: Watched, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=80)
    report = bank.sweep(ForgettingConfig.preset("paper"))
    told = dict(watched.span("dream.sweep").attributes or {})
    assert told["dream.collection"] == bank.content.name
    assert told["dream.run_id"] == report.run_id
    assert (told["dream.memories"], told["dream.suspects"]) == (80, report.lowered)
    (weights,) = watched.points("dream.memory.weight")
    assert weights.count == 80
    assert weights.sum == pytest.approx(bank.weights(report.ids).sum())
    forgotten = sum(weights.bucket_counts[:2])
    assert forgotten == np.count_nonzero(bank.weights(report.ids) <= 0.1)
    (suspects,) = watched.points("dream.sweep.suspects")
    assert suspects.value == report.lowered > 0
    (seconds,) = watched.points("dream.sweep.duration")
    assert seconds.sum == pytest.approx(report.seconds, abs=0.5)
    bank.sweep(ForgettingConfig.preset("paper"), dry_run=True)
    assert watched.points("dream.memory.weight")[0].count == 80
    assert dict(watched.spans("dream.sweep")[1].attributes or {})["dream.dry_run"] is True


def test_searches(bank: MemoryBank, embedder: Any, watched: Watched) -> None:
    bank.add(
        ["a cat", "a dog", "a cow"],
        ids=["a", "b", "c"],
        embeddings=np.asarray(embedder.embed_documents(["a cat", "a dog", "a cow"])),
    )
    bank.set_weights({"b": 0.5})
    retriever = BankRetriever(bank, embedder=embedder)
    hits = retriever.search("dog", k=2, search_type="hybrid")
    outer, inner = watched.span("dream.search"), watched.span("dream.search_by_vector")
    assert inner.parent is not None
    assert inner.parent.span_id == outer.context.span_id
    told = dict(outer.attributes or {})
    assert (told["dream.k"], told["dream.hits"], told["dream.search_type"]) == (2, len(hits), "hybrid")
    assert told["dream.weight.min"] == 0.5
    by_how = {point.attributes["dream.how"]: point for point in watched.points("dream.search.duration")}
    assert by_how["search"].count == by_how["search_by_vector"].count == 1
    assert by_how["search"].sum >= by_how["search_by_vector"].sum
    AssociativeRetriever(bank, embedder=embedder).search("dog")
    assert dict(watched.spans("dream.search")[1].attributes or {})["dream.search_type"] == "associative"
    with pytest.raises(ConfigError):
        retriever.search(SAID, nonsense=1)
    failed = watched.spans("dream.search")[-1]
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.status.description == "ConfigError"


def test_a_cycle_with_its_rounds_and_repairs_and_an_undo(talk: MemoryBank, watched: Watched) -> None:
    report = DreamCycle(talk, config=DreamConfig(rounds=2, probes=24, repairs=3)).run()
    cycle = watched.span("dream.cycle")
    rounds = watched.spans("dream.round")
    repairs = watched.spans("dream.repair")
    assert [dict(span.attributes or {})["dream.round"] for span in rounds] == list(range(len(rounds)))
    assert len(rounds) == len(report.rounds)
    assert all(span.parent is not None and span.parent.span_id == cycle.context.span_id for span in rounds)
    inside = {span.context.span_id for span in rounds}
    assert all(span.parent is not None and span.parent.span_id in inside for span in repairs)
    counted = {
        (point.attributes["dream.operation"], point.attributes["dream.outcome"]): point.value
        for point in watched.points("dream.repairs")
    }
    kept = {key: value for key, value in counted.items() if key[1] == "kept"}
    assert sum(kept.values()) == len(report.repairs) > 0
    assert sum(counted.values()) == len(repairs)
    talk.undo(str(report.run_id))
    undone = dict(watched.span("dream.undo").attributes or {})
    assert (undone["dream.kind"], undone["dream.undone"]) == ("cycle", report.run_id)
    (point,) = watched.points("dream.undone")
    assert (point.value, point.attributes["dream.kind"]) == (1, "cycle")
    with pytest.raises(JournalError):
        talk.undo(str(report.run_id))
    assert watched.spans("dream.undo")[-1].status.status_code is StatusCode.ERROR


def test_the_background_worker_of_a_node(open_bank: OpenBank, embedder: Any, watched: Watched) -> None:
    bank = open_bank(embedder=embedder)
    bank.add([f"note {number} about tea" for number in range(12)])
    with DreamScheduler(bank, config=SchedulerConfig(kind="both", debounce=0.0)) as scheduler:
        scheduler.request()
        assert scheduler.flush(60)
    assert len(watched.spans("dream.sweep")) == len(watched.spans("dream.cycle")) == 1


def test_a_job_of_a_fleet(tmp_path: Any, watched: Watched) -> None:
    (job,) = made_banks(tmp_path, 1, WordLlamaEmbedder())
    tried = BankDreamer(fleet_config()).dream(job)
    span = watched.span("dream.fleet.job")
    told = dict(span.attributes or {})
    assert told["dream.outcome"] == tried.status == "done"
    assert told["dream.run_id"] == tried.run_id
    cycle = watched.span("dream.cycle")
    assert cycle.parent is not None
    assert cycle.parent.span_id == span.context.span_id


def test_no_text_no_query_and_no_id_of_a_memory_is_told(
    open_bank: OpenBank, embedder: Any, watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        bank = open_bank(embedder=embedder, where={"user": "ada-lovelace"})
        ids = [f"id-of-a-memory-{number}" for number in range(12)]
        bank.add([f"{SAID} {number}" for number in range(12)], ids=ids)
        BankRetriever(bank).search(SAID, where_document={"$contains": SAID})
        bank.sweep()
        report = DreamCycle(bank, config=DreamConfig(rounds=1)).run()
        bank.undo(str(report.run_id))
        bank.undo(bank.update(ids[0], f"{SAID} new").run_id)
    assert len(watched.spans()) >= 6
    for told in (watched.all_told(), caplog.text):
        for hidden in (SAID, "vault", "id-of-a-memory", "ada-lovelace"):
            assert hidden not in told
    assert "dream.sweep: collection=" in caplog.text


def test_off_unless_asked_for(bank: MemoryBank, rng: np.random.Generator) -> None:
    assert not telemetry_enabled()
    fill(bank, rng, rows=10)
    watched = Watched()
    bank.sweep(ForgettingConfig.preset("paper"))
    enable_telemetry(tracer_provider=watched.tracers, meter_provider=watched.meters)
    disable_telemetry()
    bank.sweep(ForgettingConfig.preset("paper"))
    assert watched.spans() == []


def test_what_fails_in_telling_does_not_fail_the_work(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    def tell(_seconds: float, _result: int, _value: int) -> Told:
        raise RuntimeError("no such thing")

    @traced("dream.test", tell)
    def double(value: int) -> int:
        return 2 * value

    assert double(4) == 8
    assert "telemetry of dream.test failed" in caplog.text
    assert watched.span("dream.test").status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(("value", "expected"), [("1", "True"), ("0", "False"), (None, "False")])
def test_the_environment_turns_it_on(value: str | None, expected: str) -> None:
    environment = {name: told for name, told in os.environ.items() if name != "DREAM_TELEMETRY"}
    given = environment if value is None else {**environment, "DREAM_TELEMETRY": value}
    code = "from shared_core.telemetry import telemetry_enabled; print(telemetry_enabled())"
    done = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


def test_without_the_package_the_extra_is_named() -> None:
    code = (
        "import sys\nsys.modules['opentelemetry'] = None\nfrom shared_core import enable_telemetry\n"
        "from shared_core.errors import MissingExtraError\n"
        "try:\n    enable_telemetry()\nexcept MissingExtraError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "dream-memory[otel]" in done.stdout


@pytest.mark.parametrize("package", ["shared_core", "langchain_dream", "llamaindex_dream"])
def test_nothing_is_printed_where_no_logging_is_set_up(package: str) -> None:
    importlib.import_module(package)
    handlers = logging.getLogger(package).handlers
    assert [handler for handler in handlers if isinstance(handler, logging.NullHandler)] != []
