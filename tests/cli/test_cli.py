"""The command line as a user runs it: a real process, a real collection, exit codes, one-line errors."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from shared_core import MemoryBank
from shared_core.cli import console, options
from shared_core.cli.main import main
from tests.conftest import fill

DREAM = Path(sys.executable).with_name("dream")
NAME = "memories"


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def dream(*arguments: str | Path, **environment: str) -> Done:
    """Run a command in this process, as the entry point does."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, environment),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as exited,
    ):
        main([str(argument) for argument in arguments])
    return Done(int(exited.value.code or 0), out.getvalue(), err.getvalue())


def dream_json(*arguments: str | Path) -> Any:
    done = dream(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def place(tmp_path: Path, rng: np.random.Generator) -> Path:
    with MemoryBank.open(tmp_path / "chroma", NAME, create=True) as bank:
        fill(bank, rng, rows=80)
    return tmp_path / "chroma"


def test_forget_status_undo_redo_restore(place: Path) -> None:
    on = (place, "--collection", NAME)
    assert dream_json("status", *on)["mean_weight"] == 1.0

    dry = dream_json("forget", "--preset", "paper", *on, "--dry-run")
    assert dry["run_id"] is None
    assert dry["lowered"] > 0
    assert dream_json("status", *on)["mean_weight"] == 1.0

    swept = dream_json("forget", "--preset", "paper", *on)
    assert swept["lowered"] == dry["lowered"]
    weakened = dream_json("status", *on)
    assert weakened["mean_weight"] < 1.0
    lowest = weakened["suspects"][0]["id"]

    undone = dream_json("undo", swept["run_id"], *on)
    assert undone["target"] == swept["run_id"]
    assert dream_json("status", *on)["mean_weight"] == 1.0
    dream_json("undo", undone["run_id"], *on)
    assert dream_json("status", *on)["mean_weight"] == weakened["mean_weight"]

    restored = dream_json("restore", lowest, *on)
    assert restored["kind"] == "restore"
    assert lowest not in [s["id"] for s in dream_json("status", *on)["suspects"]]
    kinds = [run["kind"] for run in dream_json("log", *on)["runs"]]
    assert kinds == ["restore", "undo", "undo", "sweep", "add"]
    assert len(dream_json("log", *on, "--limit", "2")["runs"]) == 2


def test_restored_is_trusted_until_it_is_taken_back(place: Path) -> None:
    on = (place, "--collection", NAME)
    assert "none: `dream restore`" in dream("trusted", *on).stdout
    first = dream_json("forget", "--preset", "paper", *on)["suspects"][0]["id"]
    assert "it is trusted from now on; undo it with: dream undo" in dream("restore", first, *on).stdout
    again = dream("forget", "--preset", "paper", *on).stdout
    assert "; 1 trusted" in again
    assert "1 of 1 trusted memories would lose weight" in again
    assert "1 trusted: no sweep lowers them" in dream("status", *on).stdout
    listed = dream_json("trusted", *on)["trusted"]
    assert [(one["id"], one["weight"]) for one in listed] == [(first, 1.0)]
    assert first in dream("trusted", *on).stdout
    told = dream("explain", first, *on, "--preset", "paper").stdout
    assert "trusted: somebody restored it" in told
    assert dream_json("distrust", first, *on)["was_trusted"]
    assert "was not trusted" in dream("distrust", first, *on).stdout
    log = dream("log", *on).stdout
    assert f"trusted '{first}'" in log
    assert f"no longer trusted '{first}'" in log
    assert "warned of 1 thing" in log
    assert "no longer trusted" in dream("explain", first, *on, "--preset", "paper").stdout
    assert first in [one["id"] for one in dream_json("forget", "--preset", "paper", *on)["suspects"]]


def test_plain_output_names_what_to_do_next(place: Path) -> None:
    on = (place, "--collection", NAME)
    done = dream("forget", "--preset", "paper", *on)
    assert done.returncode == 0
    assert "80 memories" in done.stdout
    command = done.stdout.strip().splitlines()[-1].partition("undo it with: dream ")[2].split()
    assert dream(*command).returncode == 0
    assert dream_json("status", *on)["mean_weight"] == 1.0
    for verb in ("status", "log"):
        shown = dream(verb, *on)
        assert shown.returncode == 0
        assert shown.stdout.strip()
        assert shown.stderr == ""


def test_the_path_may_come_first_or_from_the_environment(place: Path) -> None:
    run = dream_json("forget", place, "--collection", NAME, "--preset", "paper")["run_id"]
    assert dream("undo", place, run, "--collection", NAME).returncode == 0
    named = {"DREAM_PATH": str(place), "DREAM_COLLECTION": NAME}
    assert dream("status", **named).returncode == 0
    assert dream("undo", run, **named).returncode == 2  # undone already


def test_open_ended_agent_and_seed_change_the_sweep(place: Path) -> None:
    on = ("forget", place, "--collection", NAME, "--preset", "paper", "--dry-run")
    base = dream_json(*on)
    assert dream_json(*on)["suspects"] == base["suspects"]
    assert dream_json(*on, "--seed", "7")["suspects"] != base["suspects"]
    other = dream_json(*on, "--agent", "open-ended", "--iterations", "3")
    assert other["config"]["k"] == 15.0
    assert len(other["trace"]) == 3


def test_a_tenant_is_swept_alone(tmp_path: Path, rng: np.random.Generator) -> None:
    place = tmp_path / "chroma"
    with MemoryBank.open(place, NAME, create=True) as bank:
        fill(bank, rng, rows=30)
    with MemoryBank.open(place, NAME, where={"user": "ada"}) as ada:
        ada.add(
            [f"note {i}" for i in range(40)],
            ids=[f"a{i}" for i in range(40)],
            embeddings=rng.standard_normal((40, 16)),
        )
    swept = dream_json(
        "forget", place, "--collection", NAME, "--preset", "paper", "--where", '{"user": "ada"}'
    )
    assert swept["memories"] == 40
    assert all(suspect["id"].startswith("a") for suspect in swept["suspects"])
    with MemoryBank.open(place, NAME) as bank:
        assert np.all(bank.weights([f"m{i}" for i in range(30)]) == 1.0)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["status", "{tmp}/nowhere", "-c", NAME], "not the directory of a Chroma database"),
        (["status", "{place}", "-c", "other"], "collections there: memories"),
        (["status", "http://127.0.0.1:9", "-c", NAME], "no Chroma server answers"),
        (["forget", "{place}", "-c", NAME, "--preset", "magic"], "preset='magic' is not one of paper"),
        (["forget", "{place}", "-c", NAME, "--agent", "x"], "agent='x' is not one of"),
        (["forget", "{place}", "-c", NAME, "--iterations", "0"], "iterations=0"),
        (["forget", "{place}", "-c", NAME, "--device", "tpu"], "device='tpu' is not one of cpu, cuda, auto"),
        (["forget", "{place}", "-c", NAME, "--iterations", "many"], "Invalid value for '--iterations'"),
        (["forget", "{place}", "-c", NAME, "--where", "{{"], "is not JSON"),
        (["forget", "{place}", "-c", NAME, "--where", "[1]"], "must be a JSON object"),
        (["forget", "{place}", "-c", NAME, "--where", '{{"a": {{"$no": 1}}}}'], "memories"),
        (["forget", "{place}", "-c", NAME, "--state", "nonsense"], "is not a database URL"),
        (["forget", "{place}", "-c", NAME, "--state", "mysql://x/y"], "state_url"),
        (["forget", "{place}"], "--collection"),
        (["undo", "no-such-run", "{place}", "-c", NAME], "no run 'no-such-run'"),
        (["restore", "no-such-memory", "{place}", "-c", NAME], "such as 'no-such-memory'"),
        (["log", "{place}", "-c", NAME, "--limit", "0"], "Invalid value for '--limit'"),
        (["eval", "poison"], "give --data DIR or --case FILE"),
        (["eval", "poison", "--case", "{tmp}/none.json"], "cannot read"),
        (["eval", "poison", "--data", "{tmp}"], "cannot read"),
        (["eval", "poison", "--case", "{case}", "--defence", "magic"], "'magic' is not one of none, paper"),
        (["eval", "poison", "--case", "{case}"], "is not an attack case"),
        (["demo", "--keep", "{place}"], "is not an empty directory"),
        (["nonsense"], "No such command"),
        (["forget", "{place}", "-c", NAME, "--where", "[" * 100_000], "is not JSON"),
        (["forget", "{place}", "-c", NAME, "--where", '{{"a": ' + "9" * 5_000 + "}}"], "is not JSON"),
        (["log", "{place}", "-c", NAME, "--limit", "9" * 20], "Invalid value for '--limit'"),
        (["undo", "\x1b[2Jx", "{place}", "-c", NAME], "no run"),
    ],
)
@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["plain", "json"])
def test_bad_input_is_one_clear_line_and_exit_2(
    place: Path, tmp_path: Path, arguments: list[str], expected: str, as_json: list[str]
) -> None:
    case = tmp_path / "case.json"
    case.write_text('{"name": "x", "memories": []}')
    names = {"place": place, "tmp": tmp_path, "case": case}
    done = dream(*(argument.format(**names) for argument in arguments), *as_json)
    assert done.returncode == 2
    assert expected in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "nowhere").exists()


