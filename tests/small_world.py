"""A small world for the scheduler's book: slices, and what people want of them; and whether there
is room, worked out the slow and simple way, for the book's answers to be held against.
"""

from collections.abc import Callable, Iterable
from typing import Any

from iris.model.host.constraints import SCALE_GROUP, TPU_NAME, Constraint, parse_constraint
from iris.model.host.hosts import Host
from iris.model.job.requests import Placement, Request
from iris.scheduling.ledger.ledger import Ledger
from tests.builders import some

Message = Callable[[], None]
Wants = dict[str, Any]

#: Each slice: how many hosts it has, what each offers, what it says of itself.
SLICES = {
    "cpu": (1, some(cpu=2, memory=4, disk=10), {SCALE_GROUP: "cpus"}),
    "gpu": (
        1,
        some(cpu=4, memory=4, disk=10, device="gpu:H100:4"),
        {SCALE_GROUP: "gpus", "spot": True},
    ),
    "pod-a": (
        2,
        some(cpu=2, memory=2, device="tpu:v5litepod-8:4"),
        {SCALE_GROUP: "tpus", TPU_NAME: "a"},
    ),
    "pod-b": (
        2,
        some(cpu=2, memory=2, device="tpu:v5litepod-8:4"),
        {SCALE_GROUP: "tpus", TPU_NAME: "b", "spot": True},
    ),
    "pod-c": (
        3,
        some(cpu=2, memory=2, device="tpu:v5litepod-8:4"),
        {SCALE_GROUP: 7, TPU_NAME: "c"},
    ),
}
HOSTS = [f"{name}-{worker}" for name, (size, _, _) in SLICES.items() for worker in range(size)]
GROUPS = ["cpus", "tpus", "7"]

TPU = some(cpu=1, memory=1, device="tpu:auto:4")
WANTS: tuple[Wants, ...] = (
    {"wants": some(cpu=1)},
    {"wants": some(cpu=2, memory=1)},
    {"wants": some(cpu=1, device="gpu:auto:4")},
    {"wants": some(cpu=0.5, memory=3)},
    {"wants": some(cpu=1, device="gpu:H100:2")},
    {"wants": some(cpu=1, device="gpu:A100,H100:4"), "constraints": (parse_constraint("spot"),)},
    {"wants": TPU, "constraints": (parse_constraint("spot", preferred=True),)},
    {"wants": some(cpu=1, device="tpu:auto:1"), "tasks": 2, "group_by": TPU_NAME},
    {"wants": TPU, "tasks": 2, "group_by": TPU_NAME},
    {"wants": TPU, "tasks": 3, "group_by": TPU_NAME},
    {"wants": TPU, "tasks": 4, "group_by": TPU_NAME, "groups": 2},
    {"wants": TPU, "tasks": 2, "group_by": TPU_NAME, "constraints": (parse_constraint("!spot"),)},
    # Never.
    {"wants": TPU, "tasks": 4, "group_by": TPU_NAME},
    {"wants": some(cpu=1, device="gpu:A100:1")},
    {"wants": some(cpu=64)},
    {"wants": some(cpu=1), "constraints": (parse_constraint("zone=moon"),)},
)


def taken(host: Host, live: Iterable[Placement]) -> list[int]:
    """What the placements hold on the host in its present life, in the order of
    `Resources.vector`.
    """
    sums = [0, 0, 0, 0]
    for placement in live:
        for seat in placement.seats:
            if (seat.host_id, seat.incarnation) == (host.id, host.incarnation):
                sums = [
                    held + more for held, more in zip(sums, placement.resources.vector, strict=True)
                ]
    return sums


def has_room(request: Request, hosts: Iterable[Host], live: Iterable[Placement]) -> bool:
    """Whether the whole gang would fit on these hosts beside these placements."""
    live = list(live)
    fitting = [host for host in hosts if _takes(host, request, live)]
    if request.group_by is None:
        return bool(fitting)
    values = [
        str(host.facts[request.group_by]) for host in fitting if request.group_by in host.facts
    ]
    enough = [
        value for value in set(values) if values.count(value) >= request.tasks // request.groups
    ]
    return len(enough) >= request.groups


def _takes(host: Host, request: Request, live: list[Placement]) -> bool:
    required: list[Constraint] = [each for each in request.constraints if not each.preferred]
    if not host.may_run(request.resources) or not all(each.holds(host.facts) for each in required):
        return False
    amounts = zip(host.resources.vector, taken(host, live), request.resources.vector, strict=True)
    return all(wanted <= has - used or not wanted for has, used, wanted in amounts)


def seen(ledger: Ledger) -> dict[str, object]:
    """All that the book shows of itself."""
    return {
        "hosts": ledger.hosts,
        "live": ledger.live,
        "waiting": {request.key: request for request in ledger.waiting},
        "held": {request.key: request for request in ledger.held},
        "closed": ledger.closed,
        "paused": (ledger.paused, ledger.paused_groups),
        "evicting": set(ledger.evicting),
        "rules": ledger.rules,
        "demand": ledger.demand(),
    }
