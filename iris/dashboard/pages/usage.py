"""Who used the cluster, what it cost, and what was not used."""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import NamedTuple

from markupsafe import Markup

from iris.dashboard.charts import Bar, bar_chart
from iris.dashboard.content import Address, Content
from iris.dashboard.reader import USAGE_SHARED_FOR, Reader
from iris.model.errors import InvalidValue
from iris.model.units import parse_duration
from iris.usage.amounts import Amounts
from iris.usage.report import TAG, UsageReport, parse_key

#: The periods that the page offers, by the value of the query parameter `since`.
TIMES = {"1d": "a day", "7d": "a week", "30d": "30 days", "90d": "90 days"}
#: The keys that the page offers for grouping. The page also accepts `tag:KEY` in its address.
OFFERED = ("user", "team", "job", "group", "band")
#: The limit on rows that the page shows.
MOST_ROWS = 100


class Use(NamedTuple):
    """A row of the page: the use of the cluster by one value of the key that the page groups by,
    such as one user or one team.
    """

    name: str
    amounts: Amounts
    #: The share of the row in the total, from 0 to 1, of the amount that `measure_of` chooses, such
    #: as the cost.
    share: float


class Shown(NamedTuple):
    """The use of the cluster in a period, as the page shows it."""

    #: The report of the period with its totals. Its rows are left out, because `uses` has the rows
    #: that the page shows.
    report: UsageReport
    measure: "Measure"
    uses: Sequence[Use]
    #: The number of rows that `uses` leaves out.
    left_out: int
    chart: Markup


async def load(reader: Reader, address: Address) -> Content:
    """Loads the page. The query has `by`, `since` and `user`."""
    query = address.query
    by = parse_key(query.get("by") or "user")
    since = query.get("since") or "7d"
    if since not in TIMES:
        raise InvalidValue("since", since, "is not offered", f"use one of {', '.join(TIMES)}")
    user = query.get("user", "")
    shown = await reader.shared(
        ("usage", by, since, user), lambda: read(reader, by, since, user), USAGE_SHARED_FOR
    )
    return Content(
        "Usage",
        {
            **shown._asdict(),
            "by": by,
            "since": since,
            "user": user,
            "times": TIMES.items(),
            "keys": (*OFFERED, *([by] if by.startswith(TAG) else [])),
        },
    )


async def read(reader: Reader, by: str, since: str, user: str) -> Shown:
    """Reads the records of a time, and returns what the page shows of them."""
    time = parse_duration(since, "since")
    days = await reader.usage(("day",), time, user)
    report = await reader.usage((by,), time, user) if by != "day" else days
    measure = measure_of(report)
    uses = by_key(report, by, measure)
    chart = bar_chart(by_day(days, measure), f"{measure.name} by day")
    whole = report.model_copy(update={"rows": ()})
    return Shown(whole, measure, uses[:MOST_ROWS], len(uses[MOST_ROWS:]), chart)


class Measure(NamedTuple):
    """The amount, such as the cost or the GPU-hours, by which the page orders its rows and which
    its chart shows.
    """

    #: The name of the amount's field in `Amounts`.
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
    """Returns the rows of a report by this key, the largest first."""
    whole = measure.of(report.total) or 1.0
    uses = [Use(row.by[key] or "none", row, measure.of(row) / whole) for row in report.rows]
    return sorted(uses, key=lambda use: (-use.share, -use.amounts.core_hours, use.name))


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
