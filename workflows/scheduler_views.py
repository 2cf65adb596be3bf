"""Builds the scheduler's query results from its ledger."""

from datetime import datetime

from iris.messages.scheduler import HostView, Owner, Owners, Snapshot, SnapshotPage
from iris.model import names
from iris.model.bounds import cut, fitting, size_of
from iris.model.hosts import ClosedBy, headroom
from iris.model.requests import Placement
from iris.model.scaling import Demand, Wanted
from iris.scheduling.ledger import Ledger

#: The most shapes that the autoscaler gets; gangs of other shapes are served after these.
MOST_SHAPES = 200


def snapshot_of(ledger: Ledger, page: SnapshotPage) -> Snapshot:
    """Returns a page of hosts with their free resources and tasks, and how many gangs wait and run."""
    shown = list(ledger.hosts.values())[page.offset : page.offset + page.limit]
    here: dict[str, list[tuple[Placement, int]]] = {host.id: [] for host in shown}
    for placement in ledger.live.values():
        for place, seat in enumerate(placement.seats):
            if seat.host_id in here and ledger.hosts[seat.host_id].incarnation == seat.incarnation:
                here[seat.host_id].append((placement, place))
    views = []
    for host in shown:
        running = here[host.id]
        tasks = [names.task_id(held.task, place) if len(held.seats) > 1 else held.task for held, place in running]
        free = headroom(host, (placement.resources for placement, _ in running))
        views.append(HostView(host=host, free=free, running=tuple(tasks), closed=ledger.host_index.closed(host) or ""))
    return Snapshot(
        hosts=tuple(fitting(((view, size_of(view)) for view in views), page.limit)),
        total_hosts=len(ledger.hosts),
        waiting=len(ledger.waiting),
        running=len(ledger.live),
        held=len(ledger.held),
        paused=ledger.paused,
        paused_groups=ledger.paused_groups,
        rules=ledger.rules,
    )


def wanted_of(ledger: Ledger, now: datetime) -> Wanted:
    """Returns the demand that could not be placed, in serving order, and the slices that are idle or broken."""
    counts = ledger.demand() if ledger.paused is None else {}
    firsts = {shape: ledger.waiting.first(shape) for shape in counts}
    examples = sorted(
        (example for example in firsts.values() if example is not None),
        key=lambda each: (each.band.rank, each.submitted_at, each.key),
    )
    demands = (Demand(count=counts[each.shape], example=each) for each in examples)
    return Wanted(
        demands=tuple(fitting(((demand, size_of(demand)) for demand in demands), MOST_SHAPES)),
        idle={slice_id: since or now for slice_id, since in ledger.idle().items()},
        broken=broken_slices(ledger),
        paused=tuple(ledger.paused_groups),
        informed=bool(ledger.outlooks),
        as_of=now,
    )


def details_of(ledger: Ledger) -> str:
    """Returns the summary that Temporal's Web UI shows."""
    lines = [f"**{len(ledger.hosts)}** hosts, **{len(ledger.live)}** gangs placed, **{len(ledger.waiting)}** waiting"]
    if len(ledger.held):
        lines.append(f"{len(ledger.held)} held by their users")
    if ledger.paused is not None:
        lines.append(f"**PAUSED** {cut(ledger.paused)}")
    lines += [f"Scale group {group} is paused: {cut(reason)}" for group, reason in ledger.paused_groups.items()]
    lines += [f"- host {host}: {cut(str(closure))}" for host, closure in list(ledger.closed.items())[:20]]
    return "\n\n".join(lines)


def broken_slices(ledger: Ledger) -> dict[str, str]:
    """Returns the slices with a quarantined host, and a text that names the host."""
    return {
        ledger.hosts[host_id].slice_id: f"host {host_id} is {closure}"
        for host_id, closure in ledger.closed.items()
        if closure.by is ClosedBy.QUARANTINE and host_id in ledger.hosts
    }


def reserve_of(ledger: Ledger) -> set[str]:
    """Returns the idle slices if a scale group keeps a reserve of them, else an empty set."""
    return set(ledger.idle()) if any(group.buffer_slices for group in ledger.catalog.groups) else set()


def owners_of(ledger: Ledger, page: SnapshotPage) -> Owners:
    """Returns a page of the owners of placements and requests."""
    keys = [*ledger.live, *ledger.waiting.keys(), *ledger.held.keys()]
    owners = []
    for key in keys[page.offset : page.offset + page.limit]:
        entry = ledger.live.get(key) or ledger.waiting.get(key) or ledger.held.get(key)
        assert entry is not None
        owners.append(Owner(key=key, owner=entry.owner))
    return Owners(owners=tuple(owners), total=len(keys))
