"""Turns between users with equal use: recent use decides, and the reported reasons agree with the
next pass.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from math import log2
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris.model.host.hosts import Host
from iris.model.job.requests import Request
from iris.model.job.spec import Band
from iris.model.rules import Rules
from iris.scheduling.ledger.codec import LedgerState
from iris.scheduling.ledger.ended_uses import EndedUsesState
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.ledger.reason_changes import reason_changes
from iris.scheduling.placement.recent_use import HALF_LIFE, MOST_ACCOUNTS
from iris.scheduling.placement.refusals import Refusal
from iris.scheduling.reasons.queue_position import MOST_NAMED
from tests.builders import CHIPS, a_gang, a_host, a_request, a_slice, at, some
from tests.oracle import could_serve, fits, held_on
from tests.strategies import CHEAP, examples

SOME = settings(CHEAP, max_examples=examples(30))
#: Each is a long story.
FEW = settings(CHEAP, max_examples=examples(12))

seeds = st.integers(0, 2**32).map(Random)
HOUR = 3600.0


def a_ledger(slices: int = 1, hosts: int = 4, rules: Rules | None = None) -> Ledger:
    """A ledger with this number of slices."""
    ledger = Ledger(LedgerState(rules=rules or Rules()))
    for number in range(slices):
        ledger.hosts_up(a_slice(f"s{number}", hosts))
    return ledger


def gangs(user: str, count: int, since: float = 0, **changes: object) -> list[Request]:
    """Gangs over all hosts of a slice, submitted a second apart."""
    return [
        a_gang(f"{user}-{n}", user=user, submitted_at=at(since + n), **changes)
        for n in range(count)
    ]


def ask(ledger: Ledger, requests: Iterable[Request]) -> None:
    for request in requests:
        ledger.ask(request)


def turns(ledger: Ledger, count: int, lasts: float, now: float = 100) -> list[str]:
    """Returns the users whose gangs run, one after another, each on all hosts for some seconds."""
    order = []
    for _ in range(count):
        (placement,) = ledger.settle(at(now)).placed
        order.append(placement.user)
        now += lasts
        ledger.forget(placement.key)
    return order


@pytest.mark.parametrize("lasts", [0, 0.5, 60, 3 * HOUR, 90 * HOUR])
def test_one_gang_of_another_user_comes_second_and_not_last(lasts: float) -> None:
    """Each gang has all hosts, so nobody holds anything when the next one is chosen; by age alone
    the other's came eleventh.
    """
    ledger = a_ledger()
    ask(ledger, [*gangs("many", 10), *gangs("one", 1, since=50)])

    assert turns(ledger, 11, lasts) == ["many", "one", *["many"] * 9]


def test_every_user_has_a_turn_before_anybody_has_two() -> None:
    """A user without any use comes before all others, however long they have waited."""
    ledger = a_ledger()
    ask(ledger, [*gangs("a", 5), *gangs("b", 5, since=10), *gangs("c", 5, since=20)])

    order = turns(ledger, 15, lasts=3 * HOUR)

    assert all(sorted(order[start : start + 3]) == ["a", "b", "c"] for start in range(0, 15, 3))


def test_use_is_what_is_held_over_time_and_not_the_number_of_turns() -> None:
    """A user with gangs of three hours and one with gangs of twenty minutes get the same time."""
    ledger, now, ran = a_ledger(), 100.0, {"long": 0.0, "short": 0.0}
    ask(ledger, [*gangs("long", 40), *gangs("short", 300)])

    while now < 150 * HOUR:
        (placement,) = ledger.settle(at(now)).placed
        lasts = 3 * HOUR if placement.user == "long" else HOUR / 3
        ran[placement.user] += lasts
        now += lasts
        ledger.forget(placement.key)

    assert 0.85 < ran["long"] / ran["short"] < 1.18


def test_old_use_counts_less_than_new_use_by_half_a_half_life() -> None:
    """Otherwise last month's use would delay a user for ever."""
    for days, first in ((0.9, "new"), (1.1, "old")):
        ledger = a_ledger()
        ask(ledger, gangs("old", 1))
        turns(ledger, 1, lasts=2 * HOUR, now=0)
        ledger.settle(at(2 * HOUR))
        later = 2 * HOUR + days * HALF_LIFE.total_seconds()
        ask(ledger, gangs("new", 1))
        turns(ledger, 1, lasts=HOUR, now=later - HOUR)
        ledger.settle(at(later))

        ask(
            ledger,
            [
                a_gang("x", user="old", submitted_at=at(later)),
                a_gang("y", user="new", submitted_at=at(later)),
            ],
        )

        assert turns(ledger, 1, lasts=1, now=later) == [first]


