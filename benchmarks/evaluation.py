"""Measures an evaluation of the autoscaler without a server: 100 scale groups, 2,000 slices, 200
shapes.

The autoscaler evaluates inside a workflow task, which must end within two seconds, each time that
demand or a slice has changed. So an evaluation must be short in every situation. `CASES` lists the
situations.
"""

import random
import time
from collections.abc import Callable
from datetime import timedelta
from statistics import median
from typing import Any, NamedTuple

from benchmarks import paper
from benchmarks.table import Row
from iris.autoscaling import plan
from iris.autoscaling.availability import kind_of
from iris.model import names
from iris.model.host import accelerators
from iris.model.host.constraints import TPU_NAME, parse_constraint
from iris.model.host.resources import Device, DeviceKind, Resources
from iris.model.job.requests import request_for
from iris.model.job.spec import Band, Coscheduling, JobSpec
from iris.model.slice.scale_groups import ScaleGroup, SliceType
from iris.model.slice.scaling import Demand, GroupMemory, Memory, StockedOut, Wanted
from iris.model.slice.status import SliceFacts, SliceState
from iris.model.units import GIB

#: Milliseconds.
TARGET = 100.0
TIMES = 5
ZONES = ("europe-west4-b", "europe-west4-a", "us-east1-c", "us-west4-a", "asia-east1-c")
VARIANTS = (
    "v5litepod-4",
    "v5litepod-8",
    "v5litepod-16",
    "v5litepod-32",
    "v5litepod-64",
    "v6e-8",
    "v6e-16",
    "v6e-32",
)
GPUS = ("A100", "H100", "H200")
#: The most waiting gangs of each shape.
MOST_ALIKE = 100
#: The time of the evaluation.
NOW = paper.NOON + timedelta(hours=2)


class Cluster(NamedTuple):
    """The input of an evaluation."""

    groups: list[ScaleGroup]
    slices: list[SliceFacts]
    wanted: Wanted
    memory: Memory = Memory()


def measure(*, quick: bool) -> list[Row]:
    groups, slices, shapes = (20, 400, 40) if quick else (100, 2_000, 200)
    with paper.as_in_control_plane():
        took = {what: _least(case(groups, slices, shapes)) for what, case in CASES.items()}
    worst = max(took, key=lambda what: took[what])
    note = "; ".join(f"{what} {took[what]:.0f} ms" for what in took)
    size = f"{groups} groups, {slices:,} slices, {shapes} shapes"
    return [
        Row(
            f"worst evaluation, {size}, ms",
            took[worst],
            target=TARGET,
            note=f"best of {TIMES} each: {note}",
        ),
        Row(f"median evaluation, {size}, ms", median(took.values()), target=TARGET),
    ]


def _least(cluster: Cluster) -> float:
    """Returns the milliseconds of the fastest of several evaluations. Each gets newly parsed
    demand, as from the scheduler.
    """
    took = []
    for _ in range(TIMES):
        wanted = Wanted.model_validate_json(cluster.wanted.model_dump_json())
        began = time.perf_counter()
        made = plan.plan(cluster.groups, cluster.slices, wanted, cluster.memory, NOW)
        took.append(1000 * (time.perf_counter() - began))
    assert len(made.groups) == len(cluster.groups)
    assert len(made.outlooks) == len(cluster.wanted.demands)
    return min(took)


