"""Messages to and from the scheduler."""

from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from iris.messages.wire import HostLost
from iris.model.frozen import Frozen
from iris.model.host.hosts import ClosedBy, Closure, Host
from iris.model.job.requests import Placement, Request
from iris.model.job.spec import Band
from iris.model.quotas import QuotaRules
from iris.model.rules import Rules
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.slice.scaling import Outlook
from iris.scheduling.ledger.codec import LedgerState
from iris.scheduling.placement.preemption import Eviction
from iris.scheduling.placement.refusals import Refusal, RefusalCode
from iris.usage.records import AttemptEnd, AttemptUse, DroppedUses, SliceUse


class Ask(Frozen):
    """A gang's request for hosts. The answer is a placement, or a refusal. After a refusal, the
    scheduler sends the placement later, with the signal `placed`.
    """

    kind: Literal["ask"] = "ask"
    request: Request


class Release(Frozen):
    """Withdraws a request, or releases the hosts of a placement. If the gang was still waiting, the
    answer contains the refusal: the reason why it waited.
    """

    kind: Literal["release"] = "release"
    key: str
    #: The hosts with a fault that ended the attempt, or prevented its start.
    spoilt_by: tuple[str, ...] = ()
    #: Whether the attempt ran on the hosts that are not in `spoilt_by`.
    ran: bool = False
    #: When the attempt was placed; set only if a host is at fault. Attempts that were placed at the
    #: same time may have failed for the same cause.
    placed_at: datetime | None = None
    #: The (host, incarnation) of each incarnation that has ended, as the hosts report it.
    over: tuple[tuple[str, str], ...] = ()
    #: The part of the attempt's record of use that only the gang's workflow knows; None if the
    #: workflow does not know it.
    ended: AttemptEnd | None = None


class Vacate(Frozen):
    """Releases one host of a gang. The host sends this message if the gang's workflow has been
    terminated.
    """

    kind: Literal["vacate"] = "vacate"
    key: str
    host_id: str
    incarnation: str
    #: When the gang's last program on this host ended, by the host's clock.
    at: AwareDatetime


class Amend(Frozen):
    """Changes the band of a waiting request, or holds the request, or ends the hold. The answer is
    the same as for `Ask`.
    """

    kind: Literal["amend"] = "amend"
    key: str
    band: Band
    held: bool
    #: The time of the change, by the clock of the gang's workflow. The scheduler ignores a message
    #: with an older time than that of the last message that changed the request.
    changed_at: datetime


class SliceUp(Frozen):
    """Adds the hosts of a slice. They accept work from now on."""

    kind: Literal["slice_up"] = "slice_up"
    hosts: tuple[Host, ...]


class SliceDown(Frozen):
    """Removes a slice with all its hosts."""

    kind: Literal["slice_down"] = "slice_down"
    #: The (host, incarnation) of each host to remove. A late copy of this message must not remove
    #: the next incarnations of the hosts.
    incarnations: tuple[tuple[str, str], ...]
    #: True if the platform confirms that the machines no longer exist. The attempts on them end
    #: then, without waiting for their leases.
    gone: bool = False
    #: The reason why the slice ended. It becomes the reason of attempts that ran on machines that
    #: no longer exist.
    reason: str = ""


class Close(Frozen):
    """An operator's command to close a host to new work. With `evict`, the tasks on the host are
    stopped.
    """

    kind: Literal["close"] = "close"
    host_id: str
    closure: Closure
    evict: bool = False


class Open(Frozen):
    """An operator's command to open a closed host again."""

    kind: Literal["open"] = "open"
    host_id: str


class Pause(Frozen):
    """Stops new placements in the whole cluster or in one scale group."""

    kind: Literal["pause"] = "pause"
    reason: str = ""
    #: The scale group; None for the whole cluster.
    group: str | None = None


class Resume(Frozen):
    """Ends a pause of the cluster or of one scale group."""

    kind: Literal["resume"] = "resume"
    #: The scale group; None for the whole cluster.
    group: str | None = None


class Configure(Frozen):
    """Sets the scheduler's rules and quotas, and the scale groups. A field that is None changes
    nothing.
    """

    kind: Literal["configure"] = "configure"
    rules: Rules | None = None
    quotas: QuotaRules | None = None
    groups: tuple[ScaleGroup, ...] | None = None


class Retire(Frozen):
    """A slice's request to remove its hosts, all together. If a task runs on one of them, none is
    removed, and the `problem` of the answer names the host and its tasks.
    """

    kind: Literal["retire"] = "retire"
    #: The (host, incarnation) of each host to remove.
    incarnations: tuple[tuple[str, str], ...]
    #: If it is set, the hosts are removed only if no task has run on them since this time.
    idle_since: datetime | None = None
    #: If set, and the hosts cannot be removed, all of them are closed to new work, with this
    #: closure. None leaves them open.
    closure: Closure | None = None
    #: Whether to evict the running tasks, in addition to closing the hosts. It has no effect if
    #: `closure` is None.
    evict: bool = False


