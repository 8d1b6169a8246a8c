"""What kind of thing a question asks for, by its words.

Source: MemDream counts query types [S]; the six kinds and their words are ours [O].
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from shared_core.agents.protocol import QueryType

_ASKED: Mapping[QueryType, re.Pattern[str]] = {
    "who": re.compile(r"\bwho(?:m|se)?\b"),
    "when": re.compile(r"\bwhen\b|\b(?:what|which) (?:date|day|month|year|week|time)\b|\bhow long ago\b"),
    "number": re.compile(
        r"\bhow (?:many|much|old|often|long(?! ago))\b|\b(?:what|which) (?:number|age|price)\b"
    ),
    "name": re.compile(r"\b(?:what|which) (?:is the )?name\b|\bnamed?\b|\bcalled\b"),
}
"""How a question of each kind is put [O]; the others ask for a fact."""


def asked_type(question: str, targets: int = 1) -> QueryType:
    """Return the kind of a question by its question word; two targets make it a bridge [O].

    Args:
        question: In English; others count as asking for a fact.
        targets: How many memories it needs.
    """
    if targets > 1:
        return "bridge"
    words = question.casefold()
    found = [(match.start(), kind) for kind, form in _ASKED.items() if (match := form.search(words))]
    return min(found)[1] if found else "fact"
