"""Reads `cluster_job_log` of the Philly traces (Microsoft, 2017): a JSON list of jobs.

Source of the format: github.com/msr-fiddle/philly-traces, README.md.
"""

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, TypeAdapter, ValidationError

from iris.model.errors import InvalidValue
from iris.model.host.resources import Resources
from iris.simulation.public.jobs import PublicJob, PublicJobs, Row, gpus, run
from iris.usage.records import UseEnd

SOURCE = "Philly (Microsoft)"
_ENDS = {"Pass": UseEnd.SUCCEEDED, "Killed": UseEnd.CANCELLED, "Failed": UseEnd.FAILED}


class _Machine(BaseModel):
    gpus: list[str] = []


class _Attempt(BaseModel):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_Machine] = []


class _Job(BaseModel):
    jobid: str
    user: str | None = None
    status: str
    submitted_time: str | None = None
    attempts: list[_Attempt] = []


_LOG = TypeAdapter(list[_Job])


def read_philly(text: str, name: str) -> PublicJobs:
    """Returns the jobs of `cluster_job_log`.

    Raises:
        InvalidValue: the text is not such a list, or a time is wrong.
    """
    try:
        log = _LOG.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        remedy = "give the file cluster_job_log as it was published"
        problem = f"is no list of jobs: {where}: {first['msg']}"
        raise InvalidValue("workload", name, problem, remedy) from None
    times = [time for job in log for time in _times(job, name)]
    last = max(times, default=0.0)
    return PublicJobs.of([_job(job, name, last) for job in log])


def _times(job: _Job, name: str) -> Iterator[float]:
    """Yields the times of a job, as far as they are known."""
    texts = [job.submitted_time]
    texts += [text for each in job.attempts for text in (each.start_time, each.end_time)]
    for text in texts:
        if (time := _time(text, job, name)) is not None:
            yield time


def _time(text: str | None, job: _Job, name: str) -> float | None:
    return Row({"time": text}, f"{name}, job {job.jobid}").time("time")


def _job(job: _Job, name: str, last: float) -> PublicJob | None:
    """Returns a job; None if it never ran, or has an unknown status.

    Args:
        last: the end of the trace, for a job that still runs.
    """
    end, submitted = _ENDS.get(job.status), _time(job.submitted_time, job, name)
    ran = list(_ran(job, name, last))
    if end is None or submitted is None or not ran:
        return None
    ends = [*[UseEnd.FAILED] * (len(ran) - 1), end]
    if job.attempts[-1].end_time is None:
        ends[-1] = UseEnd.SUCCEEDED  # cut off
    return PublicJob(
        user=job.user or "",
        submitted=submitted,
        placed=max(submitted, ran[0][0]),
        ended=max(submitted, ran[-1][1]),
        runs=tuple(run(to - since, each) for (since, to), each in zip(ran, ends, strict=True)),
        resources=Resources(cpu_millis=0, device=gpus(_most_gpus(job.attempts))),
        hosts=max((len(each.detail) for each in job.attempts), default=0) or 1,
    )


def _ran(job: _Job, name: str, last: float) -> Iterator[tuple[float, float]]:
    """Yields the start and the end of each attempt that has both. The last one may still run."""
    for place, attempt in enumerate(job.attempts):
        start, end = (_time(text, job, name) for text in (attempt.start_time, attempt.end_time))
        if end is None and place == len(job.attempts) - 1:
            end = last
        if start is not None and end is not None:
            yield start, end


def _most_gpus(attempts: Sequence[_Attempt]) -> int:
    """Returns the most GPUs of any machine."""
    return max((len(each.gpus) for attempt in attempts for each in attempt.detail), default=0)
