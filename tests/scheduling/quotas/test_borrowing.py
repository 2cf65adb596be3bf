"""Properties of quotas, whatever is asked and released: nothing is exceeded but by borrowing, and
what was borrowed is given back.
"""

from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from iris.model.job.spec import Band
from iris.model.quotas import QuotaRules
from iris.scheduling.ledger.codec import LedgerState
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.ledger.settled import Settled
from tests.builders import at
from tests.scheduling.ledger.kept_sums import check_kept_sums
from tests.scheduling.quotas.world import (
    USERS,
    a_ledger,
    a_quota,
    amounts,
    ask,
    held,
    quotas,
    running,
)
from tests.strategies import examples

_AMOUNTS = st.dictionaries(
    st.sampled_from(("cpus", "hosts", "limits.licence")), st.integers(0, 6), min_size=1
)


def _in_units(found: dict[str, int]) -> dict[str, int]:
    return {each: 1000 * count if each == "cpus" else count for each, count in found.items()}


@st.composite
def _rules(draw: st.DrawFn) -> QuotaRules:
    """Two teams of a cohort, and sometimes a user and a tag besides."""
    found = []
    for team in ("vision", "speech"):
        nominal = _in_units(draw(_AMOUNTS))
        parts = st.fixed_dictionaries(
            {}, optional={each: st.integers(0, most) for each, most in nominal.items()}
        )
        found.append(a_quota(team, nominal, cohort="lab", lend=draw(parts), borrow=draw(parts)))
    if draw(st.booleans()):
        found.append(a_quota("ada", _in_units(draw(_AMOUNTS)), user="ada"))
    if draw(st.booleans()):
        found.append(a_quota("sweeps", _in_units(draw(_AMOUNTS)), tag="kind=sweep"))
    return quotas(*found, licence=draw(st.integers(0, 5)))


class _Story:
    """One cluster, and what is drawn to happen to it."""

    def __init__(self, data: st.DataObject) -> None:
        self._draw = data.draw
        self.rules = data.draw(_rules())
        self.ledger = a_ledger(self.rules, data.draw(st.integers(1, 3)), cpu=4)
        self.now: datetime = at(0)
        self._number = 0

    def goes_on(self) -> None:
        draw = self._draw
        self._number += 1
        keys = sorted(self.ledger.live)
        if keys and draw(st.integers(0, 3)) == 0:
            self.ledger.forget(draw(st.sampled_from(keys)))
            return
        ask(
            self.ledger,
            f"j{self._number}",
            draw(st.sampled_from(USERS)),
            draw(st.sampled_from((1, 2, 3))),
            draw(st.sampled_from(Band)),
            (self.now - at(0)).total_seconds(),
            draw(st.sampled_from(((), ("kind=sweep",)))),
            **draw(st.sampled_from(({}, {}, {"licence": 1}, {"licence": 2}))),
        )

    def passes(self) -> Settled:
        self.now += timedelta(seconds=self._draw(st.sampled_from((1, 200, 5000))))
        return self.ledger.settle(self.now, self._draw(st.sampled_from((None, 1))))

    def is_read_again(self) -> None:
        """Begins a new run of the scheduler."""
        text = self.ledger.state().model_dump_json()
        self.ledger = Ledger(LedgerState.model_validate_json(text))


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_no_quota_is_exceeded_but_by_what_is_borrowed(data: st.DataObject) -> None:
    """Nor is a named limit ever oversubscribed, across runs of the scheduler."""
    story = _Story(data)
    for _ in range(data.draw(st.integers(1, 20))):
        story.goes_on()
        if data.draw(st.booleans()):
            story.passes()
            _check(story.rules, story.ledger)
            check_kept_sums(story.ledger, story.now)
        if data.draw(st.integers(0, 9)) == 9:
            story.is_read_again()


def _check(rules: QuotaRules, ledger: Ledger) -> None:
    live = list(ledger.live.values())
    taken = sum(dict(each.claim.limits).get("licence", 0) for each in live)
    assert taken <= rules.limits["licence"]
    pools: dict[str, list[int]] = {}
    for rule in rules.quotas:
        used = held(rule, live)
        for resource, nominal in rule.nominal.items():
            if not rule.cohort:
                assert used[resource] <= nominal
                continue
            if resource in rule.borrow:
                assert used[resource] <= nominal + rule.borrow[resource]
            lent = rule.lend.get(resource, nominal)
            pool = pools.setdefault(resource, [0, 0])
            pool[0] += max(0, used[resource] - (nominal - lent))
            pool[1] += lent
    assert all(held_above <= lent for held_above, lent in pools.values())


