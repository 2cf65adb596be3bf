"""Parses cron expressions as Temporal does: the values that an expression names, whether it ever
matches, and what a change of the clock means for it.

Temporal evaluates an expression in a time zone. When the clock is set back, one hour occurs twice,
and Temporal does not treat all zones and expressions alike (decision 140 in
`docs/decisions/temporal.md`).
"""

import calendar
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_DAYS = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"]
_SHORTCUTS = {
    **dict.fromkeys(("@yearly", "@annually"), "0 0 1 1 *"),
    **dict.fromkeys(("@daily", "@midnight"), "0 0 * * *"),
    **{"@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0", "@hourly": "0 * * * *"},
}
#: The years that Temporal accepts in the times of a schedule.
_YEARS = range(2000, 2101)


class Cron(NamedTuple):
    """The values that a cron expression allows for each field. A time matches if all fields match.
    In the original cron, either the day of the month or the weekday must match; here both must
    match.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    #: The weekdays, numbered from 0 for Sunday.
    weekdays: frozenset[int]
    years: frozenset[int]

    @property
    def is_possible(self) -> bool:
        """Returns whether any day of the calendar matches."""
        return any(
            (calendar.weekday(year, month, day) + 1) % 7 in self.weekdays
            for year in self.years
            for month in self.months
            for day in self.days
            if day <= calendar.monthrange(year, month)[1]
        )

    @property
    def is_of_every_hour(self) -> bool:
        """Returns whether the expression names minutes of every hour of every day, such as `*/15 *
        * * *`.
        """
        return [len(values) for values in self[1:]] == [24, 31, 12, 7, len(_YEARS)]


class Excluded(NamedTuple):
    """Times of the day at which no cron expression of a schedule matches: every time whose hour is
    in `hours` and whose minute is in `minutes`.
    """

    hours: tuple[int, ...]
    minutes: tuple[int, ...]


def parse_cron(text: str) -> Cron | None:
    """Parses an expression. Returns None for an interval (`@every`), and for an invalid expression,
    which Temporal reports itself.
    """
    fields = _SHORTCUTS.get(text.strip(), text).partition("#")[0].split()
    match len(fields):
        case 5:
            fields = [*fields, "*"]
        case 7:
            fields = fields[1:]  # the first field has the seconds
        case 6:
            pass
        case _:
            return None
    minute, hour, day, month, weekday, year = fields
    try:
        return Cron(
            minutes=_values(minute, range(60)),
            hours=_values(hour, range(24)),
            days=_values(day, range(1, 32)),
            months=_values(month, range(1, 13), _MONTHS, first=1),
            weekdays=frozenset(each % 7 for each in _values(weekday, range(8), _DAYS)),
            years=_values(year, _YEARS),
        )
    except ValueError:
        return None


def is_interval(text: str) -> bool:
    """Returns whether the expression is an interval, such as `@every 6h`."""
    return text.strip().startswith("@every")


def names_several_seconds(text: str) -> bool:
    """Returns whether the expression has a field for seconds that is not a single number."""
    fields = text.partition("#")[0].split()
    return len(fields) == 7 and not fields[0].isdecimal()


def excluded(crons: Sequence[Cron]) -> list[Excluded]:
    """Returns the times of the day that none of the expressions matches."""
    by_hour = {
        hour: frozenset[int]().union(*(each.minutes for each in crons if hour in each.hours))
        for hour in range(24)
    }
    hours_by_minutes: dict[frozenset[int], list[int]] = {}
    for hour, minutes in by_hour.items():
        hours_by_minutes.setdefault(frozenset(range(60)) - minutes, []).append(hour)
    return [
        Excluded(tuple(hours), tuple(sorted(rest)))
        for rest, hours in hours_by_minutes.items()
        if rest
    ]


def is_in_whole_hours(zone: tzinfo, since: datetime) -> bool:
    """Returns whether the zone differs from UTC by whole hours, in each month of the ten years
    after `since`.
    """
    times = (since + timedelta(days=30 * month) for month in range(122))
    return not any(
        (time.astimezone(zone).utcoffset() or timedelta()) % timedelta(hours=1) for time in times
    )


def zone_of(name: str) -> tzinfo | None:
    """Returns the time zone of this name, or None if this machine does not have it."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return None


def comes_again(time: datetime, zone: tzinfo) -> bool:
    """Returns whether Temporal starts a second run when the clock shows this time again.

    In zones west of Greenwich, Temporal starts a run in each of the two hours; in other zones, in
    only one of them.
    """
    local = time.astimezone(zone)
    again = local.replace(fold=1).utcoffset()
    return (
        local.fold == 0 and again is not None and again != local.utcoffset() and again < timedelta()
    )


def _values(
    text: str, known: range, words: Sequence[str] = (), *, first: int = 0
) -> frozenset[int]:
    """Returns the values of a field, such as `*`, `5`, `1-5`, `MON-FRI`, `*/15`, `3/5` or several
    of these, separated by commas. Raises ValueError if the field is invalid.
    """
    found: set[int] = set()
    for part in text.split(","):
        values, slash, step = part.partition("/")
        low, dash, high = values.partition("-")
        if values == "*":
            start, end = known[0], known[-1]
        else:
            start = _value(low, known, words, first)
            end = _value(high, known, words, first) if dash else known[-1] if slash else start
        if end < start or (slash and int(step) < 1):
            raise ValueError(part)
        found.update(range(start, end + 1, int(step) if slash else 1))
    return frozenset(found)


def _value(text: str, known: range, words: Iterable[str], first: int) -> int:
    named: Mapping[str, int] = {word: number for number, word in enumerate(words, start=first)}
    shortest = 3 if first else 2
    alike = [
        number
        for word, number in named.items()
        if len(text) >= shortest and word.startswith(text.lower())
    ]
    value = alike[0] if alike else int(text)
    if value not in known:
        raise ValueError(text)
    return value
