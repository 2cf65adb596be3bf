"""The ledger by example: slices that are to be deleted, and since when no task runs on them."""

from datetime import datetime

from iris.model.host.constraints import SCALE_GROUP
from iris.model.host.hosts import ClosedBy, Closure, Host
from iris.scheduling.ledger.codec import LedgerState
from iris.scheduling.ledger.ledger import Ledger
from tests.builders import a_gang, a_gang_placement, a_host, a_request, a_slice, at

GROUP = {SCALE_GROUP: "tpus"}


def a_ledger(*hosts: Host) -> Ledger:
    ledger = Ledger()
    ledger.hosts_up(hosts)
    return ledger


def lives(*hosts: Host) -> list[tuple[str, str]]:
    return [(host.id, host.incarnation) for host in hosts]


def ran_until(ledger: Ledger, when: datetime, key: str = "k1") -> None:
    """A gang of four that has run and ended."""
    ledger.ask(a_gang(key))
    ledger.settle(when)
    assert key in ledger.live
    ledger.forget(key)
    ledger.settle(when)


def test_a_slice_on_which_nothing_runs_goes_and_nobody_is_given_its_hosts() -> None:
    """The ledger removes the hosts in one step, so no job can be placed there in between."""
    hosts = a_slice("s", attributes=GROUP)
    ledger = a_ledger(*hosts)
    assert ledger.retire(lives(*hosts)) == ""
    ledger.ask(a_gang())

    assert ledger.settle(at(1)).placed == []
    assert not ledger.hosts


def test_a_slice_on_which_something_runs_stays_and_is_told_what() -> None:
    """The autoscaler believed that the slice was idle. That must not end a week of training."""
    hosts = a_slice("s", attributes=GROUP)
    ledger = a_ledger(*hosts)
    ledger.ask(a_gang("train", task="ada/train"))
    ledger.settle(at(0))

    assert ledger.retire(lives(*hosts)) == "host s-0 runs ada/train"
    assert len(ledger.hosts) == 4


def test_one_busy_host_keeps_its_whole_slice() -> None:
    """A slice is deleted as a whole, so three idle hosts do not suffice."""
    hosts = a_slice("s", attributes=GROUP)
    ledger = a_ledger(*hosts)
    ledger.ask(a_request("small", hosts[0].resources, task="ada/small"))
    ledger.settle(at(0))

    assert "runs ada/small" in ledger.retire(lives(*hosts))
    assert len(ledger.hosts) == 4


def test_a_slice_that_was_used_since_it_was_thought_to_be_idle_stays() -> None:
    """A job ran between the decision and the check, so the idle delay begins again."""
    hosts = a_slice("s", attributes=GROUP)
    ledger = a_ledger(*hosts)
    ran_until(ledger, at(100))

    assert ledger.retire(lives(*hosts), idle_since=at(99)) == "it was not idle until 12:01:40 UTC"
    assert ledger.retire(lives(*hosts), idle_since=at(100)) == ""


def test_a_slice_that_has_gone_takes_its_closures_along() -> None:
    """Its hosts do not come back, and closures are kept for hosts that may."""
    hosts = a_slice("s", attributes=GROUP)
    ledger = a_ledger(*hosts)
    ledger.close("s-0", Closure(by=ClosedBy.DRAIN, reason="new kernel"))
    ledger.retire(lives(*hosts))

    assert not ledger.closed


def test_idle_are_slices_of_scale_groups_on_which_nothing_runs() -> None:
    """Machines that joined are not deleted. A slice that never ran a task is idle since
    it joined.
    """
    busy, idle, used = (a_slice(name, attributes=GROUP) for name in ("busy", "idle", "used"))
    ledger = a_ledger(*used)
    ran_until(ledger, at(50))
    ledger.hosts_up([*busy, *idle, a_host("brought")])
    ledger.ask(a_request("k", busy[0].resources, constraints=()))
    (placed,) = ledger.settle(at(60)).placed
    runs_on = placed.seats[0].slice_id

    expected = {"busy": at(60), "idle": at(60), "used": at(50)}
    del expected[runs_on]
    assert ledger.idle() == expected


def test_the_next_run_of_the_scheduler_knows_since_when_slices_are_idle() -> None:
    """Otherwise every continue-as-new would restart the idle delay, and no slice would ever be
    deleted.
    """
    hosts = a_slice("s", attributes=GROUP)
    ledger = a_ledger(*hosts)
    ran_until(ledger, at(100))

    again = Ledger(LedgerState.model_validate_json(ledger.state().model_dump_json()))
    assert again.idle() == {"s": at(100)}


def test_a_lost_slice_is_forgotten_although_a_gang_of_several_slices_ends_later() -> None:
    """The ledger would keep an entry for each such slice for ever, and it must fit into a
    payload.
    """
    lost, left = a_slice("lost", attributes=GROUP), a_slice("left", attributes=GROUP)
    ledger = a_ledger(*lost, *left)
    ledger.adopt(a_gang_placement([*lost, *left], key="wide"))
    ledger.slice_down(lives(*lost))
    ledger.forget("wide")
    ledger.settle(at(100))

    assert ledger.state().used_at == {"left": at(100)}