def test_a_gang_that_still_runs_counts_as_if_it_had_ended() -> None:
    """Of two users with equal use, the user whose gang has run for longer is served later."""
    ledger = a_ledger(slices=3)
    ask(ledger, gangs("long", 1))
    ledger.settle(at(0))
    ask(ledger, gangs("short", 1))
    ledger.settle(at(9 * HOUR))

    ask(
        ledger,
        [
            a_gang("x", user="long", submitted_at=at(9 * HOUR)),
            a_gang("y", user="short", submitted_at=at(9.5 * HOUR)),
        ],
    )

    assert [placement.user for placement in ledger.settle(at(9.8 * HOUR)).placed] == ["short"]


def test_batch_work_does_not_count_in_stronger_bands() -> None:
    """A night of batch work costs its user no interactive turn."""
    ledger = a_ledger()
    ask(ledger, gangs("night", 1, band=Band.BATCH))
    turns(ledger, 1, lasts=9 * HOUR, now=0)
    ask(ledger, gangs("day", 1))
    turns(ledger, 1, lasts=HOUR, now=9 * HOUR)
    both = [("night", Band.INTERACTIVE), ("day", Band.INTERACTIVE)]

    ask(
        ledger,
        [
            a_gang(f"{user} 2", user=user, band=band, submitted_at=at(0))
            for user, band in reversed(both)
        ],
    )

    assert turns(ledger, 2, lasts=1, now=11 * HOUR) == ["night", "day"]


def test_a_band_that_is_changed_while_a_gang_runs_pays_only_for_its_own_time() -> None:
    """Else a job that is made batch in its last second would have cost its user nothing, or twice
    as much.
    """
    ledger = a_ledger()
    ask(ledger, gangs("moved", 1))
    ledger.settle(at(0))
    ledger.settle(at(3 * HOUR))
    ledger.amend("moved-0", Band.BATCH, held=False, changed_at=at(0))
    ledger.settle(at(3 * HOUR))
    ledger.forget("moved-0")
    ledger.settle(at(6 * HOUR))
    for user, hours, begin in (("two", 2, 6), ("four", 4, 8)):
        ask(ledger, gangs(user, 1))
        turns(ledger, 1, lasts=hours * HOUR, now=begin * HOUR)
        ledger.settle(at((begin + hours) * HOUR))

    users = ("four", "moved", "two")
    ask(
        ledger,
        [
            a_gang(f"{user} 2", user=user, submitted_at=at(number))
            for number, user in enumerate(users)
        ],
    )

    assert turns(ledger, 3, lasts=1, now=12 * HOUR) == ["two", "moved", "four"]


def test_a_gang_that_loses_one_host_after_the_other_pays_for_each_until_then() -> None:
    """Hosts of a gang may come free one by one; what is left goes on, and its time must not be paid
    twice.
    """
    ledger = a_ledger()
    ask(ledger, gangs("parts", 1))
    ledger.settle(at(0))
    for number in range(4):
        ledger.vacate("parts-0", f"s0-{number}", "first")
        ledger.settle(at(HOUR))
    for user, hours, begin in (("less", 0.9, 1), ("more", 1.2, 2)):
        ask(ledger, gangs(user, 1))
        turns(ledger, 1, lasts=hours * HOUR, now=begin * HOUR)
        ledger.settle(at((begin + hours) * HOUR))

    users = ("more", "parts", "less")
    ask(
        ledger,
        [
            a_gang(f"{user} 2", user=user, submitted_at=at(number))
            for number, user in enumerate(users)
        ],
    )

    assert turns(ledger, 3, lasts=1, now=4 * HOUR) == ["less", "parts", "more"]


