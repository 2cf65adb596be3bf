"""The order in which the requests of one band are served (`iris.scheduling.placement.queue`)."""

import heapq
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from iris.model.job.requests import EPOCH, MICROSECOND, Request, Shape
from iris.scheduling.placement.lines import (
    Head,
    Lines,
    Precedence,
    oldest_of_each,
    precedence_of,
)


class TeamTurns(NamedTuple):
    """The use of teams that decides whose turn is next in a band. The team with the least use comes
    first, and within it the user with the least use. A user without a team is a team of one.
    """

    #: The team of each user who belongs to a team.
    of: Mapping[str, str]
    held: dict[str, int]
    recent: Mapping[str, int]

    def use_of(self, user: str, own: tuple[int, int]) -> tuple[int, int]:
        """Returns the use and the recent use of the user's team.

        Args:
            own: those of the user.
        """
        team = self.of.get(user)
        return own if team is None else (self.held.get(team, 0), self.recent.get(team, 0))

    def add(self, user: str, weight: int) -> None:
        """Adds to the use of the user's team."""
        if (team := self.of.get(user)) is not None:
            self.held[team] = self.held.get(team, 0) + weight


class Turns:
    """An iterator over the requests of a band in the order of service. The caller can skip all
    requests of a shape (`skip`), or only one line (`skip_line`): requests of one user that differ
    only in their keys and times. These requests stay skipped.
    """

    def __init__(
        self,
        users: Mapping[str, Lines],
        held: Mapping[str, int],
        recent: Mapping[str, int],
        teams: TeamTurns | None = None,
    ) -> None:
        self._users = users
        self._held = {user: held.get(user, 0) for user in users}
        self._recent = recent
        self._teams = teams and teams._replace(held=dict(teams.held))
        #: The shapes of which a request was served, or some requests were skipped without the rest
        #: of the shape (`skip_line`). For these shapes, another request may be the oldest now, so
        #: `oldest` searches for it again.
        self._served: set[Shape] = set()
        #: The lines that the caller has set aside (`set_aside`): the user and the next request of
        #: each. They have no turn until `take_up` is called.
        self._aside: list[tuple[str, Head]] = []
        self._skipped: set[Shape] = set()
        #: The time of the oldest request of each shape, before any request was served; None until a
        #: caller needs it.
        self._oldest: dict[Shape, datetime] | None = None
        #: For each user: a heap of the heads of the user's lines, the oldest first.
        self._heads: dict[str, list[Head]] = {}
        #: A heap of the users, each with the precedence at the time it was added.
        self._heap: list[tuple[Precedence, str]] = []
        for user, lines in users.items():
            self._heads[user] = [
                (*line[0], number, kind, line, 0)
                for number, (kind, line) in enumerate(lines.items())
            ]
            heapq.heapify(self._heads[user])
            self._queue_up(user)

    def __iter__(self) -> "Turns":
        return self

    def __next__(self) -> Request:
        """Returns the next request. The caller must call `served` or `skip` before the next
        call.
        """
        if not self._advance():
            raise StopIteration
        at, key, _, kind, _, _ = self._head
        return kind.request((at, key))

    def pass_by(self, count: int) -> None:
        """Records that the next `count` requests got hosts, without making objects of them."""
        for _ in range(count):
            if not self._advance():
                return
            self.served()

    def place_of(self, key: str, most: int) -> int | None:
        """Returns how many requests are served before the one with this key, if all fit; None if
        they are more than `most`. No turn may have been given before.
        """
        for place in range(most + 1):
            if not self._advance():
                return None
            if self._head[1] == key:
                return place
            self.served()
        return None

    def first_user(self) -> str:
        """Returns the user who has the next turn."""
        return self._heap[0][1]

    def _advance(self) -> bool:
        """Makes the next request the present one. Returns False if there is none."""
        while self._heap:
            precedence, self._user = heapq.heappop(self._heap)
            if self._teams is not None and precedence < self._precedence(self._user):
                self._queue_up(self._user)  # others of the team had turns in between
                continue
            self._head = heapq.heappop(self._heads[self._user])
            if self._head[3].shape not in self._skipped:
                return True
            self._queue_up(self._user)
        return False

    def served(self) -> None:
        """Records that the last request got hosts."""
        _, _, number, kind, line, place = self._head
        self._served.add(kind.shape)
        if place + 1 < len(line):
            heapq.heappush(
                self._heads[self._user], (*line[place + 1], number, kind, line, place + 1)
            )
        self._held[self._user] += kind.weight
        if self._teams is not None:
            self._teams.add(self._user, kind.weight)
        self._queue_up(self._user)

    def has_served(self, shape: Shape) -> bool:
        """Returns whether a request of this shape was served, or one of its lines was skipped."""
        return bool(self._served) and shape in self._served

    def skip(self) -> None:
        """Skips the last request and all others of its shape, because they do not fit."""
        self._skipped.add(self._head[3].shape)
        self._queue_up(self._user)

    def skip_line(self) -> None:
        """Skips the last request and the rest of its line. Other lines of its shape stay."""
        self._served.add(self._head[3].shape)
        self._queue_up(self._user)

    def set_aside(self) -> None:
        """Skips the last request and the rest of its line until `take_up`."""
        self._aside.append((self._user, self._head))
        self.skip_line()

    def take_up(self) -> None:
        """Begins again with the lines that were set aside. All other turns must be over."""
        for user, head in self._aside:
            heapq.heappush(self._heads[user], head)
        for user in dict.fromkeys(user for user, _ in self._aside):
            self._queue_up(user)
        self._aside = []

    def oldest(self, shape: Shape) -> datetime:
        """Returns the time of the oldest request of this shape that has not been served. The shape
        must not be skipped.
        """
        if not self.has_served(shape):
            if self._oldest is None:
                self._oldest = oldest_of_each(self._users)
            return self._oldest[shape]
        heads = (
            head
            for heads in (*self._heads.values(), [self._head])
            for head in heads
            if head[3].shape == shape
        )
        return EPOCH + min(at for at, *_ in heads) * MICROSECOND

    def _queue_up(self, user: str) -> None:
        heads = self._heads[user]
        while heads and heads[0][3].shape in self._skipped:
            heapq.heappop(heads)
        if heads and self._teams is None:  # without the call: each pass does this for every line
            own = precedence_of(self._held[user], self._recent.get(user, 0), heads[0][:2])
            heapq.heappush(self._heap, (own, user))
        elif heads:
            heapq.heappush(self._heap, (self._precedence(user), user))

    def _precedence(self, user: str) -> Precedence:
        own = precedence_of(self._held[user], self._recent.get(user, 0), self._heads[user][0][:2])
        if self._teams is None:
            return own
        return (*self._teams.use_of(user, own[:2]), *own)
