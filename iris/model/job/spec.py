"""What a user requests: the specification of a job (`JobSpec`), and what the user changes after the
submission (`Overrides`).
"""

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Self

from pydantic import (
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from iris.model import names
from iris.model.checkpoint.sources import CheckpointSource
from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen
from iris.model.host.constraints import TPU_NAME, Constraint, check_key
from iris.model.host.idle_gpus import StopIdle, check_stop_idle
from iris.model.host.resources import MAX_AMOUNT, Resources
from iris.model.job.arrays import MAX_TASKS, PART_TASKS, Array, check_array, parse_indices
from iris.model.job.bundles import Bundle
from iris.model.job.children import Parent
from iris.model.job.dependencies import MAX_DEPENDENCIES, Dependency
from iris.model.job.environments import EnvironmentSpec, check_image, check_ports
from iris.model.job.notifications import Webhooks
from iris.model.job.secrets import is_variable, parse_secret_source
from iris.model.job.tags import Note, Tags
from iris.model.units import MAX_DURATION

#: The limit on tasks of a job that is not an array. Each task is a child workflow. A workflow may
#: have 2,000 pending children and should have a few hundred (docs.temporal.io/cloud/limits).
MAX_REPLICAS = 1_000
#: The limit on bytes of a specification, which is part of the first event of the job's history.
MAX_SPEC_BYTES = 64 * 1024
#: The limit on bytes of all specifications that a job's workflow sends to the workflows of its
#: tasks. A history is limited to 50 MiB.
MAX_SPECS_BYTES = 16 * 1024 * 1024
#: How long a program may take to stop after SIGTERM before Iris kills it. The default is the same
#: in Kubernetes.
DEFAULT_GRACE = timedelta(seconds=30)


class Band(StrEnum):
    """The priority bands, in the order in which the scheduler serves them."""

    PRODUCTION = "production"
    INTERACTIVE = "interactive"
    BATCH = "batch"

    @property
    def rank(self) -> int:
        return _BAND_RANKS[self]


_BAND_RANKS = {band: rank for rank, band in enumerate(Band)}


class Coscheduling(Frozen):
    """Makes the tasks a gang: placed, started and retried together, on hosts that share an
    attribute.
    """

    #: The shared attribute: `tpu-name` for the hosts of one slice.
    group_by: str
    #: The number of groups (slices) into which the tasks are split evenly.
    groups: int = 1
    #: The number of tasks on each host; they have consecutive indices. On the hosts of a slice, it
    #: is always 1.
    tasks_per_host: int = 1


class JobSpec(Frozen):
    """The specification of a job, as a user submits it. Validation ensures that no impossible job
    can be built.

    Raises:
        pydantic.ValidationError: wraps the `InvalidValue` of each invalid field.
    """

    user: str
    name: str
    command: tuple[str, ...]
    resources: Resources = Resources()
    #: The indices and the parameters of the tasks. If it is None, the tasks are numbered from 0.
    array: Array | None = None
    replicas: int = 1
    #: How the tasks are placed together, as a gang. If it is None, each task is placed and runs
    #: independently.
    coscheduling: Coscheduling | None = None
    #: The attributes that a host must have, or should have if the constraint is only preferred.
    constraints: tuple[Constraint, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    #: Environment variables with references to their secret values, as in `iris.model.job.secrets`:
    #: `own:TOKEN` until the job starts, then `sealed:…`; or `gcp:secret`, `host-env:VARIABLE`. This
    #: field never contains a secret value.
    secrets: dict[str, str] = Field(default_factory=dict)
    #: The directory of the host in which the program starts. If it is None, each attempt has its
    #: own directory, which Iris removes afterwards.
    workdir: str | None = None
    #: The files for the program's directory. Each attempt gets a copy. None means no files.
    bundle: Bundle | None = None
    #: The git commit of the files, with a `+` if the files differ from the commit. It is empty if
    #: the files are not from git.
    commit: str = ""
    #: The bundle with a pickled function and the script that runs it. If it is None, the job runs
    #: `command`; otherwise `command` is only the function's name.
    call: Bundle | None = None
    environment: EnvironmentSpec = EnvironmentSpec()
    #: The earlier job whose checkpoint the tasks start from. If it is None, they start with empty
    #: checkpoint directories.
    from_checkpoint: CheckpointSource | None = None
    #: The container image of the program. If it is None, the image of the scale group is used. If
    #: the scale group has no image, the program runs as a process on the host.
    image: str | None = None
    #: The names of the ports that each task gets.
    ports: tuple[str, ...] = ()
    band: Band = Band.INTERACTIVE
    #: How long a gang or an independent task may wait for its first hosts before it becomes
    #: UNSCHEDULABLE. Time on hold, and time before the gang may request hosts, does not count. None
    #: means no limit.
    scheduling_timeout: timedelta | None = None
    #: The time limit of one attempt. A longer attempt counts as a failure of the program. None
    #: means no limit.
    timeout: timedelta | None = None
    grace: timedelta = DEFAULT_GRACE
    #: The rule by which the job ends if the GPUs of all its tasks, or of one independent task, are
    #: idle. If it is None, idle GPUs do not end the job.
    stop_idle: StopIdle | None = None
    max_retries_failure: int = 0
    max_retries_preemption: int = 100
    max_task_failures: int = 0
    #: The parent job. It is None if the job was not submitted from within a job.
    parent: Parent | None = None
    #: The jobs that must end before this job requests hosts.
    after: tuple[Dependency, ...] = ()
    tags: Tags = Field(default_factory=dict)
    #: The amount of each named limit of the cluster that each gang of the job occupies while it has
    #: hosts.
    limits: dict[str, int] = Field(default_factory=dict)
    note: Note = ""
    #: The webhooks that Iris calls at the job's end.
    notify: Webhooks = ()

    @property
    def id(self) -> str:
        return (
            names.job_id(self.user, self.name)
            if self.parent is None
            else names.child_id(self.parent.job, self.name)
        )

    @property
    def is_gang(self) -> bool:
        """Returns whether all tasks are placed, started and retried together. A single task is a
        gang of one.
        """
        return self.replicas == 1 or self.coscheduling is not None

    @property
    def indices(self) -> Sequence[int]:
        """The indices of the tasks, in ascending order."""
        return range(self.replicas) if self.array is None else parse_indices(self.array.indices)

    @property
    def num_tasks(self) -> int:
        """The number of tasks that the program reads in `IRIS_NUM_TASKS`. When part of an array
        runs again, it is the size of the whole array.
        """
        return self.replicas if self.array is None else self.array.size

    @field_validator("user", "name")
    @classmethod
    def _is_a_name(cls, value: str, info: ValidationInfo) -> str:
        return names.check_name(str(info.field_name), value)

    @field_validator("command")
    @classmethod
    def _is_a_command(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        if not command or not command[0].strip():
            raise InvalidValue(
                "command", " ".join(command), "is empty", "give the program to run after --"
            )
        if any("\0" in word for word in command):
            raise InvalidValue(
                "command",
                command[0],
                "contains a NUL byte",
                "remove it: no argument can contain one",
            )
        return command

    @field_validator("replicas")
    @classmethod
    def _is_a_number_of_tasks(cls, replicas: int, info: ValidationInfo) -> int:
        if not 1 <= replicas <= (MAX_REPLICAS if info.data.get("array") is None else MAX_TASKS):
            raise InvalidValue(
                "replicas",
                replicas,
                "is out of range",
                f"ask for 1 to {MAX_REPLICAS:,} tasks, or use an array",
            )
        return replicas

    @field_validator("after")
    @classmethod
    def _are_few_dependencies(cls, after: tuple[Dependency, ...]) -> tuple[Dependency, ...]:
        after = tuple(dict.fromkeys(after))
        if len(after) > MAX_DEPENDENCIES:
            remedy = (
                f"wait for at most {MAX_DEPENDENCIES}; to wait for more, submit a job that waits"
                " for some of them, and wait for that job"
            )
            raise InvalidValue("after", f"{len(after)} jobs", "are too many", remedy)
        return after

    @field_validator("max_retries_failure", "max_retries_preemption", "max_task_failures")
    @classmethod
    def _is_a_limit(cls, limit: int, info: ValidationInfo) -> int:
        if limit < 0:
            raise InvalidValue(str(info.field_name), limit, "is negative", "give 0 or more")
        return limit

    @field_validator("scheduling_timeout", "timeout")
    @classmethod
    def _is_a_time_to_wait(cls, time: timedelta | None, info: ValidationInfo) -> timedelta | None:
        if time == timedelta(0):
            return None  # as in many tools, 0 means no limit
        if time is not None and not timedelta(0) < time <= MAX_DURATION:
            raise InvalidValue(
                str(info.field_name),
                f"{time.total_seconds():g}s",
                "is not a time limit",
                "leave it out for no limit",
            )
        return time

    @field_validator("grace")
    @classmethod
    def _is_a_time_to_stop(cls, grace: timedelta) -> timedelta:
        if not timedelta(0) <= grace <= MAX_DURATION:
            raise InvalidValue(
                "grace",
                f"{grace.total_seconds():g}s",
                f"is negative or longer than {MAX_DURATION.days:,} days",
                f"give 0s to {MAX_DURATION.days:,} days, such as 30s",
            )
        return grace

    @field_validator("image")
    @classmethod
    def _is_an_image(cls, image: str | None) -> str | None:
        return image if image is None else check_image(image)

    @field_validator("ports")
    @classmethod
    def _are_port_names(cls, ports: tuple[str, ...]) -> tuple[str, ...]:
        return check_ports(ports)

    @field_validator("limits")
    @classmethod
    def _are_limits(cls, limits: dict[str, int]) -> dict[str, int]:
        for name, amount in limits.items():
            names.check_name("limit", name)
            if not 1 <= amount <= MAX_AMOUNT:
                remedy = "write NAME=AMOUNT with an amount of at least 1"
                raise InvalidValue("limit", f"{name}={amount}", "is out of range", remedy)
        return limits

    @model_validator(mode="after")
    def _has_gpus_that_can_be_idle(self) -> Self:
        if self.stop_idle is not None:
            check_stop_idle(self.resources.device)
        return self

    @model_validator(mode="after")
    def _has_a_short_id(self) -> Self:
        if len(self.id) > names.MAX_JOB_ID:
            raise InvalidValue(
                "name",
                self.id,
                f"has {len(self.id)} characters, including the names of its parent jobs; the limit"
                f" is {names.MAX_JOB_ID}",
                "choose a shorter name, or submit the job from a job with fewer parents",
            )
        return self

    @model_validator(mode="after")
    def _starts_in_one_place(self) -> Self:
        if self.bundle is not None and self.workdir is not None:
            raise InvalidValue(
                "workdir",
                self.workdir,
                "cannot be combined with a bundle, because the program then starts in the bundle's"
                " directory",
                "give either a workdir or a bundle",
            )
        return self

    @field_validator("env")
    @classmethod
    def _is_an_environment(cls, env: dict[str, str]) -> dict[str, str]:
        for key, value in env.items():
            if not key or "=" in key or "\0" in key + value:
                raise InvalidValue(
                    "env", key, "is not a valid name of an environment variable", "write NAME=VALUE"
                )
            if key.startswith(names.RESERVED_PREFIX):
                raise InvalidValue(
                    "env",
                    key,
                    "is set by Iris itself",
                    f"choose a name that does not begin with {names.RESERVED_PREFIX}",
                )
        return env

    @field_validator("secrets")
    @classmethod
    def _are_references(cls, secrets: dict[str, str]) -> dict[str, str]:
        for name in secrets:
            if not is_variable(name):
                raise InvalidValue(
                    "secret",
                    name,
                    "is not a valid name of an environment variable",
                    "write NAME=SOURCE",
                )
            if name.startswith(names.RESERVED_PREFIX) and name != names.ENV_JOB_IDENTITY:
                remedy = f"choose a name that does not begin with {names.RESERVED_PREFIX}"
                raise InvalidValue("secret", name, "is set by Iris itself", remedy)
        return {name: str(parse_secret_source(name, source)) for name, source in secrets.items()}

    @model_validator(mode="after")
    def _has_one_value_for_each_variable(self) -> Self:
        for name in self.secrets:
            if name in self.env:
                raise InvalidValue(
                    "secret", name, "is set both as a secret and in env", "remove one of them"
                )
        return self

    @model_validator(mode="after")
    def _is_an_array(self) -> Self:
        if self.array is not None:
            check_array(self.array, self.replicas, coscheduled=self.coscheduling is not None)
        return self

    @field_validator("coscheduling")
    @classmethod
    def _shares_an_attribute(cls, together: Coscheduling | None) -> Coscheduling | None:
        if together is not None:
            check_key(together.group_by, "coscheduling")
        return together

    @model_validator(mode="after")
    def _is_a_gang(self) -> Self:
        if self.coscheduling is None:
            return self
        groups = self.coscheduling.groups
        if groups < 1 or self.replicas % groups:
            raise InvalidValue(
                "replicas",
                self.replicas,
                f"cannot be split evenly over {groups} groups",
                "ask for a number of tasks that is a multiple of the number of groups",
            )
        self._check_tasks_per_host(self.coscheduling)
        device = self.resources.device
        if (
            device is not None
            and device.several
            and (groups > 1 or self.coscheduling.group_by != TPU_NAME)
        ):
            problem = "allows several variants, but the gang is not on one slice"
            remedy = "name one variant: programs that compute together need devices of one kind"
            raise InvalidValue("device", device, problem, remedy)
        if self.max_task_failures:
            raise InvalidValue(
                "max_task_failures",
                self.max_task_failures,
                "cannot be used with coscheduling, because all tasks of a gang end together",
                "leave it 0, or use max_retries_failure",
            )
        return self

    def _check_tasks_per_host(self, together: Coscheduling) -> None:
        each, field = together.tasks_per_host, "tasks-per-host"
        if each < 1 or self.replicas // together.groups % each:
            remedy = (
                f"give a number that divides the {self.replicas // together.groups} tasks of each"
                " group"
            )
            raise InvalidValue(field, each, "does not divide the tasks evenly", remedy)
        if each > 1 and together.group_by == TPU_NAME:
            raise InvalidValue(
                field,
                each,
                "cannot be used on slices, because each task there gets all chips of its host",
                "leave it out",
            )
        try:
            self.resources.times(each)
        except ValidationError:
            raise InvalidValue(
                field, each, "tasks need more than any host can have", "request fewer resources"
            ) from None

    @model_validator(mode="after")
    def _fits_into_a_history(self) -> Self:
        size = len(self.model_dump_json().encode())
        if size > MAX_SPEC_BYTES:
            field = max(type(self).model_fields, key=lambda name: len(str(getattr(self, name))))
            raise InvalidValue(
                field,
                f"{size:,} bytes",
                f"makes the job larger than {MAX_SPEC_BYTES:,} bytes",
                (
                    "put the data into a file that the program reads"
                    if field in ("env", "secrets", "command")
                    else "give a shorter value"
                ),
            )
        passed_on = self.replicas if self.array is None else min(self.replicas, PART_TASKS)
        if size * passed_on > MAX_SPECS_BYTES:
            remedy = f"ask for at most {MAX_SPECS_BYTES // size}, or pass less data"
            problem = (
                f"is too many for a job specification of {size:,} bytes, which Iris copies for each"
                f" task: the limit on all copies is {MAX_SPECS_BYTES:,} bytes"
            )
            raise InvalidValue("replicas", self.replicas, problem, remedy)
        return self


class Hold(Frozen):
    """A user's hold on a job. Waiting tasks continue to wait; running tasks continue to run, but
    Iris does not retry them.
    """

    by: str
    reason: str = ""

    def __str__(self) -> str:
        return f"held by {self.by}{': ' if self.reason else ''}{self.reason}"


class Overrides(Frozen):
    """The changes that a user made to a job after its submission."""

    #: The new priority band; None if it is unchanged.
    band: Band | None = None
    hold: Hold | None = None
