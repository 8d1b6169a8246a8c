"""``dream eval policy``: arms, rows, comparison and file, on a story of our own."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared_core.cli.main import main
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.errors import ConfigError
from shared_core.evaluation import CachedEmbedder
from shared_core.evaluation.policy_bench import (
    ARMS,
    PolicyBank,
    PolicyBench,
    PolicyRow,
    check_arms,
    compare,
    msc_banks,
)
from shared_core.evaluation.policy_saved import SavedPolicyRows
from shared_core.training.dataset import Talk, Utterance
from shared_core.training.policy_training import PolicyTraining
from tests.agents.nut_story import START, pages

ROW = PolicyRow(
    kind="locomo",
    bank="talk",
    pages=50,
    seed=0,
    arm="rules",
    settings="minilm",
    cases=4,
    reward=0.1,
    reward_best=0.3,
    changed=0,
    checked=0.1,
    used=False,
    probes=9,
    before=0.5,
    gain=0.1,
    fresh_gain=0.0,
    repairs=2,
)


@pytest.fixture(scope="module")
def bench(embedder: SentenceTransformerEmbedder) -> PolicyBench:
    bank = PolicyBank(kind="own", name="nuts", pages=tuple(pages()))
    return PolicyBench(bank, CachedEmbedder(embedder), training=PolicyTraining(steps=60))


@pytest.fixture(scope="module")
def rows(bench: PolicyBench) -> list[PolicyRow]:
    return bench.measure(0)


@pytest.fixture
def dream(embedder: SentenceTransformerEmbedder, monkeypatch: pytest.MonkeyPatch) -> Any:
    # the same real model, loaded once
    monkeypatch.setattr("shared_core.cli.options.open_embedder", lambda _name: CachedEmbedder(embedder))

    def run(*arguments: object) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as end,
        ):
            main(["eval", "policy", *map(str, arguments)])
        return int(end.value.code or 0), out.getvalue(), err.getvalue()

    return run


def test_every_arm_learns_from_the_same_cases(rows: list[PolicyRow]) -> None:
    rules, *trained = rows
    assert [row.arm for row in rows] == list(ARMS)
    assert (rules.changed, rules.used) == (0, False)
    assert {(row.cases, row.reward_best, row.probes, row.before) for row in rows} == {
        (rules.cases, rules.reward_best, rules.probes, rules.before)
    }
    assert rules.cases > 0
    assert all(row.reward <= row.reward_best for row in rows)
    # those that begin as the rules keep them where no step does better
    assert all(row.reward >= rules.reward for row in trained if row.arm != "no-prior")
    assert all(row.used == (row.checked > rules.checked + 1e-9) for row in trained)


def test_a_seed_and_a_choice_of_arms_repeat_what_was_measured(
    bench: PolicyBench, rows: list[PolicyRow]
) -> None:
    assert bench.measure(0, ["imitation"]) == [row for row in rows if row.arm in {"rules", "imitation"}]
    assert bench.measure(1, ["rules"])[0].before != rows[0].before


def test_arms_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"'sft' is none of rules, imitation"):
        check_arms(["imitation", "sft"])
    with pytest.raises(ConfigError, match="no arm is named"):
        check_arms([])


def test_runs_are_compared_in_pairs() -> None:
    gains = {("talk", 0): (0.1, 0.3, True), ("talk", 1): (0.2, 0.1, False), ("other", 0): (0.3, 0.3, True)}
    rows = [
        replace(ROW, bank=bank, seed=seed, arm=arm, gain=gain, used=arm == "group-relative" and used)
        for (bank, seed), (rules, policy, used) in gains.items()
        for arm, gain in (("rules", rules), ("group-relative", policy))
    ]
    alone = replace(ROW, kind="msc", bank="msc-1", arm="group-relative")
    (found,) = compare([*rows, alone])
    assert (found.kind, found.arm, found.runs, found.better, found.worse, found.used) == (
        "locomo",
        "group-relative",
        3,
        1,
        1,
        2,
    )
    assert found.gain == pytest.approx(0.7 / 3)
    assert found.difference == pytest.approx(0.1 / 3)
    assert found.deviation == pytest.approx(np.std([0.2, -0.1, 0.0], ddof=1))
    # where the check does not prefer it a bank keeps the rules
    assert found.checked_difference == pytest.approx(0.2 / 3)
    (single,) = compare(rows[:2])
    assert single.deviation is None


def test_short_talks_are_pooled() -> None:
    first, second = msc_banks([talk(f"t{number}") for number in range(5)], 2, 2)
    assert (first.name, second.name, first.kind) == ("msc-1", "msc-2", "msc")
    assert {page.session for page in second.pages} == {"t2/s1", "t2/s2", "t3/s1", "t3/s2"}
    with pytest.raises(ConfigError, match="2 banks of 3 dialogues need 6, not 5"):
        msc_banks([talk(f"t{number}") for number in range(5)], 3, 2)
    with pytest.raises(ConfigError, match="1 or more"):
        msc_banks([talk("t")], 0, 1)


def test_rows_are_kept_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    saved = SavedPolicyRows(path)
    saved.append([ROW, replace(ROW, arm="group-relative")])
    saved.append([ROW, replace(ROW, arm="imitation")])
    again = SavedPolicyRows(path)
    assert again.rows == saved.rows
    assert [row.arm for row in again.rows] == ["group-relative", "rules", "imitation"]
    assert {row.arm for row in again.find("talk", 0, "minilm", ["group-relative"]) or []} == {
        "rules",
        "group-relative",
    }
    for asked in (("talk", 1, "minilm"), ("talk", 0, "e5"), ("other", 0, "minilm")):
        assert again.find(*asked, ["group-relative"]) is None
    assert again.find("talk", 0, "minilm", ["no-prior"]) is None


@pytest.mark.parametrize(
    "content", ["mine\n", "{}\n", "[1]\n", '{"arm": 3}\n', json.dumps({**ROW.to_dict(), "gain": "much"})]
)
def test_a_file_of_another_kind_is_left_as_it_is(tmp_path: Path, content: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(content)
    with pytest.raises(ConfigError, match="line 1, is no row"):
        SavedPolicyRows(path)
    assert path.read_text() == content


def test_the_command_measures_prints_and_goes_on(
    dream: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "rows.jsonl"
    data = ("--locomo", locomo_file(tmp_path), "--msc", msc_folder(tmp_path / "msc"))
    asked = (*data, "--banks", 1, "--dialogues", 2, "--seeds", 1, "--steps", 20, "--arms", "imitation")
    code, told, err = dream(*asked, "--out", out, "--json")
    assert code == 0, err
    value = json.loads(told)
    assert [(row["bank"], row["arm"]) for row in value["rows"]] == [
        *product(["nuts"], ["rules", "imitation"]),
        *product(["msc-1"], ["rules", "imitation"]),
    ]
    assert [(one["kind"], one["arm"], one["runs"]) for one in value["compared"]] == [
        ("locomo", "imitation", 1),
        ("msc", "imitation", 1),
    ]
    assert len(out.read_text().splitlines()) == 4

    def measured(*_: object, **__: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(PolicyBench, "__init__", measured)
    code, told, err = dream(*asked, "--out", out)
    assert code == 0, err
    assert "imitation" in told
    assert "deviation" in told


def test_bad_input_is_told(dream: Any, tmp_path: Path) -> None:
    for arguments, message in (
        ((), "give --locomo FILE, --msc DIR, or both"),
        (("--locomo", tmp_path / "none.json"), "cannot read"),
        (("--msc", tmp_path), "cannot be read"),
        (("--locomo", tmp_path / "none.json", "--arms", "sft"), "arm 'sft' is none of"),
    ):
        code, _, err = dream(*arguments)
        assert (code, message in err) == (2, True), err


# ---- inner


def talk(name: str) -> Talk:
    said = [
        Utterance(
            id=f"{name}/s{session}-1", text="Hello.", session=f"{name}/s{session}", speaker="A", time=None
        )
        for session in (1, 2)
    ]
    return Talk(name=name, split="test", pages=tuple(said))


def locomo_file(folder: Path) -> Path:
    """The story in LoCoMo's format."""
    sessions: dict[str, Any] = {"speaker_a": "Marlene", "speaker_b": "Robot"}
    for page in pages():
        number = int((page.session or "")[1:])
        sessions[f"session_{number}_date_time"] = f"10:00 am on {START.day + number} January, 2024"
        turns = sessions.setdefault(f"session_{number}", [])
        turns.append({"speaker": "Marlene", "dia_id": f"D{number}:{len(turns) + 1}", "text": page.text})
    path = folder / "locomo.json"
    path.write_text(json.dumps([{"sample_id": "nuts", "conversation": sessions, "qa": []}]), encoding="utf-8")
    return path


def msc_folder(folder: Path) -> Path:
    """Two dialogues of each split, the story cut in two, in the files of Multi-Session Chat."""
    folder.mkdir()
    texts = [{"text": page.text} for page in pages()]
    halves = [texts[:25], texts[25:]]
    for split in ("valid", "test"):
        lines = []
        for name, half in zip("ab", halves, strict=True):
            earlier = [
                {"dialog": part, "time_num": 3, "time_unit": "days"} for part in (half[:6], half[6:12])
            ]
            lines.append(
                {
                    "dialog": half[12:18],
                    "metadata": {"initial_data_id": f"{split}_{name}"},
                    "previous_dialogs": earlier,
                }
            )
        _write(folder / f"msc_dialogue_session_3_{split}.jsonl", lines)
        summaries = [
            {"dialog": half[18:], "initial_data_id": f"{split}_{name}"}
            for name, half in zip("ab", halves, strict=True)
        ]
        for session in (4,) if split == "valid" else (1, 2, 3, 4):
            _write(folder / f"msc_personasummary_session_{session}_{split}.jsonl", summaries)
    return folder


def _write(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
