"""Entities are searched for once per text, speaker, day and set of known names, and never mixed up."""

from __future__ import annotations

from datetime import date, datetime, timezone
from itertools import product

import pytest

from shared_core.bank import entity_cache
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.bank.entity_cache import EntityCache
from shared_core.bank.graph import read_graph
from shared_core.language import RuleExtractor
from tests.conftest import OpenBank
from tests.retrieval.test_associative_changes import Hashed

TEXTS = ("rex came yesterday", "Rex and Ada paid 20 dollars", "", "\ud800 broken", "Ada")
DAYS = (None, date(2023, 5, 8), date(2024, 1, 1))
NAMES: tuple[set[str], ...] = (set(), {"Rex"}, {"Ada", "Rex"})


def test_remembered_is_what_the_rules_find() -> None:
    cache = EntityCache()
    for _ in range(2):
        for names, text, speaker, day in product(NAMES, TEXTS, (None, "", "Ada"), DAYS):
            extract = RuleExtractor(day=day, known_names=names)
            expected = tuple(sorted({entity.norm for entity in extract(text, speaker=speaker)}))
            assert cache.reading(names).norms(text, speaker, day) == expected
    assert len(cache) == len(NAMES) * len(TEXTS) * 3 * len(DAYS)


def test_what_was_used_longest_ago_makes_room() -> None:
    cache = EntityCache(entries=2)
    cache.put(b"a", ("a",))
    cache.put(b"b", ("b",))
    assert cache.get(b"a") == ("a",)
    cache.put(b"c", ("c",))
    assert (cache.get(b"a"), cache.get(b"b"), cache.get(b"c")) == (("a",), None, ("c",))


def test_a_graph_searches_only_in_what_is_new(open_bank: OpenBank, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Counting(RuleExtractor):
        def __call__(self, text: str, *, speaker: str | None = None) -> frozenset:  # type: ignore[type-arg]
            seen.append(text)
            return super().__call__(text, speaker=speaker)

    monkeypatch.setattr(entity_cache, "RuleExtractor", Counting)
    bank = open_bank(embedder=Hashed())
    memory = ConversationMemory(bank)
    when = datetime(2023, 5, 8, tzinfo=timezone.utc)
    page = {"session": "only here", "speaker": "Zenobia", "time": when}
    memory.add_pages([Page(text=f"Palmyra {n} lies in the desert of Tadmor", **page) for n in range(5)])  # type: ignore[arg-type]
    first = read_graph(bank)
    assert seen == []  # who does not ask for entities does not wait for them
    assert "tadmor" in first.entities.of(0)
    assert len(seen) == 5
    assert read_graph(bank).entities.of(3) == first.entities.of(3)
    assert len(seen) == 5
    memory.add_pages([Page(text="Zenobia rode to Antioch", **page)])  # type: ignore[arg-type]
    assert "antioch" in read_graph(bank).entities.of(5)
    assert len(seen) == 6
    own = read_graph(bank, extractor=Counting())
    assert len(own.entities) == 6
    assert len(seen) == 12