def test_short_jobs_do_not_make_their_user_owed_a_turn() -> None:
    """A user who got a placement within the hour is not overdue, although it has ended."""
    ledger = a_ledger()
    ledger.hosts_up([a_host("gpus", some(cpu=8, device="gpu:H100:8")), a_host("h1", some(1))])
    ledger.ask(a_request("week", some(cpu=1, device="gpu:H100:8"), user="week"))
    ledger.settle(at(0))
    ask(ledger, [a_request(f"week {n}", user="week", submitted_at=at(n)) for n in range(9)])
    ledger.settle(at(9 * HOUR))
    ledger.forget("week 0")

    ledger.ask(a_request("new", user="new", submitted_at=at(9 * HOUR)))
    ledger.ask(a_request("held by new", some(cpu=7), user="new", submitted_at=at(9 * HOUR)))

    assert [placement.key for placement in ledger.settle(at(9 * HOUR + 60)).placed] == ["new"]


def test_accounts_are_the_same_in_the_next_run_of_the_scheduler() -> None:
    """The scheduler continues as new every few minutes, also between an end and the pass that
    charges it.
    """
    for settled in (True, False):
        ledger = a_ledger()
        ask(ledger, [*gangs("many", 3), *gangs("one", 1, since=50)])
        turns(ledger, 1, lasts=HOUR, now=100)
        if settled:
            ledger.settle(at(100 + HOUR), most=0)

        again = Ledger(LedgerState.model_validate_json(ledger.state().model_dump_json()))

        assert (
            turns(again, 3, lasts=60, now=200 + HOUR)
            == turns(ledger, 3, lasts=60, now=200 + HOUR)
            == ["one", "many", "many"]
        )


def test_accounts_stay_few_and_the_largest_are_kept() -> None:
    """The ledger must fit into one payload, under however many names users submit."""
    ledger = Ledger()
    ledger.hosts_up([a_host("h1", some(cpu=MOST_ACCOUNTS * 2))])
    for number in range(MOST_ACCOUNTS + 50):
        ledger.ask(a_request(f"k{number}", user=f"user-{number:05}", submitted_at=at(0)))
    ledger.settle(at(0))
    for number in range(MOST_ACCOUNTS + 50):
        ledger.forget(f"k{number}")
        ledger.settle(at(10 + number))

    state = ledger.state().model_copy(update={"ended_uses": EndedUsesState()})

    assert len(state.model_dump_json()) - len(Ledger().state().model_dump_json()) < 250_000
    kept = [user for users in state.recent_use.accounts.values() for user in users]
    assert kept == [f"user-{number:05}" for number in range(50, MOST_ACCOUNTS + 50)]


def test_an_account_that_has_become_negligible_is_dropped() -> None:
    """A user who has not used the cluster for months counts as new, and costs no space."""
    ledger = a_ledger()
    ask(ledger, gangs("gone", 1))
    turns(ledger, 1, lasts=100 * HOUR, now=0)
    ledger.settle(at(100 * HOUR))
    assert ledger.state().recent_use.accounts

    ledger.settle(at(0) + 60 * HALF_LIFE)

    assert not ledger.state().recent_use.accounts


# What users are told.


def explained(ledger: Ledger, key: str, now: float) -> Refusal:
    return ledger.explain(key, at(now))


