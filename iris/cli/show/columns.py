"""Describes one column of a table, which is also one key of the JSON, and formats its cells."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from pydantic_core import to_jsonable_python

from iris.model.units import format_duration

Row = TypeVar("Row")

#: The width in characters to which a list may cut a column that wraps.
CUT_TO = 12
#: The number of blanks between two columns.
GAP = 2
#: Values for which a cell shows `Column.absent`.
ABSENT: tuple[Any, ...] = (None, "", (), [], {})
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column of a table, one key of the JSON, or both."""

    #: The heading. A column without a heading is only in the JSON.
    header: str = ""
    #: The key in the JSON. A column without a key is only in the table.
    key: str = ""
    #: Returns the value of a row. The default returns the row's attribute `key`.
    value: Callable[[Row], Any] | None = None
    #: Converts a value that is not absent for the table. The result may be a text, a number, a
    #: bool, a time (the table shows its age), a duration, or a sequence of texts.
    text: Callable[[Any], Any] | None = None
    #: Converts the value for the JSON.
    json: Callable[[Any], Any] = to_jsonable_python
    #: The cell of a value that is None, an empty text or an empty collection.
    absent: str = "-"
    #: Whether a narrow terminal may break a cell into lines; a list cuts the cell's end instead.
    wraps: bool = False
    #: Whether a cell may lose its middle in a narrow terminal, as ids may. Two different ids stay
    #: different.
    shortens: bool = False
    #: Whether the table leaves the column out if no row has a value, or if the terminal is too
    #: narrow.
    optional: bool = False
    #: A narrow terminal leaves out the optional column with the least importance first; of two
    #: with equal importance, the left one.
    importance: int = 0
    #: The width in characters to which a list may cut this column if it wraps.
    least: int = CUT_TO

    def of(self, row: Row) -> Any:
        """Returns the value of a row."""
        return getattr(row, self.key) if self.value is None else self.value(row)

    def cell(self, row: Row, now: datetime) -> str:
        """Returns the text of a row's cell, without line breaks and other control characters."""
        value = self.of(row)
        if self.text is not None and value not in ABSENT:
            value = self.text(value)
        return self.absent if value in ABSENT else _CONTROL.sub(" ", _text(value, now))


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
