"""The ledger by example: closed hosts, pauses, evictions, and quarantined hosts."""

import itertools
from collections.abc import Callable

import pytest

from iris.model.host.constraints import SCALE_GROUP, Attribute
from iris.model.host.hosts import ClosedBy, Closure
from iris.model.job.spec import Band
from iris.model.rules import Rules
from iris.scheduling.ledger.bounded_memory import REMEMBERED
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.ledger.strikes import STRIKES
from iris.scheduling.placement.refusals import RefusalCode
from tests.builders import NOON, a_host, a_request, at, some
from tests.scheduling.ledger.test_ledger import a_gang, a_ledger, a_pod, held, renewed, settle

CORDON = Closure(by=ClosedBy.CORDON, reason="a new disk")
#: Seconds after noon.
LATER = itertools.count(1)


def an_attempt(
    ledger: Ledger, key: str, spoilt_by: tuple[str, ...] = (), *, ran: bool = False
) -> None:
    """Places an attempt and releases it, later than the attempts before."""
    ledger.ask(a_request(key))
    settle(ledger, at(next(LATER)))
    assert key in ledger.live
    ledger.forget(key, spoilt_by, ran=ran)


def test_a_closed_host_takes_nothing_new_keeps_its_work_and_says_why() -> None:
    """A cordon is for maintenance: running tasks may end by themselves."""
    ledger = Ledger()
    ledger.hosts_up([a_host("h1", some(cpu=2))])
    ledger.ask(a_request("k1"))
    settle(ledger)

    ledger.close("h1", CORDON)
    ledger.ask(a_request("k2"))

    assert settle(ledger) == []
    assert held(ledger) == {"k1": ["h1"]}
    refusal = ledger.explain("k2")
    assert refusal.code is RefusalCode.CLOSED
    assert "cordoned: a new disk" in refusal.message

    ledger.open("h1")
    assert settle(ledger) == ["k2"]


@pytest.mark.parametrize(
    "what_happens",
    [
        lambda ledger: ledger.hosts_up([a_host("h1", some(cpu=1), incarnation="second")]),
        lambda ledger: (
            ledger.host_lost("h1", "first"),
            ledger.hosts_up([a_host("h1", some(cpu=1), incarnation="second")]),
        ),
    ],
    ids=["restarted", "lost and back"],
)
def test_a_cordon_outlives_the_hosts_life_and_the_scheduler_run(
    what_happens: Callable[[Ledger], object],
) -> None:
    """The operator closed a machine, not a process. A reboot during a repair must not attract
    tasks.
    """
    ledger = a_ledger("h1")
    ledger.close("h1", CORDON)

    what_happens(ledger)
    ledger = renewed(ledger)
    ledger.ask(a_request("k1"))

    assert settle(ledger) == []


def test_a_host_may_be_closed_before_it_is_there() -> None:
    """A broken machine may be rebooting when its operator closes it."""
    ledger = Ledger()
    ledger.close("h1", CORDON)

    ledger.hosts_up([a_host("h1")])
    ledger.ask(a_request("k1"))

    assert settle(ledger) == []


def test_no_cordon_of_a_host_that_is_there_is_forgotten_however_many_there_are() -> None:
    """Half of a large cluster may be closed for an upgrade. For hosts that are gone, only the
    latest cordons are remembered.
    """
    ledger = Ledger()
    for number in range(REMEMBERED + 10):
        ledger.close(f"gone {number}", CORDON)
    hosts = [a_host(f"h{number}", some(cpu=1)) for number in range(REMEMBERED + 10)]
    ledger.hosts_up(hosts)

    for host in hosts:
        ledger.close(host.id, CORDON)
    ledger.ask(a_request("k1"))

    assert settle(ledger) == []
    assert len(ledger.closed) == len(hosts) + REMEMBERED


@pytest.mark.parametrize("group", ["v5e-pool", 4, True])
def test_a_paused_scale_group_takes_nothing_new_whatever_its_name_looks_like(
    group: Attribute,
) -> None:
    """An agent with `--label scale-group=4` reports a number, and the operator types the same 4."""
    ledger = Ledger()
    ledger.hosts_up([a_host("h1", attributes={SCALE_GROUP: group}), a_host("h2", some(cpu=1))])

    ledger.pause("upgrade", str(group))
    ledger.ask(a_request("k1"))
    ledger.ask(a_request("k2"))
    settle(ledger)

    assert list(held(ledger).values()) == [["h2"]]
    ledger = renewed(ledger)
    ledger.resume(str(group))
    assert len(settle(ledger)) == 1


def test_a_paused_cluster_places_and_evicts_nothing_and_says_so() -> None:
    """Waiting requests keep their places."""
    ledger = a_ledger("h1")
    ledger.ask(a_request("runs", band=Band.BATCH))
    settle(ledger)
    ledger.hosts_up([a_host("h2", some(cpu=1))])

    ledger.pause("the network is being changed")
    for number in range(2):
        ledger.ask(a_request(f"k{number}", band=Band.PRODUCTION, submitted_at=at(number)))
    ledger = renewed(ledger)
    settled = ledger.settle(at(3600))

    assert (settled.placed, settled.evicted) == ([], [])
    assert ledger.explain("k0").code is RefusalCode.PAUSED
    assert "the network is being changed" in ledger.explain("k0").message
    ledger.resume()
    assert settle(ledger, at(3600)) == ["k0"]


