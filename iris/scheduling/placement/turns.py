"""The loop over bands and turns. The scheduling pass and the search for victims share it.
`allowed_demand` counts the gangs that quotas would let start in it if all hosts were free: the
autoscaler buys slices for no others.

Bands are served from the highest to the lowest. Within a band, `iris.scheduling.placement.queue`
decides whose turn is next. At each turn a `HostChooser` decides which hosts the request gets.
"""

from collections.abc import Container, Iterable
from typing import Protocol

from iris.model.job.requests import Request, Shape
from iris.model.job.spec import Band
from iris.scheduling.placement.capacity import Capacity
from iris.scheduling.placement.queue import Queue
from iris.scheduling.placement.service_order import Turns
from iris.scheduling.placement.usage import Usage
from iris.scheduling.quotas.gate import QuotaGate, Stop
from iris.scheduling.quotas.use import QuotaUse

#: For each shape: the number of waiting gangs that quotas allow to start, and the first of these
#: gangs.
Allowed = dict[Shape, tuple[int, Request]]


class HostChooser(Protocol):
    """Chooses hosts for one request after another, in the order in which they are served."""

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
    gate: QuotaGate | None = None,
) -> bool:
    """Gives each waiting request its turn, and deducts the hosts that it gets from the capacity.

    A request that gets no hosts is skipped, together with all others of its shape.

    Args:
        passed_over: the shapes that have no turn.
        gate: stops requests for reasons that concern only their own line, not all of their shape;
            None if there are no quotas.

    Returns:
        False if the chooser reached its limit before the last turn.
    """
    given: list[Turns] = []
    for band in bands:
        having = gate.may_start if gate is not None and gate.is_single_round else None
        turns = waiting.turns(
            band, usage.held[band], usage.recent[band], usage.of_teams(band), having
        )
        if not _give(chooser, turns, capacity, passed_over, gate):
            return False
        given.append(turns)
    if gate is None or not gate.begin_borrowing():
        return True
    for turns in given:
        turns.take_up()
        if not _give(chooser, turns, capacity, passed_over, gate):
            return False
    return True


def _give(
    chooser: HostChooser,
    turns: Turns,
    capacity: Capacity,
    passed_over: Container[Shape],
    gate: QuotaGate | None,
) -> bool:
    for request in turns:
        if request.shape in passed_over:
            turns.skip()
            continue
        if gate is not None and (stop := gate.stop(request)) is not None:
            if stop is Stop.SET_ASIDE:
                turns.set_aside()
            else:
                turns.skip_line()
            continue
        if chooser.at_limit():
            return False
        hosts = chooser.choose(request, turns)
        if hosts is None:
            turns.skip()
        else:
            capacity.give(hosts, request)
            turns.served()
            if gate is not None:
                gate.take(request)
    return True


class AllowedDemand:
    """Caches how many waiting gangs of each shape the quotas allow to start (`allowed_demand`). The
    numbers are computed once for each state of the queue and the quotas, because a scheduler needs
    them after each pass, and twice for each answer to the autoscaler.
    """

    def __init__(self) -> None:
        self._of: tuple[object, ...] = ()
        self._found: Allowed = {}

    def of(self, waiting: Queue, use: QuotaUse) -> Allowed:
        """Returns the demand, which the caller must not change."""
        state = (waiting, waiting.changes, use, use.changes)
        if state != self._of:
            self._of, self._found = state, allowed_demand(waiting, use)
        return self._found


def allowed_demand(waiting: Queue, use: QuotaUse) -> Allowed:
    """Returns for each shape the number of waiting gangs that could start if all hosts were free,
    and the first of them.

    As in a pass, gangs within their nominal amounts come before those that borrow. Gangs count
    whose nominal amounts are lent out: they get them back.
    """
    use = use.copy()
    found: Allowed = {}
    rest: list[tuple[Request, int]] = []
    lines = [each for band in Band for each in waiting.heads(band)]
    for borrowing in (False, True) if use.table.lends else (False,):
        for first, count in rest if borrowing else lines:
            allowed = min(count, use.room(first, borrowing=borrowing))
            if allowed:
                use.add(first, allowed)
                before = found.get(first.shape)
                found[first.shape] = (
                    (before[0] + allowed, before[1]) if before else (allowed, first)
                )
            if not borrowing and allowed < count:
                rest.append((first, count - allowed))
    return found
