"""Answers of the scheduler to questions of clients about the whole queue and the whole fleet."""

from datetime import datetime

from pydantic import Field

from iris.model.frozen import Frozen
from iris.model.host.resources import Resources
from iris.model.job.spec import Band
from iris.scheduling.placement.refusals import Refusal


class QueuePage(Frozen):
    """A client's request for a part of the queue: at most `limit` gangs, beginning at the gang with
    the index `offset`.
    """

    #: Selects only the gangs of this priority band; None selects the gangs of all bands.
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
    #: The index in `QueueView.reasons` of the reason why the gang waits. None if the reason was not
    #: computed, because the waiting gangs have too many different demands on hosts.
    reason: int | None = None


class WaitingUser(Frozen):
    """A user with waiting gangs in a band, and the use that decides on the user's turn."""

    user: str
    band: Band
    #: The number of the user's gangs that wait in the band.
    gangs: int
    #: The resources of the user's placements in this band and in higher bands, as one number
    #: (`iris.model.job.requests.weight`).
    held: int = 0
    #: The recent use by the user, as weight of resources times seconds. Among users with the same
    #: `held`, the user with the least recent use is served first.
    recent: int = 0


class QueueView(Frozen):
    """A page of the queue, in the order in which the gangs would be served if all of them
    fitted.
    """

    gangs: tuple[QueuedGang, ...] = ()
    #: The different reasons why the gangs of this page wait.
    reasons: tuple[Refusal, ...] = ()
    #: The number of gangs on all pages together.
    total: int = 0
    #: The number of waiting gangs in each priority band.
    waiting: dict[Band, int] = Field(default_factory=dict)
    #: The number of gangs on hold.
    held: int = 0
    #: For each priority band, the users with waiting gangs, in the order in which their gangs are
    #: served next. A long list is cut.
    users: tuple[WaitingUser, ...] = ()


class Amounts(Frozen):
    """Amounts of resources, added up over several hosts."""

    devices: int = 0
    cpu_millis: int = 0
    memory_bytes: int = 0


class GroupHoldings(Frozen):
    """The hosts of one scale group with the same accelerator, and what runs on them."""

    #: The name of the scale group; empty for hosts that belong to no scale group.
    group: str
    #: The kind and the variant of the hosts' accelerator, such as `tpu:v5litepod-16`; empty for
    #: hosts without one.
    device: str = ""
    hosts: int = 0
    #: The number of hosts on which an attempt runs.
    busy: int = 0
    #: The number of hosts that accept no new work and on which no attempt runs.
    closed: int = 0
    offers: Amounts = Amounts()
    used: Amounts = Amounts()
    #: The free resources of hosts that accept no new work.
    closed_off: Amounts = Amounts()


class UserHoldings(Frozen):
    """The resources that the running gangs of one user hold."""

    user: str
    #: The number of running gangs.
    gangs: int = 0
    #: The number of accelerators, by kind and variant, such as `tpu:v5litepod-16`.
    devices: dict[str, int] = Field(default_factory=dict)
    cpu_millis: int = 0
    memory_bytes: int = 0


class Holdings(Frozen):
    """The resources of all hosts by scale group, and the resources in use by user."""

    groups: tuple[GroupHoldings, ...] = ()
    #: The users who hold the most resources, the one with the most first. Resources are compared by
    #: `iris.model.job.requests.weight`.
    users: tuple[UserHoldings, ...] = ()
    #: The number of all users who hold resources.
    total_users: int = 0
    #: The slices that scale groups created and that run no attempt: by id, the time at which the
    #: last attempt ended, or at which the slice became ready. A long list is cut.
    idle: dict[str, datetime] = Field(default_factory=dict)
