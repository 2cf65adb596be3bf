"""What the autoscaler knows, decides and remembers, as values: the plan itself is made in `iris.scaling`."""

from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from iris.gangs import Request
from iris.slices import SliceState


class Demand(BaseModel):
    """How many gangs of one shape wait."""

    model_config = ConfigDict(frozen=True)

    count: int
    #: One of them.
    example: Request


class Wanted(BaseModel):
    """What the scheduler could not place, and which slices have nothing to do."""

    model_config = ConfigDict(frozen=True)

    #: Those served first come first.
    demands: tuple[Demand, ...] = ()
    #: Slices on whose hosts nothing runs, and since when.
    idle: dict[str, datetime] = Field(default_factory=dict)
    #: Slices that cannot do their work any more, and why: one of their hosts is quarantined.
    broken: dict[str, str] = Field(default_factory=dict)
    #: Scale groups whose hosts take nothing new now.
    paused: tuple[str, ...] = ()
    #: Whether the scheduler has been told what they may hope for.
    informed: bool = True
    #: When this was asked, by the server's clock: a slice that became ready later may be what they wait for.
    as_of: datetime


class Create(BaseModel):
    """Ask for a slice of this group in this zone."""

    model_config = ConfigDict(frozen=True)

    group: str
    zone: str
    reason: str


class Drain(BaseModel):
    """Give a slice back."""

    model_config = ConfigDict(frozen=True)

    slice_id: str
    reason: str
    #: Only if it has been idle since then at least, says the scheduler when it is asked; else it is left as it was.
    idle_since: datetime | None = None
    #: What runs on it then is stopped. None: it may run as long as it likes. Without meaning when `idle_since` is given.
    deadline: datetime | None = None

    def is_over(self, due: datetime | None, patience: timedelta = timedelta(0)) -> bool:
        """Whether what was due at this moment is due at the deadline, or so long after it."""
        return self.deadline is not None and due is not None and due >= self.deadline + patience

    def beside(self, other: "Drain | None") -> "Drain":
        """The same, with the deadline of the other if that is sooner."""
        deadlines = [each.deadline for each in (self, other) if each is not None and each.deadline is not None]
        return self.model_copy(update={"deadline": min(deadlines, default=None)})


class Availability(StrEnum):
    """Whether slices can be asked of a group; the first that holds."""

    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"  # the platform said so; demand goes to the next group
    BACKOFF = "BACKOFF"  # slices failed, or every zone is out of stock; demand goes to the next group
    REQUESTING = "REQUESTING"  # the platform has not answered the last request yet; demand waits
    COOLDOWN = "COOLDOWN"  # it has just grown; demand waits
    AT_MAX = "AT_MAX"  # it may not have more; demand goes to the next group
    AVAILABLE = "AVAILABLE"


class Verdict(BaseModel):
    """One group after an evaluation: what it has, what is wanted of it, and why nothing more is done."""

    model_config = ConfigDict(frozen=True)

    group: str
    availability: Availability
    #: In words, with names and numbers.
    why: str
    #: When it may be different; None: that depends on others.
    until: datetime | None = None
    #: Slices by state.
    counts: dict[SliceState, int] = Field(default_factory=dict)
    #: Slices that the waiting gangs want of it, those on their way included.
    demand: int = 0
    #: How many it should have: what is used, wanted and in reserve, within its limits.
    target: int = 0


class Outlook(BaseModel):
    """What a waiting gang may hope for."""

    model_config = ConfigDict(frozen=True)

    #: Of one of them: its shape stands for all that are alike.
    example: Request
    #: "slice X of scale group G is on its way", or why there is none.
    message: str
    #: Since when that is so, if it is a slice that was asked for.
    since: datetime | None = None
    #: Whether some group could ever serve it.
    possible: bool = True


class Action(BaseModel):
    """Something that the autoscaler did, or that befell a slice; the last hundred are kept."""

    model_config = ConfigDict(frozen=True)

    at: datetime
    group: str
    #: "scale_up", "scale_down", "failed", "quota_exceeded", "stock_out", "adopted", …
    what: str
    slice_id: str = ""
    reason: str = ""


class StockedOut(BaseModel):
    """A zone that had none of a kind of machine."""

    model_config = ConfigDict(frozen=True)

    zone: str
    #: `SliceType`, variant or machine type, and tier: groups that want the same share the news.
    kind: str
    until: datetime
    #: Times in a row.
    times: int = 1
    #: When that was last learned: what was asked for before tells the same once more.
    at: datetime


class UsedUp(BaseModel):
    """A quota that had no room for a kind of machine."""

    model_config = ConfigDict(frozen=True)

    #: The zone or region in which it counts, or `ANYWHERE`.
    scope: str
    #: As for `StockedOut`.
    kind: str
    until: datetime
    #: In the platform's words, which name it.
    reason: str
    #: When the slice was asked for that was refused: what was freed since may have made room.
    asked_at: datetime


class Freed(BaseModel):
    """When machines of a family were last seen to be gone from a zone: their quota has more room since."""

    model_config = ConfigDict(frozen=True)

    zone: str
    family: str
    at: datetime


class GroupMemory(BaseModel):
    """What has befallen a group lately."""

    model_config = ConfigDict(frozen=True)

    #: Where a platform does not say where its quota counts; what one says that does is in `Memory.used_up`.
    quota_until: datetime | None = None
    quota_reason: str = ""
    #: In a row, and when the last was learned: slices asked for before that fail with it, not once more.
    failures: int = 0
    failed_at: datetime | None = None
    backoff_until: datetime | None = None
    backoff_reason: str = ""
    #: So many have failed that hardly any is tried any more, until somebody tells the configuration again.
    stopped: bool = False
    cooldown_until: datetime | None = None
    #: When slices of it were last asked for and given back, within the last minute: for the rates.
    scale_ups: tuple[datetime, ...] = ()
    scale_downs: tuple[datetime, ...] = ()
    #: Ends of slices that had been ready, and whether they had lived long enough; within the window.
    lives: tuple[tuple[datetime, bool], ...] = ()


class Memory(BaseModel):
    """Everything that the autoscaler remembers from one evaluation to the next, beside the slices themselves."""

    model_config = ConfigDict(frozen=True)

    groups: dict[str, GroupMemory] = Field(default_factory=dict)
    stocked_out: tuple[StockedOut, ...] = ()
    used_up: tuple[UsedUp, ...] = ()
    freed: tuple[Freed, ...] = ()
    actions: tuple[Action, ...] = ()


class ScalePlan(BaseModel):
    """What to do now, and why the rest is left."""

    model_config = ConfigDict(frozen=True)

    creates: tuple[Create, ...] = ()
    drains: tuple[Drain, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    outlooks: tuple[Outlook, ...] = ()
    #: What to remember: the rates and cooldowns of what is done now are in it.
    memory: Memory = Memory()
    #: When to look again if nothing happens before; None: never.
    next_at: datetime | None = None
