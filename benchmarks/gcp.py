"""Measures the Google Cloud platform against the fake of its API: many preemptions at once, and the
list of a large fleet.

The fake is a process on the same machine. The measured times include the time that the fake takes
to answer, but no network. The calls are the same as with Google. The floor of the list is the time
in which the official client gets the same pages, unread.
"""

import asyncio
import time
from collections.abc import Iterable
from datetime import timedelta

from google.cloud import tpu_v2

from benchmarks import paper
from benchmarks.table import Row
from iris.activities.control.observe import LIST_PATIENCE
from iris.autoscaling import plan
from iris.model import names
from iris.model.host import accelerators
from iris.model.host.constraints import TPU_NAME
from iris.model.host.resources import Device, DeviceKind, Resources
from iris.model.job.requests import request_for
from iris.model.job.spec import Coscheduling, JobSpec
from iris.model.slice.provisioning import DeleteResult, SliceFault, SliceRequest
from iris.model.slice.scale_groups import Pace, ScaleGroup, SliceType
from iris.model.slice.scaling import Demand, Memory, Wanted
from iris.model.slice.status import SliceFacts, SliceState
from iris.platforms.gcp.clients import connect
from iris.platforms.gcp.platform import GcpPlatform
from iris.platforms.gcp.settings import GcpSettings
from iris.platforms.gcp.tpu import PAGE
from tests.fakes.google.client import FakeGoogle

#: The number of preempted slices, and the targets: milliseconds of the evaluation, and API calls
#: per slice.
STORM, DECISION, CALLS = 60, 100.0, 8.0
ZONES = (
    *(
        f"{region}-{letter}"
        for region in ("europe-west4", "us-west1", "us-east4")
        for letter in "abc"
    ),
    "us-west4-a",
)
#: The size in bytes of a host's startup script with an ordinary configuration. Lists of hosts
#: contain the script.
SCRIPT = 16_000
#: The seconds between two checks whether a deleted slice is gone.
AGAIN = 0.2
#: The most concurrent creations.
CREATES = 16
TIMES = 5
VARIANT = accelerators.tpu("v5litepod-16")
CHIPS = Device(kind=DeviceKind.TPU, variant=VARIANT.variant, count=VARIANT.chips_per_host)
GROUP = ScaleGroup(
    name="v5e-16",
    type=SliceType.TPU_VM,
    zones=ZONES,
    hosts=VARIANT.hosts,
    resources=Resources(
        cpu_millis=VARIANT.host_cpu_millis, memory_bytes=VARIANT.host_memory_bytes, device=CHIPS
    ),
    accelerator_variant=VARIANT.variant,
    runtime_version=VARIANT.runtime_version,
    topology=VARIANT.topology,
    preemptible=True,
    max_slices=2 * STORM,
    pace=Pace(scale_ups_per_minute=2 * STORM),
)


def measure(*, quick: bool) -> list[Row]:
    with paper.as_in_control_plane():
        rows = [_decision()]
    with FakeGoogle() as google:
        google.boot_time(0.0)
        google.delete_time(0.0)
        rows.append(asyncio.run(_storm(google)))
    with FakeGoogle() as google:
        google.boot_time(0.0)
        return rows + asyncio.run(_list(google, 200 if quick else 2_000))


def _decision() -> Row:
    """Measures the evaluation after all slices were preempted and their gangs wait: it requests as
    many slices again.
    """
    now = paper.NOON + timedelta(hours=1)
    slices = [
        SliceFacts(
            id=f"prod-v5e-16-{index:08x}",
            group=GROUP.name,
            zone=ZONES[index % len(ZONES)],
            state=SliceState.DELETING,
            requested_at=paper.NOON,
            ready_at=paper.NOON,
            changed_at=now,
            reason="the platform has preempted its machines",
            fault=SliceFault.PREEMPTED,
        )
        for index in range(STORM)
    ]
    together = Coscheduling(group_by=TPU_NAME, groups=1)
    spec = JobSpec(
        user="ada",
        name="train",
        command=("true",),
        resources=Resources(device=CHIPS),
        replicas=GROUP.hosts,
        coscheduling=together,
    )
    owner = names.job_workflow("prod", spec.id)
    example = request_for(
        spec, index=0, attempt=1, run_id="run", owner=owner, submitted_at=paper.NOON
    )
    took = []
    for _ in range(TIMES):
        wanted = Wanted(demands=(Demand(count=STORM, example=example),), as_of=now)
        began = time.perf_counter()
        made = plan.plan([GROUP], slices, wanted, Memory(), now)
        took.append(1000 * (time.perf_counter() - began))
        assert len(made.creates) == STORM
    return Row(
        f"{STORM} slices preempted: one evaluation requests {STORM}, ms", min(took), target=DECISION
    )


