"""The scheduler's book under everything that delivery can do to its messages, and operators and
users to what is in it.

What is known of delivery: every message of a job or slice comes at least once, any may come again
at any time, and those of one job may overtake each other. A slice speaks in order (its word of a
host's next life follows that of the one before), but any of its words may be repeated later.
Operators are answered, and say a thing once. At any moment the book may be written down and read
again, as continue-as-new does.

The story keeps a second, simple book beside the real one, and holds the real one against it after
every step.
"""

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from iris.model.host.constraints import SCALE_GROUP, TPU_WORKER_ID
from iris.model.host.hosts import ClosedBy, Closure, Host
from iris.model.job.requests import Placement, Request
from iris.model.job.spec import Band
from iris.model.rules import Rules
from iris.scheduling.ledger.codec import LedgerState
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.ledger.settled import Settled
from iris.scheduling.ledger.strikes import STRIKES
from iris.scheduling.placement.preemption import Eviction
from iris.scheduling.placement.refusals import INFEASIBLE, RefusalCode
from iris.usage.records import AttemptUse
from tests.builders import a_host, a_request, at
from tests.scheduling.ledger.kept_sums import check_kept_sums
from tests.small_world import GROUPS, HOSTS, SLICES, WANTS, Message, Wants, has_room, seen, taken
from tests.strategies import examples

BANDS = st.sampled_from(Band)
RULES = Rules(patience=timedelta(minutes=1))
HAPPENS = ("new life", "new life", "lost", "down", "gone")
#: None: open it.
DOES = (ClosedBy.CORDON, ClosedBy.DRAIN, None, None)


def _hosts_of(placement: Placement) -> list[tuple[str, str]]:
    return [(seat.host_id, seat.incarnation) for seat in placement.seats]


#: The key of a placement, the number of its hosts, its part of them, and when it got them.
Use = tuple[str, int, float, datetime]


def _use_of(placement: Placement) -> Use:
    """What a new placement holds, by the sizes of the hosts of this small world."""
    share = 0.0
    for seat in placement.seats:
        offers = SLICES[seat.slice_id][1].vector
        share += max(
            held / has for held, has in zip(placement.resources.vector, offers, strict=True) if held
        )
    assert placement.placed_at is not None
    return placement.key, len(placement.seats), round(share, 6), placement.placed_at


