"""A fleet in this process, without Ray: outcomes, retries, locks, lanes, journal, resuming, stopping."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared_core import MemoryBank
from shared_core.agents import DreamConfig
from shared_core.embedding import WordLlamaEmbedder
from shared_core.errors import ConfigError, DreamError, MissingExtraError, StateError
from shared_core.fleet import (
    DreamFleet,
    FleetJob,
    jobs_of_collections,
    jobs_of_tenants,
    read_jobs,
)
from shared_core.fleet.dreamer import BankDreamer
from shared_core.fleet.outcome import Tried
from shared_core.fleet.queue import JobQueue
from tests.fleet.parts import PAGES, broken, config, fill, made_banks


@pytest.fixture(scope="module")
def words() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


def fleet(jobs: list[FleetJob], words: Any, **options: Any) -> DreamFleet:
    settings = {name: options.pop(name) for name in ("backoff", "lock_wait", "dream") if name in options}
    return DreamFleet(jobs, config(embedder=lambda: words, **settings), workers=0, **options)


def cycles(job: FleetJob) -> list[str]:
    with MemoryBank.open(job.location, job.collection, where=job.where, state_url=job.state) as bank:
        return [run.run_id for run in bank.runs() if run.kind == "cycle"]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()][1:]


def test_every_bank_dreams_once_and_a_second_run_has_nothing_left(tmp_path: Path, words: Any) -> None:
    jobs = made_banks(tmp_path, 3, words)
    told: list[tuple[str, int, int]] = []
    report = fleet(jobs, words, out=tmp_path / "fleet.jsonl").run(progress=lambda *step: told.append(step))
    assert report.counts == {"done": 3, "skipped": 0, "failed": 0, "locked": 0, "left": 0}
    assert told == [("banks", done, 3) for done in range(4)]
    for job, outcome in zip(jobs, report.outcomes, strict=True):
        assert (outcome.id, outcome.location, outcome.attempts, outcome.error) == (
            job.id,
            job.location,
            1,
            None,
        )
        assert outcome.memories == PAGES
        assert outcome.repairs > 0
        assert 0 <= outcome.f1_before <= outcome.f1_after <= 1  # type: ignore[operator]
        assert cycles(job) == [outcome.run_id]
    assert report.repairs == sum(outcome.repairs for outcome in report.outcomes)
    assert lines(tmp_path / "fleet.jsonl") == [outcome.to_dict() for outcome in report.outcomes]
    json.dumps(report.to_dict(), allow_nan=False)

    fill(tmp_path / "late", "talks", words)
    late = FleetJob(location=str(tmp_path / "late"), collection="talks")
    again = fleet([late, *jobs], words, out=tmp_path / "fleet.jsonl").run()
    assert again.counts == {"done": 1, "skipped": 3, "failed": 0, "locked": 0, "left": 0}
    assert [outcome.run_id for outcome in again.outcomes[1:]] == [one.run_id for one in report.outcomes]
    assert all(len(cycles(job)) == 1 for job in [late, *jobs])
    with MemoryBank.open(jobs[0].location, "talks") as bank:
        bank.undo(report.outcomes[0].run_id or "")


def test_one_broken_bank_does_not_end_the_others(
    tmp_path: Path, words: Any, rng: np.random.Generator
) -> None:
    good = made_banks(tmp_path, 1, words)
    with MemoryBank.open(tmp_path / "narrow", "talks", create=True) as bank:
        bank.add(["short vectors"], embeddings=rng.standard_normal((1, 16)).astype(np.float32))
    fill(tmp_path / "ruined", "talks", words)
    (tmp_path / "ruined" / "dream_state.sqlite3").write_bytes(b"no database" * 100)
    wrong = [
        FleetJob(location=str(tmp_path / name), collection="talks") for name in ("narrow", "ruined", "none")
    ]
    report = fleet([*wrong, *good], words, retries=1, out=tmp_path / "fleet.jsonl").run()
    assert [outcome.status for outcome in report.outcomes] == ["failed", "failed", "failed", "done"]
    assert [outcome.attempts for outcome in report.outcomes] == [1, 2, 2, 1]
    assert "embeddings of dimension 256 do not fit" in (report.outcomes[0].error or "")
    assert "StateError" in (report.outcomes[1].error or "")
    assert "is not the directory of a Chroma database" in (report.outcomes[2].error or "")
    assert report.outcomes[0].f1_before is None

    fill(tmp_path / "none", "talks", words)  # mended: only what failed is tried again
    again = fleet([*wrong, *good], words, retries=0, out=tmp_path / "fleet.jsonl").run()
    assert [outcome.status for outcome in again.outcomes] == ["failed", "failed", "done", "skipped"]


def test_a_fault_that_passes_is_retried(tmp_path: Path, words: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    [job] = made_banks(tmp_path, 1, words)
    real, faults = BankDreamer._dream, [StateError("the database is away"), RuntimeError("odd")]

    def shaky(self: BankDreamer, asked: FleetJob) -> Tried:
        if faults:
            raise faults.pop(0)
        return real(self, asked)

    monkeypatch.setattr(BankDreamer, "_dream", shaky)
    report = fleet([job], words, retries=2).run()
    assert (report.outcomes[0].status, report.outcomes[0].attempts) == ("done", 3)
    faults += [RuntimeError("odd")] * 3
    report = fleet([job], words, retries=2).run()
    assert (report.outcomes[0].status, report.outcomes[0].attempts) == ("failed", 3)
    assert report.outcomes[0].error == "RuntimeError: odd"


def test_a_held_bank_is_tried_after_the_others_and_reported_at_last(tmp_path: Path, words: Any) -> None:
    jobs = made_banks(tmp_path, 2, words)
    with MemoryBank.open(jobs[0].location, "talks") as held, held.state.lock("sweep"):
        report = fleet(jobs, words, lock_wait=0.3, retries=0, out=tmp_path / "fleet.jsonl").run()
    assert [outcome.status for outcome in report.outcomes] == ["locked", "done"]
    assert "another process is at work on this bank: 'sweep'" in (report.outcomes[0].error or "")
    assert report.outcomes[0].attempts == 0
    assert [line["status"] for line in lines(tmp_path / "fleet.jsonl")] == ["done", "locked"]

    def let_go() -> None:
        time.sleep(0.3)
        release.set()

    release = threading.Event()
    threading.Thread(target=let_go).start()
    with MemoryBank.open(jobs[0].location, "talks") as held:
        lock = held.state.lock("sweep")
        lock.__enter__()
        threading.Thread(target=lambda: (release.wait(), lock.__exit__(None, None, None))).start()
        report = fleet(jobs, words, lock_wait=20, retries=0, out=tmp_path / "fleet.jsonl").run()
    assert [outcome.status for outcome in report.outcomes] == ["done", "skipped"]


def test_stopping_lets_the_running_bank_dream_to_its_end(tmp_path: Path, words: Any) -> None:
    jobs = made_banks(tmp_path, 3, words)
    finished: list[int] = []
    report = fleet(jobs, words, out=tmp_path / "fleet.jsonl").run(
        progress=lambda _, done, __: finished.append(done), stop=lambda: bool(finished and finished[-1])
    )
    assert report.counts == {"done": 1, "skipped": 0, "failed": 0, "locked": 0, "left": 2}
    assert report.outcomes[0].stopped_by != "cancelled"
    again = fleet(jobs, words, out=tmp_path / "fleet.jsonl").run()
    assert again.counts == {"done": 2, "skipped": 1, "failed": 0, "locked": 0, "left": 0}
    assert all(len(cycles(job)) == 1 for job in jobs)


def test_a_killed_fleet_resumes_with_what_is_left(tmp_path: Path, words: Any) -> None:
    jobs = made_banks(tmp_path, 4, words)
    journal = tmp_path / "fleet.jsonl"
    code = f"""
