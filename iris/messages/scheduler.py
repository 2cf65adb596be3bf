"""Messages to and from the scheduler."""

from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field

from iris.messages.wire import Keys
from iris.model.frozen import Frozen
from iris.model.host.hosts import Closure, Host
from iris.model.job.requests import Placement, Request
from iris.model.job.spec import Band
from iris.model.rules import Rules
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.slice.scaling import Outlook
from iris.scheduling.ledger.codec import LedgerState
from iris.scheduling.placement.preemption import Eviction
from iris.scheduling.placement.refusals import Refusal


class Ask(Frozen):
    """A gang's request for hosts. The answer is its placement, or a refusal, which a `placed`
    signal follows later.
    """

    kind: Literal["ask"] = "ask"
    request: Request


class Release(Frozen):
    """Withdraws the key's request or releases its hosts. If the gang was still waiting, the answer
    has the refusal.
    """

    kind: Literal["release"] = "release"
    key: str
    #: The hosts that did not run their part of the attempt, or ended it through their own fault.
    spoilt_by: tuple[str, ...] = ()
    #: Whether the attempt ran on the other hosts.
    ran: bool = False
    #: When the attempt was placed, if a host spoilt it: attempts of one time may be lost by one
    #: cause.
    placed_at: datetime | None = None
    #: (host, incarnation) of incarnations that have ended, as reported by the hosts.
    over: tuple[tuple[str, str], ...] = ()


class Vacate(Frozen):
    """Releases one host of a gang. The host sends it when no workflow is left to release all of
    them.
    """

    kind: Literal["vacate"] = "vacate"
    key: str
    host_id: str
    incarnation: str


class Amend(Frozen):
    """Changes the band of a waiting request, or sets or ends its hold. The answer is as for
    `Ask`.
    """

    kind: Literal["amend"] = "amend"
    key: str
    band: Band
    held: bool = False
    #: The time by the workflow's clock. A copy that arrives after a later message is stale.
    said_at: datetime | None = None


class SliceUp(Frozen):
    """Adds hosts that accept work from now on."""

    kind: Literal["slice_up"] = "slice_up"
    hosts: tuple[Host, ...]


class SliceDown(Frozen):
    """Removes a slice with all its hosts."""

    kind: Literal["slice_down"] = "slice_down"
    #: (host, incarnation): a late copy of this message must not remove the machines' next
    #: incarnations.
    lives: tuple[tuple[str, str], ...]


class HostLost(Frozen):
    """Removes one incarnation of a host."""

    kind: Literal["host_lost"] = "host_lost"
    host_id: str
    incarnation: str
    reason: str = ""
    #: Whether it was stopped and has reported that itself.
    left: bool = False


class Close(Frozen):
    """An operator closes a host to new work. With `evict`, the tasks on it are stopped."""

    kind: Literal["close"] = "close"
    host_id: str
    closure: Closure
    evict: bool = False


class Open(Frozen):
    """An operator opens a host again."""

    kind: Literal["open"] = "open"
    host_id: str


class Pause(Frozen):
    """Stops new placements, in the whole cluster or in one scale group."""

    kind: Literal["pause"] = "pause"
    reason: str = ""
    group: str | None = None


class Resume(Frozen):
    """Allows placements again."""

    kind: Literal["resume"] = "resume"
    group: str | None = None


class Configure(Frozen):
    """Sets the rules of this cluster's scheduler, and the scale groups whose slices can be
    created.
    """

    kind: Literal["configure"] = "configure"
    #: None: unchanged.
    rules: Rules | None = None
    groups: tuple[ScaleGroup, ...] | None = None


class Retire(Frozen):
    """A slice asks to be removed. If its hosts are free they are removed; otherwise the answer's
    `problem` names what runs.
    """

    kind: Literal["retire"] = "retire"
    #: (host, incarnation).
    lives: tuple[tuple[str, str], ...]
    #: Only if nothing has run there since then.
    idle_since: datetime | None = None
    #: If something runs there: close the hosts to new work …
    closure: Closure | None = None
    #: … and evict what runs.
    evict: bool = False


