"""The values that the autoscaler knows, decides and remembers. `iris.autoscaling.plan` makes its
plans.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import Field

from iris.model.frozen import Frozen
from iris.model.host.resources import Resources
from iris.model.job.requests import Request
from iris.model.slice.status import SliceState

#: The limit on shapes whose outlook the autoscaler sends to the scheduler, which stores them in its
#: ledger.
MOST_OUTLOOKS = 200


class Demand(Frozen):
    """The number of waiting gangs of one shape."""

    count: int
    #: One of these gangs.
    example: Request


class Wanted(Frozen):
    """The gangs that the scheduler could not place, and the slices that are idle."""

    #: The demands, in the order in which the scheduler serves them.
    demands: tuple[Demand, ...] = ()
    #: The slices on which nothing runs, with the time since when.
    idle: dict[str, datetime] = Field(default_factory=dict)
    #: The slices that cannot work any more because one of their hosts is quarantined, with the
    #: reason.
    broken: dict[str, str] = Field(default_factory=dict)
    #: The scale groups that an operator has paused: their hosts accept no new work.
    paused: tuple[str, ...] = ()
    #: Whether the scheduler has received the outlooks of the waiting gangs.
    informed: bool = True
    #: The time of this snapshot, by the server's clock. The waiting gangs may need a slice that
    #: became ready later.
    as_of: datetime


class Create(Frozen):
    """An instruction to request a slice."""

    group: str
    zone: str
    reason: str


class Drain(Frozen):
    """An instruction to delete a slice."""

    slice_id: str
    reason: str
    #: If it is set, the slice is deleted only if the scheduler confirms that it has been idle since
    #: then. Otherwise the slice stays unchanged.
    idle_since: datetime | None = None
    #: When the tasks that still run on the slice are stopped. If it is None, they may run to their
    #: end. It is ignored if `idle_since` is set.
    deadline: datetime | None = None

    def is_over(self, due: datetime | None, patience: timedelta = timedelta(0)) -> bool:
        """Returns whether `due` is at or after the deadline plus `patience`."""
        return self.deadline is not None and due is not None and due >= self.deadline + patience

    def beside(self, other: "Drain | None") -> "Drain":
        """Returns this instruction with the earlier deadline of the two."""
        deadlines = [
            each.deadline
            for each in (self, other)
            if each is not None and each.deadline is not None
        ]
        return self.model_copy(update={"deadline": min(deadlines, default=None)})


class Availability(StrEnum):
    """Whether a group can get new slices: the first of these states that applies."""

    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"  # the platform reported it; the next group serves the demand
    BACKOFF = (
        "BACKOFF"  # slices failed, or every zone is out of stock; the next group serves the demand
    )
    # the platform has not answered the last request yet; the demand waits
    REQUESTING = "REQUESTING"
    COOLDOWN = "COOLDOWN"  # the group has just grown; the demand waits
    AT_MAX = "AT_MAX"  # the group has its maximum; the next group serves the demand
    AVAILABLE = "AVAILABLE"


class GroupStatus(Frozen):
    """The result of an evaluation for one group: its slices, the demand for it, and why it does not
    grow or shrink further.
    """

    group: str
    availability: Availability
    #: The explanation of the availability, with names and numbers.
    why: str
    #: When the availability may change; None if that does not depend on time alone.
    until: datetime | None = None
    #: The number of slices by state.
    counts: dict[SliceState, int] = Field(default_factory=dict)
    #: The number of slices that the waiting gangs need of the group, including requested ones.
    demand: int = 0
    #: The number of slices that the group should have: used, demanded and in reserve, within its
    #: limits.
    target: int = 0


class Outlook(Frozen):
    """What the waiting gangs of one shape can expect."""

    #: One of these gangs.
    example: Request
    #: "slice X of scale group G is on its way", or the reason why no slice is requested.
    message: str
    #: When that slice was requested; None without a slice.
    since: datetime | None = None
    #: Whether any group could ever serve the gangs.
    possible: bool = True


class Action(Frozen):
    """An action of the autoscaler, or an event of a slice. The autoscaler keeps the last
    hundred.
    """

    at: datetime
    group: str
    #: The kind: "scale_up", "scale_down", "failed", "quota_exceeded", "stock_out", "adopted", …
    what: str
    slice_id: str = ""
    reason: str = ""


class StockedOut(Frozen):
    """A zone without capacity for a kind of machine."""

    zone: str
    #: The kind of machine: `SliceType`, then variant, machine type or pool, then tier. Groups that
    #: need the same kind share this record.
    kind: str
    until: datetime
    #: The number of consecutive stock-outs.
    times: int = 1
    #: When the stock-out was last reported. If an earlier request fails later, it belongs to the
    #: same stock-out and does not count again.
    at: datetime
    #: Why no machine of a pool is free. It is empty for machines of a cloud.
    reason: str = ""


class UsedUp(Frozen):
    """A quota that is used up for a kind of machine."""

    #: The zone or region where it applies, or `ANYWHERE`.
    scope: str
    #: The kind of machine, as in `StockedOut`.
    kind: str
    until: datetime
    #: The platform's own text, which names the quota.
    reason: str
    #: When the refused slice was requested. Machines that were deleted later may have freed quota.
    asked_at: datetime


class Freed(Frozen):
    """The last time that machines of a family were found deleted in a zone. Their quota has had
    free capacity since then.
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

    #: How long the group avoids a used-up quota, if the platform did not report where the quota
    #: applies. Otherwise the quota is in `Memory.used_up`.
    quota_until: datetime | None = None
    quota_reason: str = ""
    #: The number of consecutive failures, and when the last one was reported. The failure of a
    #: slice that was requested earlier does not count again.
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
    #: The ends of slices that had been ready, within the churn window, each with whether the slice
    #: was ready for long enough.
    lives: tuple[tuple[datetime, bool], ...] = ()
    #: The sizes of the group's last slices, the newest last.
    sizes: tuple[SizeFound, ...] = ()


class Memory(Frozen):
    """All that the autoscaler remembers between evaluations, besides the slices themselves."""

    groups: dict[str, GroupMemory] = Field(default_factory=dict)
    stocked_out: tuple[StockedOut, ...] = ()
    used_up: tuple[UsedUp, ...] = ()
    freed: tuple[Freed, ...] = ()
    actions: tuple[Action, ...] = ()


class ScalePlan(Frozen):
    """The result of an evaluation: what to do now, and why not more."""

    creates: tuple[Create, ...] = ()
    drains: tuple[Drain, ...] = ()
    groups: tuple[GroupStatus, ...] = ()
    outlooks: tuple[Outlook, ...] = ()
    #: The memory after this plan, including the rates and cooldowns of its actions.
    memory: Memory = Memory()
    #: When to evaluate again if no event occurs before; None for never.
    next_at: datetime | None = None