def _quiet(groups: int, slices: int, shapes: int) -> Cluster:
    """Returns a cluster where no gang waits. A tenth of the slices is idle, some of them for long
    enough to be deleted.
    """
    kinds = _groups(groups, most=slices // groups)
    there = _slices(kinds, slices)
    return Cluster(kinds, there, _wanted([], there))


def _grows(groups: int, slices: int, shapes: int) -> Cluster:
    """Returns a cluster where many gangs wait, and every scale group may grow."""
    kinds = _groups(groups, most=2 * slices // groups)
    there = _slices(kinds, slices)
    return Cluster(kinds, there, _wanted(_demands(shapes), there))


def _full(groups: int, slices: int, shapes: int) -> Cluster:
    """Returns a cluster where many gangs wait, and no scale group may grow: each group passes the
    demand on with a reason.
    """
    kinds = _groups(groups, most=slices // groups)
    there = _slices(kinds, slices)
    return Cluster(kinds, there, _wanted(_demands(shapes), there))


def _under_way(groups: int, slices: int, shapes: int) -> Cluster:
    """Returns a cluster where many gangs wait, and half of the slices are being created."""
    kinds = _groups(groups, most=slices // groups)
    coming = (
        SliceState.REQUESTED,
        SliceState.PROVISIONING,
        SliceState.BOOTSTRAPPING,
        *[SliceState.READY] * 3,
    )
    there = _slices(kinds, slices, coming)
    return Cluster(kinds, there, _wanted(_demands(shapes), there))


def _failing(groups: int, slices: int, shapes: int) -> Cluster:
    """Returns a cluster where many gangs wait, quotas are used up, slices fail or are lost early,
    and zones are out of stock.
    """
    kinds = _groups(groups, most=2 * slices // groups)
    there = _slices(kinds, slices)
    later = NOW + timedelta(minutes=3)
    minutes = tuple((NOW - timedelta(minutes=minute), minute % 3 == 0) for minute in range(25))
    states = (
        GroupMemory(quota_until=later, quota_reason="CPUS"),
        GroupMemory(
            backoff_until=later, failures=3, failed_at=NOW, backoff_reason="the image is missing"
        ),
        GroupMemory(lives=minutes),
        GroupMemory(cooldown_until=later),
    )
    remembered = {group.name: states[number % len(states)] for number, group in enumerate(kinds)}
    out = tuple(
        StockedOut(zone=group.zones[0], kind=kind_of(group), until=later, at=NOW)
        for group in kinds[::3]
    )
    return Cluster(
        kinds, there, _wanted(_demands(shapes), there), Memory(groups=remembered, stocked_out=out)
    )


CASES: dict[str, Callable[[int, int, int], Cluster]] = {
    "no demand": _quiet,
    "all groups can grow": _grows,
    "all groups are full": _full,
    "half of the slices on their way": _under_way,
    "failures and stock-outs": _failing,
}


def _groups(number: int, most: int) -> list[ScaleGroup]:
    """Returns scale groups, each in three of five zones: a third without accelerators, a third with
    GPUs, a third with TPUs.
    """
    made = []
    for index in range(number):
        settings = {
            "name": f"group-{index}",
            "zones": tuple(ZONES[(index + step) % len(ZONES)] for step in range(3)),
            "priority": 50 * (1 + index % 3),
            "preemptible": index % 2 == 0,
            "max_slices": most,
        }
        if index % 3 == 0:
            cores = 2 ** (1 + index % 6)
            offers = Resources(
                cpu_millis=1000 * cores, memory_bytes=4 * cores * GIB, disk_bytes=100 * GIB
            )
            made.append(
                ScaleGroup(
                    type=SliceType.GCE_VM,
                    machine_type=f"n2-standard-{cores}",
                    resources=offers,
                    **settings,
                )
            )
        elif index % 3 == 1:
            gpu = Device(kind=DeviceKind.GPU, variant=GPUS[index % len(GPUS)], count=8)
            offers = Resources(
                cpu_millis=96_000, memory_bytes=512 * GIB, disk_bytes=500 * GIB, device=gpu
            )
            made.append(
                ScaleGroup(
                    type=SliceType.GCE_VM,
                    accelerator_variant=f"{gpu.variant}x8",
                    resources=offers,
                    **settings,
                )
            )
        else:
            tpu = accelerators.tpu(VARIANTS[index % len(VARIANTS)])
            device = Device(kind=DeviceKind.TPU, variant=tpu.variant, count=tpu.chips_per_host)
            offers = Resources(
                cpu_millis=tpu.host_cpu_millis,
                memory_bytes=tpu.host_memory_bytes,
                disk_bytes=100 * GIB,
                device=device,
            )
            shape = {
                "hosts": tpu.hosts,
                "topology": tpu.topology,
                "accelerator_variant": tpu.variant,
            }
            made.append(ScaleGroup(type=SliceType.TPU_VM, resources=offers, **shape, **settings))
    return made


def _slices(
    groups: list[ScaleGroup], number: int, states: tuple[SliceState, ...] = (SliceState.READY,)
) -> list[SliceFacts]:
    asked, ready = NOW - timedelta(minutes=2), NOW - timedelta(hours=1)
    made = []
    for index in range(number):
        group, state = groups[index % len(groups)], states[index // len(groups) % len(states)]
        times = (
            {"requested_at": ready, "ready_at": ready, "changed_at": ready}
            if state is SliceState.READY
            else {"requested_at": asked, "changed_at": asked}
        )
        slice_id = names.slice_id("iris", group.name, f"{index:08x}")
        made.append(
            SliceFacts(
                id=slice_id, group=group.name, zone=group.zones[index % 3], state=state, **times
            )
        )
    return made


def _wanted(demands: list[Demand], slices: list[SliceFacts]) -> Wanted:
    dice = random.Random(7)
    ready = [each.id for each in slices if each.state is SliceState.READY]
    idle = {
        each: NOW - timedelta(minutes=dice.randrange(10))
        for each in dice.sample(ready, len(ready) // 10)
    }
    return Wanted(demands=tuple(demands), idle=idle, as_of=NOW)


def _demands(number: int) -> list[Demand]:
    """Returns demands: half of the shapes need no accelerators, and half of those need a zone; the
    others need GPUs or TPUs.
    """
    dice = random.Random(8)
    made = []
    for index in range(number):
        device: Device | None = None
        rest: dict[str, Any] = {}
        if index % 4 == 1:
            rest = {"constraints": (parse_constraint(f"zone={ZONES[index % len(ZONES)]}"),)}
        elif index % 4 == 2:
            device = Device(
                kind=DeviceKind.GPU, variant=GPUS[index % len(GPUS)], count=1 + index % 8
            )
        elif index % 4 == 3:
            tpu, groups = accelerators.tpu(VARIANTS[index % len(VARIANTS)]), 1 + index % 3
            device = Device(kind=DeviceKind.TPU, variant=tpu.variant, count=tpu.chips_per_host)
            rest = {
                "replicas": tpu.hosts * groups,
                "coscheduling": Coscheduling(group_by=TPU_NAME, groups=groups),
            }
        resources = Resources(
            cpu_millis=1000 * (1 + index % 8), memory_bytes=(1 + index) * GIB // 4, device=device
        )
        spec = JobSpec(
            user=f"user{index % 50}",
            name=f"shape-{index}",
            command=("true",),
            resources=resources,
            band=tuple(Band)[index % 3],
            **rest,
        )
        owner = names.job_workflow("prod", spec.id)
        at = paper.NOON + timedelta(seconds=index)
        example = request_for(
            spec, index=0, attempt=1, run_id=f"run-{index}", owner=owner, submitted_at=at
        )
        made.append(Demand(count=1 + dice.randrange(MOST_ALIKE), example=example))
    return made
