"""The ledger by example: messages that arrive twice, late, or out of order."""

from datetime import datetime

import pytest

from iris.model.host.constraints import TPU_NAME
from iris.model.job.requests import Request
from iris.model.job.spec import Band
from iris.scheduling.ledger.codec import LedgerState
from iris.scheduling.ledger.ledger import REMEMBERED, Ledger
from tests.builders import NOON, a_host, a_placement, a_request, at, some


def a_ledger(*hosts: str) -> Ledger:
    """A ledger with hosts of one core each."""
    ledger = Ledger()
    ledger.hosts_up([a_host(host, some(cpu=1)) for host in hosts])
    return ledger


def a_pod(ledger: Ledger, name: str, hosts: int) -> None:
    """Adds the hosts of a slice: `a0`, `a1` … of the slice `a`."""
    ledger.hosts_up(
        [
            a_host(f"{name}{i}", some(cpu=1), slice_id=name, attributes={TPU_NAME: name})
            for i in range(hosts)
        ]
    )


def a_gang(key: str = "k1", tasks: int = 2) -> Request:
    """The request of a gang for one slice."""
    return a_request(key, tasks=tasks, group_by=TPU_NAME)


def settle(ledger: Ledger, now: datetime = NOON) -> list[str]:
    """Runs one pass, and returns the keys of its placements."""
    return [placement.key for placement in ledger.settle(now).placed]


def held(ledger: Ledger) -> dict[str, list[str]]:
    """Returns the host ids of each placement, by key."""
    return {
        placement.key: [seat.host_id for seat in placement.seats]
        for placement in ledger.live.values()
    }


def renewed(ledger: Ledger) -> Ledger:
    """Returns the ledger after continue-as-new."""
    return Ledger(LedgerState.model_validate_json(ledger.state().model_dump_json()))


def test_asking_twice_is_asking_once() -> None:
    """A request whose answer was lost is repeated. It must not wait twice or get hosts twice."""
    ledger = a_ledger("h1", "h2")

    ledger.ask(a_request("k1"))
    ledger.ask(a_request("k1"))
    settle(ledger)
    ledger.ask(a_request("k1"))

    assert settle(ledger) == []
    assert held(ledger).keys() == {"k1"}


def test_an_ask_overtaken_by_its_own_withdrawal_stays_withdrawn() -> None:
    """Otherwise a host would be reserved for a job that has ended, and no message would
    release it.
    """
    ledger = a_ledger("h1")

    ledger.forget("k1")
    ledger.ask(a_request("k1"))

    assert settle(ledger) == []
    assert not ledger.demand()


def test_a_withdrawal_that_meets_its_placement_leaves_nothing_held() -> None:
    """The scheduling timeout and the placement may happen at once. In both orders the next request
    gets the host.
    """
    ledger = a_ledger("h1")
    ledger.ask(a_request("k1"))
    settle(ledger)

    ledger.forget("k1")
    ledger.forget("k1")
    ledger.ask(a_request("k2"))
    settle(ledger)

    assert held(ledger) == {"k2": ["h1"]}


def test_a_hosts_new_incarnation_ends_what_was_placed_on_the_old_one() -> None:
    """The old incarnation's processes are gone, so the whole host is free."""
    ledger = a_ledger("h1")
    ledger.ask(a_request("k1"))
    settle(ledger)

    ledger.hosts_up([a_host("h1", some(cpu=1), incarnation="second")])
    ledger.ask(a_request("k2"))

    (placed,) = ledger.settle(NOON).placed
    assert (placed.key, placed.seats[0].incarnation) == ("k2", "second")
    assert held(ledger).keys() == {"k2"}


def test_a_late_release_does_not_credit_the_hosts_next_incarnation() -> None:
    """The placement ended with its host. To free it again would place two tasks where one fits."""
    ledger = a_ledger("h1")
    ledger.ask(a_request("k1"))
    settle(ledger)
    ledger.hosts_up([a_host("h1", some(cpu=1), incarnation="second")])
    ledger.ask(a_request("k2"))
    settle(ledger)

    ledger.forget("k1")
    ledger.ask(a_request("k3"))

    assert settle(ledger) == []
    assert held(ledger) == {"k2": ["h1"]}


