"""No valid request stops other users: with the largest possible requests, everything that the
scheduler sends fits, and every pass ends.
"""

from collections.abc import Sequence
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from iris.messages.scheduler import (
    Amend,
    Answers,
    Ask,
    Batch,
    EvictionNotices,
    Message,
    Notices,
    Reason,
    Reasons,
    Release,
    SchedulerStart,
    SliceUp,
    SnapshotPage,
)
from iris.messages.wire import HostLost
from iris.model.host.constraints import Constraint, Operator
from iris.model.host.hosts import Host
from iris.model.host.resources import Resources
from iris.model.job.demand_limits import fitting, size_of
from iris.model.job.requests import Placement
from iris.model.job.spec import Band
from iris.model.rules import Rules
from iris.model.units import GIB
from iris.planners.demand import wanted_of
from iris.planners.ledger_messages import MAX_PLACEMENTS, Served, enter, serve
from iris.scheduling.ledger.codec import LedgerState
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.ledger.reason_changes import reason_changes
from iris.scheduling.ledger.size import MOST_KINDS, MOST_OF_ONE_USER, LedgerSize
from iris.scheduling.placement import place, preemption
from iris.scheduling.placement.host_index import covers
from iris.scheduling.placement.preemption import Eviction
from iris.scheduling.placement.refusals import RefusalCode
from iris.workflows.scheduler import unsent_signals
from iris.workflows.scheduler.scheduler_views import owners_of, snapshot_of
from tests.builders import NOON, a_host, a_request, a_slice, at, demands, some
from tests.hostile_sizes import PAYLOAD, a_hostile_spec, a_name, a_request_for, travels
from tests.scaling_world import a_cpu_group, a_group
from tests.scheduling.placement.test_effort import lines_of
from tests.strategies import examples

#: The most work of one batch and its pass in a ledger of this size, in looks: about two seconds
#: would be seven millions.
MOST_LOOKS = place.MAX_LOOKS + preemption.MAX_LOOKS + 1_000_000
#: A request of this user is small, and hosts are not reserved for others.
HONEST = "honest"
IMPATIENT_FOR_NOBODY = Rules(patience=timedelta(days=300), min_run_time=timedelta(0))


