"""The cases of one talk that agents are taught by, found as a dream cycle finds them.

Each case has the task of its agent, briefly as a trained model is asked or in full, and what the rules reply.

Does not know: whether a reply is accepted.

Source: MemDream section 3.3.2 and appendix D: a state and a question for the Dreamer, a query with what it
retrieved and a diagnosis for the Analyst, a diagnosis and an output for the Consolidator [S]; cases by the
parts of a dream cycle, and queries of people as "real" ones, are ours [O].
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.agents.associations import centred_rows
from shared_core.agents.dreaming import with_partners
from shared_core.agents.llm_analyst import diagnosis_task
from shared_core.agents.llm_consolidator import quotes_task
from shared_core.agents.llm_dreamer import question_task
from shared_core.agents.prompts import harmless
from shared_core.agents.protocol import Diagnosis, Probe, Retrieval, Target
from shared_core.agents.rule_analyst import RuleAnalyst
from shared_core.agents.rule_dreamer import RuleDreamer
from shared_core.agents.weakness import weak_targets, weakness_terms, worth_asking
from shared_core.language import content_words
from shared_core.language.pages import line_of
from shared_core.language.tokens import sentence_spans
from shared_core.training.dataset import AgentName, Signal

if TYPE_CHECKING:
    from shared_core.agents.asking import Task
    from shared_core.agents.prompts import Prompt
    from shared_core.bank.graph import MemoryGraph
    from shared_core.bank.repairing import Repair
    from shared_core.training.practice import Practice

QUOTE_CHARACTERS = 600
"""Of one quote, as the reply's form has it."""
Rules = Mapping[str, Any] | None
"""A reply of the rules as JSON values; None where they have none."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A case of one agent."""

    agent: AgentName
    signal: Signal
    kind: str
    """What the cases of an agent are mixed by; empty where the rules have no reply."""
    score: float
    """As in ``Example``."""
    case: Mapping[str, Any]
    """As in ``Example``."""
    brief: Task[Any]
    full: Task[Any]
    """The same for a model that was not trained."""
    reply: Rules


def find_cases(practice: Practice, signal: Signal, most: int, seed: int) -> list[Case]:
    """Return cases of a talk, those of the dreamer first, then the analyst's, then the consolidator's.

    Args:
        practice: The talk; left as it is.
        signal: "dream" for the rules' questions about the weakest memories, "real" for the talk's facts.
        most: Cases of each agent.
        seed: Of what is drawn; every talk has a draw of its own.
    """
    return _Finder(practice, signal, most, seed).cases()


