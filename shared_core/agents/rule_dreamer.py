"""A dreamer without a language model: asks with a memory's own rare words.

Source: MemDream section 3.2 (targets, partners, verbatim answers) [S]; the question forms are ours [O].
Two cue words only: a question that repeats its page is answered by any retriever (docs/memdream.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from shared_core.agents.protocol import Probe, QueryType, Target
from shared_core.language import content_words, extract_entities, resolve_dates, split_sentences
from shared_core.language.pages import line_of

if TYPE_CHECKING:
    from shared_core.bank.graph import MemoryGraph

CUES = 2
"""Words of a page that a question names [O, measured: with more, nearly every probe succeeds]."""
_MENTIONED: dict[str, tuple[QueryType, str]] = {
    "number": ("number", "Which number did {who} mention about {cues}?"),
    "name": ("name", "Which name did {who} mention about {cues}?"),
}
"""Query type and question of the things that a sentence may mention, by kind of entity."""


class RuleDreamer:
    """Asks what, who, when, which name or number, and for two memories at once; satisfies ``Dreamer``."""

    def probe(self, graph: MemoryGraph, targets: Sequence[Target], *, seed: int) -> list[Probe]:
        """Return a few probes per target, in the order of targets."""
        rng = np.random.default_rng(seed)
        frequency = word_frequency(tuple(graph.texts))
        found: list[Probe] = []
        for target in targets:
            found += self._of_one(graph, target, frequency, rng)
            if probe := _bridge(graph, target, frequency):
                found.append(probe)
        return list(dict.fromkeys(found))

    def _of_one(
        self, graph: MemoryGraph, target: Target, frequency: Counter[str], rng: np.random.Generator
    ) -> list[Probe]:
        row = target.row
        speaker, said = line_of(graph.texts[row], graph.speakers[row])
        sentences = [one for one in split_sentences(said) if len(content_words(one)) > CUES]
        if not sentences:
            return []
        sentence = sentences[int(rng.integers(len(sentences)))]
        named = set(content_words(speaker or ""))
        cues = " and ".join(rarest(sentence, frequency, CUES, named))
        who = speaker or "anybody"
        made: list[tuple[QueryType, str, str]] = [("fact", f"What did {who} say about {cues}?", sentence)]
        dates = [mention.text for mention in resolve_dates(graph.texts[row], graph.day(row))]
        if dates and dates[0] in graph.texts[row]:
            made.append(("when", f"When did {who} talk about {cues}?", dates[0]))
        if speaker and speaker in graph.texts[row]:
            made.append(("who", f"Who talked about {cues}?", speaker))
        told = named | set(content_words(cues))
        for kind, (asked, form) in _MENTIONED.items():
            if found := _mentioned(sentence, kind, told):
                made.append((asked, form.format(who=who, cues=cues), found))
        return [
            Probe(
                query=query,
                expected_answer=answer,
                targets=(graph.ids[row],),
                query_type=kind,
                weakness=target.weakness,
            )
            for kind, query, answer in made
        ]


def _mentioned(sentence: str, kind: str, told: set[str]) -> str | None:
    """Return the first name or number of a sentence that its question does not tell."""
    found = [
        (sentence.find(entity.text), entity.text)
        for entity in extract_entities(sentence)
        if entity.kind == kind and entity.text in sentence and not set(content_words(entity.text)) & told
    ]
    return min(found)[1] if found else None


def local_queries(graph: MemoryGraph, row: int) -> list[str]:
    """Return the local probe queries Q(v) of Eq. 4: the sentences of a memory, at most four."""
    _, said = line_of(graph.texts[row], graph.speakers[row])
    return [one for one in split_sentences(said) if content_words(one)][:4]


def rarest(text: str, frequency: Counter[str], count: int, without: set[str]) -> list[str]:
    """Return the rarest content words of a text, in the order of the text."""
    found = [word for word in dict.fromkeys(content_words(text)) if word not in without]
    chosen = sorted(found, key=lambda word: (frequency[word], found.index(word)))[:count]
    return [word for word in found if word in chosen]


@lru_cache(maxsize=2)
def word_frequency(texts: tuple[str, ...]) -> Counter[str]:
    """Return in how many texts each content word stands."""
    return Counter(word for text in texts for word in set(content_words(text)))


def _bridge(graph: MemoryGraph, target: Target, frequency: Counter[str]) -> Probe | None:
    """Ask with the partner's words only: whoever hears of one memory should be told of the other, too."""
    if target.partner is None:
        return None
    rows = (target.row, target.partner)
    said = [line_of(graph.texts[row], graph.speakers[row])[1] for row in rows]
    cues = rarest(said[1], frequency, CUES, set())
    answers = [one for one in split_sentences(said[0]) if content_words(one)]
    if not cues or not answers:
        return None
    return Probe(
        query=f"What should I keep in mind about {' and '.join(cues)}?",
        expected_answer=answers[0],
        targets=tuple(graph.ids[row] for row in rows),
        query_type="bridge",
        weakness=target.weakness,
    )
