"""What a dream can write about the pages of a conversation, from the pages alone: keys, edges, weights.

Does: sentences as keys of their own (extract: a fact buried in a long page), the turns around a page as keys
of the page (synthesize: an answer scattered over a question and its reply), edges between pages of near
content (bridges), and a graded decay of pages that say little (noisy).

Does not know: questions, answers, which page will ever be asked for; storage.

Source: MemDream section 3.2 names the operations [S]; what each writes is ours [O], measured on LoCoMo
(docs/results.md): quotes of whole scenes shown to a reader, hard decay and threads of pages measured worse.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING

import numpy as np

from shared_core.bank.edges import Edge
from shared_core.bank.keys import RetrievalKey
from shared_core.dynamics.geometry import unit_rows
from shared_core.language import content_words, resolve_dates, split_sentences
from shared_core.language.pages import line_of, neighbours_in_session, spoken_line

if TYPE_CHECKING:
    from shared_core.bank.graph import MemoryGraph
    from shared_core.types import Array, FloatArray

SCENES = (1, 2, 4)
"""How many turns before and after a page its scenes hold [O, tuned on three LoCoMo conversations]."""
LEAST_WORDS = 2
"""Content words from which a sentence is a key of its own [O]."""
MOST_SENTENCES = 100
"""Of a page that are keys of their own: one huge page must not take a dream's whole time [O]."""
BRIDGES = 8
"""Nearest pages that a page is linked with [O]."""
BRIDGES_EXACT = 8_000
"""Pages up to which all are compared with all; beyond, a page is compared with those of near cells [O]."""
DECAY = 0.15
"""Strength of the graded decay: w = exp(0.15 (v - max v)), about 0.6 for the emptiest page [O]."""
_FIRST_PERSON = re.compile(r"\b(?:I|my|we|our|I'm|I've)\b")
_REACTION = re.compile(
    r"\s*(?:wow|thanks?|that's|great|awesome|congrat\w*|cool|sounds|yeah|nice|way to go|good|glad|absolutely"
    r"|totally|hey|hi)\b",
    re.IGNORECASE,
)


def sentence_keys(
    graph: MemoryGraph, rows: Sequence[int], embed: Callable[[list[str]], FloatArray]
) -> list[RetrievalKey]:
    """Return each sentence of some pages as a key, with who says it (extract); the first 100 of a page.

    Args:
        graph: The pages.
        rows: Which of them.
        embed: Texts in, vectors of shape (len(texts), d) out.
    """
    texts: list[tuple[int, str]] = []
    for row in rows:
        speaker, said = line_of(graph.texts[row], graph.speakers[row])
        who = f"{speaker}: " if speaker else ""
        telling = (one for one in split_sentences(said) if len(content_words(one)) >= LEAST_WORDS)
        texts += [(row, f"{who}{sentence}") for sentence in islice(telling, MOST_SENTENCES)]
    if not texts:
        return []
    vectors = embed([text for _, text in texts])
    return [
        RetrievalKey(graph.ids[row], "sentence", text, vector)
        for (row, text), vector in zip(texts, vectors, strict=True)
    ]


def scene_keys(graph: MemoryGraph, rows: Sequence[int], width: int) -> list[RetrievalKey]:
    """Return the turns around each of some pages, quoted, as a key of the page (synthesize).

    Args:
        graph: The pages.
        rows: Which of them, and of what may be quoted; a page without a known session has no scene.
        width: Turns before and after, one of ``SCENES``.
    """
    kinds = {1: "scene1", 2: "scene2", 4: "scene4"}
    keys, allowed = [], set(rows)
    for row in rows:
        around = neighbours_in_session(graph.session, graph.in_session, row, width)
        quoted = [near for near in around.tolist() if near in allowed]
        if quoted:
            text = "\n".join(spoken_line(graph.texts[near], graph.speakers[near]) for near in quoted)
            keys.append(RetrievalKey(graph.ids[row], kinds[width], text))  # type: ignore[arg-type]
    return keys


