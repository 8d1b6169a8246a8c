"""What the three agents of a dream learn from: talks, and cases with a prompt and a teacher's reply.

A set is a folder of JSON lines: ``talks.jsonl``, one file per agent, and ``card.json``. Prompt and completion
are conversational, as TRL reads them. A set is read whole or refused whole.

Does not know: how cases are found, and what a reply is worth.

Source: MemDream section 3.3: examples by the signal they come from, "dream" or "real", of which the most
discriminative are kept [S]; the format is ours [O].
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from pydantic import ValidationError

from shared_core.agents.protocol import Diagnosis, Probe, Retrieval
from shared_core.chat import ChatMessage
from shared_core.errors import ConfigError
from shared_core.training.dataset_forms import ROWS, AgentName, Row, Signal, Split, TalkForm

if TYPE_CHECKING:
    from shared_core.chat.protocol import Role

__all__ = [
    "AGENTS",
    "RULES",
    "AgentName",
    "Example",
    "Fact",
    "Signal",
    "Split",
    "Talk",
    "TrainingSet",
    "Utterance",
    "diagnosis_of",
    "messages_of",
    "probe_of",
    "read_training_set",
    "retrieval_of",
    "write_training_set",
]

AGENTS: tuple[AgentName, ...] = get_args(AgentName)
TALKS, CARD = "talks.jsonl", "card.json"
DATA_FILES = (TALKS, *(f"{agent}.jsonl" for agent in AGENTS))
RULES = "rules"
"""The teacher of examples that no model wrote."""

Form = TypeVar("Form", bound=Row)


@dataclass(frozen=True, kw_only=True)
class Utterance:
    """One page of a talk."""

    id: str
    text: str
    session: str
    speaker: str | None = None
    time: str | None = None
    """ISO 8601; None where unknown."""


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A query with a known target: what a person wrote about a page, in other words than the page's."""

    query: str
    page: str
    """Id of the page."""


@dataclass(frozen=True, kw_only=True)
class Talk:
    """A memory to practise on."""

    name: str
    split: Split
    pages: tuple[Utterance, ...]
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Example:
    """One case of one agent, as its task shows it, and what a teacher replied."""

    agent: AgentName
    talk: str
    """Name of its talk."""
    split: Split
    """That of its talk."""
    signal: Signal
    case: Mapping[str, Any]
    """What rebuilds the task on the talk's graph; read it with ``probe_of`` and the like.

    Dreamer: ``targets`` (one id, or with its partner's), ``weakness``, ``score``; analyst: ``probe``,
    ``retrieval``; consolidator: ``diagnosis``, ``probe``.
    """
    prompt: tuple[Mapping[str, str], ...]
    """Messages, each ``{"role", "content"}``."""
    completion: str
    """The teacher's reply; empty where it had none that can be used."""
    teacher: str
    """``RULES``, or the model's name; empty without a completion."""
    score: float
    """How discriminative the case's query is: (1 - F1) * phi(target); (1 - F1) for "real". In [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class TrainingSet:
    """A set as read from a folder."""

    talks: dict[str, Talk]
    """By name."""
    examples: list[Example]
    card: dict[str, Any] = field(default_factory=dict)
    digest: str
    """SHA-256 of the data files."""

    def of(
        self, agent: AgentName, split: Split | None = None, signal: Signal | None = None, top: float = 1.0
    ) -> list[Example]:
        """Return the examples of an agent, in the order of the set.

        Args:
            agent: Whose.
            split: None for both; so for the signal.
            signal: Where the cases come from.
            top: Share of them to return, the best by score; at least one, where there is any.

        Raises:
            ConfigError: ``top`` is outside (0, 1].
        """
        if not 0.0 < top <= 1.0:
            raise ConfigError(f"top={top!r} is outside (0, 1]")
        found = [
            one
            for one in self.examples
            if one.agent == agent and split in (None, one.split) and signal in (None, one.signal)
        ]
        most = math.ceil(round(top * len(found), 9))
        best = sorted(range(len(found)), key=lambda at: -found[at].score)[:most]
        return [found[at] for at in sorted(best)]


def write_training_set(
    folder: Path,
    talks: Sequence[Talk],
    examples: Sequence[Example],
    card: Mapping[str, Any],
    *,
    overwrite: bool = False,
) -> TrainingSet:
    """Write a set, and return it as it is read back; the card gets counts and the digest of the files.

    Args:
        folder: Made where it is absent; other files in it are left alone.
        talks: All that the examples name.
        examples: Of all agents.
        card: What the set was made from and how.
        overwrite: Whether an earlier set in the folder may be replaced.

    Raises:
        ConfigError: There is a set already, or the examples do not fit their talks or format.
    """
    if not overwrite and (there := [name for name in (*DATA_FILES, CARD) if (folder / name).exists()]):
        raise ConfigError(f"{folder} holds a training set ({there[0]}): give another folder, or overwrite")
    lines = {TALKS: [asdict(talk) for talk in talks]}
    for agent in AGENTS:
        lines[f"{agent}.jsonl"] = [_plain(one) for one in examples if one.agent == agent]
    made = {name: "".join(f"{_json(one)}\n" for one in found).encode() for name, found in lines.items()}
    digest = _digest(made)
    counts = {agent: sum(one.agent == agent for one in examples) for agent in AGENTS}
    told = {**card, "talks": len(talks), "examples": counts, "digest": digest}
    _checked(folder, made, told)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in {**made, CARD: (json.dumps(told, indent=2) + "\n").encode()}.items():
        beside = folder / f".{name}.new"
        beside.write_bytes(data)
        beside.replace(folder / name)
    return read_training_set(folder)


def read_training_set(folder: Path) -> TrainingSet:
    """Read a set.

    Raises:
        ConfigError: A file is missing or a line does not fit; the message names both.
    """
    data: dict[str, bytes] = {}
    for name in (*DATA_FILES, CARD):
        try:
            data[name] = (folder / name).read_bytes()
        except OSError as error:
            raise ConfigError(
                f"{folder / name} cannot be read ({error.strerror}): give the folder of a training set"
            ) from error
    try:
        card = json.loads(data.pop(CARD))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{folder / CARD} is no JSON: {error}") from error
    if not isinstance(card, dict):
        raise ConfigError(f"{folder / CARD} must hold one JSON object")
    return _checked(folder, data, card)


def messages_of(example: Example) -> tuple[ChatMessage, ...]:
    """Return an example's prompt as messages."""
    return tuple(ChatMessage(cast("Role", message["role"]), message["content"]) for message in example.prompt)


