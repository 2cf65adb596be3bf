"""Tells the autoscaler what the scheduler could not place: builds the answer to its question from
the ledger, and decides when it has to be signalled.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import zip_longest

from iris.model.host.hosts import ClosedBy, Closure
from iris.model.job.demand_limits import BATCH_BYTES, fitting, size_of
from iris.model.job.requests import Shape
from iris.model.slice.scaling import MOST_OUTLOOKS, Demand, Wanted
from iris.scheduling.ledger.ledger import Ledger

#: The maximum number of shapes of waiting gangs in one answer of the scheduler to the autoscaler.
#: Further shapes are in a later answer, when gangs of the first shapes have been placed.
MOST_SHAPES = 1_000
#: The maximum number of bytes of the demands in one answer of the scheduler to the autoscaler. The
#: answer also lists the idle slices, which take further bytes.
DEMANDS_BYTES = 2 * BATCH_BYTES


def unplaced(ledger: Ledger) -> dict[Shape, int] | None:
    """Returns the demand of the shapes that did not fit when a pass last examined them; None until
    passes have examined all shapes once.
    """
    unfit = ledger.unfit
    return (
        None
        if unfit is None
        else {shape: count for shape, count in ledger.demand().items() if shape in unfit}
    )


def wanted_of(ledger: Ledger, now: datetime, demand: Mapping[Shape, int] | None = None) -> Wanted:
    """Returns the demand that could not be placed, in serving order, and the slices that are idle
    or broken.

    Args:
        demand: the part of the ledger's demand that did not fit; None for the whole demand.
    """
    return Wanted(
        demands=(
            _demands(ledger, ledger.demand() if demand is None else demand)
            if ledger.paused is None
            else ()
        ),
        idle={slice_id: since or now for slice_id, since in ledger.idle().items()},
        broken=broken_slices(ledger),
        paused=tuple(ledger.paused_groups),
        informed=bool(ledger.outlooks),
        as_of=now,
    )


def _demands(ledger: Ledger, counts: Mapping[Shape, int]) -> tuple[Demand, ...]:
    """Returns the demands that the autoscaler gets, in serving order.

    If there are more demands than one answer holds, it has the same number for each user and scale
    group. Otherwise, a user with many shapes could get all slices of a group. Demands that no group
    could serve are in the answer only for their outlook, and only if there is room.
    """
    firsts = [
        Demand(count=counts[shape], example=example)
        for shape, example in ledger.firsts(counts).items()
    ]
    possible: dict[tuple[str, str], list[Demand]] = {}
    impossible: list[Demand] = []
    for demand in sorted(firsts, key=_serving_order):
        catalog = ledger.catalog
        group = catalog.first_group(demand.example) or next(
            iter(catalog.creators(demand.example, ledger.host_index)), None
        )
        same = (
            impossible if group is None else possible.setdefault((group, demand.example.user), [])
        )
        same.append(demand)
    in_turn = [
        demand for turn in zip_longest(*possible.values()) for demand in turn if demand is not None
    ]
    in_turn += impossible[: max(0, MOST_OUTLOOKS - len(in_turn))]
    return tuple(
        sorted(
            fitting(((each, size_of(each)) for each in in_turn), MOST_SHAPES, DEMANDS_BYTES),
            key=_serving_order,
        )
    )


def _serving_order(demand: Demand) -> tuple[int, datetime, str]:
    return (demand.example.band.rank, demand.example.submitted_at, demand.example.key)


def broken_slices(ledger: Ledger) -> dict[str, str]:
    """Returns the slices with a quarantined host, and a text that names the host."""
    return {
        ledger.hosts[host_id].slice_id: f"host {host_id} is {closure}"
        for host_id, closure in quarantined(ledger)
    }


def quarantined(ledger: Ledger) -> Iterator[tuple[str, Closure]]:
    closed = {
        host_id: closure for host_id, closure in ledger.closed.items() if host_id in ledger.hosts
    }
    return (
        each
        for each in {**closed, **ledger.host_index.faults}.items()
        if each[1].by is ClosedBy.QUARANTINE
    )


def reserve_of(ledger: Ledger) -> set[str]:
    """Returns the idle slices if a scale group keeps a reserve of them, else an empty set."""
    return (
        set(ledger.idle()) if any(group.buffer_slices for group in ledger.catalog.groups) else set()
    )


class DemandWatch:
    """Compares the demand, the broken slices, the idle reserve and the pauses with the values at
    the last signal to the autoscaler.
    """

    def __init__(self) -> None:
        self._demand: dict[Shape, int] = {}
        #: For each shape with demand: the highest demand at any signal to the autoscaler since the
        #: demand began.
        self._highest: dict[Shape, int] = {}
        self._broken: set[str] = set()
        self._reserve: set[str] = set()
        self._pauses: tuple[bool, frozenset[str]] = (False, frozenset())
        #: True if the autoscaler has to be signalled.
        self.changed = False
        #: True if the signal may not be delayed by `WAKE_AGAIN`. A demand that is higher than at
        #: the last signal, but not higher than at an earlier one, does not make the signal urgent.
        self.urgent = False

    def signalled(self, demand: Mapping[Shape, int]) -> None:
        """Records the demand at a signal to the autoscaler."""
        self._demand, self.changed, self.urgent = dict(demand), False, False
        self._highest = {
            shape: max(count, self._highest.get(shape, 0)) for shape, count in demand.items()
        }

    def compare(self, ledger: Ledger, demand: Mapping[Shape, int]) -> None:
        """Sets `changed` if the autoscaler has to be signalled, which is so if:

        - more gangs of a shape wait than at the last signal, or none of a shape waits any more;
        - another slice is broken;
        - a slice is no longer idle, and a group keeps a reserve of idle slices;
        - a pause began or ended. While the whole cluster is paused, only this counts.
        """
        pauses = (ledger.paused is not None, frozenset(ledger.paused_groups))
        if pauses != self._pauses:
            self._pauses = pauses
            self.changed = self.urgent = True
        if ledger.paused is not None:
            return
        broken, reserve = set(broken_slices(ledger)), reserve_of(ledger)
        self.urgent |= not (broken <= self._broken and reserve >= self._reserve)
        self._broken, self._reserve = broken, reserve
        self.urgent |= bool(self._demand.keys() - demand.keys())
        self.urgent |= any(count > self._highest.get(shape, 0) for shape, count in demand.items())
        self.changed |= self.urgent
        self.changed |= any(count > self._demand.get(shape, 0) for shape, count in demand.items())
        self._demand = {
            shape: min(count, demand[shape])
            for shape, count in self._demand.items()
            if shape in demand
        }