@given(st.data())
@settings(max_examples=examples(200), deadline=None)
def test_nobody_within_the_nominal_amounts_is_evicted_for_another_quota(
    data: st.DataObject,
) -> None:
    """Each victim was above them, even if it had been the last one of its quota to leave."""
    story = _Story(data)
    for _ in range(data.draw(st.integers(5, 25))):
        story.goes_on()
        if data.draw(st.booleans()):
            going = set(story.ledger.evicting)
            evicted = [each for each in story.passes().evicted if "borrowed" in each.reason]
            _check_victims(story, going, {each.key for each in evicted})
        if story.ledger.evicting and data.draw(st.booleans()):
            story.ledger.forget(next(iter(story.ledger.evicting)))


def _check_victims(story: _Story, going: set[str], victims: set[str]) -> None:
    live = {key: each for key, each in story.ledger.live.items() if key not in going}
    for rule in story.rules.quotas:
        for key in victims:
            others = [each for other, each in live.items() if other not in victims - {key}]
            if not rule.cohort or not held(rule, [live[key]]):
                continue
            used, own = held(rule, others), amounts(live[key])
            assert any(
                used[resource] > nominal and own.get(resource)
                for resource, nominal in rule.nominal.items()
            )


@given(
    nominal=st.integers(1, 6),
    others=st.integers(1, 6),
    wants=st.lists(st.sampled_from((1, 2)), min_size=1, max_size=6),
    bands=st.tuples(st.sampled_from(Band), st.sampled_from(Band)),
    spare=st.integers(0, 2),
)
@settings(max_examples=examples(200), deadline=None)
def test_whoever_has_unused_nominal_gets_it_back(
    nominal: int, others: int, wants: list[int], bands: tuple[Band, Band], spare: int
) -> None:
    """However the bands are, and although the evicted gangs ask again at once."""
    rules = quotas(
        a_quota("vision", {"cpus": 1000 * nominal}, cohort="lab"),
        a_quota("speech", {"cpus": 1000 * others}, cohort="lab"),
    )
    ledger = a_ledger(rules, nominal + others + spare, cpu=2)
    for number in range(nominal + others + spare):
        ask(ledger, f"b{number}", "cy", band=bands[0], seconds=number)
    ledger.settle(at(50))
    assert len(ledger.live) == nominal + others

    for number, cpu in enumerate(wants):
        ask(ledger, f"a{number}", "ada", cpu, band=bands[1], seconds=100 + number)
    now = 200.0
    for turn in range(2 * len(wants) + 2):
        for each in ledger.settle(at(now)).evicted:
            ledger.forget(each.key)
            ask(
                ledger,
                f"again{turn}-{each.key[3:].partition('@')[0]}",
                "cy",
                band=bands[0],
                seconds=now,
            )
        now += 10

    least = min(wants)
    used = sum(each.resources.cpu_millis for each in ledger.live.values() if each.user == "ada")
    left = [each.resources.cpu_millis for each in ledger.waiting if each.user == "ada"]
    assert all(used + cpu > 1000 * nominal for cpu in left) or least > nominal
    assert sum(each.user == "cy" for each in ledger.live.values()) >= min(
        others, nominal + others - used // 1000
    )


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_quotas_that_nobody_reaches_change_no_decision(data: st.DataObject) -> None:
    much = {"cpus": 10**9, "hosts": 10**6}
    ledgers = [
        a_ledger(rules, 2, cpu=4) for rules in (quotas(), quotas(a_quota("x", much, user="*")))
    ]
    now = 0.0
    for number in range(data.draw(st.integers(1, 25))):
        if data.draw(st.integers(0, 3)) == 0 and ledgers[0].live:
            key = data.draw(st.sampled_from(sorted(ledgers[0].live)))
            for ledger in ledgers:
                ledger.forget(key)
        user, cpu, band = (
            data.draw(st.sampled_from(USERS)),
            data.draw(st.sampled_from((1, 2, 3))),
            data.draw(st.sampled_from(Band)),
        )
        now += data.draw(st.sampled_from((1, 300, 4000)))
        for ledger in ledgers:
            ask(ledger, f"j{number}", user, cpu, band, now)
        one, other = (ledger.settle(at(now)) for ledger in ledgers)
        assert (one.placed, one.evicted, one.again_at) == (
            other.placed,
            other.evicted,
            other.again_at,
        )
    assert running(ledgers[0]) == running(ledgers[1])
    assert ledgers[0].demand() == ledgers[1].demand()