async def _storm(google: FakeGoogle) -> Row:
    """Counts the API calls from the preemption of all slices until they are deleted and replaced,
    without calls that list.
    """
    platform = _platform(google)
    former, later = _requests("former", STORM), _requests("later", STORM)
    await _create(platform, former)
    for request in former:
        google.preempt(request.slice_id, 0)
    before, began = len(google.calls()), time.perf_counter()
    await asyncio.gather(*(_deleted(platform, request) for request in former))
    await _create(platform, later)
    took, calls = time.perf_counter() - began, google.calls()[before:]
    google.check()
    assert len(google.alive()) == STORM
    kinds = ", ".join(
        f"{calls.count(method) / STORM:.1f} {method}" for method in sorted(set(calls))
    )
    return Row(
        f"API calls for each of {STORM} deleted and created again",
        len(calls) / STORM,
        target=CALLS,
        note=f"{kinds}; {took:.1f} s",
    )


async def _list(google: FakeGoogle, nodes: int) -> list[Row]:
    """Measures the list of all slices, for which `observe_fleet` allows ten seconds."""
    platform = _platform(google)
    await _create(platform, _requests("many", nodes))
    before = len(google.calls())
    assert len((await platform.list_slices()).slices) == nodes
    calls = google.calls()[before:]
    took, floor = [], []
    for _ in range(TIMES):  # in turns, so that other load on the same cores affects both
        began = time.perf_counter()
        await platform.list_slices()
        took.append(time.perf_counter() - began)
        began = time.perf_counter()
        assert await asyncio.to_thread(_pages, google) == nodes
        floor.append(time.perf_counter() - began)
    what = f"{nodes:,} nodes in {len(ZONES)} zones"
    return [
        Row(
            f"listing {what}, s",
            min(took),
            target=float(LIST_PATIENCE),
            format="{:.2f}",
            note=f"maximum {max(took):.2f} s",
        ),
        Row(
            "the same; floor: its pages read by the official client, s",
            min(took),
            min(floor),
            format="{:.2f}",
        ),
        Row(
            f"calls to list {what}",
            len(calls),
            note=", ".join(f"{calls.count(each)} {each}" for each in sorted(set(calls))),
        ),
    ]


def _pages(google: FakeGoogle) -> int:
    """Returns the number of nodes that the official client gets."""
    request = tpu_v2.ListNodesRequest(parent="projects/bench-1/locations/-", page_size=PAGE)
    return sum(len(page.nodes) for page in connect(_settings(google)).tpu.list_nodes(request).pages)


def _settings(google: FakeGoogle) -> GcpSettings:
    return GcpSettings(
        project="bench-1",
        cluster="prod",
        uid="uid-of-prod",
        label_prefix="iris",
        network="default",
        requests_per_minute=1_000_000,
        tpu_endpoint=google.tpu,
        compute_endpoint=google.compute,
    )


def _platform(google: FakeGoogle) -> GcpPlatform:
    return GcpPlatform(_settings(google), lambda request: "#" * SCRIPT)


def _requests(name: str, number: int) -> list[SliceRequest]:
    return [
        SliceRequest(
            slice_id=f"prod-{name}-{index}",
            cluster="prod",
            zone=ZONES[index % len(ZONES)],
            token="token",
            group=GROUP,
        )
        for index in range(number)
    ]


async def _create(platform: GcpPlatform, requests: Iterable[SliceRequest]) -> None:
    turn = asyncio.Semaphore(CREATES)

    async def create(request: SliceRequest) -> None:
        async with turn:
            await platform.create_slice(request)

    await asyncio.gather(*map(create, requests))


async def _deleted(platform: GcpPlatform, request: SliceRequest) -> None:
    """Deletes a slice as its workflow does: it repeats the call until the slice is gone, because
    Google sends no notification.
    """
    while await platform.delete_slice(request.slice_id, request.zone) is not DeleteResult.GONE:  # noqa: ASYNC110
        await asyncio.sleep(AGAIN)
