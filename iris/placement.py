"""The scheduling pass: who waits, who offers, and so who goes where; and for everyone left waiting, why.

Rules, in order of weight:

1. **Nothing is given twice.** Headroom is derived from live placements, and what this pass gives away is deducted at once.
2. **First come, first served, but nobody blocks.** Order: priority band, then arrival. What does not fit is skipped, and with it
   everything of the same *shape* (its resources, as yet): if one does not fit, neither does its twin.
   That makes a pass cost O(shapes x hosts + placements x log hosts), however many wait.
3. **Where.** Tasks that want devices go to the host they fill best, so that whole hosts stay free for large ones; tasks that want
   none are spread, the least used host first, and go to hosts with devices only where those accept them.

No clock, no randomness: the same queue and hosts give the same placements, which is what lets this run inside a workflow.
"""

import heapq
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from iris.hosts import Host, headroom
from iris.jobs import Band
from iris.resources import Resources, format_amount, format_amounts


class Request(BaseModel):
    """A task that wants a host."""

    model_config = ConfigDict(frozen=True)

    #: Unique for ever: the attempt and the run it belongs to. Saying the same again changes nothing.
    key: str
    #: The workflow to be told.
    owner: str
    #: The task's id, for people.
    task: str
    resources: Resources
    band: Band = Band.INTERACTIVE
    submitted_at: datetime


class Placement(BaseModel):
    """A request that has a host. It holds the resources until it is given back or its host's incarnation ends."""

    model_config = ConfigDict(frozen=True)

    key: str
    owner: str
    task: str
    resources: Resources
    host_id: str
    slice_id: str
    incarnation: str


class RefusalCode(StrEnum):
    NO_HOSTS = "NO_HOSTS"  # the cluster has no host at all
    NO_DEVICE = "NO_DEVICE"  # no host of the right kind
    TOO_BIG = "TOO_BIG"  # more than any host of the right kind has, even when empty
    BUSY = "BUSY"  # hosts that could take it have too little free
    QUEUED = "QUEUED"  # there is room; the next pass decides
    UNKNOWN = "UNKNOWN"  # the scheduler does not know the request (any more)


class Refusal(BaseModel):
    """Why a request waits, with the numbers: amounts are in `Resources.amounts` units (millicores, bytes, devices)."""

    model_config = ConfigDict(frozen=True)

    code: RefusalCode
    message: str
    #: The dimensions that are short: how much is needed …
    needed: dict[str, int] = Field(default_factory=dict)
    #: … and how much the best host has of each: free for BUSY, in all for TOO_BIG.
    free: dict[str, int] = Field(default_factory=dict)
    #: How many hosts of the right kind there are, and how many requests are served before this one.
    hosts: int = 0
    ahead: int = 0


def place(hosts: Sequence[Host], live: Iterable[Placement], queue: Iterable[Request], most: int | None = None) -> list[Placement]:
    """One pass: the placements that are possible now, at most so many, in the order in which they were decided."""
    rooms = _rooms(hosts, live)
    candidates: dict[Resources, list[tuple[_Rank, int]]] = {}
    placed: list[Placement] = []
    for request in sorted(queue, key=order):
        if most is not None and len(placed) >= most:
            break
        wanted = request.resources
        heap = candidates.get(wanted)
        if heap is None:
            heap = [(room.rank(wanted), index) for index, room in enumerate(rooms) if room.takes(wanted)]
            heapq.heapify(heap)
            candidates[wanted] = heap
        index = _best(heap, rooms, wanted)
        if index is None:
            continue
        room = rooms[index]
        room.give(wanted)
        if room.takes(wanted):
            heapq.heappush(heap, (room.rank(wanted), index))
        if room.host.resources.device is not None:
            # Being taken from makes it a better fit for the other shapes that want devices: they are told at once.
            for shape, other in candidates.items():
                if other is not heap and shape.device is not None and room.takes(shape):
                    heapq.heappush(other, (room.rank(shape), index))
        placed.append(
            Placement(
                key=request.key,
                owner=request.owner,
                task=request.task,
                resources=wanted,
                host_id=room.host.id,
                slice_id=room.host.slice_id,
                incarnation=room.host.incarnation,
            )
        )
    return placed


def order(request: Request) -> tuple[int, datetime, str]:
    """Who is served first: band, then arrival, then the key so that equals have an order too."""
    return (request.band.rank, request.submitted_at, request.key)


