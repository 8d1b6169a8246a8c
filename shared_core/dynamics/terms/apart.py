"""Texts that repeat their value: request and answer in one, as many stores keep them.

Does: takes the value out of the text again, so that a diagnosis sees the request alone and the payload is new
to it.

Does not know: embeddings, terms.

Source: none, ours [O].
"""

from __future__ import annotations

from collections.abc import Sequence

LEAST_WORDS = 3
"""Of a value that is taken out, and of what is left: fewer are there by chance, or are no request [O]."""


def requests_alone(keys: Sequence[str], values: Sequence[str]) -> dict[int, str]:
    """Return, by row, the texts that hold their whole value word for word, without it.

    Args:
        keys: N texts.
        values: N values, "" where a memory has none.
    """
    found = {}
    for row, (key, value) in enumerate(zip(keys, values, strict=True)):
        # compared word by word, since stores join and wrap lines as they like
        said = value.split()
        if len(said) < LEAST_WORDS or len(said) + LEAST_WORDS > len(key.split()):
            continue
        before, held, after = f" {' '.join(key.split())} ".partition(f" {' '.join(said)} ")
        left = f"{before} {after}".split()
        if held and len(left) >= LEAST_WORDS:
            found[row] = " ".join(left)
    return found
