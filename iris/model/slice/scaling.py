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

#: The limit on `Outlook` records that the autoscaler sends to the scheduler, one for each shape of
#: waiting gangs. The scheduler stores them in its ledger.
MOST_OUTLOOKS = 200


class Demand(Frozen):
    """The number of waiting gangs of one shape."""

    count: int
    #: The request of one of the waiting gangs.
    example: Request


class Wanted(Frozen):
    """The gangs that the scheduler could not place, and the slices that are idle."""

    #: The demands of the waiting gangs, in the order in which the scheduler serves them.
    demands: tuple[Demand, ...] = ()
    #: The slices on which nothing runs, each with the time at which it became idle.
    idle: dict[str, datetime] = Field(default_factory=dict)
    #: The slices that cannot work any more because one of their hosts is quarantined, each with the
    #: reason.
    broken: dict[str, str] = Field(default_factory=dict)
    #: The scale groups that an operator has paused: their hosts accept no new work.
    paused: tuple[str, ...] = ()
    #: False if the scheduler has no `Outlook` records, for example because it has lost its ledger.
    #: Then the autoscaler sends its latest records again.
    informed: bool = True
    #: The time of this snapshot, by the server's clock. The autoscaler counts a slice that became
    #: ready after this time as not ready yet, so that it does not create a second slice for the
    #: same waiting gangs.
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
    #: If it is set, the slice is deleted only if the scheduler confirms that the slice has been
    #: idle since this time; a slice that has not been idle stays unchanged. If it is None, the
    #: slice is drained and then deleted, whether it is idle or not.
    idle_since: datetime | None = None
    #: When Iris stops the tasks that still run on the slice. If it is None, the tasks may run to
    #: their end. It is ignored if `idle_since` is set.
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
    """Whether a group can get new slices. If several states apply, the first one counts."""

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
    """The result of an evaluation for one group: the group's slices, the demand for them, and why
    the group does not grow or shrink further.
    """

    group: str
    availability: Availability
    #: The explanation of the availability, with names and numbers.
    why: str
    #: When the availability may change; None if the change does not depend on time alone.
    until: datetime | None = None
    #: The number of the group's slices in each state.
    counts: dict[SliceState, int] = Field(default_factory=dict)
    #: The number of slices that the waiting gangs need from the group, including slices that were
    #: already requested.
    demand: int = 0
    #: The number of slices that the group should have: for running work, for the demand and for the
    #: reserve of free slices (`ScaleGroup.buffer_slices`), within the group's limits.
    target: int = 0


class Outlook(Frozen):
    """The slice that the waiting gangs of one shape can expect, or the reason why none is
    requested.
    """

    #: The request of one of the waiting gangs.
    example: Request
    #: "slice X of scale group G is on its way", or the reason why no slice is requested.
    message: str
    #: When the slice that `message` names was requested; None if no slice is requested.
    since: datetime | None = None
    #: False if no scale group could ever serve the gangs.
    possible: bool = True


class Action(Frozen):
    """An action of the autoscaler, or an event of a slice. The autoscaler keeps the last
    hundred.
    """

    at: datetime
    group: str
    #: The kind of the action or event: "scale_up", "scale_down", "failed", "quota_exceeded",
    #: "stock_out", "adopted", …
    what: str
    slice_id: str = ""
    reason: str = ""


class StockedOut(Frozen):
    """A zone without capacity for a kind of machine."""

    zone: str
    #: The kind of machine as a text: the slice type, the accelerator variant, machine type or pool,
    #: and the tier (preemptible or not). Scale groups that need the same kind of machine share this
    #: record.
    kind: str
    until: datetime
    #: The number of consecutive stock-outs of the zone for this kind of machine.
    times: int = 1
    #: When the stock-out was last reported. If a request from before this time fails later, the
    #: failure belongs to the same stock-out and does not count again.
    at: datetime
    #: Why no machine of a pool is free; empty for machines of a cloud.
    reason: str = ""


