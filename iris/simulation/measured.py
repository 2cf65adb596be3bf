"""Measures the world of a simulation from the slices of a trace: boot times, preemptions, failures
and stock-outs, for each scale group and zone.

An entry with little past is drawn towards the next wider one: that of a group and zone towards the
group's, that of a group towards the entry for everything else. Each estimate says how.

Not measured are the time to delete a slice, because a trace does not say when a deletion began, and
quotas, which are part of the configuration.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from iris.model.slice.provisioning import SliceFault
from iris.simulation.chance import sample
from iris.simulation.trace import SliceTrace, Trace
from iris.simulation.world import ANY, Machines, World

#: The number of quantiles of a measured distribution: 0 %, 10 % and so on to 100 %.
QUANTILES = 11
#: The lowest number of measured boots from which a zone gets its own distribution of boot times.
#: Otherwise, the zone has the distribution of its scale group. The zones of a group are alike.
#: Groups differ, so one boot of a group is enough for the group's own distribution.
FEWEST_BOOTS = 5
#: The weight of the wider entry in an entry's rates of losses, in hours. The wider entry of a zone
#: is that of its scale group, and the wider entry of a group is that of all groups. An entry's rate
#: is computed as if its slices had been ready for this many hours more, with the rate of the wider
#: entry.
PRIOR_HOURS = 24.0
#: How many periods are added to the observed ones when the share of stock-outs is computed for an
#: entry of `World.machines`. A period lasts `World.stock_out_lasts`. The added periods have the
#: share of the wider entry (see `PRIOR_HOURS`); for an hour of the day, that of the whole day.
PRIOR_PERIODS = 6.0


class _Stock(NamedTuple):
    """A period of the length `World.stock_out_lasts` in which slices were requested, and its
    stock-outs.
    """

    #: The hour of the day (UTC) in which the period begins.
    hour: int
    #: The share of the period's requests that failed because the zone was out of stock, from 0 to
    #: 1.
    out: float


def measured_world(trace: Trace) -> World:
    """Returns the world that the slices of a trace show. Without slices, it is the default one."""
    world = World()
    groups: dict[str, dict[str, list[SliceTrace]]] = {}
    for each in trace.slices:
        groups.setdefault(each.group, {}).setdefault(each.zone, []).append(each)
    if not groups:
        return world
    measure = _Measure(trace.heading.begins, world.stock_out_lasts)
    widest, widest_stock = measure.machines(trace.slices, None, 0.0)
    # Groups without a preemption may be on demand. They say nothing about other groups.
    spot = {each.group for each in trace.slices if each.fault is SliceFault.PREEMPTED}
    rate = _rate(
        [each for each in trace.slices if each.group in spot],
        (SliceFault.PREEMPTED,),
        0.0,
        prior=0.0,
    )
    machines = {ANY: widest.model_copy(update={"preemptions_per_hour": rate})}
    for group, zones in sorted(groups.items()):
        whole = [each for slices in zones.values() for each in slices]
        machines[group], stock = measure.machines(whole, machines[ANY], widest_stock)
        for zone, slices in sorted(zones.items()):
            if zone:
                machines[f"{group}@{zone}"], _ = measure.machines(
                    slices, machines[group], stock, FEWEST_BOOTS
                )
    return World(machines=machines)


class _Measure:
    """Computes the entries of a world from the slices of a trace.

    Args:
        begins: the beginning of the trace. The times of the slices are in seconds after it.
        period: the shortest duration of a stock-out, in seconds.
    """

    def __init__(self, begins: datetime, period: float) -> None:
        self._begins = begins
        self._period = period

    def machines(
        self,
        slices: Sequence[SliceTrace],
        wider: Machines | None,
        wider_stock: float,
        fewest: int = 1,
    ) -> tuple[Machines, float]:
        """Returns an entry, and the part of all periods in which there was no stock.

        Args:
            wider: the next wider entry; None if there is none.
            wider_stock: the part of the periods without stock there.
            fewest: the fewest boots that make a distribution.
        """
        near, prior = (wider, PRIOR_HOURS) if wider is not None else (Machines(), 0.0)
        lost = tuple(fault for fault in SliceFault if fault is not SliceFault.PREEMPTED)
        stock = list(self._stock(slices))
        out = sum(each.out for each in stock)
        mean = (out + PRIOR_PERIODS * wider_stock) / (len(stock) + PRIOR_PERIODS)
        preempted = (SliceFault.PREEMPTED,)
        entry = Machines(
            boot=_boots(slices, fewest) or near.boot,
            preemptions_per_hour=_rate(slices, preempted, near.preemptions_per_hour, prior=prior),
            failures_per_hour=_rate(slices, lost, near.failures_per_hour, prior=prior),
            stock_out=_shares(stock, mean) if out else (round(mean, 4),),
        )
        return entry, mean

    def _stock(self, slices: Iterable[SliceTrace]) -> Iterable[_Stock]:
        """Yields each period in which slices were requested.

        A period counts once, however many requests it had: the autoscaler asks again after a
        stock-out, so requests are more frequent while there is no stock. As in the simulation, a
        period begins at a multiple of its length.
        """
        periods: dict[int, list[bool]] = {}
        for each in slices:
            at = self._begins + timedelta(seconds=each.requested)
            out = each.fault is SliceFault.STOCK_OUT and each.ready is None
            periods.setdefault(int(at.timestamp() // self._period), []).append(out)
        for period, outs in periods.items():
            hour = datetime.fromtimestamp(period * self._period, UTC).hour
            yield _Stock(hour, sum(outs) / len(outs))


def _boots(slices: Iterable[SliceTrace], fewest: int) -> tuple[float, ...]:
    """Returns the distribution of the times from the request of a slice until it was ready; empty
    if there were too few. Slices that were never ready do not count: they are stock-outs, failures
    or no longer wanted.
    """
    times = sorted(each.ready - each.requested for each in slices if each.ready is not None)
    if len(times) < fewest:
        return ()
    return tuple(round(sample(times, at / (QUANTILES - 1)), 3) for at in range(QUANTILES))


def _rate(
    slices: Iterable[SliceTrace],
    faults: Sequence[SliceFault],
    wider: float,
    *,
    prior: float,
) -> float:
    """Returns how often ready slices ended by one of these faults, for each hour in which they were
    ready within the trace. Slices that ended otherwise, or did not end, count with their hours.

    Args:
        wider: the rate of the wider entry.
        prior: the hours with the wider rate that count beside.
    """
    ready = [each for each in slices if each.ready is not None]
    hours = sum(each.gone - max(0.0, each.ready or 0.0) for each in ready) / 3600
    events = sum(each.fault in faults for each in ready)
    return round((events + wider * prior) / (hours + prior), 6) if hours + prior > 0 else 0.0


def _shares(stock: Iterable[_Stock], mean: float) -> tuple[float, ...]:
    """Returns the part of the time without stock for each hour of the day. Hours with few requests
    are drawn towards the mean of the day.
    """
    hours: list[list[float]] = [[] for _ in range(24)]
    for each in stock:
        hours[each.hour].append(each.out)
    return tuple(
        round((sum(outs) + PRIOR_PERIODS * mean) / (len(outs) + PRIOR_PERIODS), 4) for outs in hours
    )
