"""Generates the hosts and requests of a large cluster, the same in every run, for measurements
without a server.
"""

import contextlib
import gc
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count

from iris.model import names
from iris.model.host.constraints import (
    PREEMPTIBLE,
    REGION,
    SCALE_GROUP,
    TPU_NAME,
    TPU_TOPOLOGY,
    TPU_VM_COUNT,
    TPU_WORKER_ID,
    ZONE,
    Attribute,
    parse_constraint,
)
from iris.model.host.hosts import Host
from iris.model.host.resources import Device, DeviceKind, Resources
from iris.model.job.requests import Request, request_for
from iris.model.job.spec import Band, Coscheduling, JobSpec
from iris.model.units import GIB
from iris.processes.process import rest_memory

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
USERS = 50
#: The number of hosts in a TPU slice.
SLICE = 4
_GPU = Device(kind=DeviceKind.GPU, variant="H100", count=8)
_TPU = Device(kind=DeviceKind.TPU, variant="v5litepod-16", count=4)


@contextlib.contextmanager
def as_in_control_plane() -> Iterator[None]:
    """Sets up the garbage collector as a control plane does."""
    before = gc.get_threshold()
    rest_memory()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def hosts(number: int) -> list[Host]:
    """Returns hosts in three zones: half of the machines are CPU hosts, a quarter GPU hosts, a
    quarter TPU slices.
    """
    dice = random.Random(1)
    made: list[Host] = []
    for machine in count():
        if len(made) >= number:
            return made[:number]
        place: dict[str, Attribute] = {REGION: "eu", ZONE: f"eu-{machine % 3}"}
        if machine % 4 < 2:
            offers = Resources(cpu_millis=32_000, memory_bytes=128 * GIB, disk_bytes=500 * GIB)
            made.append(
                _host(
                    dice,
                    f"cpu-{machine}",
                    offers,
                    {**place, SCALE_GROUP: "cpu", PREEMPTIBLE: False},
                )
            )
        elif machine % 4 == 2:
            offers = Resources(
                cpu_millis=96_000, memory_bytes=512 * GIB, disk_bytes=500 * GIB, device=_GPU
            )
            made.append(
                _host(
                    dice, f"gpu-{machine}", offers, {**place, SCALE_GROUP: "gpu", PREEMPTIBLE: True}
                )
            )
        else:
            offers = Resources(
                cpu_millis=112_000, memory_bytes=192 * GIB, disk_bytes=100 * GIB, device=_TPU
            )
            name = f"tpu-{machine}-{dice.getrandbits(24):06x}"
            slice_of: dict[str, Attribute] = {
                TPU_NAME: name,
                TPU_TOPOLOGY: "4x4",
                TPU_VM_COUNT: SLICE,
            }
            shared: dict[str, Attribute] = {
                **place,
                SCALE_GROUP: "v5e16",
                PREEMPTIBLE: True,
                **slice_of,
            }
            for worker in range(SLICE):
                made.append(
                    _host(
                        dice, f"{name}-w-{worker}", offers, {**shared, TPU_WORKER_ID: worker}, name
                    )
                )
    raise AssertionError


def requests(
    number: int,
    bands: tuple[Band, ...] = tuple(Band),
    seed: int = 2,
    specs: Sequence[JobSpec] | None = None,
    began: datetime = NOON,
    users: int = USERS,
) -> list[Request]:
    """Returns requests from so many users, a tenth of a second apart: of 30 shapes, or of those of the
    given jobs.

    Args:
        began: the time of the first request.
    """
    dice = random.Random(seed)
    made = []
    for index in range(number):
        at = began + timedelta(milliseconds=100 * index, microseconds=dice.randrange(90_000))
        run = f"{int(at.timestamp() * 1000):012x}"
        spec = dice.choice(specs or SHAPES).model_copy(
            update={
                "user": f"user{dice.randrange(users)}",
                "name": f"job-{dice.getrandbits(32):08x}",
                "band": dice.choice(bands),
            }
        )
        owner = names.job_workflow("prod", spec.id)
        made.append(
            request_for(
                spec,
                index=0,
                attempt=1,
                run_id=f"{run[:8]}-{run[8:]}",
                owner=owner,
                submitted_at=at,
            )
        )
    return made


def _host(
    dice: random.Random,
    host_id: str,
    offers: Resources,
    has: dict[str, Attribute],
    slice_id: str = "",
) -> Host:
    return Host(
        id=host_id,
        slice_id=slice_id or host_id,
        incarnation=f"20260101T110000-{dice.getrandbits(32):08x}",
        address=f"10.{dice.randrange(256)}.{dice.randrange(256)}.{dice.randrange(256)}",
        resources=offers,
        attributes=has,
    )


def _wants(cpu: int, memory: int, device: Device | None = None, **rest: object) -> JobSpec:
    resources = Resources(cpu_millis=cpu * 1000, memory_bytes=memory * GIB, device=device)
    return JobSpec(user="nobody", name="shape", command=("true",), resources=resources, **rest)


def many_shapes(number: int) -> list[JobSpec]:
    """Returns jobs of different shapes: half of them CPU tasks, a sixth GPU tasks, a third TPU
    gangs over one slice or two.
    """
    cpu = [_wants(cpu=1 + i % 30, memory=1 + i // 30) for i in range(number // 2)]
    gpu = [
        _wants(cpu=8, memory=1 + i, device=_GPU.model_copy(update={"count": 1 + i % 8}))
        for i in range(number // 6)
    ]
    gangs = [
        _wants(
            cpu=32,
            memory=1 + i // 2,
            device=_TPU,
            replicas=SLICE * (1 + i % 2),
            coscheduling=Coscheduling(group_by=TPU_NAME, groups=1 + i % 2),
        )
        for i in range(number - len(cpu) - len(gpu))
    ]
    return cpu + gpu + gangs


#: Ten shapes of CPU tasks, five of CPU tasks with a zone, seven of GPU tasks, eight of TPU gangs
#: over one slice or two.
SHAPES = (
    *(_wants(cpu=1 + i, memory=4 * (1 + i % 4)) for i in range(10)),
    *(
        _wants(cpu=1 + i, memory=1, constraints=(parse_constraint(f"zone=eu-{i % 3}"),))
        for i in range(5)
    ),
    *(
        _wants(cpu=8, memory=1 + i, device=_GPU.model_copy(update={"count": 1 + i}))
        for i in range(7)
    ),
    *(
        _wants(
            cpu=32,
            memory=1 + i,
            device=_TPU,
            replicas=SLICE * (1 + i % 2),
            coscheduling=Coscheduling(group_by=TPU_NAME, groups=1 + i % 2),
        )
        for i in range(8)
    ),
)
