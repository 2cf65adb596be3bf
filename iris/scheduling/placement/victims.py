"""Chooses, among gangs that may be evicted, those whose eviction loses the least."""

from collections.abc import Container, Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from iris.model.host.resources import MAX_AMOUNT
from iris.model.job.requests import Placement, Request, Shape
from iris.model.job.spec import Band
from iris.scheduling.placement.capacity import Capacity
from iris.scheduling.placement.host_index import HostIndex, covers
from iris.scheduling.placement.occupancy import seats_of


class Victim(NamedTuple):
    """A gang that could be evicted, with the amounts that decide how much its eviction loses."""

    placement: Placement
    rank: int
    weight: int
    #: When the gang was placed, in seconds since 1970; 0 if that is not known.
    placed: float

    @classmethod
    def of(cls, placement: Placement) -> "Victim":
        started = placement.placed_at.timestamp() if placement.placed_at else 0.0
        return cls(placement, placement.band.rank, placement.weight, started)


class Possible(NamedTuple):
    """The gangs that may be evicted now. The gang whose eviction loses least comes first."""

    victims: list[Victim]
    by_host: dict[int, list[Victim]]
    #: The next time at which one more gang may be evicted, because it has then run long enough;
    #: None if there is no such gang.
    next_at: datetime | None


def possible_victims(
    index: HostIndex, placements: Iterable[Placement], now: datetime, min_run_time: timedelta
) -> Possible:
    """Returns which of these placements may be evicted now.

    Args:
        min_run_time: how long a gang must have run.
    """
    protected_since = now - min_run_time
    ripe: list[Victim] = []
    young: list[datetime] = []
    for placement in placements:
        if (placement.placed_at or now) <= protected_since:
            ripe.append(Victim.of(placement))
        elif placement.placed_at is not None:
            young.append(placement.placed_at)
    ripe.sort(key=_loss)
    by_host: dict[int, list[Victim]] = {}
    for victim in ripe:
        for number in seats_of(index, victim.placement):
            by_host.setdefault(number, []).append(victim)
    return Possible(ripe, by_host, min(young) + min_run_time if young else None)


def victims_for(
    capacity: Capacity, request: Request, by_host: Mapping[int, list[Victim]]
) -> list[Victim]:
    """Returns the cheapest gangs whose eviction makes the request fit; empty if no eviction
    does.
    """
    if not by_host:
        return []
    candidates = capacity.index.candidates(request)
    if request.group_by is None:
        # Hosts without victims need no check: a request that fitted there would have been placed.
        hosts = (number for number in by_host if number in candidates.members)
        options = [
            option
            for number in hosts
            if (option := _on_host(capacity, number, request.shape, by_host)) is not None
        ]
        return min(options, key=cost_of, default=[])
    each = request.group_size
    groups = []
    for name, members in candidates.groups.items():
        if any(number in by_host for number in members):
            freed = [
                option
                for number in members
                if (option := _on_host(capacity, number, request.shape, by_host)) is not None
            ]
            if len(freed) >= each:
                groups.append((name, _together(sorted(freed, key=cost_of)[:each])))
        elif len(capacity.fitting(members, request.shape)) >= each:
            groups.append((name, []))
    if len(groups) < request.groups:
        return []
    groups.sort(key=lambda group: (cost_of(group[1]), group[0]))
    del groups[request.groups :]
    victims = _together([victims for _, victims in groups])
    if any(len(victim.placement.seats) > 1 for victim in victims):
        # A gang on several hosts frees other hosts too, so some victims may not be needed.
        for victim in sorted(victims, key=lambda each: cost_of([each]), reverse=True):
            others = {each.placement.key for each in victims if each is not victim}
            if all(
                _freed(capacity, candidates.groups[name], request.shape, by_host, others) >= each
                for name, _ in groups
            ):
                victims.remove(victim)
    return victims


def _freed(
    capacity: Capacity,
    numbers: Iterable[int],
    shape: Shape,
    by_host: Mapping[int, list[Victim]],
    gone: Container[str],
) -> int:
    """Returns on how many of the hosts a task fits once the gangs with these keys are gone."""
    count = 0
    for number in numbers:
        held = [
            victim.placement.resources.vector
            for victim in by_host.get(number, ())
            if victim.placement.key in gone
        ]
        count += covers(
            [sum(amounts) for amounts in zip(capacity.free[number], *held, strict=True)],
            shape.amounts,
        )
    return count


def _on_host(
    capacity: Capacity, number: int, shape: Shape, by_host: Mapping[int, list[Victim]]
) -> list[Victim] | None:
    """Returns the fewest gangs of this host whose eviction makes a task fit, the cheapest first.

    Returns None when the task does not fit even after all of them are evicted.
    """
    wanted = shape.amounts
    # `covers`, inlined: a search makes ten thousands of these checks.
    least = [amount or -MAX_AMOUNT for amount in wanted]
    devices, cpu, memory, disk = capacity.free[number]
    chosen: list[Victim] = []
    for victim in by_host.get(number, ()):
        if devices >= least[0] and cpu >= least[1] and memory >= least[2] and disk >= least[3]:
            break
        chosen.append(victim)
        taken = victim.placement.resources.vector
        devices += taken[0]
        cpu += taken[1]
        memory += taken[2]
        disk += taken[3]
    if not covers((devices, cpu, memory, disk), wanted):
        return None
    if len(chosen) > 1:
        # A larger victim chosen later may make an earlier one unnecessary.
        for victim in list(chosen):
            taken = victim.placement.resources.vector
            without = (devices - taken[0], cpu - taken[1], memory - taken[2], disk - taken[3])
            if covers(without, wanted):
                chosen.remove(victim)
                devices, cpu, memory, disk = without
    return chosen


def _loss(victim: Victim) -> tuple[int, int, float]:
    """Returns `cost_of` of one gang."""
    return (-victim.rank, victim.weight, -victim.placed)


def cost_of(victims: list[Victim]) -> tuple[int, int, float]:
    """Returns what evicting these gangs loses, as a sort key: smaller is better."""
    if len(victims) == 1:
        return _loss(victims[0])
    return (
        -min((victim.rank for victim in victims), default=len(Band)),
        sum(victim.weight for victim in victims),
        -max((victim.placed for victim in victims), default=0.0),
    )


def _together(options: list[list[Victim]]) -> list[Victim]:
    return list({victim.placement.key: victim for option in options for victim in option}.values())
