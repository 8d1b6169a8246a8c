"""The Analyst with a chat model: it names the cause of a failed probe and the pages that have it.

The operation follows from the cause and is never the model's to choose. What a probe wants is never noisy,
nor is a page that states a name, number or date: a model that is talked into pruning those is refused.

Source: MemDream section 3.2 (Analyst, 2x2 taxonomy), Table 1 [S]; prompt and checks are ours [O].
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from shared_core.agents.asking import Task
from shared_core.agents.parsing import UNFIT, DiagnosisReply, known
from shared_core.agents.prompts import diagnosis_prompt
from shared_core.agents.protocol import Diagnosis, Probe, Retrieval
from shared_core.agents.rule_analyst import RuleAnalyst
from shared_core.agents.showing import BRIEF_PAGES, MOST_PAGES, shown_pages
from shared_core.agents.weakness import usable
from shared_core.errors import ChatReplyError
from shared_core.language import extract_entities
from shared_core.language.pages import line_of

if TYPE_CHECKING:
    from shared_core.agents.asking import Asker
    from shared_core.bank.graph import MemoryGraph

AGENT = "analyst"
_SCHEMA = DiagnosisReply.model_json_schema()


class LlmAnalyst:
    """Satisfies ``Analyst``.

    Args:
        asker: The model behind its limits.
        rules: Explain where the model cannot.
        brief: Whether the model was trained on the task (``question_prompt``).
    """

    def __init__(self, asker: Asker, rules: RuleAnalyst | None = None, *, brief: bool = False) -> None:
        self.asker = asker
        self._rules = rules or RuleAnalyst()
        self._brief = brief

    def diagnose(self, graph: MemoryGraph, failures: Sequence[tuple[Probe, Retrieval]]) -> list[Diagnosis]:
        """Return one diagnosis at most per failure; those that cost most F1 first."""
        allowed = set(usable(graph).tolist())
        worst_first = sorted(failures, key=lambda failure: failure[1].f1)
        tasks = [diagnosis_task(graph, *failure, allowed, brief=self._brief) for failure in worst_first]
        found: list[Diagnosis] = []
        for failure, diagnosis in zip(worst_first, self.asker.ask_all(tasks), strict=True):
            found += [diagnosis] if diagnosis else self._rules.diagnose(graph, [failure])
        return found


def diagnosis_task(
    graph: MemoryGraph, probe: Probe, outcome: Retrieval, allowed: Container[int], *, brief: bool = False
) -> Task[Diagnosis] | None:
    """Return what a model is asked about a failed probe; None where a wanted memory may not be shown.

    Args:
        graph: The snapshot.
        probe: That failed.
        outcome: What it retrieved.
        allowed: Rows that may be shown and repaired: a suspect is not.
        brief: As in ``question_prompt``; shows fewer pages.
    """
    rows = [graph.row_of[name] for name in (*probe.targets, *outcome.ids) if name in graph.row_of]
    most = BRIEF_PAGES if brief else MOST_PAGES
    rows = [row for row in dict.fromkeys(rows) if row in allowed][:most]
    if not set(probe.targets) <= {graph.ids[row] for row in rows}:
        return None
    pages = shown_pages(graph, rows)
    prompt = diagnosis_prompt(probe.query, probe.expected_answer, probe.targets, pages, _SCHEMA, brief=brief)

    def check(reply: DiagnosisReply) -> Diagnosis:
        targets = known(reply.pages, prompt.pages)
        _check_fit(graph, reply.cause, targets, set(probe.targets))
        return Diagnosis(
            probe=probe,
            category=reply.cause,
            targets=tuple(targets),
            confidence=reply.confidence,
            rationale="named by the chat model",
        )

    return Task(agent=AGENT, prompt=prompt, form=DiagnosisReply, check=check)


def _check_fit(graph: MemoryGraph, cause: str, targets: Sequence[str], wanted: set[str]) -> None:
    if cause == "noisy" and wanted & set(targets):
        raise ChatReplyError("a wanted page cannot be noisy: it holds the answer.", UNFIT)
    if cause == "noisy" and any(_states_facts(graph, graph.row_of[name]) for name in targets):
        raise ChatReplyError("a page with a name, number or date is not noisy.", UNFIT)
    if cause in {"buried", "scattered"} and not set(targets) <= wanted:
        raise ChatReplyError(f"only wanted pages can be {cause}.", UNFIT)
    if cause in {"scattered", "redundant"} and len(targets) < 2:
        raise ChatReplyError(f"{cause} needs two pages or more.", UNFIT)


def _states_facts(graph: MemoryGraph, row: int) -> bool:
    _, said = line_of(graph.texts[row], graph.speakers[row])
    return any(entity.kind != "concept" for entity in extract_entities(said))
