"""The recovery of a lost ledger from the reports of slices and gangs. A message that is newer than
a page replaces it.
"""

from iris.messages.scheduler import SliceDown
from iris.model.job.requests import Placement, Request
from iris.model.job.spec import Band
from iris.planners.ledger_messages import enter
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.ledger.recovery import GangReport, LedgerRecovery, RecoveryPage
from iris.scheduling.ledger.size import LedgerSize
from tests.builders import a_host, a_placement, a_request, at, some


def recovered(ledger: Ledger, *pages: RecoveryPage) -> None:
    """Enters pages that were requested a second apart."""
    recovery = LedgerRecovery(ledger)
    for second, page in enumerate(pages):
        recovery.request_page()
        recovery.enter(page, at(second))


def waits(request: Request, *, held: bool = False) -> RecoveryPage:
    return RecoveryPage(claims=(GangReport(request=request, held=held),))


def holds(placement: Placement) -> RecoveryPage:
    return RecoveryPage(claims=(GangReport(placement=placement),))


def test_a_host_that_reports_while_a_page_is_asked_for_keeps_its_new_life() -> None:
    """The page shows the state at the time of its request. The report is newer, and its incarnation
    must stay.
    """
    ledger = Ledger()
    recovery = LedgerRecovery(ledger)
    recovery.request_page()
    ledger.hosts_up([a_host(incarnation="second")])
    recovery.received(["h1"])
    recovery.enter(RecoveryPage(hosts=(a_host(incarnation="first"), a_host("h2"))), at(0))

    assert {host.id: host.incarnation for host in ledger.hosts.values()} == {
        "h1": "second",
        "h2": "first",
    }
    ledger.hosts_up([a_host(incarnation="second")])
    assert ledger.hosts["h1"].incarnation == "second"


def test_a_gang_that_was_held_and_has_hosts_now_is_in_the_book_once() -> None:
    """Otherwise it would be placed a second time when its user releases it."""
    ledger = Ledger()
    host = a_host()
    request = a_request("k1", some(cpu=4))
    recovered(
        ledger,
        RecoveryPage(hosts=(host,)),
        waits(request, held=True),
        holds(a_placement(host, some(cpu=4), "k1")),
    )

    ledger.amend("k1", Band.INTERACTIVE, held=False)
    assert set(ledger.live) == {"k1"}
    assert "k1" not in ledger.waiting
    assert "k1" not in ledger.held
    assert ledger.settle(at(10)).placed == []
    ledger.host_lost("h1", "first")
    assert ledger.live == {}


def test_a_wish_that_was_heard_after_a_page_was_asked_for_is_not_undone_by_it() -> None:
    """The user released the job after the request of the page, which still shows the hold."""
    ledger = Ledger()
    recovery = LedgerRecovery(ledger)
    ledger.ask(a_request("k1"))
    ledger.amend("k1", Band.PRODUCTION, held=False, changed_at=at(5))
    recovery.request_page()
    recovery.enter(waits(a_request("k1", band=Band.BATCH), held=True), at(4))

    assert [request.band for request in ledger.waiting] == [Band.PRODUCTION]
    assert len(ledger.held) == 0


def test_the_second_roll_corrects_the_first() -> None:
    """It contains placements that were released, and holds that ended, during the first one."""
    ledger = Ledger()
    host = a_host()
    earlier, later = (a_request(key, owner="job") for key in ("k1", "k2"))
    recovered(ledger, RecoveryPage(hosts=(host,)), waits(earlier, held=True), waits(later))

    assert [request.key for request in ledger.waiting] == ["k2"]
    assert len(ledger.held) == 0
    recovered(ledger, waits(a_request("k3"), held=True), waits(a_request("k3")))
    assert "k3" in ledger.waiting


def test_hosts_of_a_slice_that_is_drained_take_nothing_new_in_the_new_book_either() -> None:
    """An operator waits until the hosts are free. A new scheduler must not place tasks on them."""
    ledger = Ledger()
    recovered(
        ledger,
        RecoveryPage(hosts=(a_host("going"), a_host("stays")), draining={"going": "new kernel"}),
    )

    assert ledger.host_index.closed(ledger.hosts["going"]) == "drained: new kernel"
    assert ledger.host_index.closed(ledger.hosts["stays"]) is None


def test_a_slice_whose_machines_are_gone_says_so_again_until_the_gangs_have_reported() -> None:
    """A ledger that is being recovered does not know whom to tell. When it does, the host itself
    may be unknown: its slice does not offer it any more.
    """
    ledger, host = Ledger(), a_host()
    down = SliceDown(incarnations=((host.id, host.incarnation),), gone=True, reason="preempted")
    early = enter(ledger, down, size=LedgerSize(), whole=False)
    recovered(ledger, holds(a_placement(host, some(cpu=4), "k1")))
    late = enter(ledger, down, size=LedgerSize(), whole=True)

    assert (bool(early.problem), list(early.evicted)) == (True, [])
    assert late.problem == ""
    assert [(each.key, each.why_gone, each.gone) for each in late.evicted] == [
        ("k1", "preempted", down.incarnations)
    ]
