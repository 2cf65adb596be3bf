"""Messages between tasks, their jobs and hosts."""

from datetime import datetime, timedelta

from pydantic import Field

from iris.model.frozen import Frozen
from iris.model.host.idle_gpus import IdleReport, StopIdle
from iris.model.host.resources import Resources
from iris.model.job.arrays import Array
from iris.model.job.bundles import Bundle
from iris.model.job.environments import EnvironmentSpec
from iris.model.job.gangs import Gang
from iris.model.job.spec import Overrides
from iris.model.job.status import TaskStatus
from iris.model.rules import Contact
from iris.model.states import TaskState


class TaskInput(Gang):
    """The input of the workflow of one task, for a job of several independent tasks. The task is a
    gang of one.
    """

    index: int
    #: The id of the workflow that the task reports to: the job's workflow, or the workflow of a
    #: part of a large array.
    parent: str
    #: The id of the first run of the workflow `parent`.
    parent_run: str
    #: The id of the first run of the job's workflow.
    run_id: str
    submitted_at: datetime
    tasks: tuple[TaskStatus]


class OwnStatus(Frozen):
    """The status of a task, as the task's own workflow reports it."""

    #: The id of the first run of the job's workflow.
    run_id: str
    task: TaskStatus


class TaskRefs(Frozen):
    """References to some tasks of a job of several independent tasks."""

    cluster: str
    job: str
    indices: tuple[int, ...]


class TaskOverrides(TaskRefs):
    """A user's changes to a job, and the tasks to which the changes are sent."""

    overrides: Overrides


class TaskCancellation(Frozen):
    """A user's request to cancel one task of a job of several independent tasks."""

    index: int = Field(ge=0)
    reason: str


class TaskProgress(Frozen):
    """A change in the state or progress of a running attempt. The attempt's host sends this signal
    only for attempts that run for more than a second.
    """

    key: str
    state: TaskState
    at: datetime
    #: The current step of the attempt's preparation or end on the host, if the step may take long;
    #: otherwise empty.
    reason: str = ""
    #: Whether the program is prepared, and waits for the programs of the other tasks of its gang.
    prepared: bool = False
    #: Set while the task's GPUs have been idle for at least the time in `JobSpec.stop_idle`;
    #: otherwise None.
    idle: IdleReport | None = None


class GangStart(Frozen):
    """A host's question whether the programs of a gang's attempt may start. All hosts of the gang
    send the same question.
    """

    #: The scheduler's key of the gang's placement.
    claim: str


class Rank(Frozen):
    """The position of a task in its gang. All tasks of a gang get the same coordinator."""

    #: The address of the gang's coordinator: `ADDRESS:PORT` on the host of task 0.
    coordinator: str
    #: The number of slices (or other groups of hosts) of the gang.
    num_slices: int = 1
    #: The number of the slice (or group) on which this task runs.
    slice_index: int = 0
    tasks_per_slice: int = 1


class RunTask(Frozen):
    """One attempt of a task, with all data that its host needs to run it."""

    key: str
    #: The scheduler's key of the placement. All tasks of a gang have the same one.
    placement_key: str
    #: The id of the workflow that runs the gang. The host sends it the task's progress as signals,
    #: and asks it whether the tasks of the gang may start together.
    owner: str
    job: str
    index: int
    attempt: int
    num_tasks: int
    #: The incarnation of the host that may run the attempt. Other incarnations refuse it, because
    #: the resources are not reserved on them.
    incarnation: str
    command: tuple[str, ...]
    #: The array with the values of this task only; None if the job is not an array.
    array: Array | None = None
    env: dict[str, str]
    workdir: str | None
    timeout: timedelta | None
    grace: timedelta
    #: The conditions under which the host reports that the task's GPUs are idle; None if it never
    #: reports this.
    stop_idle: StopIdle | None = None
    #: The folder of the attempt's logs in the object store.
    logs: str
    #: The position of the task in its gang; None if the task is not in a gang.
    rank: Rank | None = None
    #: The resources that are reserved for the task. If the host can enforce the limits, the task
    #: cannot use more.
    resources: Resources = Resources(cpu_millis=0)
    bundle: Bundle | None = None
    environment: EnvironmentSpec = EnvironmentSpec()
    image: str | None = None
    ports: tuple[str, ...] = ()
    contact: Contact = Contact()
    #: The sources of the values of secret environment variables, by the variable's name. The host
    #: reads the values.
    secrets: dict[str, str] = Field(default_factory=dict)
    #: The bundle of the function that the task runs; `command` then contains the function's name.
    #: None if the task runs a command.
    call: Bundle | None = None
    #: The folder of the object store to which the task's output directory is uploaded; empty if it
    #: is not uploaded.
    outputs: str = ""
    #: The folder of the object store with the saves of the task's checkpoint directory. All
    #: attempts of the task share it. Empty if the directory is not saved.
    checkpoints: str = ""
    #: The folder of the object store with the saves of another job's task. The task starts from
    #: these saves while it has no saves of its own. Empty if the task does not start from another
    #: job.
    from_checkpoint: str = ""

    @property
    def coordinator_port(self) -> int | None:
        """Returns the port on which the task listens for the others of its gang; None if it is not
        the first task of a gang.
        """
        is_first = self.rank is not None and self.rank.coordinator and self.index == 0
        return (
            int(self.rank.coordinator.rpartition(":")[2])
            if self.rank is not None and is_first
            else None
        )
