"""What workflows, activities and clients say to each other: one value per message.

On the wire an unknown field is ignored and a new field has a default: a strict model would wedge every workflow whose history
holds an older message.
"""

from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from iris.attempts import AttemptRecord
from iris.bundles import Bundle
from iris.compact import LedgerState
from iris.environments import EnvironmentSpec
from iris.gangs import Placement, Request
from iris.hosts import Closure, Host
from iris.jobs import Band, JobSpec, TaskStatus
from iris.placement import Rules
from iris.preemption import Eviction
from iris.refusals import Refusal
from iris.resources import Resources
from iris.scale_groups import ScaleGroup
from iris.scale_plan import Outlook
from iris.states import TaskState
from iris.wishes import Wishes


class Wire(BaseModel):
    model_config = ConfigDict(frozen=True)


# -- to the scheduler ----------------------------------------------------------------------------------------------------------


class Ask(Wire):
    """A gang wants hosts. Answered with its placement, or with why it has to wait: then a `placed` signal follows."""

    kind: Literal["ask"] = "ask"
    request: Request


class Release(Wire):
    """Whatever the key waits for or holds, it wants no longer. Answered with why it was still waiting, if it was."""

    kind: Literal["release"] = "release"
    key: str
    #: The hosts that did not take their part of the attempt, or ended it by a fault of theirs.
    spoilt_by: tuple[str, ...] = ()
    #: Whether the attempt ran on the others.
    ran: bool = False
    #: (host, incarnation) of lives that are over, as the hosts themselves have said.
    over: tuple[tuple[str, str], ...] = ()


class Vacate(Wire):
    """One host of a gang's is free of it: nobody is left who would give all of them back."""

    kind: Literal["vacate"] = "vacate"
    key: str
    host_id: str
    incarnation: str


class Amend(Wire):
    """A waiting request changes its band, or is held back or let go. Answered as an ask is."""

    kind: Literal["amend"] = "amend"
    key: str
    band: Band
    held: bool = False
    #: By the workflow's clock; a copy that arrives after a later word is stale.
    said_at: datetime | None = None


class SliceUp(Wire):
    """Hosts take work from now on."""

    kind: Literal["slice_up"] = "slice_up"
    hosts: tuple[Host, ...]


class SliceDown(Wire):
    """A slice is gone with all its hosts."""

    kind: Literal["slice_down"] = "slice_down"
    #: (host, incarnation): a late copy of this message must not take out the machines' next lives.
    lives: tuple[tuple[str, str], ...]


class HostLost(Wire):
    """One incarnation of a host is gone."""

    kind: Literal["host_lost"] = "host_lost"
    host_id: str
    incarnation: str
    reason: str = ""
    #: It was stopped, and has said so itself.
    left: bool = False


class Close(Wire):
    """An operator closes a host to new work; with `evict`, what runs there has to go."""

    kind: Literal["close"] = "close"
    host_id: str
    closure: Closure
    evict: bool = False


class Open(Wire):
    """An operator opens a host again."""

    kind: Literal["open"] = "open"
    host_id: str


class Pause(Wire):
    """Nothing new is placed, in the whole cluster or in one scale group."""

    kind: Literal["pause"] = "pause"
    reason: str = ""
    group: str | None = None


class Resume(Wire):
    """Work is placed again."""

    kind: Literal["resume"] = "resume"
    group: str | None = None


class Configure(Wire):
    """The rules of this cluster's scheduler, and the kinds of slice that can be made."""

    kind: Literal["configure"] = "configure"
    #: None: as they are.
    rules: Rules | None = None
    groups: tuple[ScaleGroup, ...] | None = None


class Retire(Wire):
    """A slice wants to go. When nothing runs on its hosts they are taken out; else the answer's problem says what does."""

    kind: Literal["retire"] = "retire"
    #: (host, incarnation).
    lives: tuple[tuple[str, str], ...]
    #: Only if nothing has run there since then.
    idle_since: datetime | None = None
    #: While something runs there: take nothing new …
    closure: Closure | None = None
    #: … and stop what runs.
    evict: bool = False


class Outlooks(Wire):
    """What those who wait may hope for from the autoscaler, all of it."""

    kind: Literal["outlooks"] = "outlooks"
    outlooks: tuple[Outlook, ...]


Message = Annotated[
    Ask
    | Release
    | Vacate
    | Amend
    | SliceUp
    | SliceDown
    | HostLost
    | Close
    | Open
    | Pause
    | Resume
    | Configure
    | Retire
    | Outlooks,
    Field(discriminator="kind"),
]


class Envelope(Wire):
    """One message to the scheduler, as an activity's argument."""

    message: Message


class Batch(Wire):
    """Everything a process had for the scheduler while its previous batch was under way."""

    messages: tuple[Message, ...]


