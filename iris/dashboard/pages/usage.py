"""Who used the cluster, what it cost, and what was not used."""

from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from typing import NamedTuple

from iris.dashboard.bars import Bar, bar_chart
from iris.dashboard.content import Address, Content
from iris.dashboard.reader import Reader
from iris.model.units import parse_duration
from iris.usage.amounts import Amounts
from iris.usage.report import TAG, UsageReport, UsageRow, WasteKind, parse_key

#: The times that the page offers.
TIMES = (("1d", "a day"), ("7d", "a week"), ("30d", "30 days"), ("90d", "90 days"))
#: The keys that the page offers. The address may also have `tag:KEY`.
OFFERED = ("user", "team", "job", "group", "band")
#: The most rows that the page shows.
MOST_ROWS = 100
#: What each kind of waste is.
MEANINGS: Mapping[WasteKind, str] = {
    WasteKind.IDLE: "hosts that were ready and that no job held",
    WasteKind.BOOT: "slices from their request until they were ready",
    WasteKind.NEVER_READY: "slices that were gone before they were ready",
    WasteKind.SET_UP: "attempts until their programs started",
    WasteKind.FAILED_SET_UP: "attempts whose environment could not be set up",
    WasteKind.FAILED: "the run time of attempts that failed",
    WasteKind.PREEMPTED: "the run time of attempts that lost their machines",
}


class Use(NamedTuple):
    """A row of the page."""

    name: str
    amounts: Amounts
    #: The part of the total, by cost or by the first kind of hours that there is.
    share: float


async def load(reader: Reader, address: Address) -> Content:
    """Loads the page. The query has `by`, `since` and `user`."""
    query = address.query
    by = parse_key(query.get("by") or "user")
    since = query.get("since") or "7d"
    user = query.get("user", "")
    report = await reader.usage(("day", by) if by != "day" else ("day",), _time(since), user)
    measure = measure_of(report)
    uses = by_key(report, by, measure)
    return Content(
        "Usage",
        {
            "report": report,
            "uses": uses[:MOST_ROWS],
            "left_out": len(uses) - len(uses[:MOST_ROWS]),
            "chart": bar_chart(by_day(report, measure), f"{measure.name} by day"),
            "measure": measure,
            "waste": [each for each in report.waste if each.host_hours >= 0.05],
            "meanings": MEANINGS,
            "by": by,
            "since": since,
            "user": user,
            "times": TIMES,
            "keys": (*OFFERED, *([by] if by.startswith(TAG) else [])),
        },
    )


class Measure(NamedTuple):
    """The amount by which rows are compared."""

    #: The name of the field of `Amounts`.
    field: str
    name: str

    def of(self, amounts: Amounts) -> float:
        """Returns the amount; 0 if it is not known."""
        return float(getattr(amounts, self.field) or 0.0)


def measure_of(report: UsageReport) -> Measure:
    """Returns the amount that says most: money if there are prices, else the scarcest hours."""
    if report.currency:
        return Measure("cost", f"cost in {report.currency}")
    hours = (
        Measure("tpu_chip_hours", "chip-hours"),
        Measure("gpu_hours", "GPU-hours"),
        Measure("core_hours", "core-hours"),
    )
    return next((each for each in hours if each.of(report.total)), hours[-1])


def by_key(report: UsageReport, key: str, measure: Measure) -> list[Use]:
    """Returns the sums over all days, the largest first."""
    rows: dict[str, list[UsageRow]] = {}
    for row in report.rows:
        rows.setdefault(row.by[key], []).append(row)
    whole = measure.of(report.total) or 1.0
    sums = [(name, together(of_key)) for name, of_key in rows.items()]
    uses = [Use(name or "none", sum_, measure.of(sum_) / whole) for name, sum_ in sums]
    return sorted(uses, key=lambda use: (-use.share, -use.amounts.core_hours, use.name))


def together(rows: Iterable[Amounts]) -> Amounts:
    """Returns the sum of the amounts. An attempt over midnight counts for each of its days."""
    rows = list(rows)
    costs = [row.cost for row in rows if row.cost is not None]
    hours = ("host_hours", "tpu_chip_hours", "gpu_hours", "core_hours", "unpriced_host_hours")
    return Amounts(
        attempts=sum(row.attempts for row in rows),
        cost=sum(costs) if costs else None,
        **{name: sum(getattr(row, name) for row in rows) for name in hours},
    )


def by_day(report: UsageReport, measure: Measure) -> list[Bar]:
    """Returns a bar for each day of the report, also for days without use."""
    amounts: dict[str, float] = {}
    for row in report.rows:
        amounts[row.by["day"]] = amounts.get(row.by["day"], 0.0) + measure.of(row)
    day, last = report.since.date(), report.until.date()
    bars = []
    while day <= last:
        amount = amounts.get(day.isoformat(), 0.0)
        bars.append(Bar(_label(day), amount, f"{amount:,.2f}"))
        day += timedelta(days=1)
    return bars


def _label(day: date) -> str:
    return f"{day.day} {day:%b}"


def _time(text: str) -> timedelta:
    return parse_duration(text, "since")
