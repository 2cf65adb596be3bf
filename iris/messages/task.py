"""Messages between tasks, their jobs and hosts."""

from datetime import datetime, timedelta

from pydantic import Field

from iris.model.frozen import Frozen
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
    """One task of a job of several independent tasks, as a gang of one."""

    index: int
    #: The workflow of its job, or of its part of a large array.
    parent: str
    #: The first run of that workflow; empty: that of the job.
    parent_run: str = ""
    run_id: str
    submitted_at: datetime
    tasks: tuple[TaskStatus]


class OwnStatus(Frozen):
    """The status of a task of a job of several independent tasks, as the task's workflow has it."""

    #: The first run of the job.
    run_id: str
    task: TaskStatus


class TaskRefs(Frozen):
    """Some tasks of a job of several independent tasks."""

    cluster: str
    job: str
    indices: tuple[int, ...]


class TaskOverrides(TaskRefs):
    """The user's changes to a job, for its tasks."""

    overrides: Overrides


class TaskCancellation(Frozen):
    """A user's request to cancel one task of a job of several independent tasks."""

    index: int = Field(ge=0)
    reason: str


class TaskProgress(Frozen):
    """A change of a running attempt. Its host sends it only for attempts that run for more than a
    second.
    """

    key: str
    state: TaskState
    at: datetime
    #: What its host does now, if that may take long.
    reason: str = ""
    #: Whether its program is prepared, and waits for those of the other tasks of its gang.
    prepared: bool = False


class GangStart(Frozen):
    """A host's question whether the programs of a gang's attempt may start. All hosts of the gang
    ask the same.
    """

    #: The scheduler's key of the gang's placement.
    claim: str


class Rank(Frozen):
    """The position of an attempt in its gang. All members of a gang get the same coordinator."""

    #: `address:port` on the host of task 0.
    coordinator: str
    #: The number of slices (or other groups) of the gang, and the one that this task is on.
    num_slices: int = 1
    slice_index: int = 0
    tasks_per_slice: int = 1


class RunTask(Frozen):
    """One attempt, with what its host needs to run it."""

    key: str
    #: The key under which the scheduler holds the gang's hosts.
    claim: str = ""
    #: The workflow that receives progress messages.
    owner: str
    job: str
    index: int
    attempt: int
    num_tasks: int
    #: Only this incarnation of the host may run the attempt. Another one does not have the
    #: resources reserved for it.
    incarnation: str
    command: tuple[str, ...]
    #: The array of the task; it has only this task. None: it is not a task of an array.
    array: Array | None = None
    env: dict[str, str]
    workdir: str | None
    timeout: timedelta | None
    grace: timedelta
    #: The folder of its logs in the object store.
    logs: str
    #: None: it is not a member of a gang.
    rank: Rank | None = None
    #: The resources reserved for it: the most it may use, where the host can enforce that.
    resources: Resources = Resources(cpu_millis=0)
    bundle: Bundle | None = None
    environment: EnvironmentSpec = EnvironmentSpec()
    image: str | None = None
    ports: tuple[str, ...] = ()
    contact: Contact = Contact()
    #: Variables whose values the host opens or looks up, by their sources.
    secrets: dict[str, str] = Field(default_factory=dict)
    #: The function that it runs; `command` is then its name. None: it runs the command.
    call: Bundle | None = None
    #: Where in the object store its output directory is uploaded; empty: nowhere.
    outputs: str = ""
    #: Where in the object store the saves of its checkpoint directory are, for all attempts of the
    #: task; empty: nowhere.
    checkpoints: str = ""
    #: Where those of another job's task are that it starts from while it has none of its own;
    #: empty: it starts from none.
    from_checkpoint: str = ""

    @property
    def placement_key(self) -> str:
        """The scheduler's key of its placement. Tasks of a gang that share a host have the same
        one.
        """
        return self.claim or self.key

    @property
    def coordinator_port(self) -> int | None:
        """Returns the port on which the task listens for its gang; None: it is not the first task
        of one.
        """
        is_first = self.rank is not None and self.rank.coordinator and self.index == 0
        return (
            int(self.rank.coordinator.rpartition(":")[2])
            if self.rank is not None and is_first
            else None
        )