def explain(hosts: Sequence[Host], live: Iterable[Placement], queue: Iterable[Request], request: Request) -> Refusal:
    """Why this request has no host now. Its numbers describe the host that comes closest."""
    mine = order(request)
    ahead = sum(1 for other in queue if order(other) < mine)
    wanted = request.resources
    needed = wanted.amounts()
    if not hosts:
        return Refusal(code=RefusalCode.NO_HOSTS, message="no host has joined the cluster", needed=needed, ahead=ahead)
    rooms = [room for room in _rooms(hosts, live) if room.host.may_run(wanted)]
    if not rooms:
        return Refusal(code=RefusalCode.NO_DEVICE, message=_no_device(hosts, wanted), needed=needed, ahead=ahead)
    largest = min(rooms, key=lambda room: _shortfall(needed, room.host.resources.amounts()))
    short = _short(needed, largest.host.resources.amounts())
    if short:
        return _refusal(
            RefusalCode.TOO_BIG,
            wanted,
            short,
            largest.host.resources.amounts(),
            rooms,
            ahead,
            "even when empty, the largest of {} has {}",
        )
    fitting = [room for room in rooms if not _short(needed, room.host.resources.amounts())]
    freest = min(fitting, key=lambda room: _shortfall(needed, room.free))
    short = _short(needed, freest.free)
    if short:
        refusal = _refusal(RefusalCode.BUSY, wanted, short, freest.free, fitting, ahead, "the best of {} has {} free")
        return refusal.model_copy(update={"message": f"{refusal.message}; {_ahead(ahead, request)}"})
    return Refusal(
        code=RefusalCode.QUEUED, message=f"there is room; {_ahead(ahead, request)}", needed=needed, hosts=len(rooms), ahead=ahead
    )


_Rank = tuple[int, float, int]


class _Room:
    """What is left of one host during a pass."""

    def __init__(self, host: Host, free: dict[str, int]) -> None:
        self.host = host
        self.free = free

    def takes(self, wanted: Resources) -> bool:
        return self.host.may_run(wanted) and not _short(wanted.amounts(), self.free)

    def give(self, wanted: Resources) -> None:
        for name, amount in wanted.amounts().items():
            self.free[name] -= amount

    def rank(self, wanted: Resources) -> _Rank:
        """Smaller is better."""
        has_device = self.host.resources.device is not None
        if wanted.device is not None:
            return (0, self.free["device"], self.free["cpu"])
        return (int(has_device), -self.free["cpu"] / max(1, self.host.resources.cpu_millis), -self.free["memory"])


def _rooms(hosts: Iterable[Host], live: Iterable[Placement]) -> list[_Room]:
    held: dict[tuple[str, str], list[Resources]] = {}
    for placement in live:
        held.setdefault((placement.host_id, placement.incarnation), []).append(placement.resources)
    return [_Room(host, headroom(host, held.get((host.id, host.incarnation), ()))) for host in hosts]


def _best(heap: list[tuple[_Rank, int]], rooms: list[_Room], wanted: Resources) -> int | None:
    """The best host of a shape's heap. Other shapes may have taken from it since it was ranked.

    For tasks without devices that made it worse, so it is ranked anew when it comes up; for the others it was ranked anew then.
    """
    while heap:
        rank, index = heapq.heappop(heap)
        room = rooms[index]
        if not room.takes(wanted):
            continue
        now = room.rank(wanted)
        if now == rank:
            return index
        if wanted.device is None:
            heapq.heappush(heap, (now, index))
    return None


def _short(needed: dict[str, int], available: dict[str, int]) -> list[str]:
    # A host that came back smaller than what runs on it has less than nothing; who needs nothing of that can still go there.
    return [name for name, amount in needed.items() if amount > max(0, available[name])]


def _shortfall(needed: dict[str, int], available: dict[str, int]) -> tuple[int, float]:
    """How far a host is from taking the task: dimensions short, then the sum of the missing shares."""
    short = _short(needed, available)
    return (len(short), sum((needed[name] - available[name]) / needed[name] for name in short))


def _refusal(
    code: RefusalCode, wanted: Resources, short: list[str], has: dict[str, int], rooms: list[_Room], ahead: int, text: str
) -> Refusal:
    needed = {name: wanted.amounts()[name] for name in short}
    free = {name: max(0, has[name]) for name in short}
    available = ", ".join(_available(name, needed[name], amount) for name, amount in free.items())
    kind = f"{len(rooms)} host{'s' if len(rooms) > 1 else ''} of its kind"
    message = f"needs {format_amounts(needed, wanted.device)}; {text.format(kind, available)}"
    return Refusal(code=code, message=message, needed=needed, free=free, hosts=len(rooms), ahead=ahead)


def _available(name: str, needed: int, there: int) -> str:
    """What there is; where that would read like what is needed, what is missing."""
    shown = format_amount(name, there)
    noun = "devices" if name == "device" and there != 1 else name
    return (
        f"{shown} {noun}" if shown != format_amount(name, needed) else f"{format_amount(name, needed - there)} too little {name}"
    )


def _no_device(hosts: Sequence[Host], wanted: Resources) -> str:
    kinds: dict[str, int] = {}
    for host in hosts:
        device = host.resources.device
        kind = f"{device.kind}:{device.variant}" if device else "no devices"
        kinds[kind] = kinds.get(kind, 0) + 1
    there_are = ", ".join(f"{kind} on {count}" for kind, count in sorted(kinds.items()))
    if wanted.device is None:
        return f"needs a host for tasks without devices; all hosts keep theirs for tasks that use them ({there_are})"
    return f"needs {wanted.device.kind}:{wanted.device.variant}; no host has it ({there_are})"


def _ahead(ahead: int, request: Request) -> str:
    if ahead == 0:
        return f"it is the first in band {request.band}"
    return f"{ahead} task{'s' if ahead > 1 else ''} ahead of it"
