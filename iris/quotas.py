"""Quotas that a platform has said are used up: where they count, and when they may have room again.

A quota counts in a zone, in a region or everywhere; elsewhere slices are asked for all the same. What is dead counts against it
until it is deleted, which is done in any case. So as soon as machines of its family are gone from where it counts, it is not
believed any more, whatever its time.
"""

from collections.abc import Iterable
from datetime import datetime

from iris.machines import ANYWHERE, SliceFault
from iris.scale_groups import region_of
from iris.scale_plan import Freed, Memory, UsedUp
from iris.slices import SliceFacts

#: Slices that failed like this, and had never been ready, had no machines to give back.
_NEVER_MADE = frozenset({SliceFault.STOCK_OUT, SliceFault.QUOTA, SliceFault.BAD_CONFIG, SliceFault.PLATFORM})


def without_room(memory: Memory, kind: str, zones: Iterable[str], now: datetime) -> dict[str, UsedUp]:
    """Those of the zones in which a quota has no room for this kind of machine now, as far as is known."""
    known = [each for each in memory.used_up if each.kind == kind and each.until > now and not _has_room_again(memory, each)]
    return {zone: each for zone in zones for each in known if _counts_in(each.scope, zone)}


def used_up(memory: Memory, kind: str, refused: SliceFacts, until: datetime) -> Memory:
    """The memory after a quota had no room for a slice of this kind."""
    quota = UsedUp(scope=refused.quota_scope, kind=kind, until=until, reason=refused.reason, asked_at=refused.requested_at)
    others = (each for each in memory.used_up if (each.scope, each.kind) != (quota.scope, quota.kind))
    return memory.model_copy(update={"used_up": (*others, quota)})


def freed(memory: Memory, kind: str, gone: SliceFacts, now: datetime) -> Memory:
    """The memory after a slice of this kind has been deleted: there is more room, if it ever had machines."""
    if gone.ready_at is None and gone.fault in _NEVER_MADE:
        return memory
    latest = Freed(zone=gone.zone, family=family_of(kind), at=now)
    others = (each for each in memory.freed if (each.zone, each.family) != (latest.zone, latest.family))
    return memory.model_copy(update={"freed": (*others, latest)})


def family_of(kind: str) -> str:
    """What quotas are about: `tpu_vm:v5litepod:preemptible` of `tpu_vm:v5litepod-16:preemptible`."""
    type_, what, tier = kind.split(":")
    return f"{type_}:{what.partition('-')[0]}:{tier}"


def _has_room_again(memory: Memory, quota: UsedUp) -> bool:
    """Whether something has gone since the slice was asked for that it had no room for."""
    family = family_of(quota.kind)
    return any(each.family == family and each.at > quota.asked_at and _counts_in(quota.scope, each.zone) for each in memory.freed)


def _counts_in(scope: str, zone: str) -> bool:
    return scope in (ANYWHERE, zone, region_of(zone))
