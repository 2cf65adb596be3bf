"""The loop over bands and turns. The scheduling pass and the search for victims share it.

Bands are served from the highest to the lowest. Within a band, `iris.scheduling.placement.queue`
decides whose turn is next. At each turn a `HostChooser` decides which hosts the request gets.
"""

from collections.abc import Container, Iterable
from typing import Protocol

from iris.model.job.requests import Request, Shape
from iris.model.job.spec import Band
from iris.scheduling.placement.capacity import Capacity
from iris.scheduling.placement.queue import Queue, Turns
from iris.scheduling.placement.usage import Usage


class HostChooser(Protocol):
    """Chooses the hosts of a request when it is the request's turn."""

    def at_limit(self) -> bool:
        """Returns whether the loop must end before the next turn."""

    def choose(self, request: Request, turns: Turns) -> list[int] | None:
        """Returns the numbers of the hosts that the request gets; None if it gets none.

        Args:
            turns: the turns of the request's band.
        """


def give_turns(
    chooser: HostChooser,
    waiting: Queue,
    capacity: Capacity,
    usage: Usage,
    bands: Iterable[Band],
    passed_over: Container[Shape],
) -> bool:
    """Gives each waiting request its turn, and deducts the hosts that it gets from the capacity.

    A request that gets no hosts is skipped, together with all others of its shape.

    Args:
        passed_over: the shapes that have no turn.

    Returns:
        False if the chooser reached its limit before the last turn.
    """
    for band in bands:
        turns = waiting.turns(band, usage.held[band], usage.recent[band])
        for request in turns:
            if request.shape in passed_over:
                turns.skip()
                continue
            if chooser.at_limit():
                return False
            hosts = chooser.choose(request, turns)
            if hosts is None:
                turns.skip()
            else:
                capacity.give(hosts, request)
                turns.served()
    return True