class Scheduler:
    """The scheduler's workflow without Temporal. It enters batches, and measures everything that it
    would send.
    """

    def __init__(self, random: Random, users: int) -> None:
        self.random = random
        self.ledger = Ledger(
            LedgerState(rules=IMPATIENT_FOR_NOBODY, groups=[a_group(), a_cpu_group()])
        )
        self.size = LedgerSize(2_000)
        self.users = [a_name(random) for _ in range(users)]
        self.now = NOON
        self.number = 0
        self.told: dict[str, str] = {}
        self.notices: dict[str, Placement] = {}
        self.evictions: dict[str, Eviction] = {}

    def asks(self, count: int) -> list[Ask]:
        return [self._ask() for _ in range(count)]

    def _ask(self) -> Ask:
        self.number += 1
        spec = a_hostile_spec(self.random, self.number, self.random.choice(self.users))
        return Ask(request=a_request_for(spec, self.number / 10))

    def send(self, messages: Sequence[Message]) -> None:
        """Sends messages in batches, as the outbox does."""
        left = list(messages)
        while left:
            batch = fitting(((each, size_of(each)) for each in left), 500)
            left = left[len(batch) :]
            assert travels(Batch(messages=tuple(batch))) < PAYLOAD
            before = self.ledger.effort.looks
            served = serve(self.ledger, batch, self.now, whole=True, size=self.size)
            assert self.ledger.effort.looks - before < MOST_LOOKS
            self._sends(served)
            self.now += timedelta(seconds=1)

    def _sends(self, served: Served) -> None:
        assert travels(Answers(answers=served.answers)) < PAYLOAD
        assert served.settled is not None
        self.notices.update((each.key, each) for each in served.notices)
        self.evictions.update((each.key, each) for each in served.settled.evicted)

    def settle(self) -> None:
        """Runs passes until one does not stop at its limit. Few are needed, however many shapes
        wait.
        """
        for _ in range(100):
            settled = self.ledger.settle(self.now, MAX_PLACEMENTS)
            self.notices.update((each.key, each) for each in settled.placed)
            self.evictions.update((each.key, each) for each in settled.evicted)
            if not settled.stopped:
                return
        raise AssertionError("the passes do not end")

    def settle_until_nothing_leaves(self) -> None:
        """Runs passes, and releases the hosts of evicted gangs, as their jobs do."""
        for _ in range(20):
            self.settle()
            leaving = [Release(key=key, ran=True) for key in self.evictions]
            if not leaving:
                return
            self.evictions.clear()
            self.send(leaving)

    def check_payloads(self) -> None:
        ledger, page = self.ledger, SnapshotPage()
        values = [
            Notices(placements=unsent_signals.batch(self.notices.values())),
            EvictionNotices(evictions=unsent_signals.batch(self.evictions.values())),
            snapshot_of(ledger, page),
            owners_of(ledger, page),
            wanted_of(ledger, self.now),
            *ledger.wait_reasons(self.now).explain_all(ledger.waiting.keys()[:20]),
        ]
        changes, self.told = reason_changes(ledger, self.told)
        reasons = [
            Reason(key=request.key, owner=request.owner, refusal=change.refusal)
            for change in changes
            for request in change.requests
        ]
        values.append(Reasons(reasons=unsent_signals.batch(reasons)))
        for value in values:
            assert travels(value) < PAYLOAD, type(value)

    def continue_as_new(self) -> None:
        start = SchedulerStart(
            cluster="c",
            ledger=self.ledger.state(),
            **unsent_signals.pack(self.ledger, self.notices, self.evictions)._asdict(),
            sent_reasons=self.told,
        )
        size = travels(start)
        assert size < PAYLOAD
        read = SchedulerStart.model_validate_json(start.model_dump_json())
        self.ledger, self.size = Ledger(read.ledger), LedgerSize(size + 2_000)
        self.notices, self.evictions = unsent_signals.unpack(self.ledger, read)

    def signalled(self) -> None:
        for queue in (self.notices, self.evictions):
            for each in unsent_signals.batch(queue.values()):  # type: ignore[type-var]
                del queue[each.key]

    def free(self, host: Host) -> list[int]:
        taken = [
            each.resources.vector
            for each in self.ledger.live.values()
            for seat in each.seats
            if seat.host_id == host.id
        ]
        return [has - sum(each) for has, *each in zip(host.resources.vector, *taken, strict=True)]


@pytest.mark.long
@settings(max_examples=examples(20), deadline=None, print_blob=True)
@given(
    seed=st.integers(0, 2**32),
    users=st.integers(1, 40),
    steps=st.integers(1, 8),
    batch=st.sampled_from([3, 20, 60]),
)
def test_no_valid_request_stops_others(seed: int, users: int, steps: int, batch: int) -> None:
    """All that is sent fits; the work is bounded; and a small job of another user gets the first
    host that is free for it.
    """
    random = Random(seed)
    scheduler = Scheduler(random, users)
    scheduler.send(
        [
            SliceUp(hosts=(a_host(f"h{n}", some(4, 16, 100), attributes={"zone": "z"}),))
            for n in range(4)
        ]
    )
    for step in range(steps):
        ledger, messages = scheduler.ledger, list[Message](scheduler.asks(batch))
        keys = [*ledger.live, *ledger.waiting.keys()]
        gone = random.sample(keys, min(len(keys), random.choice([0, 2, 30])))
        messages += [
            Release(key=key, ran=True, spoilt_by=("h0",) * random.randrange(2)) for key in gone
        ]
        messages += [
            Amend(
                key=key,
                band=random.choice(list(Band)),
                held=random.random() < 0.3,
                changed_at=scheduler.now,
            )
            for key in keys[:5]
        ]
        name = f"s{random.randrange(3)}"
        life = f"life {step}"
        match random.randrange(4):
            case 0:
                messages.append(SliceUp(hosts=tuple(a_slice(name, 4, incarnation=life))))
            case 1:
                messages.append(
                    SliceUp(
                        hosts=(
                            a_host(
                                f"h{step % 6}", some(8, 16), incarnation=life, address="x" * 200
                            ),
                        )
                    )
                )
            case 2 if len(ledger.hosts) > 1:
                lost = random.choice(list(ledger.hosts.values()))
                messages.append(
                    HostLost(host_id=lost.id, incarnation=lost.incarnation, reason="x" * 500)
                )
        random.shuffle(messages)
        scheduler.send(messages)
        honest = a_request(
            f"{HONEST}/{step}:0@1/run", some(0.5), user=HONEST, submitted_at=at(step)
        )
        scheduler.send([Ask(request=honest)])
        scheduler.settle_until_nothing_leaves()
        # For gangs of higher bands ahead of it.
        kept = scheduler.ledger.explain(honest.key).code is RefusalCode.KEPT
        if honest.key not in scheduler.ledger.live and not kept:
            index = scheduler.ledger.host_index
            hosts = [index.hosts[number] for number in index.candidates(honest).hosts]
            assert not any(covers(scheduler.free(host), honest.shape.amounts) for host in hosts)
        scheduler.check_payloads()
        if random.random() < 0.5:
            scheduler.signalled()
        scheduler.continue_as_new()


