"""Shows a list of objects: as a table for people, as JSON for programs."""

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import click

from iris.cli import show
from iris.cli.show.columns import ABSENT, GAP, Column
from iris.cli.show.messages import print_json

Row = TypeVar("Row")

#: The maximum number of rows of a table that is fitted to the terminal's width. Longer tables are
#: not fitted, because rich needs two milliseconds for each row.
MAX_FITTED = 500


class Listing(Generic[Row]):
    """The columns in which objects of one kind are shown, as a table or as JSON. Table and JSON
    have the same order.

    Args:
        empty: the text that people see if there are no rows.
        keys: the keys of the JSON, separated by blanks, if their order is not that of the columns.
    """

    def __init__(self, *columns: Column[Row], empty: str = "", keys: str = "") -> None:
        found = {column.key: column for column in columns if column.key}
        #: The columns of the JSON by their keys, in the order of the JSON.
        self.by_key = {key: found[key] for key in keys.split()} if keys else found
        self._shown = [column for column in columns if column.header]
        self._empty = empty

    def json(self, row: Row) -> dict[str, Any]:
        """Returns a row as a JSON object."""
        return {key: column.json(column.of(row)) for key, column in self.by_key.items()}

    def table(self, rows: Iterable[Row], now: datetime | None = None, *, cut: bool = False) -> str:
        """Returns the rows as a table.

        On a terminal, the table has the terminal's width and colours. Elsewhere, it is plain text
        with one line per row.

        Args:
            now: the time to which ages refer; by default the current time.
            cut: show each row on one line, also on a narrow terminal, as lists of many rows do.
        """
        now = now or datetime.now(UTC)
        rows = list(rows)
        if not rows:
            return self._empty
        shown = [
            column
            for column in self._shown
            if not column.optional or any(column.of(row) not in ABSENT for row in rows)
        ]
        lines = [[column.cell(row, now) for column in shown] for row in rows]
        if sys.stdout.isatty() and len(lines) <= MAX_FITTED:
            return show.fitted_table.fitted_table(shown, lines, cut=cut)
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
    """Returns a state, in its colour if standard output is a terminal that shows colours."""
    if not sys.stdout.isatty():
        return state
    return show.fitted_table.coloured_text(state)


def headline(name: str, state: str, text: str) -> str:
    """Returns the first line about an object: its name, its state in colour, and a text."""
    return f"{name}  {coloured(state)}  {text}".rstrip()
