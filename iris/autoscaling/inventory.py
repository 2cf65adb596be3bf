"""Sorts a scale group's slices by their use, and selects the slices to delete."""

from collections import Counter
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
from iris.autoscaling.packing import PlannedSlice
from iris.model.slice.scale_groups import ScaleGroup, SliceType
from iris.model.slice.scaling import Drain, GroupMemory, Wanted
from iris.model.slice.status import SliceFacts, SliceState
from iris.model.units import format_duration

_S = SliceState
#: The states of coming slices. Slices of the lowest number are ready first. A READY slice is coming
#: until the scheduler has computed the demand with it.
_COMING = {_S.READY: 0, _S.BOOTSTRAPPING: 1, _S.PROVISIONING: 2, _S.REQUESTED: 3}
_LEAVING = frozenset({_S.FAILED, _S.DELETING})


class Shrinking(NamedTuple):
    """The decision about a group's idle slices."""

    #: The idle slices to delete.
    drains: tuple[Drain, ...] = ()
    #: Why the other idle slices are kept.
    kept: str = ""
    #: When `kept` may change; None if only an event changes it.
    until: datetime | None = None


class SliceInventory:
    """The slices of one group, by their use. Slices in `drains` do not count as coming, busy or
    idle.

    Args:
        group: None if the group is no longer in the configuration.
    """

    def __init__(
        self,
        name: str,
        group: ScaleGroup | None,
        slices: Iterable[SliceFacts],
        wanted: Wanted,
        now: datetime,
    ) -> None:
        self.name = name
        self.group = group
        slices = list(slices)
        self.counts = Counter(each.state for each in slices)
        self.total = len(slices)
        self.requested = [each for each in slices if each.state is _S.REQUESTED]
        #: The slices that the platform deletes soon. Gangs wait for the capacity that this frees,
        #: instead of going to another group.
        self.leaving = [
            each
            for each in slices
            if group
            and each.state in _LEAVING
            and each.changed_at + group.pace.requesting_timeout > now
        ]
        #: The slices that were not ready when the scheduler computed the demand.
        self.coming: list[SliceFacts] = []
        #: The slices on which tasks run.
        self.busy: list[SliceFacts] = []
        #: The idle slices, the longest idle first.
        self.idle: list[SliceFacts] = []
        #: The slices to delete at once: broken slices, and slices beyond the maximum.
        self.drains: list[Drain] = []
        for each in slices:
            if each.state is _S.READY and each.id in wanted.broken:
                if group is not None and group.type is SliceType.MANUAL_VM:
                    continue  # the same machine would be leased again
                self.drains.append(Drain(slice_id=each.id, reason=wanted.broken[each.id]))
            elif each.state in _COMING and (
                each.state is not _S.READY or _ready(each) > wanted.as_of
            ):
                self.coming.append(each)
            elif each.state is _S.READY:
                (self.idle if each.id in wanted.idle else self.busy).append(each)
        #: The time since which each idle slice is idle, at the earliest the time at which it became
        #: ready.
        self.idle_since = {each.id: max(wanted.idle[each.id], _ready(each)) for each in self.idle}
        self.idle.sort(key=lambda each: (self.idle_since[each.id], each.id))
        self.coming.sort(key=lambda each: (_COMING[each.state], each.requested_at, each.id))
        self._drain_excess(now)

    @property
    def alive(self) -> int:
        """The number of slices that are usable or will be."""
        return len(self.coming) + len(self.busy) + len(self.idle)

    def shrink(
        self, claimed: Iterable[str], growing: bool, remembered: GroupMemory, now: datetime
    ) -> Shrinking:
        """Selects the slices to delete because they have been idle for long enough, the longest
        idle first.

        Args:
            claimed: the ids of idle slices that a waiting gang needs together with other slices.
            growing: whether the group needs new slices.
        """
        group = self.group
        if group is None:
            return Shrinking()
        claimed = set(claimed)
        idle = [each for each in self.idle if each.id not in claimed]
        spare = min(
            len(self.busy) + len(self.idle) - group.min_slices, len(idle) - group.buffer_slices
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
        ripe = [each for each in idle if self.idle_since[each.id] + delay <= now][:spare]
        until = min(
            (end for each in idle if (end := self.idle_since[each.id] + delay) > now), default=None
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
                reason=f"idle for {format_duration(now - self.idle_since[each.id])}",
                idle_since=now - delay,
            )
            for each in ripe[:tokens]
        )
        kept = f"scale_downs_per_minute {most}" if len(ripe) > tokens else ""
        return Shrinking(drains, kept, until)

    def could_idle(self, drained: int) -> bool:
        """Returns whether slices would be deleted if they became idle. No event reports that a
        slice became idle, so the autoscaler must look again.

        Args:
            drained: the number of idle slices that are being deleted.
        """
        if self.group is None:
            return False
        there = (
            len(self.busy) + len(self.idle) + sum(each.state is _S.READY for each in self.coming)
        )
        others = there - len(self.idle) + drained
        return others > 0 and there > self.group.min_slices and there > self.group.buffer_slices

    def _drain_excess(self, now: datetime) -> None:
        """Moves slices beyond the maximum to `drains`: idle slices first, then coming slices, then
        busy ones.
        """
        most = self.group.max_slices if self.group else 0
        excess = self.alive - most
        if excess <= 0:
            return
        why = (
            f"max_slices is {most}"
            if self.group
            else f"scale group {self.name} is no longer in the configuration"
        )
        idle, self.idle = self.idle[:excess], self.idle[excess:]
        self.drains += [Drain(slice_id=each.id, reason=why, idle_since=now) for each in idle]
        excess -= len(idle)
        young = sorted(self.coming, key=lambda each: (each.requested_at, each.id), reverse=True)[
            :excess
        ]
        for each in young:
            # A ready slice may have received a task by now.
            ready = {"idle_since": now} if each.state is _S.READY else {}
            self.drains.append(Drain(slice_id=each.id, reason=why, **ready))
            self.coming.remove(each)
        excess -= len(young)
        busy = sorted(self.busy, key=lambda each: (_ready(each), each.id), reverse=True)[:excess]
        self.drains += [Drain(slice_id=each.id, reason=why) for each in busy]
        self.busy = [each for each in self.busy if each not in busy] if busy else self.busy

    def planned(self, slices: Iterable[SliceFacts]) -> list[PlannedSlice]:
        """Returns these slices for the packing of waiting gangs."""
        assert self.group is not None
        idle = set(self.idle_since)
        return [PlannedSlice(self.group, each.zone, each, idle=each.id in idle) for each in slices]


def _ready(facts: SliceFacts) -> datetime:
    return facts.ready_at or facts.changed_at
