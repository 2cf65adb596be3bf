"""Records of use for tests."""

from datetime import UTC, datetime, timedelta
from typing import Any

from iris.model.job.spec import Band
from iris.usage.prices import PriceTable, Rate
from iris.usage.records import AttemptUse, SliceUse, UseEnd
from iris.usage.report import UsageReport
from iris.usage.sums import Question, UsageSums

#: A Monday, midnight.
T = datetime(2026, 11, 2, tzinfo=UTC)
DAY = timedelta(days=1)


def at(hours: float) -> datetime:
    return T + timedelta(hours=hours)


def attempt(begin: float, end: float, /, **fields: Any) -> AttemptUse:
    """An attempt on one whole host, from and to these hours."""
    values: dict[str, Any] = {
        "id": f"ada/train@{begin}-{end}",
        "job": "ada/train",
        "user": "ada",
        "band": Band.BATCH,
        "group": "cpu",
        "slices": ("s1",),
        "hosts": 1,
        "host_share": 1.0,
        "cpu_millis": 8000,
        "placed_at": at(begin),
        "ended_at": at(end),
        "end": UseEnd.SUCCEEDED,
    }
    return AttemptUse(**{**values, **fields})


def slice_use(begin: float, ready: float | None, end: float, /, **fields: Any) -> SliceUse:
    """A slice of one host, requested, ready and gone at these hours."""
    values: dict[str, Any] = {
        "id": "s1",
        "group": "cpu",
        "zone": "europe-west4-a",
        "machine": "n2-standard-8",
        "hosts": 1,
        "cpu_millis": 8000,
        "requested_at": at(begin),
        "ready_at": None if ready is None else at(ready),
        "gone_at": at(end),
    }
    return SliceUse(**{**values, **fields})


#: A dollar for an hour of the machine that `slice_use` has.
DOLLAR = (Rate(machine="n2-standard-8", machine_hour=1.0),)


def summed(
    *uses: AttemptUse | SliceUse,
    by: tuple[str, ...] = ("user",),
    rates: tuple[Rate, ...] = DOLLAR,
    since: datetime = T,
    until: datetime = T + 7 * DAY,
    **question: Any,
) -> UsageReport:
    """The report about these uses, in a week."""
    teams = question.pop("team_of", {})
    sums = UsageSums(Question(since, until, by, **question), PriceTable(rates), teams)
    for use in uses:
        sums.add(use)
    return sums.report("USD")
