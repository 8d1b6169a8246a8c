"""Reads LoCoMo conversations (Maharana et al., ACL 2024) in their public file format.

The published file is dirty, so evidence is read leniently and everything that had to be skipped is said
(``Conversation.skipped``): several ids in one string, ``D:11:26`` for ``D11:26``, ``D30:05`` for ``D30:5``,
ids of turns that do not exist, questions without evidence. Anything else that is not the format is refused.
Knows nothing of retrieval; ``event_summary``, ``observation`` and ``session_summary`` are never read, because
they were written with sight of the whole conversation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared_core.errors import ConfigError
from shared_core.evaluation.cases import read_json

CATEGORIES: Mapping[int, str] = {
    1: "multi-hop",
    2: "temporal",
    3: "open-domain",
    4: "single-hop",
    5: "adversarial",
}
"""The public file's numbers. Category 5 asks what the conversation does not answer."""

_EVIDENCE = re.compile(r"D:?(\d+):(\d+)")
_SESSION = re.compile(r"session_(\d+)")


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One utterance: what LoCoMo's evidence points at."""

    id: str
    """``D<session>:<turn>``, without leading zeros."""
    session: int
    date: str
    """The session's date as written in the file; empty where it has none."""
    speaker: str
    text: str
    caption: str = ""
    """What an image model saw on the picture that was sent along; empty without a picture."""

    @property
    def page(self) -> str:
        """The turn as it is stored in a bank: ``(date) speaker: text``."""
        return f"({self.date}) {self.speaker}: {self.text}"


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question with its gold answer and the turns that hold it."""

    text: str
    answer: str
    """Empty where the file has none, as in nearly all of category 5."""
    category: int
    evidence: tuple[str, ...]
    """Ids of existing turns, each once."""


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """One conversation over many sessions, its questions, and what of the file was not usable."""

    name: str
    speakers: tuple[str, str]
    turns: tuple[Turn, ...]
    """In the order they were said."""
    questions: tuple[Question, ...]
    skipped: tuple[str, ...]
    """One sentence for every piece of evidence that was dropped and every question left without any."""


def load_locomo(path: Path, limit: int | None = None) -> list[Conversation]:
    """Read a LoCoMo file: the published one, or any with the same format.

    Args:
        path: Of the JSON file.
        limit: Read this many conversations at most.

    Raises:
        ConfigError: There is no such file, it is not JSON or not the format, or limit is below 1.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit={limit} must be 1 or more conversations")
    samples = read_json(path)
    if not isinstance(samples, list) or not samples:
        raise ConfigError(f"{path} is not a LoCoMo file: expected a list of conversations")
    return [parse_conversation(sample, f"{path} entry {row}") for row, sample in enumerate(samples[:limit])]


def parse_conversation(sample: Any, source: str) -> Conversation:
    """Read one entry of a LoCoMo file.

    Raises:
        ConfigError: It is not the format; the message names ``source`` and the field.
    """
    talk = _field(sample, "conversation", dict, source)
    turns = tuple(_turns(talk, source))
    if not turns:
        raise ConfigError(f"{source} is not a LoCoMo conversation: no session has turns")
    by_id = {turn.id: turn for turn in turns}
    if len(by_id) != len(turns):
        raise ConfigError(f"{source} is not a LoCoMo conversation: a dia_id is given twice")
    skipped: list[str] = []
    questions = tuple(
        _question(entry, by_id, f"{source} qa {row}", skipped)
        for row, entry in enumerate(_field(sample, "qa", list, source))
    )
    return Conversation(
        name=str(sample.get("sample_id", source)),
        speakers=(_field(talk, "speaker_a", str, source), _field(talk, "speaker_b", str, source)),
        turns=turns,
        questions=questions,
        skipped=tuple(skipped),
    )


def parse_evidence(items: Iterable[Any]) -> tuple[list[str], list[str]]:
    """Return the turn ids in evidence strings, each once and in order, and the strings that hold none."""
    found: dict[str, None] = {}
    unreadable = []
    for item in items:
        ids = [f"D{int(session)}:{int(turn)}" for session, turn in _EVIDENCE.findall(str(item))]
        if not ids:
            unreadable.append(str(item))
        found.update(dict.fromkeys(ids))
    return list(found), unreadable


def _turns(talk: Mapping[str, Any], source: str) -> Iterable[Turn]:
    numbers = sorted(int(m[1]) for m in map(_SESSION.fullmatch, talk) if m)
    for number in numbers:
        key = f"session_{number}"
        date = str(talk.get(f"{key}_date_time") or "")
        for entry in _field(talk, key, list, source):
            where = f"{source} {key}"
            ids, _ = parse_evidence([_field(entry, "dia_id", str, where)])
            if len(ids) != 1:
                raise ConfigError(f"{where}: dia_id {entry['dia_id']!r} must look like 'D1:2'")
            yield Turn(
                id=ids[0],
                session=number,
                date=date,
                speaker=_field(entry, "speaker", str, where),
                text=_field(entry, "text", str, where),
                caption=str(entry.get("blip_caption") or ""),
            )


def _question(entry: Any, turns: Mapping[str, Turn], source: str, skipped: list[str]) -> Question:
    text = _field(entry, "question", str, source)
    category = _field(entry, "category", int, source)
    if category not in CATEGORIES:
        raise ConfigError(f"{source}: category {category} must be one of {sorted(CATEGORIES)}")
    ids, unreadable = parse_evidence(_evidence(entry, source))
    missing = [i for i in ids if i not in turns]
    skipped.extend(f"{source}: evidence {item!r} names no turn" for item in unreadable)
    skipped.extend(f"{source}: evidence {item} is not in the conversation" for item in missing)
    evidence = tuple(i for i in ids if i in turns)
    if not evidence:
        skipped.append(f"{source}: no evidence, so it does not count in recalls")
    answer = entry.get("answer")
    return Question(
        text=text, answer="" if answer is None else str(answer), category=category, evidence=evidence
    )


def _evidence(entry: Mapping[str, Any], source: str) -> Sequence[Any]:
    evidence = entry.get("evidence") or []
    if isinstance(evidence, str):
        return [evidence]
    if not isinstance(evidence, list):
        raise ConfigError(f"{source}: evidence {evidence!r} must be a list of turn ids")
    return evidence


def _field(value: Any, name: str, kind: type, source: str) -> Any:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, kind) or isinstance(found, bool):
        raise ConfigError(f"{source} is not a LoCoMo entry: {name!r} must be a {kind.__name__}")
    return found
