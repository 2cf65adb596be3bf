"""The options of a job in Python, and the specification that they make. Only names of jobs depend
on who the user is.
"""

import difflib
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Protocol, TypedDict, Unpack

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from iris.client.build.arrays import array_of
from iris.client.connect.identity import full_job_id, in_a_job
from iris.model.errors import InvalidJob, InvalidValue
from iris.model.host import resources as model
from iris.model.host.accelerators import TpuRequest, parse_gpu, parse_tpu
from iris.model.host.constraints import TPU_NAME, Constraint, parse_constraint
from iris.model.job.checkpoints import CheckpointSource, parse_source
from iris.model.job.dependencies import Condition, Dependency, parse_dependencies
from iris.model.job.environments import EnvironmentSpec
from iris.model.job.secrets import is_variable, parse_secret
from iris.model.job.spec import DEFAULT_GRACE, Band, Coscheduling, JobSpec
from iris.model.units import parse_cpu, parse_duration, parse_size

Duration = timedelta | float | str

#: What options are called in the original Iris or in the specification of a job.
_OTHER_NAMES = {
    "coscheduling": "gang_by",
    "env_vars": "env",
    "max_retries": "retries",
    "max_retries_failure": "retries",
    "num_tasks": "replicas",
    "secrets": "secret",
    "tag": "tags",
}


class JobHandle(Protocol):
    """A job that `submit` or `job` returned."""

    @property
    def id(self) -> str: ...

    @property
    def run_id(self) -> str | None: ...

    @property
    def run_number(self) -> int | None: ...

    @property
    def is_bare(self) -> bool: ...


#: Jobs by their handles, or texts as for `iris submit --after`: `"prepare"`, `"ada/prepare#2"`.
Jobs = Sequence[JobHandle | str]


@dataclass(frozen=True)
class Resources:
    """What each task of a job gets.

    Attributes:
        cpu: cores: `0.5`, or `"500m"`.
        memory: bytes, or a text such as `"8g"`.
        disk: as `memory`.
        tpu: the type of the slice, such as `"v5litepod-16"`. The job gets a task for each of its
            hosts.
        slices: how many such slices.
        gpu: the GPUs of each task, such as `"H100x8"`, or a number of any.
    """

    cpu: float | str = 1
    memory: int | str = "1g"
    disk: int | str = 0
    tpu: str | None = None
    slices: int | None = None
    gpu: str | int | None = None


