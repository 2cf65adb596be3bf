"""The scheduler's book: which hosts there are, who holds what on them, who waits. No clock, no Temporal.

Every entry may come twice, late, or out of order, because messages are delivered at least once. The book is safe against that:

1. *Asking twice is asking once.* A request is known by its key; a key that waits or holds is left as it is.
2. *What was given back stays given back.* The last keys that were forgotten are remembered, so that an ask that was overtaken
   by its own withdrawal does not come to life.
3. *A placement dies with the incarnations of its hosts*, and giving it back later credits nobody: headroom is derived, never
   counted.
4. *The latest wish counts.* A change of a request that was said before one that has arrived is overtaken.
5. *An incarnation that has ended stays ended.* The last ones are remembered, so that a late "this host is ready" does not bring
   back a host that is gone, or push out its successor.
"""

import copy
from collections.abc import Hashable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from iris import compact
from iris.compact import LedgerState
from iris.constraints import SCALE_GROUP
from iris.fleet import Fleet
from iris.forecast import Forecast, forecast
from iris.gangs import Placement, Request, Shape
from iris.hosts import ClosedBy, Closure, Host
from iris.inquiry import Inquiry
from iris.jobs import Band
from iris.placement import place
from iris.potential import Potential
from iris.preemption import Eviction, evictions
from iris.refusals import Refusal, Situation
from iris.uses import Uses
from iris.waiting import Waiting, owed_a_turn

#: How many forgotten keys, changed requests, ended incarnations, and closed hosts that are gone, are remembered. A message is
#: late by seconds; a scheduler forgets fewer than a hundred keys a second.
REMEMBERED = 2_000
#: Attempts in a row that a host spoils, by not taking them or by a fault of its own, before it takes no more.
STRIKES = 3
#: When victims are looked for again, if not all that wait could be looked at.
LOOK_ON = timedelta(seconds=1)

_Entry = TypeVar("_Entry", bound=Hashable)
_Value = TypeVar("_Value")


class Settled(NamedTuple):
    """What a pass has changed."""

    placed: list[Placement]
    evicted: list[Eviction]
    #: The pass stopped at its limit: there may be more to place.
    stopped: bool
    #: When somebody who may not be evicted yet may.
    again_at: datetime | None


