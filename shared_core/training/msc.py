"""Multi-Session Chat as talks to practise on: four sessions of two people, and what others wrote about turns.

Reads the files of the public release as they are; only its validation and test files are used. Validation
talks are for training, test talks for measuring.

Source: MemDream section 3.3 trains on MSC [S]; that the persona lines which people wrote about single turns
are queries with a known target, and the dates, are ours [O].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shared_core.errors import ConfigError
from shared_core.language import words
from shared_core.training.dataset import Fact, Talk, Utterance
from shared_core.training.dataset_forms import Split

START = datetime(2023, 1, 9, 9, 0, tzinfo=timezone.utc)
"""When every talk begins: the release has no dates, only the time between sessions [O]."""
LAST_GAP = timedelta(days=7)
"""Before session 4, whose distance the files do not tell [O]."""
_UNITS = {"hour": timedelta(hours=1), "day": timedelta(days=1)}
_FILES: Mapping[Split, str] = {"train": "valid", "test": "test"}
SESSIONS = 4


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class _Turn(_Record):
    text: str = Field(min_length=1)
    persona_text: str = ""


class _Earlier(_Record):
    dialog: list[_Turn] = Field(min_length=1)
    time_num: int = Field(ge=0)
    time_unit: str

    @property
    def gap(self) -> timedelta:
        """Time until the next session."""
        unit = _UNITS.get(self.time_unit.removesuffix("s"))
        if unit is None:
            raise ConfigError(f"time_unit={self.time_unit!r} is not one of {', '.join(_UNITS)}")
        return self.time_num * unit


class _Metadata(_Record):
    initial_data_id: str = Field(min_length=1)


class _ThreeSessions(_Record):
    """A line of a dialogue file of session 3."""

    dialog: list[_Turn] = Field(min_length=1)
    metadata: _Metadata
    previous_dialogs: list[_Earlier] = Field(min_length=2, max_length=2)


class _Summary(_Record):
    """A line of a persona summary file."""

    dialog: list[_Turn] = Field(min_length=1)
    initial_data_id: str = Field(min_length=1)


Line = TypeVar("Line", bound=_Record)


def read_msc(folder: Path, *, limit: int | None = None) -> list[Talk]:
    """Return the talks, those of the validation files ("train") before those of the test files.

    Args:
        folder: With the release's files ``msc_dialogue_session_3_{valid,test}.jsonl`` and
            ``msc_personasummary_session_*.jsonl``.
        limit: Talks of each split at most; None for all.

    Raises:
        ConfigError: A file is missing, a line does not fit, or the files do not belong together.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit={limit} is below 1")
    return [*_split(folder, "train", limit), *_split(folder, "test", limit)]


# ---- inner


def _split(folder: Path, split: Split, limit: int | None) -> Iterator[Talk]:
    name = _FILES[split]
    # only the test files have written facts of the first three sessions
    told = range(4, 5) if split == "train" else range(1, SESSIONS + 1)
    summaries = {
        session: {
            line.initial_data_id: line
            for line in _lines(folder / f"msc_personasummary_session_{session}_{name}.jsonl", _Summary, None)
        }
        for session in told
    }
    path = folder / f"msc_dialogue_session_3_{name}.jsonl"
    for line in _lines(path, _ThreeSessions, limit):
        key = line.metadata.initial_data_id
        if lost := [session for session, found in summaries.items() if key not in found]:
            raise ConfigError(f"{path}: talk {key!r} has no line in the summaries of session {lost[0]}")
        yield _talk(f"msc-{key}", split, line, {session: found[key] for session, found in summaries.items()})


def _talk(name: str, split: Split, line: _ThreeSessions, summaries: Mapping[int, _Summary]) -> Talk:
    said = [one.dialog for one in line.previous_dialogs] + [line.dialog, summaries[SESSIONS].dialog]
    gaps = [timedelta(0), *(one.gap for one in line.previous_dialogs), LAST_GAP]
    pages: list[Utterance] = []
    facts: list[Fact] = []
    begins = START
    for session, (turns, gap) in enumerate(zip(said, gaps, strict=True), start=1):
        begins += gap
        pages += _pages(name, session, turns, begins)
        facts += _facts(name, session, turns, summaries.get(session))
    return Talk(name=name, split=split, pages=tuple(pages), facts=tuple(facts))


def _pages(name: str, session: int, turns: Sequence[_Turn], begins: datetime) -> list[Utterance]:
    return [
        Utterance(
            id=_id(name, session, at),
            text=turn.text.strip(),
            session=f"{name}/s{session}",
            # the two take turns, and the first begins every session
            speaker=f"Speaker {1 + at % 2}",
            time=(begins + timedelta(minutes=at)).isoformat(),
        )
        for at, turn in enumerate(turns)
        if turn.text.strip()
    ]


def _facts(name: str, session: int, turns: Sequence[_Turn], summary: _Summary | None) -> list[Fact]:
    """Return what people wrote about turns, unless it says no other words than the turn."""
    if summary is None:
        return []
    return [
        Fact(query=written, page=_id(name, session, at))
        for at, (turn, told) in enumerate(zip(turns, summary.dialog, strict=False))
        if (written := told.persona_text.strip())
        and turn.text == told.text
        and not set(words(written)) <= set(words(turn.text))
    ]


def _id(name: str, session: int, at: int) -> str:
    return f"{name}/s{session}-{at + 1}"


def _lines(path: Path, form: type[Line], limit: int | None) -> list[Line]:
    try:
        with path.open("rb") as file:
            return [
                _line(f"{path}, line {number}", line, form)
                for number, line in enumerate(islice(file, limit), start=1)
            ]
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read ({error.strerror}): give the folder of Multi-Session Chat"
        ) from error


def _line(where: str, line: bytes, form: type[Line]) -> Line:
    try:
        return form.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ConfigError(f"{where}: field {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
