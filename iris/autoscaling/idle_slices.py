"""Selects the idle slices to delete."""

from collections.abc import Iterable
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
from iris.model.slice.scaling import Drain, GroupMemory
from iris.model.units import format_duration


class Shrinking(NamedTuple):
    """The decision which idle slices of a group to delete."""

    #: The idle slices to delete.
    drains: tuple[Drain, ...] = ()
    #: Why idle slices that are not in `drains` are kept.
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
    spare = min(
        len(inventory.busy) + len(inventory.idle) - group.min_slices,
        len(idle) - group.buffer_slices,
    )
    if not idle:
        return Shrinking()
    if growing:
        return Shrinking(kept="new slices are needed")
    if spare <= 0:
        least = (
            f"min_slices {group.min_slices}"
            if group.min_slices
            else f"buffer_slices {group.buffer_slices}"
        )
        return Shrinking(kept=least)
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
