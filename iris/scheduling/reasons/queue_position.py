"""Computes the position of a request: how many requests are served before it, and why another
user's request comes first. Lists the requests in the order of the pass, too.

The order is the order of the pass (`iris.scheduling.placement.queue`), but with the use that users
will have later. A gang that does not fit now is served in a later pass, after a gang that blocks it
has ended. Then the user of the ended gang has less use. So users are compared by their later use:

- Placements that must end before the gang fits are deducted from the use of every user.
- Placements that may end before the gang fits are deducted from the use of other users, but not of
  the gang's own user.

So a request that is reported as the first is the first, whichever host or slice becomes free for
it, and the number of requests ahead is the largest possible. Gangs that end on other hosts in the
meantime may change the answer.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from iris.model.job.requests import CORE_WEIGHT, DEVICE_WEIGHT, Placement, Request
from iris.model.job.spec import Band
from iris.scheduling.placement.host_index import HostIndex, covers
from iris.scheduling.placement.occupancy import seats_of
from iris.scheduling.placement.queue import Queue
from iris.scheduling.placement.usage import Usage, use_by_band

#: The limit on requests ahead of a waiting request that the reason of its wait names.
MOST_NAMED = 5
#: The maximum number of requests ahead that a queue position counts if users belong to teams (then
#: the team's use decides the order first). These requests are counted one by one, and each takes as
#: long as a turn in a scheduling pass.
MOST_COUNTED = 10_000
_Weights = dict[str, int]
#: The units of time, in seconds. A time is shown in the largest unit that gives at least 0.1.
_TIMES = (("hour", 3600), ("minute", 60), ("second", 1))


class QueuePosition(NamedTuple):
    """The position of a request in the queue."""

    #: The largest number of requests that may be served before this request.
    ahead: int
    #: The smallest number of requests that are served before this request.
    least: int
    #: Why another user of the band comes first; empty if no other user does, or if requests of a
    #: higher band wait.
    why: str = ""


class Releases(NamedTuple):
    """For each user, the sum of the weights (`iris.model.job.requests.weight`) of the placements
    that end before a waiting request fits.
    """

    #: By user, the smallest sum of weights of the placements that must end, over all sets of hosts
    #: on which the request could be placed. So at least this weight ends before the request fits.
    certain: Mapping[str, int]
    #: By user, the largest sum of weights of the placements that may have to end before the request
    #: fits, over the same sets of hosts.
    most: Mapping[str, int]
    #: The users whose placements must all end before the request fits.
    all_of: Collection[str] = ()


#: The releases for a request that fits now: no placement has to end.
NOTHING = Releases({}, {})


class HostHolders:
    """The placements on each host, from which the class computes which of them have to end before a
    request fits.
    """

    def __init__(self, index: HostIndex, live: Iterable[Placement]) -> None:
        self._index = index
        self._live = list(live)
        self._on: dict[int, list[Placement]] = {}
        for placement in self._live:
            for number in seats_of(index, placement):
                self._on.setdefault(number, []).append(placement)
        #: For each band and host: the weight of each user's placements on the host, in this
        #: band and the higher ones.
        self._weights: dict[Band, dict[int, _Weights]] = {}

    def releases(self, request: Request) -> Releases:
        """Returns the weights that must end, and that may end, before the request fits."""
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
        """Yields the sets of hosts that suffice for the request when they are free."""
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
        """Returns the weight of each user's gangs on the hosts. A gang on several hosts counts
        once.

        Args:
            blocking: count only gangs that block the request even after all others have ended.
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
    """Returns the position of the request once the placements in `releases` have ended."""
    if usage.teams is not None:
        return _position_in_teams(waiting, usage, request)
    mine = request.user
    late, recent = _after(usage, request, releases, late=True)
    least = waiting.ahead(request, *_after(usage, request, releases, late=False))
    ahead = waiting.ahead(request, late, recent)
    if not ahead or any(waiting.any_in(band) for band in Band if band.rank < request.band.rank):
        return QueuePosition(ahead, least)
    first = waiting.next_user(request.band, late, recent)
    if first == mine:
        return QueuePosition(ahead, least)
    why = _why(
        usage,
        request,
        (first, mine),
        (late.get(first, 0), late.get(mine, 0)),
        (recent.get(first, 0), recent.get(mine, 0)),
    )
    when = " when the gangs that block this one have ended" if releases.most.get(first) else ""
    return QueuePosition(ahead, least, f"{first} comes first{when}: {why}")


def _position_in_teams(waiting: Queue, usage: Usage, request: Request) -> QueuePosition:
    """Returns the position of the request with the present use of teams and users."""
    band, ahead = request.band, 0
    more: _Weights = {}
    for higher in (each for each in Band if each.rank < band.rank):
        for user, (count, weight) in waiting.sums(higher).items():
            ahead += count
            more[user] = more.get(user, 0) + weight
    teams = usage.of_teams(band, more)
    held = {user: usage.held[band].get(user, 0) + more.get(user, 0) for user in waiting.users(band)}
    turns = waiting.turns(band, held, usage.recent[band], teams)
    first, mine = turns.first_user(), request.user
    place = turns.place_of(request.key, MOST_COUNTED)
    if place is None:
        all_of_band = sum(count for count, _ in waiting.sums(band).values())
        return QueuePosition(ahead + all_of_band - 1, ahead + MOST_COUNTED)
    if ahead or not place or first == mine or teams is None:
        return QueuePosition(ahead + place, ahead + place)
    own = [(held[user], usage.recent[band].get(user, 0)) for user in (first, mine)]
    of_teams = [teams.use_of(user, each) for user, each in zip((first, mine), own, strict=True)]
    differ = of_teams[0] != of_teams[1]
    names = tuple(
        f"team {teams.of[user]}" if differ and user in teams.of else user for user in (first, mine)
    )
    (held_first, used_first), (held_mine, used_mine) = of_teams if differ else own
    why = _why(
        usage, request, (names[0], names[1]), (held_first, held_mine), (used_first, used_mine)
    )
    return QueuePosition(place, place, f"{names[0]} comes first: {why}")


