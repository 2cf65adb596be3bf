"""Tracks quotas that a platform reported as used up: where they count, and when they may have
capacity again.

A quota counts in a zone, in a region or everywhere. In other zones slices are still requested. A
dead slice uses the quota until its machines are deleted. So after machines of the quota's family
are deleted where the quota counts, the quota is no longer assumed to be used up, even before its
timeout ends.
"""

from collections.abc import Iterable
from datetime import datetime

from iris.model.slice.provisioning import ANYWHERE, SliceFault
from iris.model.slice.scale_groups import region_of
from iris.model.slice.scaling import Freed, Memory, UsedUp
from iris.model.slice.status import SliceFacts

#: If a slice ended with one of these faults before it was ready, its machines were never created.
_NEVER_MADE = frozenset(
    {SliceFault.STOCK_OUT, SliceFault.QUOTA, SliceFault.BAD_CONFIG, SliceFault.PLATFORM}
)


def exhausted(memory: Memory, kind: str, zones: Iterable[str], now: datetime) -> dict[str, UsedUp]:
    """Returns the zones in which a quota for this kind of machine is assumed to be used up, each
    with the quota.
    """
    known = [
        each
        for each in memory.used_up
        if each.kind == kind and each.until > now and not _has_capacity_again(memory, each)
    ]
    return {zone: each for zone in zones for each in known if _counts_in(each.scope, zone)}


def used_up(memory: Memory, kind: str, refused: SliceFacts, until: datetime) -> Memory:
    """Returns the memory after a used-up quota has prevented a slice of this kind."""
    quota = UsedUp(
        scope=refused.quota_scope,
        kind=kind,
        until=until,
        reason=refused.reason,
        asked_at=refused.requested_at,
    )
    others = (
        each for each in memory.used_up if (each.scope, each.kind) != (quota.scope, quota.kind)
    )
    return memory.model_copy(update={"used_up": (*others, quota)})


def freed(memory: Memory, kind: str, gone: SliceFacts, now: datetime) -> Memory:
    """Returns the memory after a slice of this kind was deleted. If the slice ever had machines,
    its quota has capacity again.
    """
    if gone.ready_at is None and gone.fault in _NEVER_MADE:
        return memory
    latest = Freed(zone=gone.zone, family=family_of(kind), at=now)
    others = (
        each for each in memory.freed if (each.zone, each.family) != (latest.zone, latest.family)
    )
    return memory.model_copy(update={"freed": (*others, latest)})


def family_of(kind: str) -> str:
    """Returns the family that quotas count: `tpu_vm:v5litepod:preemptible` for
    `tpu_vm:v5litepod-16:preemptible`.
    """
    type_, what, tier = kind.split(":")
    return f"{type_}:{what.partition('-')[0]}:{tier}"


def _has_capacity_again(memory: Memory, quota: UsedUp) -> bool:
    """Returns whether machines of the quota's family were deleted after the request that the quota
    prevented.
    """
    family = family_of(quota.kind)
    return any(
        each.family == family and each.at > quota.asked_at and _counts_in(quota.scope, each.zone)
        for each in memory.freed
    )


def _counts_in(scope: str, zone: str) -> bool:
    return scope in (ANYWHERE, zone, region_of(zone))
