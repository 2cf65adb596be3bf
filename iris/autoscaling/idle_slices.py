"""Selects the idle slices to delete."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from iris.autoscaling.availability import (
    CHURN_KEEPS,
    churn,
    churn_eases,
    clock,
    next_token,
    within_minute,
)
from iris.autoscaling.inventory import SliceInventory
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.slice.scaling import Drain, GroupMemory
from iris.model.units import format_duration


class Shrinking(NamedTuple):
    """The decision which idle slices of a group to delete."""

    #: The idle slices to delete.
    drains: tuple[Drain, ...] = ()
    #: Why idle slices that are not in `drains` are kept; empty if none are, or if no reason is
    #: given.
    kept: str = ""
    #: When `kept` may change; None if only an event changes it.
    until: datetime | None = None


def shrink(
    inventory: SliceInventory,
    claimed: Iterable[str],
    growing: bool,
    remembered: GroupMemory,
    now: datetime,
) -> Shrinking:
    """Selects the slices to delete because they have been idle for long enough, the longest
    idle first.

    Args:
        claimed: the ids of idle slices that a waiting gang needs together with other slices.
        growing: whether the group needs new slices.
    """
    group = inventory.group
    if group is None:
        return Shrinking()
    claimed = set(claimed)
    idle = [each for each in inventory.idle if each.id not in claimed]
    spare = _spare(group, len(inventory.busy) + len(inventory.idle), len(idle))
    if not idle:
        return Shrinking()
    if growing:
        return Shrinking(kept="new slices are needed")
    if spare <= 0:
        return Shrinking(kept=_least(group))
    delay = group.pace.scale_down_delay
    ripe = [each for each in idle if inventory.idle_since[each.id] + delay <= now][:spare]
    until = min(
        (end for each in idle if (end := inventory.idle_since[each.id] + delay) > now), default=None
    )
    if not ripe:
        return Shrinking(kept=f"to be deleted {clock(until)}" if until else "", until=until)
    if (lives := churn(remembered.lives, now)).share >= CHURN_KEEPS:
        died = f"{lives.short} of {lives.of} recent slices were short-lived"
        return Shrinking(kept=died, until=churn_eases(remembered.lives, now))
    most = group.pace.scale_downs_per_minute
    tokens = max(0, most - len(within_minute(remembered.scale_downs, now)))
    if len(ripe) > tokens:
        until = next_token((*remembered.scale_downs, *(now for _ in ripe[:tokens])), most, now)
    drains = tuple(
        Drain(
            slice_id=each.id,
            reason=f"idle for {format_duration(now - inventory.idle_since[each.id])}",
            idle_since=now - delay,
        )
        for each in ripe[:tokens]
    )
    kept = f"scale_downs_per_minute {most}" if len(ripe) > tokens else ""
    return Shrinking(drains, kept, until)


class Return(NamedTuple):
    """The expected deletion of an idle slice, if no work arrives."""

    slice_id: str
    #: When the slice became idle.
    idle_since: datetime
    #: When the slice is due for deletion; None if it is kept.
    due: datetime | None
    #: Why the slice is kept; empty if it is not.
    kept: str = ""


def expected_returns(
    group: ScaleGroup, ready: int, idle: Mapping[str, datetime]
) -> tuple[Return, ...]:
    """Returns when each idle slice of a group is due for deletion if nothing changes, the longest
    idle first. Rates and short-lived slices may delay it further.

    Args:
        ready: the number of the group's slices that accept work.
        idle: the idle ones among them, with the time since which each is idle.
    """
    first = sorted(idle, key=lambda slice_id: (idle[slice_id], slice_id))
    spare = max(0, _spare(group, ready, len(idle)))
    delay = group.pace.scale_down_delay
    return tuple(
        Return(slice_id, idle[slice_id], idle[slice_id] + delay)
        if place < spare
        else Return(slice_id, idle[slice_id], None, _least(group))
        for place, slice_id in enumerate(first)
    )


def _spare(group: ScaleGroup, ready: int, idle: int) -> int:
    """Returns how many of the idle slices the group's limits allow to delete."""
    return min(ready - group.min_slices, idle - group.buffer_slices)


def _least(group: ScaleGroup) -> str:
    """Returns the limit that keeps idle slices."""
    return (
        f"min_slices {group.min_slices}"
        if group.min_slices
        else f"buffer_slices {group.buffer_slices}"
    )
