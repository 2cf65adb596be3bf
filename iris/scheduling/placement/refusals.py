"""The reason why a gang waits, as a value: a code, a message, the numbers behind it and a remedy.

`iris.scheduling.reasons.why_waiting` decides which reason holds.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from iris.model.frozen import Frozen
from iris.model.job.demand_limits import REASON, cut

#: The remedy if all hosts that could serve a request have a fault.
REPAIR = "repair them: a host takes tasks again when its agent finds no fault"
#: The remedy if the slices of all hosts that could serve a request are being deleted.
LEAVING = "wait: their slices are being deleted, and others replace them: iris autoscaler status"


class RefusalCode(StrEnum):
    NO_HOSTS = "NO_HOSTS"  # the cluster has no host at all
    NO_DEVICE = "NO_DEVICE"  # no host of the right kind
    TOO_BIG = "TOO_BIG"  # more than any host of the right kind has, even when empty
    CONSTRAINTS = "CONSTRAINTS"  # no host that is large enough meets the constraints
    NO_GROUP = "NO_GROUP"  # no group has as many such hosts as the gang needs
    SCALING = "SCALING"  # no present host could serve it, but a new slice could
    CLOSED = "CLOSED"  # the suitable hosts are cordoned, drained, quarantined or paused
    PAUSED = "PAUSED"  # the cluster is paused
    QUOTA = "QUOTA"  # a quota or a named limit is used up
    HELD = "HELD"  # its user holds it
    EVICTING = "EVICTING"  # lower-priority gangs are being evicted for it
    BUSY = "BUSY"  # the suitable hosts have too little free capacity
    KEPT = "KEPT"  # the free capacity is reserved for gangs ahead of it
    QUEUED = "QUEUED"  # it fits; the next pass decides
    # the scheduler has no space for the request, which the gang sends again later
    LEDGER_FULL = "LEDGER_FULL"
    # so many jobs of its user or team wait that the request is not queued; the gang sends it again
    WAITING_QUOTA = "WAITING_QUOTA"
    UNKNOWN = "UNKNOWN"  # the scheduler has no such request


#: The codes that mean that no host of the cluster could ever serve the request.
INFEASIBLE = frozenset(
    {
        RefusalCode.NO_HOSTS,
        RefusalCode.NO_DEVICE,
        RefusalCode.TOO_BIG,
        RefusalCode.CONSTRAINTS,
        RefusalCode.NO_GROUP,
    }
)
#: The codes of requests that the scheduler does not queue, and that gangs send again later.
TURNED_AWAY = frozenset({RefusalCode.LEDGER_FULL, RefusalCode.WAITING_QUOTA})
#: The codes of requests that wait for their turn.
IN_QUEUE = frozenset({RefusalCode.BUSY, RefusalCode.QUEUED, RefusalCode.KEPT})


def _within_limit(text: str) -> str:
    return cut(text, REASON)


class QuotaStop(Frozen):
    """A resource for which a gang waits, because too little of a quota is left. Amounts are in the
    units of `iris.model.quotas`.
    """

    #: The name of the quota; empty for a named limit of the cluster.
    quota: str
    #: The holder of the quota, such as `team vision`.
    holder: str
    resource: str
    needed: int
    #: The amount that the holder may still take, including amounts that it may borrow.
    left: int
    used: int
    nominal: int
    #: The amounts that the largest users of the quota hold, by user.
    users: dict[str, int] = Field(default_factory=dict)
    #: The amounts that the other quotas of the cohort hold above their nominal amounts, by quota.
    borrowed_by: dict[str, int] = Field(default_factory=dict)


class Refusal(Frozen):
    """The reason why a gang waits. Amounts are for one task, in the units of `Resources.amounts`
    (millicores, bytes, devices).
    """

    code: RefusalCode
    #: The reason as a sentence. It is cut to `REASON` characters, because it contains text from
    #: hosts and users.
    message: Annotated[str, AfterValidator(_within_limit)]
    #: The amounts needed, for each resource that is short.
    needed: dict[str, int] = Field(default_factory=dict)
    #: The amounts that the best host has of the resources in `needed`: free amounts for BUSY, total
    #: amounts for TOO_BIG.
    free: dict[str, int] = Field(default_factory=dict)
    #: The number of hosts that passed all checks before the failed one: hosts of the right kind for
    #: TOO_BIG, large enough hosts for CONSTRAINTS, and so on.
    hosts: int = 0
    #: How many requests are served before this one.
    ahead: int = 0
    #: The tasks of the first requests ahead; empty in an answer about several requests.
    ahead_first: tuple[str, ...] = ()
    #: For CONSTRAINTS: how many hosts each constraint alone excludes, the highest count first.
    excluded: dict[str, int] = Field(default_factory=dict)
    #: How many hosts a gang needs in one group of hosts, such as a slice; 0 if it needs no group.
    group_needs: int = 0
    #: The number of suitable hosts in the group that has the most of them. For the code BUSY, only
    #: free hosts count.
    group_has: int = 0
    #: For QUOTA: the quotas, or named limits, of which too little is left for the gang.
    quotas: tuple[QuotaStop, ...] = ()
    #: What a user can do, or what has to happen, so that the gang gets hosts.
    remedy: Annotated[str, AfterValidator(_within_limit)] = ""
    #: The autoscaler's message about the request: the slice that it has requested, or why it
    #: requests none. Empty if there is no message.
    scaling: str = ""
    #: When the autoscaler requested the first slice that the gang waits for.
    since: datetime | None = None
