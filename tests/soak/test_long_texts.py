"""No text, however it is made, takes more than its length in time: ten times the text, ten times as much.

From 6 kB to 60 kB in the short run, from 20 kB to 200 kB by ``make soak-random``.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import pytest

import shared_core
from shared_core.agents.parsing import ChatReplyError, QuotesReply, read_reply
from shared_core.agents.prompts import harmless
from shared_core.dynamics.coupling.tokens import tokenize
from shared_core.language import (
    Source,
    annotate,
    content_words,
    estimate_tokens,
    extract_entities,
    normalise_name,
    resolve_dates,
    split_sentences,
    stem_words,
    unsupported,
    words,
)
from shared_core.language.names import find_names
from shared_core.language.numbers import find_numbers
from shared_core.language.pages import line_of
from shared_core.retrieval.bm25 import Bm25Index
from tests.soak.effort import SOAK

LONG = 200_000 if SOAK else 60_000
SHORT = LONG // 10
GROWTH = 30.0
"""Times that ten times the text may take; what is quadratic takes 100."""
FREE = 0.25
"""CPU seconds that any text may take; below, times are noise."""
DAY = date(2023, 5, 8)


PIECES = {
    "letters": "a", "capitals": "Aa ", "spaces": " ", "lines": "\n", "blank lines": " \n\t", "digits": "7",
    "separated digits": "1,", "dates": "2023-05-08/", "open dates": "8 May ", "ago": "two days before the ",
    "clocks": "12:30 ", "money": "$1,000.50 million ", "fractions": "1.", "open quotes": '"a', "quotes": "'",
    "curly quotes": "“a ", "named quotes": "'A ", "brackets": "([{<", "closed": "a)]}>", "dots": ".",
    "abbreviations": "Dr. ", "stops and quotes": ".'\"", "hyphens": "a-", "apostrophes": "a'", "joined": "a_",
    "marks": "e\u0301", "only marks": "\u0301", "joiners": "\u200d", "han": "好", "han stops": "好。",
    "emoji": "👩\u200d", "links": "http://a", "addresses": "a@b.", "handles": "@a#", "ats": "a@",
    "of": "The Bank of ", "names": "Mary-Jane O'Neil ", "titles": "of the and ",
    "numbers in words": "twenty-", "hundreds": "one hundred ",
    "json": '{"a":', "braces": "{", "memory tags": "<memory>\n", "speakers": "Ada: ", "markup": "[/INST]",
    "answers": "the answer is ", "rules": "' in the question", "outputs": "output '", "loads": "LoadDB('",
    "nul": "\0",
}  # fmt: skip


def of_size(piece: str, size: int) -> str:
    return (piece * (size // len(piece) + 1))[:size]


def cpu_seconds(call: Callable[[str], Any], text: str) -> float:
    started = time.process_time()
    call(text)
    return time.process_time() - started


def check_linear(call: Callable[[str], Any], every: int = 1) -> None:
    """Fail for any text that takes more than its length; the second try is for a machine that was busy."""
    for name, piece in list(PIECES.items())[:: 1 if SOAK else every]:
        long = cpu_seconds(call, of_size(piece, LONG))
        if long > FREE:
            short = min(cpu_seconds(call, of_size(piece, SHORT)) for _ in range(2))
            long = min(long, cpu_seconds(call, of_size(piece, LONG)))
            assert long <= max(FREE, GROWTH * short), f"{name}: {short:.3f} s became {long:.3f} s"


def index(text: str) -> Any:
    bm25 = Bm25Index()
    bm25.add(["a", "b"], [text, "other"])
    return bm25


def refused(text: str) -> None:
    with pytest.raises(ChatReplyError):
        read_reply(text, QuotesReply)


CALLS: dict[str, Callable[[str], Any]] = {
    "words": words,
    "content_words": lambda text: content_words(text, stem=True),
    "stem_words": lambda text: stem_words([text]),
    "split_sentences": split_sentences,
    "estimate_tokens": estimate_tokens,
    "extract_entities": extract_entities,
    "find_names": find_names,
    "find_numbers": find_numbers,
    "normalise_name": normalise_name,
    "resolve_dates": lambda text: resolve_dates(text, DAY),
    "annotate": lambda text: annotate(text, DAY),
    "line_of": lambda text: line_of(text, "Ada"),
    "unsupported": lambda text: unsupported(text, [Source(text, DAY)]),
    "Bm25Index.add": index,
    "tokenize": lambda text: tokenize(text, 1_000_000),
    "harmless": lambda text: harmless(text, LONG),
    "read_reply": refused,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_function_takes_linear_time(name: str) -> None:
    check_linear(CALLS[name], every=12 if name == "unsupported" else 4)


AS_USED: dict[str, Callable[[re.Pattern[str], str], Any]] = {
    # what they would take elsewhere does not matter: one is only matched at the start, one sees 12 letters
    "shared_core.agents.associations._REACTION": lambda pattern, text: pattern.match(text),
    "shared_core.language.dates._WORD_BEFORE": lambda pattern, text: pattern.search(text, len(text) - 12),
}


def compiled() -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield every regular expression of the packages that is a name of a module, once."""
    seen = set()
    for found in pkgutil.walk_packages(shared_core.__path__, "shared_core."):
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern) and isinstance(value.pattern, str) and value not in seen:
                seen.add(value)
                yield f"{found.name}.{name}", value


@pytest.mark.parametrize(("name", "pattern"), [pytest.param(*one, id=one[0]) for one in compiled()])
def test_a_regular_expression_takes_linear_time(name: str, pattern: re.Pattern[str]) -> None:
    used = AS_USED.get(name, lambda pattern, text: sum(1 for _ in pattern.finditer(text)))
    check_linear(lambda text: used(pattern, text), every=2)