# What the fuzz found.


def test_an_amount_that_is_too_large_for_a_float_is_refused() -> None:
    """The scheduler divides amounts: one request of 10**320 bytes failed its every pass."""
    for field in ("cpu_millis", "memory_bytes", "disk_bytes"):
        with pytest.raises(ValidationError, match="less than or equal to 9223372036854775807"):
            Resources(**{field: 10**320})


def _asks(shapes: Sequence[Resources | str]) -> list[Ask]:
    return [
        Ask(
            request=a_request(
                f"ada/j{number}:0@1/run",
                shape if isinstance(shape, Resources) else some(1),
                constraints=() if isinstance(shape, Resources) else demands(shape),
                user="ada",
                submitted_at=at(number / 1000),
            )
        )
        for number, shape in enumerate(shapes)
    ]


def test_amounts_of_which_none_is_smaller_than_another_are_not_compared_with_each_other() -> None:
    """To compare each of 5,000 amounts with all others took six seconds. A workflow task may take
    two.
    """

    def work(count: int) -> int:
        ledger = Ledger()
        ledger.hosts_up([a_host()])
        ledger.ask(a_request("all", some(4)))
        for ask in _asks(
            [Resources(cpu_millis=1000 + n, memory_bytes=4 * GIB - n) for n in range(count)]
        ):
            ledger.ask(ask.request)
        return lines_of(lambda: ledger.settle(NOON))

    assert work(600) < 4 * work(200)


def test_a_pass_over_many_shapes_that_fit_nowhere_stops_at_its_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hosts that failed a constraint did not count: 10,000 constraints took seconds. A round of
    passes reaches all shapes.
    """
    monkeypatch.setattr(place, "MAX_LOOKS", 20_000)
    ledger = Ledger()
    ledger.hosts_up([a_host(f"h{n}", attributes={"zone": "z"}) for n in range(50)])
    for ask in _asks([f"zone = other-{n}" for n in range(300)]):
        ledger.ask(ask.request)
    ledger.ask(a_request("last", some(1), user="bob", submitted_at=at(10)))
    passes, placed = 0, []
    while True:
        before = ledger.effort.looks
        settled = ledger.settle(at(20), MAX_PLACEMENTS)
        assert ledger.effort.looks - before < 30_000
        passes, placed = passes + 1, placed + [each.key for each in settled.placed]
        if not settled.stopped:
            break

    assert placed == ["last"]
    assert 3 < passes < 30


def test_a_search_for_victims_stops_at_its_limit_and_the_next_one_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a limit it examines every waiting shape."""
    monkeypatch.setattr(preemption, "MAX_LOOKS", 5_000)
    ledger = Ledger(LedgerState(rules=IMPATIENT_FOR_NOBODY))
    ledger.hosts_up([a_host("h1", attributes={"zone": "z"})])
    ledger.ask(a_request("batch", some(4), band=Band.BATCH))
    ledger.settle(NOON)
    for ask in _asks([f"zone = other-{n}" for n in range(200)]):
        ledger.ask(ask.request)
    ledger.ask(a_request("urgent", some(4), user="bob", submitted_at=at(10)))
    evicted: list[str] = []
    for second in range(20):
        settled = ledger.settle(at(100 + second), MAX_PLACEMENTS)
        evicted += [each.key for each in settled.evicted]
        if settled.again_at is None:
            break

    assert evicted == ["batch"]


