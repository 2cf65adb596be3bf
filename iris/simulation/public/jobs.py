"""Makes a workload of the jobs of a public trace, and reads their fields."""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from iris.model.errors import InvalidValue
from iris.model.host.constraints import SCALE_GROUP
from iris.model.host.resources import ANY_VARIANT, Device, DeviceKind, Resources
from iris.model.job.spec import Band
from iris.simulation.trace import GangTrace, Heading, Run, Trace
from iris.usage.records import UseEnd

#: The texts that mean that a field has no value.
_MISSING = ("", "none", "null", "nan")


class PublicJob(NamedTuple):
    """A job of a public trace, or one of its parts that is placed by itself. Times are in seconds
    since 1970.
    """

    user: str
    submitted: float
    #: When the job first had hosts; None if the trace does not contain this time.
    placed: float | None
    #: When the last attempt of the job ended.
    ended: float
    runs: tuple[Run, ...]
    #: The resources that the job needs on each of its hosts.
    resources: Resources
    hosts: int = 1
    band: Band = Band.INTERACTIVE
    #: The id of the job of which this is a part that is placed by itself, such as an instance of a
    #: task in Alibaba's trace of 2020; empty if this is a whole job.
    job: str = ""


class PublicJobs(NamedTuple):
    """All jobs of a public trace."""

    jobs: Sequence[PublicJob]
    #: The number of entries of the trace that are left out, because they have no hosts or no times.
    left_out: int

    @classmethod
    def of(cls, found: Sequence[PublicJob | None]) -> "PublicJobs":
        """Returns the jobs of these entries; None stands for one that is left out."""
        jobs = [job for job in found if job is not None]
        return cls(jobs, len(found) - len(jobs))


def workload_of(found: PublicJobs, name: str, source: str, gpu: str) -> Trace:
    """Returns the workload. Users and jobs have numbers in the order of arrival.

    Args:
        name: the name of the file, for errors.
        source: the name of the trace.
        gpu: the variant of all GPUs; empty if it is as in the trace.

    Raises:
        InvalidValue: there is no job; or one needs GPUs of one variant on several hosts, and the
            trace does not name it.
    """
    if not found.jobs:
        remedy = "give a file with jobs that ran"
        raise InvalidValue("workload", name, "has no job with a start and an end", remedy)
    jobs = sorted(found.jobs, key=lambda job: job.submitted)
    begins = math.floor(jobs[0].submitted)
    ends = math.ceil(max(job.ended for job in jobs)) + 1
    users: dict[str, str] = {}
    numbers: dict[str, str] = {}
    gangs = []
    for place, job in enumerate(jobs):
        user = users.setdefault(job.user, f"user-{len(users) + 1}")
        whole = numbers.setdefault(job.job or f"/{place}", f"job-{len(numbers) + 1}")
        resources = _with_gpu(job, name, gpu)
        gangs.append(
            GangTrace(
                id=f"{whole}:{place}" if job.job else whole,
                job=whole if job.job else "",
                user=user,
                band=job.band,
                at=job.submitted - begins,
                resources=resources,
                tasks=job.hosts,
                group_by=SCALE_GROUP if job.hosts > 1 else None,
                runs=job.runs,
                waited=None if job.placed is None else max(0.0, job.placed - job.submitted),
            )
        )
    source += f"; left out, without a run: {found.left_out:,}" if found.left_out else ""
    heading = Heading(begins=_date(begins), ends=_date(ends), source=source)
    return Trace.of(heading, gangs)


def _with_gpu(job: PublicJob, name: str, gpu: str) -> Resources:
    device = job.resources.device
    if device is None:
        return job.resources
    if gpu:
        device = device.model_copy(update={"variant": gpu})
    if job.hosts > 1 and device.several:
        problem = "has jobs on several hosts, and does not say which GPUs they need"
        raise InvalidValue("workload", name, problem, "name the GPUs of all jobs: --gpu H100")
    return job.resources.model_copy(update={"device": device})


def _date(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def gpus(count: int, variant: str = ANY_VARIANT) -> Device | None:
    """Returns the GPUs of a host; None if it needs none."""
    return Device(kind=DeviceKind.GPU, variant=variant, count=count) if count > 0 else None


class Row:
    """One entry of a public trace: its fields by name.

    Args:
        fields: the fields as texts.
        where: the file and the line, for errors.
    """

    def __init__(self, fields: Mapping[str, str | None], where: str) -> None:
        self._fields = fields
        self._where = where

    def text(self, field: str) -> str:
        """Returns a field; empty if it has no value."""
        text = (self._fields.get(field) or "").strip()
        return "" if text.lower() in _MISSING else text

    def number(self, field: str) -> float | None:
        """Returns a field; None if it has no value.

        Raises:
            InvalidValue: it is not a number, or is negative.
        """
        text = self.text(field)
        if not text:
            return None
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not 0 <= number < math.inf:
            raise self.error(field, text, "a number from 0 on")
        return number

    def time(self, field: str) -> float | None:
        """Returns the seconds since 1970 of a date and time, which counts as UTC; None if it has no
        value.

        Raises:
            InvalidValue: it is not a date and time.
        """
        text = self.text(field)
        if not text:
            return None
        try:
            return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
        except ValueError:
            raise self.error(field, text, "a time such as 2020-06-09 18:41:01") from None

    def error(self, field: str, text: str, wanted: str) -> InvalidValue:
        """Returns the error for a field with a wrong value."""
        remedy = f"give the file as it was published, with {wanted} there"
        return InvalidValue("workload", self._where, f"has {text!r} as {field}", remedy)


def rows(text: str, name: str, columns: Sequence[str], *, heading: bool) -> Iterator[Row]:
    """Yields the rows of a CSV.

    Args:
        name: the name of the file, for errors.
        columns: the columns that the rows must have.
        heading: whether the first line names the columns. Otherwise they are `columns`.

    Raises:
        InvalidValue: a column is missing.
    """
    reader = csv.DictReader(io.StringIO(text), None if heading else columns)
    missing = [each for each in columns if each not in (reader.fieldnames or ())]
    if missing:
        problem = f"has no column {missing[0]}"
        raise InvalidValue(
            "workload", name, problem, f"give a file with the columns {', '.join(columns)}"
        )
    for fields in reader:
        yield Row(fields, f"{name}, line {reader.line_num}")


def run(seconds: float, end: UseEnd) -> Run:
    """Returns an attempt. The traces do not tell how long the set-up took."""
    return Run(seconds=max(0.0, seconds), end=end)