class SliceEnded(Frozen):
    """A report about a slice that has ended, for the records of use."""

    kind: Literal["slice_ended"] = "slice_ended"
    use: SliceUse


class Outlooks(Frozen):
    """For each shape of waiting gangs (gangs with the same demands on hosts), the slice that they
    can expect, as the autoscaler sends it to the scheduler. The records replace those of the
    previous message.
    """

    kind: Literal["outlooks"] = "outlooks"
    outlooks: tuple[Outlook, ...]


#: A message to the scheduler, of any kind.
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
    | SliceEnded
    | Outlooks,
    Field(discriminator="kind"),
]


class Envelope(Frozen):
    """One message to the scheduler, as an activity's argument."""

    message: Message
    #: Whether the activity that sends the message may wait some seconds before it returns the
    #: scheduler's answer, if a gang will probably get hosts in this time.
    patient: bool = False


class Batch(Frozen):
    """The messages of one process to the scheduler. The process collects them while the scheduler
    answers its previous batch.
    """

    messages: tuple[Message, ...]
    #: Identifies the control plane that sends the batch; empty if the sender is not a control
    #: plane.
    sender: str = ""
    #: Whether the sender signals placements to the workflows that asked for them. If False,
    #: `Answers.placed` is empty, and the scheduler signals all placements itself.
    signals: bool = False
    #: The keys of placements that the sender has signalled since its last batch.
    signalled: tuple[str, ...] = ()
    #: True if the sender did not receive an answer of the scheduler, and so does not know the
    #: placements that it had to signal. The scheduler then signals these placements itself.
    again: bool = False


class Answer(Frozen):
    """The scheduler's answer to one message."""

    placement: Placement | None = None
    refusal: Refusal | None = None
    #: The reason why the message was not carried out; empty if it was carried out.
    problem: str = ""
    #: For `SliceUp`: the (host, incarnation) of each incarnation that has ended. These hosts have
    #: to begin a new incarnation.
    ended: tuple[tuple[str, str], ...] = ()
    #: For `Retire`: the time of the answer by the scheduler's clock, which the slice's workflow
    #: then uses as the current time. None for other messages.
    at: datetime | None = None


class Answers(Frozen):
    """One answer per message of the batch, in the same order."""

    answers: tuple[Answer, ...]
    #: The placements of gangs that waited. The sender signals them to their owners. If it does not
    #: confirm a placement in a later batch (`Batch.signalled`), the scheduler signals this
    #: placement itself.
    placed: tuple[Placement, ...] = ()
    #: The number of gangs that wait for hosts, without gangs on hold.
    waiting: int = 0
    #: Whether no other control plane has sent a batch in the last ten seconds.
    alone: bool = False


class SchedulerStart(Frozen):
    """The state that a run of the scheduler passes to the next."""

    cluster: str
    ledger: LedgerState = LedgerState()
    #: The upper bound of the ledger's size in bytes, as the previous run estimated it.
    ledger_bytes: int = 0
    #: The keys of placements in the ledger whose signal to their owners is still to be sent.
    noticed: tuple[str, ...] = ()
    #: Placements that their owners have not received yet, in full, because the ledger has no
    #: placement or a different one under the same key. The keys of the others are in `noticed`.
    notices: tuple[Placement, ...] = ()
    #: The keys of placements in the ledger whose owners have not received their eviction yet, by
    #: the reason of the eviction.
    evicted: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    #: The evictions that their owners have not received yet, for placements that are no longer in
    #: the ledger or that lost hosts because their machines are gone. The other evictions are in
    #: `evicted`.
    evictions: tuple[Eviction, ...] = ()
    #: The code of the last reason that was sent to the waiting gangs of each shape, which are the
    #: gangs with the same demands on hosts. The keys are hashes of the shapes.
    sent_reasons: dict[str, str] = Field(default_factory=dict)
    #: When the scheduler last checked that the workflows with requests and placements still exist;
    #: None before the first check.
    checked_at: datetime | None = None
    #: Whether to recover the ledger first, by queries to all slices and gangs. An earlier ledger
    #: may have been lost.
    recover: bool = False


class EndedRecords(Frozen):
    """Records of use, as the argument of the activity that writes them to the store."""

    cluster: str
    records: tuple[AttemptUse | SliceUse | DroppedUses, ...]