def test_a_host_that_reports_again_keeps_its_work() -> None:
    """A repeated message about the same incarnation must not end running tasks."""
    ledger = a_ledger("h1")
    ledger.ask(a_request("k1"))
    settle(ledger)

    ledger.hosts_up([a_host("h1", some(cpu=1))])

    assert held(ledger) == {"k1": ["h1"]}


def test_a_host_that_reports_less_than_runs_there_takes_nothing_more_and_keeps_its_work() -> None:
    """An agent that restarts with smaller limits adopts its running tasks, but must not
    get more.
    """
    ledger = Ledger()
    ledger.hosts_up([a_host("h1", some(cpu=4))])
    ledger.ask(a_request("k1", some(cpu=3)))
    settle(ledger)

    ledger.hosts_up([a_host("h1", some(cpu=2))])
    ledger.ask(a_request("k2", some(cpu=0.5)))

    assert settle(ledger) == []
    assert ledger.explain("k2").free == {"cpu": 0}
    assert held(ledger) == {"k1": ["h1"]}


def test_the_loss_of_an_earlier_incarnation_does_not_touch_the_present_one() -> None:
    """The message about a loss may arrive after the host has come back."""
    ledger = a_ledger("h1")
    ledger.hosts_up([a_host("h1", some(cpu=1), incarnation="second")])
    ledger.ask(a_request("k1"))
    settle(ledger)

    ledger.host_lost("h1", "first")

    assert held(ledger) == {"k1": ["h1"]}


@pytest.mark.parametrize("end", ["lost", "slice down", "superseded"])
@pytest.mark.parametrize("again", [False, True], ids=["same run", "after continue-as-new"])
def test_a_late_word_of_a_life_that_is_over_brings_no_host_back(end: str, again: bool) -> None:
    """A repeated "host ready" message that arrives after the end of the host would attract tasks to
    a lost machine, or replace its successor.
    """
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
            settle(ledger)
    before = held(ledger)
    if again:
        ledger = renewed(ledger)

    ledger.hosts_up(ready)

    assert "first" not in {host.incarnation for host in ledger.hosts.values()}
    assert held(ledger) == before


def test_a_loss_that_overtakes_the_hosts_own_report_still_counts() -> None:
    """Messages may arrive out of order."""
    ledger = Ledger()

    ledger.host_lost("h1", "first")
    ledger.hosts_up([a_host("h1", some(cpu=1))])
    ledger.ask(a_request("k1"))

    assert settle(ledger) == []


def test_a_slice_that_is_down_takes_its_hosts_and_their_work_along_and_no_others() -> None:
    """A slice is created and deleted as a whole."""
    ledger = Ledger()
    ledger.hosts_up(
        [
            a_host(host, some(cpu=1), slice_id=slice_id)
            for host, slice_id in (("a1", "a"), ("a2", "a"), ("b1", "b"))
        ]
    )
    for key in ("k1", "k2", "k3"):
        ledger.ask(a_request(key))
    settle(ledger)

    ledger.slice_down([("a1", "first"), ("a2", "first")])

    assert ledger.hosts.keys() == {"b1"}
    assert list(held(ledger).values()) == [["b1"]]


def test_a_gang_that_loses_one_host_holds_the_others_until_it_gives_them_back() -> None:
    """Its other members run until they are stopped. Another placement would put two tasks on one
    host.
    """
    ledger = Ledger()
    a_pod(ledger, "a", 2)
    ledger.ask(a_gang("k1"))
    settle(ledger)

    ledger.host_lost("a1", "first")
    ledger.ask(a_request("k2"))
    assert settle(ledger) == []

    ledger.forget("k1")
    assert settle(ledger) == ["k2"]


def test_a_gang_that_lost_a_host_holds_nothing_on_its_next_incarnation() -> None:
    """The machine is back and empty. Only the other hosts are still in use."""
    ledger = Ledger()
    a_pod(ledger, "a", 2)
    ledger.ask(a_gang("k1"))
    settle(ledger)

    ledger.hosts_up(
        [a_host("a1", some(cpu=1), slice_id="a", incarnation="second", attributes={TPU_NAME: "a"})]
    )
    ledger.ask(a_request("k2"))
    settle(ledger)

    assert held(ledger)["k2"] == ["a1"]


