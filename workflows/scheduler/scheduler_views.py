"""Builds the scheduler's query results from its ledger, and decides when the autoscaler, which asks
for some of them, has to be signalled.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice, zip_longest

from iris.messages.scheduler import (
    HostCount,
    HostView,
    Owner,
    Owners,
    Snapshot,
    SnapshotPage,
    Totals,
    Uses,
    UsesPage,
    WaitingGangs,
)
from iris.model import names
from iris.model.host.constraints import SCALE_GROUP
from iris.model.host.hosts import ClosedBy, Closure, fault_of, headroom
from iris.model.job.demand_limits import BATCH_BYTES, fitting, size_of
from iris.model.job.requests import Placement, Shape
from iris.model.job.spec import Band
from iris.model.slice.scaling import MOST_OUTLOOKS, Demand, Wanted
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.ledger.reason_changes import MAX_SHAPES
from iris.scheduling.placement.refusals import RefusalCode
from iris.usage.records import AttemptUse, SliceUse

#: The most shapes in one answer to the autoscaler. Further shapes are in a later answer, when gangs
#: of the first shapes have been placed.
MOST_SHAPES = 1_000
#: The most quarantined hosts that a snapshot names.
MOST_QUARANTINED = 100
#: The most bytes of the demands in one answer, which also lists the idle slices.
DEMANDS_BYTES = 2 * BATCH_BYTES


def snapshot_of(ledger: Ledger, page: SnapshotPage) -> Snapshot:
    """Returns a page of hosts with their free resources and tasks, and how many gangs wait and
    run.
    """
    shown = list(ledger.hosts.values())[page.offset : page.offset + page.limit]
    here: dict[str, list[tuple[Placement, int]]] = {host.id: [] for host in shown}
    for placement in ledger.live.values():
        for place, seat in enumerate(placement.seats):
            if seat.host_id in here and ledger.hosts[seat.host_id].incarnation == seat.incarnation:
                here[seat.host_id].append((placement, place))
    views = []
    for host in shown:
        running = here[host.id]
        tasks = [task for held, place in running for task in _tasks_on(held, place)]
        free = headroom(host, (placement.resources for placement, _ in running))
        views.append(
            HostView(
                host=host,
                free=free,
                running=tuple(tasks),
                closed=ledger.host_index.closed(host) or "",
            )
        )
    return Snapshot(
        hosts=tuple(fitting(((view, size_of(view)) for view in views), page.limit)),
        total_hosts=len(ledger.hosts),
        waiting=len(ledger.waiting),
        running=len(ledger.live),
        held=len(ledger.held),
        paused=ledger.paused,
        paused_groups=ledger.paused_groups,
        quarantined={
            host_id: closure.reason
            for host_id, closure in islice(_quarantined(ledger), MOST_QUARANTINED)
        },
        rules=ledger.rules,
    )


def _tasks_on(placement: Placement, place: int) -> list[str]:
    """Returns the ids of the tasks on one seat of a placement."""
    each = placement.tasks_per_host
    if len(placement.seats) * each == 1:
        return [placement.task]
    return [
        names.task_id(placement.task, index) for index in range(each * place, each * (place + 1))
    ]


def totals_of(ledger: Ledger, *, recovering: bool) -> Totals:
    """Returns the numbers of gangs and hosts. The reasons of the shapes with the most gangs are
    computed.

    Args:
        recovering: whether the ledger is not complete yet, so that all gangs wait for that.
    """
    counts = {band: ledger.waiting.counts(band) for band in Band}
    largest = [shape for shape, _ in Counter(ledger.demand()).most_common(MAX_SHAPES)]
    reasons = {} if recovering else ledger.wait_reasons().by_shape(largest)
    codes = {shape: refusal.code for shape, refusal in reasons.items()}
    waiting: Counter[tuple[Band, RefusalCode | None]] = Counter()
    for band, shapes in counts.items():
        for shape, count in shapes.items():
            waiting[band, codes.get(shape)] += count
    closed = {host_id: closure.by for host_id, closure in ledger.closed.items()}
    hosts = Counter(
        (
            str(host.attributes.get(SCALE_GROUP, "")),
            ClosedBy.QUARANTINE if host.fault else closed.get(host.id),
        )
        for host in ledger.hosts.values()
    )
    return Totals(
        waiting=tuple(
            WaitingGangs(band=band, reason=code, gangs=count)
            for (band, code), count in waiting.items()
        ),
        running=Counter(placement.band for placement in ledger.live.values()),
        held={band: sum(ledger.held.counts(band).values()) for band in Band},
        hosts=tuple(
            HostCount(group=group, closed=by, hosts=count) for (group, by), count in hosts.items()
        ),
        paused=ledger.paused is not None,
        unstored_uses=len(ledger.ended_uses),
        unstored_slices=sum(isinstance(use, SliceUse) for use in ledger.ended_uses.waiting),
        dropped_uses=ledger.ended_uses.dropped,
    )


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
        for shape, example in ledger.waiting.firsts(counts).items()
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
        for host_id, closure in _quarantined(ledger)
    }


def _quarantined(ledger: Ledger) -> Iterator[tuple[str, Closure]]:
    closed = {
        host_id: closure for host_id, closure in ledger.closed.items() if host_id in ledger.hosts
    }
    faults = {
        host.id: closure
        for host in ledger.hosts.values()
        if host.fault and (closure := fault_of(host)) is not None
    }
    return (each for each in {**closed, **faults}.items() if each[1].by is ClosedBy.QUARANTINE)


def reserve_of(ledger: Ledger) -> set[str]:
    """Returns the idle slices if a scale group keeps a reserve of them, else an empty set."""
    return (
        set(ledger.idle()) if any(group.buffer_slices for group in ledger.catalog.groups) else set()
    )


def owners_of(ledger: Ledger, page: SnapshotPage) -> Owners:
    """Returns a page of the owners of placements and requests."""
    waiting = [*ledger.waiting.keys(), *ledger.held.keys()]
    keys = [*ledger.live, *ledger.unreleased, *waiting]

    def owners() -> Iterator[tuple[Owner, int]]:
        for key in islice(keys, page.offset, page.offset + page.limit):
            placement = ledger.live.get(key) or ledger.unreleased.get(key)
            entry = placement or ledger.waiting.get(key) or ledger.held.get(key)
            assert entry is not None
            yield (owner := Owner(key=key, owner=entry.owner)), size_of(owner)

    shown = tuple(fitting(owners(), page.limit))
    return Owners(owners=shown, total=len(keys), lease=ledger.rules.lease)


def uses_of(ledger: Ledger, page: UsesPage) -> Uses:
    """Returns a page of the uses that are not in the store: records that wait, and placements that
    have not ended, or that their gangs have not released.
    """
    held = [*ledger.unreleased.values(), *ledger.live.values()]
    waiting = ledger.ended_uses.waiting
    first, last = page.offset, page.offset + page.limit
    shown: list[AttemptUse | SliceUse] = waiting[first:last]
    for each in held[max(0, first - len(waiting)) : max(0, last - len(waiting))]:
        shown.append(ledger.ended_uses.open(each, ledger.hosts, page.at))
    fit = fitting(((use, size_of(use)) for use in shown), page.limit)
    return Uses(uses=tuple(fit), total=len(waiting) + len(held))


class DemandWatch:
    """Compares the demand, the broken slices, the idle reserve and the pauses with the values at
    the last signal to the autoscaler.
    """

    def __init__(self) -> None:
        self._demand: dict[Shape, int] = {}
        #: The highest demand of each shape at any signal since gangs of this shape wait.
        self._highest: dict[Shape, int] = {}
        self._broken: set[str] = set()
        self._reserve: set[str] = set()
        self._pauses: tuple[bool, frozenset[str]] = (False, frozenset())
        #: True if the autoscaler has to be signalled.
        self.changed = False
        #: True if it has to be signalled soon: there is more than that as many gangs wait again as
        #: at an earlier signal.
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