class _Finder:
    def __init__(self, practice: Practice, signal: Signal, most: int, seed: int) -> None:
        self._practice = practice
        self._graph = practice.graph
        self._signal = signal
        self._most = most
        self._rng = np.random.default_rng([seed, zlib.crc32(practice.talk.name.encode())])
        self._seed = int(self._rng.integers(2**31))
        self._terms = weakness_terms(self._graph)

    def cases(self) -> list[Case]:
        return self._of_dream() if self._signal == "dream" else self._of_facts()

    # ---- by signal

    def _of_dream(self) -> list[Case]:
        config = self._practice.config
        weak = weak_targets(self._terms, worth_asking(self._graph).tolist(), config, self._most)
        index, centred = self._practice.trials.verifier.index, centred_rows(self._graph.unit)
        targets = with_partners(self._graph, centred, index, weak, config.k)
        probes = RuleDreamer().probe(self._graph, targets, seed=self._seed)
        weight = {self._graph.ids[target.row]: target.score for target in targets}
        asked = self._ask(probes)
        score = {probe: (1.0 - one.f1) * weight[probe.targets[0]] for probe, one in asked.items()}
        questions = []
        for at, target in enumerate(targets):
            # every other question needs both pages
            about = target if at % 2 else replace(target, partner=None)
            wanted = self._ids(about)
            own = [probe for probe in probes if probe.targets == wanted]
            if own:
                worst = self._worst(own, asked)
                questions.append(self._question(about, worst, score[worst]))
        return self._chosen(questions, asked, score)

    def _of_facts(self) -> list[Case]:
        probes = self._facts()
        asked = self._ask(probes)
        score = {probe: 1.0 - one.f1 for probe, one in asked.items()}
        drawn = [probes[at] for at in self._rng.permutation(len(probes))]
        questions = []
        for probe in drawn[: self._most]:
            target = self._target(probe)
            own = RuleDreamer().probe(self._graph, [target], seed=self._seed)
            worst = self._worst(own, self._ask(own)) if own else None
            questions.append(self._question(target, worst, score[probe]))
        return self._chosen(questions, asked, score)

    def _facts(self) -> list[Probe]:
        """Return the facts about pages that may be asked about, as probes."""
        found = []
        for fact in self._practice.talk.facts:
            row = self._graph.row_of.get(fact.page, -1)
            if row not in self._practice.allowed:
                continue
            _, said = line_of(self._graph.texts[row], self._graph.speakers[row])
            answer = next((said[a:b] for a, b in sentence_spans(said) if content_words(said[a:b])), said)
            found.append(
                Probe(
                    query=fact.query,
                    expected_answer=answer,
                    targets=(fact.page,),
                    query_type="fact",
                    weakness="isolated",
                )
            )
        return list(dict.fromkeys(found))

    def _target(self, probe: Probe) -> Target:
        """Return the page of a fact as a target, however weak it is."""
        row = self._graph.row_of[probe.targets[0]]
        (target,) = weak_targets(self._terms, [row], replace(self._practice.config, threshold=0.0), 1)
        return target

    def _ask(self, probes: Sequence[Probe]) -> dict[Probe, Retrieval]:
        index, k = self._practice.trials.verifier.index, self._practice.config.k
        index.learn([probe.query for probe in probes])
        return {probe: index.ask(probe, k) for probe in probes}

    def _worst(self, probes: Sequence[Probe], asked: Mapping[Probe, Retrieval]) -> Probe:
        """Return the probe that is answered worst; of several, one is drawn."""
        least = min(asked[probe].f1 for probe in probes)
        worst = [probe for probe in probes if asked[probe].f1 == least]
        return worst[int(self._rng.integers(len(worst)))]

    # ---- by agent

    def _question(self, target: Target, probe: Probe | None, score: float) -> Case | None:
        ids = self._ids(target)
        return self._made(
            "dreamer",
            f"{len(ids)} pages" if probe else "",
            score,
            {"targets": list(ids), "weakness": target.weakness, "score": min(1.0, target.score)},
            lambda brief: question_task(self._graph, target, self._practice.allowed, brief=brief),
            lambda prompt: _question_reply(probe, prompt) if probe else None,
        )

    def _failure(self, probe: Probe, outcome: Retrieval, score: float, why: Diagnosis | None) -> Case | None:
        return self._made(
            "analyst",
            why.category if why else "",
            score,
            {"probe": probe.to_dict(), "retrieval": outcome.to_dict()},
            lambda brief: diagnosis_task(self._graph, probe, outcome, self._practice.allowed, brief=brief),
            lambda prompt: _diagnosis_reply(why, prompt) if why else None,
        )

    def _planned(self, diagnosis: Diagnosis, score: float) -> Case | None:
        plan = self._practice.trials.consolidator.propose(self._graph, diagnosis)
        if plan is None or not plan.memories:
            return None
        return self._made(
            "consolidator",
            diagnosis.operation,
            score,
            {"diagnosis": diagnosis.to_dict(), "probe": diagnosis.probe.to_dict()},
            lambda brief: quotes_task(self._graph, plan, brief=brief),
            lambda prompt: _quotes_reply(self._graph, plan, prompt),
        )

    def _made(
        self,
        agent: AgentName,
        kind: str,
        score: float,
        case: Mapping[str, Any],
        task: Callable[[bool], Task[Any] | None],
        reply: Callable[[Prompt], Rules],
    ) -> Case | None:
        brief, full = task(True), task(False)
        if brief is None or full is None:
            return None
        return Case(
            agent=agent,
            signal=self._signal,
            kind=kind,
            score=min(1.0, score),
            case=case,
            brief=brief,
            full=full,
            reply=reply(brief.prompt),
        )

    # ---- which of them

    def _chosen(
        self,
        questions: Sequence[Case | None],
        asked: Mapping[Probe, Retrieval],
        score: Mapping[Probe, float],
    ) -> list[Case]:
        failed = [(probe, outcome) for probe, outcome in asked.items() if outcome.f1 < 1.0]
        named = {one.probe: one for one in RuleAnalyst().diagnose(self._graph, failed)}
        failures = [self._failure(*one, score[one[0]], named.get(one[0])) for one in failed]
        # a prompt shows the pages and not the probe: one case for each repair
        repairs: dict[tuple[str, ...], Diagnosis] = {}
        for one in sorted(named.values(), key=lambda one: -score[one.probe]):
            repairs.setdefault((one.operation, *sorted(one.targets)), one)
        plans = [self._planned(one, score[one.probe]) for one in repairs.values()]
        return [*filter(None, questions), *self._mixed(failures), *self._mixed(plans)]

    def _mixed(self, cases: Sequence[Case | None]) -> list[Case]:
        """Draw cases, as many of each kind as there are; those without a reply of the rules last."""
        drawn = [case for at in self._rng.permutation(len(cases)) if (case := cases[at]) is not None]
        kinds: dict[str, list[Case]] = {}
        for case in drawn:
            kinds.setdefault(case.kind, []).append(case)
        unnamed = kinds.pop("", [])
        mixed = [case for turn in zip_longest(*kinds.values()) for case in turn if case is not None]
        return list(chain(mixed, unnamed))[: self._most]

    def _ids(self, target: Target) -> tuple[str, ...]:
        rows = [target.row] if target.partner is None else [target.row, target.partner]
        return tuple(self._graph.ids[row] for row in rows)


# ---- replies of the rules, as the prompts show pages


def _question_reply(probe: Probe, prompt: Prompt) -> Rules:
    for name, page in prompt.pages.items():
        if page.memory_id == probe.targets[0]:
            return {"question": probe.query, "answer": harmless(probe.expected_answer), "page": name}
    return None


def _diagnosis_reply(diagnosis: Diagnosis, prompt: Prompt) -> Rules:
    names = {page.memory_id: name for name, page in prompt.pages.items()}
    shown = [names[one] for one in diagnosis.targets if one in names]
    return {"cause": diagnosis.category, "pages": shown, "confidence": round(diagnosis.confidence, 2)}


def _quotes_reply(graph: MemoryGraph, plan: Repair, prompt: Prompt) -> Rules:
    """Quote what the plan quotes: neighbouring sentences as one quote."""
    (memory,) = plan.memories
    quotes = []
    for name, page in prompt.pages.items():
        row = graph.row_of[page.memory_id]
        _, said = line_of(graph.texts[row], graph.speakers[row])
        runs: list[tuple[int, int]] = []
        before = False
        for start, end in sentence_spans(said):
            kept = said[start:end] in memory.text
            if kept and before and end - runs[-1][0] <= QUOTE_CHARACTERS:
                runs[-1] = (runs[-1][0], end)
            elif kept:
                runs.append((start, end))
            before = kept
        quotes += [{"page": name, "text": harmless(said[start:end])} for start, end in runs]
    return {"quotes": quotes}
