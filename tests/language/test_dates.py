"""Dates: every definition once, what is ambiguous left alone, and annotation that changes no word."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.language import annotate, resolve_dates

MONDAY = date(2023, 5, 8)
PHRASES = [
    "yesterday", "last Friday", "two weeks ago", "next month", "the week before.", "8 May, 2023", "May 8th",
    "in 2022", "[2023-05]", "2023-05-08", "tomorrow's", " [2023-05-05]", "the day before ", "a year from now",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PHRASES) | st.text(max_size=12), max_size=8).map(" ".join)


def isos(text: str, day: date | None = MONDAY) -> list[str]:
    return [mention.iso for mention in resolve_dates(text, day)]


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("1:56 pm on 8 May, 2023", "2023-05-08"),
        ("2023-05-08", "2023-05-08"),
        ("at 2023-05-08T13:56:00 sharp", "2023-05-08"),
        ("May 8, 2023", "2023-05-08"),
        ("the 8th of May 2023", "2023-05-08"),
        ("8May, 2023", "2023-05-08"),
        ("Sept. 3rd, 2021", "2021-09-03"),
        ("25/12/2022", "2022-12-25"),
        ("12/25/2022", "2022-12-25"),
        ("2022/12/25", "2022-12-25"),
        ("08.05.2023", "2023-05-08"),
        ("in May 2023", "2023-05"),
        ("in 2022", "2022"),
        ("the summer of 2022", "2022"),
        ("the week before 9 June 2023", "2023-05-29/2023-06-04"),
        ("The weekend before 20 October 2023", "2023-10-14/2023-10-15"),
        ("the Friday before 14 August 2022", "2022-08-12"),
        ("the day after 28 February 2023", "2023-03-01"),
        ("2023-05-01/2023-05-07", "2023-05-01/2023-05-07"),
    ],
)
def test_an_absolute_date_needs_no_day(text: str, iso: str) -> None:
    assert isos(text, None) == [iso]
    assert not resolve_dates(text, None)[0].relative


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("today", "2023-05-08"),
        ("this morning", "2023-05-08"),
        ("last night", "2023-05-07"),
        ("yesterday evening", "2023-05-07"),
        ("the day before yesterday", "2023-05-06"),
        ("tomorrow", "2023-05-09"),
        ("last Friday", "2023-05-05"),
        ("last Monday", "2023-05-01"),
        ("this past Friday night", "2023-05-05"),
        ("next Monday", "2023-05-15"),
        ("this Monday", "2023-05-08"),
        ("last week", "2023-05-01/2023-05-07"),
        ("this week", "2023-05-08/2023-05-14"),
        ("last weekend", "2023-05-06/2023-05-07"),
        ("this weekend", "2023-05-13/2023-05-14"),
        ("two weekends ago", "2023-04-29/2023-04-30"),
        ("the week before.", "2023-05-01/2023-05-07"),
        ("the week before last", "2023-04-24/2023-04-30"),
        ("3 days ago", "2023-05-05"),
        ("two weeks ago", "2023-04-24/2023-04-30"),
        ("a month ago", "2023-04"),
        ("ten years ago", "2013"),
        ("two months from now", "2023-07"),
        ("next month", "2023-06"),
        ("last year", "2022"),
        ("last May", "2022-05"),
        ("next May", "2024-05"),
        ("this May", "2023-05"),
        ("last June", "2022-06"),
        ("May 8th", "2023-05-08"),
        ("on December 24", "2022-12-24"),
        ("on 1 September.", "2023-09-01"),
    ],
)
def test_a_relative_date_is_resolved_against_the_day(text: str, iso: str) -> None:
    assert isos(text) == [iso]
    assert resolve_dates(text, MONDAY)[0].relative
    assert isos(text, None) == []


@pytest.mark.parametrize(
    "text",
    [
        "5/8/2023",
        "on Friday",
        "in May",
        "a few weeks ago",
        "over ten years ago",
        "two hundred years ago",
        "half a year ago",
        "2.5 years ago",
        "the last month was hard",
        "last week of May",
        "the day before the exam",
        "it may 5 times",
        "this may help",
        "31 April 2023",
        "2023-13-45",
        "room 2022",
        "9999 years ago",
        "999 years from now and 99 weeks of work",
    ],
)
def test_what_is_ambiguous_or_impossible_is_left_alone(text: str) -> None:
    assert [iso for iso in isos(text) if iso != "3022"] == []


def test_last_friday_said_on_a_friday_is_a_week_ago() -> None:
    assert isos("last Friday", date(2023, 5, 5)) == ["2023-04-28"]
    assert isos("next Friday", date(2023, 5, 5)) == ["2023-05-12"]
    assert isos("last weekend", date(2023, 5, 7)) == ["2023-04-29/2023-04-30"]


@given(st.dates(date(1900, 1, 1), date(2100, 1, 1)), st.integers(0, 6))
def test_last_and_next_weekday_are_the_nearest_on_their_side(day: date, weekday: int) -> None:
    name = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"][weekday]
    last, following = (resolve_dates(f"{side} {name}", day)[0].start for side in ("last", "next"))
    assert last.weekday() == following.weekday() == weekday
    assert timedelta(1) <= day - last <= timedelta(7)
    assert timedelta(1) <= following - day <= timedelta(7)


def test_annotate_appends_what_only_the_day_says() -> None:
    text = "We met last Friday, on 1 May 2023, and yesterday's talk ran late."
    said = annotate(text, MONDAY)
    assert said == (
        "We met last Friday [2023-05-05], on 1 May 2023, and yesterday's [2023-05-07] talk ran late."
    )


def test_a_bracket_outweighs_the_day() -> None:
    assert isos("last Friday [2001-02-02] was fine", MONDAY) == ["2001-02-02"]
    assert isos("last Friday [2001-02-02] was fine", None) == ["2001-02-02"]


def test_a_datetime_counts_as_its_day() -> None:
    assert isos("yesterday", datetime(2023, 5, 8, 13, 56)) == ["2023-05-07"]


@given(TEXTS, st.dates())
def test_mentions_lie_in_the_text_in_order(text: str, day: date) -> None:
    at = 0
    for mention in resolve_dates(text, day):
        start, end = mention.span
        assert at <= start < end <= len(text)
        assert mention.text == text[start:end]
        assert mention.start <= mention.end
        at = end


@given(TEXTS, st.dates())
def test_annotate_keeps_the_text_and_is_idempotent(text: str, day: date) -> None:
    said = annotate(text, day)
    remaining = iter(said)
    assert all(character in remaining for character in text)
    assert annotate(said, day) == said
    assert annotate(said, MONDAY) == said or isos(text, day) != isos(text, MONDAY)
