"""LoCoMo's metrics: what retrieval put into the context, and how near an answer comes to the gold one.

Retrieval is scored on a ranking of sets: which turns each entry of the context quotes. Answers are scored by
several published measures that share names and differ in numbers, so a figure must always say which it is:

- ``official_f1``: the evaluation of LoCoMo's authors (stemmed, multiset, a rule per category).
- ``set_f1``: the one of A-MEM and Mem0 (set of words, no stemming).
- ``memoryos_f1``: the one of MemoryOS (set of runs of letters, digits and underscores).
- ``bleu1``: NLTK, smoothing method 1. ``rouge_l``: rouge-score, with its stemmer.

Knows nothing of files, banks or models.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from shared_core.errors import ConfigError, MissingExtraError

UNANSWERABLE = ("no information available", "not mentioned")
"""What an output must say to be right about a question of category 5."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the|and)\b")
_SIMPLE = str.maketrans(".,!?", "    ")


def evidence_recall(quoted: Sequence[Collection[str]], evidence: Collection[str]) -> float:
    """Return |evidence quoted by any entry| / |evidence|.

    Args:
        quoted: Ids of the turns that each entry of the context quotes.
        evidence: Ids of the turns that hold the answer.

    Raises:
        ConfigError: There is no evidence, so the share is not defined.
    """
    wanted = set(evidence)
    if not wanted:
        raise ConfigError("a question without evidence has no recall: leave it out")
    return len(wanted & set().union(*quoted)) / len(wanted)


def fitting(tokens: Sequence[int], budget: int) -> int:
    """Return how many entries of a ranking fit a budget: the longest prefix of at most that many tokens.

    The first entry that does not fit ends the context, however short those behind it are: filling the gap
    would reward entries for being small rather than for being ranked well.

    Args:
        tokens: Length of each entry, best first.
        budget: Tokens of context.
    """
    return int(np.searchsorted(np.cumsum(np.asarray(tokens, dtype=np.int64)), budget, side="right"))


def answer_recall(answer: str, context: str) -> float:
    """Return the share of the gold answer's words that occur in the context, normalised and stemmed.

    A repeated word counts once. NaN where the answer has no word.
    """
    gold = set(_official_words(answer))
    return len(gold.intersection(_official_words(context))) / len(gold) if gold else float("nan")


def official_f1(prediction: str, answer: str, category: int) -> float:
    """Return the F1 of LoCoMo's authors.

    Words: commas dropped, lower-cased, punctuation and a|an|the|and dropped, Porter-stemmed; multiset F1.
    Category 1 splits both sides at commas and averages, over the gold parts, the best F1 of any predicted
    part. Category 3 takes the gold answer before ';'. Category 5 is 1 if the output says that there is no
    information, else 0.

    Raises:
        ConfigError: The category is not 1-5.
    """
    if category == 5:
        return float(any(phrase in prediction.lower() for phrase in UNANSWERABLE))
    if category == 1:
        parts = prediction.split(",")
        return float(np.mean([max(_multiset_f1(part, gold) for part in parts) for gold in answer.split(",")]))
    if category == 3:
        return _multiset_f1(prediction, answer.split(";", maxsplit=1)[0])
    if category in {2, 4}:
        return _multiset_f1(prediction, answer)
    raise ConfigError(f"category {category} must be 1 to 5")


def set_f1(prediction: str, answer: str) -> float:
    """Return the F1 of A-MEM and Mem0: over sets of words, '.,!?' read as spaces, lower-cased."""
    return _f1_of_sets(
        set(prediction.lower().translate(_SIMPLE).split()), set(answer.lower().translate(_SIMPLE).split())
    )


def memoryos_f1(prediction: str, answer: str) -> float:
    """Return the F1 of MemoryOS: over sets of runs of letters, digits and underscores, lower-cased."""
    return _f1_of_sets(
        set(re.findall(r"\b\w+\b", prediction.lower())), set(re.findall(r"\b\w+\b", answer.lower()))
    )


def bleu1(prediction: str, answer: str) -> float:
    """Return BLEU-1 with NLTK's smoothing method 1, over NLTK's words, lower-cased.

    Raises:
        MissingExtraError: nltk is not installed.
    """
    try:
        from nltk.tokenize import NLTKWordTokenizer
        from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
    except ImportError:
        raise MissingExtraError("nltk", "eval") from None
    tokenize = NLTKWordTokenizer().tokenize
    gold, said = tokenize(answer.lower()), tokenize(prediction.lower())
    if not gold or not said:
        return 0.0
    score = sentence_bleu([gold], said, weights=(1, 0, 0, 0), smoothing_function=SmoothingFunction().method1)
    return float(score)


def rouge_l(prediction: str, answer: str) -> float:
    """Return the F-measure of ROUGE-L, with rouge-score's stemmer.

    Raises:
        MissingExtraError: rouge-score is not installed.
    """
    return float(_rouge().score(answer, prediction)["rougeL"].fmeasure)


@lru_cache(maxsize=1)
def _rouge() -> Any:
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        raise MissingExtraError("rouge-score", "eval") from None
    return RougeScorer(["rougeL"], use_stemmer=True)


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    try:
        from nltk.stem.porter import PorterStemmer
    except ImportError:
        raise MissingExtraError("nltk", "eval") from None
    return PorterStemmer()


@lru_cache(maxsize=50_000)
def _stem(word: str) -> str:
    return str(_stemmer().stem(word))


def _official_words(text: str) -> list[str]:
    plain = _ARTICLES.sub(" ", text.replace(",", "").lower().translate(_PUNCTUATION))
    return [_stem(word) for word in plain.split()]


def _multiset_f1(prediction: str, answer: str) -> float:
    said, gold = Counter(_official_words(prediction)), Counter(_official_words(answer))
    common = (said & gold).total()
    if not common:
        return 0.0
    return _harmonic(common / said.total(), common / gold.total())


def _f1_of_sets(said: set[str], gold: set[str]) -> float:
    common = len(said & gold)
    return _harmonic(common / len(said), common / len(gold)) if common else 0.0


def _harmonic(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall)