def test_whoever_has_to_leave_a_host_is_told_once_and_whole() -> None:
    """A gang with one task on a drained host is evicted as a whole. A second drain must not evict
    its next attempt.
    """
    ledger = Ledger()
    a_pod(ledger, "a", 2)
    ledger.ask(a_gang("gang"))
    settle(ledger)

    assert [(each.key, each.reason) for each in ledger.evict("a1", "drained")] == [
        ("gang", "drained")
    ]
    assert ledger.evict("a0", "drained") == []
    assert renewed(ledger).evict("a1", "drained") == []


def test_whoever_lost_its_host_while_it_was_leaving_may_have_to_leave_the_next_one_too() -> None:
    """The eviction was for the lost placement. The drain of the next host must evict the gang
    again.
    """
    ledger = a_ledger("h1", "h2")
    ledger.ask(a_request("k1"))
    settle(ledger)
    (first,) = held(ledger)["k1"]
    assert len(ledger.evict(first, "drained")) == 1

    ledger.host_lost(first, "first")
    ledger.ask(a_request("k1"))
    settle(ledger)

    (second,) = held(ledger)["k1"]
    assert len(ledger.evict(second, "drained")) == 1


def test_a_victim_is_told_once_however_many_passes_see_it() -> None:
    """A victim stops within its grace. Until then every message causes a pass."""
    ledger = a_ledger("h1")
    ledger.rules = Rules()
    ledger.ask(a_request("batch", band=Band.BATCH))
    settle(ledger)
    ledger.ask(a_request("k1", band=Band.PRODUCTION))

    assert [each.key for each in ledger.settle(at(3600)).evicted] == ["batch"]
    assert ledger.settle(at(3601)).evicted == []
    assert ledger.explain("k1").code is RefusalCode.EVICTING
    ledger = renewed(ledger)
    assert ledger.settle(at(3602)).evicted == []
    ledger.forget("batch")
    assert settle(ledger, at(3603)) == ["k1"]


@pytest.mark.parametrize("again", [False, True], ids=["same run", "after continue-as-new"])
def test_a_host_that_spoils_three_attempts_in_a_row_is_closed_until_it_is_opened(
    again: bool,
) -> None:
    """A broken host has the most free resources, so it would attract and spoil every attempt."""
    ledger = a_ledger("h1")
    for number in range(STRIKES):
        assert "h1" not in ledger.closed
        an_attempt(ledger, f"k{number}", spoilt_by=("h1",))
        if again:
            ledger = renewed(ledger)

    assert ledger.closed["h1"].by is ClosedBy.QUARANTINE
    ledger.ask(a_request("waits"))
    assert settle(ledger) == []
    assert "quarantined" in ledger.explain("waits").message

    ledger.open("h1")
    assert settle(ledger) == ["waits"]
    ledger.forget("waits", ["h1"])
    assert "h1" not in ledger.closed, "the slate was not clean"


def test_a_host_whose_agent_reports_a_fault_is_closed_until_the_fault_is_over() -> None:
    """Its GPU is lost. The agent reports the fault and its end, and the next run of the scheduler
    knows it.
    """
    ledger = a_ledger("h1")
    well = ledger.hosts["h1"]
    ledger.hosts_up([well.model_copy(update={"fault": "has 7 of 8 GPUs"})])
    ledger = renewed(ledger)
    ledger.ask(a_request("waits"))
    assert settle(ledger) == []
    refusal = ledger.explain("waits")
    assert "1 quarantined: has 7 of 8 GPUs" in refusal.message
    assert "uncordon" not in refusal.remedy

    ledger.hosts_up([well])
    assert settle(ledger) == ["waits"]


def test_an_attempt_that_ran_wipes_the_slate() -> None:
    """Strikes count in a row: a host that loses one attempt in a hundred is not broken."""
    ledger = a_ledger("h1")
    for number in range(2 * STRIKES):
        an_attempt(ledger, f"spoilt {number}", spoilt_by=("h1",))
        an_attempt(ledger, f"ran {number}", ran=True)

    assert not ledger.closed


def test_an_attempt_that_was_called_off_says_nothing_about_its_host() -> None:
    """A user who cancels between two failures must not reset the strikes of a broken host."""
    ledger = a_ledger("h1")
    for number in range(STRIKES):
        an_attempt(ledger, f"called off {number}")
        an_attempt(ledger, f"spoilt {number}", spoilt_by=("h1",))

    assert "h1" in ledger.closed