def test_a_locked_bank_names_who_holds_it(place: Path) -> None:
    with MemoryBank.open(place, NAME) as bank, bank.state.lock("a long sweep"):
        done = dream("forget", place, "--collection", NAME, "--preset", "paper")
        assert done.returncode == 2
        assert "'a long sweep' by pid" in done.stderr
        assert dream_json("status", place, "--collection", NAME)["locked_by"].startswith("a long sweep")
        assert (
            dream_json("forget", place, "--collection", NAME, "--preset", "paper", "--dry-run")["memories"]
            == 80
        )
    assert dream("forget", place, "--collection", NAME, "--preset", "paper").returncode == 0


def test_hostile_text_cannot_reach_the_terminal(tmp_path: Path, rng: np.random.Generator) -> None:
    hostile = "\x1b[2J\x1b]0;owned\x07[red]bold[/red] \u202eesrever\r\nnext line"
    with MemoryBank.open(tmp_path / "chroma", NAME, create=True) as bank:
        bank.add([hostile], ids=["\x1b[31mid"], embeddings=rng.standard_normal((1, 8)))
        bank.set_weights({"\x1b[31mid": 0.2})
    shown = dream("status", tmp_path / "chroma", "--collection", NAME).stdout
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "[red]bold[/red]" in shown
    raw = dream("status", tmp_path / "chroma", "--collection", NAME, "--json").stdout
    assert raw.isascii()
    assert "\x1b" not in raw
    assert json.loads(raw)["suspects"][0]["id"] == "\x1b[31mid"