def test_users_are_told_the_order_of_the_next_pass_and_its_reason() -> None:
    """By what is held at this moment the other's gang was always the first, and never came."""
    ledger = a_ledger()
    ask(ledger, gangs("bob", 2))
    turns(ledger, 1, lasts=12 * HOUR, now=0)
    ask(ledger, gangs("ada", 3, since=12 * HOUR))
    assert ledger.settle(at(13 * HOUR)).placed[0].user == "ada"

    told = {key: explained(ledger, key, 14 * HOUR) for key in ("ada-1", "bob-1")}

    assert told["ada-1"].ahead == 0
    assert "first in the queue of band interactive" in told["ada-1"].message
    assert told["bob-1"].ahead > 0
    assert (
        "ada comes first when the gangs that block this one have ended: has recently used "
        in told["bob-1"].message
    )
    assert " accelerator-hours, bob " in told["bob-1"].message
    ledger.forget("ada-0")
    assert [placement.key for placement in ledger.settle(at(14 * HOUR)).placed] == ["ada-1"]


def test_the_numbers_of_a_reason_are_hours_of_accelerators_or_of_cores() -> None:
    """Users do not know what a weight of 4,020,000 means."""
    ledger = Ledger()
    ledger.hosts_up([a_host("h1", some(cpu=4))])
    for user, hours, begin in (("bob", 2, 0), ("ada", 1, 2)):
        ledger.ask(a_request(user, some(cpu=4), user=user, submitted_at=at(0)))
        turns(ledger, 1, lasts=hours * HOUR, now=begin * HOUR)
        ledger.settle(at((begin + hours) * HOUR))
    ledger.ask(a_request("running", some(cpu=4), user="eve", submitted_at=at(0)))
    ledger.settle(at(3 * HOUR))
    ledger.ask(a_request("ada 2", some(cpu=4), user="ada", submitted_at=at(3 * HOUR)))
    ledger.ask(a_request("bob 2", some(cpu=4), user="bob", submitted_at=at(3 * HOUR)))

    message = explained(ledger, "bob 2", 3 * HOUR).message

    assert message.endswith(
        "1 request ahead of it in band interactive and above; "
        "ada comes first: has recently used 3.9 core-hours, bob 7.6 (use counts half after a day)"
    )


def test_who_holds_less_comes_first_and_is_named_with_the_numbers() -> None:
    """Current use counts before recent use, and is shown in the same units."""
    ledger = a_ledger(slices=3)
    ask(ledger, [*gangs("bob", 2), *gangs("eve", 1)])
    ledger.settle(at(0))
    ask(
        ledger,
        [
            a_gang("bob 3", user="bob", submitted_at=at(1)),
            a_gang("ada", user="ada", submitted_at=at(2)),
        ],
    )
    ledger.settle(at(3))

    assert explained(ledger, "ada", 3).ahead == 0
    assert (
        "ada comes first: holds the equivalent of 0 accelerators, bob "
        in explained(ledger, "bob 3", 3).message
    )


WANTS = [some(1), some(2), some(4), CHIPS, some(device="tpu:auto:2")]


def frees(hosts: Sequence[Host], request: Request) -> bool:
    """Returns whether the request waits for exactly these hosts: one host, one slice, or all
    slices.
    """
    if request.group_by is None:
        return len(hosts) == 1 and could_serve(hosts[0], request)
    slices = {host.slice_id for host in hosts if could_serve(host, request)}
    return len(hosts) == 2 * len(slices) and request.groups == len(slices)


