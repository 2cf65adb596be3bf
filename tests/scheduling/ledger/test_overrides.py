"""The ledger by example: overrides of users after the request, and the reasons of waiting
requests.
"""

import pytest

from iris.model.job.spec import Band
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.placement.refusals import RefusalCode
from tests.builders import NOON, a_host, a_request, at, some
from tests.scheduling.ledger.test_ledger import a_ledger, held, renewed, settle


def test_a_held_request_wants_nothing_and_keeps_its_place_for_when_it_is_let_go() -> None:
    """A held request creates no demand, so no machine is created for it. A release does not move it
    to the end of the queue.
    """
    ledger = Ledger()
    for number, key in enumerate(("k1", "k2")):
        ledger.ask(a_request(key, submitted_at=at(number)))

    ledger.amend("k1", Band.INTERACTIVE, held=True)
    assert sum(ledger.demand().values()) == 1
    assert ledger.explain("k1").code is RefusalCode.HELD

    ledger.amend("k1", Band.INTERACTIVE, held=False)
    ledger.hosts_up([a_host("h1", some(cpu=1))])
    assert settle(ledger) == ["k1"]


@pytest.mark.parametrize("again", [False, True], ids=["same run", "after continue-as-new"])
def test_an_ask_repeated_while_the_request_is_held_does_not_let_it_go(again: bool) -> None:
    """A late copy of the request does not contain the hold."""
    ledger = a_ledger("h1")
    ledger.ask(a_request("k1"))
    ledger.amend("k1", Band.INTERACTIVE, held=True)
    if again:
        ledger = renewed(ledger)

    ledger.ask(a_request("k1"))

    assert settle(ledger) == []
    assert not ledger.demand()


@pytest.mark.parametrize("again", [False, True], ids=["same run", "after continue-as-new"])
def test_a_late_copy_of_an_earlier_wish_does_not_undo_a_later_one(again: bool) -> None:
    """A late copy of the hold would hold a released job for ever."""
    ledger = Ledger()
    ledger.ask(a_request("k1"))
    ledger.amend("k1", Band.BATCH, held=True, changed_at=at(1))
    ledger.amend("k1", Band.PRODUCTION, held=False, changed_at=at(2))
    if again:
        ledger = renewed(ledger)

    ledger.amend("k1", Band.BATCH, held=True, changed_at=at(1))
    ledger.hosts_up([a_host("h1", some(cpu=1))])

    (placed,) = ledger.settle(at(3)).placed
    assert placed.band is Band.PRODUCTION


def test_a_change_of_band_moves_who_waits_and_leaves_who_has_hosts_there() -> None:
    """The band decides who is served next and who may be evicted."""
    ledger = a_ledger("h1")
    for number, key in enumerate(("k1", "k2", "k3")):
        ledger.ask(a_request(key, submitted_at=at(number)))
    settle(ledger)

    ledger.amend("k1", Band.BATCH, held=False)
    ledger.amend("k3", Band.PRODUCTION, held=False)
    assert held(ledger) == {"k1": ["h1"]}
    assert ledger.live["k1"].band is Band.BATCH

    ledger.forget("k1")
    assert settle(ledger) == ["k3"]


def test_a_change_of_what_nobody_asked_for_or_everybody_forgot_is_nothing() -> None:
    """Messages about an attempt may arrive after its end."""
    ledger = a_ledger("h1")
    ledger.ask(a_request("k1"))
    ledger.forget("k1")

    ledger.amend("k1", Band.PRODUCTION, held=False, changed_at=at(1))
    ledger.amend("k2", Band.PRODUCTION, held=True, changed_at=at(1))

    assert settle(ledger) == []
    assert ledger.explain("k2").code is RefusalCode.UNKNOWN


@pytest.mark.parametrize(
    ("key", "code", "said"),
    [
        ("waits", RefusalCode.BUSY, "0 cpu free"),
        ("is held", RefusalCode.HELD, "its job is held"),
        ("holds", RefusalCode.UNKNOWN, "it already has hosts"),
        ("unheard of", RefusalCode.UNKNOWN, "has no such request"),
    ],
)
def test_every_key_has_an_explanation(key: str, code: RefusalCode, said: str) -> None:
    """A query may arrive at any time, and must not fail because the request no longer waits."""
    ledger = a_ledger("h1")
    for each in ("holds", "waits", "is held"):
        ledger.ask(a_request(each))
    ledger.amend("is held", Band.BATCH, held=True)
    settle(ledger)

    refusal = ledger.explain(key)

    assert refusal.code is code
    assert said in refusal.message


def test_a_crowd_is_told_nothing_about_its_place_in_line_that_is_not_so() -> None:
    """A thousand requests of one batch get answers computed together. Only the first of a line may
    be reported as the first.
    """
    ledger = a_ledger("h1")
    ledger.ask(a_request("holds"))
    settle(ledger)
    for number, (user, band) in enumerate(
        [("ada", Band.BATCH)] * 3 + [("ada", Band.PRODUCTION), ("bob", Band.BATCH)]
    ):
        ledger.ask(a_request(f"k{number}", user=user, band=band, submitted_at=at(number)))
    keys = ["k2", "k1", "k0", "k3", "k4", "k9"]

    told = dict(zip(keys, ledger.wait_reasons().explain_all(keys), strict=True))

    assert told["k3"].ahead == 0
    for key, refusal in told.items():
        exact = ledger.explain(key)
        assert refusal.code is exact.code
        assert refusal.ahead <= exact.ahead
        if refusal.message != exact.message:
            assert f"at least {refusal.ahead} request" in refusal.message
    assert [
        told[key].message == ledger.explain(key).message for key in ("k0", "k3", "k4", "k9")
    ] == [True] * 4


def test_what_stronger_bands_will_be_given_counts_when_users_are_compared() -> None:
    """A user who is served in production next comes later in batch, and the reported number
    includes that.
    """
    ledger = Ledger()
    ledger.ask(a_request("ada in production", user="ada", band=Band.PRODUCTION))
    ledger.ask(a_request("ada in batch", user="ada", band=Band.BATCH, submitted_at=at(1)))
    ledger.ask(a_request("bob in batch", user="bob", band=Band.BATCH, submitted_at=at(2)))
    keys = ("ada in production", "ada in batch", "bob in batch")
    told = {key: ledger.explain(key).ahead for key in keys}

    ledger.hosts_up([a_host()])

    assert sorted(told, key=lambda key: told[key]) == settle(ledger)


def test_hosts_that_were_kept_for_somebody_who_gave_up_are_free_again_in_every_answer() -> None:
    """A dry run must not show a reserved host when no request waits."""
    ledger = Ledger()
    ledger.hosts_up([a_host("h1", some(cpu=2))])
    ledger.ask(a_request("small"))
    settle(ledger)
    ledger.ask(a_request("large", some(cpu=2)))
    settle(ledger, at(3600))
    (fit,) = ledger.forecast(a_request("asks"), at(3600)).fits
    assert "reserved" in fit.why

    ledger.forget("large")
    settle(ledger, at(3601))

    (fit,) = ledger.forecast(a_request("asks"), at(3601)).fits
    assert fit.fits


def test_a_forecast_changes_nothing() -> None:
    """A dry run must not take a host or a place in the queue."""
    ledger = a_ledger("h1")
    ledger.ask(a_request("k1"))
    before = ledger.state()

    assert ledger.forecast(a_request("asks", submitted_at=at(1)), NOON).hosts == ()
    assert ledger.forecast(a_request("asks", band=Band.PRODUCTION), NOON).hosts == ("h1",)

    assert ledger.state() == before
