"""The Consolidator with a chat model: it chooses which sentences a derived memory quotes.

What may be quoted, and which weights and edges change, is planned by the rules; the model replaces the text
of that plan. It names sentences, and the text is put together here from the pages, in order of time, with
the date and speaker of each: a model can leave out, never invent. A merge must keep everything.

Source: MemDream section 3.2 (Consolidator), appendix C (no information is lost, order of time) [S]; that
derived memories quote whole sentences, and all checks, are ours [O].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shared_core.agents.asking import Task
from shared_core.agents.parsing import (
    LOST,
    QuotesReply,
    check_nothing_lost,
    check_supported,
    known,
    whole_sentences,
)
from shared_core.agents.prompts import Prompt, quotes_prompt
from shared_core.agents.protocol import Diagnosis
from shared_core.agents.rule_consolidator import RuleConsolidator, in_order, source_of
from shared_core.agents.showing import shown_pages
from shared_core.errors import ChatReplyError
from shared_core.language import Source, split_sentences
from shared_core.language.pages import line_of

if TYPE_CHECKING:
    from shared_core.agents.asking import Asker
    from shared_core.bank.graph import MemoryGraph
    from shared_core.bank.repairing import Repair

AGENT = "consolidator"
_SCHEMA = QuotesReply.model_json_schema()


class LlmConsolidator:
    """Satisfies ``Consolidator``.

    Args:
        asker: The model behind its limits.
        rules: Plan every repair, and word it where the model cannot.
        brief: Whether the model was trained on the task (``question_prompt``).
    """

    def __init__(self, asker: Asker, rules: RuleConsolidator | None = None, *, brief: bool = False) -> None:
        self.asker = asker
        self._rules = rules or RuleConsolidator()
        self._brief = brief

    def propose(self, graph: MemoryGraph, diagnosis: Diagnosis) -> Repair | None:
        """Return the rules' repair, its text chosen by the model where that passes every check."""
        plan = self._rules.propose(graph, diagnosis)
        if plan is None or not plan.memories:
            return plan
        return self.asker.ask(quotes_task(graph, plan, brief=self._brief)) or plan


def quotes_task(graph: MemoryGraph, plan: Repair, *, brief: bool = False) -> Task[Repair]:
    """Return what a model is asked for the text of a planned repair.

    Args:
        graph: The snapshot.
        plan: By the rules, with one derived memory.
        brief: As in ``question_prompt``.
    """
    (memory,) = plan.memories
    rows = in_order(graph, [graph.row_of[source] for source in memory.sources])
    everything = plan.operation == "merge"
    prompt = quotes_prompt(shown_pages(graph, rows), _SCHEMA, all_facts=everything, brief=brief)

    def check(reply: QuotesReply) -> Repair:
        text = _text(graph, rows, reply, prompt, all_facts=everything)
        details = {**plan.details, "worded_by": "chat model"}
        return replace(plan, memories=(replace(memory, text=text),), details=details)

    return Task(agent=AGENT, prompt=prompt, form=QuotesReply, check=check)


def _text(
    graph: MemoryGraph, rows: Sequence[int], reply: QuotesReply, prompt: Prompt, *, all_facts: bool
) -> str:
    chosen: dict[int, set[str]] = {row: set() for row in rows}
    for excerpt in reply.quotes:
        (memory_id,) = known([excerpt.page], prompt.pages)
        row = graph.row_of[memory_id]
        head, said = _split(graph, row)
        # models copy a page's line with its date and speaker
        quote = excerpt.text.strip()
        chosen[row].update(whole_sentences(quote.removeprefix(head.strip()), said))
    if not all(chosen.values()):
        raise ChatReplyError("every page needs at least one quote.", LOST)
    lines = []
    for row, sentences in chosen.items():
        head, said = _split(graph, row)
        lines.append(head + " ".join(one for one in split_sentences(said) if one in sentences))
    text = "\n".join(lines)
    sources = [source_of(graph, row) for row in rows]
    check_supported(text, sources)
    if all_facts:
        check_nothing_lost(text, [Source(_split(graph, row)[1], graph.day(row)) for row in rows])
    return text


def _split(graph: MemoryGraph, row: int) -> tuple[str, str]:
    """Return the date and speaker before a page's text, and what was said."""
    text = graph.texts[row]
    _, said = line_of(text, graph.speakers[row])
    return text[: len(text) - len(said)], said
