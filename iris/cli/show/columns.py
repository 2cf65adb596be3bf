"""Describes one column of a table, which is also one key of the JSON, and formats its cells."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from pydantic_core import to_jsonable_python

from iris.model.units import format_duration

Row = TypeVar("Row")

#: The default of `Column.least`: the minimum width, in characters, to which a table with one line
#: for each row may cut the cells of a wrapping column.
CUT_TO = 12
#: The number of spaces between two columns.
GAP = 2
#: The values that count as absent: their cells show `Column.absent`.
ABSENT: tuple[Any, ...] = (None, "", (), [], {})
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+")


def plain(text: str) -> str:
    """Returns a text without line breaks, other control characters and marks of direction."""
    return _CONTROL.sub(" ", text)


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column of a table, one key of the JSON, or both."""

    #: The heading of the column in the table. A column without a heading is only in the JSON.
    header: str = ""
    #: The key of the column in the JSON. A column without a key is only in the table.
    key: str = ""
    #: A function that returns the column's value of a row. By default the value is the row's
    #: attribute `key`.
    value: Callable[[Row], Any] | None = None
    #: A function that converts a value for the table. It is not called for absent values. Its
    #: result is a text, a number, a bool, a time (the table shows its age), a duration, or a
    #: sequence of texts.
    text: Callable[[Any], Any] | None = None
    #: A function that converts a value for the JSON.
    json: Callable[[Any], Any] = to_jsonable_python
    #: The text that the table shows for None, an empty text or an empty collection.
    absent: str = "-"
    #: True if a cell may be broken into several lines in a narrow terminal. A table with one line
    #: for each row cuts the cell's end instead.
    wraps: bool = False
    #: True if the middle of a cell may be cut out in a narrow terminal. It is meant for ids,
    #: whose ends differ.
    shortens: bool = False
    #: True if the table omits the column when no row has a value, or when the terminal is too
    #: narrow.
    optional: bool = False
    #: The order in which optional columns disappear if the terminal is too narrow for all columns:
    #: the column with the lowest number first, and the left one of two with the same number.
    importance: int = 0
    #: The minimum width of the column, in characters, in a table that cuts long cells instead of
    #: wrapping them. It has an effect only if `wraps` is true.
    least: int = CUT_TO

    def of(self, row: Row) -> Any:
        """Returns the value of a row."""
        return getattr(row, self.key) if self.value is None else self.value(row)

    def cell(self, row: Row, now: datetime) -> str:
        """Returns the text of a row's cell, without line breaks and other control characters."""
        value = self.of(row)
        if self.text is not None and value not in ABSENT:
            value = self.text(value)
        return self.absent if value in ABSENT else plain(_text(value, now))


def age(then: datetime, now: datetime) -> str:
    return format_duration(max(timedelta(0), now - then))


def several(texts: Sequence[str], most: int = 3) -> str:
    """Returns the first texts, and the number of the others: `a, b, c and 2 more`."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def _text(value: Any, now: datetime) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return age(value, now)
    if isinstance(value, timedelta):
        return format_duration(value)
    return ", ".join(value) if isinstance(value, tuple | list) else str(value)
