"""The Dreamer with a chat model: it words the question; what is probed, and the answer, stay the bank's.

Targets and bridge partners are chosen by arithmetic (Eq. 3 and 4). The model's question is used if its
answer is a slice of a shown page; otherwise the rules ask.

Source: MemDream section 3.2 (Dreamer), appendix H (verbatim answers) [S]; prompt and checks are ours [O].
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from shared_core.agents.asking import Task
from shared_core.agents.parsing import QuestionReply, check_question
from shared_core.agents.prompts import question_prompt
from shared_core.agents.protocol import Probe, Target
from shared_core.agents.question_types import asked_type
from shared_core.agents.rule_dreamer import RuleDreamer
from shared_core.agents.showing import shown_pages
from shared_core.agents.weakness import usable

if TYPE_CHECKING:
    from shared_core.agents.asking import Asker
    from shared_core.bank.graph import MemoryGraph

AGENT = "dreamer"
_SCHEMA = QuestionReply.model_json_schema()


class LlmDreamer:
    """Satisfies ``Dreamer``: one question per target, for both memories where it has a partner.

    Args:
        asker: The model behind its limits.
        rules: Ask where the model cannot.
        brief: Whether the model was trained on the task (``question_prompt``).
    """

    def __init__(self, asker: Asker, rules: RuleDreamer | None = None, *, brief: bool = False) -> None:
        self.asker = asker
        self._rules = rules or RuleDreamer()
        self._brief = brief

    def probe(self, graph: MemoryGraph, targets: Sequence[Target], *, seed: int) -> list[Probe]:
        """Return probes in the order of targets; the seed is the rules', the model answers at 0."""
        allowed = set(usable(graph).tolist())
        tasks = [question_task(graph, target, allowed, brief=self._brief) for target in targets]
        found: list[Probe] = []
        for target, probe in zip(targets, self.asker.ask_all(tasks), strict=True):
            found += [probe] if probe else self._rules.probe(graph, [target], seed=seed)
        return list(dict.fromkeys(found))


def question_task(
    graph: MemoryGraph, target: Target, allowed: Container[int], *, brief: bool = False
) -> Task[Probe] | None:
    """Return what a model is asked for a target; None where a memory may not be shown.

    Args:
        graph: The snapshot.
        target: A weak memory, and its partner.
        allowed: Rows that may be shown: a suspect is not.
        brief: As in ``question_prompt``.
    """
    rows = [target.row] if target.partner is None else [target.row, target.partner]
    if not all(row in allowed for row in rows):
        return None
    prompt = question_prompt(shown_pages(graph, rows), _SCHEMA, brief=brief)

    def check(reply: QuestionReply) -> Probe:
        question, answer = check_question(reply, prompt.pages)
        return Probe(
            query=question,
            expected_answer=answer,
            targets=tuple(graph.ids[row] for row in rows),
            query_type=asked_type(question, len(rows)),
            weakness=target.weakness,
        )

    return Task(agent=AGENT, prompt=prompt, form=QuestionReply, check=check)
