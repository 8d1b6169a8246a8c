"""How the arms of the LoCoMo evaluation dream: the whole cycle, parts of it, and the paper's ablations.

All are rules; nobody here sees a question of the data set.

Source: MemDream section 4.3 and Table 6 name the ablations [S]; what each leaves of our cycle is ours [O].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from shared_core.agents import associate
from shared_core.agents.cycle import DreamCycle
from shared_core.agents.dream_config import DreamConfig
from shared_core.agents.protocol import Diagnosis, Probe, Target
from shared_core.agents.rule_consolidator import RuleConsolidator
from shared_core.agents.rule_dreamer import RuleDreamer
from shared_core.agents.weakness import usable
from shared_core.bank.graph import MemoryGraph, read_graph
from shared_core.bank.repairing import Repair, apply_repair
from shared_core.language import split_sentences
from shared_core.language.pages import line_of

if TYPE_CHECKING:
    from shared_core.bank import MemoryBank

LONG = 2
"""Sentences that a page must exceed to be extracted from without a diagnosis: the analyst's own bound."""
_UNHURRIED = 24 * 3600.0
"""Seconds: what a dream does must not depend on how busy the machine is."""


def _cycle(bank: MemoryBank) -> None:
    DreamCycle(bank, config=DreamConfig(seconds=_UNHURRIED)).run()


def _rounds_only(bank: MemoryBank) -> None:
    DreamCycle(bank, config=DreamConfig(seconds=_UNHURRIED, groundwork=False)).run()


def _groundwork_only(bank: MemoryBank) -> None:
    # nothing counts as weak, so that no round asks anything
    config = DreamConfig(seconds=_UNHURRIED, connectivity=0.0, redundancy=0.0, staleness=0.0, threshold=1.0)
    DreamCycle(bank, config=config).run()


def _no_dreamer(bank: MemoryBank) -> None:
    # without probes nothing is weak, and nothing that is written can be tried first
    associate(bank)


def _no_analyst(bank: MemoryBank) -> None:
    _groundwork_only(bank)
    graph = read_graph(bank)
    memories = tuple(memory for repair in uniform_extracts(graph) for memory in repair.memories)
    if memories:
        with bank.state.lock("cycle", wait=0.0) as lock:
            apply_repair(
                bank, Repair(operation="extract", reason="a long page", memories=memories), lock=lock
            )


def _no_decay(bank: MemoryBank) -> None:
    config = DreamConfig(seconds=_UNHURRIED, decay=0.0)
    DreamCycle(bank, consolidator=RuleConsolidator(gamma=0.0), config=config).run()


DREAMS: Mapping[str, Callable[[MemoryBank], None]] = {
    "dream": _cycle,
    "dream-hybrid": _cycle,
    "dream-rounds-only": _rounds_only,
    "dream-groundwork-only": _groundwork_only,
    "dream-no-dreamer": _no_dreamer,
    "dream-no-analyst": _no_analyst,
    "dream-no-decay": _no_decay,
}
"""By the name of the arm."""


def uniform_extracts(graph: MemoryGraph) -> list[Repair]:
    """Return one extract of every page of more than ``LONG`` sentences, whatever is retrieved today.

    The rules' own dreamer asks about each page, and the rules' own consolidator quotes what answers.
    """
    long = [
        row
        for row in usable(graph).tolist()
        if len(split_sentences(line_of(graph.texts[row], graph.speakers[row])[1])) > LONG
    ]
    targets = [Target(row=row, partner=None, weakness="isolated", score=0.0) for row in long]
    probes = RuleDreamer().probe(graph, targets, seed=0)
    asked = [_buried(probe) for probe in probes if probe.query_type == "fact"]
    proposed = (RuleConsolidator().propose(graph, diagnosis) for diagnosis in asked)
    return [repair for repair in proposed if repair is not None]


def _buried(probe: Probe) -> Diagnosis:
    return Diagnosis(
        probe=probe, category="buried", targets=probe.targets, confidence=0.0, rationale="not diagnosed"
    )