def _why(
    usage: Usage,
    request: Request,
    names: tuple[str, str],
    held: tuple[int, int],
    used: tuple[int, int],
) -> str:
    """Returns why the first of two users or teams comes before the other."""
    if held[0] != held[1]:
        theirs, own, noun = _alike(held[0], held[1], request)
        return f"holds the equivalent of {theirs} {noun}, {names[1]} {own}"
    if used[0] != used[1]:
        unit = usage.lately.unit
        theirs, own, noun = _alike_over_time(used[0] / unit, used[1] / unit, request)
        return f"has recently used {theirs} {noun}, {names[1]} {own} (use counts half after a day)"
    return f"has used as much as {names[1]} and has waited longer"


def first_ahead(
    waiting: Queue, usage: Usage, request: Request, releases: Releases
) -> tuple[str, ...]:
    """Returns the tasks of the first `MOST_NAMED` requests that are served before the request if
    all fit.
    """
    held, recent = _after(usage, request, releases, late=True)
    more: _Weights = {}
    found: list[str] = []
    for band in sorted(Band, key=lambda band: band.rank):
        turns = waiting.turns(band, held, recent, usage.of_teams(request.band, more))
        for each in turns:
            if each.key == request.key or len(found) == MOST_NAMED:
                return tuple(found)
            found.append(each.task)
            held[each.user] = held.get(each.user, 0) + each.weight
            more[each.user] = more.get(each.user, 0) + each.weight
            turns.served()
    return tuple(found)


def _after(
    usage: Usage, request: Request, releases: Releases, *, late: bool
) -> tuple[_Weights, _Weights]:
    """Returns the use and the recent use of each user after the releases.

    Args:
        late: whether to assume the uncertain releases that make the request's turn as late as
            possible, or as early as possible.
    """
    held, recent, full = (
        each[request.band] for each in (usage.held, usage.recent, usage.full_recent)
    )

    def releases_most(user: str) -> bool:
        """Returns true if all placements of the user that may end are assumed to end.

        That is so for the other users if the turn is late, and for the request's own user if it is
        early.
        """
        return (user == request.user) is not late

    left = {
        user: max(
            0, weight - (releases.most if releases_most(user) else releases.certain).get(user, 0)
        )
        for user, weight in held.items()
    }
    # The running placements of an overdue user hardly count. They count in full after their end,
    # which makes that user's turn later.
    used = {
        user: (
            full if user in (releases.all_of if releases_most(user) else releases.most) else recent
        )[user]
        for user in recent
    }
    return left, used


def _alike(one: int, other: int, request: Request) -> tuple[str, str, str]:
    """Formats two weights in the request's unit, accelerators or cores. Uses cores if the two
    numbers of accelerators would look equal.
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


class UserTurn(NamedTuple):
    """A user with waiting requests in a band, and the use that decides on the user's turn."""

    user: str
    #: The number of the user's requests that wait in the band.
    waiting: int
    #: The weight of the placements that count as the user's use (`iris.model.job.requests.weight`).
    held: int
    #: The recent use: the sum over placements, including ended ones, of weight times seconds held.
    #: Older use counts less. It decides between users whose `held` is equal.
    recent: int


def in_order(
    waiting: Queue, usage: Usage, offset: int, limit: int, only: Band | None = None
) -> list[Request]:
    """Returns at most `limit` requests from `offset` on.

    Args:
        only: only the requests of this band, of which the first one has the offset 0.
    """
    found: list[Request] = []
    added: dict[str, int] = {}
    for band in sorted(Band, key=lambda band: band.rank):
        sums = waiting.sums(band)
        if only in (None, band) and len(found) < limit:
            count = sum(number for number, _ in sums.values())
            if offset >= count:
                offset -= count
            else:
                held = _sum(usage.held[band], added)
                teams = usage.of_teams(band, added)
                turns = waiting.turns(band, held, usage.recent[band], teams)
                turns.pass_by(offset)
                offset = 0
                for request in turns:
                    found.append(request)
                    if len(found) == limit:
                        break
                    turns.served()
        added = _sum(added, {user: weight for user, (_, weight) in sums.items()})
    return found


def turns_of_users(waiting: Queue, usage: Usage, band: Band) -> list[UserTurn]:
    """Returns the users who wait in the band, the user with the next turn first."""
    oldest, sums = waiting.users(band), waiting.sums(band)
    held, recent = usage.held[band], usage.recent[band]
    unit = usage.lately.unit
    teams = usage.of_teams(band)

    def precedence(user: str) -> tuple[object, ...]:
        own = (held.get(user, 0), recent.get(user, 0))
        return (*(teams.use_of(user, own) if teams else ()), *own, oldest[user], user)

    return [
        UserTurn(user, sums[user][0], held.get(user, 0), recent.get(user, 0) // unit)
        for user in sorted(oldest, key=precedence)
    ]


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {user: one.get(user, 0) + other.get(user, 0) for user in {**one, **other}}
