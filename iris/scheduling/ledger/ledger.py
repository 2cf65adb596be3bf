"""The scheduler's state: the hosts, the placements on them, and the waiting requests. This module
uses no clock and no Temporal.

Messages are delivered at least once, so each may arrive twice, late, or out of order. The ledger
handles this with five rules:

1. *A repeated request has no effect.* The key identifies a request. A request whose key already
   waits or has hosts is ignored.
2. *A released request stays released.* The ledger remembers the last released keys, so a request
   that arrives after its own withdrawal is not queued again.
3. *A placement ends with the incarnations of its hosts.* A later release has no effect on newer
   incarnations, because free resources are derived from the placements, never counted.
4. *The latest change of a request counts.* A change is ignored if the gang made it before a change
   that has already arrived.
5. *An ended incarnation stays ended.* The ledger remembers the last ended incarnations, so a late
   "host ready" message does not bring back a host that is gone, or replace its successor.
"""

import copy
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from iris.model.host.hosts import Closure, Host
from iris.model.job.requests import Placement, Request, Shape
from iris.model.job.spec import Band
from iris.model.quotas import QuotaRules
from iris.model.rules import Contact
from iris.scheduling.ledger import codec
from iris.scheduling.ledger.bounded_memory import REMEMBERED, remember
from iris.scheduling.ledger.codec import LedgerState
from iris.scheduling.ledger.ended_uses import EndedUses
from iris.scheduling.ledger.seated import Seated
from iris.scheduling.ledger.settled import Settled
from iris.scheduling.ledger.strikes import QUARANTINE, Strikes
from iris.scheduling.ledger.victim_search import VictimSearch
from iris.scheduling.placement.catalog import Catalog
from iris.scheduling.placement.cluster_state import ClusterState
from iris.scheduling.placement.effort import Effort
from iris.scheduling.placement.host_index import HostIndex
from iris.scheduling.placement.place import Pass, place
from iris.scheduling.placement.preemption import Eviction
from iris.scheduling.placement.queue import Queue
from iris.scheduling.placement.recent_use import Lately
from iris.scheduling.placement.refusals import Refusal
from iris.scheduling.placement.turns import AllowedDemand
from iris.scheduling.placement.usage import Usage
from iris.scheduling.quotas.use import QuotaUse
from iris.scheduling.reasons.explain import WaitReasons
from iris.scheduling.reasons.forecast import Forecast, forecast
from iris.scheduling.reasons.quota_reasons import QuotaReasons
from iris.usage.records import AttemptEnd

#: The delay of the next search for gangs to evict, if the last search skipped some requests.
CONTINUE_AFTER = timedelta(seconds=1)