class UsedUp(Frozen):
    """A quota that is used up for a kind of machine."""

    #: The zone or region to which the quota applies, or `ANYWHERE`.
    scope: str
    #: The kind of machine, as in `StockedOut`.
    kind: str
    until: datetime
    #: The platform's own text, which names the quota.
    reason: str
    #: When Iris requested the slice that the platform refused. If machines of the same family were
    #: deleted after this time, the quota may have free capacity again.
    asked_at: datetime


class Freed(Frozen):
    """The last time at which Iris found that machines of a family were deleted in a zone. The quota
    of the family has had free capacity since then.
    """

    zone: str
    family: str
    at: datetime


class SizeFound(Frozen):
    """The least amount of each resource that a host of a slice offered when the slice became
    ready.
    """

    slice_id: str
    at: datetime
    offers: Resources


class GroupMemory(Frozen):
    """The autoscaler's memory of the recent events of a group."""

    #: The group requests no slices before this time, because a quota is used up. It is set only if
    #: the platform did not report the quota's zone or region; otherwise the quota is in
    #: `Memory.used_up`.
    quota_until: datetime | None = None
    quota_reason: str = ""
    #: The number of consecutive failures to get a slice. If a slice that was requested before
    #: `failed_at` fails, it belongs to a failure that has been counted.
    failures: int = 0
    #: When the last failure to get a slice was reported; None if `failures` is 0.
    failed_at: datetime | None = None
    backoff_until: datetime | None = None
    backoff_reason: str = ""
    #: True if too many slices of the group failed in a row and the agents of the last one never
    #: reported. While it is True, the group requests at most one slice an hour. It becomes False
    #: when a slice becomes ready or fails in another way, or when the configuration is loaded
    #: again.
    stopped: bool = False
    cooldown_until: datetime | None = None
    #: The times of scale-ups within the last minute, for the rate limit.
    scale_ups: tuple[datetime, ...] = ()
    #: The times of scale-downs within the last minute, for the rate limit.
    scale_downs: tuple[datetime, ...] = ()
    #: For each slice of the group that was ready and ended recently (within `CHURN_WINDOW` before
    #: the newest entry): the time of its end, and True if its lifetime was long or False if it was
    #: short (`LONG_LIFETIME`, `SHORT_LIFETIME`). Lifetimes in between are not recorded.
    lives: tuple[tuple[datetime, bool], ...] = ()
    #: One entry for each of the group's slices that became ready last, at most `MOST_SIZES`
    #: (`iris.autoscaling.sizes`): the resources that its hosts offered. The newest slice is last.
    sizes: tuple[SizeFound, ...] = ()


class Memory(Frozen):
    """All data that the autoscaler keeps between evaluations, except the slices."""

    groups: dict[str, GroupMemory] = Field(default_factory=dict)
    stocked_out: tuple[StockedOut, ...] = ()
    used_up: tuple[UsedUp, ...] = ()
    freed: tuple[Freed, ...] = ()
    actions: tuple[Action, ...] = ()


class ScalePlan(Frozen):
    """The result of an evaluation: the slices to create and to delete, and why there are no
    more.
    """

    creates: tuple[Create, ...] = ()
    drains: tuple[Drain, ...] = ()
    groups: tuple[GroupStatus, ...] = ()
    outlooks: tuple[Outlook, ...] = ()
    #: The autoscaler's memory after this plan. The rate limits and cooldowns in it already count
    #: the slices that this plan creates and deletes.
    memory: Memory = Memory()
    #: The time of the next evaluation if no event occurs before; None for never.
    next_at: datetime | None = None

    def has_news(self, sent: tuple[Outlook, ...], wanted: Wanted) -> bool:
        """Returns whether the scheduler must get the outlooks.

        Args:
            sent: the outlooks that it was sent last.
            wanted: its demand, which says whether it has received them.
        """
        return self.outlooks != sent or (bool(self.outlooks) and not wanted.informed)
