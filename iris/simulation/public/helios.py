"""Reads `cluster_log.csv` of the Helios traces (SenseTime, 2020), one row for each job.

Source of the format: github.com/S-Lab-System-Group/HeliosData, README.md.
"""

import math

from iris.model.host.resources import Resources
from iris.simulation.public.jobs import PublicJob, PublicJobs, Row, gpus, rows, run
from iris.usage.records import UseEnd

SOURCE = "Helios (SenseTime)"
COLUMNS = (
    *("job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state", "submit_time"),
    *("start_time", "end_time", "duration", "queue"),
)
_ENDS = {
    "COMPLETED": UseEnd.SUCCEEDED,
    "CANCELLED": UseEnd.CANCELLED,
    "FAILED": UseEnd.FAILED,
    "TIMEOUT": UseEnd.FAILED,
    # The machine failed, not the program. How long it would have run is not known.
    "NODE_FAIL": UseEnd.CANCELLED,
}


def read_helios(text: str, name: str) -> PublicJobs:
    """Returns the jobs of `cluster_log.csv`.

    Raises:
        InvalidValue: a column is missing, or a field has a wrong value.
    """
    return PublicJobs.of([_job(row) for row in rows(text, name, COLUMNS, heading=True)])


def _job(row: Row) -> PublicJob | None:
    """Returns a job; None if it never ran, or has an unknown state."""
    end = _ENDS.get(row.text("state"))
    submitted, started = row.time("submit_time"), row.time("start_time")
    seconds = row.number("duration")
    if end is None or submitted is None or started is None or seconds is None:
        return None
    hosts = max(1, int(row.number("node_num") or 1))
    # The numbers of GPUs and cores are those of all hosts together.
    each_gpus, cores = (
        math.ceil((row.number(field) or 0) / hosts) for field in ("gpu_num", "cpu_num")
    )
    return PublicJob(
        user=row.text("user"),
        submitted=submitted,
        placed=max(submitted, started),
        ended=max(submitted, started) + seconds,
        runs=(run(seconds, end),),
        resources=Resources(cpu_millis=1000 * cores, device=gpus(each_gpus)),
        hosts=hosts,
    )