def test_a_fault_of_ours_is_one_line_too(place: Path) -> None:
    (place / "dream_state.sqlite3").write_bytes(b"this is not a database" * 100)
    done = dream("status", place, "--collection", NAME)
    assert done.returncode == 2
    assert "cannot open the state database" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_server_needs_a_state_url(chroma_server: str, name: str, tmp_path: Path) -> None:
    with MemoryBank.open(
        chroma_server, name, create=True, state_url=f"sqlite:///{tmp_path / 's.db'}"
    ) as bank:
        bank.add(["x y z"], embeddings=np.ones((1, 4)))
    done = dream("status", chroma_server, "--collection", name)
    assert done.returncode == 2
    assert "DREAM_STATE_URL" in done.stderr
    found = dream("status", chroma_server, "-c", name, DREAM_STATE_URL=f"sqlite:///{tmp_path / 's.db'}")
    assert found.returncode == 0, found.stderr


def test_help_and_version() -> None:
    for arguments in (["--help"], *([verb, "--help"] for verb in ("forget", "status", "demo", "undo"))):
        shown = dream(*arguments)
        assert shown.returncode == 0
        assert "Usage: dream" in shown.stdout
    assert dream("--version").stdout.startswith("dream-memory ")


def test_the_installed_command(place: Path) -> None:
    shown = subprocess.run(
        [DREAM, "status", place, "-c", NAME, "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(shown.stdout)["memories"] == 80
    wrong = subprocess.run(
        [DREAM, "status", "nowhere", "-c", NAME], capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("dream: nowhere is not")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_output_in_any_encoding_and_into_a_closed_pipe(place: Path, encoding: str) -> None:
    with MemoryBank.open(place, NAME) as bank:
        bank.add(["caf\u00e9 \u20ac \u202e \U0001f600"], ids=["\u20ac"], embeddings=np.ones((1, 16)))
        bank.set_weights({"\u20ac": 0.1})
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command = f"{DREAM} status {place} -c {NAME}"
    shown = subprocess.run(command.split(), env=environment, capture_output=True, check=False)
    assert shown.returncode == 0, shown.stderr
    for shell in (f"{command} | head -1", f"{command} >&-"):
        done = subprocess.run(["bash", "-c", shell], env=environment, capture_output=True, check=False)
        assert b"Traceback" not in done.stderr
        assert b"Exception ignored" not in done.stderr


def test_the_printed_undo_names_the_state_database(place: Path, tmp_path: Path) -> None:
    state = f"sqlite:///{tmp_path / 'elsewhere.sqlite3'}"
    shown = (
        dream("forget", place, "-c", NAME, "--preset", "paper", "--state", state)
        .stdout.strip()
        .splitlines()[-1]
    )
    command = shown.partition("undo it with: dream ")[2].split()
    assert dream(*command).returncode == 0


def test_a_password_is_not_printed() -> None:
    shown = options.command("undo", "r", "p", "c", "postgresql://me:secret@host/db", None)
    assert "secret" not in shown
    assert "postgresql://me:***@host/db" in shown


def test_tables_keep_ids_and_numbers_whole_on_a_narrow_terminal(place: Path) -> None:
    run = dream_json("forget", place, "-c", NAME, "--preset", "paper")["run_id"]
    for verb in ("status", "log", "forget"):
        options = ("--preset", "paper") if verb == "forget" else ()
        with mock.patch.object(console, "PLAIN_WIDTH", 80):
            shown = dream(verb, place, "-c", NAME, *options)
        assert shown.returncode == 0
        if verb != "forget":
            assert run in shown.stdout
    narrow = dream("log", place, "-c", NAME).stdout.splitlines()
    assert all(len(line.split()[0]) == len(run) for line in narrow[1:])


def test_help_of_a_group_is_help() -> None:
    done = dream("eval")
    # click before 8.2 calls it a success
    shown = done.stderr if done.returncode == 2 else done.stdout
    assert done.returncode in {0, 2}
    assert "Usage: dream eval" in shown
    assert len(shown.splitlines()) > 3
    assert "see `dream status --help`" in dream("status").stderr