class Delivery(RuleBasedStateMachine):
    """Messages of jobs, slices and operators to one ledger, repeated and reordered in any way."""

    messages = Bundle("messages")
    keys = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(LedgerState(rules=RULES))
        self.now = at(0)
        self.clock = 0
        self.lives = dict.fromkeys(SLICES, 0)
        # The second book: what has arrived, as plain sets and numbers.
        self.asked: dict[str, Request] = {}
        self.asks: dict[str, Message] = {}
        self.changed_at: dict[str, datetime] = {}
        self.band: dict[str, Band] = {}
        self.held: set[str] = set()
        self.seated: dict[str, list[str]] = {}
        self.released: set[str] = set()
        self.orphaned: set[str] = set()
        #: The hosts of orphaned placements that are not released, by key.
        self.left: dict[str, list[tuple[str, str]]] = {}
        self.ended: set[tuple[str, str]] = set()
        self.closed: dict[str, ClosedBy] = {}
        self.strikes: Counter[str] = Counter()
        self.struck_at: dict[str, datetime] = {}
        #: The time of the last pass.
        self.passed_at = self.now
        self.paused: set[str | None] = set()
        self.going: set[str] = set()
        #: What each placement held, and from when on: the present one of each key, those that ended
        #: since the last pass, and all that ended before.
        self.present: dict[str, Use] = {}
        self.ending: list[Use] = []
        self.used: list[tuple[Use, datetime]] = []
        #: The records of use that were stored, by id.
        self.stored: dict[str, AttemptUse] = {}

    # What jobs do.

    @rule(
        target=keys,
        asks=st.lists(
            st.tuples(st.sampled_from(WANTS), st.sampled_from("ab"), BANDS), min_size=1, max_size=4
        ),
    )
    def jobs_ask(self, asks: list[tuple[Wants, str, Band]]) -> Any:
        keys = [self._asks(*ask) for ask in asks]
        self._settle()
        return multiple(*keys)

    @rule(target=messages, key=keys)
    def an_ask_is_posted_again(self, key: str) -> Message:
        return self.asks[key]

    @rule(target=messages, key=keys, band=BANDS, held=st.booleans(), late=st.booleans())
    def a_user_wishes_something(self, key: str, band: Band, held: bool, late: bool) -> Message:
        self.clock += 1
        changed_at = at(self.clock)

        def amend() -> None:
            if self._known(key) and changed_at >= self.changed_at.get(key, changed_at):
                self.changed_at[key], self.band[key] = changed_at, band
                if key not in self.ledger.live:
                    (self.held.add if held else self.held.discard)(key)
            self.ledger.amend(key, band, held=held, changed_at=changed_at)

        if not late:
            amend()
        return amend

    @rule(
        target=messages,
        key=consumes(keys),
        spoilt=st.sampled_from([0, 0, 1, 4]),
        ran=st.booleans(),
        late=st.booleans(),
    )
    def an_attempt_ends(self, key: str, spoilt: int, ran: bool, late: bool) -> Any:
        release = self._releases(key, self.seated.get(key, [])[:spoilt], ran=ran)
        if not late:
            release()
        return multiple(self.asks[key], release)

    @rule(target=messages, host_id=st.sampled_from(HOSTS), times=st.integers(1, STRIKES))
    def a_host_spoils_one_attempt_after_the_other(self, host_id: str, times: int) -> Any:
        releases: list[Message] = []
        for _ in range(times):
            there = [
                key
                for key, each in self.ledger.live.items()
                if host_id in [seat.host_id for seat in each.seats]
            ]
            releases += [self._releases(key, [host_id], ran=True) for key in there[:1]]
            for release in releases[-1:]:
                release()
            self.now += timedelta(seconds=1)
            self._settle()
        return multiple(*releases)

    # What slices do.

    @initialize(target=messages)
    def all_slices_come_up(self) -> Any:
        return multiple(*[self._comes_up(name) for name in SLICES])

    @rule(
        target=messages,
        name=st.sampled_from(sorted(SLICES)),
        worker=st.integers(0, 2),
        happens=st.sampled_from(HAPPENS),
    )
    def something_happens_to_a_slice(self, name: str, worker: int, happens: str) -> Message:
        if happens == "new life":
            return self._comes_up(name)
        size = SLICES[name][0]
        there = [worker % size] if happens == "lost" else range(size)
        lives = [(f"{name}-{each}", f"life {self.lives[name]}") for each in there]
        if happens == "gone":
            return lambda: self._machines_are_gone(lives)
        return lambda: self._end(lives, lambda: self.ledger.slice_down(lives))

    # What operators do.

    @rule(does=st.sampled_from(DOES), host_id=st.sampled_from(HOSTS))
    def an_operator_acts_on_a_host(self, does: ClosedBy | None, host_id: str) -> None:
        if does is None:
            self.closed.pop(host_id, None)
            del self.strikes[host_id]
            self.ledger.open(host_id)
            return
        self.closed[host_id] = does
        self.ledger.close(host_id, Closure(by=does))
        if does is ClosedBy.DRAIN:
            there = {
                key
                for key, each in self.ledger.live.items()
                if host_id in [seat.host_id for seat in each.seats]
            }
            told = [each.key for each in self.ledger.evict(host_id, "drained")]
            assert sorted(told) == sorted(there - self.going)
            self.going |= there

    @rule(
        group=st.sampled_from([None, *GROUPS]),
        pauses=st.sampled_from([True, False, False]),
        preemption=st.booleans(),
    )
    def an_operator_acts_on_the_cluster(
        self, group: str | None, pauses: bool, preemption: bool
    ) -> None:
        self.ledger.rules = RULES.model_copy(update={"preemption": preemption})
        if pauses:
            self.paused.add(group)
            self.ledger.pause("maintenance", group)
        else:
            for each in list(self.paused):
                self.ledger.resume(each)
            self.paused.clear()

    # What the post, the server and the scheduler do.

    @rule(batch=st.lists(messages, max_size=6), passed=st.sampled_from([0, 130, 700, 90_000]))
    def messages_arrive_once_more_and_a_pass_follows(
        self, batch: list[Message], passed: int
    ) -> None:
        for message in batch:
            message()
        self.now += timedelta(seconds=passed)
        self._settle()

    @rule(message=messages, passed=st.sampled_from([1, 130, 700]))
    def a_pass_stops_at_its_limit(self, message: Message, passed: int) -> None:
        message()
        self.now += timedelta(seconds=passed)
        assert len(self._settle(most=1).placed) <= 1

    @rule()
    def the_scheduler_continues_as_new(self) -> None:
        before = self.ledger
        before.now_is(self.now)
        self.ledger = Ledger(LedgerState.model_validate_json(before.state().model_dump_json()))
        assert seen(self.ledger) == seen(before)
        expected = before.settle(self.now)
        assert self._settle() == expected, "the next run decides otherwise than this one would have"
        assert seen(self.ledger) == seen(before)
        assert [self.ledger.explain(key) for key in self.asks] == [
            before.explain(key) for key in self.asks
        ]

    @rule(answered=st.booleans())
    def a_batch_of_records_is_stored(self, answered: bool) -> None:
        """Without an answer, the scheduler stores them again in its next run."""
        if self.ledger.ended_uses:
            for use in self.ledger.ended_uses.take_batch():
                assert isinstance(use, AttemptUse)
                assert self.stored.setdefault(use.id, use) == use, "two records have one id"
            if not answered:
                self.ledger.now_is(self.now)
                state = self.ledger.state().model_dump_json()
                self.ledger = Ledger(LedgerState.model_validate_json(state))
                self._settle()
            self.ledger.ended_uses.stored()

    @rule(wants=st.sampled_from(WANTS), band=BANDS)
    def somebody_asks_what_would_happen(self, wants: Wants, band: Band) -> None:
        before = self.ledger.state()
        request = a_request("what if", **wants, band=band, submitted_at=at(4))
        told = self.ledger.forecast(request, self.now)
        assert self.ledger.state() == before
        assert bool(told.hosts) is (told.refusal is None)
        assert (told.infeasible is None) is has_room(request, self.ledger.hosts.values(), ())

    def teardown(self) -> None:
        """At the end all requests are released, and every request arrives once more. Then none may
        wait or have hosts.
        """
        for key in self.asks:
            self._ends_use(key)
            self.ledger.forget(key)
        for ask in self.asks.values():
            ask()
        assert not self._pass().placed
        assert not self.ledger.live
        assert not self.ledger.demand()
        assert not len(self.ledger.held)
        while self.ledger.ended_uses:
            self.a_batch_of_records_is_stored(answered=True)
        recorded = [
            (("/".join(use.id.split("/")[:3]), use.hosts, use.host_share, use.placed_at), until)
            for use in self.stored.values()
            for until in [use.ended_at]
        ]
        assert sorted(recorded) == sorted(self.used), "each placement has one record of its use"

    # What has to hold, always.

    @invariant()
    def no_host_is_given_away_twice(self) -> None:
        for host in self.ledger.hosts.values():
            free = [
                has - used
                for has, used in zip(
                    host.resources.vector, taken(host, self.ledger.live.values()), strict=True
                )
            ]
            assert min(free) >= 0, f"{host.id} is short: {free}"

    @invariant()
    def a_key_waits_or_is_held_or_has_hosts(self) -> None:
        times = Counter([*self.ledger.waiting.keys(), *self.ledger.held.keys(), *self.ledger.live])
        assert set(times.values()) <= {1}
        assert not self.released & times.keys(), "what was given back came back"
        assert self.asked.keys() - self.released - self.orphaned <= times.keys(), (
            "somebody who asked is forgotten"
        )
        assert set(self.ledger.held.keys()) == self.held & times.keys()
        assert all(
            request.band is self.band[request.key]
            for request in [*self.ledger.waiting, *self.ledger.held]
        )

    @invariant()
    def what_is_kept_follows_from_the_placements(self) -> None:
        check_kept_sums(self.ledger, self.passed_at)

    @invariant()
    def only_those_who_wait_are_demand(self) -> None:
        counted = Counter(request.shape for request in self.ledger.waiting)
        assert self.ledger.demand() == counted

    @invariant()
    def those_who_were_told_to_go_are_known_until_they_have_gone(self) -> None:
        assert set(self.ledger.evicting) == self.going

    @invariant()
    def hosts_are_closed_by_whom_they_were_closed(self) -> None:
        assert {host: closure.by for host, closure in self.ledger.closed.items()} == self.closed

    @invariant()
    def every_placement_has_a_host_in_a_life_that_is_not_over(self) -> None:
        there = {(host.id, host.incarnation) for host in self.ledger.hosts.values()}
        assert not there & self.ended
        for placement in self.ledger.live.values():
            assert any((seat.host_id, seat.incarnation) in there for seat in placement.seats)

    @invariant()
    def every_reason_is_the_true_one(self) -> None:
        for key, refusal in zip(
            self.asks, self.ledger.wait_reasons().explain_all(self.asks), strict=True
        ):
            code = refusal.code
            request = self.ledger.waiting.get(key)
            if request is not None:
                assert code in self._true_reasons(request), key
            else:
                assert code is (
                    RefusalCode.HELD if key in self.ledger.held else RefusalCode.UNKNOWN
                )

    # The story's own book-keeping.

    def _known(self, key: str) -> bool:
        return key in self.ledger.live or key in self.ledger.waiting or key in self.ledger.held

    def _asks(self, wants: Wants, user: str, band: Band) -> str:
        key = f"{user}/job:{len(self.asks)}@1/run"
        request = a_request(key, **wants, user=user, band=band, submitted_at=self.now)

        def ask() -> None:
            if not self._known(key) and key not in self.released:
                self.asked[key] = request
                self.band[key] = band
                self.held.discard(key)
                self.orphaned.discard(key)
            self.ledger.ask(request)

        self.asks[key] = ask
        ask()
        return key

    def _releases(self, key: str, spoilt_by: list[str], *, ran: bool) -> Message:
        def release() -> None:
            placement = self.ledger.live.get(key)
            if key not in self.released:
                for host in (
                    {seat.host_id for seat in placement.seats} - set(spoilt_by)
                    if placement and ran
                    else ()
                ):
                    del self.strikes[host]
                placed_at = placement.placed_at if placement else None
                for host in spoilt_by:
                    if (
                        placed_at is not None
                        and host in self.struck_at
                        and placed_at <= self.struck_at[host]
                    ):
                        continue  # the event of the last strike
                    self.struck_at[host] = self.passed_at
                    self.strikes[host] += 1
                    if self.strikes[host] >= STRIKES:
                        self.closed.setdefault(host, ClosedBy.QUARANTINE)
            self.released.add(key)
            self.going.discard(key)
            self.left.pop(key, None)
            self._ends_use(key)
            self.ledger.forget(key, spoilt_by, ran=ran)

        return release

    def _comes_up(self, name: str) -> Message:
        self.lives[name] += 1
        size, offers, says = SLICES[name]
        incarnation = f"life {self.lives[name]}"
        hosts = [
            a_host(
                f"{name}-{n}",
                offers,
                slice_id=name,
                incarnation=incarnation,
                attributes={**says, TPU_WORKER_ID: n},
            )
            for n in range(size)
        ]

        def up() -> None:
            coming = [host for host in hosts if (host.id, host.incarnation) not in self.ended]
            before = [self.ledger.hosts[host.id] for host in coming if host.id in self.ledger.hosts]
            superseded = [
                (host.id, host.incarnation) for host in before if host.incarnation != incarnation
            ]
            self._end(superseded, lambda: self.ledger.hosts_up(hosts))
            assert all(self.ledger.hosts[host.id] == host for host in coming)

        up()
        return up

    def _end(self, lives: list[tuple[str, str]], entry: Message) -> None:
        """Ends incarnations. A gang without any host left has to request hosts again."""
        self.ended.update(lives)
        before = dict(self.ledger.live)
        entry()
        gone = {
            key
            for key, placement in before.items()
            if all((seat.host_id, seat.incarnation) in self.ended for seat in placement.seats)
        }
        assert before.keys() - self.ledger.live.keys() == gone
        self.left.update({key: _hosts_of(before[key]) for key in gone})
        for key in gone:
            self._ends_use(key)
        self.orphaned |= gone
        self.going -= gone

    def _machines_are_gone(self, lives: list[tuple[str, str]]) -> None:
        """Every gang that has not released what it had there is told, and nobody else is."""
        told: list[Eviction] = []
        self._end(lives, lambda: told.extend(self.ledger.hosts_gone(lives, "gone")))
        held = [(key, _hosts_of(placement)) for key, placement in self.ledger.live.items()]
        expected = [(key, set(hosts) & set(lives)) for key, hosts in (*held, *self.left.items())]
        assert sorted((each.key, sorted(each.gone)) for each in told) == sorted(
            (key, sorted(gone)) for key, gone in expected if gone
        )

    def _open_hosts(self) -> list[Host]:
        return [
            host
            for host in self.ledger.hosts.values()
            if host.id not in self.closed
            and str(host.attributes.get(SCALE_GROUP)) not in self.paused
        ]

    def _true_reasons(self, request: Request) -> set[RefusalCode]:
        """Returns the possible reasons by trying every host, in the order of the checks."""
        live = list(self.ledger.live.values())
        if None in self.paused:
            return {RefusalCode.PAUSED}
        if not has_room(request, self.ledger.hosts.values(), ()):
            return set(INFEASIBLE)
        if not has_room(request, self._open_hosts(), ()):
            return {RefusalCode.CLOSED}
        if has_room(request, self._open_hosts(), live):
            return {RefusalCode.QUEUED, RefusalCode.KEPT}
        going = [each for each in live if each.key in self.going]
        weaker = any(each.band.rank > request.band.rank for each in going)
        if weaker and has_room(
            request, self._open_hosts(), [each for each in live if each not in going]
        ):
            return {RefusalCode.EVICTING}
        return {RefusalCode.BUSY}

    def _ends_use(self, key: str) -> None:
        if key in self.present:
            self.ending.append(self.present.pop(key))

    def _pass(self, most: int | None = None) -> Settled:
        self.used += [(use, self.now) for use in self.ending]
        self.ending.clear()
        settled = self.ledger.settle(self.now, most)
        self.passed_at = self.now
        for placement in settled.placed:
            self.present[placement.key] = _use_of(placement)
        return settled

    def _settle(self, most: int | None = None) -> Settled:
        """Runs one pass, and checks its result."""
        ledger = self.ledger
        waited = set(ledger.waiting.keys())
        settled = self._pass(most)
        placed = {placement.key for placement in settled.placed}
        assert placed <= waited
        assert set(ledger.waiting.keys()) == waited - placed
        assert None not in self.paused or not (placed or settled.evicted)
        for placement in settled.placed:
            assert ledger.live[placement.key] == placement
            self._is_whole(placement)
            self.seated[placement.key] = [seat.host_id for seat in placement.seats]
        for eviction in settled.evicted:
            victim = ledger.live[eviction.key]
            assert ledger.rules.preemption
            assert eviction.key not in self.going, "told twice"
            assert any(request.band.rank < victim.band.rank for request in ledger.waiting)
            assert victim.placed_at is not None
            assert self.now - victim.placed_at >= ledger.rules.min_run_time
            self.going.add(eviction.key)
        codes = {
            refusal.code for refusal in ledger.wait_reasons().explain_all(ledger.waiting.keys())
        }
        assert RefusalCode.QUEUED not in codes or settled.stopped, (
            "there is room, and nobody was given it"
        )
        assert RefusalCode.EVICTING in codes or not settled.evicted, (
            "somebody was evicted for nobody"
        )
        assert (
            settled.again_at is None
            or self.now < settled.again_at <= self.now + ledger.rules.min_run_time
        )
        return settled

    def _is_whole(self, placement: Placement) -> None:
        """Returns whether a gang has as many different hosts as tasks, each open and suitable, in
        equal groups that share the attribute.
        """
        request = self.asked[placement.key]
        hosts = [self.ledger.hosts[seat.host_id] for seat in placement.seats]
        assert len({host.id for host in hosts}) == request.tasks == len(hosts)
        assert {host.id for host in hosts} <= {host.id for host in self._open_hosts()}
        assert [seat.incarnation for seat in placement.seats] == [
            host.incarnation for host in hosts
        ]
        assert placement.band is self.band[placement.key]
        for host in hosts:
            assert all(each.preferred or each.holds(host.facts) for each in request.constraints)
        if request.group_by is not None:
            each = request.tasks // request.groups
            values = [host.facts[request.group_by] for host in hosts]
            assert [seat.group for seat in placement.seats] == [
                place // each for place in range(request.tasks)
            ]
            assert (
                len({*zip(values, [seat.group for seat in placement.seats], strict=True)})
                == request.groups
                == len({*values})
            )


# Each example is a story of up to fifty steps.
TestDelivery = Delivery.TestCase
TestDelivery.settings = settings(
    max_examples=examples(80),
    stateful_step_count=50,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
