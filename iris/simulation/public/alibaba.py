"""Reads two of Alibaba's traces of GPU clusters: `pai_task_table.csv` of 2020, and
`openb_pod_list_*.csv` of 2023.

Source of the formats: github.com/alibaba/clusterdata, README.md of cluster-trace-gpu-v2020 and of
cluster-trace-gpu-v2023. In both, times are seconds from an unknown date on.
"""

import math
from collections.abc import Iterator

from iris.model.host.resources import ANY_VARIANT, Resources
from iris.model.job.spec import Band
from iris.model.units import GIB, MIB
from iris.simulation.public.jobs import PublicJob, PublicJobs, Row, gpus, rows, run
from iris.usage.records import UseEnd

SOURCE_2020 = "Alibaba PAI 2020"
SOURCE_2023 = "Alibaba 2023"
COLUMNS_2020 = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu"),
    *("plan_mem", "plan_gpu", "gpu_type"),
)
COLUMNS_2023 = (
    *("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase"),
    *("creation_time", "deletion_time", "scheduled_time"),
)
#: The states of tasks in the trace of 2020.
STATUSES = ("Terminated", "Failed", "Running", "Waiting")
_ENDS_2020 = {
    "Terminated": UseEnd.SUCCEEDED,
    "Failed": UseEnd.FAILED,
    "Running": UseEnd.SUCCEEDED,  # cut off at the end of the trace
}
_ENDS_2023 = {
    "Succeeded": UseEnd.SUCCEEDED,
    "Failed": UseEnd.FAILED,
    "Running": UseEnd.SUCCEEDED,  # ran until it was deleted
}
_BANDS = {
    "LS": Band.PRODUCTION,  # latency sensitive
    "Guaranteed": Band.PRODUCTION,
    "Burstable": Band.INTERACTIVE,
    "BE": Band.BATCH,  # best effort
}
#: The GPU variants of Iris, by the names in the trace. The names in the trace also contain the size
#: of the memory.
_VARIANTS = {"V100M16": "V100", "V100M32": "V100"}


def read_2020(text: str, name: str) -> PublicJobs:
    """Returns the instances of the tasks of `pai_task_table.csv`, with or without a first line that
    names the columns. Each is placed by itself.

    Raises:
        InvalidValue: a field has a wrong value.
    """
    heading = text.lstrip().startswith(COLUMNS_2020[0])
    table = list(rows(text, name, COLUMNS_2020, heading=heading))
    times = (row.number(field) for row in table for field in ("start_time", "end_time"))
    last = max((time for time in times if time is not None), default=0.0)
    found = [list(_instances(row, last)) for row in table]
    jobs = [job for instances in found for job in instances]
    return PublicJobs(jobs, sum(not instances for instances in found))


def _instances(row: Row, last: float) -> Iterator[PublicJob]:
    """Yields the instances of a task; nothing if it never ran.

    Args:
        last: the end of the trace, for tasks that still run.
    """
    end, started = _ENDS_2020.get(row.text("status")), row.number("start_time")
    ended = row.number("end_time")
    if ended is None and row.text("status") == "Running":
        ended = last
    if end is None or started is None or ended is None:
        return
    job = PublicJob(
        user="",
        submitted=started,
        placed=None,
        ended=max(started, ended),
        runs=(run(ended - started, end),),
        resources=Resources(
            cpu_millis=round(10 * (row.number("plan_cpu") or 0)),  # 100 is a core
            memory_bytes=round(GIB * (row.number("plan_mem") or 0)),
            device=gpus(math.ceil((row.number("plan_gpu") or 0) / 100)),
        ),
        job=row.text("job_name"),
    )
    for _ in range(max(1, int(row.number("inst_num") or 1))):
        yield job


def read_2023(text: str, name: str) -> PublicJobs:
    """Returns the pods of `openb_pod_list_*.csv`.

    Raises:
        InvalidValue: a column is missing, or a field has a wrong value.
    """
    return PublicJobs.of([_pod(row) for row in rows(text, name, COLUMNS_2023, heading=True)])


def _pod(row: Row) -> PublicJob | None:
    """Returns a pod; None if it never ran."""
    end, created = _ENDS_2023.get(row.text("pod_phase")), row.number("creation_time")
    placed, deleted = row.number("scheduled_time"), row.number("deletion_time")
    if end is None or created is None or placed is None or deleted is None:
        return None
    kinds = dict.fromkeys(_VARIANTS.get(kind, kind) for kind in row.text("gpu_spec").split("|"))
    return PublicJob(
        user="",
        submitted=created,
        placed=max(created, placed),
        ended=max(placed, deleted),
        runs=(run(deleted - placed, end),),
        resources=Resources(
            cpu_millis=int(row.number("cpu_milli") or 0),
            memory_bytes=int(MIB * (row.number("memory_mib") or 0)),
            device=gpus(
                int(row.number("num_gpu") or 0), ",".join(filter(None, kinds)) or ANY_VARIANT
            ),
        ),
        band=_BANDS.get(row.text("qos"), Band.INTERACTIVE),
    )
