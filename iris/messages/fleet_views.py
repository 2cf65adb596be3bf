"""Answers of the scheduler to questions of clients about the whole queue and the whole fleet."""

from datetime import datetime

from pydantic import Field

from iris.model.frozen import Frozen
from iris.model.host.resources import Resources
from iris.model.job.spec import Band
from iris.scheduling.placement.refusals import Refusal


class QueuePage(Frozen):
    """The part of the queue that is asked for: at most `limit` gangs from `offset` on."""

    #: Only the gangs of this band; None for all bands.
    band: Band | None = None
    #: Whether to list the gangs on hold, the oldest first, instead of the waiting ones.
    held: bool = False
    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=100, ge=1, le=500)


class QueuedGang(Frozen):
    """A gang that waits or is on hold."""

    #: The id of the task, or of the job if the gang has several tasks.
    task: str
    user: str
    band: Band
    submitted_at: datetime
    #: The resources that the gang needs on each host.
    resources: Resources
    #: The number of hosts that the gang needs.
    hosts: int = 1
    #: The place of the gang's reason in `QueueView.reasons`; None if it was not computed, because
    #: too many shapes wait.
    reason: int | None = None


class WaitingUser(Frozen):
    """A user with waiting gangs in a band, and the use that decides on the user's turn."""

    user: str
    band: Band
    #: The number of the user's gangs that wait in the band.
    gangs: int
    #: The weight of the user's placements in this band and the higher ones.
    held: int = 0
    #: The recent use, as weight times seconds. It decides between users of the same use.
    recent: int = 0


class QueueView(Frozen):
    """A page of the queue, in the order in which the gangs would be served if all of them
    fitted.
    """

    gangs: tuple[QueuedGang, ...] = ()
    #: The different reasons of these gangs.
    reasons: tuple[Refusal, ...] = ()
    #: The number of gangs of which the page is a part.
    total: int = 0
    #: The waiting gangs by band.
    waiting: dict[Band, int] = Field(default_factory=dict)
    #: The number of gangs on hold.
    held: int = 0
    #: For each band, the users with the next turns, in their order. The list may be cut.
    users: tuple[WaitingUser, ...] = ()


class Amounts(Frozen):
    """Sums of resources."""

    devices: int = 0
    cpu_millis: int = 0
    memory_bytes: int = 0


class GroupHoldings(Frozen):
    """The hosts of one scale group with the same accelerator, and what runs on them."""

    #: Empty for hosts that belong to no scale group.
    group: str
    #: The kind and the variant of the accelerator, `tpu:v5litepod-16`; empty for none.
    device: str = ""
    hosts: int = 0
    #: The hosts on which something runs.
    busy: int = 0
    #: The hosts that accept no new work and on which nothing runs.
    closed: int = 0
    offers: Amounts = Amounts()
    used: Amounts = Amounts()
    #: What is free, but on hosts that accept no new work.
    closed_off: Amounts = Amounts()


class UserHoldings(Frozen):
    """What one user holds now."""

    user: str
    #: The number of running gangs.
    gangs: int = 0
    #: The accelerators by kind and variant, `tpu:v5litepod-16`.
    devices: dict[str, int] = Field(default_factory=dict)
    cpu_millis: int = 0
    memory_bytes: int = 0


class Holdings(Frozen):
    """What the hosts offer and what runs on them, by scale group and by user."""

    groups: tuple[GroupHoldings, ...] = ()
    #: The users who hold the most, in the order of the weight of what they hold.
    users: tuple[UserHoldings, ...] = ()
    #: The number of users who hold anything.
    total_users: int = 0
    #: The slices of scale groups on which nothing runs, with the time since which they are idle.
    #: The list may be cut.
    idle: dict[str, datetime] = Field(default_factory=dict)
