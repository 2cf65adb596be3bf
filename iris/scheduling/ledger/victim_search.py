"""Chooses gangs to evict after a pass: for gangs of higher bands, and for gangs whose quotas others
have borrowed from.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from iris.model.job.requests import Placement, Shape
from iris.model.rules import Rules
from iris.scheduling.placement.capacity import Capacity
from iris.scheduling.placement.lines import Line
from iris.scheduling.placement.preemption import Evictions, evictions
from iris.scheduling.placement.queue import Queue
from iris.scheduling.placement.recent_use import Lately
from iris.scheduling.placement.reclaim import reclaims
from iris.scheduling.quotas.use import QuotaUse

#: The least time between two calls of `reclaims`, which chooses gangs to evict so that other gangs
#: get what their quotas entitle them to. A call examines all placements and all lines of the queue,
#: and under load there are many passes in a second.
RECLAIM_EVERY = timedelta(seconds=1)
#: The maximum number of looks (the work to examine one host) for placing, and for searching victims
#: for higher bands. After more, `reclaims`, which searches victims so that gangs get their quotas,
#: runs in the next pass instead of that search. Placing and both searches in one pass would take a
#: second.
MOST_LOOKS = 2_000_000
#: The result that stands for a search that a pass has left out: it has no victims, and says that
#: the search continues in the next pass.
_CONTINUES = Evictions([], None, set(), complete=False)


class VictimSearch:
    """The search for victims (gangs to evict), over several scheduling passes. A search that did
    not examine all waiting requests continues in the next pass.

    Args:
        evicting: the keys of the placements that are being evicted. Victims are added.
    """

    def __init__(self, evicting: dict[str, None]) -> None:
        self._evicting = evicting
        #: The shapes for which `evictions` has found no victims since its last complete search.
        self._fruitless: set[Shape] = set()
        #: The lines of requests (`Line`) for which `reclaims` has found no victims since its last
        #: complete search.
        self._fruitless_lines: set[Line] = set()
        #: The time of the last call of `reclaims`; None before the first call.
        self._reclaimed_at: datetime | None = None
        #: Set by a pass that leaves `reclaims` to the next pass, otherwise None: the state in which
        #: the pass searched victims for higher bands, and the result with an empty list of victims.
        #: The next pass runs only `reclaims`. If the state is unchanged, it reuses the result.
        self._put_off: tuple[tuple[object, ...], Evictions] | None = None

    def run(
        self,
        live: Collection[Placement],
        waiting: Queue,
        now: datetime,
        rules: Rules,
        capacity: Capacity,
        lately: Lately | None,
        quotas: QuotaUse | None,
        began: int,
    ) -> Evictions:
        """Returns the gangs to evict, and records them.

        Args:
            capacity: the capacity at the end of the pass.
            quotas: what `live` holds of the quotas; None if there are none.
            began: the looks of `capacity.effort` at the begin of the pass.
        """
        due = quotas is not None and self._is_due(now)
        state = (capacity.index, waiting, waiting.changes, rules, quotas, quotas and quotas.changes)
        if quotas is not None and due and self._put_off is not None:
            before, left_out = self._put_off
            taken = self._reclaim(live, waiting, now, rules, capacity, quotas)
            # Without a change, the search for higher bands would find the same again.
            return taken.with_others(left_out if state == before else _CONTINUES)
        found = evictions(
            capacity.index,
            live,
            waiting,
            self._evicting,
            now,
            rules,
            capacity,
            self._fruitless,
            lately,
            quotas,
        )
        self._evicting.update(dict.fromkeys(victim.key for victim in found.victims))
        self._fruitless = set() if found.complete else self._fruitless | found.fruitless
        if quotas is None:
            return found
        if not due and self._reclaimed_at is not None:
            later = Evictions([], self._reclaimed_at + RECLAIM_EVERY, set(), complete=True)
            return found.with_others(later)
        if capacity.effort.looks - began > MOST_LOOKS:
            self._put_off = state, found._replace(victims=[])
            return found.with_others(_CONTINUES)
        return found.with_others(self._reclaim(live, waiting, now, rules, capacity, quotas))

    def _is_due(self, now: datetime) -> bool:
        return self._reclaimed_at is None or now >= self._reclaimed_at + RECLAIM_EVERY

    def _reclaim(
        self,
        live: Collection[Placement],
        waiting: Queue,
        now: datetime,
        rules: Rules,
        capacity: Capacity,
        quotas: QuotaUse,
    ) -> Evictions:
        """Returns the gangs to evict for quotas that others have borrowed from, and records
        them.
        """
        self._reclaimed_at, self._put_off = now, None
        taken, fruitless = reclaims(
            live,
            waiting,
            self._evicting.keys(),
            now,
            rules,
            capacity,
            quotas,
            self._fruitless_lines,
        )
        self._evicting.update(dict.fromkeys(victim.key for victim in taken.victims))
        self._fruitless_lines = set() if taken.complete else self._fruitless_lines | fruitless
        return taken
