"""The scheduler's book by example: messages that come twice, late, or out of order."""

import pytest

from iris.ledger import REMEMBERED, Ledger, LedgerState
from iris.refusals import RefusalCode
from tests.builders import a_host, a_request, some


def a_ledger(*hosts: str) -> Ledger:
    """A book with hosts of one core each."""
    ledger = Ledger()
    ledger.hosts_up([a_host(host, some(cpu=1)) for host in hosts])
    return ledger


def held(ledger: Ledger) -> dict[str, str]:
    """Key -> host id of everything that is placed."""
    return {placement.key: placement.host_id for placement in ledger.live.values()}


def test_asking_twice_is_asking_once() -> None:
    """An ask whose answer was lost is repeated: it must neither wait twice nor hold twice."""
    ledger = a_ledger("h1", "h2")

    ledger.ask(a_request("k1"))
    ledger.ask(a_request("k1"))
    ledger.settle()
    ledger.ask(a_request("k1"))

    assert ledger.settle() == []
    assert held(ledger).keys() == {"k1"}


def test_an_ask_overtaken_by_its_own_withdrawal_stays_withdrawn() -> None:
    """Otherwise a host would be held for a job that is long gone, and no one would give it back."""
    ledger = a_ledger("h1")

    ledger.forget("k1")
    ledger.ask(a_request("k1"))

    assert ledger.settle() == []
    assert ledger.state().queue == []


def test_a_withdrawal_that_meets_its_placement_leaves_nothing_held() -> None:
    """The scheduling timeout and the placement race; whichever wins, the next in line gets the host."""
    ledger = a_ledger("h1")
    ledger.ask(a_request("k1"))
    ledger.settle()

    ledger.forget("k1")
    ledger.forget("k1")
    ledger.ask(a_request("k2"))
    ledger.settle()

    assert held(ledger) == {"k2": "h1"}


def test_a_hosts_new_incarnation_ends_what_was_placed_on_the_old_one() -> None:
    """Its processes are gone with it, so the host is free as a whole."""
    ledger = a_ledger("h1")
    ledger.ask(a_request("k1"))
    ledger.settle()

    ledger.hosts_up([a_host("h1", some(cpu=1), incarnation="second")])
    ledger.ask(a_request("k2"))

    assert [(placement.key, placement.incarnation) for placement in ledger.settle()] == [("k2", "second")]
    assert held(ledger).keys() == {"k2"}


def test_a_late_release_does_not_credit_the_hosts_next_incarnation() -> None:
    """What was held died with its host; crediting it would put two tasks where one fits."""
    ledger = a_ledger("h1")
    ledger.ask(a_request("k1"))
    ledger.settle()
    ledger.hosts_up([a_host("h1", some(cpu=1), incarnation="second")])
    ledger.ask(a_request("k2"))
    ledger.settle()

    ledger.forget("k1")
    ledger.ask(a_request("k3"))

    assert ledger.settle() == []
    assert held(ledger) == {"k2": "h1"}


def test_a_host_that_reports_again_keeps_its_work() -> None:
    """The same life, said twice: a repeated message must not end what runs."""
    ledger = a_ledger("h1")
    ledger.ask(a_request("k1"))
    ledger.settle()

    ledger.hosts_up([a_host("h1", some(cpu=1))])

    assert held(ledger) == {"k1": "h1"}


def test_the_loss_of_an_earlier_incarnation_does_not_touch_the_present_one() -> None:
    """The news of a death may arrive after the resurrection."""
    ledger = a_ledger("h1")
    ledger.hosts_up([a_host("h1", some(cpu=1), incarnation="second")])
    ledger.ask(a_request("k1"))
    ledger.settle()

    ledger.host_lost("h1", "first")

    assert held(ledger) == {"k1": "h1"}


