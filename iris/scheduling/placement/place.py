"""Runs the scheduling pass: decides which waiting requests get which hosts.

1. **Nothing is given twice.** Free resources are derived from the live placements, and each
   placement of this pass is deducted at once.
2. **A gang gets all its hosts or none.**
3. **Every user has a turn, and no request blocks another.** `iris.scheduling.placement.turns` has
   the loop over the turns. A request that does not fit is skipped, together with all others of its
   shape. So a pass costs O(hosts + shapes x candidates + placements), however many requests wait.
4. **No request is overtaken for ever.** A user who got nothing for `Rules.owed_after` is overdue:
   the hosts that the user has already do not delay the next turn. If a gang has waited longer than
   `Rules.patience` and does not fit at its turn, the pass reserves for its shape the hosts that
   lack the least. Until the gang fits, no later turn of its own band or a lower one gets these
   hosts. Higher bands may still take them. If other gangs are being evicted for a gang, the pass
   reserves their hosts at once. Otherwise the resources that the first of them frees would be taken
   before the last one has stopped.

The pass uses no clock and no randomness: the same queue, hosts and time give the same placements.
So it can run in a workflow.
"""

from collections.abc import Collection, Container, Iterable, Mapping
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import NamedTuple
from zlib import crc32

from iris.model.job.requests import Placement, Request, Seat, Shape
from iris.model.job.spec import Band
from iris.model.rules import Contact, Rules
from iris.scheduling.placement.capacity import Capacity
from iris.scheduling.placement.counted import NO_LIMIT, CountedPass
from iris.scheduling.placement.effort import Effort
from iris.scheduling.placement.host_index import HostIndex
from iris.scheduling.placement.occupancy import Occupancy
from iris.scheduling.placement.queue import Queue
from iris.scheduling.placement.recent_use import Lately
from iris.scheduling.placement.service_order import Turns
from iris.scheduling.placement.turns import give_turns
from iris.scheduling.placement.usage import Usage
from iris.scheduling.quotas.gate import QuotaGate
from iris.scheduling.quotas.use import QuotaUse

#: The range of the ports of gang coordinators, as in the original Iris. Linux gives the ports from
#: 32768 to 60999 to outgoing connections, so only the upper part of this range may be in use.
FIRST_PORT, LAST_PORT = 30_000, 39_999
#: The number of ports, from `FIRST_PORT` on, that coordinators use first. The ports after them are
#: for programs (`activities/host/machine/ports.py`).
FIRST_PORTS = 1_000

#: The maximum number of candidate hosts that a pass with a limit examines; a host counts once for
#: every shape that it could serve. That takes less than half a second.
MAX_CHECKS = 500_000
#: The most work of a pass with a limit, without the preparation of the pass. A look is the work to
#: examine one host (`Effort`). This much work takes half a second. The limit also ends a pass over
#: many shapes without candidate hosts, which `MAX_CHECKS` does not count.
MAX_LOOKS = 1_500_000


class Pass(NamedTuple):
    """The result of a scheduling pass: its decisions, and the capacity left at its end."""

    placed: list[Placement]
    capacity: Capacity
    #: Whether the pass stopped at its limit: more requests may fit.
    stopped: bool
    #: The shapes that did not fit.
    refused: set[Shape]
    #: The pools of cohorts, as (cohort, resource), from which no gang may borrow now, because a
    #: gang waits for amounts that its quota has lent.
    closed_pools: frozenset[tuple[str, str]] = frozenset()


def place(
    index: HostIndex,
    live: Iterable[Placement],
    waiting: Queue,
    now: datetime,
    rules: Rules,
    most: int | None = None,
    evicting: Collection[str] = (),
    passed_over: Container[Shape] = (),
    reserved: Mapping[int, Shape] | None = None,
    lately: Lately | None = None,
    effort: Effort | None = None,
    occupied: Occupancy | None = None,
    quotas: QuotaUse | None = None,
) -> Pass:
    """Runs one pass and returns the placements that are possible now, in the order in which they
    were decided.

    Args:
        most: the most placements; None means that the pass has no limit.
        evicting: the keys of the placements that are being evicted and have not stopped yet.
        passed_over: the shapes that did not fit in the earlier passes of this round, which stopped
            at their limit.
        reserved: the hosts that the last of these passes reserved.
        lately: the recent use of each user; None if there is none.
        effort: counts the work; None if the count is not needed.
        occupied: what `live` leaves free, if the caller has it already.
        quotas: what `live` holds of the quotas; None if there are none.
    """
    live, effort = list(live), effort or Effort()
    occupied = occupied or Occupancy(index, live)
    effort.began(index, live, waiting.lines)
    team_of = quotas.table.team_of if quotas is not None else {}
    usage = Usage.for_turns(live, waiting, now - rules.owed_after, lately, team_of)
    capacity = Capacity(index, occupied.free_now(), effort)
    capacity.keep_reserved(reserved or {})
    placing = _Placing(capacity, live, occupied.tasks, usage, now, rules, most)
    counted = CountedPass(
        placing,
        index,
        effort,
        waiting.lines,
        most_looks=NO_LIMIT if most is None else MAX_LOOKS,
        most_candidates=NO_LIMIT if most is None else MAX_CHECKS,
    )
    if evicting:
        placing.look_ahead([placement for placement in live if placement.key in evicting])
    gate = None
    if quotas is not None:
        effort.checked_quotas(waiting.lines)
        gate = QuotaGate(quotas.copy(), placing.reclaims)
        placing.may_reclaim = quotas.table.lends
    complete = give_turns(counted, waiting, capacity, usage, Band, passed_over, gate)
    return Pass(
        placing.placed,
        capacity,
        stopped=not complete,
        refused=placing.refused,
        closed_pools=frozenset(gate.closed) if gate is not None else frozenset(),
    )


