"""Workloads, clusters and worlds for the tests of the simulation."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from iris.model.host.resources import Device, DeviceKind, Resources
from iris.model.job.spec import Band
from iris.model.rules import Rules
from iris.model.slice.scale_groups import Pace, ScaleGroup, SliceType
from iris.simulation.engine import Cluster
from iris.simulation.trace import GangTrace, Heading, Run, Trace
from iris.simulation.world import World
from iris.usage.records import UseEnd

BEGINS = datetime(2026, 1, 5, tzinfo=UTC)
GIB = 1024**3


def gpu_group(name: str = "h100", **changes: object) -> ScaleGroup:
    """Machines with eight GPUs each."""
    return ScaleGroup.model_validate(
        {
            "name": name,
            "type": SliceType.GCE_VM,
            "zones": ("europe-west4-b",),
            "resources": gpus(8, cpu=64_000, memory=512 * GIB),
            "machine_type": "a3-highgpu-8g",
            "max_slices": 4,
            **changes,
        }
    )


def tpu_group(name: str = "tpu", **changes: object) -> ScaleGroup:
    """Slices of four hosts with four chips each."""
    device = Device(kind=DeviceKind.TPU, variant="v5litepod-16", count=4)
    return ScaleGroup.model_validate(
        {
            "name": name,
            "type": SliceType.TPU_VM,
            "zones": ("europe-west4-b",),
            "hosts": 4,
            "resources": Resources(
                cpu_millis=112_000, memory_bytes=192 * GIB, disk_bytes=100 * GIB, device=device
            ),
            "accelerator_variant": "v5litepod-16",
            "max_slices": 4,
            **changes,
        }
    )


def gpus(count: int, *, cpu: int = 1000, memory: int = GIB) -> Resources:
    device = Device(kind=DeviceKind.GPU, variant="H100", count=count) if count else None
    return Resources(cpu_millis=cpu, memory_bytes=memory, device=device)


def gang(number: int, at: float, seconds: float, count: int = 8, **changes: object) -> GangTrace:
    """A task that needs GPUs of one machine."""
    return GangTrace.model_validate(
        {
            "id": f"gang-{number}",
            "user": "ada",
            "at": at,
            "resources": gpus(count),
            "runs": (Run(seconds=seconds),),
            **changes,
        }
    )


def on_slice(number: int, at: float, seconds: float, **changes: object) -> GangTrace:
    """A gang that needs a whole TPU slice."""
    device = Device(kind=DeviceKind.TPU, variant="v5litepod-16", count=4)
    needs = Resources(cpu_millis=1000, memory_bytes=GIB, device=device)
    shape = {"resources": needs, "tasks": 4, "group_by": "tpu-name"}
    return gang(number, at, seconds, **{**shape, **changes})


def trace(gangs: Iterable[GangTrace], hours: float = 24.0) -> Trace:
    heading = Heading(begins=BEGINS, ends=BEGINS + timedelta(hours=hours))
    return Trace.of(heading, gangs)


def world(**values: object) -> World:
    """A world; the arguments are those of `Machines`, for all groups."""
    own = {name: values.pop(name) for name in list(values) if name in World.model_fields}
    return World.model_validate({"machines": {"*": values}, **own})


def _seconds(most: int) -> st.SearchStrategy[float]:
    return st.integers(0, most * 1000).map(lambda millis: millis / 1000)


@st.composite
def gangs(draw: st.DrawFn) -> list[GangTrace]:
    """Up to fifteen gangs of all kinds within a day. Where a machine dies each hour, a run of many
    hours begins hundreds of times, which shows no more than two.
    """

    def one(number: int) -> GangTrace:
        ends = (UseEnd.FAILED, UseEnd.SET_UP_FAILED)
        last = draw(st.sampled_from((UseEnd.SUCCEEDED, UseEnd.FAILED, UseEnd.CANCELLED)))
        runs = tuple(
            Run(
                set_up=draw(st.floats(0, 120)),
                seconds=draw(st.floats(0, 5_000)),
                end=draw(st.sampled_from(ends)) if not is_last else last,
            )
            for is_last in (*[False] * draw(st.integers(0, 2)), True)
        )
        make = draw(st.sampled_from((gang, on_slice)))
        changes = {
            "user": draw(st.sampled_from(("ada", "bob", "cyd"))),
            "band": draw(st.sampled_from(list(Band))),
            "runs": runs,
            "patience": draw(st.none() | st.floats(60, 7200)),
        }
        if make is gang:
            changes["resources"] = gpus(draw(st.sampled_from((0, 1, 2, 4, 8))))
        return make(number, draw(st.floats(0, 86_000)), 0.0, **changes)

    return [one(number) for number in range(draw(st.integers(1, 15)))]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """A group of GPU machines and a group of TPU slices."""

    def limits() -> dict[str, object]:
        most = draw(st.integers(0, 4))
        least = draw(st.integers(0, most))
        delay = draw(st.sampled_from((60, 300, 3600)))
        return {
            "max_slices": most,
            "min_slices": least,
            "buffer_slices": draw(st.integers(0, 1)),
            "preemptible": draw(st.booleans()),
            "zones": draw(st.sampled_from((("europe-west4-b",), ("us-east5-a", "us-east5-b")))),
            "pace": Pace(scale_down_delay=timedelta(seconds=delay)),
        }

    rules = Rules(preemption=draw(st.booleans()), min_run_time=timedelta(seconds=30))
    return Cluster((gpu_group(**limits()), tpu_group(**limits())), rules)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    values: dict[str, object] = {
        "boot": draw(st.lists(_seconds(600), min_size=1, max_size=3)),
        "delete": draw(_seconds(120)),
        "preemptions_per_hour": draw(st.sampled_from((0.0, 0.1, 1.0))),
        "failures_per_hour": draw(st.sampled_from((0.0, 0.1, 1.0))),
        "stock_out": draw(st.sampled_from((0.0, 0.2, 0.9))),
        "checkpoint_every": draw(st.sampled_from((0, 60, 600))),
        "stop": draw(_seconds(30)),
    }
    if draw(st.booleans()):
        values["resubmit"] = {"share": draw(st.floats(0, 1)), "times": draw(st.integers(1, 2))}
    return world(**values)
