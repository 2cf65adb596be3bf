"""The values that the autoscaler knows, decides and remembers. `iris.autoscaling.plan` makes the
plan itself.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import Field

from iris.model.frozen import Frozen
from iris.model.host.resources import Resources
from iris.model.job.requests import Request
from iris.model.slice.status import SliceState

#: The most shapes whose outlook the autoscaler sends the scheduler, which stores them in its
#: ledger.
MOST_OUTLOOKS = 200


class Demand(Frozen):
    """The number of waiting gangs of one shape."""

    count: int
    #: One of these gangs.
    example: Request


class Wanted(Frozen):
    """The gangs that the scheduler could not place, and the slices that are idle."""

    #: In the order in which the scheduler serves them.
    demands: tuple[Demand, ...] = ()
    #: The slices on whose hosts nothing runs, and since when.
    idle: dict[str, datetime] = Field(default_factory=dict)
    #: The slices that cannot work any more because one of their hosts is quarantined, with the
    #: reason.
    broken: dict[str, str] = Field(default_factory=dict)
    #: The scale groups that are paused: their hosts accept no new work.
    paused: tuple[str, ...] = ()
    #: Whether the scheduler has received the outlooks of the waiting gangs.
    informed: bool = True
    #: The time of this snapshot by the server's clock. A slice that became ready later may be one
    #: that the gangs wait for.
    as_of: datetime


class Create(Frozen):
    """An instruction to request a slice of this group in this zone."""

    group: str
    zone: str
    reason: str


class Drain(Frozen):
    """An instruction to delete a slice."""

    slice_id: str
    reason: str
    #: Delete only if the scheduler confirms that the slice has been idle at least since then;
    #: otherwise leave it unchanged.
    idle_since: datetime | None = None
    #: When tasks that still run on it are stopped. None: they may run to their end. Ignored if
    #: `idle_since` is given.
    deadline: datetime | None = None

    def is_over(self, due: datetime | None, patience: timedelta = timedelta(0)) -> bool:
        """Returns whether `due` is at or after the deadline plus `patience`."""
        return self.deadline is not None and due is not None and due >= self.deadline + patience

    def beside(self, other: "Drain | None") -> "Drain":
        """Returns a copy with the earlier of the two deadlines."""
        deadlines = [
            each.deadline
            for each in (self, other)
            if each is not None and each.deadline is not None
        ]
        return self.model_copy(update={"deadline": min(deadlines, default=None)})


class Availability(StrEnum):
    """The availability of a group for new slices: the first state that holds."""

    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"  # the platform reported it; demand goes to the next group
    BACKOFF = (
        "BACKOFF"  # slices failed, or every zone is out of stock; demand goes to the next group
    )
    REQUESTING = "REQUESTING"  # the platform has not answered the last request yet; demand waits
    COOLDOWN = "COOLDOWN"  # the group has just grown; demand waits
    AT_MAX = "AT_MAX"  # the group has its maximum; demand goes to the next group
    AVAILABLE = "AVAILABLE"


class GroupStatus(Frozen):
    """The result of an evaluation for one group: its slices, the demand for it, and why no more is
    done.
    """

    group: str
    availability: Availability
    #: A text with names and numbers.
    why: str
    #: When it may change; None: that does not depend on time alone.
    until: datetime | None = None
    #: The number of slices by state.
    counts: dict[SliceState, int] = Field(default_factory=dict)
    #: The slices that the waiting gangs need of the group, including those on their way.
    demand: int = 0
    #: The number of slices it should have: in use, demanded and in reserve, within its limits.
    target: int = 0


class Outlook(Frozen):
    """The outlook of the waiting gangs of one shape."""

    #: One of these gangs. Its shape stands for all of them.
    example: Request
    #: "slice X of scale group G is on its way", or the reason that there is none.
    message: str
    #: Since when that holds, if it is a slice that was requested.
    since: datetime | None = None
    #: Whether any group could ever serve it.
    possible: bool = True


class Action(Frozen):
    """An action of the autoscaler, or an event of a slice. The last hundred are kept."""

    at: datetime
    group: str
    #: "scale_up", "scale_down", "failed", "quota_exceeded", "stock_out", "adopted", …
    what: str
    slice_id: str = ""
    reason: str = ""


class StockedOut(Frozen):
    """A zone without capacity for a kind of machine."""

    zone: str
    #: `SliceType`, variant or machine type or pool, and tier. Groups that need the same kind share
    #: this record.
    kind: str
    until: datetime
    #: The number of times in a row.
    times: int = 1
    #: When the stock-out was last reported. The failure of an earlier request is the same stock-out
    #: and is not counted again.
    at: datetime
    #: Why no machine of a pool is free; empty for machines of a cloud, which says no more than that
    #: it has none.
    reason: str = ""


class UsedUp(Frozen):
    """A quota that is used up for a kind of machine."""

    #: The zone or region where it applies, or `ANYWHERE`.
    scope: str
    #: As in `StockedOut`.
    kind: str
    until: datetime
    #: The platform's own text, which names the quota.
    reason: str
    #: When the refused slice was requested. Machines deleted after that may have freed quota.
    asked_at: datetime


class Freed(Frozen):
    """The last time that machines of a family were found deleted in a zone. Their quota has free
    capacity since then.
    """

    zone: str
    family: str
    at: datetime


class SizeFound(Frozen):
    """What each host of a slice offered when the slice became ready."""

    slice_id: str
    at: datetime
    offers: Resources


class GroupMemory(Frozen):
    """The recent events of a group."""

    #: Used if a platform does not say where its quota applies. If it does, the quota is in
    #: `Memory.used_up`.
    quota_until: datetime | None = None
    quota_reason: str = ""
    #: The failures in a row, and when the last one was reported. The failure of a slice requested
    #: before that is not counted again.
    failures: int = 0
    failed_at: datetime | None = None
    backoff_until: datetime | None = None
    backoff_reason: str = ""
    #: Whether so many slices failed that the group is rarely tried until the configuration is
    #: loaded again.
    stopped: bool = False
    cooldown_until: datetime | None = None
    #: The times of scale-ups and scale-downs within the last minute, for the rate limits.
    scale_ups: tuple[datetime, ...] = ()
    scale_downs: tuple[datetime, ...] = ()
    #: The ends of slices that had been ready, and whether they were ready for long enough, within
    #: the churn window.
    lives: tuple[tuple[datetime, bool], ...] = ()
    #: The sizes of its last slices, the latest last.
    sizes: tuple[SizeFound, ...] = ()


class Memory(Frozen):
    """All that the autoscaler remembers between evaluations, besides the slices themselves."""

    groups: dict[str, GroupMemory] = Field(default_factory=dict)
    stocked_out: tuple[StockedOut, ...] = ()
    used_up: tuple[UsedUp, ...] = ()
    freed: tuple[Freed, ...] = ()
    actions: tuple[Action, ...] = ()


class ScalePlan(Frozen):
    """The result of an evaluation: what to do now, and why nothing else is done."""

    creates: tuple[Create, ...] = ()
    drains: tuple[Drain, ...] = ()
    groups: tuple[GroupStatus, ...] = ()
    outlooks: tuple[Outlook, ...] = ()
    #: The memory after this plan, with the rates and cooldowns of what it does.
    memory: Memory = Memory()
    #: When to evaluate again if nothing happens before; None: never.
    next_at: datetime | None = None