def test_positions_are_not_computed_for_more_users_than_there_is_time_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of 500 requests of different users was compared with all users: 1,000 users took two
    seconds, 10,000 took minutes.
    """
    monkeypatch.setattr("iris.scheduling.reasons.explain.MOST_COMPARED", 1_000)
    ledger = Ledger()
    ledger.hosts_up([a_host()])
    ledger.ask(a_request("all", some(4)))
    asks = [Ask(request=a_request(f"k{n}", user=f"u{n}", submitted_at=at(n))) for n in range(200)]
    served = serve(ledger, asks, at(300), size=LedgerSize(), whole=True)
    messages = [answer.refusal.message for answer in served.answers if answer.refusal is not None]

    assert len(messages) == 200
    assert "first in the queue" in messages[0]
    assert sum("ahead of it" in message for message in messages) < 20
    assert all(message.startswith("needs 1 cpu") for message in messages)


def test_a_long_list_of_values_costs_no_more_than_a_short_one() -> None:
    """Every value was compared with every host: one request with 2,000 values took seconds at
    10,000 hosts.
    """

    def work(values: int) -> int:
        constraint = Constraint(
            key="zone", op=Operator.IN, values=tuple(f"v{n}" for n in range(values))
        )
        constraint.holds({"zone": "z"})
        return lines_of(lambda: [constraint.holds({"zone": "z"}) for _ in range(100)])

    assert work(500) <= work(2)


def test_the_number_of_kinds_of_requests_is_limited_in_all_and_for_each_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others still get in when one user has as many as possible, and so do further requests of a
    kind that waits.
    """
    monkeypatch.setattr("iris.planners.ledger_messages.MOST_KINDS", 30)
    monkeypatch.setattr("iris.planners.ledger_messages.MOST_OF_ONE_USER", 20)
    assert MOST_OF_ONE_USER < MOST_KINDS
    ledger, size = Ledger(), LedgerSize()

    def refused(user: str, count: int, first: int = 0) -> int:
        ids = [f"{user}/j{number}:0" for number in range(first, first + count)]
        asks = [
            Ask(
                request=a_request(
                    f"{id}@1/run", some(n + 1), user=user, owner=f"c/task/{id}", task=id
                )
            )
            for n, id in enumerate(ids)
        ]
        served = serve(ledger, asks, NOON, whole=True, size=size)
        return sum(
            answer.refusal is not None and answer.refusal.code is RefusalCode.LEDGER_FULL
            for answer in served.answers
        )

    assert refused("ada", 25) == 5
    assert refused("ada", 20, first=100) == 0
    assert refused("bob", 15) == 5
    assert ledger.waiting.lines == 30


@pytest.mark.long
def test_gangs_with_the_longest_names_are_refused_before_the_ledger_is_too_large() -> None:
    """Each run of the scheduler begins with a ledger that fits into a payload, up to the first
    refusals and beyond.
    """
    random = Random(0)
    scheduler = Scheduler(random, 300)
    ledger, size = scheduler.ledger, scheduler.size
    specs = [a_hostile_spec(random, n, random.choice(scheduler.users)) for n in range(4_000)]
    refused = 0
    for number in range(100_000):
        spec = specs[number % len(specs)].model_copy(update={"name": a_name(random)})
        entered = enter(
            ledger, Ask(request=a_request_for(spec, number / 10)), whole=True, size=size
        )
        refused += entered.refusal is not None
        if size.stale:
            scheduler.continue_as_new()
            ledger, size = scheduler.ledger, scheduler.size
        if refused > 1_000:
            break
    assert refused > 1_000
    assert len(ledger.waiting) > 1_000
