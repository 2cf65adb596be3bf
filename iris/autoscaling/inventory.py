"""Sorts a scale group's slices by their use, and selects the slices to delete at once: broken ones,
and those beyond the maximum.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from iris.autoscaling.packing import PlannedSlice
from iris.model.slice.scale_groups import ScaleGroup, SliceType
from iris.model.slice.scaling import Drain, Wanted
from iris.model.slice.status import SliceFacts, SliceState

_S = SliceState
#: The states of coming slices, each with its place in the order: slices with the lowest number are
#: ready first. A READY slice also counts as coming until the scheduler has computed a demand that
#: takes the slice into account.
_COMING = {_S.READY: 0, _S.BOOTSTRAPPING: 1, _S.PROVISIONING: 2, _S.REQUESTED: 3}
#: The states of slices whose machines the platform deletes soon.
_LEAVING = frozenset({_S.FAILED, _S.DELETING})


class SliceInventory:
    """The slices of one scale group: coming, busy, idle, and to be deleted at once (`drains`). A
    slice in `drains` is not among the coming, busy or idle ones.

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
        #: The slices whose machines the platform deletes soon. Gangs wait for the capacity that
        #: becomes free then, instead of going to another group.
        self.leaving = [
            each
            for each in slices
            if group
            and each.state in _LEAVING
            and each.changed_at + group.pace.requesting_timeout > now
        ]
        #: The slices that were requested, but were not ready when the scheduler computed the
        #: demand.
        self.coming: list[SliceFacts] = []
        #: The slices on which tasks run.
        self.busy: list[SliceFacts] = []
        #: The idle slices, the longest idle first.
        self.idle: list[SliceFacts] = []
        #: The slices to delete at once: those with a quarantined host, and those beyond the
        #: maximum.
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
        #: The time from which each idle slice counts as idle. It is not earlier than the time at
        #: which the slice became ready.
        self.idle_since = {each.id: max(wanted.idle[each.id], _ready(each)) for each in self.idle}
        self.idle.sort(key=lambda each: (self.idle_since[each.id], each.id))
        self.coming.sort(key=lambda each: (_COMING[each.state], each.requested_at, each.id))
        self._drain_excess(now)

    @property
    def alive(self) -> int:
        """The number of slices that are usable or will be."""
        return len(self.coming) + len(self.busy) + len(self.idle)

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
