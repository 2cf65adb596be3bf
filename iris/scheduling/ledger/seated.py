"""The placements that hold hosts, the sums over them that a pass does not derive anew, and the time
since which each slice is idle.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from iris.model.host.hosts import Host
from iris.model.job.requests import Placement
from iris.model.job.spec import Band
from iris.model.quotas import QuotaRules
from iris.scheduling.placement.host_index import HostIndex
from iris.scheduling.placement.occupancy import Occupancy
from iris.scheduling.placement.recent_use import RecentUse, RecentUseState
from iris.scheduling.quotas.table import QuotaTable
from iris.scheduling.quotas.use import QuotaUse


class SliceIdle:
    """The time since which each slice may be idle: the time at which a task last ran on it, or at
    which a host was last added to it, whichever is later.
    """

    def __init__(self, at: Mapping[str, datetime] | None = None) -> None:
        self.at = dict(at or {})
        #: The slices to which a host was added, or on which a placement released a host, since the
        #: last call of `now_is`. The next call of `now_is` sets their times in `at`.
        self._left: set[str] = set()
        #: For each slice with placements: how many of its hosts the placements hold. A host counts
        #: once for each placement that holds it (`Placement.seats`).
        self._seats: dict[str, int] = {}

    def joined(self, slice_id: str) -> None:
        """Records a slice to which a host was added."""
        self._left.add(slice_id)

    def taken(self, slice_id: str) -> None:
        """Records that a placement has a seat on the slice."""
        self._seats[slice_id] = self._seats.get(slice_id, 0) + 1

    def freed(self, slice_id: str, *, exists: bool) -> None:
        """Records that a placement has one seat less on the slice.

        Args:
            exists: whether the slice still exists.
        """
        left = self._seats.pop(slice_id) - 1
        if left:
            self._seats[slice_id] = left
        if exists:
            self._left.add(slice_id)

    def idle(self, slice_ids: Iterable[str]) -> dict[str, datetime | None]:
        """Returns those of the slices without a placement. The value is the time since which a
        slice is idle; None if that time is not known yet.
        """
        return {each: self.at.get(each) for each in slice_ids if each not in self._seats}

    def now_is(self, now: datetime) -> None:
        """Sets the time of the slices that were recorded since the last call."""
        self.at.update(dict.fromkeys(self._left, now))
        self._left.clear()

    def gone(self, slice_ids: Iterable[str]) -> None:
        """Removes slices that are gone."""
        for slice_id in slice_ids:
            self._left.discard(slice_id)
            self.at.pop(slice_id, None)

    def after(self, slice_id: str, when: datetime | None) -> datetime | None:
        """Returns the time since which the slice may be idle if that is later than `when`; None
        otherwise, or if `when` is None.
        """
        used = self.at.get(slice_id)
        return used if used is not None and when is not None and used > when else None


class Seated:
    """The live placements by key, and sums over them. Every placement that begins or ends changes
    the sums.
    """

    def __init__(
        self,
        live: Iterable[Placement] = (),
        recent_use: RecentUseState | None = None,
        used_at: Mapping[str, datetime] | None = None,
        quotas: QuotaRules | None = None,
    ) -> None:
        self.live: dict[str, Placement] = {}
        self.recent_use = RecentUse(recent_use)
        self.uses = SliceIdle(used_at)
        #: The use of each quota by the placements.
        self.quotas = QuotaUse(QuotaTable(quotas or QuotaRules()))
        #: The cached free resources of the hosts, for one `HostIndex`; None if they must be
        #: computed from the placements.
        self.occupied: Occupancy | None = None
        #: The keys of the placements on each host, by which the placements of a lost host are found
        #: fast.
        self._on: dict[str, set[str]] = {}
        for placement in live:
            self.add(placement)

    def trial(self) -> "Seated":
        """Returns a copy for a trial pass. It does not know what is on each host."""
        same = Seated()
        same.live, same.quotas = dict(self.live), self.quotas.copy()
        same.recent_use = self.recent_use.copy()
        return same

    def on(self, host_id: str) -> Collection[str]:
        """Returns the keys of the placements on the host."""
        return self._on.get(host_id, ())

    def occupancy(self, index: HostIndex) -> Occupancy:
        """Returns what the placements leave free on the hosts of the index."""
        if self.occupied is None or self.occupied.index is not index:
            self.occupied = Occupancy(index, self.live.values())
        return self.occupied

    def add(self, placement: Placement) -> None:
        self.live[placement.key] = placement
        self.quotas.add(placement)
        self.recent_use.begins(placement)
        if self.occupied is not None:
            self.occupied.add(placement)
        for seat in placement.seats:
            self._on.setdefault(seat.host_id, set()).add(placement.key)
            self.uses.taken(seat.slice_id)

    def remove(self, key: str, hosts: Mapping[str, Host]) -> Placement | None:
        """Removes a placement and returns it; None if there is none with this key.

        Args:
            hosts: the hosts that exist, by id.
        """
        placement = self.live.pop(key, None)
        if placement is None:
            return None
        self.quotas.remove(placement)
        self.recent_use.ended(placement)
        if self.occupied is not None:
            self.occupied.remove(placement)
        for seat in placement.seats:
            self._on.get(seat.host_id, set()).discard(key)
            host = hosts.get(seat.host_id)
            exists = host is not None and host.slice_id == seat.slice_id
            self.uses.freed(seat.slice_id, exists=exists)
        return placement

    def move(self, key: str, band: Band) -> None:
        """Moves a placement to another band."""
        before = self.live[key]
        if before.band is band:
            return
        after = self.live[key] = before.model_copy(update={"band": band})
        self.quotas.remove(before)
        self.quotas.add(after)
        self.recent_use.ended(before)
        self.recent_use.begins(after)
        self.recent_use.goes_on(after)

    def set_quotas(self, rules: QuotaRules) -> None:
        """Applies other quotas. Placements that exceed them stay."""
        if rules != self.quotas.table.rules:
            self.quotas = QuotaUse(QuotaTable(rules), self.live.values())