def tasks_of(
    tpu: TpuRequest, slices: int | None, replicas: int | None
) -> tuple[int, Coscheduling | None]:
    """Returns the number of tasks on TPU slices, and how they are coscheduled: a task for each
    host, all together.

    Raises:
        InvalidValue: the tasks do not fill the slices.
    """
    if tpu.hosts == 1 and slices is None:
        return 1 if replicas is None else replicas, None  # each on its own slice, independently
    if replicas is not None and (
        replicas % tpu.hosts or (slices is not None and replicas != slices * tpu.hosts)
    ):
        raise InvalidValue(
            "replicas",
            replicas,
            f"is not a task for each host of {'a slice' if slices is None else f'{slices} slices'} of {tpu.hosts}",
            "leave it out, and use --slices N for more than one slice",
        )
    if slices is not None and slices < 1:
        raise InvalidValue("slices", slices, "is no number of slices", "write 1 or more")
    groups = slices or (1 if replicas is None else replicas // tpu.hosts)
    return tpu.hosts * groups, Coscheduling(group_by=TPU_NAME, groups=groups)


class CallOptions(TypedDict, total=False):
    """The options of a job whose tasks all make the same call: those of `JobOptions`, but `params`."""

    #: A new one, made from the command, if it is left out.
    name: str
    #: By which lists find the job: `{"sweep": "lr"}`; a tag without a value has an empty one.
    tags: Mapping[str, str]
    #: A line of text about the job.
    note: str
    #: Webhooks to which the control plane sends the job's end.
    notify: Sequence[str]
    resources: Resources
    replicas: int
    #: A task for each index: `"0-99"`, `"0-99%10"`, `"1,3,7"`, or numbers.
    array: str | Sequence[int]
    #: The most tasks of an array that run at the same time.
    max_running: int
    #: Places, starts and retries the tasks together, on hosts that share this attribute.
    gang_by: str
    #: How many tasks of a gang share a host; the default is one.
    tasks_per_host: int
    environment: EnvironmentSpec
    env: Mapping[str, str]
    #: Variables with values that no history has: names of the submitter's own variables or named
    #: secrets, or their sources as for `iris submit`: `{"TOKEN": "file:token.txt"}`.
    secret: Mapping[str, str] | Sequence[str]
    #: Texts as for `iris submit --constraint`: `"zone = europe-west4-b"`.
    constraints: Sequence[Constraint | str]
    image: str
    #: The earlier job whose checkpoint the tasks start from: `"train"`, an earlier run `"train#2"`,
    #: or one task's, `"train:0"`.
    from_checkpoint: str
    #: The directory on the host in which the program starts.
    workdir: str
    ports: Sequence[str]
    priority: str
    scheduling_timeout: Duration
    timeout: Duration
    grace: Duration
    #: How often a failed task is retried.
    retries: int
    max_retries_preemption: int
    max_task_failures: int
    #: Start when these jobs have succeeded, ended or failed, and end if that can no longer be.
    after: Jobs
    after_any: Jobs
    after_fail: Jobs


class JobOptions(CallOptions, total=False):
    """The options of a job. They are those of `iris submit`; durations are seconds, texts such as
    `"10m"`, or timedeltas.
    """

    #: A task for each mapping: the function's keyword arguments, or a program's IRIS_PARAM_NAME and
    #: {name} in its words.
    params: Sequence[Mapping[str, Any]]


def job_spec(user: str, command: Sequence[str], **options: Unpack[JobOptions]) -> JobSpec:
    """Returns the specification of a job, without its files.

    Raises:
        InvalidValue, InvalidJob: an option is invalid; the message has every problem that shows at
        once.
    """
    for option in options:
        if option not in JobOptions.__annotations__:
            known_as = _OTHER_NAMES.get(option)
            near = (
                [known_as]
                if known_as
                else difflib.get_close_matches(option, JobOptions.__annotations__, n=1)
            )
            known = f"the options are {', '.join(JobOptions.__annotations__)}; arguments of a function go into kwargs={{...}}"
            remedy = f"did you mean {near[0]}?" if near else known
            raise InvalidValue("option", option, "is not an option of a job", remedy)
    resources, gang_by = options.get("resources", Resources()), options.get("gang_by")
    if not isinstance(resources, Resources):
        raise InvalidValue(
            "resources",
            resources,
            "is not Resources",
            "write resources=iris.Resources(cpu=2, memory='8g')",
        )
    for field in ("ports", "constraints", "after", "after_any", "after_fail", "notify"):
        if isinstance(given := options.get(field), str):
            raise InvalidValue(field, given, "is one text", f"write {field}=[{given!r}]")
    for field in ("after", "after_any", "after_fail"):
        if not isinstance(given := options.get(field, ()), Sequence):
            raise InvalidValue(field, given, "is not a list of jobs", f"write {field}=[job]")
    for field in ("env", "tags"):
        if not isinstance(given := options.get(field, {}), Mapping):
            raise InvalidValue(
                field,
                given,
                "is not a mapping of names to values",
                f"write {field}={{'NAME': 'VALUE'}}",
            )
    replicas = options.get("replicas")
    try:
        array = array_of(options.get("array"), options.get("params"), options.get("max_running"))
        together = None
        if gang_by is not None:
            together = Coscheduling(
                group_by=gang_by, tasks_per_host=options.get("tasks_per_host", 1)
            )
        elif "tasks_per_host" in options:
            raise InvalidValue(
                "tasks_per_host",
                options["tasks_per_host"],
                "is for gangs on hosts that share an attribute",
                "give gang_by, too",
            )
        if resources.tpu is not None:
            if gang_by is not None:
                raise InvalidValue(
                    "gang_by",
                    gang_by,
                    "does not go with tpu, whose tasks are placed by slice",
                    "leave it out",
                )
            replicas, together = tasks_of(parse_tpu(str(resources.tpu)), resources.slices, replicas)
        elif resources.slices is not None:
            raise InvalidValue(
                "slices",
                resources.slices,
                "is the number of slices of a type of TPU",
                "give tpu, too",
            )
        if array is not None and options.get("replicas") is None:
            replicas = array.size
        return JobSpec(
            user=user,
            name=options["name"] if "name" in options else _new_name(command),
            command=tuple(command),
            resources=model.Resources(
                cpu_millis=parse_cpu(resources.cpu),
                memory_bytes=parse_size(resources.memory),
                disk_bytes=parse_size(resources.disk, "disk"),
                device=_device(resources),
            ),
            array=array,
            replicas=1 if replicas is None else replicas,
            coscheduling=together,
            constraints=tuple(
                parse_constraint(each) if isinstance(each, str) else each
                for each in options.get("constraints", ())
            ),
            env=dict(options.get("env", {})),
            secrets=secret_sources(options.get("secret", {})),
            workdir=options.get("workdir"),
            environment=options.get("environment", EnvironmentSpec()),
            from_checkpoint=checkpoint_source(options.get("from_checkpoint")),
            image=options.get("image"),
            ports=tuple(options.get("ports", ())),
            band=parse_band(options.get("priority", Band.INTERACTIVE)),
            scheduling_timeout=_duration(options, "scheduling_timeout"),
            timeout=_duration(options, "timeout"),
            grace=_duration(options, "grace") or DEFAULT_GRACE,
            max_retries_failure=options.get("retries", 0),
            max_retries_preemption=options.get("max_retries_preemption", 100),
            max_task_failures=options.get("max_task_failures", 0),
            after=(
                *_dependencies(user, options.get("after", ()), Condition.OK),
                *_dependencies(user, options.get("after_any", ()), Condition.ANY),
                *_dependencies(user, options.get("after_fail", ()), Condition.FAIL),
            ),
            tags=dict(options.get("tags", {})),
            note=options.get("note", ""),
            notify=tuple(options.get("notify", ())),
        )
    except ValidationError as error:
        raise invalid_job(error) from None


def secret_sources(given: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    """Returns the sources of secrets by their variables. Of a name alone, the source is the
    submitter's secret of that name.

    Raises:
        InvalidValue: they have another form. The error does not show a source, which may be the
            value itself.
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
    """Returns the job of this name, which may be one of the current user; None for None.

    Raises:
        InvalidValue: the text does not name a job.
    """
    if text is None:
        return None
    source = parse_source(text)
    return source.model_copy(
        update={"job": full_job_id(source.job), "bare": in_a_job() and "/" not in source.job}
    )


def invalid_job(error: ValidationError) -> InvalidJob:
    """Returns the error for users: a sentence for each field that is wrong, with the name that the
    field has as an option.
    """
    problems = [_sentence(problem) for problem in error.errors()]
    return InvalidJob("; ".join(problems), problems)


def _sentence(problem: ErrorDetails) -> str:
    found = problem.get("ctx", {}).get("error")
    if found is None:  # by pydantic, whose text is "Input should be …"
        field, remedy = ".".join(str(part) for part in problem["loc"]), problem["msg"]
        found = InvalidValue(
            field, problem["input"], "is not valid", remedy[:1].lower() + remedy[1:]
        )
    field, colon, rest = str(found).partition(":")
    return f"{_OTHER_NAMES.get(field, field)}{colon}{rest}"


def _dependencies(user: str, jobs: Jobs, on: Condition) -> Iterator[Dependency]:
    for job in jobs:
        if isinstance(job, str):
            yield from parse_dependencies(job, on, user, in_job=in_a_job())
        else:
            yield Dependency(
                job=job.id, number=job.run_number, run_id=job.run_id or "", on=on, bare=job.is_bare
            )


def _device(resources: Resources) -> model.Device | None:
    if resources.tpu is not None and resources.gpu is not None:
        raise InvalidValue(
            "gpu",
            resources.gpu,
            "does not go with tpu: a task has devices of one kind",
            "leave one of them out",
        )
    if resources.tpu is not None:
        return parse_tpu(str(resources.tpu)).device
    return parse_gpu(str(resources.gpu)) if resources.gpu is not None else None


def parse_band(priority: str) -> Band:
    """Returns the priority band of this name.

    Raises:
        InvalidValue: there is none.
    """
    try:
        return Band(priority)
    except ValueError:
        raise InvalidValue(
            "priority", priority, "is not a priority band", f"write {', '.join(Band)}"
        ) from None


def duration_of(given: Duration | None, field: str) -> timedelta | None:
    """Returns how long to wait. What is left of a time that is over is negative, and means not to
    wait.

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


def _duration(
    options: JobOptions, field: Literal["scheduling_timeout", "timeout", "grace"]
) -> timedelta | None:
    given = options.get(field)
    return given if given is None or isinstance(given, timedelta) else parse_duration(given, field)


def _new_name(command: Sequence[str]) -> str:
    """Returns a name that nobody has: the program's or function's name, and a random number."""
    return f"{word_of(command)}-{secrets.token_hex(4)}"


def word_of(command: Sequence[str]) -> str:
    """Returns the program's or the function's name as a part of a job's name."""
    word = re.split("[/:]", command[0] if command else "")[-1]
    word = re.sub("[^a-zA-Z0-9]+", "-", word.removesuffix(".py").rpartition(".")[2]).strip("-")[:40]
    return word or "job"
