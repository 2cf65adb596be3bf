"""The lines of the queue: requests that differ only in their keys and times."""

from collections.abc import Mapping
from datetime import datetime

from iris.model.job.requests import EPOCH, MICROSECOND, Claim, Names, Request, Shape
from iris.model.job.spec import Band

#: The place of a request among requests that are otherwise equal: when the job was submitted, in
#: microseconds since `EPOCH`, and the request's key, which decides between equal times.
Order = tuple[int, str]
#: The precedence of a user in a band: the weight of the placements that the user holds, the recent
#: use, and the order of the user's oldest request. The user with the lowest value is served first.
#: If teams count, the same two amounts of the user's team come before these three.
Precedence = tuple[int, int, Order] | tuple[int, int, int, int, Order]


class Kind:
    """The fields that all requests of one line share. Kinds are compared by identity: a `Queue` has
    one kind for each line.
    """

    def __init__(self, template: Request, names: Names) -> None:
        self.template = template
        self.names = names
        self.shape: Shape = template.shape
        self.weight = template.weight
        self._last = ((0, ""), template)

    def request(self, order: Order) -> Request:
        at, key = order
        # Cached, because the same head of the line has its turn in each pass.
        if self._last[0] != order:
            task, owner = self.names.follow(key)
            changes = {
                "key": key,
                "task": task,
                "owner": owner,
                "submitted_at": EPOCH + at * MICROSECOND,
            }
            self._last = (order, self.template.model_copy(update=changes))
        return self._last[1]


#: The shape, user, band and claim of a request. All requests of one line in the queue have these
#: four in common, and therefore wait for the same reason.
Line = tuple[Shape, str, Band, Claim]
Lines = dict[Kind, list[Order]]
#: The next request of a line, as (submission time, key, number of the line, `Kind` of the line's
#: requests, all requests of the line, index of the next one). The number ensures that a comparison
#: of heads never reaches the kinds, which cannot be ordered.
Head = tuple[int, str, int, Kind, list[Order], int]


def line_of(request: Request) -> Line:
    """Returns what the requests of one line have in common."""
    return (request.shape, request.user, request.band, request.claim)


def oldest_of_each(users: Mapping[str, Lines]) -> dict[Shape, datetime]:
    """Returns the shapes in the lines of these users, each with the time of its oldest request."""
    oldest: dict[Shape, int] = {}
    for lines in users.values():
        for kind, line in lines.items():
            at = line[0][0]
            if oldest.get(kind.shape, at) >= at:
                oldest[kind.shape] = at
    return {shape: EPOCH + at * MICROSECOND for shape, at in oldest.items()}


def precedence_of(held: int, recent: int, oldest: Order) -> tuple[int, int, Order]:
    """Returns the sort key of a user in a band: the user with the lowest key has the next turn."""
    return (held, recent, oldest)


def order_of(request: Request) -> Order:
    return ((request.submitted_at - EPOCH) // MICROSECOND, request.key)