@CHEAP
@given(seeds, st.integers(5, 40))
def test_whatever_is_called_the_first_is_what_the_next_pass_places_if_it_fits(
    random: Random, steps: int
) -> None:
    """That holds whichever host or slice becomes free before the pass."""
    ledger = a_ledger(slices=2, hosts=2, rules=Rules(preemption=False, patience=timedelta(days=99)))
    ledger.hosts_up([a_host("h1", some(cpu=4)), a_host("h2", some(cpu=4))])
    now, number = 0.0, 0
    for _ in range(steps):
        now += random.choice([0, 0.3, 30, 3000, 20_000, 100_000])
        for _ in range(random.choice([0, 1, 3])):
            number += 1
            settings = {
                "user": random.choice("abc"),
                "submitted_at": at(now),
                "band": random.choice([*Band, Band.INTERACTIVE]),
            }
            if random.random() < 0.5:
                groups = random.choice([1, 1, 2])
                ledger.ask(a_gang(f"k{number:03}", 2 * groups, groups=groups, **settings))
            else:
                ledger.ask(a_request(f"k{number:03}", random.choice(WANTS), **settings))
        ledger.settle(at(now))
        now += random.choice([0, 5000, 50_000])
        waiting = list(ledger.waiting)
        told = {request.key: ledger.explain(request.key, at(now)) for request in waiting}
        hosts = list(ledger.hosts.values())
        free = random.choice(
            [[hosts[0]], [hosts[3]], [hosts[4]], [hosts[5]], hosts[:2], hosts[2:4], hosts[:4]]
        )
        there = sorted(
            {placement.key for host in free for placement in held_on(host, ledger.live.values())}
        )
        for key in random.sample(there, random.randint(0, len(there))):
            ledger.forget(key)
        firsts = [
            request for request in waiting if "first in the queue" in told[request.key].message
        ]
        assert all(told[request.key].ahead == 0 for request in firsts)
        before = list(ledger.live.values())
        served = {
            request.key
            for request in firsts
            if frees(free, request) and fits(ledger.host_index, request, before)
        }
        assert served <= {placement.key for placement in ledger.settle(at(now)).placed}


@pytest.mark.parametrize("lasts", [60, 3 * HOUR])
def test_with_one_gang_at_a_time_somebody_is_told_to_be_the_first_and_is(lasts: float) -> None:
    """The answer that is always right by saying nothing is of no use: here it is certain what has
    to end.
    """
    ledger, now = a_ledger(), 100.0
    ask(ledger, [*gangs("a", 6), *gangs("b", 3, since=20), *gangs("c", 1, since=40)])
    (running,) = ledger.settle(at(now)).placed
    for _ in range(9):
        now += lasts
        waiting = ledger.waiting.keys()
        (first,) = [
            key for key in waiting if "first in the queue" in explained(ledger, key, now).message
        ]
        told = {key: explained(ledger, key, now) for key in waiting}
        in_order = [
            request.task
            for request in sorted(ledger.waiting, key=lambda request: told[request.key].ahead)
        ]
        assert sorted(refusal.ahead for refusal in told.values()) == list(
            range(len(ledger.waiting))
        )
        # Each one is told who is before it, as far as names are of use.
        assert all(
            list(refusal.ahead_first) == in_order[: min(refusal.ahead, MOST_NAMED)]
            for refusal in told.values()
        )
        ledger.forget(running.key)
        (running,) = ledger.settle(at(now)).placed
        assert running.key == first


# Over a long time.


class Shared:
    """A cluster with many users: every hour gangs end, users submit, and a pass runs."""

    def __init__(self, random: Random, slices: int) -> None:
        self.random, self.ledger, self.now, self.number = random, a_ledger(slices), at(0), 0
        self.ends: dict[str, datetime] = {}
        self.held: dict[str, float] = {}
        self.waits = Counter[str]()
        self.started: dict[str, datetime] = {}

    def submit(self, user: str, count: int = 1) -> None:
        self.waits[user] += count
        for _ in range(count):
            self.number += 1
            self.ledger.ask(a_gang(f"{user}-{self.number:05}", user=user, submitted_at=self.now))

    def step(self, most_hours: int) -> list[str]:
        """Simulates an hour, and returns the users whose gangs were placed."""
        self.now += timedelta(hours=1)
        for key in [key for key, end in self.ends.items() if end <= self.now]:
            del self.ends[key]
            self.ledger.forget(key)
        placed = self.ledger.settle(self.now).placed
        for placement in placed:
            hours = self.random.randint(1, most_hours)
            self.ends[placement.key] = self.now + timedelta(hours=hours)
            self.held[placement.user] = self.held.get(placement.user, 0) + hours
            self.started.setdefault(placement.user, self.now)
            self.waits[placement.user] -= 1
        return [placement.user for placement in placed]


