"""Formats lists for people and for programs. One `Listing` of `Column`s per noun gives both its
table and its JSON.
"""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

import click
from pydantic_core import to_jsonable_python

from iris.cli.common import print_json
from iris.model.units import format_duration

Row = TypeVar("Row")

#: The most rows of a table that is fitted to the terminal. Longer ones are plain: rich takes two
#: milliseconds for a row.
MAX_FITTED = 500
#: The width to which a column that wraps is cut in a list, in characters.
CUT_TO = 12
#: Blanks between two columns.
GAP = 2
_ABSENT: tuple[Any, ...] = (None, "", (), [], {})
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column of a table, one key of the JSON, or both.

    Args:
        header: the heading; empty: only the JSON has the column.
        key: the key; empty: only the table has the column.
        value: returns the value of a row; by default its attribute `key`.
        text: converts the value for the table. The result may be a text, a number, a bool, a time
            (shown as its age), a duration, or a sequence of texts. Not called if there is no value.
        json: converts the value for the JSON; by default as pydantic does.
        absent: the cell if the value is None, an empty text or an empty collection.
        wraps: whether a cell may take several lines in a narrow terminal, or lose its end in a
            list.
        shortens: whether a cell may lose its middle in a narrow terminal, as ids may. Two different
            ids stay different.
        optional: whether the table leaves the column out if no row has a value, or if the terminal
            is too narrow.
        importance: a narrow terminal leaves out the least important optional column first; of equal
            ones the first.
        least: the width to which the cells of a column that wraps may be cut in a list, in
            characters.
    """

    header: str = ""
    key: str = ""
    value: Callable[[Row], Any] | None = None
    text: Callable[[Any], Any] | None = None
    json: Callable[[Any], Any] = to_jsonable_python
    absent: str = "-"
    wraps: bool = False
    shortens: bool = False
    optional: bool = False
    importance: int = 0
    least: int = CUT_TO

    def of(self, row: Row) -> Any:
        return getattr(row, self.key) if self.value is None else self.value(row)

    def cell(self, row: Row, now: datetime) -> str:
        """Returns the text of a row's cell, without line breaks and other control characters."""
        value = self.of(row)
        if self.text is not None and value not in _ABSENT:
            value = self.text(value)
        return self.absent if value in _ABSENT else _CONTROL.sub(" ", _text(value, now))


class Listing(Generic[Row]):
    """The columns of a noun, in the order of its table.

    Args:
        empty: what people see if there are no rows.
        keys: the order of the JSON's keys if it differs, separated by blanks.
    """

    def __init__(self, *columns: Column[Row], empty: str = "", keys: str = "") -> None:
        found = {column.key: column for column in columns if column.key}
        #: The columns of the JSON, in its order.
        self.by_key = {key: found[key] for key in keys.split()} if keys else found
        self._shown = [column for column in columns if column.header]
        self._empty = empty

    def json(self, row: Row) -> dict[str, Any]:
        """Returns a row as a JSON object."""
        return {key: column.json(column.of(row)) for key, column in self.by_key.items()}

    def table(self, rows: Iterable[Row], now: datetime | None = None, *, cut: bool = False) -> str:
        """Returns the rows as a table: for a terminal with its width and colours, else as plain
        text with one line per row.

        Args:
            now: the time to which ages refer; None: the current time.
            cut: a terminal shows each row on one line, as lists of many rows do.
        """
        now = now or datetime.now(UTC)
        rows = list(rows)
        if not rows:
            return self._empty
        shown = [
            column
            for column in self._shown
            if not column.optional or any(column.of(row) not in _ABSENT for row in rows)
        ]
        lines = [[column.cell(row, now) for column in shown] for row in rows]
        if sys.stdout.isatty() and len(lines) <= MAX_FITTED:
            from iris.cli.show.fitted_table import (
                fitted_table,  # with rich, which takes a third of a second to import
            )

            return fitted_table(shown, lines, cut=cut)
        lines.insert(0, [column.header for column in shown])
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        return "\n".join((" " * GAP).join(map(str.ljust, line, widths)).rstrip() for line in lines)

    def show(self, rows: Sequence[Row], *, as_json: bool) -> None:
        """Prints the rows as a JSON array or as a table."""
        if as_json:
            print_json([self.json(row) for row in rows])
        else:
            click.echo(self.table(rows, cut=True))


def coloured(state: str) -> str:
    """Returns a state in its colour if standard output is a terminal that shows colours."""
    if not sys.stdout.isatty():
        return state
    from iris.cli.show.fitted_table import coloured_text  # with rich, as above

    return coloured_text(state)


def age(then: datetime, now: datetime) -> str:
    return format_duration(max(timedelta(0), now - then))


def several(texts: Sequence[str], most: int = 3) -> str:
    """Returns the first texts, and how many more there are."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def _text(value: Any, now: datetime) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return age(value, now)
    if isinstance(value, timedelta):
        return format_duration(value)
    return ", ".join(value) if isinstance(value, tuple | list) else str(value)
