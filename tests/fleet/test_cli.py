"""``dream fleet`` as a user runs it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from shared_core import MemoryBank
from shared_core.embedding import WordLlamaEmbedder
from tests.cli.test_cli import dream, dream_json
from tests.fleet.parts import PAGES, fill

QUICK = ("--workers", "0", "--embedder", "wordllama", "--rounds", "1", "--partitions", "1", "--probes", "8")


@pytest.fixture(scope="module")
def words() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


def listed_in(folder: Path, words: Any) -> Path:
    """Return a file of two banks, and of one that is not there."""
    for name in ("one", "two"):
        fill(folder / name, "talks", words)
    jobs = [{"path": str(folder / name), "collection": "talks"} for name in ("one", "two", "gone")]
    (folder / "jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in jobs))
    return folder / "jobs.jsonl"


@pytest.fixture
def listed(tmp_path: Path, words: Any) -> Path:
    return listed_in(tmp_path, words)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory, words: Any) -> Path:
    return listed_in(tmp_path_factory.mktemp("untouched"), words)


def test_a_file_of_banks(listed: Path, words: Any) -> None:
    out = listed.with_name("tonight.jsonl")
    done = dream("fleet", listed, *QUICK, "--retries", "0", "--out", out)
    assert done.returncode == 2
    assert done.stderr == "dream: 1 of 3 banks did not dream; their errors are in the report\n"
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"2 done, 1 failed; \d+ repairs in [\d.]+ s by one process", lines[0])
    assert " ".join(lines[1].split()) == (
        "bank tenant status tries memories repairs F1 before after seconds error"
    )
    assert [line.split()[0] for line in lines[2:]] == ["gone/talks", "one/talks", "two/talks"]
    assert "failed" in lines[2]
    assert "BankNotFoundError" in lines[2]

    fill(listed.with_name("gone"), "talks", words)
    again = dream_json("fleet", listed, *QUICK, "--out", out)
    assert again["counts"] == {"done": 1, "skipped": 2, "failed": 0, "locked": 0, "left": 0}
    assert [outcome["status"] for outcome in again["outcomes"]] == ["skipped", "skipped", "done"]
    undone = dream("undo", again["outcomes"][2]["run_id"], listed.with_name("gone"), "--collection", "talks")
    assert undone.returncode == 0, undone.stderr
    other = dream("fleet", listed, *QUICK, "--seed", "3", "--out", out)
    assert (other.returncode, other.stdout) == (2, "")
    assert "other options" in other.stderr


def test_all_collections_and_all_tenants(tmp_path: Path, words: Any) -> None:
    place = tmp_path / "chroma"
    for tenant in ("ada", "\x1b[31mbob"):
        fill(place, "talks", words, tenant=tenant)
    fill(place, "other", words)
    whole = dream_json("fleet", place, "--all-collections", *QUICK)
    assert [(one["collection"], one["memories"]) for one in whole["outcomes"]] == [
        ("other", PAGES),
        ("talks", 12),
    ]
    done = dream("fleet", place, "--collection", "talks", "--tenant-key", "user", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "chroma/talks  user=ada" in done.stdout
    assert "user=?[31mbob" in done.stdout
    assert "\x1b" not in done.stdout
    every = dream("fleet", place, "--all-collections", "--tenant-key", "user", *QUICK)
    assert every.returncode == 0
    assert "without a plain 'user', and in no bank's dream: 7 memories" in every.stderr
    assert every.stdout.startswith("2 done; ")


def test_tenants_of_a_server_with_postgresql(
    chroma_server: str, postgres_url: str, tmp_path: Path, words: Any
) -> None:
    name, out = f"fleet-{uuid.uuid4().hex[:8]}", tmp_path / "out.jsonl"
    for tenant in ("ada", "bob"):
        fill(chroma_server, name, words, tenant=tenant, state=postgres_url)
    command = ("fleet", chroma_server, "--collection", name, "--tenant-key", "user", *QUICK, "--out", out)
    refused = dream(*command)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"dream: '{name}' at {chroma_server} is on a Chroma server")
    assert "name a state (--state" in refused.stderr
    assert not out.exists()
    told = dream_json(*command, "--state", postgres_url)
    assert [(one["where"], one["status"], one["memories"]) for one in told["outcomes"]] == [
        ({"user": "ada"}, "done", PAGES),
        ({"user": "bob"}, "done", PAGES),
    ]
    assert "postgresql" not in json.dumps(told)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["{jobs}", "--all-collections"], "are for a Chroma; a file of jobs names them"),
        (["{folder}/nothing"], "is no file of jobs, no directory and no URL"),
        (["{folder}/one"], "a Chroma needs --all-collections, or --collection NAME with --tenant-key"),
        (["{folder}/one", "-c", "talks"], "dreams with `dream cycle`"),
        (["{folder}/one", "-c", "talks", "--all-collections", "--tenant-key", "x"], "a Chroma needs"),
        (["{folder}", "--all-collections"], "is not the directory of a Chroma database"),
        (["{folder}/one", "-c", "talks", "--tenant-key", "x"], "there is no bank to dream"),
        (["{jobs}", "--rounds", "0"], "rounds=0 must be a whole number"),
        (["{jobs}", "--embedder", "nowhere"], "--embedder 'nowhere' is neither"),
        (["{jobs}", "--workers", "-1"], "Invalid value for '--workers'"),
        (["{jobs}", "--lock-wait", "inf"], "Invalid value for '--lock-wait'"),
        (["{jobs}", "--out", "{folder}"], "cannot write the journal"),
        (["{jobs}", "--out", "{jobs}"], "name another file"),
    ],
)
def test_bad_input_is_one_clear_line(untouched: Path, arguments: list[str], expected: str) -> None:
    before = untouched.read_bytes()
    given = [word.format(jobs=untouched, folder=untouched.parent) for word in arguments]
    refused = dream("fleet", *(given if "--workers" in given else [*given, "--workers", "0"]))
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert expected in refused.stderr
    assert refused.stderr.startswith("dream: ")
    assert untouched.read_bytes() == before
    with MemoryBank.open(untouched.with_name("one"), "talks") as bank:
        assert [run.kind for run in bank.runs()] == ["add"]


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_ends_after_the_running_banks(tmp_path: Path, words: Any) -> None:
    """The signal goes to the whole group, as a terminal sends it: Ray's processes and workers too."""
    pytest.importorskip("ray", reason="RAY IS MISSING: install the extra `ray` to test the fleet")
    places = [tmp_path / f"bank{number}" for number in range(40)]
    for place in places:
        fill(place, "talks", words)
    jobs, out = tmp_path / "jobs.jsonl", tmp_path / "out.jsonl"
    jobs.write_text(
        "".join(json.dumps({"path": str(place), "collection": "talks"}) + "\n" for place in places)
    )
    command = [str(Path(sys.executable).with_name("dream")), "fleet", str(jobs), "--out", str(out), "--json"]
    process = subprocess.Popen(
        [*command, "--workers", "2", "--embedder", "wordllama"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and not (out.exists() and out.read_bytes().count(b"\n") > 2):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert "no further bank begins" in stderr
    counts = json.loads(stdout)["counts"]
    assert counts["done"] >= 2
    assert (counts["failed"], counts["locked"]) == (0, 0)
    assert counts["left"] == 40 - counts["done"] > 0
    assert out.read_bytes().count(b"\n") == 1 + counts["done"]
    time.sleep(1.0)
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