class _Placing:
    """Places the requests that fit, and reserves hosts for requests that do not.

    Args:
        tasks: the number of tasks that run.
        most: the most placements; None means that there is no limit.
    """

    def __init__(
        self,
        capacity: Capacity,
        live: list[Placement],
        tasks: int,
        usage: Usage,
        now: datetime,
        rules: Rules,
        most: int | None,
    ) -> None:
        self.placed: list[Placement] = []
        self.refused: set[Shape] = set()
        #: True if quotas can be borrowed. Then requests of all bands, not only of the bands above
        #: BATCH, may reserve the hosts of gangs that are being evicted.
        self.may_reclaim = False
        self._capacity = capacity
        self._usage = usage
        self._now = now
        self._rules = rules
        self._most = most
        self._ports = _Ports(live)
        self._tasks = tasks
        #: The capacity after the placements that are being evicted have stopped; None if there are
        #: none.
        self._after_evictions: Capacity | None = None

    def look_ahead(self, evicting: list[Placement]) -> None:
        """Lets requests that do not fit now reserve the hosts that these placements free."""
        self._after_evictions = self._capacity.without(evicting) if evicting else None

    def at_limit(self) -> bool:
        return self._most is not None and len(self.placed) >= self._most

    def choose(self, request: Request, turns: Turns) -> list[int] | None:
        hosts = self._capacity.find(request)
        if hosts is None:
            self.refused.add(request.shape)
            self._reserve(request, turns)
        else:
            self._place(request, hosts)
        return hosts

    def _place(self, request: Request, hosts: list[int]) -> None:
        if self._after_evictions is not None:
            self._after_evictions.give(hosts, request)
        self._tasks += request.tasks * request.tasks_per_host
        contact = Contact.of(self._rules, self._tasks)
        index = self._capacity.index
        placement = _placement(request, index, hosts, self._ports, self._now, contact)
        self.placed.append(placement)
        self._usage.count_in_lower_bands(placement)

    def _reserve(self, request: Request, turns: Turns) -> None:
        """Reserves the hosts on which the request fits after evictions, or, for a request that has
        waited too long, the hosts that lack the least.
        """
        if self._reserve_freed(request):
            return
        if self._now - turns.oldest(request.shape) > self._rules.patience:
            self._capacity.reserve(request)

    def _reserve_freed(self, request: Request) -> bool:
        """Reserves the hosts on which the request fits after evictions. Returns whether it does."""
        later = self._after_evictions
        if later is None or (request.band is Band.BATCH and not self.may_reclaim):
            return False
        hosts = later.find(request)
        if hosts is not None:
            later.give(hosts, request)
            self._capacity.reserve_hosts(hosts, request.shape)
        return hosts is not None

    def reclaims(self, request: Request) -> bool:
        """Reserves hosts for a request that waits until others give back what they have borrowed.
        Returns whether the request fits on empty hosts.
        """
        self._reserve_freed(request)
        return self._capacity.index.feasible(request)


class _Ports:
    """The ports that coordinators of gangs use, by the address of the host."""

    def __init__(self, live: Iterable[Placement]) -> None:
        self._live = live

    @cached_property
    def _taken(self) -> dict[str, set[int]]:
        taken: dict[str, set[int]] = {}
        for placement in self._live:
            if placement.coordinator:
                address, _, port = placement.coordinator.rpartition(":")
                taken.setdefault(address.strip("[]"), set()).add(int(port))
        return taken

    def take(self, address: str, key: str) -> int:
        """Takes a port that no other gang uses at the address.

        The search begins at a port that depends on the attempt. Another cluster may have a host on
        the same machine and use the port, so the next attempt of the gang should get another one.
        """
        taken = self._taken.setdefault(address, set())
        start = FIRST_PORT + crc32(key.encode()) % FIRST_PORTS
        order = chain(
            range(start, FIRST_PORT + FIRST_PORTS),
            range(FIRST_PORT, start),
            range(FIRST_PORT + FIRST_PORTS, LAST_PORT + 1),
        )
        port = next((port for port in order if port not in taken), FIRST_PORT)
        taken.add(port)
        return port


def _placement(
    request: Request,
    index: HostIndex,
    numbers: list[int],
    ports: _Ports,
    now: datetime,
    contact: Contact,
) -> Placement:
    hosts = [index.hosts[number] for number in numbers]
    each = request.group_size
    coordinator = ""
    if request.tasks * request.tasks_per_host > 1:
        address = hosts[0].address or hosts[0].id
        coordinator = (
            f"{f'[{address}]' if ':' in address else address}:{ports.take(address, request.key)}"
        )
    return Placement(
        key=request.key,
        owner=request.owner,
        task=request.task,
        user=request.user,
        resources=request.resources,
        band=request.band,
        claim=request.claim,
        seats=tuple(
            Seat(
                host_id=host.id,
                slice_id=host.slice_id,
                incarnation=host.incarnation,
                group=place // each,
            )
            for place, host in enumerate(hosts)
        ),
        tasks_per_host=request.tasks_per_host,
        coordinator=coordinator,
        placed_at=now,
        contact=contact,
    )
