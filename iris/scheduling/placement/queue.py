"""Holds the waiting requests in the order in which they are served:

1. bands, the highest first;
2. the users of a band: the user with the least use first, then the one with the least recent use;
   if teams have quotas, the use of the team counts before that of the user;
3. the requests of a user, the oldest first.

*Use* is the weight of the placements that a user holds in that band and the higher ones. So batch
work never counts against a user's interactive jobs, and a user with a thousand jobs shares equally
with a user with one. *Recent use* decides between users with the same use, for example none
(`iris.scheduling.placement.recent_use`). A user who has waited for `Rules.owed_after` and was given
nothing in that time is *overdue*: then the user's placements do not count as use.

Requests that differ only in their keys and times share one line, which is ordered by time. A pass
looks only at the heads of lines. If a head does not fit, the pass skips the rest of its line, and
every other line of its shape. A line is stored as plain numbers and keys, and a request object is
made only on demand. So a hundred thousand requests are passed from run to run in little space and
time.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Any

from iris.model.job.requests import (
    EPOCH,
    MICROSECOND,
    Claim,
    Names,
    Request,
    Shape,
    job_of_key,
    shorten_key,
    whole_key,
)
from iris.model.job.spec import Band
from iris.scheduling.placement.lines import (
    Kind,
    Lines,
    Order,
    Precedence,
    oldest_of_each,
    order_of,
    precedence_of,
)
from iris.scheduling.placement.service_order import TeamTurns, Turns


class Queue:
    """The waiting requests. Requests that differ only in key and time form one line, ordered by
    time. A key occurs at most once.
    """

    def __init__(self, requests: Iterable[Request] = ()) -> None:
        self._kinds: dict[tuple[Shape, str, Band, Names, Claim], Kind] = {}
        self._found: dict[str, tuple[Kind, int]] = {}
        self._lines: dict[Band, dict[str, Lines]] = {band: {} for band in Band}
        self._counts: dict[Shape, int] = {}
        self._line_count = 0
        #: The number of requests that were added or removed so far. A cache compares it to notice
        #: that the queue has changed.
        self.changes = 0
        #: Whether a request has ever been added that takes some of a named limit of the cluster
        #: (`Claim.limits`), such as a number of licences.
        self.claims_limits = False
        #: Cached results of `_by_age`, by band and user: the user's requests, the oldest first, and
        #: for each the total weight of the older ones, with the weight of all at the end. An entry
        #: is dropped when a request of the user in the band is added or removed.
        self._ages: dict[tuple[Band, str], tuple[list[Order], list[int]]] = {}
        #: The number of requests of each job, by user; None until a caller needs it.
        self._jobs: dict[str, Counter[str]] | None = None
        for request in requests:
            self.add(request)

    def __len__(self) -> int:
        return len(self._found)

    @property
    def kinds(self) -> int:
        """The number of kinds of requests, including kinds without a waiting request."""
        return len(self._kinds)

    def __iter__(self) -> Iterator[Request]:
        return (kind.request((at, key)) for key, (kind, at) in self._found.items())

    def __contains__(self, key: str) -> bool:
        return key in self._found

    def get(self, key: str) -> Request | None:
        found = self._found.get(key)
        return found[0].request((found[1], key)) if found else None

    def copy(self) -> "Queue":
        """Returns a copy that a trial pass may change."""
        same = Queue()
        same._kinds, same._found, same._counts = (
            dict(self._kinds),
            dict(self._found),
            dict(self._counts),
        )
        same._line_count, same.claims_limits = self._line_count, self.claims_limits
        same._lines = {
            band: {
                user: {kind: list(line) for kind, line in lines.items()}
                for user, lines in users.items()
            }
            for band, users in self._lines.items()
        }
        return same

    def keys(self) -> list[str]:
        return list(self._found)

    @property
    def lines(self) -> int:
        """The number of lines."""
        return self._line_count

    def lines_of(self, user: str) -> int:
        """Returns the number of the user's lines."""
        return sum(len(users.get(user, ())) for users in self._lines.values())

    def has_line(self, request: Request) -> bool:
        """Returns whether a request waits that differs from this one only in its key and time."""
        kind = self._kinds.get(_alike(request))
        return kind is not None and kind in self._lines[request.band].get(request.user, {})

    def add(self, request: Request) -> None:
        """Adds the request, unless its key is in the queue already."""
        if request.key in self._found:
            return
        self.changes += 1
        kind = self._kind(request)
        order = order_of(request)
        self._found[request.key] = (kind, order[0])
        self._counts[kind.shape] = self._counts.get(kind.shape, 0) + 1
        self._ages.pop((request.band, request.user), None)
        self._count_job(request.user, request.key, 1)
        line = self._lines[request.band].setdefault(request.user, {}).setdefault(kind, [])
        self._line_count += not line
        if line and line[-1] > order:
            insort(line, order)
        else:
            line.append(order)

    def remove(self, key: str) -> Request | None:
        """Removes the request and returns it; None when it is not in the queue."""
        found = self._found.pop(key, None)
        if found is None:
            return None
        self.changes += 1
        kind, at = found
        self._counts[kind.shape] -= 1
        if not self._counts[kind.shape]:
            del self._counts[kind.shape]
        self._ages.pop((kind.template.band, kind.template.user), None)
        self._count_job(kind.template.user, key, -1)
        users = self._lines[kind.template.band]
        lines = users[kind.template.user]
        line = lines[kind]
        del line[bisect_left(line, (at, key))]
        if not line:
            del lines[kind]
            self._line_count -= 1
        if not lines:
            del users[kind.template.user]
        return kind.request((at, key))

    def jobs_of(self, user: str) -> Collection[str]:
        """Returns the jobs of the user that have a request here."""
        if self._jobs is None:
            self._jobs = {}
            for key, (kind, _) in self._found.items():
                self._count_job(kind.template.user, key, 1)
        return self._jobs.get(user, {}).keys()

    def _count_job(self, user: str, key: str, count: int) -> None:
        if self._jobs is not None:
            jobs, job = self._jobs.setdefault(user, Counter()), job_of_key(key)
            jobs[job] += count
            if not jobs[job]:
                del jobs[job]

    def any_in(self, band: Band) -> bool:
        """Returns true if a request waits in this band."""
        return bool(self._lines[band])

    @property
    def is_contested(self) -> bool:
        """Whether several users wait in one band, so that their use decides whose turn is next."""
        return any(len(users) > 1 for users in self._lines.values())

    def shapes(self, band: Band) -> dict[Shape, datetime]:
        """Returns the shapes that wait in this band, each with the time of its oldest request."""
        return oldest_of_each(self._lines[band])

    def counts(self, band: Band) -> dict[Shape, int]:
        """Returns the number of requests of each shape in this band."""
        found: dict[Shape, int] = {}
        for lines in self._lines[band].values():
            for kind, line in lines.items():
                found[kind.shape] = found.get(kind.shape, 0) + len(line)
        return found

    def users(self, band: Band) -> dict[str, datetime]:
        """Returns the users who wait in this band, each with the time of the oldest request."""
        return {
            user: EPOCH + min(line[0][0] for line in lines.values()) * MICROSECOND
            for user, lines in self._lines[band].items()
        }

    def firsts(self, of: Container[Shape] | None = None) -> dict[Shape, Request]:
        """Returns the first request of each shape: the oldest one in the highest band that has any.

        Args:
            of: the shapes to return; None for all.
        """
        found: dict[Shape, Request] = {}
        for users in self._lines.values():
            heads: dict[Shape, tuple[Order, Kind]] = {}
            for kind, line in (entry for lines in users.values() for entry in lines.items()):
                if (of is None or kind.shape in of) and (
                    kind.shape not in heads or line[0] < heads[kind.shape][0]
                ):
                    heads[kind.shape] = (line[0], kind)
            found |= {
                shape: kind.request(order)
                for shape, (order, kind) in heads.items()
                if shape not in found
            }
        return found

    def of_shape(self, shape: Shape, most: int) -> list[Request]:
        """Returns at most `most` requests of this shape, line by line."""
        lines = (
            entry
            for users in self._lines.values()
            for lines in users.values()
            for entry in lines.items()
        )
        found: list[Request] = []
        for kind, line in lines:
            if kind.shape == shape:
                found += [kind.request(order) for order in line[: most - len(found)]]
        return found

    def keys_of_lines(self) -> Iterator[tuple[Request, list[str]]]:
        """Returns the first request of each line and the keys of the whole line."""
        return (
            (kind.request(line[0]), [key for _, key in line])
            for users in self._lines.values()
            for lines in users.values()
            for kind, line in lines.items()
        )

    def demand(self) -> dict[Shape, int]:
        """Returns the number of waiting requests by shape, in no particular order."""
        return dict(self._counts)

    def turns(
        self,
        band: Band,
        held: Mapping[str, int],
        recent: Mapping[str, int] | None = None,
        teams: TeamTurns | None = None,
        having: Callable[[Request], bool] | None = None,
    ) -> Turns:
        """Returns an iterator over the requests of a band in the order of service.

        Args:
            held: the weight of each user's placements.
            recent: the recent use of each user.
            teams: the use of teams; None if only users count.
            having: whether a line has turns, by one of its requests; None if all lines have turns.
        """
        users = self._lines[band]
        if having is not None:
            some = {
                user: {kind: line for kind, line in lines.items() if having(kind.template)}
                for user, lines in users.items()
            }
            users = {user: lines for user, lines in some.items() if lines}
        return Turns(users, held, recent or {}, teams)

    def heads(self, band: Band) -> Iterator[tuple[Request, int]]:
        """Returns the first request of each line of a band and the length of the line, the line
        with the oldest request first.
        """
        lines = [
            (line[0], number, kind, len(line))
            for number, (kind, line) in enumerate(
                entry for lines in self._lines[band].values() for entry in lines.items()
            )
        ]
        return ((kind.request(order), count) for order, _, kind, count in sorted(lines))

    def oldest(self, offset: int, limit: int) -> list[Request]:
        """Returns at most `limit` requests of all bands and users from `offset` on, the oldest
        first.
        """
        orders = sorted((at, key) for key, (_, at) in self._found.items())
        return [
            self._found[key][0].request((at, key)) for at, key in orders[offset : offset + limit]
        ]

    def sums(self, band: Band) -> dict[str, tuple[int, int]]:
        """Returns the number and the weight of each user's requests in this band."""
        by_age = {user: self._by_age(band, user) for user in self._lines[band]}
        return {user: (len(orders), weights[-1]) for user, (orders, weights) in by_age.items()}

    def next_user(self, band: Band, held: Mapping[str, int], recent: Mapping[str, int]) -> str:
        """Returns the user who has the first turn in this band."""

        def precedence(user: str) -> Precedence:
            return precedence_of(
                held.get(user, 0), recent.get(user, 0), self._by_age(band, user)[0][0]
            )

        return min(self._lines[band], key=precedence)

    def ahead(
        self, request: Request, held: Mapping[str, int], recent: Mapping[str, int] | None = None
    ) -> int:
        """Returns how many requests would be served before this one if all of them fitted."""
        recent = recent or {}
        count = 0
        held = dict(held)
        for band, users in self._lines.items():
            if band.rank < request.band.rank:
                for user in users:
                    orders, weights = self._by_age(band, user)
                    count += len(orders)
                    held[user] = held.get(user, 0) + weights[-1]
        order = order_of(request)
        orders, weights = self._by_age(request.band, request.user)
        place = bisect_left(orders, order)
        count += place
        turn = held.get(request.user, 0) + weights[place]
        own = precedence_of(turn, recent.get(request.user, 0), order)
        for user in self._lines[request.band]:
            if user != request.user:
                orders, weights = self._by_age(request.band, user)
                # The use of a user grows with each turn, so the weights are sorted.
                before = bisect_left(weights, turn - held.get(user, 0), hi=len(orders))
                if before < len(orders):
                    count += (
                        precedence_of(
                            held.get(user, 0) + weights[before], recent.get(user, 0), orders[before]
                        )
                        < own
                    )
                count += before
        return count

    def pack(self) -> dict[str, Any]:
        """Returns the queue as JSON values: the kinds, and the line of each kind.

        A line is three lists: microseconds since the entry before, short keys, and runs.
        """
        kinds, packed = [], []
        for users in self._lines.values():
            for lines in users.values():
                for kind, line in lines.items():
                    kinds.append(
                        {"request": kind.template.model_dump(mode="json"), "names": kind.names}
                    )
                    deltas = [
                        line[0][0],
                        *(after[0] - before[0] for before, after in pairwise(line)),
                    ]
                    short = [shorten_key(key, at) for at, key in line]
                    packed.append([deltas, [key for key, _ in short], [run for _, run in short]])
        return {"kinds": kinds, "lines": packed}

    @classmethod
    def unpack(cls, packed: Mapping[str, Any]) -> "Queue":
        waiting = cls()
        for written, (deltas, keys, runs) in zip(packed["kinds"], packed["lines"], strict=True):
            template = Request.model_validate(written["request"])
            names = Names(*written["names"])
            alike = (template.shape, template.user, template.band, names, template.claim)
            kind = waiting._kinds[alike] = Kind(template, names)
            waiting.claims_limits |= bool(template.claim.limits)
            line: list[Order] = []
            at = 0
            for delta, short, run in zip(deltas, keys, runs, strict=True):
                at += delta
                key = whole_key(short, run, at)
                line.append((at, key))
                waiting._found[key] = (kind, at)
            waiting._lines[template.band].setdefault(template.user, {})[kind] = line
            waiting._line_count += 1
            waiting._counts[kind.shape] = waiting._counts.get(kind.shape, 0) + len(line)
        return waiting

    def _by_age(self, band: Band, user: str) -> tuple[list[Order], list[int]]:
        """Returns a user's requests of a band, the oldest first, and their cumulative weights.

        The weight at an index is the sum of the requests before it; the last one is the total.
        """
        found = self._ages.get((band, user))
        if found is None:
            lines = self._lines[band].get(user, {})
            entries = sorted((order, kind.weight) for kind, line in lines.items() for order in line)
            found = (
                [order for order, _ in entries],
                [0, *accumulate(weight for _, weight in entries)],
            )
            self._ages[(band, user)] = found
        return found

    def _kind(self, request: Request) -> Kind:
        alike = _alike(request)
        kind = self._kinds.get(alike)
        if kind is None:
            template = request.model_copy(
                update={"key": "", "task": "", "owner": "", "submitted_at": EPOCH}
            )
            kind = self._kinds[alike] = Kind(template, alike[3])
            self.claims_limits |= bool(template.claim.limits)
        return kind


def _alike(request: Request) -> tuple[Shape, str, Band, Names, Claim]:
    """Returns the fields that all requests of one line share."""
    return (request.shape, request.user, request.band, Names.of(request), request.claim)
