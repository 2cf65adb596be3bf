"""Formats lists for people and for programs. One `Listing` of `Column`s per noun gives both its table and its JSON."""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click
from pydantic_core import to_jsonable_python

from iris.cli.common import print_json
from iris.model.units import format_duration

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

Row = TypeVar("Row")

#: The width to which a column that wraps may shrink in a narrow terminal, in characters, unless it has longer words.
NARROWEST = 16
#: The most rows of a table that is fitted to the terminal. Longer ones are plain: rich takes two milliseconds for a row.
MAX_FITTED = 500
#: The width to which a column that wraps is cut in a list, in characters.
CUT_TO = 8
#: Blanks between two columns.
GAP = 2
#: Colours of cells that hold nothing but a state.
_COLOURS = {
    **dict.fromkeys(("SUCCEEDED", "READY", "TAKES_WORK", "ok", "passed"), "green"),
    **dict.fromkeys(("PENDING", "HELD", "CORDONED", "DRAINED", "PAUSED", "CLOSED"), "yellow"),
    **dict.fromkeys(("QUARANTINED", "FAILED", "WORKER_FAILED", "UNSCHEDULABLE", "SILENT"), "red"),
    **dict.fromkeys(("BUILDING", "RUNNING"), "cyan"),
    **dict.fromkeys(("KILLED", "CANCELLED", "CANCELLING"), "magenta"),
}
_ABSENT: tuple[Any, ...] = (None, "", (), [], {})
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column of a table, one key of the JSON, or both.

    Args:
        header: the heading; empty: only the JSON has the column.
        key: the key; empty: only the table has the column.
        value: returns the value of a row; by default its attribute `key`.
        text: converts the value for the table. The result may be a text, a number, a bool, a time (shown as its age), a duration,
            or a sequence of texts. Not called if there is no value.
        json: converts the value for the JSON; by default as pydantic does.
        absent: the cell if the value is None, an empty text or an empty collection.
        wraps: whether a cell may take several lines in a narrow terminal, or be cut in a list. Others, such as ids, are whole.
        optional: whether the table leaves the column out if no row has a value, and a list also in a terminal that is too narrow.
        importance: a list in a narrow terminal leaves out the least important optional column first; of equal ones the first.
        least: the width to which the cells of a column that wraps may be cut in a list, in characters.
    """

    header: str = ""
    key: str = ""
    value: Callable[[Row], Any] | None = None
    text: Callable[[Any], Any] | None = None
    json: Callable[[Any], Any] = to_jsonable_python
    absent: str = "-"
    wraps: bool = False
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
        """Returns the rows as a table: for a terminal with its width and colours, else as plain text with one line per row.

        Args:
            now: the time to which ages refer; None: the current time.
            cut: a terminal shows each row on one line, as lists of many rows do.
        """
        now = now or datetime.now(UTC)
        rows = list(rows)
        if not rows:
            return self._empty
        shown = [column for column in self._shown if not column.optional or any(column.of(row) not in _ABSENT for row in rows)]
        lines = [[column.cell(row, now) for column in shown] for row in rows]
        if sys.stdout.isatty() and len(lines) <= MAX_FITTED:
            return _for_terminal(*(_cut(shown, lines) if cut else (shown, lines)))
        lines.insert(0, [column.header for column in shown])
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        return "\n".join((" " * GAP).join(map(str.ljust, line, widths)).rstrip() for line in lines)

    def show(self, rows: Sequence[Row], *, as_json: bool) -> None:
        """Prints the rows as a JSON array or as a table."""
        if as_json:
            print_json([self.json(row) for row in rows])
        else:
            click.echo(self.table(rows, cut=True))


def _cut(columns: Sequence[Column[Row]], lines: Sequence[Sequence[str]]) -> tuple[Sequence[Column[Row]], list[list[str]]]:
    """Cuts cells so that each row fits into one line of the terminal, if the ids leave space for it.

    Leaves out optional columns, the least important first, until the others fit.
    """
    from rich.cells import cell_len, set_cell_size
    from rich.console import Console

    cells = [list(column) for column in zip(*lines, strict=True)]
    natural = [max(map(cell_len, (column.header, *texts))) for column, texts in zip(columns, cells, strict=True)]
    least = [
        min(wide, max(column.least, len(column.header))) if column.wraps else wide
        for column, wide in zip(columns, natural, strict=True)
    ]
    kept, total = list(range(len(columns))), Console().width
    optional = [number for number in kept if columns[number].optional]
    for number in sorted(optional, key=lambda each: columns[each].importance):
        if sum(least[each] + GAP for each in kept) - GAP > total:
            kept.remove(number)
    widths = shrunk([natural[each] for each in kept], [least[each] for each in kept], total - GAP * (len(kept) - 1))
    cut = [
        [text if cell_len(text) <= wide else set_cell_size(text, wide - 1) + "…" for text in cells[each]]
        for each, wide in zip(kept, widths, strict=True)
    ]
    return [columns[each] for each in kept], [list(line) for line in zip(*cut, strict=True)]


def _for_terminal(columns: Sequence[Column[Row]], lines: Sequence[Sequence[str]]) -> str:
    """Wraps cells to fit the terminal. If an id or another word would not fit, wraps no cell: the terminal does."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    table, least, natural = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0)), -GAP, -GAP
    for column, cells in zip(columns, zip(*lines, strict=True), strict=True):
        widest = max(map(cell_len, (column.header, *cells)))
        word = max(map(cell_len, " ".join(cells).split()), default=0)
        narrowest = min(widest, max(NARROWEST, word)) if column.wraps else widest
        table.add_column(column.header, no_wrap=not column.wraps, min_width=narrowest)
        least, natural = least + narrowest + GAP, natural + widest + GAP
    for line in lines:
        table.add_row(*(Text(cell, _COLOURS.get(cell, "")) for cell in line))
    return _drawn(table, least, natural)


def shrunk(natural: Sequence[int], least: Sequence[int], total: int) -> list[int]:
    """Returns widths with at most this total, if the least widths allow it. Takes from the widest column that can shrink."""
    widths = list(natural)
    while sum(widths) > total:
        wide = [index for index, width in enumerate(widths) if width > least[index]]
        if not wide:
            break
        widths[max(wide, key=lambda index: widths[index])] -= 1
    return widths


def coloured(state: str) -> str:
    """Returns a state in its colour if standard output is a terminal that shows colours."""
    if not sys.stdout.isatty():
        return state
    from rich.text import Text

    return _drawn(Text(state, _COLOURS.get(state, "")))


def age(then: datetime, now: datetime) -> str:
    return format_duration(max(timedelta(0), now - then))


def several(texts: Sequence[str], most: int = 3) -> str:
    """Returns the first texts, and how many more there are."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def _drawn(shown: "Table | Text", least: int = 0, natural: int = 0) -> str:
    """Returns what rich writes to this terminal, with its natural width if the terminal is narrower than the least width."""
    # Imported where a terminal shows a table: rich takes a third of a second, which scripts, help and errors do not need.
    from rich.console import Console

    console = Console()
    console.width = console.width if least <= console.width else natural
    with console.capture() as captured:
        console.print(shown)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _text(value: Any, now: datetime) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return age(value, now)
    if isinstance(value, timedelta):
        return format_duration(value)
    return ", ".join(value) if isinstance(value, tuple | list) else str(value)
