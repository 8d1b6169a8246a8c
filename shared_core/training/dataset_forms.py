"""The lines of a training set, as they must be; what does not fit is refused, never mended.

Source: none, ours [O].
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from shared_core.agents.protocol import Category, QueryType, RepairOperation, Weakness

AgentName = Literal["dreamer", "analyst", "consolidator"]
Signal = Literal["dream", "real"]
Split = Literal["train", "test"]


def _iso(value: str) -> str:
    datetime.fromisoformat(value)
    return value


Share = Annotated[float, Field(ge=0.0, le=1.0)]
Filled = Annotated[str, Field(min_length=1)]


class Row(BaseModel):
    """A line, or a part of one."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class UtteranceForm(Row):
    """A page."""

    id: Filled
    text: Filled
    session: Filled
    speaker: Filled | None
    time: Annotated[str, AfterValidator(_iso)] | None


class FactForm(Row):
    """A query with a known target."""

    query: Filled
    page: Filled


class TalkForm(Row):
    """A line of ``talks.jsonl``."""

    name: Filled
    split: Split
    pages: Annotated[tuple[UtteranceForm, ...], Field(min_length=1)]
    facts: tuple[FactForm, ...]


class ProbeForm(Row):
    """``Probe.to_dict``."""

    query: Filled
    expected_answer: str
    targets: Annotated[tuple[Filled, ...], Field(min_length=1)]
    query_type: QueryType
    weakness: Weakness


class RetrievalForm(Row):
    """``Retrieval.to_dict``."""

    ids: tuple[Filled, ...]
    f1: Share
    recall: Share
    confidence: Share


class DiagnosisForm(Row):
    """``Diagnosis.to_dict``."""

    category: Category
    operation: RepairOperation
    targets: Annotated[tuple[Filled, ...], Field(min_length=1)]
    confidence: Share
    rationale: str


class DreamerCase(Row):
    """A weak memory, and its partner."""

    targets: Annotated[tuple[Filled, ...], Field(min_length=1, max_length=2)]
    weakness: Weakness
    score: Share


class AnalystCase(Row):
    """A failed probe."""

    probe: ProbeForm
    retrieval: RetrievalForm


class ConsolidatorCase(Row):
    """A diagnosis, which has a probe."""

    diagnosis: DiagnosisForm
    probe: ProbeForm


class MessageForm(Row):
    """A message of a prompt."""

    role: Literal["system", "user", "assistant"]
    content: str


class ExampleForm(Row):
    """What the lines of all agents have."""

    agent: AgentName
    talk: str
    split: Split
    signal: Signal
    prompt: Annotated[tuple[MessageForm, ...], Field(min_length=1)]
    completion: str
    teacher: str
    score: Share


class DreamerRow(ExampleForm):
    """A line of ``dreamer.jsonl``."""

    agent: Literal["dreamer"]
    case: DreamerCase


class AnalystRow(ExampleForm):
    """A line of ``analyst.jsonl``."""

    agent: Literal["analyst"]
    case: AnalystCase


class ConsolidatorRow(ExampleForm):
    """A line of ``consolidator.jsonl``."""

    agent: Literal["consolidator"]
    case: ConsolidatorCase


ROWS: Mapping[AgentName, type[ExampleForm]] = {
    "dreamer": DreamerRow,
    "analyst": AnalystRow,
    "consolidator": ConsolidatorRow,
}
"""Form of the lines of each agent's file."""