def probe_of(example: Example) -> Probe:
    """Return the probe of an analyst's or consolidator's case.

    Raises:
        ConfigError: The case has none; so for the others.
    """
    return _probe(_case(example, "probe"))


def retrieval_of(example: Example) -> Retrieval:
    """Return what the probe of an analyst's case retrieved."""
    told = _case(example, "retrieval")
    return Retrieval(**{**told, "ids": tuple(told["ids"])})


def diagnosis_of(example: Example) -> Diagnosis:
    """Return the diagnosis of a consolidator's case."""
    told = _case(example, "diagnosis")
    return Diagnosis(
        probe=probe_of(example),
        category=told["category"],
        targets=tuple(told["targets"]),
        confidence=told["confidence"],
        rationale=told["rationale"],
    )


# ---- inner


def _case(example: Example, name: str) -> Mapping[str, Any]:
    if name not in example.case:
        raise ConfigError(f"the case of a {example.agent} has no {name}")
    found: Mapping[str, Any] = example.case[name]
    return found


def _probe(told: Mapping[str, Any]) -> Probe:
    return Probe(**{**told, "targets": tuple(told["targets"])})


def _plain(example: Example) -> dict[str, Any]:
    return {**asdict(example), "prompt": [dict(message) for message in example.prompt]}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _digest(data: Mapping[str, bytes]) -> str:
    found = hashlib.sha256()
    for name in DATA_FILES:
        found.update(f"{name} {len(data[name])}\n".encode())
        found.update(data[name])
    return found.hexdigest()


def _checked(folder: Path, data: Mapping[str, bytes], card: dict[str, Any]) -> TrainingSet:
    """Return a set of the bytes of its files."""
    talks: dict[str, Talk] = {}
    for where, row in _rows(folder / TALKS, data[TALKS], TalkForm):
        talk = _talk(row)
        if problem := _talk_problem(talk, talks):
            raise ConfigError(f"{where}: {problem}")
        talks[talk.name] = talk
    examples: list[Example] = []
    for agent in AGENTS:
        name = f"{agent}.jsonl"
        for where, found in _rows(folder / name, data[name], ROWS[agent]):
            example = _example(found)
            if problem := _example_problem(example, talks):
                raise ConfigError(f"{where}: {problem}")
            examples.append(example)
    digest = _digest(data)
    if card.get("digest") != digest:
        raise ConfigError(
            f"{folder / CARD} was written for other files: write the set again with write_training_set"
        )
    return TrainingSet(talks=talks, examples=examples, card=card, digest=digest)


def _rows(path: Path, data: bytes, form: type[Form]) -> Iterator[tuple[str, Form]]:
    """Yield each line and where it stands."""
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            yield where, form.model_validate_json(line)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise ConfigError(f"{where}: field {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _talk(row: TalkForm) -> Talk:
    return Talk(
        name=row.name,
        split=row.split,
        pages=tuple(Utterance(**page.model_dump()) for page in row.pages),
        facts=tuple(Fact(**fact.model_dump()) for fact in row.facts),
    )


def _example(row: Row) -> Example:
    told = row.model_dump(mode="json")
    return Example(**{**told, "prompt": tuple(told["prompt"])})


def _talk_problem(talk: Talk, earlier: Mapping[str, Talk]) -> str | None:
    """Return what is wrong with a talk, None where it is good."""
    if talk.name in earlier:
        return f"talk {talk.name!r} is given twice"
    ids = {page.id for page in talk.pages}
    if len(ids) < len(talk.pages):
        return f"talk {talk.name!r} has two pages of one id"
    lost = [fact.page for fact in talk.facts if fact.page not in ids]
    return f"a fact is about {lost[0]!r}, which is no page of talk {talk.name!r}" if lost else None


def _example_problem(example: Example, talks: Mapping[str, Talk]) -> str | None:
    """Return what is wrong with an example, None where it is good."""
    if (talk := talks.get(example.talk)) is None:
        return f"talk {example.talk!r} is not in {TALKS}"
    if example.split != talk.split:
        return f"split {example.split!r} is not that of talk {talk.name!r}, {talk.split!r}"
    if bool(example.completion) != bool(example.teacher):
        return "a completion needs its teacher, and a teacher its completion"
    ids = {page.id for page in talk.pages}
    if strange := [name for name in _named(example.case) if name not in ids]:
        return f"{strange[0]!r} is no page of talk {talk.name!r}"
    return None


def _named(case: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ids of the pages that a case names."""
    for part in (case, *(case[name] for name in ("probe", "retrieval", "diagnosis") if name in case)):
        yield from part.get("targets", ())
        yield from part.get("ids", ())
