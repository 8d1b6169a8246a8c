"""What a relative date means: calendar arithmetic from a known day.

Every function takes the day on which something was said and returns a :class:`Period`. The definitions are
ours [O], chosen to be literal and symmetric; all weeks run from Monday to Sunday (ISO 8601):

- "last Friday" is the latest Friday strictly before the day, "next Friday" the first strictly after it,
  "this Friday" the first on or after it. Said on a Friday, "last Friday" is seven days ago.
- "last week" is the week before the one that holds the day; "last weekend" is that week's Saturday and
  Sunday, also when said on a Sunday. "this weekend" is the end of the week that holds the day.
- "last May" is the latest May before the day's month, "next May" the first after it, "this May" the one in
  the day's year.
- "N days ago" is a day; "N weeks ago" is the week that holds the day 7·N days back; "N months ago" and
  "N years ago" are that calendar month and year. So a vaguer unit never yields a single day.
- "8 May" without a year is the one nearest to the day.

Arithmetic on months and years is dateutil's relativedelta. Years outside 1 to 9999 raise, as there.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import Literal, NamedTuple

from dateutil.relativedelta import relativedelta
from dateutil.relativedelta import weekday as nth_weekday

Granularity = Literal["day", "weekend", "week", "month", "year"]
Unit = Literal["day", "weekend", "week", "month", "year"]


class Period(NamedTuple):
    """A stretch of whole days, both ends included."""

    granularity: Granularity
    start: date
    end: date


def day_period(day: date) -> Period:
    """Return the day itself."""
    return Period("day", day, day)


def week_of(day: date) -> Period:
    """Return the week, Monday to Sunday, that holds the day."""
    monday = day - timedelta(days=day.weekday())
    return Period("week", monday, monday + timedelta(days=6))


def weekend_of(day: date) -> Period:
    """Return Saturday and Sunday of the week that holds the day."""
    sunday = week_of(day).end
    return Period("weekend", sunday - timedelta(days=1), sunday)


def month_of(day: date) -> Period:
    """Return the calendar month that holds the day."""
    return Period("month", day + relativedelta(day=1), day + relativedelta(day=31))


def year_of(day: date) -> Period:
    """Return the calendar year that holds the day."""
    return Period("year", date(day.year, 1, 1), date(day.year, 12, 31))


_HOLDING = {"day": day_period, "week": week_of, "weekend": weekend_of, "month": month_of, "year": year_of}
_STEPS = {"day": "days", "week": "weeks", "weekend": "weeks", "month": "months", "year": "years"}


def shifted(day: date, unit: Unit, count: int) -> Period:
    """Return the unit that holds the day ``count`` units later (earlier where negative)."""
    return _HOLDING[unit](day + relativedelta(**{_STEPS[unit]: count}))


def weekday_near(day: date, weekday: int, side: int) -> Period:
    """Return the nearest given weekday before (-1), on or after (0), or after (1) the day; Monday is 0."""
    if side < 0:
        return day_period(day + relativedelta(days=-1, weekday=nth_weekday(weekday, -1)))
    return day_period(day + relativedelta(days=side, weekday=nth_weekday(weekday, 1)))


def month_near(day: date, month: int, side: int) -> Period:
    """Return the given month last before (-1), in the year of (0), or first after (1) the day's month."""
    year = day.year
    if side < 0:
        year -= month >= day.month
    elif side > 0:
        year += month <= day.month
    return month_of(date(year, month, 1))


def nearest_year(day: date, month: int, number: int) -> Period | None:
    """Return the day of that month and number nearest to the day, the earlier of two."""
    found = []
    for year in (day.year - 1, day.year, day.year + 1):
        try:
            found.append(date(year, month, number))
        except ValueError:
            continue
    return day_period(min(found, key=lambda one: abs(one - day))) if found else None
