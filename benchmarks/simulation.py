"""Measures the simulation of a cluster: its CPU time and memory, and how both grow with the jobs.

Each simulation runs in a process of its own, so that its memory is known.
"""

import multiprocessing
import resource
import time
from datetime import UTC, datetime, timedelta
from math import log
from typing import NamedTuple

from benchmarks.table import Row
from iris.model.host.resources import Device, DeviceKind, Resources
from iris.model.job.spec import Band
from iris.model.slice.scale_groups import ScaleGroup, SliceType
from iris.model.units import GIB, MIB
from iris.simulation.chance import uniform
from iris.simulation.engine import Cluster, simulate
from iris.simulation.report.answers import answers_of
from iris.simulation.report.document import Report, report_of
from iris.simulation.report.results import Results
from iris.simulation.report.tables import Shown
from iris.simulation.trace import GangTrace, Heading, Run, Trace
from iris.simulation.world import World
from iris.usage.accounting import Accounting

#: The targets of a week of 10,000 jobs on 200 slices, and of 100,000 jobs on 2,000 slices.
WEEK, MEMORY, LARGE = 60.0, 500.0, 900.0
#: The length of the jobs, at most: a job takes half of it on average, and of a machine a half.
LONGEST = timedelta(hours=8)
_BEGINS = datetime(2026, 1, 5, tzinfo=UTC)
_USERS = 20
_WORLD = World.model_validate(
    {"machines": {"*": {"boot": [80, 120, 300], "preemptions_per_hour": 0.01, "stock_out": 0.1}}}
)


class Cost(NamedTuple):
    """What a simulation took: CPU seconds, the peak of its memory in MiB, and its passes."""

    seconds: float
    mib: float
    passes: int


def measure(*, quick: bool) -> list[Row]:
    week = 2_000 if quick else 10_000
    costs = {jobs: _cost(jobs, slices=200, days=7 * jobs / week) for jobs in (week // 2, week)}
    costs[2 * week] = _cost(2 * week, slices=200, days=14)
    small, large = costs[week // 2], costs[2 * week]
    growth = (large.seconds / small.seconds) / (4 * log(2 * week) / log(week // 2))
    rows = [
        Row(
            f"simulation of {week:,} jobs in a week on up to 200 slices, CPU s",
            costs[week].seconds,
            target=WEEK,
            note=f"{costs[week].passes:,} passes of the scheduler",
        ),
        Row("the same, memory, MiB", costs[week].mib, target=MEMORY, format="{:.0f}"),
        Row(
            f"growth from {week // 2:,} to {2 * week:,} jobs at equal load, against n log n",
            growth,
            target=1.0,
            format="{:.2f}",
            note=f"{small.seconds:.1f} s and {large.seconds:.1f} s",
        ),
    ]
    if not quick:
        most = _cost(100_000, slices=2_000, days=7)
        name = "simulation of 100,000 jobs in a week on up to 2,000 slices, CPU s"
        note = f"{most.mib:.0f} MiB, {most.passes:,} passes"
        rows.append(Row(name, most.seconds, target=LARGE, format="{:.0f}", note=note))
    return rows


def _cost(jobs: int, *, slices: int, days: float) -> Cost:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_run, (jobs, slices, days))


def simulated_week() -> Report:
    """Returns the report of a fifth of the week of `WEEK`, beside itself."""
    history = simulate(_cluster(200), _trace(2_000, 7 / 5), _WORLD)
    results = Results("week", (0,), (answers_of(history, Accounting()),))
    return report_of(Shown(results, results), (), [("week", history)] * 2)


def _run(jobs: int, slices: int, days: float) -> Cost:
    cluster, trace = _cluster(slices), _trace(jobs, days)
    began = time.process_time()
    history = simulate(cluster, trace, _WORLD)
    seconds = time.process_time() - began
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB
    return Cost(seconds, mib, history.passes)


def _gpus(count: int, cpu: int, memory: int) -> Resources:
    device = Device(kind=DeviceKind.GPU, variant="H100", count=count)
    return Resources(cpu_millis=cpu, memory_bytes=memory, device=device)


def _cluster(slices: int) -> Cluster:
    """Returns a group of spot machines with eight GPUs each, in two zones."""
    group = ScaleGroup(
        name="h100",
        type=SliceType.GCE_VM,
        zones=("europe-west4-b", "europe-west4-a"),
        resources=_gpus(8, 64_000, 512 * GIB),
        machine_type="a3-highgpu-8g",
        max_slices=slices,
        preemptible=True,
    )
    return Cluster((group,))


def _trace(jobs: int, days: float) -> Trace:
    """Returns jobs of 20 users with one to eight GPUs, in all bands."""
    seconds = days * 86_400

    def job(number: int) -> GangTrace:
        def chance(what: str) -> float:
            return uniform(1, number, what)

        gpus = (1, 2, 4, 8)[int(chance("gpus") * 4)]
        length = 60 + chance("length") * LONGEST.total_seconds()
        return GangTrace(
            id=f"job-{number}",
            user=f"user-{int(chance('user') * _USERS)}",
            at=chance("at") * seconds,
            band=list(Band)[int(chance("band") * len(Band))],
            resources=_gpus(gpus, 4_000 * gpus, 16 * GIB),
            runs=(Run(set_up=10, seconds=length),),
        )

    heading = Heading(begins=_BEGINS, ends=_BEGINS + timedelta(seconds=seconds))
    return Trace.of(heading, map(job, range(jobs)))