class Ledger:
    """The scheduler's state. `settle` runs a scheduling pass; other methods record messages."""

    def __init__(self, state: LedgerState | None = None) -> None:
        state = state or LedgerState()
        tables = state.tables
        hosts = codec.unpack_hosts(tables["hosts"]) if tables else []
        contact = Contact(state.rules.lease.total_seconds())
        live = codec.unpack_placements(tables["live"], hosts, contact) if tables else []
        self.hosts: dict[str, Host] = {host.id: host for host in hosts}
        #: The live placements, and sums over them, such as the use of each quota.
        self._seated = Seated(live, state.recent_use, state.used_at, state.quotas)
        #: The pools of cohorts, as (cohort, resource), from which no gang may borrow as of the last
        #: pass, because a gang waits for amounts that its quota has lent.
        self._closed_pools: frozenset[tuple[str, str]] = frozenset()
        self.waiting = Queue.unpack(tables["waiting"]) if tables else Queue()
        #: The requests on hold: the user holds the job, or the control plane holds it because a
        #: budget is used up.
        self.held = Queue.unpack(tables["held"]) if tables else Queue()
        self.closed = dict(state.closed)
        self.paused = state.paused
        self.paused_groups = dict(state.paused_groups)
        self.evicting: dict[str, None] = dict.fromkeys(state.evicting)
        self._victim_search = VictimSearch(self.evicting)
        self.rules = state.rules
        self._strikes = Strikes(state.strikes, state.struck_at)
        self._amended = dict(state.amended)
        self._forgotten: dict[str, None] = dict.fromkeys(state.forgotten)
        self._ended: dict[tuple[str, str], None] = dict.fromkeys(state.ended)
        #: The latest placements that lost their hosts and that their gangs have not released: the
        #: programs may still run. If the machines turn out to be gone, the scheduler tells the
        #: gangs.
        unreleased = codec.unpack_placements(tables["unreleased"], hosts, contact) if tables else []
        self.unreleased = {placement.key: placement for placement in unreleased}
        #: The records of the placements that have ended, until they are stored.
        self.ended_uses = EndedUses(state.ended_uses)
        self.effort = Effort()
        self._allowed = AllowedDemand()
        #: The index of the hosts; None after a change of the hosts.
        self._host_index: HostIndex | None = None
        #: The hosts that the last pass reserved, each with the shape for which it is reserved.
        self._reserved: dict[int, Shape] = {}
        #: The shapes that did not fit in the current round. In a round, each scheduling pass
        #: continues where the previous one stopped at its limit, until a pass does not stop at its
        #: limit.
        self.passed_over: set[Shape] = set()
        #: Whether resources became free since this round began. If so, another round follows at
        #: once, because shapes in `passed_over` may fit now.
        self._freed = False
        #: The shapes that did not fit when a pass last examined them; None until the first round of
        #: passes has ended (`passed_over` explains rounds).
        self.unfit: set[Shape] | None = None
        #: The time of the last pass. The recent use of users is computed for this time, unless a
        #: caller gives another time.
        self._passed_at: datetime | None = None
        #: The scale groups of the cluster, which say for each request where new slices could serve
        #: it.
        self.catalog = Catalog(state.groups)
        #: The autoscaler's latest `Outlook` record for each shape of waiting gangs: the slice that
        #: they can expect.
        self.outlooks = tuple(state.outlooks)

    def state(self) -> LedgerState:
        """Returns what the next run continues with, as of the last call of `now_is`."""
        return LedgerState(
            tables={
                "hosts": codec.pack_hosts(self.hosts.values()),
                "live": codec.pack_placements(self.live.values(), self.hosts.values()),
                "waiting": self.waiting.pack(),
                "held": self.held.pack(),
                "unreleased": codec.pack_placements(self.unreleased.values(), self.hosts.values()),
            },
            forgotten=list(self._forgotten),
            ended=list(self._ended),
            closed=self.closed,
            strikes=self._strikes.counts,
            struck_at=self._strikes.struck_at,
            amended=self._amended,
            paused=self.paused,
            paused_groups=self.paused_groups,
            evicting=list(self.evicting),
            rules=self.rules,
            quotas=self.quotas.table.rules,
            used_at=self._seated.uses.at,
            ended_uses=self.ended_uses.state(),
            recent_use=self._seated.recent_use.state(),
            groups=self.catalog.groups,
            outlooks=list(self.outlooks),
        )

    @property
    def live(self) -> Mapping[str, Placement]:
        """The placements by key."""
        return self._seated.live

    @property
    def quotas(self) -> QuotaUse:
        """What the placements hold of the quotas."""
        return self._seated.quotas

    @property
    def host_index(self) -> HostIndex:
        if self._host_index is None:
            self._host_index = HostIndex(self.hosts.values(), self.closed, self.paused_groups)
            self._reserved, self._freed = {}, True
        return self._host_index

    # Messages from gangs.

    def ask(self, request: Request) -> None:
        """Queues the request, unless its key is known already."""
        if (
            request.key not in self.live
            and request.key not in self._forgotten
            and request.key not in self.held
        ):
            if request.claim.tags:  # others would only divide the lines of the queue
                claim = request.claim.with_tags(self.quotas.table.tag_keys)
                request = request.model_copy(update={"claim": claim})
            self.waiting.add(request)

    def adopt(self, placement: Placement) -> None:
        """Records the placement that a gang reports, to rebuild a ledger that was lost."""
        if placement.key not in self._forgotten:
            self.waiting.remove(placement.key)
            self.held.remove(placement.key)
            if placement.key not in self.live:
                self._seated.add(placement)

    def amend(
        self, key: str, band: Band, *, held: bool, changed_at: datetime | None = None
    ) -> None:
        """Changes the band of a request, or holds or releases a waiting request. A gang that has
        hosts keeps them.

        Args:
            changed_at: when the gang made the change, by its own clock. A change older than the
                last one is ignored.
        """
        if key not in self.live and key not in self.waiting and key not in self.held:
            return
        if changed_at is not None:
            if changed_at < self._amended.get(key, changed_at):
                return
            remember(self._amended, key, changed_at)
        if (request := self.waiting.remove(key) or self.held.remove(key)) is not None:
            (self.held if held else self.waiting).add(request.model_copy(update={"band": band}))
        else:
            self._seated.move(key, band)

    def forget(
        self,
        key: str,
        spoilt_by: Iterable[str] = (),
        *,
        ran: bool = False,
        placed_at: datetime | None = None,
        ended: AttemptEnd | None = None,
        at: datetime | None = None,
    ) -> None:
        """Removes the request from the queue, or frees its hosts.

        Args:
            spoilt_by: the hosts that did not start their part of the attempt, or ended it by a
                fault of the host.
            ran: whether the attempt ran on the other hosts.
            placed_at: when it was placed, for a placement that the ledger does not have any more.
            ended: what the gang's workflow tells of the attempt; None if it tells nothing.
            at: when the hosts were free; None for the time of the next pass.
        """
        self.waiting.remove(key)
        self.held.remove(key)
        self.evicting.pop(key, None)
        self._amended.pop(key, None)
        unreleased = self.unreleased.pop(key, None)
        placement = self._unseat(key)
        if (gone := placement or unreleased) is not None:
            self.ended_uses.ended(gone, self.hosts, ended, at)
        if key not in self._forgotten:  # a repeated message is not a second attempt
            struck = self._strikes.count(
                spoilt_by, placement, ran=ran, placed_at=placed_at, now=self._passed_at
            )
            for host_id in (each for each in struck if each not in self.closed):
                self.close(host_id, QUARANTINE)
        remember(self._forgotten, key, None)

    def vacate(self, key: str, host_id: str, incarnation: str, at: datetime | None = None) -> None:
        """Frees one of the gang's hosts, as the host reports. The gang is forgotten when its last
        host is free. A report of a host that the gang does not hold changes nothing.

        Args:
            at: when the host was free; None for the time of the next pass.
        """
        placement = self.live.get(key)
        if placement is None:
            return
        free = (host_id, incarnation)
        left = tuple(seat for seat in placement.seats if (seat.host_id, seat.incarnation) != free)
        if left == placement.seats:
            return
        self.ended_uses.hold(placement, self.hosts)
        self._unseat(key)
        if left:
            self._seated.add(Placement(**{**dict(placement), "seats": left}))
            self._seated.recent_use.goes_on(self.live[key])
        else:
            self.ended_uses.ended(placement, self.hosts, None, at)
            self.forget(key)

    # Messages from slices.

    def hosts_up(self, hosts: Sequence[Host]) -> tuple[tuple[str, str], ...]:
        """Adds ready hosts, and returns the ended incarnations among them, which are not added. A
        new incarnation of a host ends the placements on the old one.
        """
        ended = tuple(
            pair for host in hosts if (pair := (host.id, host.incarnation)) in self._ended
        )
        for host in (each for each in hosts if (each.id, each.incarnation) not in ended):
            before = self.hosts.get(host.id)
            if before is None:
                self._seated.uses.joined(host.slice_id)
            elif before.incarnation != host.incarnation:
                remember(self._ended, (before.id, before.incarnation), None)
                self._hold_uses(before.id)
            self.hosts[host.id] = host
        self._host_index = None
        self._drop_orphans(host.id for host in hosts)
        return ended

    def host_lost(self, host_id: str, incarnation: str) -> None:
        """Removes a lost host, unless it has come back in a new incarnation."""
        self.slice_down([(host_id, incarnation)])

    def slice_down(self, incarnations: Iterable[tuple[str, str]]) -> None:
        """Removes a slice's hosts, given as (host, incarnation) pairs. Other incarnations of the
        same hosts stay.
        """
        incarnations, gone = list(incarnations), set()
        for host_id, incarnation in incarnations:
            remember(self._ended, (host_id, incarnation), None)
            host = self.hosts.get(host_id)
            if host is not None and host.incarnation == incarnation:
                self._hold_uses(host_id)
                del self.hosts[host_id]
                gone.add(host.slice_id)
                self._host_index = None
        self._drop_orphans(host_id for host_id, _ in incarnations)
        self._seated.uses.gone(gone)

    def hosts_gone(self, incarnations: Iterable[tuple[str, str]], reason: str) -> list[Eviction]:
        """Removes hosts whose machines no longer exist, as the platform confirms.

        Returns:
            A notice for each gang with attempts there. A repeated message returns the notices
            again, until the gangs have released the placements.
        """
        gone = set(incarnations)
        self.slice_down(sorted(gone))
        here = {key for host_id, _ in gone for key in self._seated.on(host_id)}
        placements = [*(self.live[key] for key in sorted(here)), *self.unreleased.values()]
        notices = []
        for placement in placements:
            seats = ((seat.host_id, seat.incarnation) for seat in placement.seats)
            if lost := tuple(dict.fromkeys(seat for seat in seats if seat in gone)):
                notices.append(
                    Eviction(key=placement.key, owner=placement.owner, gone=lost, why_gone=reason)
                )
        return notices

    def retire(
        self, incarnations: Iterable[tuple[str, str]], idle_since: datetime | None = None
    ) -> str:
        """Removes the hosts of a slice that is to be deleted, unless a task runs on one of them.

        Args:
            idle_since: remove the hosts only if no task has run on them since this time.

        Returns:
            Why the hosts stay; empty if they were removed.
        """
        incarnations = list(incarnations)
        for host_id, _ in incarnations:
            if running := sorted(self.live[key].task for key in self._seated.on(host_id)):
                return (
                    f"host {host_id} runs"
                    f" {', '.join(running[:3])}{' …' if len(running) > 3 else ''}"
                )
            host = self.hosts.get(host_id)
            if (
                host is not None
                and (used := self._seated.uses.after(host.slice_id, idle_since)) is not None
            ):
                return f"it was not idle until {used:%H:%M:%S} UTC"
        self.slice_down(incarnations)
        for host_id, _ in incarnations:
            self.closed.pop(host_id, None)  # a host of a deleted slice does not come back
        return ""

    def idle(self) -> dict[str, datetime | None]:
        """Returns the idle slices of scale groups. The value is the time since which a slice is
        idle; None if that time is not known yet.
        """
        return self._seated.uses.idle(self.host_index.slices_of_groups)

    # Messages from operators.

    def close(self, host_id: str, closure: Closure) -> None:
        """Closes the host, in every incarnation, to new tasks until it is opened again."""
        self.closed[host_id] = closure.after(self.closed.get(host_id))
        gone = [each for each in self.closed if each not in self.hosts]
        for each in gone[:-REMEMBERED]:  # hosts that exist have no limit
            del self.closed[each]
        self._host_index = None

    def open(self, host_id: str) -> None:
        """Opens the host to new tasks, and forgets its failed attempts."""
        self.closed.pop(host_id, None)
        self._strikes.forgive(host_id)
        self._host_index = None

    def evict(self, host_id: str, reason: str) -> list[Eviction]:
        """Marks the placements on the host as being evicted, and returns the newly marked ones."""
        here = (
            self.live[key] for key in sorted(self._seated.on(host_id)) if key not in self.evicting
        )
        going = [
            Eviction(key=placement.key, owner=placement.owner, reason=reason) for placement in here
        ]
        self.evicting.update(dict.fromkeys(each.key for each in going))
        return going

    def pause(self, reason: str, group: str | None = None) -> None:
        """Stops new placements in the cluster or in one scale group. Running tasks continue."""
        if group is None:
            self.paused = reason
        else:
            remember(self.paused_groups, group, reason)
            self._host_index = None

    def set_quotas(self, rules: QuotaRules) -> None:
        """Applies other quotas. Placements that exceed them stay."""
        self._seated.set_quotas(rules)

    def resume(self, group: str | None = None) -> None:
        if group is None:
            self.paused = None
        else:
            self.paused_groups.pop(group, None)
            self._host_index = None

    # The pass, and queries.

    def now_is(self, now: datetime) -> None:
        """Sets the time of everything that was recorded since the last call."""
        self._seated.uses.now_is(now)
        self._seated.recent_use.now_is(now)
        self.ended_uses.now_is(now)

    def settle(self, now: datetime, most: int | None = None) -> Settled:
        """Runs one scheduling pass: places requests that fit, and then chooses gangs to evict.

        Args:
            most: the most requests to place; None means no limit.
        """
        self.now_is(now)
        self._passed_at, began = now, self.effort.looks
        if not len(self.waiting) or not self.hosts or self.paused is not None:
            self._reserved, self.unfit = {}, set(self.demand())
            return Settled([], [], stopped=False, again_at=None)
        lately = None
        if self.waiting.is_contested:
            lately = self._seated.recent_use.lately(now, self.rules.owed_after)
        done = self._place(now, most, lately)
        if done.stopped:
            return Settled(done.placed, [], stopped=True, again_at=None)
        again = self._end_round(done.refused)
        facts = (self.live.values(), self.waiting, now, self.rules, done.capacity, lately)
        going = self._victim_search.run(*facts, self._in_force, began)
        again_at = going.again_at if going.complete else now + CONTINUE_AFTER
        return Settled(done.placed, going.victims, stopped=again, again_at=again_at)

    def _place(self, now: datetime, most: int | None, lately: Lately | None) -> Pass:
        """Runs the next pass of the round, and records its placements and what did not fit."""
        index = self.host_index  # first: changed hosts have other numbers, which ends reservations
        if not self.passed_over:
            self._freed = False  # a new round counts everything that is free at its start
        done = place(
            index,
            self.live.values(),
            self.waiting,
            now,
            self.rules,
            most,
            self.evicting,
            self.passed_over,
            self._reserved if self.passed_over else None,
            lately,
            self.effort,
            self._seated.occupancy(index),
            self._in_force,
        )
        self._reserved, self._closed_pools = done.capacity.reserved, done.closed_pools
        fit: set[Shape] = set()
        for placement in done.placed:
            if (request := self.waiting.remove(placement.key)) is not None:
                fit.add(request.shape)
            if placement.key in self.unreleased:
                self.ended_uses.placed_again(self.unreleased[placement.key], self.hosts)
            self._seated.add(placement)
        if done.stopped:
            self.passed_over |= done.refused
            if self.unfit is not None:
                self.unfit = self.unfit - (fit - done.refused) | done.refused
        return done

    @property
    def has_quotas(self) -> bool:
        """Whether quotas can stop a request. A limit that the cluster does not have stops it,
        too.
        """
        return bool(self.quotas.table.rules) or self.waiting.claims_limits

    @property
    def _in_force(self) -> QuotaUse | None:
        return self.quotas if self.has_quotas else None

    def _end_round(self, refused: set[Shape]) -> bool:
        """Ends the round after its last pass, and returns whether there is another round at once.

        If something became free during this round, shapes that it passed over may fit now.
        """
        self.unfit = self.passed_over | refused
        again = bool(self.passed_over) and self._freed
        self.passed_over, self._freed = set(), False
        return again

    def explain(self, key: str, now: datetime | None = None) -> Refusal:
        """Returns why the request with this key has no hosts, and its position; as of the last pass
        if no time is given.
        """
        return self.wait_reasons(now).explain_all([key])[0]

    def forecast(self, request: Request, now: datetime) -> Forecast:
        """Returns what would happen to the request if it arrived now. The ledger stays as it is."""
        # The trial has copies of everything that `ask` and a pass change, and shares the rest.
        trial = copy.copy(self)
        trial._seated, trial.waiting, trial.evicting = (
            self._seated.trial(),
            self.waiting.copy(),
            dict(self.evicting),
        )
        trial._victim_search = VictimSearch(trial.evicting)
        trial.ended_uses, trial.effort = EndedUses(), Effort()
        trial.ask(request)
        trial.settle(now)
        placement = trial.live.get(request.key)
        return forecast(
            self.host_index,
            self.live.values(),
            request,
            hosts=tuple(seat.host_id for seat in placement.seats) if placement else (),
            refusal=None if placement else trial.explain(request.key),
            reserved=self._reserved,
            catalog=self.catalog,
            never=QuotaReasons(self.quotas, ()).never(request),
        )

    def wait_reasons(self, now: datetime | None = None) -> WaitReasons:
        """Returns the reasons of the waiting requests; as of the last pass if no time is given."""
        live, at, after = self.live.values(), now or self._passed_at, self.rules.owed_after
        team_of = self.quotas.table.team_of

        def state() -> ClusterState:
            return ClusterState.of(
                self.host_index,
                live,
                self._reserved,
                self.evicting,
                self.paused,
                self.catalog,
                self.outlooks,
            )

        def usage() -> Usage:
            return (
                Usage.of(
                    live,
                    self.waiting,
                    at - after,
                    self._seated.recent_use.lately(at, after),
                    team_of,
                )
                if at
                else Usage.of(live, team_of=team_of)
            )

        quotas = QuotaReasons(self.quotas, live, self._closed_pools)
        return WaitReasons(self.waiting, self.held, self.live, state, usage, quotas)

    def demand(self) -> Mapping[Shape, int]:
        """Returns the number of waiting gangs that may start when there are hosts, by shape. Gangs
        on hold, and those that quotas stop, do not count.
        """
        if not self.has_quotas:
            return self.waiting.demand()
        allowed = self._allowed.of(self.waiting, self.quotas)
        return {shape: count for shape, (count, _) in allowed.items()}

    def firsts(self, shapes: Container[Shape]) -> Mapping[Shape, Request]:
        """Returns the first gang of each of these shapes that counts as demand."""
        if not self.has_quotas:
            return self.waiting.firsts(shapes)
        allowed = self._allowed.of(self.waiting, self.quotas)
        return {shape: first for shape, (_, first) in allowed.items() if shape in shapes}

    def _unseat(self, key: str) -> Placement | None:
        self._freed = True
        return self._seated.remove(key, self.hosts)

    def _drop_orphans(self, host_ids: Iterable[str]) -> None:
        """Removes placements whose hosts are all gone or have new incarnations. If some hosts of a
        placement are left, its gang releases them.
        """

        def stands(placement: Placement) -> bool:
            hosts = ((seat, self.hosts.get(seat.host_id)) for seat in placement.seats)
            return any(
                host is not None and host.incarnation == seat.incarnation for seat, host in hosts
            )

        for key in sorted({key for host_id in host_ids for key in self._seated.on(host_id)}):
            if key in self.live and not stands(self.live[key]):
                self.ended_uses.lost(self.live[key])
                for each in remember(self.unreleased, key, self.live[key]):
                    if each.key not in self.live:
                        self.ended_uses.ended(each, self.hosts)
                self._unseat(key)
                self.evicting.pop(key, None)

    def _hold_uses(self, host_id: str) -> None:
        """Keeps what the placements on the host hold, before the host is removed."""
        for key in sorted(self._seated.on(host_id)):
            self.ended_uses.hold(self.live[key], self.hosts)
