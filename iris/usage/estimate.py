"""What a job costs at most, before it runs."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from iris.model.frozen import Frozen
from iris.model.host.resources import Resources
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.units import format_duration
from iris.usage.accounting import Accounting
from iris.usage.prices import Machines, PriceTable


class Estimate(Frozen):
    """The highest cost of a job if each of its tasks runs once, until its time limit. Each retry
    can cost as much again.
    """

    currency: str
    #: The cost in the most expensive of the scale groups that could run the job on machines that
    #: are not preemptible; None if none of these groups has a price.
    on_demand: float | None = None
    #: The cost in the most expensive of the scale groups that could run the job on preemptible
    #: machines; None if none of these groups has a price.
    spot: float | None = None
    #: The number of hosts that the estimate counts. Tasks that are placed one by one count as one
    #: host each, but the cost contains only the share of a host that each needs.
    hosts: int
    #: The time limit of one attempt, in hours.
    hours: float
    #: The scale groups that could run the job but have no price.
    unpriced: tuple[str, ...] = ()

    def __str__(self) -> str:
        costs = ((self.on_demand, "on demand"), (self.spot, "on spot machines"))
        known = [f"{self.currency} {cost:,.2f} {how}" for cost, how in costs if cost is not None]
        limit = format_duration(timedelta(hours=self.hours))
        hosts = "1 host" if self.hosts == 1 else f"{self.hosts:,} hosts"
        text = f"costs at most {' or '.join(known)}: {hosts} for {limit}"
        return text + (f"; no price for {', '.join(self.unpriced)}" if self.unpriced else "")


def estimate(
    candidates: Iterable[tuple[ScaleGroup, Iterable[str]]],
    needs: Resources,
    hosts: int,
    limit: timedelta,
    accounting: Accounting,
    now: datetime,
) -> Estimate | None:
    """Returns the estimate for a job; None if no group that could run it has a price.

    Args:
        candidates: the scale groups that could run the job, with their zones.
        needs: the resources that the job needs on each host.
        hosts: the number of hosts. Of several tasks that share a host, each counts.
        limit: the time limit of one attempt.
    """
    prices = PriceTable(accounting.rates)
    period, hours = prices.period(now.timestamp()), limit / timedelta(hours=1)
    most: dict[bool, float] = {}
    unpriced = []
    for group, zones in candidates:
        share = needs.share_of(group.offers)
        for zone in zones:
            price = prices.host_hour(Machines.of_group(group, zone), period)
            if price is None:
                unpriced.append(group.name)
            else:
                cost = price * share * hosts * hours
                most[group.preemptible] = max(cost, most.get(group.preemptible, 0.0))
    if not most:
        return None
    return Estimate(
        currency=accounting.currency,
        on_demand=most.get(False),
        spot=most.get(True),
        hosts=hosts,
        hours=hours,
        unpriced=tuple(dict.fromkeys(unpriced)),
    )