class Ledger:
    """The book itself. Entries change it; `settle` runs a pass."""

    def __init__(self, state: LedgerState | None = None) -> None:
        state = state or LedgerState()
        tables = state.tables
        hosts = compact.unpack_hosts(tables["hosts"]) if tables else state.hosts
        live = compact.unpack_placements(tables["live"], hosts) if tables else [compact.dated(each) for each in state.live]
        self.hosts: dict[str, Host] = {host.id: host for host in hosts}
        self.live: dict[str, Placement] = {}
        #: The keys of the placements on each host: who loses one is found without going through all.
        self._seated: dict[str, set[str]] = {}
        for placement in live:
            self._seat(placement)
        self.waiting = Waiting.unpack(tables["waiting"]) if tables else Waiting(state.queue)
        #: Requests that their users hold back.
        self.held = Waiting.unpack(tables["held"]) if tables else Waiting()
        self.closed = dict(state.closed)
        self.paused = state.paused
        self.paused_groups = dict(state.paused_groups)
        self.evicting: dict[str, None] = dict.fromkeys(state.evicting)
        self.rules = state.rules
        self._strikes = dict(state.strikes)
        self._amended = dict(state.amended)
        self._forgotten: dict[str, None] = dict.fromkeys(state.forgotten)
        self._ended: dict[tuple[str, str], None] = dict.fromkeys(state.ended)
        #: Made anew after a change of the hosts.
        self._fleet: Fleet | None = None
        #: The hosts that the last pass kept for a shape.
        self._kept: dict[int, Shape] = {}
        #: The shapes that passes which had to stop have found no room for, since the last one that did not; and whether anything
        #: became free meanwhile.
        self._passed_over: set[Shape] = set()
        self._freed = False
        #: The shapes for which nobody could be evicted, since all that wait were looked at.
        self._fruitless: set[Shape] = set()
        #: When the last pass was: who is owed a turn is asked as of then.
        self._passed_at: datetime | None = None
        self._uses = Uses(state.used_at)
        #: What the autoscaler can make, and means to.
        self.potential = Potential(state.groups, state.outlooks)

    def state(self) -> LedgerState:
        return LedgerState(
            tables={
                "hosts": compact.pack_hosts(self.hosts.values()),
                "live": compact.pack_placements(self.live.values(), self.hosts.values()),
                "waiting": self.waiting.pack(),
                "held": self.held.pack(),
            },
            forgotten=list(self._forgotten),
            ended=list(self._ended),
            closed=self.closed,
            strikes=self._strikes,
            amended=self._amended,
            paused=self.paused,
            paused_groups=self.paused_groups,
            evicting=list(self.evicting),
            rules=self.rules,
            used_at=self._uses.at,
            groups=list(self.potential.groups),
            outlooks=list(self.potential.outlooks),
        )

    @property
    def fleet(self) -> Fleet:
        if self._fleet is None:
            self._fleet = Fleet(self.hosts.values(), self.closed, self.paused_groups)
            self._kept, self._freed = {}, True
        return self._fleet

    # What gangs say.

    def ask(self, request: Request) -> None:
        """A gang wants hosts."""
        if request.key not in self.live and request.key not in self._forgotten and request.key not in self.held:
            self.waiting.add(request)

    def adopt(self, placement: Placement) -> None:
        """A gang holds these hosts, says the gang itself: for a book that was lost."""
        if placement.key not in self._forgotten:
            self.waiting.remove(placement.key)
            self.held.remove(placement.key)
            if placement.key not in self.live:
                self._seat(compact.dated(placement))

    def amend(self, key: str, band: Band, *, held: bool, said_at: datetime | None = None) -> None:
        """A request that waits changes its band, or is held back or let go; a gang that has hosts keeps them.

        Args:
            said_at: when the gang said so, by its own clock: what it said before is overtaken.
        """
        if key not in self.live and key not in self.waiting and key not in self.held:
            return
        if said_at is not None:
            if said_at < self._amended.get(key, said_at):
                return
            _remember(self._amended, key, said_at)
        request = self.waiting.remove(key) or self.held.remove(key)
        if request is not None:
            (self.held if held else self.waiting).add(request.model_copy(update={"band": band}))
        else:
            self.live[key] = self.live[key].model_copy(update={"band": band})

    def forget(self, key: str, spoilt_by: Iterable[str] = (), *, ran: bool = False) -> None:
        """The request waits no longer, or its hosts are free of it again.

        Args:
            spoilt_by: the hosts that did not take their part of the attempt, or ended it by a fault of theirs.
            ran: whether the attempt ran on the others.
        """
        self.waiting.remove(key)
        self.held.remove(key)
        self.evicting.pop(key, None)
        self._amended.pop(key, None)
        placement = self._unseat(key)
        if key not in self._forgotten:  # said again, it is no second attempt
            spoilt = set(spoilt_by)
            seats = placement.seats if placement is not None and ran else ()
            self._judge_hosts(spoilt, {seat.host_id for seat in seats} - spoilt)
        _remember(self._forgotten, key, None)

    def vacate(self, key: str, host_id: str, incarnation: str) -> None:
        """One of the gang's hosts is free of it, says the host itself; when the last one is, the gang is forgotten."""
        placement = self._unseat(key)
        if placement is None:
            return
        left = tuple(seat for seat in placement.seats if (seat.host_id, seat.incarnation) != (host_id, incarnation))
        if left:
            self._seat(Placement(**{**dict(placement), "seats": left}))
        else:
            self.forget(key)

    def _judge_hosts(self, spoilt: Iterable[str], ran: Iterable[str]) -> None:
        """Three attempts in a row that a host spoils, and it takes no more until an operator has looked at it.

        They count in whatever life: an agent that dies of each attempt is back, in a new one, before the attempt is given up.
        """
        for host_id in ran:
            self._strikes.pop(host_id, None)
        for host_id in sorted(spoilt):
            _remember(self._strikes, host_id, self._strikes.get(host_id, 0) + 1)
            if self._strikes[host_id] >= STRIKES and host_id not in self.closed:
                self.close(host_id, Closure(by=ClosedBy.QUARANTINE, reason=f"{STRIKES} attempts in a row failed there"))

    # What slices say.

    def hosts_up(self, hosts: Iterable[Host]) -> None:
        """Hosts are ready. A new incarnation of a known host ends what was placed on the old one."""
        hosts = list(hosts)
        for host in hosts:
            if (host.id, host.incarnation) in self._ended:
                continue
            before = self.hosts.get(host.id)
            if before is None:
                self._uses.left(host.slice_id)
            if before is not None and before.incarnation != host.incarnation:
                _remember(self._ended, (before.id, before.incarnation), None)
            self.hosts[host.id] = host
        self._fleet = None
        self._drop_orphans(host.id for host in hosts)

    def host_lost(self, host_id: str, incarnation: str) -> None:
        """A host is gone, unless it has come back meanwhile."""
        self.slice_down([(host_id, incarnation)])

    def slice_down(self, lives: Iterable[tuple[str, str]]) -> None:
        """A slice is gone with these (host, incarnation)s; a later life of the same machines is another slice's business."""
        lives, gone = list(lives), set()
        for host_id, incarnation in lives:
            _remember(self._ended, (host_id, incarnation), None)
            host = self.hosts.get(host_id)
            if host is not None and host.incarnation == incarnation:
                del self.hosts[host_id]
                gone.add(host.slice_id)
                self._fleet = None
        self._drop_orphans(host_id for host_id, _ in lives)
        self._uses.gone(gone)

    def retire(self, lives: Iterable[tuple[str, str]], idle_since: datetime | None = None) -> str:
        """A slice wants to go: its hosts are taken out if nothing runs there; else what does.

        Args:
            idle_since: only if nothing has run there since then.
        """
        lives = list(lives)
        for host_id, _ in lives:
            if running := sorted(self.live[key].task for key in self._seated.get(host_id, ())):
                return f"host {host_id} runs {', '.join(running[:3])}{' …' if len(running) > 3 else ''}"
            host = self.hosts.get(host_id)
            if host is not None and (used := self._uses.after(host.slice_id, idle_since)) is not None:
                return f"something ran on it until {used:%H:%M:%S} UTC"
        self.slice_down(lives)
        for host_id, _ in lives:
            self.closed.pop(host_id, None)  # such a host does not come back
        return ""

    def idle(self) -> dict[str, datetime | None]:
        """The slices of scale groups on which nothing runs, and since when; None: since a moment that is not known yet."""
        busy = {seat.slice_id for placement in self.live.values() for seat in placement.seats}
        made = {host.slice_id for host in self.hosts.values() if SCALE_GROUP in host.attributes}
        return {slice_id: self._uses.at.get(slice_id) for slice_id in sorted(made - busy)}

    # What operators say.

    def close(self, host_id: str, closure: Closure) -> None:
        """The host takes nothing new, whatever its incarnation, until it is opened again."""
        self.closed[host_id] = closure
        gone = [each for each in self.closed if each not in self.hosts]
        for each in gone[:-REMEMBERED]:  # one that is there stays closed, however many are
            del self.closed[each]
        self._fleet = None

    def open(self, host_id: str) -> None:
        """The host takes work again, with a clean slate."""
        self.closed.pop(host_id, None)
        self._strikes.pop(host_id, None)
        self._fleet = None

    def evict(self, host_id: str, reason: str) -> list[Eviction]:
        """Those on the host that have to go; nobody is told twice."""
        here = (self.live[key] for key in sorted(self._seated.get(host_id, ())) if key not in self.evicting)
        going = [Eviction(key=placement.key, owner=placement.owner, reason=reason) for placement in here]
        self.evicting.update(dict.fromkeys(each.key for each in going))
        return going

    def pause(self, reason: str, group: str | None = None) -> None:
        """Nothing new is placed, in the whole cluster or in one scale group. What runs runs on."""
        if group is None:
            self.paused = reason
        else:
            _remember(self.paused_groups, group, reason)
            self._fleet = None

    def resume(self, group: str | None = None) -> None:
        if group is None:
            self.paused = None
        else:
            self.paused_groups.pop(group, None)
            self._fleet = None

    # The pass, and questions.

    def settle(self, now: datetime, most: int | None = None) -> Settled:
        """One pass: whoever fits, but at most so many, is moved from the queue to their hosts; then who has to make room."""
        self._uses.now_is(now)
        if not len(self.waiting) or not self.hosts or self.paused is not None:
            self._kept = {}
            return Settled([], [], stopped=False, again_at=None)
        live, kept = self.live.values(), self._kept if self._passed_over else None
        fleet = self.fleet
        self._freed = self._freed and bool(self._passed_over)  # what became free before this round is in it
        done = place(fleet, live, self.waiting, now, self.rules, most, self.evicting, self._passed_over, kept)
        self._kept = done.rooms.kept
        self._passed_at = now
        for placement in done.placed:
            self.waiting.remove(placement.key)
            self._seat(placement)
        if done.stopped:
            self._passed_over |= done.refused
            return Settled(done.placed, [], stopped=True, again_at=None)
        # What became free while this round went on may be room for those that it had passed over: then there is another round.
        again, self._passed_over, self._freed = bool(self._passed_over) and self._freed, set(), False
        going = evictions(fleet, live, self.waiting, self.evicting, now, self.rules, done.rooms, self._fruitless)
        self.evicting.update(dict.fromkeys(victim.key for victim in going.victims))
        self._fruitless = set() if going.complete else self._fruitless | going.fruitless
        again_at = going.again_at if going.complete else now + LOOK_ON
        return Settled(done.placed, going.victims, stopped=again, again_at=again_at)

    def explain(self, key: str) -> Refusal:
        """Why the request with this key has no hosts."""
        return self.inquiry.explain(key)

    def forecast(self, request: Request, now: datetime) -> Forecast:
        """What would become of the request if it were asked now. Nothing is changed."""
        trial = copy.copy(self)  # which shares what asking and a pass do not change
        trial.live, trial.waiting, trial.evicting = dict(self.live), self.waiting.copy(), dict(self.evicting)
        trial._seated, trial._uses = {}, Uses()
        trial.ask(request)
        trial.settle(now)
        placement = trial.live.get(request.key)
        return forecast(
            self.fleet,
            self.live.values(),
            request,
            hosts=tuple(seat.host_id for seat in placement.seats) if placement else (),
            refusal=None if placement else trial.explain(request.key),
            kept=self._kept,
            potential=self.potential,
        )

    @property
    def inquiry(self) -> Inquiry:
        """For whoever has questions: the book as it is now."""
        return Inquiry(self.waiting, self.held, self.live, self._situation, self.potential)

    def _situation(self) -> Situation:
        live, at = self.live.values(), self._passed_at
        owed = owed_a_turn(live, self.waiting, at - self.rules.owed_after) if at else {}
        return Situation.of(self.fleet, live, self._kept, self.evicting, self.paused, owed)

    def demand(self) -> Mapping[Shape, int]:
        """How many gangs wait for what; those that are held want nothing."""
        return self.waiting.demand()

    def _seat(self, placement: Placement) -> None:
        self.live[placement.key] = placement
        for seat in placement.seats:
            self._seated.setdefault(seat.host_id, set()).add(placement.key)

    def _unseat(self, key: str) -> Placement | None:
        placement = self.live.pop(key, None)
        self._freed = True
        for seat in placement.seats if placement is not None else ():
            self._seated.get(seat.host_id, set()).discard(key)
            self._uses.left(seat.slice_id)
        return placement

    def _drop_orphans(self, host_ids: Iterable[str]) -> None:
        """These hosts have gone or begun a new life. A placement whose hosts are all gone holds nothing any more; one that has
        hosts left is given back by its gang."""

        def stands(placement: Placement) -> bool:
            return any(
                (host := self.hosts.get(seat.host_id)) is not None and host.incarnation == seat.incarnation
                for seat in placement.seats
            )

        for key in sorted({key for host_id in host_ids for key in self._seated.get(host_id, ())}):
            if key in self.live and not stands(self.live[key]):
                self._unseat(key)
                self.evicting.pop(key, None)


def _remember(book: dict[_Entry, _Value], entry: _Entry, value: _Value) -> None:
    """Add the entry as the newest; the oldest ones are dropped beyond the limit."""
    book.pop(entry, None)
    book[entry] = value
    while len(book) > REMEMBERED:
        del book[next(iter(book))]
