"""Formats what simulations say as text. The keys of the JSON are the fields of `Answers` and of
`Advice`.
"""

from collections.abc import Iterator

from iris.cli.show.columns import Column, plain
from iris.cli.show.listing import Listing
from iris.simulation.advice import Advice
from iris.simulation.report.tables import Shown, Table, advice_tables


def simulation_text(shown: Shown, notes: tuple[str, ...] = ()) -> str:
    """Returns all tables for people.

    Args:
        notes: further lines about what was simulated.
    """
    head = "\n".join(map(plain, (*shown.facts, *notes)))
    return "\n\n".join([head, *("\n".join(_lines(table)) for table in shown.tables())])


def advice_text(found: Advice, notes: tuple[str, ...] = ()) -> str:
    """Returns the steps that are worth a thought, for people.

    Args:
        notes: lines about what was simulated.
    """
    head = f"{found.tried} changes were simulated, one at a time"
    tables = tuple(each for each in advice_tables(found) if each.rows)
    parts = ["\n".join((head, *map(plain, notes))), *("\n".join(_lines(each)) for each in tables)]
    if not tables:
        parts.append(
            "none of them shortens waits clearly, and none saves money without longer waits"
        )
    return "\n\n".join(parts)


def _lines(table: Table) -> Iterator[str]:
    yield f"{table.title}:"
    columns = [_column(table, at) for at in range(len(table.head))]
    is_prose = table.texts == len(table.head)
    yield Listing(*columns).table(range(len(table.rows)), cut=not is_prose)
    if table.note:
        yield table.note


def _column(table: Table, at: int) -> Column[int]:
    cells = [row[at] for row in table.rows]
    if at < table.texts:
        is_last = at == len(table.head) - 1
        return Column(
            table.head[at], value=lambda row: cells[row], wraps=is_last, shortens=not is_last
        )
    width = max(map(len, (table.head[at], *cells)))
    return Column(
        table.head[at].rjust(width),
        value=lambda row: cells[row].rjust(width),
        optional=at > table.texts,
        importance=-at,
    )
