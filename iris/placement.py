"""The scheduling pass: who waits, who offers, and so who goes where.

1. **Nothing is given twice.** What is free is derived from live placements, and what this pass gives away is deducted at once.
2. **A gang gets all its hosts or none.**
3. **Everybody has a turn, and nobody blocks.** The order is that of `iris.waiting`; what does not fit is skipped, and with it
   everything of its shape. That makes a pass cost O(hosts + shapes x candidates + placements), however many wait.
4. **Nobody is overtaken for ever.** Who has waited for `Rules.owed_after` and was given nothing is owed a turn. When the turn
   of a gang comes that has waited longer than `Rules.patience`, and it does not fit, the hosts that are closest to having room
   for it are kept for its shape: until it fits, no later turn of its own band or a weaker one is served from them. Stronger
   bands may still take them. The same is done at once for a gang for which others are being evicted: what the first of them
   frees would be gone when the last one has stopped.

No clock, no randomness: the same queue, hosts and time give the same placements, which is what lets this run inside a workflow.
"""

from collections.abc import Container, Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from iris.fleet import Fleet
from iris.gangs import Placement, Request, Seat, Shape
from iris.jobs import Band
from iris.rooms import Rooms
from iris.units import MAX_DURATION
from iris.waiting import Waiting, owed_a_turn, use_by_band

#: Where gangs meet: above the ports that systems hand out to outgoing connections (32768-60999 on Linux) would leave too few, so
#: the range that the original's users know, and of which Linux hands out only the upper part.
FIRST_PORT, LAST_PORT = 30_000, 39_999

#: Hosts looked at by one bounded pass, each once for every shape that it could serve: less than half a second's work.
MOST_LOOKS = 500_000


class Rules(BaseModel):
    """What operators decide of the scheduler's behaviour."""

    model_config = ConfigDict(frozen=True)

    #: How long a gang that would fit an empty host may be overtaken by smaller ones before hosts are kept for it.
    patience: timedelta = Field(default=timedelta(minutes=10), ge=timedelta(0), le=MAX_DURATION)
    #: After how long without being given anything a user's next turn comes whatever he holds.
    owed_after: timedelta = Field(default=timedelta(hours=1), ge=timedelta(0), le=MAX_DURATION)
    #: Whether stronger bands evict weaker ones.
    preemption: bool = True
    #: A gang that has run for less is not evicted: a victim must get something done between two evictions.
    min_run_time: timedelta = Field(default=timedelta(minutes=2), ge=timedelta(0), le=MAX_DURATION)


class Pass(NamedTuple):
    """What a pass decided, and what was left at its end."""

    placed: list[Placement]
    rooms: Rooms
    #: It stopped at its limit: there may be more to place.
    stopped: bool
    #: The shapes that it found no room for.
    refused: set[Shape]


def place(
    fleet: Fleet,
    live: Iterable[Placement],
    waiting: Waiting,
    now: datetime,
    rules: Rules,
    most: int | None = None,
    evicting: Container[str] = (),
    passed_over: Container[Shape] = (),
    kept: Mapping[int, Shape] | None = None,
) -> Pass:
    """One pass: the placements that are possible now, at most so many, in the order in which they were decided.

    Args:
        evicting: the keys of those that have been told to make room and have not stopped yet.
        passed_over: the shapes that an earlier pass, which had to stop, found no room for; and the hosts that it kept.
    """
    live = list(live)
    rooms = Rooms(fleet, live)
    rooms.kept.update(kept or {})
    looks, looked_at = 0, set[Shape]()
    refused: set[Shape] = set()
    going = [placement for placement in live if placement.key in evicting]
    soon = rooms.without(going) if going else None
    ports = _Ports(live)
    placed: list[Placement] = []
    for band, use in use_by_band(live, owed_a_turn(live, waiting, now - rules.owed_after)).items():
        oldest = waiting.shapes(band)
        # What this pass has given to users in stronger bands counts here too.
        for placement in placed:
            use[placement.user] = use.get(placement.user, 0) + placement.weight
        turns, served = waiting.turns(band, use), set[Shape]()
        for request in turns:
            if most is not None and (len(placed) >= most or looks > MOST_LOOKS):
                return Pass(placed, rooms, stopped=True, refused=refused)
            if request.shape in passed_over:
                turns.skip()
                continue
            if request.shape not in looked_at:
                looked_at.add(request.shape)
                looks += len(fleet.candidates(request).hosts)
            numbers = rooms.find(request)
            if numbers is None:
                refused.add(request.shape)
                # Those who had waited longest may have been served just now.
                since = turns.oldest(request.shape) if request.shape in served else oldest[request.shape]
                turns.skip()
                if soon is not None and band is not Band.BATCH and (ahead := soon.find(request)) is not None:
                    soon.give(ahead, request)
                    rooms.keep_these(ahead, request.shape)
                elif now - since > rules.patience:
                    rooms.keep(request)
                continue
            turns.served()
            served.add(request.shape)
            rooms.give(numbers, request)
            if soon is not None:
                soon.give(numbers, request)
            placed.append(_placement(request, fleet, numbers, ports, now))
    return Pass(placed, rooms, stopped=False, refused=refused)


class _Ports:
    """The ports that gangs meet on, by the address of the host."""

    def __init__(self, live: Iterable[Placement]) -> None:
        self._taken: dict[str, set[int]] = {}
        for placement in live:
            if placement.coordinator:
                address, _, port = placement.coordinator.rpartition(":")
                self._taken.setdefault(address.strip("[]"), set()).add(int(port))

    def take(self, address: str) -> int:
        """One that no other gang has there."""
        taken = self._taken.setdefault(address, set())
        port = next((port for port in range(FIRST_PORT, LAST_PORT + 1) if port not in taken), FIRST_PORT)
        taken.add(port)
        return port


def _placement(request: Request, fleet: Fleet, numbers: list[int], ports: _Ports, now: datetime) -> Placement:
    hosts = [fleet.hosts[number] for number in numbers]
    each = request.group_size
    coordinator = ""
    if request.tasks > 1:
        address = hosts[0].address or hosts[0].id
        coordinator = f"{f'[{address}]' if ':' in address else address}:{ports.take(address)}"
    return Placement(
        key=request.key,
        owner=request.owner,
        task=request.task,
        user=request.user,
        resources=request.resources,
        band=request.band,
        seats=tuple(
            Seat(host_id=host.id, slice_id=host.slice_id, incarnation=host.incarnation, group=index // each)
            for index, host in enumerate(hosts)
        ),
        coordinator=coordinator,
        placed_at=now,
    )
