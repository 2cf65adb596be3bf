"""Hypothesis strategies that several test files share: small numbers, so that requests and hosts
collide often.

Whole clusters are made from a few drawn sizes and a drawn seed: ten times as many fit into the same
time as when each number is drawn, and a failure still shrinks to the smallest sizes and prints the
seed.
"""

from datetime import timedelta
from random import Random
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st

from iris.model.host.hosts import ClosedBy, Closure, Host
from iris.model.host.resources import Device, DeviceKind, Resources
from iris.model.job.requests import Placement, Request, Seat
from iris.model.job.spec import Band
from iris.model.rules import Rules
from iris.model.units import GIB
from iris.scheduling.placement.host_index import HostIndex
from iris.scheduling.placement.place import place
from iris.scheduling.placement.queue import Queue
from tests.builders import NOON, a_gang, a_host, a_request, a_slice, at, demands, some


def examples(number: int) -> int:
    """Returns the number of examples of a property: `number` in the `explore` profile, less in the
    others (`tests/conftest.py`).
    """
    return max(5, number * settings.default.max_examples // 100)


#: For properties of plain functions.
CHEAP = settings(max_examples=examples(200), deadline=None, print_blob=True)

PATIENT = Rules(patience=timedelta(days=365))


class Situation(NamedTuple):
    """All that a pass is told."""

    fleet: HostIndex
    live: list[Placement]
    queue: list[Request]


def devices(*variants: str, most: int) -> st.SearchStrategy[Device]:
    return st.builds(
        Device,
        kind=st.sampled_from(DeviceKind),
        variant=st.sampled_from(variants),
        count=st.integers(1, most),
    )


def wants() -> st.SearchStrategy[Resources]:
    """What a task asks for."""
    return st.builds(
        Resources,
        cpu_millis=st.sampled_from([0, 500, 1000, 3000]),
        memory_bytes=st.integers(0, 4).map(GIB.__mul__),
        disk_bytes=st.sampled_from([0, 0, GIB]),
        device=st.none() | devices("auto", "A", "b", "A,b", most=4),
    )


def situations(queue: int = 15) -> st.SearchStrategy[Situation]:
    """Hosts, some of them closed; what runs on them, some of it in lives that are over or on hosts
    that shrank; and who waits.
    """
    return st.builds(
        a_situation,
        st.integers(0, 2**32).map(Random),
        alone=st.integers(0, 4),
        slices=st.integers(0, 3),
        held=st.integers(0, 12),
        waiting=st.integers(0, queue),
    )


def a_situation(random: Random, alone: int, slices: int, held: int, waiting: int) -> Situation:
    hosts = [_host(random, f"h{i}") for i in range(alone)]
    for i in range(slices):
        hosts += _slice(random, f"s{i}")
    random.shuffle(hosts)
    live = []
    for placement in place(
        HostIndex(hosts), [], Queue(a_queue(random, held, "held")), NOON, PATIENT
    ).placed:
        first, *others = placement.seats
        seats = (
            Seat(first.host_id, first.slice_id, "an earlier one", first.group)
            if random.random() < 0.2
            else first,
            *others,
        )
        since = at(random.choice([-600, -121, -119, 0]))
        live.append(placement.model_copy(update={"seats": seats, "placed_at": since}))
    hosts = [_shrunk(host) if random.random() < 0.1 else host for host in hosts]
    closed = {host.id: Closure(by=ClosedBy.CORDON) for host in hosts if random.random() < 0.1}
    return Situation(HostIndex(hosts, closed), live, a_queue(random, waiting))


def a_queue(random: Random, count: int, prefix: str = "k") -> list[Request]:
    """Requests of up to four shapes and of three users, in any order."""
    kinds = [_shape(random) for _ in range(random.randint(1, 4))]
    queue = []
    for i in range(count):
        key = f"{prefix}{i:02}"
        changes = {
            "key": key,
            "task": key,
            "owner": f"job of {key}",
            "band": random.choice(list(Band)),
        }
        changes |= {"user": random.choice("abc"), "submitted_at": at(random.randint(0, 5))}
        queue.append(random.choice(kinds).model_copy(update=changes))
    random.shuffle(queue)
    return queue


_CONSTRAINTS = [
    demands(*texts)
    for texts in [
        (),
        (),
        (),
        ("zone = x",),
        ("?zone = y",),
        ("zone exists", "?zone = x"),
        ("!zone",),
    ]
]


def _shape(random: Random) -> Request:
    """A request of one task, or of a gang that wants hosts of one slice or of two."""
    constraints = random.choice(_CONSTRAINTS)
    if random.random() < 0.5:
        device = random.choice(
            ["cpu", "cpu", "tpu:auto:1", "tpu:A:2", "tpu:A,B:4", "gpu:b:1", "gpu:auto:3"]
        )
        cpu, memory, disk = (
            random.choice([0, 0.5, 1, 3]),
            random.randint(0, 4),
            random.choice([0, 0, 1]),
        )
        return a_request(wants=some(cpu, memory, disk, device), constraints=constraints)
    groups = random.choice([1, 1, 2])
    chips = some(
        random.choice([0, 1, 3]),
        random.choice([0, 0, 2]),
        device=f"tpu:auto:{random.choice([1, 2, 4])}",
    )
    return a_gang(
        tasks=groups * random.randint(1, 4 // groups),
        wants=chips,
        constraints=constraints,
        groups=groups,
    )


def _host(random: Random, host_id: str) -> Host:
    device = random.choice(
        ["cpu", "cpu", f"tpu:a:{random.randint(1, 8)}", f"gpu:B:{random.randint(1, 8)}"]
    )
    offers = some(random.choice([0.5, 2, 4, 8]), random.randint(0, 8), random.randint(0, 3), device)
    return a_host(host_id, offers, accept_cpu_jobs=random.random() < 0.5, attributes=_zone(random))


def _slice(random: Random, name: str) -> list[Host]:
    offers, accept = some(cpu=4, memory=4, device="tpu:a:4"), random.random() < 0.5
    return a_slice(
        name, random.randint(1, 4), offers, attributes=_zone(random), accept_cpu_jobs=accept
    )


def _zone(random: Random) -> dict[str, str]:
    return random.choice([{}, {"zone": "x"}, {"zone": "y"}])


def _shrunk(host: Host) -> Host:
    return host.model_copy(
        update={"resources": some(cpu=1, memory=1, device=host.resources.device or "cpu")}
    )
