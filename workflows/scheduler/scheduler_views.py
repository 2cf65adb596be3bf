"""Builds the scheduler's query results from its ledger."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice

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
from iris.model.host.hosts import ClosedBy, headroom
from iris.model.job.demand_limits import fitting, size_of
from iris.model.job.requests import Placement
from iris.model.job.spec import Band
from iris.planners.demand import quarantined
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.ledger.reason_changes import MAX_SHAPES
from iris.scheduling.placement.refusals import RefusalCode
from iris.usage.records import AttemptUse, SliceUse

#: The maximum number of quarantined hosts that a snapshot of the scheduler names.
MOST_QUARANTINED = 100


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
            for host_id, closure in islice(quarantined(ledger), MOST_QUARANTINED)
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
    waiting = _waiting(ledger, recovering=recovering)
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


def _waiting(ledger: Ledger, *, recovering: bool) -> Counter[tuple[Band, RefusalCode | None]]:
    """Returns the number of waiting gangs by band and reason."""
    largest = [shape for shape, _ in Counter(ledger.waiting.demand()).most_common(MAX_SHAPES)]
    reasons = ledger.wait_reasons()
    by_shape = {} if recovering else reasons.by_shape(largest)
    waiting: Counter[tuple[Band, RefusalCode | None]] = Counter()
    for band in Band:
        if not ledger.has_quotas:
            for shape, count in ledger.waiting.counts(band).items():
                waiting[band, by_shape[shape].code if shape in by_shape else None] += count
            continue
        for first, count in ledger.waiting.heads(band):
            refusal = by_shape.get(first.shape)
            code = reasons.of_line(first, refusal).code if refusal is not None else None
            waiting[band, code] += count
    return waiting


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