class Outlooks(Frozen):
    """The complete list of outlooks of the waiting gangs, from the autoscaler. It replaces the
    previous one.
    """

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


class Envelope(Frozen):
    """One message to the scheduler, as an activity's argument."""

    message: Message


class Batch(Frozen):
    """The messages that a process collected for the scheduler while its previous batch was under
    way.
    """

    messages: tuple[Message, ...]


class Answer(Frozen):
    """The scheduler's answer to one message."""

    placement: Placement | None = None
    refusal: Refusal | None = None
    #: What is wrong with the message; in that case nothing was changed.
    problem: str = ""
    #: To `SliceUp`: (host, incarnation) of incarnations that have ended. Their hosts have to begin
    #: new ones.
    ended: tuple[tuple[str, str], ...] = ()
    #: To `Retire`: the scheduler's time, by which the slice decides. Its own clock may differ in a
    #: replay.
    at: datetime | None = None


class Answers(Frozen):
    """One answer per message of the batch, in the same order."""

    answers: tuple[Answer, ...]


class SchedulerStart(Frozen):
    """The state that a run of the scheduler passes to the next."""

    cluster: str
    ledger: LedgerState = LedgerState()
    #: Placements that their owners have not received yet: the keys of those that the ledger has,
    #: and the others in full.
    noticed: tuple[str, ...] = ()
    notices: tuple[Placement, ...] = ()
    #: The same of evictions, the keys by reason.
    evicted: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    evictions: tuple[Eviction, ...] = ()
    #: By shape, as short text: the code of the last reason that the waiting gangs of the shape
    #: received.
    told: dict[str, str] = Field(default_factory=dict)
    #: When the scheduler last checked that the owners of requests and placements still exist.
    checked_at: datetime | None = None
    #: Whether to run recovery first, which asks all slices and gangs. The ledger is empty because
    #: an earlier one was or may have been lost.
    call_roll: bool = False


class SnapshotPage(Frozen):
    """The part of the ledger to show."""

    offset: int = 0
    limit: int = 1_000


class HostView(Frozen):
    """A host with its free resources, its running tasks, and the reason if it accepts no new
    ones.
    """

    host: Host
    free: dict[str, int]
    running: tuple[str, ...]
    closed: str = ""


class Snapshot(Frozen):
    """A page of hosts, and the numbers of waiting and running gangs."""

    hosts: tuple[HostView, ...]
    total_hosts: int
    #: The number of waiting gangs, without held ones.
    waiting: int
    running: int
    held: int = 0
    #: Why no new placements are made; None: they are.
    paused: str | None = None
    paused_groups: dict[str, str] = Field(default_factory=dict)
    #: Why hosts are quarantined, by their ids; at most a hundred of them.
    quarantined: dict[str, str] = Field(default_factory=dict)
    rules: Rules = Rules()


class Owner(Frozen):
    """The workflow that sent the request of a key."""

    key: str
    owner: str


class Owners(Frozen):
    owners: tuple[Owner, ...]
    total: int
    #: How long a program may run on without contact between its host and the server.
    lease: timedelta = Rules().lease


class Notices(Frozen):
    """Placements to send to their owners."""

    placements: tuple[Placement, ...]


class Signalled(Keys):
    """The result of signalling owners: the keys of those that are gone, and the keys of those that
    could not be signalled.
    """

    unsent: tuple[str, ...] = ()


class EvictionNotices(Frozen):
    """Evictions to send to their owners."""

    evictions: tuple[Eviction, ...]


class Reason(Frozen):
    """The reason that a gang waits, for its owner to show."""

    key: str
    owner: str
    refusal: Refusal


class Reasons(Frozen):
    reasons: tuple[Reason, ...]
