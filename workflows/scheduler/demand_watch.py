"""Decides when the scheduler signals the autoscaler."""

from collections.abc import Mapping

from iris.model.job.requests import Shape
from iris.scheduling.ledger.ledger import Ledger
from iris.workflows.scheduler.scheduler_views import broken_slices, reserve_of


class DemandWatch:
    """Compares the demand, the broken slices, the idle reserve and the pauses with the values at
    the last signal to the autoscaler.
    """

    def __init__(self) -> None:
        self._demand: dict[Shape, int] = {}
        self._broken: set[str] = set()
        self._reserve: set[str] = set()
        self._pauses: tuple[bool, frozenset[str]] = (False, frozenset())
        #: True if the autoscaler has to be signalled.
        self.changed = False

    def signalled(self, demand: Mapping[Shape, int]) -> None:
        """Records the demand at a signal to the autoscaler."""
        self._demand, self.changed = dict(demand), False

    def compare(self, ledger: Ledger, demand: Mapping[Shape, int]) -> None:
        """Sets `changed` if the autoscaler has to be signalled, which is so if:

        - more gangs of a shape wait than at the last signal, or none of a shape waits any more;
        - another slice is broken;
        - a slice is no longer idle, and a group keeps a reserve of idle slices;
        - a pause began or ended. While the whole cluster is paused, only this counts.
        """
        pauses = (ledger.paused is not None, frozenset(ledger.paused_groups))
        if pauses != self._pauses:
            self._pauses = pauses
            self.changed = True
        if ledger.paused is not None:
            return
        broken, reserve = set(broken_slices(ledger)), reserve_of(ledger)
        self.changed |= not (broken <= self._broken and reserve >= self._reserve)
        self._broken, self._reserve = broken, reserve
        self.changed |= self._demand.keys() - demand.keys() != set()
        self.changed |= any(count > self._demand.get(shape, 0) for shape, count in demand.items())
        self._demand = {
            shape: min(count, demand[shape])
            for shape, count in self._demand.items()
            if shape in demand
        }
