"""Entities: what is found, what is not, and that nothing hostile hurts."""

from __future__ import annotations

import importlib.util
import time
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.errors import MissingExtraError
from shared_core.language import (
    EntityExtractor,
    RuleExtractor,
    SpacyExtractor,
    extract_entities,
    fold_plural,
    normalise_name,
)


def norms(text: str, kind: str, **options: object) -> set[str]:
    return {e.norm for e in extract_entities(text, **options) if e.kind == kind}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("We saw Ada Lovelace in the University of the Arts.", {"ada lovelace", "university of the arts"}),
        ("Hi Priya! Thanks, Tom. I met Priya's aunt on Monday in May.", {"priya", "tom"}),
        ("NASA hired Dr. Okoro from the U.K. last year", {"nasa", "okoro", "u.k"}),
        ("Priya and Tom came.", {"priya", "tom"}),
        ("Visiting Paris was lovely. Painting helps.", {"paris"}),
        ("Zainab said so.", {"zainab"}),
        ("Zainab came. I like Zainab.", {"zainab"}),
        ("Zainab came.", set()),
        ("Zainab: hello there\nUser: Nice", {"zainab"}),
        ("I LOVE THIS SO MUCH and it is the BEST", set()),
        ("We met Анна Петрова there", {"анна петрова"}),
        ("After Black Friday we rest", {"black friday"}),
    ],
)
def test_names(text: str, expected: set[str]) -> None:
    assert norms(text, "name") == expected


def test_a_speaker_and_known_names_count_where_they_open_a_sentence() -> None:
    assert norms("Zainab came.", "name", speaker="Zainab") == {"zainab"}
    assert norms("Zainab came.", "name", known_names=["Zainab"]) == {"zainab"}


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("5km or 5 kilometers", "number", {"5 km"}),
        ("$1,000, 1000 dollars, 1000 USD and US$2.50", "money", {"usd 1000", "usd 2.5"}),
        ("$5 million and 3 million euros", "money", {"usd 5000000", "eur 3000000"}),
        ("two weeks, twenty-five miles", "number", {"2 week", "25 mile"}),
        ("20% off, the 3rd time, 24/7", "number", {"20 percent", "3rd", "24/7"}),
        ("at 1:56 pm, 7am and 13:56", "number", {"13:56", "07:00"}),
        ("٣ cats", "number", {"3"}),
        ("that one has two", "number", set()),
        ('She read "The  Sea" and ‘Blue Moon’', "quote", {"the sea", "blue moon"}),
        ("don't you think it's the kids' fault", "quote", set()),
        ("mail @ada_l or a.b@example.org, see https://example.org/x?y=1.", "handle", {"@ada_l"}),
        (
            "mail a.b@example.org, see https://example.org/x.",
            "link",
            {"a.b@example.org", "https://example.org/x"},
        ),
        ("on 8 May 2023 and yesterday", "date", {"2023-05-08"}),
    ],
)
def test_other_kinds(text: str, kind: str, expected: set[str]) -> None:
    assert norms(text, kind) == expected


def test_relative_dates_need_the_day() -> None:
    assert norms("yesterday", "date", day=date(2023, 5, 8)) == {"2023-05-07"}
    day = date(2023, 5, 8)
    assert RuleExtractor(day=day)("yesterday") == extract_entities("yesterday", day=day)


def test_concepts_are_asked_for_and_folded() -> None:
    text = "I really love pottery classes and my two dogs, Priya"
    assert norms(text, "concept") == set()
    assert norms(text, "concept", concepts=True) == {"pottery", "class", "dog"}


def test_forms() -> None:
    words = ["parties", "boxes", "dogs", "glass", "bus"]
    assert [fold_plural(w) for w in words] == ["party", "box", "dog", "glass", "bus"]
    assert normalise_name("the Dr. O’Neil's") == "o'neil"


@given(st.text() | st.text(alphabet="Aa .'\"@#$1,:-\n&中"))
def test_any_text_gives_well_formed_entities(text: str) -> None:
    found = extract_entities(text, speaker=text[:9], day=date(2023, 5, 8), concepts=True)
    assert all(e.norm and e.text for e in found)
    assert len({(e.kind, e.norm) for e in found}) == len(found)
    assert found == extract_entities(text, speaker=text[:9], day=date(2023, 5, 8), concepts=True)


@pytest.mark.parametrize(
    "unit",
    ["a", "A", "1", "Aa ", "A.", "1,000", "\x00", "😀", "中", "@", "#1", '"', "'A", "of the ", "May ",
     "last week ", "http://", "a-", "The of ", "1/", "\ud800", "A:\n", "AB ", "e\u0301", "twenty "],
)  # fmt: skip
def test_hostile_text_takes_linear_time(unit: str) -> None:
    small, large = unit * (10_000 // len(unit)), unit * (40_000 // len(unit))

    def fastest(text: str) -> float:
        # of several: the collector of a large test process runs when it likes
        seconds = []
        for _ in range(4):
            started = time.process_time()
            extract_entities(text, day=date(2023, 5, 8), concepts=True)
            seconds.append(time.process_time() - started)
        return min(seconds)

    # four times the text; quadratic work would take sixteen times as long
    assert fastest(large) < 9 * fastest(small) + 0.25


def test_every_extractor_fits_the_protocol() -> None:
    assert isinstance(RuleExtractor(), EntityExtractor)


@pytest.mark.skipif(importlib.util.find_spec("spacy") is not None, reason="spaCy is installed")
def test_without_spacy_the_extra_is_named() -> None:
    with pytest.raises(MissingExtraError, match=r"dream-memory\[spacy\]"):
        SpacyExtractor(lambda text: text)


@pytest.mark.skipif(importlib.util.find_spec("spacy") is None, reason="spaCy is not installed")
def test_spacy_gives_the_names() -> None:
    import spacy

    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": "zainab"}])
    extractor = SpacyExtractor(nlp)
    assert isinstance(extractor, EntityExtractor)
    assert {(e.kind, e.norm) for e in extractor("zainab ran 5 km")} == {
        ("name", "zainab"),
        ("number", "5 km"),
    }