def test_an_ask_repeated_after_its_host_was_lost_finds_another() -> None:
    """The answer may be lost together with the host. If the key counted as used up, the job would
    wait for ever.
    """
    ledger = a_ledger("h1")
    ledger.ask(a_request("k1"))
    settle(ledger)
    ledger.host_lost("h1", "first")
    ledger.hosts_up([a_host("h2", some(cpu=1))])

    ledger.ask(a_request("k1"))
    settle(ledger)

    assert held(ledger) == {"k1": ["h2"]}


def told(ledger: Ledger, *incarnations: tuple[str, str]) -> dict[str, tuple[tuple[str, str], ...]]:
    """Returns whom the ledger tells that these hosts are gone, and which of their hosts it are."""
    return {each.key: each.gone for each in ledger.hosts_gone(incarnations, "deleted")}


def test_gangs_learn_that_their_machines_are_gone_until_they_have_released_them() -> None:
    """The hosts are removed before their machines are deleted, and a message may be repeated."""
    ledger = a_ledger("h1", "h2")
    ledger.ask(a_request("k1"))
    ledger.ask(a_request("k2"))
    settle(ledger)
    (on_h1,) = (key for key, hosts in held(ledger).items() if hosts == ["h1"])

    ledger.slice_down([("h1", "first")])
    expected = {on_h1: (("h1", "first"),)}
    assert told(ledger, ("h1", "first")) == expected
    assert told(renewed(ledger), ("h1", "first")) == expected
    assert held(ledger).keys() == {"k1", "k2"} - {on_h1}

    ledger.forget(on_h1)
    assert told(ledger, ("h1", "first")) == {}


def test_a_gang_learns_which_of_its_machines_are_gone() -> None:
    """The programs on its other machines run, and have to be ended in order."""
    ledger = Ledger()
    a_pod(ledger, "a", 2)
    ledger.ask(a_gang("k1"))
    settle(ledger)

    assert told(ledger, ("a1", "first")) == {"k1": (("a1", "first"),)}
    assert ledger.hosts.keys() == {"a0"}


def test_an_earlier_incarnation_of_a_machine_that_is_gone_tells_nobody() -> None:
    """The message is late: what runs there now runs on."""
    ledger = Ledger()
    ledger.hosts_up([a_host("h1", some(cpu=1), incarnation="second")])
    ledger.ask(a_request("k1"))
    settle(ledger)

    assert told(ledger, ("h1", "first")) == {}
    assert held(ledger) == {"k1": ["h1"]}


def test_those_who_wait_are_placed_when_a_host_comes_or_is_free_again() -> None:
    """A waiting request is not lost and need not be repeated."""
    ledger = Ledger()
    ledger.ask(a_request("k1"))
    ledger.ask(a_request("k2"))
    assert settle(ledger) == []

    ledger.hosts_up([a_host("h1", some(cpu=1))])
    assert settle(ledger) == ["k1"]

    ledger.forget("k1")
    assert settle(ledger) == ["k2"]


def test_the_book_is_bounded_however_much_has_passed_through_it() -> None:
    """Every continue-as-new carries the ledger, which must be far smaller than a payload. The
    newest entries are kept.
    """
    ledger = a_ledger("h1")

    def much_passes() -> None:
        for number in range(REMEMBERED + 50):
            key = f"k{number:05}"
            ledger.ask(a_request(key))
            ledger.amend(key, Band.BATCH, held=True, changed_at=at(number))
            ledger.forget(key, spoilt_by=[f"gone{number:05}"])
            ledger.host_lost("h2", f"life {number:05}")
            a_gang_loses_its_host_and_does_not_release_it(f"left{number:05}")
        while ledger.ended_uses:
            ledger.ended_uses.take_batch()
            ledger.ended_uses.stored()

    def a_gang_loses_its_host_and_does_not_release_it(key: str) -> None:
        host = a_host("h3", some(cpu=1), incarnation=key)
        ledger.hosts_up([host])
        ledger.adopt(a_placement(host, key=key))
        ledger.host_lost(host.id, key)
        settle(ledger)

    much_passes()
    full = len(ledger.state().model_dump_json())
    much_passes()

    assert len(ledger.state().model_dump_json()) == full
    ledger.ask(a_request(f"k{REMEMBERED + 49:05}"))
    ledger.hosts_up([a_host("h2", incarnation=f"life {REMEMBERED + 49:05}")])
    assert settle(ledger) == []
    assert ledger.hosts.keys() == {"h1"}
