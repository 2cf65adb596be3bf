"""What the live placements leave free on each host.

It is derived from the placements when the hosts change. Until then, it follows each placement that
begins or ends, so that a pass need not add up thousands of placements again.
"""

from collections.abc import Iterable

from iris.model.job.requests import Placement
from iris.scheduling.placement.host_index import HostIndex


class Occupancy:
    """The free resources of each host, by the host's number in the index, and the total number of
    tasks of all placements.

    Args:
        index: the hosts.
        live: the placements that have not ended.
    """

    def __init__(self, index: HostIndex, live: Iterable[Placement]) -> None:
        self.index = index
        self.free: list[list[int]] = [list(host.resources.vector) for host in index.hosts]
        #: The number of tasks of all placements, including placements on hosts that no longer
        #: exist.
        self.tasks = 0
        for placement in live:
            self.add(placement)

    def add(self, placement: Placement) -> None:
        """Deducts what a new placement takes."""
        self._change(placement, -1)

    def remove(self, placement: Placement) -> None:
        """Adds what a placement took that has ended."""
        self._change(placement, 1)

    def free_now(self) -> list[list[int]]:
        """Returns a copy of the free amounts."""
        return [free.copy() for free in self.free]

    def _change(self, placement: Placement, sign: int) -> None:
        self.tasks -= sign * len(placement.seats) * placement.tasks_per_host
        devices, cpu, memory, disk = placement.resources.vector
        for number in seats_of(self.index, placement):
            free = self.free[number]
            free[0] += sign * devices
            free[1] += sign * cpu
            free[2] += sign * memory
            free[3] += sign * disk


def seats_of(index: HostIndex, placement: Placement) -> list[int]:
    """Returns the numbers of the placement's hosts that are still in the same incarnation."""
    numbers = []
    for seat in placement.seats:
        number = index.number.get(seat.host_id)
        if number is not None and index.hosts[number].incarnation == seat.incarnation:
            numbers.append(number)
    return numbers