@pytest.mark.parametrize("end", ["lost", "slice down", "superseded"])
@pytest.mark.parametrize("renewed", [False, True], ids=["same run", "after continue-as-new"])
def test_a_late_word_of_a_life_that_is_over_brings_no_host_back(end: str, renewed: bool) -> None:
    """A repeated "this host is ready" that arrives after its end would attract work to a machine that is gone, or push out its
    successor with all that runs on it."""
    ledger = a_ledger("h1")
    ready = list(ledger.hosts.values())
    match end:
        case "lost":
            ledger.host_lost("h1", "first")
        case "slice down":
            ledger.slice_down([("h1", "first")])
        case "superseded":
            ledger.hosts_up([a_host("h1", some(cpu=1), incarnation="second")])
            ledger.ask(a_request("k1"))
            ledger.settle()
    before = held(ledger)
    if renewed:
        ledger = Ledger(LedgerState.model_validate_json(ledger.state().model_dump_json()))

    ledger.hosts_up(ready)

    assert "first" not in {host.incarnation for host in ledger.hosts.values()}
    assert held(ledger) == before


def test_a_loss_that_overtakes_the_hosts_own_report_still_counts() -> None:
    """Out of order is one of the ways in which messages come."""
    ledger = Ledger()

    ledger.host_lost("h1", "first")
    ledger.hosts_up([a_host("h1", some(cpu=1))])
    ledger.ask(a_request("k1"))

    assert ledger.settle() == []


def test_a_slice_that_is_down_takes_its_hosts_and_their_work_along_and_no_others() -> None:
    """A slice is bought and deleted as a whole."""
    ledger = Ledger()
    ledger.hosts_up([a_host(host, some(cpu=1), slice_id=slice_id) for host, slice_id in (("a1", "a"), ("a2", "a"), ("b1", "b"))])
    for key in ("k1", "k2", "k3"):
        ledger.ask(a_request(key))
    ledger.settle()

    ledger.slice_down([("a1", "first"), ("a2", "first")])

    assert ledger.hosts.keys() == {"b1"}
    assert set(held(ledger).values()) == {"b1"}


def test_an_ask_repeated_after_its_host_was_lost_finds_another() -> None:
    """The answer may be lost together with the host: if the key counted as used up, the job would wait for ever."""
    ledger = a_ledger("h1")
    ledger.ask(a_request("k1"))
    ledger.settle()
    ledger.host_lost("h1", "first")
    ledger.hosts_up([a_host("h2", some(cpu=1))])

    ledger.ask(a_request("k1"))

    assert [placement.host_id for placement in ledger.settle()] == ["h2"]


def test_those_who_wait_are_placed_when_a_host_comes_or_is_free_again() -> None:
    """Nothing is lost by waiting, and nobody has to ask again."""
    ledger = Ledger()
    ledger.ask(a_request("k1"))
    ledger.ask(a_request("k2"))
    assert ledger.settle() == []

    ledger.hosts_up([a_host("h1", some(cpu=1))])
    assert [placement.key for placement in ledger.settle()] == ["k1"]

    ledger.forget("k1")
    assert [placement.key for placement in ledger.settle()] == ["k2"]


def test_the_book_is_bounded_however_much_has_passed_through_it() -> None:
    """It travels with every continue-as-new and must stay far below what a payload may hold; the newest entries are kept."""
    ledger = a_ledger("h1")
    for number in range(REMEMBERED + 50):
        ledger.forget(f"k{number}")
        ledger.host_lost("h2", f"life {number}")
    full = len(ledger.state().model_dump_json())
    for number in range(REMEMBERED + 50):
        ledger.forget(f"k{number}")
        ledger.host_lost("h2", f"life {number}")

    assert len(ledger.state().model_dump_json()) == full
    ledger.ask(a_request(f"k{REMEMBERED + 49}"))
    ledger.hosts_up([a_host("h2", incarnation=f"life {REMEMBERED + 49}")])
    assert ledger.settle() == []
    assert ledger.hosts.keys() == {"h1"}


@pytest.mark.parametrize(
    ("key", "code", "said"),
    [
        ("waits", RefusalCode.BUSY, "0 cpu free"),
        ("holds", RefusalCode.UNKNOWN, "it has a host"),
        ("unheard of", RefusalCode.UNKNOWN, "does not know of it"),
    ],
)
def test_every_key_has_an_explanation(key: str, code: RefusalCode, said: str) -> None:
    """A query may come at any moment, and must not fail because the answer has just become "no longer"."""
    ledger = a_ledger("h1")
    for each in ("holds", "waits"):
        ledger.ask(a_request(each))
    ledger.settle()

    refusal = ledger.explain(key)

    assert refusal.code is code
    assert said in refusal.message