class Answer(Wire):
    """What the scheduler says to one message."""

    placement: Placement | None = None
    refusal: Refusal | None = None
    #: What is wrong with the message; nothing was changed then.
    problem: str = ""


class Answers(Wire):
    """One answer per message of the batch, in its order."""

    answers: tuple[Answer, ...]


class SchedulerStart(Wire):
    """All that a run of the scheduler hands to the next."""

    cluster: str
    ledger: LedgerState = LedgerState()
    #: Placements whose owners have not been told yet.
    notices: tuple[Placement, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    #: By shape, written as text: the reason that those who wait for it were told last.
    told: dict[str, str] = Field(default_factory=dict)
    #: When it was last made sure that those who hold or wait still exist.
    checked_at: datetime | None = None
    #: Whether the book is empty because an earlier one was lost, or may have been: all slices and gangs are asked first.
    call_roll: bool = False


class SnapshotPage(Wire):
    """Which part of the book to show."""

    offset: int = 0
    limit: int = 1_000


class HostView(Wire):
    """A host, what is free on it, which tasks it runs, and why it takes no new ones if it does not."""

    host: Host
    free: dict[str, int]
    running: tuple[str, ...]
    closed: str = ""


class Snapshot(Wire):
    """A page of hosts, and how much waits and runs."""

    hosts: tuple[HostView, ...]
    total_hosts: int
    #: Gangs that wait, those that are held apart.
    waiting: int
    running: int
    held: int = 0
    #: Why nothing new is placed; None: it is.
    paused: str | None = None
    paused_groups: dict[str, str] = Field(default_factory=dict)
    rules: Rules = Rules()


class Owner(Wire):
    """Who asked for a key."""

    key: str
    owner: str


class Owners(Wire):
    owners: tuple[Owner, ...]
    total: int


class Notices(Wire):
    """Placements to be told to their owners."""

    placements: tuple[Placement, ...]


class EvictionNotices(Wire):
    """Evictions to be told to their owners."""

    evictions: tuple[Eviction, ...]


class Reason(Wire):
    """Why a gang waits now, for its owner to show."""

    key: str
    owner: str
    refusal: Refusal


class Reasons(Wire):
    reasons: tuple[Reason, ...]


class Keys(Wire):
    keys: tuple[str, ...] = ()


class ClusterRef(Wire):
    cluster: str


# -- to and from jobs and tasks ------------------------------------------------------------------------------------------------


class JobInput(Wire):
    """All that a run of a job hands to the next; the first has only the specification."""

    cluster: str
    spec: JobSpec
    submitted_at: datetime | None = None
    tasks: tuple[TaskStatus, ...] = ()
    wishes: Wishes = Wishes()
    #: How long it has been held: the scheduling timeout does not run meanwhile.
    held_for: timedelta = timedelta(0)
    attempts: tuple[AttemptRecord, ...] = ()


class TaskInput(Wire):
    """One task of a job of several; `run_id` is the job's first run, under which its logs are kept."""

    cluster: str
    spec: JobSpec
    index: int
    parent: str
    run_id: str
    submitted_at: datetime
    status: TaskStatus | None = None
    wishes: Wishes = Wishes()
    held_for: timedelta = timedelta(0)
    attempts: tuple[AttemptRecord, ...] = ()


class Attempts(Wire):
    """What became of every attempt, the first one first."""

    attempts: tuple[AttemptRecord, ...]


class TaskProgress(Wire):
    """An attempt has got further: told by its host, and only of attempts that outlive a second."""

    key: str
    state: TaskState
    at: datetime


class Rank(Wire):
    """Where an attempt stands in its gang. All members of a gang are told the same coordinator."""

    #: `address:port` on the host of task 0.
    coordinator: str
    #: The slices (or other groups) that the gang spans, and which of them this task is on.
    num_slices: int = 1
    slice_index: int = 0
    tasks_per_slice: int = 1


class RunTask(Wire):
    """One attempt, as its host needs to know it."""

    key: str
    #: What the scheduler knows the gang's hosts by.
    claim: str = ""
    #: The workflow to tell of progress.
    owner: str
    job: str
    index: int
    attempt: int
    num_tasks: int
    #: Only this incarnation of the host may run it: another has forgotten what it promised.
    incarnation: str
    command: tuple[str, ...]
    env: dict[str, str]
    workdir: str | None
    timeout: timedelta | None
    grace: timedelta
    #: Where in the object store its logs go.
    logs: str
    #: None: it runs by itself.
    rank: Rank | None = None
    #: What it was promised: the most it may use, where the host can hold it to that.
    resources: Resources = Resources(cpu_millis=0)
    bundle: Bundle | None = None
    environment: EnvironmentSpec = EnvironmentSpec()
    image: str | None = None
    ports: tuple[str, ...] = ()
    #: Where in the object store goes what it leaves in its output directory; empty: nowhere.
    outputs: str = ""