class SnapshotPage(Frozen):
    """A request for a part of the list that a query of the scheduler returns, such as the list of
    hosts: at most `limit` entries, beginning at the entry with the index `offset`.
    """

    offset: int = 0
    limit: int = 1_000


class UsesPage(SnapshotPage):
    """A request for a page of the records of use that are not in the store yet: at most `limit`
    records, beginning at the record with the index `offset`.
    """

    #: The time of the query. The use of attempts and slices that still run is counted until this
    #: time.
    at: datetime


class Uses(Frozen):
    """A page of the records of use that are not in the store: those of attempts and slices that
    still run or ended a moment ago.
    """

    uses: tuple[AttemptUse | SliceUse, ...]
    #: The number of all records of use that are not in the store.
    total: int


class HostView(Frozen):
    """A host with its free resources and its running tasks."""

    host: Host
    free: dict[str, int]
    running: tuple[str, ...]
    #: The reason why the host accepts no new tasks; empty if it accepts them.
    closed: str = ""


class Snapshot(Frozen):
    """A page of hosts, and the numbers of waiting and running gangs."""

    hosts: tuple[HostView, ...]
    total_hosts: int
    #: The number of waiting gangs, without gangs on hold.
    waiting: int
    #: The number of running gangs.
    running: int
    #: The number of gangs on hold.
    held: int = 0
    #: The reason why the whole cluster is paused; None if it is not paused.
    paused: str | None = None
    #: The reason of each pause of a scale group, by the name of the group.
    paused_groups: dict[str, str] = Field(default_factory=dict)
    #: The reason why each quarantined host is in quarantine, by host id. At most a hundred hosts
    #: are listed.
    quarantined: dict[str, str] = Field(default_factory=dict)
    rules: Rules = Rules()


class WaitingGangs(Frozen):
    """The number of waiting gangs of one band that have the same reason."""

    band: Band
    #: The code of the reason why the gangs wait. None if the reason was not computed, because the
    #: waiting gangs have too many different demands on hosts.
    reason: RefusalCode | None
    gangs: int


class HostCount(Frozen):
    """The number of hosts of one scale group in the same state."""

    #: The name of the scale group; empty for hosts that belong to no scale group.
    group: str
    #: Why the hosts accept no new work; None if they are open. A pause of the group does not count.
    closed: ClosedBy | None
    hosts: int


class Totals(Frozen):
    """The numbers of gangs and hosts in the ledger, and how near the scheduler is to its limits."""

    waiting: tuple[WaitingGangs, ...] = ()
    #: The number of running gangs in each priority band.
    running: dict[Band, int] = Field(default_factory=dict)
    #: The number of gangs on hold in each priority band.
    held: dict[Band, int] = Field(default_factory=dict)
    hosts: tuple[HostCount, ...] = ()
    paused: bool = False
    #: The scheduling work in the current run of the workflow, which a replay repeats. The unit is a
    #: look: the work to examine one host.
    looks: int = 0
    #: The value of `looks` at which the workflow's run continues as new. 0 means that the scheduler
    #: has not filled this field in.
    most_looks: int = 0
    #: An upper bound of the ledger's size in bytes.
    ledger_bytes: int = 0
    #: The size in bytes at which the ledger is full: the scheduler then refuses new requests.
    full_ledger_bytes: int = 0
    #: The number of records of use that are not stored yet.
    unstored_uses: int = 0
    #: The number of records of use that were dropped because the store does not answer. When the
    #: store answers again, a `DroppedUses` record reports them.
    dropped_uses: int = 0
    #: How many of the records of use that are not stored yet are records of slices.
    unstored_slices: int = 0


class Owner(Frozen):
    """The key of a request or placement, and the workflow that owns it."""

    key: str
    owner: str


class Owners(Frozen):
    """A page of the keys of the ledger's requests and placements with their owners (workflows), and
    the total number of these keys.
    """

    owners: tuple[Owner, ...]
    total: int
    #: How long a program may continue to run while its host has no contact with the Temporal
    #: service.
    lease: timedelta = Rules().lease


class Notices(Frozen):
    """Placements to send to their owners."""

    placements: tuple[Placement, ...]


class Signalled(Frozen):
    """The result of an activity that sends signals to owners."""

    #: The keys of the owners that could not be signalled and may still exist, so that their signals
    #: must be sent again.
    unsent: tuple[str, ...] = ()


class EvictionNotices(Frozen):
    """Evictions to send to their owners."""

    evictions: tuple[Eviction, ...]


class Reason(Frozen):
    """The reason why a gang waits, for the workflow that owns the gang's request."""

    key: str
    owner: str
    refusal: Refusal


class Reasons(Frozen):
    """Reasons to send to the owners of waiting gangs."""

    reasons: tuple[Reason, ...]
