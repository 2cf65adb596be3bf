"""The scheduler's questions, answered again from hosts and placements alone: slowly, plainly, and
not by the code under test.
"""

from collections.abc import Iterable, Mapping, Sequence

from iris.model.host.constraints import TPU_WORKER_ID, Attribute
from iris.model.host.hosts import Host
from iris.model.host.resources import Resources
from iris.model.job.requests import Placement, Request
from iris.scheduling.placement.host_index import HostIndex

Amounts = dict[str, int]

DEVICE, CORE = 1000, 5


def amounts(resources: Resources) -> Amounts:
    device = resources.device.count if resources.device else 0
    return {
        "device": device,
        "cpu": resources.cpu_millis,
        "memory": resources.memory_bytes,
        "disk": resources.disk_bytes,
    }


def held_on(host: Host, placements: Iterable[Placement]) -> list[Placement]:
    """Those that have a seat in this life of the host."""
    return [
        each
        for each in placements
        if (host.id, host.incarnation) in {(seat.host_id, seat.incarnation) for seat in each.seats}
    ]


def free_on(host: Host, placements: Iterable[Placement]) -> Amounts:
    free = amounts(host.resources)
    for placement in held_on(host, placements):
        free = {name: free[name] - amount for name, amount in amounts(placement.resources).items()}
    return free


def lacking(wanted: Resources, free: Amounts) -> set[str]:
    """The dimensions of which more is wanted than there is."""
    return {name for name, amount in amounts(wanted).items() if amount and amount > free[name]}


def right_kind(host: Host, wanted: Resources) -> bool:
    offered = host.resources.device
    if wanted.device is None:
        return offered is None or host.accept_cpu_jobs
    variants = wanted.device.variant.lower().split(",")
    if offered is None or offered.kind is not wanted.device.kind:
        return False
    return variants == ["auto"] or offered.variant.lower() in variants


def attributes_of(host: Host) -> Mapping[str, Attribute]:
    device = host.resources.device
    mine: dict[str, Attribute] = (
        {"device-type": device.kind.value, "device-variant": device.variant} if device else {}
    )
    return {"device-type": "cpu", **mine, **host.attributes}


def failed(host: Host, request: Request, *, preferred: bool = False) -> list[str]:
    """The constraints that the host does not meet, as text."""
    facts = attributes_of(host)
    return [
        str(each)
        for each in request.constraints
        if each.preferred is preferred and not each.holds(facts)
    ]


def could_serve(host: Host, request: Request) -> bool:
    """Were it empty and open."""
    return (
        right_kind(host, request.resources)
        and not lacking(request.resources, amounts(host.resources))
        and not failed(host, request)
        and (request.group_by is None or request.group_by in attributes_of(host))
    )


def takes(fleet: HostIndex, host: Host, request: Request, placements: Iterable[Placement]) -> bool:
    """Whether one task of the request could go to the host now."""
    open_ = fleet.closed(host) is None
    return (
        open_
        and could_serve(host, request)
        and not lacking(request.resources, free_on(host, placements))
    )


def groups_of(hosts: Iterable[Host], request: Request) -> dict[str, list[Host]]:
    """By the attribute that the gang wants its groups to share, each in the order of the
    workers.
    """
    assert request.group_by is not None
    groups: dict[str, list[Host]] = {}
    for host in hosts:
        groups.setdefault(str(attributes_of(host)[request.group_by]), []).append(host)
    return {
        name: sorted(each, key=lambda host: int(host.attributes.get(TPU_WORKER_ID, 0)))
        for name, each in groups.items()
    }


def fits(
    fleet: HostIndex, request: Request, placements: Sequence[Placement], without: Iterable[str] = ()
) -> bool:
    """Whether the whole gang has room now, on hosts other than these."""
    barred = set(without)
    free = [
        host
        for host in fleet.hosts
        if host.id not in barred and takes(fleet, host, request, placements)
    ]
    if request.group_by is None:
        return bool(free)
    each = request.tasks // request.groups
    return (
        sum(len(members) >= each for members in groups_of(free, request).values()) >= request.groups
    )


def weight_of(gang: Request | Placement) -> int:
    tasks = gang.tasks if isinstance(gang, Request) else len(gang.seats)
    there = amounts(gang.resources)
    return tasks * max(
        1, DEVICE * there["device"] + CORE * there["cpu"] // 1000 + there["memory"] // 1024**3
    )


def use_of(user: str, rank: int, placements: Iterable[Placement]) -> int:
    """What the user holds in this band and the stronger ones."""
    return sum(
        weight_of(each) for each in placements if each.user == user and each.band.rank <= rank
    )


def left_of(queue: Iterable[Request], placed: Iterable[Placement]) -> list[Request]:
    keys = {placement.key for placement in placed}
    return [request for request in queue if request.key not in keys]
