"""What the scheduler shows of its book."""

from iris import names
from iris.gangs import Placement
from iris.hosts import headroom
from iris.ledger import Ledger
from iris.workflows.messages import Demand, Demands, HostView, Owner, Owners, Snapshot, SnapshotPage


def snapshot_of(ledger: Ledger, page: SnapshotPage) -> Snapshot:
    """Hosts with what is free on them and which tasks they run, and how much waits and runs."""
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
        views.append(HostView(host=host, free=free, running=tuple(tasks), closed=ledger.fleet.closed(host) or ""))
    return Snapshot(
        hosts=tuple(views),
        total_hosts=len(ledger.hosts),
        waiting=len(ledger.waiting),
        running=len(ledger.live),
        held=len(ledger.held),
        paused=ledger.paused,
        paused_groups=ledger.paused_groups,
        rules=ledger.rules,
    )


def demands_of(ledger: Ledger) -> Demands:
    """How many gangs wait for what."""
    counts = ledger.demand()
    firsts = {shape: ledger.waiting.first(shape) for shape in counts}
    return Demands(
        demands=tuple(Demand(count=counts[shape], example=example) for shape, example in firsts.items() if example is not None)
    )


def owners_of(ledger: Ledger, page: SnapshotPage) -> Owners:
    """Who waits for or holds something."""
    keys = [*ledger.live, *ledger.waiting.keys(), *ledger.held.keys()]
    owners = []
    for key in keys[page.offset : page.offset + page.limit]:
        entry = ledger.live.get(key) or ledger.waiting.get(key) or ledger.held.get(key)
        assert entry is not None
        owners.append(Owner(key=key, owner=entry.owner))
    return Owners(owners=tuple(owners), total=len(keys))
