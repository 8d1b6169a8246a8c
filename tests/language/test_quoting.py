"""The guard: verbatim text passes, invented names, numbers and dates do not."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.language import Source, annotate, unsupported

DAY = date(2023, 5, 8)
SOURCES = [
    Source("Hey Tom! I ran 5 miles with Zainab last Friday, it cost $20.", day=DAY, speaker="Priya"),
    Source("Cool! I painted two boats at 7 am. Read \"Blue Moon\" in June 2022.", day=DAY, speaker="Tom"),
]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "Priya ran 5 miles with Zainab on 5 May 2023.",
        "Priya ran 5mi last Friday [2023-05-05] for 20 dollars.",
        "In May 2023 Zainab and Priya ran.",
        "Painting 2 boats is what Tom does.",
        'Tom read "blue moon" in 2022, at 07:00.',
        "Priya said on 8 May 2023 that she ran last Friday.",
        "On Friday they ran.",
        "Additionally, they ran.",
    ],
)
def test_what_the_sources_say_passes(text: str) -> None:
    assert unsupported(text, SOURCES) == []


@pytest.mark.parametrize(
    ("text", "kind", "norm"),
    [
        ("Priya ran with Bilal.", "name", "bilal"),
        ("Bilal went to the sea.", "name", "bilal"),
        ("Priya Okoro ran.", "name", "priya okoro"),
        ("She moved to New Oslo.", "name", "new oslo"),
        ("Running with Bilal is fun.", "name", "bilal"),
        ("Priya ran 6 miles.", "number", "6 mile"),
        ("Priya ran 5 km.", "number", "5 km"),
        ("Tom painted three boats.", "number", "3"),
        ("It cost $200.", "money", "usd 200"),
        ("At 8 am Tom painted.", "number", "08:00"),
        ("They ran on 6 May 2023.", "date", "2023-05-06"),
        ("They ran last Friday [2023-04-28].", "date", "2023-04-28"),
        ("They ran yesterday.", "date", "yesterday"),
        ("In June 2021 Tom read.", "date", "2021-06"),
        ("He read on 3 June 2022.", "date", "2022-06-03"),
        ("They ran on a Tuesday.", "date", "tuesday"),
        ("They ran every August of their lives.", "date", "august"),
        ('Tom read "Red Moon".', "quote", "red moon"),
        ("Write to tom@example.org", "link", "tom@example.org"),
    ],
)
def test_what_is_invented_is_named(text: str, kind: str, norm: str) -> None:
    assert (kind, norm) in {(e.kind, e.norm) for e in unsupported(text, SOURCES)}


def test_the_derived_texts_own_day_resolves_its_dates() -> None:
    assert unsupported("They ran yesterday.", SOURCES, day=date(2023, 5, 6)) == []
    assert unsupported("They ran yesterday.", SOURCES, day=date(2023, 5, 7)) != []


def test_a_source_without_a_day_supports_no_resolved_date() -> None:
    assert unsupported("On 5 May 2023 we ran.", ["we ran last Friday"]) != []


PIECES = [
    "Zainab",
    "last Friday",
    "5 miles",
    "$3",
    "in 2022",
    "May 8th",
    '"Blue Moon"',
    "On",
    "two",
    "7 am.",
    "@ab",
]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=8).map(" ".join))
def test_a_verbatim_or_annotated_quote_always_passes(text: str) -> None:
    assert unsupported(text, [text]) == []
    assert unsupported(annotate(text, DAY), [Source(text, day=DAY)]) == []


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("In May 2023 they met.", []),
        ("In June 2023 they met.", ["June 2023"]),
        ("They met on a Monday, in the year 2022.", ["2022"]),
        ("They met on a Sunday.", ["Sunday"]),
    ],
)
def test_a_date_must_hold_one_of_many_of_the_sources(text: str, missing: list[str]) -> None:
    source = "On 8 May 2023, in 1999, from 2 March 2024 on, and in December 2021."
    assert [one.text for one in unsupported(text, [source])] == missing
