"""A pass has a limit. The next passes of the round reach all remaining shapes."""

from datetime import timedelta

import pytest
from pydantic import ValidationError

from iris.model.job.requests import Placement
from iris.model.job.spec import Band
from iris.model.rules import Rules
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.placement import place, preemption
from tests.builders import NOON, a_host, a_placement, a_request, at, some


def rounds(ledger: Ledger, most: int = 100) -> list[str]:
    """Returns the keys that are placed until a pass does not stop at its limit."""
    placed: list[str] = []
    for _ in range(most):
        settled = ledger.settle(NOON, 1_000)
        placed += [each.key for each in settled.placed]
        if not settled.stopped:
            return placed
    raise AssertionError(f"there was always more after {most} passes")


def test_every_shape_has_its_turn_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five hundred sizes of memory only the last fits. Some passes later it is placed."""
    monkeypatch.setattr(place, "MAX_CHECKS", 50)
    ledger = Ledger()
    ledger.hosts_up([a_host(f"h{i}", some(cpu=4, memory=1000)) for i in range(5)])
    for i in range(5):
        ledger.adopt(full(f"h{i}", i))
    for i in range(100):
        ledger.ask(a_request(f"k{i:03}", some(cpu=2, memory=1 + i), submitted_at=at(i)))
    ledger.ask(a_request("small", some(cpu=1), submitted_at=at(1_000)))

    assert rounds(ledger) == ["small"]


def full(host_id: str, number: int) -> Placement:
    return a_placement(a_host(host_id), some(cpu=3), f"full-{number}")


def test_what_becomes_free_while_a_round_goes_on_is_given_to_those_it_has_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No other event would cause a pass for them."""
    monkeypatch.setattr(place, "MAX_CHECKS", 2)
    ledger = Ledger()
    ledger.hosts_up([a_host("h1", some(cpu=4)), a_host("h2", some(cpu=8))])
    ledger.ask(a_request("holds", some(cpu=4)))
    ledger.ask(a_request("fills", some(cpu=8)))
    assert rounds(ledger) == ["fills", "holds"]
    ledger.ask(a_request("k0", some(cpu=4)))
    for i in range(1, 6):
        ledger.ask(a_request(f"k{i}", some(cpu=5 + i / 10), submitted_at=at(i)))
    assert ledger.settle(NOON, 1_000).stopped
    ledger.forget("holds")

    assert rounds(ledger) == ["k0"]


def test_nobody_is_hidden_by_stronger_gangs_for_which_no_victim_is_enough() -> None:
    """Each of the first gangs has a victim that frees too little. The gang behind them has one that
    frees enough.
    """
    ledger = Ledger()
    many = preemption.MOST_SEARCHES + 1
    for i in range(many):
        ledger.hosts_up([a_host(f"h{i}", some(cpu=8), attributes={"number": i})])
        ledger.ask(a_request(f"own-{i}", some(cpu=6), band=Band.PRODUCTION))
        ledger.ask(a_request(f"weak-{i}", some(cpu=2), band=Band.BATCH))
    ledger.hosts_up([a_host("last", some(cpu=8, device="gpu:T4:1"))])
    ledger.ask(a_request("victim", some(cpu=1, device="gpu:T4:1"), band=Band.BATCH))
    assert len(rounds(ledger)) == 2 * many + 1
    for i in range(many):
        ledger.ask(
            a_request(f"big-{i}", some(cpu=7 + i / 10), band=Band.PRODUCTION, submitted_at=at(i))
        )
    ledger.ask(
        a_request(
            "small", some(cpu=1, device="gpu:T4:1"), band=Band.PRODUCTION, submitted_at=at(100)
        )
    )

    now, evicted = NOON + timedelta(hours=1), list[str]()
    for _ in range(3):
        settled = ledger.settle(now, 1_000)
        evicted += [each.key for each in settled.evicted]
        if settled.again_at is None:
            break
        now = settled.again_at
    assert evicted == ["victim"]


@pytest.mark.parametrize("rule", ["patience", "owed_after", "min_run_time"])
def test_a_rule_that_no_clock_can_reckon_with_is_refused(rule: str) -> None:
    """It would make every pass of the scheduler fail."""
    for time in (timedelta(days=999_999), timedelta(seconds=-1)):
        with pytest.raises(ValidationError, match=rule):
            Rules(**{rule: time})


def test_a_reservation_stays_with_its_host_when_the_hosts_change_during_a_round() -> None:
    """Hosts are numbered, and the loss of one changes the numbers of others: a free host must not
    be reserved by mistake.
    """
    ledger = Ledger()
    hosts = [a_host("lost"), a_host("large", some(cpu=8)), a_host("small")]
    ledger.hosts_up(hosts)
    ledger.adopt(a_placement(hosts[0], some(cpu=4), "busy"))
    ledger.adopt(a_placement(hosts[1], some(cpu=7), "long"))
    ledger.ask(a_request("big", some(cpu=8), user="ada", submitted_at=at(-10_000)))
    for key in ("first", "second"):
        ledger.ask(a_request(key, some(cpu=2), user="ben"))

    assert [each.key for each in ledger.settle(at(0), most=1).placed] == ["first"]
    ledger.host_lost("lost", "first")

    assert [each.key for each in ledger.settle(at(0), most=1).placed] == ["second"]
