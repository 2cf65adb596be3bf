"""Computes the position of a request: how many requests are served before it, and why another
user's request comes first.

The order is that of the pass (`iris.scheduling.placement.queue`), but with the use that users will
have later. A gang that does not fit now is served in a later pass, after a gang that blocks it has
ended. Then the user of that other gang holds less. So users are compared by what they will hold:

- What must be released before the gang can be placed is deducted from every user.
- What may be released is deducted from other users, but not from the gang's own user.

So a request that is reported as the first is the first, whichever host or slice becomes free for
it, and the number of requests ahead is the largest possible. Gangs that end elsewhere in the
meantime may change the answer.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from iris.model.job.requests import CORE_WEIGHT, DEVICE_WEIGHT, Placement, Request
from iris.model.job.spec import Band
from iris.scheduling.placement.capacity import seats_of
from iris.scheduling.placement.host_index import HostIndex, covers
from iris.scheduling.placement.queue import Queue
from iris.scheduling.placement.usage import Usage, use_by_band

_Weights = dict[str, int]
#: The units of time, in seconds. A time is shown in the largest unit of which it is at least a
#: tenth.
_TIMES = (("hour", 3600), ("minute", 60), ("second", 1))


class QueuePosition(NamedTuple):
    """How many requests are served before a request: at most (`ahead`), and at least (`least`)."""

    ahead: int
    least: int
    #: Why another user comes first; empty when none does.
    why: str = ""


class Releases(NamedTuple):
    """The weight that each user releases before a request fits: in any case (`certain`), and at
    most (`most`).
    """

    certain: Mapping[str, int]
    most: Mapping[str, int]
    #: The users who release everything that they hold in any case.
    all_of: Collection[str] = ()


#: The value for a request that fits now.
NOTHING = Releases({}, {})


class HostHolders:
    """The placements on each host."""

    def __init__(self, index: HostIndex, live: Iterable[Placement]) -> None:
        self._index = index
        self._live = list(live)
        self._on: dict[int, list[Placement]] = {}
        for placement in self._live:
            for number in seats_of(index, placement):
                self._on.setdefault(number, []).append(placement)
        #: For each band and host: the weight that users hold there in that band and the higher
        #: ones.
        self._weights: dict[Band, dict[int, _Weights]] = {}

    def releases(self, request: Request) -> Releases:
        """Returns the weights that must be released, and that may be, before the request fits."""
        most: _Weights = {}
        certain: _Weights | None = None
        weights = self._weights_in(request.band)
        for hosts in self._ways(request):
            for user, weight in (
                weights.get(hosts[0], {}) if len(hosts) == 1 else self._held(hosts, request)
            ).items():
                if weight > most.get(user, 0):
                    most[user] = weight
            if certain is None or certain:
                must = (
                    self._held(hosts, request, blocking=True) if len(hosts) == request.tasks else {}
                )
                certain = (
                    must
                    if certain is None
                    else {user: min(certain[user], must[user]) for user in certain if user in must}
                )
        if not certain:
            return Releases({}, most)
        use = use_by_band(self._live)[request.band]
        return Releases(
            certain, most, {user for user, weight in certain.items() if weight == use[user]}
        )

    def _ways(self, request: Request) -> Iterable[Sequence[int]]:
        """Returns the hosts, or groups of hosts, each of which suffices for the request when it is
        free.
        """
        candidates = self._index.candidates(request)
        if request.group_by is None:
            return ([number] for number in candidates.hosts)
        if request.groups == 1:
            return (
                hosts for hosts in candidates.groups.values() if len(hosts) >= request.group_size
            )
        return [[number for hosts in candidates.groups.values() for number in hosts]]

    def _weights_in(self, band: Band) -> dict[int, _Weights]:
        if band not in self._weights:
            counts = {each for each in Band if each.rank <= band.rank}
            self._weights[band] = {}
            for number, placements in self._on.items():
                held = self._weights[band][number] = {}
                for placement in placements:
                    if placement.band in counts:
                        held[placement.user] = held.get(placement.user, 0) + placement.weight
        return self._weights[band]

    def _held(self, hosts: Iterable[int], request: Request, *, blocking: bool = False) -> _Weights:
        """Returns the weight that each user holds on the hosts, counting each gang once.

        Args:
            blocking: count only the gangs that block the request even if everything else has ended.
        """
        found = {
            placement.key: placement
            for number in hosts
            for placement in self._on.get(number, ())
            if placement.band.rank <= request.band.rank
            and (not blocking or self._blocks(placement, number, request))
        }
        held: _Weights = {}
        for placement in found.values():
            held[placement.user] = held.get(placement.user, 0) + placement.weight
        return held

    def _blocks(self, placement: Placement, number: int, request: Request) -> bool:
        """Returns true if the placement alone keeps a task of the request from fitting on the
        host.
        """
        offers, taken = self._index.hosts[number].resources.vector, placement.resources.vector
        return not covers(
            [has - used for has, used in zip(offers, taken, strict=True)], request.shape.amounts
        )


def position(waiting: Queue, usage: Usage, request: Request, releases: Releases) -> QueuePosition:
    """Returns the position of the request after `releases`."""
    mine = request.user
    late, recent = _after(usage, request, releases, late=True)
    least = waiting.ahead(request, *_after(usage, request, releases, late=False))
    ahead = waiting.ahead(request, late, recent)
    if not ahead or any(waiting.any_in(band) for band in Band if band.rank < request.band.rank):
        return QueuePosition(ahead, least)
    first = waiting.next_user(request.band, late, recent)
    if first == mine:
        return QueuePosition(ahead, least)
    held = late.get(first, 0), late.get(mine, 0)
    used = recent.get(first, 0), recent.get(mine, 0)
    if held[0] != held[1]:
        theirs, own, noun = _alike(held[0], held[1], request)
        why = f"holds the equivalent of {theirs} {noun}, {mine} {own}"
    elif used[0] != used[1]:
        theirs, own, noun = _alike_over_time(
            used[0] / usage.lately.unit, used[1] / usage.lately.unit, request
        )
        why = f"has recently used {theirs} {noun}, {mine} {own} (use counts half after a day)"
    else:
        why = f"has used as much as {mine} and has waited longer"
    when = " when the gangs that block this one have ended" if releases.most.get(first) else ""
    return QueuePosition(ahead, least, f"{first} comes first{when}: {why}")


def first_ahead(
    waiting: Queue, usage: Usage, request: Request, releases: Releases, most: int
) -> tuple[str, ...]:
    """Returns the tasks of the first requests that are served before the request if all fit, at
    most `most`.
    """
    held, recent = _after(usage, request, releases, late=True)
    found: list[str] = []
    for band in sorted(Band, key=lambda band: band.rank):
        turns = waiting.turns(band, held, recent)
        for each in turns:
            if each.key == request.key or len(found) == most:
                return tuple(found)
            found.append(each.task)
            held[each.user] = held.get(each.user, 0) + each.weight
            turns.served()
    return tuple(found)


def _after(
    usage: Usage, request: Request, releases: Releases, *, late: bool
) -> tuple[_Weights, _Weights]:
    """Returns what users hold, and their recent use, after the releases.

    Args:
        late: resolve everything uncertain so that the request's turn is as late as possible; else
            as early as possible.
    """
    held, recent, full = (
        each[request.band] for each in (usage.held, usage.recent, usage.full_recent)
    )

    def releases_most(user: str) -> bool:
        """Returns true if the user is assumed to release all that may be released.

        For a late turn these are the other users; for an early turn it is the request's own user.
        """
        return (user == request.user) is not late

    left = {
        user: max(
            0, weight - (releases.most if releases_most(user) else releases.certain).get(user, 0)
        )
        for user, weight in held.items()
    }
    # For an overdue user, what runs hardly counts. It counts in full after it has ended, which
    # makes that turn later.
    used = {
        user: (
            full if user in (releases.all_of if releases_most(user) else releases.most) else recent
        )[user]
        for user in recent
    }
    return left, used


def _alike(one: int, other: int, request: Request) -> tuple[str, str, str]:
    """Formats two weights in the request's unit: accelerators or cores. Uses cores where the two
    would look equal.
    """
    units = [(DEVICE_WEIGHT, "accelerators"), (CORE_WEIGHT, "cores")]
    unit, noun = (
        units[0]
        if request.resources.device and abs(one - other) >= DEVICE_WEIGHT / 10
        else units[1]
    )
    return _number(one / unit), _number(other / unit), noun


def _alike_over_time(one: float, other: float, request: Request) -> tuple[str, str, str]:
    """Formats two products of weight and seconds in the request's unit."""
    unit, noun = (
        (DEVICE_WEIGHT, "accelerator") if request.resources.device else (CORE_WEIGHT, "core")
    )
    time, seconds = next(
        (each for each in _TIMES if max(one, other) / unit >= each[1] / 10), _TIMES[-1]
    )
    return _number(one / unit / seconds), _number(other / unit / seconds), f"{noun}-{time}s"


def _number(amount: float) -> str:
    return f"{amount:,.1f}".removesuffix(".0")
