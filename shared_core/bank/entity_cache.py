"""Remembers which entities the rules found in a text, so that reading a graph again does not search again.

What the rules find follows from the text, its speaker, its day and the known names; that is what is filed,
as a digest, and no text is kept. Bounded: the entry that was used longest ago makes room. Nothing is ever
out of date, because another text has another digest.

Source: none, ours [O].
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Collection
from datetime import date

from shared_core.language import RuleExtractor

ENTRIES = 65_536
"""Texts that are remembered, of all banks of this process together; a few hundred bytes each."""


class EntityCache:
    """Norms of entities by digest; safe for threads.

    Args:
        entries: How many texts are remembered.
    """

    def __init__(self, entries: int = ENTRIES) -> None:
        self._entries = entries
        self._found: OrderedDict[bytes, tuple[str, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._found)

    def reading(self, names: Collection[str]) -> RememberedRules:
        """Return the rules with these known names, which ask the cache first."""
        return RememberedRules(self, names)

    def get(self, key: bytes) -> tuple[str, ...] | None:
        """Return what is filed under a digest."""
        with self._lock:
            if (found := self._found.get(key)) is not None:
                self._found.move_to_end(key)
            return found

    def put(self, key: bytes, found: tuple[str, ...]) -> None:
        """File what the rules found."""
        with self._lock:
            self._found[key] = found
            self._found.move_to_end(key)
            while len(self._found) > self._entries:
                self._found.popitem(last=False)


class RememberedRules:
    """The rules with known names, over a cache."""

    def __init__(self, cache: EntityCache, names: Collection[str]) -> None:
        self._cache = cache
        self._names = frozenset(names)
        self._start = hashlib.blake2b(_framed(*sorted(names)), digest_size=16).digest()

    def norms(self, text: str, speaker: str | None, day: date | None) -> tuple[str, ...]:
        """Return the entities of a text by norm, each once, in order.

        Args:
            text: The text.
            speaker: Who said it.
            day: When.
        """
        said = _framed(text, "" if day is None else day.isoformat(), *(() if speaker is None else (speaker,)))
        key = hashlib.blake2b(self._start + said, digest_size=16).digest()
        found = self._cache.get(key)
        if found is None:
            extract = RuleExtractor(day=day, known_names=self._names)
            found = tuple(sorted({entity.norm for entity in extract(text, speaker=speaker)}))
            self._cache.put(key, found)
        return found


def _framed(*parts: str) -> bytes:
    """Join texts so that no two lists give the same bytes."""
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    return b"".join(len(part).to_bytes(8, "big") + part for part in encoded)


RULES = EntityCache()
"""The process's own: what the rules find is the same in every bank."""
