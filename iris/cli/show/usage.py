"""Formats the use of a cluster: as a table for people, as CSV for spreadsheets.

The keys of the JSON are the fields of `UsageReport`.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from iris.cli.show.columns import Column
from iris.cli.show.listing import Listing
from iris.config.accounting import BudgetAction
from iris.model.csv_text import csv_text
from iris.usage.amounts import Amounts
from iris.usage.report import LEAST_HOURS, OF_SLICES, TAG, UsageReport, Waste

if TYPE_CHECKING:
    from iris.simulation.trace import Trace

#: The text that the table shows for an empty value of a grouping key, such as the team of a user
#: without a team.
_NO_VALUE = "-"
#: The columns of the table that contain hours: the heading, and the function that returns the hours
#: of a row. A column without any hours is left out.
_HOURS: tuple[tuple[str, Callable[[Amounts], float]], ...] = (
    ("CHIP-HOURS", lambda row: row.tpu_chip_hours),
    ("GPU-HOURS", lambda row: row.gpu_hours),
    ("CORE-HOURS", lambda row: row.core_hours),
    ("HOST-HOURS", lambda row: row.host_hours),
)
#: The headings of the CSV columns with amounts. They follow the columns of the grouping keys
#: (`--by`).
_CSV = (
    *("attempts", "host_hours", "tpu_chip_hours", "gpu_hours", "core_hours"),
    *("cost", "currency", "unpriced_host_hours"),
)


def usage_text(report: UsageReport, limit: int) -> str:
    """Returns the report for people: the largest rows, their total, and what was not used.

    Args:
        limit: the most rows.
    """
    head = f"{_time(report.since)} to {_time(report.until)} UTC"
    if not report.rows:
        parts = [f"{head}: no job held a machine"]
    else:
        parts = [f"{head}\n\n{_rows_table(report, limit)}"]
    if len(report.rows) > limit:
        rest = len(report.rows) - limit
        parts[-1] += f"\nand {rest:,} more; see them with --limit, --json or --csv"
    parts += filter(None, ["\n".join(_machines(report)), "\n".join(_notes(report))])
    return "\n\n".join(parts)


def usage_csv(report: UsageReport) -> str:
    """Returns the rows as CSV. A text that a spreadsheet would take for a formula begins with an
    apostrophe.
    """
    rows = []
    for row in report.rows:
        values = row.model_dump() | {"currency": report.currency}
        rows.append([*(row.by[key] for key in report.by), *(values[name] for name in _CSV)])
    return csv_text([*report.by, *_CSV], rows)


def _rows_table(report: UsageReport, limit: int) -> str:
    shown: list[tuple[dict[str, str], Amounts]] = [(row.by, row) for row in report.rows[:limit]]
    keys: Sequence[str] = report.by
    if keys:
        shown.append(({keys[0]: "total", **dict.fromkeys(keys[1:], " ")}, report.total))
    columns = [_texts(key.removeprefix(TAG), [by[key] for by, _ in shown]) for key in keys]
    amounts = [each for _, each in shown]
    if report.currency:
        costs = [_cost(each) for each in amounts]
        columns.append(_numbers(f"COST {report.currency}", costs))
        if whole := report.total.cost:
            shares = [f"{(each.cost or 0.0) / whole:.0%}" for each in amounts]
            columns.append(_numbers("SHARE", shares, importance=1))
    for header, hours in _HOURS:
        if any(hours(each) for each in amounts):
            columns.append(_numbers(header, [_hours(hours(each)) for each in amounts]))
    columns.append(_numbers("ATTEMPTS", [f"{each.attempts:,}" for each in amounts], importance=0))
    return Listing(*columns).table(range(len(shown)), cut=True)


def _texts(key: str, cells: Sequence[str]) -> Column[int]:
    """Returns the column of a key."""
    return Column(key.upper(), value=lambda at: cells[at], absent=_NO_VALUE, shortens=True)


def _numbers(header: str, cells: Sequence[str], *, importance: int | None = None) -> Column[int]:
    """Returns a column of numbers that end below each other."""
    width = max(map(len, (header, *cells)))
    return Column(
        header.rjust(width),
        value=lambda at: cells[at].rjust(width),
        optional=importance is not None,
        importance=importance or 0,
    )


def trace_notes(trace: "Trace", gaps: Sequence[str]) -> Iterator[str]:
    """Yields what a trace has, and what is missing in it."""
    time = f"{_time(trace.heading.begins)} to {_time(trace.heading.ends)} UTC"
    counts = ((len(trace.gangs), "gang"), (len(trace.slices), "slice"))
    texts = [f"{count:,} {noun}{'' if count == 1 else 's'}" for count, noun in counts]
    yield f"{time}: wrote {' and '.join(texts)}"
    for gap in gaps:
        yield f"incomplete: {gap}"


def _machines(report: UsageReport) -> Iterator[str]:
    """Yields what all machines cost and what was not used, without the kinds of which there is
    nothing.
    """
    wasted = report.wasted
    if report.slices is not None and report.slices.host_hours >= LEAST_HOURS:
        held = (
            1
            - sum(each.host_hours for each in wasted if each.kind in OF_SLICES)
            / report.slices.host_hours
        )
        yield (
            f"all machines: {_paid(report, report.slices)}; jobs held {max(0.0, held):.0%} of the"
            " time"
        )
    lines = [(each.kind.value, _paid(report, each), each.meaning) for each in wasted]
    widths = [max((len(line[at]) for line in lines), default=0) for at in (0, 1)]
    for kind, amount, meaning in lines:
        yield f"  {kind.ljust(widths[0])}  {amount.rjust(widths[1])}  {meaning}"


def _paid(report: UsageReport, what: Amounts | Waste) -> str:
    hours = f"{_hours(what.host_hours)} host-hours"
    return hours if what.cost is None else f"{report.currency} {_cost(what)}, {hours}"


def _notes(report: UsageReport) -> Iterator[str]:
    for machine, hours in report.unpriced.items():
        yield f"no price for {machine}: {_hours(hours)} host-hours are not in the costs"
    if report.unpriced or (report.rows and not report.currency):
        yield "prices are in the cluster's configuration, in prices.rates: docs/usage.md"
    for use in report.budgets:
        over = "used up, " if use.exceeded_at is not None else ""
        holds = over and use.action is BudgetAction.HOLD
        yield f"budget {use.budget}: {over}{use}{'; new jobs are held' if holds else ''}"
    for gap in report.gaps:
        yield f"incomplete: {gap}"


def _cost(what: Amounts | Waste) -> str:
    return _NO_VALUE if what.cost is None else f"{abs(what.cost):,.2f}"


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= LEAST_HOURS or hours == 0 else "<0.1"


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"
