"""The scheduler's book: which hosts there are, who holds what on them, who waits. No clock, no Temporal.

Every entry may come twice, late, or out of order, because messages are delivered at least once. The book is safe against that:

1. *Asking twice is asking once.* A request is known by its key; a key that waits or holds is left as it is.
2. *What was given back stays given back.* The last keys that were forgotten are remembered, so that an ask that was overtaken
   by its own withdrawal does not come to life.
3. *A placement dies with its host's incarnation*, and giving it back later credits nobody: headroom is derived, not counted.
4. *An incarnation that has ended stays ended.* The last ones are remembered, so that a late "this host is ready" does not bring
   back a host that is gone, or push out its successor.
"""

from collections.abc import Hashable, Iterable
from typing import TypeVar

from pydantic import BaseModel, Field

from iris.hosts import Host
from iris.placement import Placement, Refusal, RefusalCode, Request, explain, place

#: How many forgotten keys, and how many ended incarnations, are remembered. A message is late by seconds; a scheduler forgets
#: fewer than a hundred keys a second.
REMEMBERED = 2_000


_Entry = TypeVar("_Entry", bound=Hashable)


class LedgerState(BaseModel):
    """Everything in the book, as it travels from one run of the scheduler to the next."""

    hosts: list[Host] = Field(default_factory=list)
    live: list[Placement] = Field(default_factory=list)
    queue: list[Request] = Field(default_factory=list)
    forgotten: list[str] = Field(default_factory=list)
    #: (host, incarnation) of lives that are over.
    ended: list[tuple[str, str]] = Field(default_factory=list)


class Ledger:
    """The book itself. Entries change it; `settle` runs a pass."""

    def __init__(self, state: LedgerState | None = None) -> None:
        state = state or LedgerState()
        self.hosts: dict[str, Host] = {host.id: host for host in state.hosts}
        self.live: dict[str, Placement] = {placement.key: placement for placement in state.live}
        self.queue: dict[str, Request] = {request.key: request for request in state.queue}
        self._forgotten: dict[str, None] = dict.fromkeys(state.forgotten)
        self._ended: dict[tuple[str, str], None] = dict.fromkeys(state.ended)

    def state(self) -> LedgerState:
        return LedgerState(
            hosts=list(self.hosts.values()),
            live=list(self.live.values()),
            queue=list(self.queue.values()),
            forgotten=list(self._forgotten),
            ended=list(self._ended),
        )

    def ask(self, request: Request) -> None:
        """A task wants a host."""
        if request.key not in self.live and request.key not in self._forgotten:
            self.queue.setdefault(request.key, request)

    def forget(self, key: str) -> None:
        """The request waits no longer, or its host is free of it again."""
        self.queue.pop(key, None)
        self.live.pop(key, None)
        _remember(self._forgotten, key)

    def hosts_up(self, hosts: Iterable[Host]) -> None:
        """Hosts are ready. A new incarnation of a known host ends what was placed on the old one."""
        for host in hosts:
            if (host.id, host.incarnation) in self._ended:
                continue
            before = self.hosts.get(host.id)
            if before is not None and before.incarnation != host.incarnation:
                _remember(self._ended, (before.id, before.incarnation))
            self.hosts[host.id] = host
        self._drop_orphans()

    def host_lost(self, host_id: str, incarnation: str) -> None:
        """A host is gone, unless it has come back meanwhile."""
        _remember(self._ended, (host_id, incarnation))
        host = self.hosts.get(host_id)
        if host is not None and host.incarnation == incarnation:
            del self.hosts[host_id]
            self._drop_orphans()

    def slice_down(self, lives: Iterable[tuple[str, str]]) -> None:
        """A slice is gone with these (host, incarnation)s; a later life of the same machines is another slice's business."""
        for host_id, incarnation in lives:
            self.host_lost(host_id, incarnation)

    def settle(self, most: int | None = None) -> list[Placement]:
        """One pass: whoever fits, but at most so many, is moved from the queue to their hosts. Returns the new placements."""
        if not self.queue or not self.hosts:
            return []
        placed = place(list(self.hosts.values()), self.live.values(), self.queue.values(), most)
        for placement in placed:
            del self.queue[placement.key]
            self.live[placement.key] = placement
        return placed

    def explain(self, key: str) -> Refusal:
        """Why the request with this key has no host."""
        request = self.queue.get(key)
        if request is None:
            text = "it has a host" if key in self.live else "the scheduler does not know of it yet, or no longer"
            return Refusal(code=RefusalCode.UNKNOWN, message=text)
        return explain(list(self.hosts.values()), self.live.values(), self.queue.values(), request)

    def _drop_orphans(self) -> None:
        def stands(placement: Placement) -> bool:
            host = self.hosts.get(placement.host_id)
            return host is not None and host.incarnation == placement.incarnation

        self.live = {key: placement for key, placement in self.live.items() if stands(placement)}


def _remember(book: dict[_Entry, None], entry: _Entry) -> None:
    """Add the entry as the newest; the oldest ones are dropped beyond the limit."""
    book.pop(entry, None)
    book[entry] = None
    while len(book) > REMEMBERED:
        del book[next(iter(book))]
