"""What one batch of messages changes in the scheduler's book and how it is answered, in every order
of its messages.
"""

from itertools import combinations, permutations

import pytest

from iris.messages.scheduler import Amend, Answer, Ask, Message, Release, SliceDown
from iris.planners.ledger_messages import serve
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.ledger.size import LedgerSize
from iris.scheduling.placement.refusals import RefusalCode
from tests.builders import NOON, a_host, a_request, at, some

#: `k` is the gang under test; `other` holds the second host and gives it back.
ASK = Ask(request=a_request("k"))
DOWN = SliceDown(incarnations=(("h1", "first"),))
OTHER_LEAVES = Release(key="other")
WITHDRAWN = Release(key="k")
#: What may arrive while the answer to the first ask is lost, in any order, in one batch or in two.
LATE: tuple[Message, ...] = (ASK, ASK, DOWN, OTHER_LEAVES, WITHDRAWN)


def a_book(before: str) -> Ledger:
    """Two hosts of one core, the second one taken; and how far the first copy of the ask of `k` has
    come.
    """
    ledger = Ledger()
    ledger.hosts_up([a_host("h2", some(cpu=1))])
    serve(ledger, [Ask(request=a_request("other"))], NOON, size=LedgerSize(), whole=True)
    match before:
        case "placed":
            ledger.hosts_up([a_host("h1", some(cpu=1))])
            serve(ledger, [ASK], NOON, size=LedgerSize(), whole=True)
        case "waits":
            serve(ledger, [ASK], NOON, size=LedgerSize(), whole=True)
        case "not asked":
            ledger.hosts_up([a_host("h1", some(cpu=1))])
    return ledger


def orders() -> list[tuple[Message, ...]]:
    """Every order of every selection of the late messages that has at least one ask."""
    chosen = {
        each
        for size in range(1, len(LATE) + 1)
        for some in combinations(LATE, size)
        for each in permutations(some)
    }
    return [each for each in chosen if ASK in each]


@pytest.mark.parametrize("before", ["placed", "waits", "not asked"])
def test_in_every_order_of_messages_a_gang_that_asks_has_hosts_or_waits_or_was_withdrawn(
    before: str,
) -> None:
    """A gang that gets the answer UNKNOWN would wait for ever for a placement."""
    for messages in orders():
        for cut in range(len(messages)):
            ledger, told, withdrawn = a_book(before), [], False
            for batch in (messages[:cut], messages[cut:]):
                waited = "k" in ledger.waiting
                served = serve(ledger, batch, at(1), size=LedgerSize(), whole=True)
                withdrawn = withdrawn or WITHDRAWN in batch
                answers = [
                    answer
                    for message, answer in zip(batch, served.answers, strict=True)
                    if message is ASK
                ]
                told += [answer.placement for answer in answers if answer.placement] + list(
                    served.notices
                )
                where = (before, messages, cut)

                for answer in answers:
                    _is_true(answer, ledger, withdrawn=withdrawn)
                assert not (withdrawn and ("k" in ledger.live or "k" in ledger.waiting)), where
                placed = ledger.live.get("k")
                if placed is not None and before != "placed":
                    assert placed in told, where
                if placed is not None and waited:
                    assert placed in served.notices, (
                        "the copy of the ask may be one whose sender listens no more",
                        where,
                    )
                assert len(
                    {seat.host_id for each in ledger.live.values() for seat in each.seats}
                ) == len(ledger.live)


def _is_true(answer: Answer, ledger: Ledger, *, withdrawn: bool) -> None:
    if answer.placement is not None:
        assert ledger.live["k"] == answer.placement
    elif answer.refusal is not None and answer.refusal.code is RefusalCode.UNKNOWN:
        assert withdrawn
    else:
        assert answer.refusal is not None
        assert "k" in ledger.waiting


def test_a_hold_that_arrives_with_the_end_of_the_slice_is_kept() -> None:
    """The ask waits again, and its user still does not want it placed."""
    ledger = a_book("placed")
    hold = Amend(key="k", band=ASK.request.band, held=True, changed_at=at(1))

    _, held, _ = serve(ledger, [ASK, hold, DOWN], at(1), size=LedgerSize(), whole=True).answers

    assert held.refusal is not None
    assert held.refusal.code is RefusalCode.HELD
    assert not ledger.waiting.keys()