def test_of_a_gang_only_the_host_that_spoilt_the_attempt_is_struck() -> None:
    """The siblings' hosts worked. Strikes for them would close a whole slice."""
    ledger = Ledger()
    a_pod(ledger, "a", 3)
    for number in range(STRIKES):
        ledger.ask(a_gang(f"k{number}", tasks=3))
        settle(ledger, at(next(LATER)))
        ledger.forget(f"k{number}", ["a1"], ran=True)

    assert ledger.closed.keys() == {"a1"}


def test_a_release_that_comes_twice_is_one_strike() -> None:
    """Messages are delivered at least once; strikes are attempts, not messages."""
    ledger = a_ledger("h1")
    an_attempt(ledger, "k1", spoilt_by=("h1",))
    for _ in range(STRIKES):
        ledger.forget("k1", ["h1"])

    assert not ledger.closed


@pytest.mark.parametrize("crashed", [False, True], ids=["cut off", "agent died"])
def test_attempts_that_one_event_ends_are_one_strike(crashed: bool) -> None:
    """A network failure of a minute ends all attempts of a host for one reason. That holds if
    others are placed there since, and if a new incarnation has ended the placements.
    """
    ledger = Ledger()
    ledger.hosts_up([a_host("h1", some(cpu=8))])
    for event in range(STRIKES):
        assert not ledger.closed
        keys = [f"event {event} attempt {number}" for number in range(4)]
        for key in keys:
            ledger.ask(a_request(key))
        placed_at = at(next(LATER))
        settle(ledger, placed_at)
        if crashed:
            ledger.hosts_up([a_host("h1", some(cpu=8), incarnation=f"after {event}")])
        for key in keys:
            ledger.forget(key, ["h1"], placed_at=placed_at)
            ledger.ask(a_request(f"next after {key}"))
            settle(ledger, at(next(LATER)))
        for key in keys:
            ledger.forget(f"next after {key}")

    assert ledger.closed["h1"].by is ClosedBy.QUARANTINE


def test_an_agent_that_dies_of_every_attempt_is_closed_although_it_comes_back_each_time() -> None:
    """Its new incarnation ends the placement before the attempt is given up. Without a strike it
    would fail for ever.
    """
    ledger = a_ledger("h1")
    for number in range(STRIKES):
        ledger.ask(a_request(f"k{number}"))
        settle(ledger)
        ledger.hosts_up([a_host("h1", some(cpu=1), incarnation=f"life {number}")])
        ledger.forget(f"k{number}", ["h1"])

    assert ledger.closed["h1"].by is ClosedBy.QUARANTINE


def test_a_host_that_its_operator_has_closed_is_not_quarantined_over_it() -> None:
    """The operator's reason is the one to show."""
    ledger = a_ledger("h1")
    for number in range(STRIKES - 1):
        an_attempt(ledger, f"k{number}", spoilt_by=("h1",))
    ledger.ask(a_request("last"))
    settle(ledger)

    ledger.close("h1", CORDON)
    ledger.forget("last", ["h1"])

    assert ledger.closed["h1"] == CORDON


def test_a_gang_does_not_use_a_slice_one_of_whose_hosts_is_closed() -> None:
    """A gang gets all hosts or none, and task i belongs on worker i."""
    ledger = Ledger()
    a_pod(ledger, "a", 2)
    a_pod(ledger, "b", 2)
    ledger.close("a0", CORDON)
    ledger.ask(a_gang("k1"))

    assert [placement.seats[0].slice_id for placement in ledger.settle(NOON).placed] == ["b"]


def test_a_gang_that_nobody_gives_back_is_freed_host_by_host() -> None:
    """Its workflow was terminated. Each host reports when its task has ended, and is not used
    before.
    """
    hosts = [
        a_host(f"s-{i}", slice_id="s", attributes={"tpu-name": "s", "tpu-worker-id": i})
        for i in range(2)
    ]
    ledger = Ledger()
    ledger.hosts_up(hosts)
    ledger.ask(a_request("gang", tasks=2, group_by="tpu-name", wants=some(cpu=4)))
    ledger.settle(NOON)
    ledger.ask(a_request("next", wants=some(cpu=4), submitted_at=at(1)))

    ledger.vacate("gang", "s-1", "first")
    ledger.vacate("gang", "s-1", "first")
    assert [
        seat.host_id for placement in ledger.settle(NOON).placed for seat in placement.seats
    ] == ["s-1"]
    ledger.vacate("gang", "s-0", "first")
    assert set(ledger.live) == {"next"}


def test_a_host_that_a_gang_does_not_hold_changes_nothing_for_the_gang() -> None:
    """A stolen host could otherwise keep slices of others from being idle, or their users back in
    the queue.
    """
    ledger = Ledger()
    ledger.hosts_up([a_host("h1", some(cpu=1))])
    ledger.ask(a_request("gang", wants=some(cpu=1)))
    ledger.settle(NOON)
    ledger.hosts_up([a_host("stolen")])
    ledger.now_is(at(5))
    before = ledger.state()

    ledger.vacate("gang", "stolen", "first", at(10))
    ledger.now_is(at(20))

    assert ledger.state() == before
