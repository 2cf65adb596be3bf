"""The options of a job in Python, and the job that they ask for."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypedDict, Unpack

from iris.client.build.arrays import array_of
from iris.client.build.conflicts import OTHER_NAMES
from iris.client.build.draft import JobDraft
from iris.client.build.files import FileOptions
from iris.client.build.names import word_of
from iris.client.build.tasks import TaskOptions
from iris.client.connect.identity import full_job_id, in_a_job
from iris.model.checkpoint.sources import CheckpointSource, parse_checkpoint_source
from iris.model.errors import InvalidValue
from iris.model.host import resources as model
from iris.model.host.accelerators import parse_gpu, parse_tpu
from iris.model.host.constraints import Constraint, parse_constraint
from iris.model.host.idle_gpus import parse_stop_idle
from iris.model.job.dependencies import Condition, Dependency, parse_dependencies
from iris.model.job.environments import EnvironmentSpec
from iris.model.job.secrets import is_variable, parse_secret
from iris.model.job.spec import DEFAULT_GRACE, Band, JobSpec
from iris.model.units import parse_cpu, parse_duration, parse_size

Duration = timedelta | float | str

#: Options whose values go into the job's specification without changes: the field of `JobSpec` by
#: the option's name.
_SAME = {
    "env": "env",
    "environment": "environment",
    "ports": "ports",
    "retries": "max_retries_failure",
    "max_retries_preemption": "max_retries_preemption",
    "max_task_failures": "max_task_failures",
    "tags": "tags",
    "limits": "limits",
    "note": "note",
    "notify": "notify",
}


class JobHandle(Protocol):
    """A handle of a job, as the methods `submit` and `job` of the client return it."""

    @property
    def id(self) -> str: ...

    @property
    def run_id(self) -> str | None: ...

    @property
    def run_number(self) -> int | None: ...

    @property
    def is_bare(self) -> bool: ...


#: The jobs for which a job waits: handles, or texts as for `iris submit --after`, such as
#: `"prepare"` and `"ada/prepare#2"`.
Jobs = Sequence[JobHandle | str]


@dataclass(frozen=True)
class Resources:
    """The resources of each task of a job.

    Attributes:
        cpu: the number of cores, such as `0.5` or `"500m"`.
        memory: the memory, as a number of bytes or a text such as `"8g"`.
        disk: the disk space, in the same form as `memory`.
        tpu: the type of the TPU slice, such as `"v5litepod-16"`. The job has a task for each host
            of the slice.
        slices: the number of TPU slices.
        gpu: the GPUs of each task, such as `"H100x8"`. A number stands for GPUs of any kind.
    """

    cpu: float | str = 1
    memory: int | str = "1g"
    disk: int | str = 0
    tpu: str | None = None
    slices: int | None = None
    gpu: str | int | None = None


class CallOptions(TypedDict, total=False):
    """The options of a job whose tasks all make the same call: `JobOptions` without `params`."""

    #: The name of the job. If it is not given, Iris makes a name from the command.
    name: str
    #: The tags of the job, such as `{"sweep": "lr"}`. Lists of jobs can be filtered by tags. A tag
    #: without a value has an empty text.
    tags: Mapping[str, str]
    #: The named limits of the cluster that the job needs, such as `{"licence": 1}`: the amount that
    #: each gang of the job occupies while it has hosts. A single task counts as a gang.
    limits: Mapping[str, int]
    #: A line of text about the job, for people.
    note: str
    #: The webhooks that the control plane calls when the job ends.
    notify: Sequence[str]
    resources: Resources
    replicas: int
    #: The indices of the array's tasks: `"0-99"`, `"0-99%10"` (ten tasks at the same time),
    #: `"1,3,7"`, or numbers.
    array: str | Sequence[int]
    #: The maximum number of tasks of an array that run at the same time.
    max_running: int
    #: The attribute that must be equal on all hosts of a gang. The tasks of a gang are placed,
    #: started and retried together.
    gang_by: str
    #: The number of tasks of a gang that run on each host. The default is one.
    tasks_per_host: int
    environment: EnvironmentSpec
    env: Mapping[str, str]
    #: The environment variables whose values are kept out of Temporal's history. A list contains
    #: names of the submitter's own variables or of named secrets. A mapping gives sources as for
    #: `iris submit`: `{"TOKEN": "file:token.txt"}`.
    secret: Mapping[str, str] | Sequence[str]
    #: The conditions that hosts must meet. A text has the form of `iris submit --constraint`:
    #: `"zone = europe-west4-b"`.
    constraints: Sequence[Constraint | str]
    image: str
    #: The earlier job whose checkpoint the tasks start from: a job `"train"`, its second run
    #: `"train#2"`, or one of its tasks `"train:0"`.
    from_checkpoint: str
    #: The directory on the host in which the program starts.
    workdir: str
    ports: Sequence[str]
    priority: str
    scheduling_timeout: Duration
    timeout: Duration
    grace: Duration
    #: Ends a task, or a gang, whose GPUs are all used less than 5 % for this time. `"30m:10%"` is a
    #: time with another threshold, and `"30m:warn"` only warns.
    stop_idle: Duration
    #: The maximum number of retries of a failed task.
    retries: int
    max_retries_preemption: int
    max_task_failures: int
    #: The jobs that must succeed before this job starts. If one of them does not succeed, this job
    #: ends.
    after: Jobs
    #: The jobs that must end before this job starts.
    after_any: Jobs
    #: The jobs that must fail before this job starts. If one of them does not fail, this job ends.
    after_fail: Jobs


class JobOptions(CallOptions, total=False):
    """The options of a job. They are the options of `iris submit`. A duration is a number of
    seconds, a text such as `"10m"`, or a timedelta.
    """

    #: The rows of an array, one task for each row. A function gets its row as keyword arguments. A
    #: program gets its row as environment variables (`IRIS_PARAM_NAME`), and `{name}` in its
    #: command is replaced.
    params: Sequence[Mapping[str, Any]]


def draft_of(user: str, command: Sequence[str], **options: Unpack[JobOptions]) -> JobDraft:
    """Returns the job that the options ask for. Its files are the default of `FileOptions`.

    Raises:
        InvalidValue: an option has another form than `JobOptions` describes.
    """
    _check_forms(options)
    asked = options.get("resources", Resources())
    array = array_of(options.get("array"), options.get("params"), options.get("max_running"))
    environment = options.get("environment", EnvironmentSpec())
    return JobDraft(
        user=user,
        name=options.get("name"),
        word=word_of(command),
        command=tuple(command),
        resources=model.Resources(
            cpu_millis=parse_cpu(asked.cpu),
            memory_bytes=parse_size(asked.memory),
            disk_bytes=parse_size(asked.disk, "disk"),
        ),
        tasks=TaskOptions(
            tpu=None if asked.tpu is None else parse_tpu(str(asked.tpu)),
            gpu=None if asked.gpu is None else parse_gpu(str(asked.gpu)),
            slices=asked.slices,
            replicas=options.get("replicas"),
            array=array,
            gang_by=options.get("gang_by"),
            tasks_per_host=options.get("tasks_per_host"),
        ),
        files=FileOptions(
            workdir=options.get("workdir"),
            image=options.get("image"),
            sync=getattr(environment, "sync", True),
        ),
        band=parse_band(options["priority"]) if "priority" in options else None,
        fields={**_same_fields(options), **_parsed_fields(user, options)},
    )


def job_spec(user: str, command: Sequence[str], **options: Unpack[JobOptions]) -> JobSpec:
    """Returns the specification of a job, without its files.

    Raises:
        InvalidValue, InvalidJob: an option is invalid. The message has all problems that are found
            together.
    """
    return draft_of(user, command, **options).spec()


def _check_forms(options: JobOptions) -> None:
    """Raises an `InvalidValue` for an unknown option, or a value of another form."""
    for option in options:
        if option not in JobOptions.__annotations__:
            raise _unknown(option)
    resources = options.get("resources", Resources())
    if not isinstance(resources, Resources):
        remedy = "write resources=iris.Resources(cpu=2, memory='8g')"
        raise InvalidValue("resources", resources, "is not Resources", remedy)
    for field in ("ports", "constraints", "after", "after_any", "after_fail", "notify"):
        if isinstance(given := options.get(field), str):
            raise InvalidValue(
                field, given, "is one text, not a list", f"write {field}=[{given!r}]"
            )
    for field in ("after", "after_any", "after_fail"):
        if not isinstance(given := options.get(field, ()), Sequence):
            raise InvalidValue(field, given, "is not a list of jobs", f"write {field}=[job]")
    for field in ("env", "tags", "limits"):
        if not isinstance(given := options.get(field, {}), Mapping):
            remedy = f"write {field}={{'NAME': 'VALUE'}}"
            raise InvalidValue(field, given, "is not a mapping of names to values", remedy)


def _unknown(option: str) -> InvalidValue:
    known = list(JobOptions.__annotations__)
    if option in OTHER_NAMES:
        near = [OTHER_NAMES[option]]
    else:
        near = difflib.get_close_matches(option, known, n=1)
    remedy = (
        f"did you mean {near[0]}?"
        if near
        else f"the options are {', '.join(known)}; arguments of a function go into kwargs={{...}}"
    )
    return InvalidValue("option", option, "is not an option of a job", remedy)


def _same_fields(options: JobOptions) -> dict[str, Any]:
    """Returns the fields of `JobSpec` whose options have the values of the fields."""
    given = dict(options)
    return {field: given[name] for name, field in _SAME.items() if name in given}


def _parsed_fields(user: str, options: JobOptions) -> dict[str, Any]:
    """Returns the fields of `JobSpec` whose options are parsed."""
    after = [
        *_dependencies(user, options.get("after", ()), Condition.OK),
        *_dependencies(user, options.get("after_any", ()), Condition.ANY),
        *_dependencies(user, options.get("after_fail", ()), Condition.FAIL),
    ]
    grace = _duration(options.get("grace"), "grace")
    return {
        "constraints": tuple(
            parse_constraint(each) if isinstance(each, str) else each
            for each in options.get("constraints", ())
        ),
        "secrets": secret_sources(options.get("secret", {})),
        "from_checkpoint": checkpoint_source(options.get("from_checkpoint")),
        "scheduling_timeout": _duration(options.get("scheduling_timeout"), "scheduling_timeout"),
        "timeout": _duration(options.get("timeout"), "timeout"),
        "grace": DEFAULT_GRACE if grace is None else grace,
        "stop_idle": parse_stop_idle(options["stop_idle"]) if "stop_idle" in options else None,
        "after": tuple(after),
    }


def secret_sources(given: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    """Returns the sources of secrets by their variables. The source of a name without a source is
    the submitter's secret of that name.

    Raises:
        InvalidValue: the secrets have another form. The error does not show a source, because it
            may be the value itself.
    """
    if isinstance(given, Mapping):
        return {name: parse_secret(f"{name}={source}")[1] for name, source in given.items()}
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidValue(
            "secret",
            "***",
            "is neither a mapping nor a list",
            "write secret=['NAME'] or secret={'NAME': 'SOURCE'}",
        )
    return dict(parse_secret(name if is_variable(name) else "***") for name in given)


def checkpoint_source(text: str | None) -> CheckpointSource | None:
    """Returns the checkpoint that a text names: one of a job, of a run or of a task. Returns None
    for None.

    Raises:
        InvalidValue: the text does not name a job.
    """
    if text is None:
        return None
    source = parse_checkpoint_source(text)
    return source.model_copy(
        update={"job": full_job_id(source.job), "bare": in_a_job() and "/" not in source.job}
    )


def _dependencies(user: str, jobs: Jobs, on: Condition) -> Iterator[Dependency]:
    for job in jobs:
        if isinstance(job, str):
            yield from parse_dependencies(job, on, user, in_job=in_a_job())
        else:
            yield Dependency(
                job=job.id, number=job.run_number, run_id=job.run_id or "", on=on, bare=job.is_bare
            )


def parse_band(priority: str) -> Band:
    """Returns the priority band of this name.

    Raises:
        InvalidValue: there is no such band.
    """
    try:
        return Band(priority)
    except ValueError:
        raise InvalidValue(
            "priority", priority, "is not a priority band", f"write {', '.join(Band)}"
        ) from None


def duration_of(given: Duration | None, field: str) -> timedelta | None:
    """Returns the time to wait. A negative number, such as the rest of a time that is over, is no
    time.

    Raises:
        InvalidValue: a text is not a duration.
    """
    if given is None or isinstance(given, timedelta):
        return given
    return (
        parse_duration(given, field)
        if isinstance(given, str)
        else timedelta(seconds=max(0.0, given))
    )


def _duration(given: Duration | None, field: str) -> timedelta | None:
    return given if given is None or isinstance(given, timedelta) else parse_duration(given, field)