import os, signal
from shared_core.agents import cycle
from shared_core.fleet import DreamFleet, FleetJob
from tests.fleet.parts import config
real = cycle.write_repair
def deadly(bank, *rest):
    made = real(bank, *rest)
    if str(bank.content.database_file()).startswith({jobs[2].location!r}):
        os.kill(os.getpid(), signal.SIGKILL)
    return made
cycle.write_repair = deadly
jobs = [FleetJob(location=place, collection="talks") for place in {[job.location for job in jobs]!r}]
DreamFleet(jobs, config(), workers=0, out={str(journal)!r}).run()
"""
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert [line["status"] for line in lines(journal)] == ["done", "done"]
    with journal.open("ab") as file:
        file.write(b'{"id": "torn')
    report = fleet(jobs, words, out=journal).run()
    assert report.counts == {"done": 2, "skipped": 2, "failed": 0, "locked": 0, "left": 0}
    assert [len(cycles(job)) for job in jobs] == [1, 1, 2, 1]
    assert len(lines(journal)) == 4
    with MemoryBank.open(jobs[2].location, "talks") as bank:
        for run in cycles(jobs[2]):
            bank.undo(run)
        assert bank.status().derived == 0


def test_tenants_of_one_collection(tmp_path: Path, words: Any) -> None:
    for tenant in ("ada", "bob"):
        fill(tmp_path / "chroma", "talks", words, tenant=tenant)
    with MemoryBank.open(tmp_path / "chroma", "talks", embedder=words) as bank:
        bank.add(["nobody's"], ids=["stray"])
    jobs, without = jobs_of_tenants(str(tmp_path / "chroma"), "talks", "user")
    assert ([job.where for job in jobs], without) == ([{"user": "ada"}, {"user": "bob"}], 1)
    report = fleet(jobs, words).run()
    assert [outcome.status for outcome in report.outcomes] == ["done", "done"]
    assert [outcome.memories for outcome in report.outcomes] == [PAGES, PAGES]
    assert cycles(jobs[0]) == [report.outcomes[0].run_id]
    assert len({job.id for job in jobs}) == 2


def test_all_collections_of_a_server(chroma_server: str, tmp_path: Path, words: Any) -> None:
    state = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    names = [f"fleet-{tmp_path.name}-{number}" for number in range(2)]
    for name in names:
        fill(chroma_server, name, words, state=state)
    jobs = [job for job in jobs_of_collections(chroma_server, state=state) if job.collection in names]
    assert [(job.collection, job.lane) for job in jobs] == [(name, None) for name in names]
    report = fleet(jobs, words).run()
    assert report.counts["done"] == 2, report.outcomes
    assert [cycles(job) for job in jobs] == [[outcome.run_id] for outcome in report.outcomes]


def test_many_banks_leave_no_open_files(tmp_path: Path, words: Any) -> None:
    jobs = made_banks(tmp_path, 6, words)
    fleet(jobs[:3], words).run()
    before = open_files()
    fleet(jobs[3:], words).run()
    assert open_files() <= before + 2


def open_files() -> int:
    kept = Path("/proc/self/fd")
    return len(list(kept.iterdir())) if kept.is_dir() else 0


def test_jobs_are_read_from_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "jobs.jsonl"
    path.write_text(
        '{"path": "a", "collection": "one"}\n\n'
        '{"url": "http://localhost:9", "collection": "two", "state": "postgresql://me:pw@h/d", '
        '"where": {"u": 1}}\n'
    )
    first, second = read_jobs(path, state="sqlite:////s")
    assert first == FleetJob(location=str(tmp_path / "a"), collection="one", state="sqlite:////s")
    assert (second.state, second.where, second.lane) == ("postgresql://me:pw@h/d", {"u": 1}, None)
    assert "pw" not in repr(second) + json.dumps(second.to_dict())
    changed = FleetJob(**{**vars_of(second), "state": "postgresql://me:other@h/d"})
    assert changed.id == second.id
    assert FleetJob(**{**vars_of(second), "state": "postgresql://me:pw@h/e"}).id != second.id


def vars_of(job: FleetJob) -> dict[str, Any]:
    return {"location": job.location, "collection": job.collection, "state": job.state, "where": job.where}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{", "is not JSON"),
        ("[]", "is no JSON object"),
        ('{"path": "a", "collection": "c", "tenant": 1}', "'tenant' is not one of path, url"),
        ('{"collection": "c"}', "either a path or a url"),
        ('{"path": "a", "url": "http://b", "collection": "c"}', "either a path or a url"),
        ('{"path": "http://b", "collection": "c"}', "is a url, not a path"),
        ('{"url": "b", "collection": "c"}', "is a path, not a url"),
        ('{"url": "http://me:pw@b", "collection": "c"}', "no user and no password"),
        ('{"path": "a"}', "collection=None must be text"),
        ('{"path": 3, "collection": "c"}', "location=3 must be text"),
        ('{"path": ":memory:", "collection": "c"}', "needs a path or a URL"),
        ('{"path": "a", "collection": "c", "where": {}}', "must be a filter"),
        ('{"path": "a", "collection": "c", "where": {"x": NaN}}', "no filter of plain values"),
    ],
)
def test_a_line_that_is_no_job_is_named(tmp_path: Path, line: str, expected: str) -> None:
    path = tmp_path / "jobs.jsonl"
    path.write_text('{"path": "a", "collection": "one"}\n' + line + "\n")
    with pytest.raises(ConfigError, match="line 2") as raised:
        read_jobs(path)
    assert expected.replace("no filter", "not a filter") in str(raised.value)
    with pytest.raises(ConfigError, match="cannot read the jobs"):
        read_jobs(tmp_path / "nowhere")


def test_bad_fleets_are_refused_whole(tmp_path: Path, words: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    job = FleetJob(location=str(tmp_path), collection="talks")
    for options, expected in (
        ({"jobs": []}, "no bank to dream"),
        ({"jobs": [job, job]}, "listed twice"),
        ({"jobs": [job], "workers": -1}, "workers=-1"),
        ({"jobs": [job], "retries": 0.5}, "retries=0.5"),
    ):
        with pytest.raises(ConfigError, match=expected):
            DreamFleet(**options)  # type: ignore[arg-type]
    for settings in (
        {"lock_wait": -1.0},
        {"lock_wait": float("inf")},
        {"backoff": float("nan")},
        {"embedder": 3},
    ):
        with pytest.raises(ConfigError, match=next(iter(settings))):
            config(**settings)
    with pytest.raises(OSError, match="the model's file is gone"):
        DreamFleet([job], config(embedder=broken), workers=0).run()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"dream-memory\[ray\]"):
        DreamFleet([job], config(), workers=1).run()


def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path, words: Any) -> None:
    jobs = made_banks(tmp_path, 1, words)
    path = tmp_path / "file"
    for content in (b"my notes\n", b"my notes", b'{"a": 1}\n', b"\x00\xff\n", b"7\n"):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="name another file"):
            fleet(jobs, words, out=path).run()
        assert path.read_bytes() == content
    with pytest.raises(ConfigError, match="cannot write the journal"):
        fleet(jobs, words, out=tmp_path).run()
    path.unlink()
    fleet(jobs, words, out=path).run()
    kept = path.read_bytes()
    with pytest.raises(ConfigError, match="other options"):
        fleet(jobs, words, out=path, dream=DreamConfig(rounds=2)).run()
    for wrong in (b'{"id": "x"}\n', b'{"id": "x", "what": 1}\n', b"garbage\n", b"garbage"):
        path.write_bytes(kept + wrong)
        with pytest.raises(ConfigError):
            fleet(jobs, words, out=path).run()
        assert path.read_bytes() == kept + wrong
    path.write_bytes(kept[:20])
    assert fleet(jobs, words, out=path).run().counts["done"] == 1


def job(place: str, collection: str = "c") -> FleetJob:
    return FleetJob(location=place, collection=collection)


def test_jobs_of_one_directory_wait_for_each_other_and_those_of_a_server_do_not() -> None:
    one, two, three = job("/a", "c1"), job("/a", "c2"), job("/b")
    remote = [job("http://h:1", "c1"), job("http://h:1", "c2")]
    queue = JobQueue([one, two, three, *remote])
    assert (len(queue), queue.width) == (5, 4)
    first, second, third, fourth = (queue.take(0.0) for _ in range(4))
    assert first is not None
    assert [ticket.job for ticket in (first, second, third, fourth) if ticket] == [one, three, *remote]
    assert queue.take(0.0) is None
    queue.release(first)
    queue.put_back(first, 5.0)
    last = queue.take(1.0)
    assert last is not None
    assert last.job == two
    assert queue.take(9.0) is None  # due, and its lane is busy
    queue.release(last)
    again = queue.take(9.0)
    assert again is first
    queue.release(first)
    assert (len(queue), queue.next_at()) == (0, None)


def test_delays_double_up_to_half_a_minute() -> None:
    assert [config(backoff=1.0).delay(tries) for tries in (1, 2, 3, 9, 2000)] == [1.0, 2.0, 4.0, 30.0, 30.0]
    assert issubclass(MissingExtraError, DreamError)
