"""The Analyst with a chat model: it names the cause of a failed probe and the pages that have it.

The operation follows from the cause and is never the model's to choose. What a probe wants is never noisy,
nor is a page that states a name, number or date: a model that is talked into pruning those is refused.

Source: MemDream section 3.2 (Analyst, 2x2 taxonomy), Table 1 [S]; prompt and checks are ours [O].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shared_core.agents.parsing import UNFIT, DiagnosisReply, known
from shared_core.agents.prompts import diagnosis_prompt
from shared_core.agents.protocol import Diagnosis, Probe, Retrieval
from shared_core.agents.rule_analyst import RuleAnalyst
from shared_core.agents.showing import MOST_PAGES, shown_pages
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
    """

    def __init__(self, asker: Asker, rules: RuleAnalyst | None = None) -> None:
        self.asker = asker
        self._rules = rules or RuleAnalyst()

    def diagnose(self, graph: MemoryGraph, failures: Sequence[tuple[Probe, Retrieval]]) -> list[Diagnosis]:
        """Return one diagnosis at most per failure; those that cost most F1 first."""
        allowed = set(usable(graph).tolist())
        order = sorted(range(len(failures)), key=lambda at: (failures[at][1].f1, at))
        found: list[Diagnosis] = []
        for at in order:
            diagnosis = self._explained(graph, *failures[at], allowed)
            found += [diagnosis] if diagnosis else self._rules.diagnose(graph, [failures[at]])
        return found

    def _explained(
        self, graph: MemoryGraph, probe: Probe, outcome: Retrieval, allowed: set[int]
    ) -> Diagnosis | None:
        rows = [graph.row_of[name] for name in (*probe.targets, *outcome.ids) if name in graph.row_of]
        # suspects are neither shown nor repaired
        rows = [row for row in dict.fromkeys(rows) if row in allowed][:MOST_PAGES]
        if not set(probe.targets) <= {graph.ids[row] for row in rows}:
            return None
        pages = shown_pages(graph, rows)
        prompt = diagnosis_prompt(probe.query, probe.expected_answer, probe.targets, pages, _SCHEMA)

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

        return self.asker.ask(AGENT, prompt, DiagnosisReply, check)


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
