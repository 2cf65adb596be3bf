"""Lists the waiting requests in the order in which they would be served if all of them fitted.

The use of users counts as it is now. So the number of requests before a request in this list is
`Queue.ahead` with the present use. `queue_position` tells how placements that end may change it.
"""

from typing import NamedTuple

from iris.model.job.requests import Request
from iris.model.job.spec import Band
from iris.scheduling.placement.queue import Queue
from iris.scheduling.placement.usage import Usage


class UserTurn(NamedTuple):
    """A user with waiting requests in a band, and the use that decides on the user's turn."""

    user: str
    #: The number of the user's requests that wait in the band.
    waiting: int
    #: The weight of the placements that count as the user's use (`iris.model.job.requests.weight`).
    held: int
    #: The recent use, as weight times seconds. It decides between users whose `held` is equal.
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
