"""Formats the numbers of the answers for people, and their differences with a sign."""

from collections.abc import Callable
from datetime import datetime, timedelta

from iris.model.units import format_duration
from iris.usage.report import LEAST_HOURS

#: A function that formats a number for people.
Form = Callable[[float], str]
#: The text that is shown for a number that does not exist, such as a cost without prices.
NO_VALUE = "-"


def seconds(value: float) -> str:
    """Returns a duration: `1h 30m`. Less than a millisecond is nothing."""
    return format_duration(timedelta(seconds=value if value >= 0.0005 else 0))


def count(value: float) -> str:
    """Returns a count, or a mean of counts with one decimal: `1,200`, `2.5`."""
    return f"{value:,.1f}".removesuffix(".0")


def hours(value: float) -> str:
    return f"{value:,.1f}" if value >= LEAST_HOURS or value == 0 else "<0.1"


def money(value: float) -> str:
    return f"{value:,.2f}"


def percent(value: float) -> str:
    """Returns a part of 1 as a percentage."""
    return f"{value:.0%}"


def _points(value: float) -> str:
    number = f"{100 * value:.0f}"
    return f"{number} point{'' if number == '1' else 's'}"


def difference(value: float, form: Form) -> str:
    """Returns a difference with its sign, or `0` if it would be shown as nothing."""
    text = (_points if form is percent else form)(abs(value))
    if text in (form(0.0), _points(0.0)):
        return "0"
    return f"{'-' if value < 0 else '+'}{text}"


def moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"
