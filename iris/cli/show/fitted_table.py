"""Draws tables that fit the terminal.

A narrow terminal leaves out unimportant columns, and the other columns become narrower.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from iris.cli.show.columns import GAP, Column

#: The minimum width in characters of a shortened id. Ids that would become equal stay longer.
SHORT_ID = 22
#: The width in characters to which text columns shrink before id columns shrink.
READABLE = 20
#: The minimum width in characters of a wrapping column. Longer words are broken only if no other
#: column can shrink.
NARROWEST = 16
#: A width in characters that no table reaches. It stands for an unlimited width.
NO_BOUND = 10_000
#: The colour of each state. A cell has the colour if it contains only the state.
_COLOURS = {
    **dict.fromkeys(("SUCCEEDED", "READY", "TAKES_WORK", "ok", "passed"), "green"),
    **dict.fromkeys(("PENDING", "HELD", "CORDONED", "DRAINED", "PAUSED", "CLOSED"), "yellow"),
    **dict.fromkeys(("QUARANTINED", "FAILED", "WORKER_FAILED", "UNSCHEDULABLE", "SILENT"), "red"),
    **dict.fromkeys(("BUILDING", "RUNNING"), "cyan"),
    **dict.fromkeys(("KILLED", "CANCELLED", "CANCELLING"), "magenta"),
}


class Shrinks(Enum):
    """How the cells of a column are shortened if the table is too wide."""

    #: The column never becomes narrower.
    NEVER = auto()
    #: The middle of each cell is cut out.
    IN_THE_MIDDLE = auto()
    #: Each cell is wrapped. If the argument `cut` of `fitted_table` is True, the end of the cell is
    #: cut off instead.
    AT_THE_END = auto()


@dataclass(frozen=True)
class Widths:
    """The possible widths of a column, in characters."""

    #: The width of the widest cell.
    natural: int
    #: The width to which the column shrinks first. It shrinks further only if the table is still
    #: too wide.
    readable: int
    #: The minimum width of the column.
    least: int
    shrinks: Shrinks = Shrinks.NEVER
    optional: bool = False
    importance: int = 0


def fitted_table(
    columns: Sequence[Column[Any]],
    lines: Sequence[Sequence[str]],
    *,
    cut: bool,
) -> str:
    """Returns a table that fits the terminal.

    If the terminal is too narrow for any table, no cell wraps, and the terminal breaks the lines.

    Args:
        cut: cells lose their ends instead of wrapping.
    """
    cells = [list(column) for column in zip(*lines, strict=True)]
    pairs = zip(columns, cells, strict=True)
    possible = [_widths(column, texts, cut=cut) for column, texts in pairs]
    kept, widths = fitted(possible, Console().width)
    fits = widths is not None
    if widths is None:
        kept = kept if cut else list(range(len(columns)))
        widths = [possible[each].least if cut else possible[each].natural for each in kept]
    shown = [columns[each] for each in kept]
    return _drawn(_table(shown, [cells[each] for each in kept], widths, cut=cut), fits=fits)


def _widths(column: Column[Any], cells: Sequence[str], *, cut: bool) -> Widths:
    """Returns the widths that a column with these cells can have."""
    header = len(column.header)
    natural = max(map(cell_len, (column.header, *cells)))
    readable = least = natural
    shrinks = Shrinks.NEVER
    if column.wraps:
        shrinks = Shrinks.AT_THE_END
        word = max(map(cell_len, " ".join(cells).split()), default=0)
        least = min(natural, max(column.least if cut else NARROWEST, header))
        readable = min(natural, max(READABLE if cut else word, least))
    elif column.shortens:
        shrinks = Shrinks.IN_THE_MIDDLE
        least = min(natural, max(short_id(cells), header))
    return Widths(natural, readable, least, shrinks, column.optional, column.importance)


def _table(
    columns: Sequence[Column[Any]],
    cells: Sequence[Sequence[str]],
    widths: Sequence[int],
    *,
    cut: bool,
) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    shown = []
    for column, texts, width in zip(columns, cells, widths, strict=True):
        shorten = without_middle if column.shortens else without_end if cut else None
        shown.append([shorten(text, width) if shorten is not None else text for text in texts])
        whole = not column.wraps
        table.add_column(
            column.header,
            no_wrap=whole,
            overflow="fold",
            min_width=width,
            max_width=width,
        )
    for line in zip(*shown, strict=True):
        table.add_row(*(Text(cell, _COLOURS.get(cell, "")) for cell in line))
    return table


def fitted(columns: Sequence[Widths], total: int) -> tuple[list[int], list[int] | None]:
    """Returns the indices of the columns to show, and their widths if the columns fit.

    First leaves out optional columns until the others fit: the least important ones first, and of
    equally important ones the leftmost. Then shrinks columns of text to a readable width, then
    columns of ids, and then columns of text to their least width.
    """
    kept = list(range(len(columns)))

    def space() -> int:
        return total - GAP * (len(kept) - 1)

    optional = [number for number in kept if columns[number].optional]
    for number in sorted(optional, key=lambda each: columns[each].importance):
        if sum(columns[each].least for each in kept) > space():
            kept.remove(number)
    shown = [columns[number] for number in kept]
    if sum(each.least for each in shown) > space():
        return kept, None
    widths = [each.natural for each in shown]
    for shrinks, least in (
        (Shrinks.AT_THE_END, [each.readable for each in shown]),
        (Shrinks.IN_THE_MIDDLE, [each.least for each in shown]),
        (Shrinks.AT_THE_END, [each.least for each in shown]),
    ):
        pairs = zip(shown, least, widths, strict=True)
        bounds = [low if each.shrinks is shrinks else width for each, low, width in pairs]
        widths = shrunk(widths, bounds, space())
    return kept, widths


def shrunk(natural: Sequence[int], least: Sequence[int], total: int) -> list[int]:
    """Returns widths with at most this total, if the least widths allow it.

    Always shrinks the widest column that can shrink.
    """
    widths = list(natural)
    while sum(widths) > total:
        wide = [index for index, width in enumerate(widths) if width > least[index]]
        if not wide:
            break
        widths[max(wide, key=lambda index: widths[index])] -= 1
    return widths


def without_end(text: str, width: int) -> str:
    """Returns the text, without its end if it is too wide."""
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def without_middle(text: str, width: int) -> str:
    """Returns the text, without its middle if it is too wide."""
    if cell_len(text) <= width:
        return text
    head = width // 2
    return set_cell_size(text, head) + "…" + set_cell_size(text[::-1], width - 1 - head)[::-1]


def short_id(texts: Sequence[str]) -> int:
    """Returns the lowest width at which different ids stay different."""
    different = {*texts}
    widest = max(map(cell_len, different), default=0)
    for width in range(SHORT_ID, widest):
        if len({without_middle(text, width) for text in different}) == len(different):
            return width
    return widest


def _drawn(shown: Table | Text, *, fits: bool = True) -> str:
    """Returns the text that rich writes to this terminal.

    Args:
        fits: False: write lines that are longer than the width of the terminal.
    """
    console = Console()
    if not fits:
        console.width = NO_BOUND
    with console.capture() as captured:
        console.print(shown)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def coloured_text(state: str) -> str:
    """Returns a state in its colour."""
    return _drawn(Text(state, _COLOURS.get(state, "")))