def bridge_edges(graph: MemoryGraph, count: int = BRIDGES) -> list[Edge]:
    """Return edges between each page and the pages nearest to it in content (scattered).

    The embeddings are centred first: what all pages have in common says nothing. In banks of more than
    ``BRIDGES_EXACT`` pages most of the nearest are found, not all.

    Args:
        graph: The pages; derived memories get no bridges.
        count: Nearest pages per page.
    """
    from shared_core.dynamics.terms.nearest import nearest_rows

    pages = np.flatnonzero(~graph.derived)
    if len(pages) < 2:
        return []
    near = nearest_rows(centred_rows(graph.unit[pages]), count, exact=BRIDGES_EXACT)
    pairs = {
        (min(a, b), max(a, b)): None
        for row, others in enumerate(near.tolist())
        for a, b in ((int(pages[row]), int(pages[other])) for other in others)
    }
    return [Edge(graph.ids[a], graph.ids[b], "bridge") for a, b in pairs]


def centred_rows(unit: FloatArray) -> FloatArray:
    """Return embeddings without what all of them have in common, as unit rows, shape (N, d)."""
    centred = unit - unit.mean(axis=0)
    norms = np.linalg.norm(centred, axis=1, keepdims=True)
    # pages that are all alike have no direction left
    return unit_rows(np.where(norms > 1e-6, centred, 1.0).astype(np.float32))


def graded_weights(
    graph: MemoryGraph, strength: float = DECAY, value: FloatArray | None = None
) -> FloatArray:
    """Return w per page by how much it says, shape (N,) in (0, 1]; 1 for derived memories (noisy).

    Args:
        graph: The pages.
        strength: 0 leaves all weights at 1.
        value: What ``telling`` gives, where it is known.
    """
    pages = ~graph.derived
    weights = np.ones(len(graph))
    if pages.any():
        said = (telling(graph) if value is None else value)[pages]
        weights[pages] = np.exp(strength * (said - said.max()))
    return weights


def telling(graph: MemoryGraph) -> FloatArray:
    """Return v, how much each memory says, shape (N,).

    v = 0.3 z(new) - 0.5 question - 0.3 (reaction and z(new) < 0) + 0.4 first person + 0.5 time
    + 0.4 answers a question, where new = log(1 + sum of idf of words that the turn before has not).
    """
    said = [line_of(text, who)[1] for text, who in zip(graph.texts, graph.speakers, strict=True)]
    before = _previous(graph)
    new = novelty(said, before)
    question = np.array([text.rstrip().endswith("?") for text in said], float)
    answers = np.array([row >= 0 and question[row] > 0 for row in before], float)
    reaction = np.array([bool(_REACTION.match(text)) for text in said], float)
    person = np.array([bool(_FIRST_PERSON.search(text)) for text in said], float)
    dated = np.array([bool(resolve_dates(text, graph.day(row))) for row, text in enumerate(said)], float)
    value = 0.3 * np.clip(new, -2, 2) - 0.5 * question - 0.3 * reaction * (new < 0)
    value += 0.4 * person + 0.5 * dated + 0.4 * answers
    return value


def novelty(said: Sequence[str], before: Array) -> FloatArray:
    """Return how much each text says that the one before it does not, standardised, shape (N,).

    Args:
        said: N texts.
        before: (N,) row of the turn before, -1 where there is none.
    """
    words = [set(content_words(text, stem=True)) for text in said]
    frequency = Counter(word for own in words for word in own)
    idf = {word: float(np.log(1 + len(said) / count)) for word, count in frequency.items()}
    known = [words[row] if row >= 0 else set() for row in before.tolist()]
    # sorted: a sum of floats depends on its order, and a set's changes from run to run
    new = np.log1p(
        [sum(idf[word] for word in sorted(own - old)) for own, old in zip(words, known, strict=True)]
    )
    spread = float(new.std()) if len(new) else 0.0
    return (new - new.mean()) / spread if spread > 0 else np.zeros(len(new))


def _previous(graph: MemoryGraph) -> Array:
    before = np.full(len(graph), -1, np.int64)
    for rows in graph.in_session.values():
        for one, other in pairwise(rows.tolist()):
            before[other] = one
    return before