@FEW
@given(seeds, st.integers(2, 4), st.integers(1, 3), st.sampled_from([1, 8]))
def test_users_who_always_want_more_get_near_equal_shares(
    random: Random, users: int, slices: int, most_hours: int
) -> None:
    """However many gangs each has waiting, and however long each of them runs."""
    cluster, names = Shared(random, slices), "abcd"[:users]
    for _ in range(24 * 10):
        for number, user in enumerate(names):
            if cluster.waits[user] < slices:
                cluster.submit(user, slices + 5 * number)
        cluster.step(most_hours)

    shares = [cluster.held[user] / sum(cluster.held.values()) for user in names]

    assert max(shares) - min(shares) < 0.1


@SOME
@given(seeds, st.integers(1, 2), st.integers(0, 9))
def test_who_has_used_nothing_is_behind_nobody_who_has(
    random: Random, slices: int, backlog: int
) -> None:
    """A new user gets the next slice that becomes free."""
    cluster = Shared(random, slices)
    for _ in range(random.randint(20, 100)):
        for user in "ab":
            if cluster.waits[user] <= backlog:
                cluster.submit(user, backlog + 1)
        cluster.step(8)

    cluster.submit("new")
    placed: list[str] = []
    while not placed:
        placed = cluster.step(8)

    assert placed[0] == "new"


@FEW
@given(seeds, st.integers(1, 4))
def test_who_had_all_of_the_cluster_for_days_is_served_again_soon(
    random: Random, others: int
) -> None:
    """Recent use makes a user wait until the others have caught up, and never for ever, though
    these never stop asking.
    """
    cluster, names = Shared(random, 1), "abcd"[:others]
    for _ in range(24 * 4):
        if not cluster.waits["all"]:
            cluster.submit("all", 2)
        cluster.step(4)
    del cluster.started["all"]
    cluster.submit("all")

    hours = 0
    while "all" not in cluster.started:
        for user in names:
            if not cluster.waits[user]:
                cluster.submit(user)
        cluster.step(4)
        hours += 1
        # Each of n others has as much as the first when that is halved log2(n + 1) times; the rest
        # is for a gang of each user.
        assert hours <= HALF_LIFE / timedelta(hours=1) * log2(others + 1) + 4 * (others + 1)


def test_changed_reasons_have_the_positions_that_an_explanation_has() -> None:
    """A page of the Web UI says the same as the command, at that moment."""
    ledger = a_ledger(slices=3)
    ask(ledger, [*gangs("bob", 5), *gangs("eve", 4), *gangs("ada", 3)])
    ledger.settle(at(0))
    waiting = ledger.waiting.keys()
    reasons = ledger.wait_reasons()
    changes, _ = reason_changes(ledger, {})
    found = reasons.with_positions((change.refusal, change.requests) for change in changes)

    assert len(waiting) == 9
    assert found == dict(zip(waiting, reasons.explain_all(waiting), strict=True))


def test_positions_that_would_take_too_long_are_left_out_of_changed_reasons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The scheduler answers nobody meanwhile, and each replay of its history repeats it."""
    monkeypatch.setattr("iris.scheduling.reasons.explain.MOST_COMPARED", 1)
    ledger = a_ledger(slices=1)
    ask(ledger, [*gangs("bob", 2), *gangs("eve", 2), *gangs("ada", 2)])
    ledger.settle(at(0))
    changes, _ = reason_changes(ledger, {})
    found = ledger.wait_reasons().with_positions(
        (change.refusal, change.requests) for change in changes
    )

    assert (
        len(
            {
                request.user
                for change in changes
                for request in change.requests
                if request.key in found
            }
        )
        == 1
    )
