"""The placements that hold hosts, and the sums over them that a pass does not derive anew."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from iris.model.host.hosts import Host
from iris.model.job.requests import Placement
from iris.model.job.spec import Band
from iris.model.quotas import QuotaRules
from iris.scheduling.ledger.slice_idle import SliceIdle
from iris.scheduling.placement.host_index import HostIndex
from iris.scheduling.placement.occupancy import Occupancy
from iris.scheduling.placement.recent_use import RecentUse, RecentUseState
from iris.scheduling.quotas.table import QuotaTable
from iris.scheduling.quotas.use import QuotaUse


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
        #: The free resources of the hosts in an index; None if they must be computed from the
        #: placements.
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
