"""When the scheduler's ledger is full, and which requests it then refuses."""

import bz2
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.client.connect import connection
from iris.messages import compression
from iris.messages.scheduler import Ask, Release, SchedulerStart, SliceUp
from iris.planners.ledger_messages import Served, enter, serve
from iris.scheduling.ledger import size as ledger_size
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.ledger.size import FULL, NEAR, STEP, LedgerSize
from iris.scheduling.placement.refusals import RefusalCode
from tests.builders import NOON, a_host, a_request, at, some
from tests.strategies import CHEAP


def ask(key: str, cpu: float = 1, **changes: object) -> Ask:
    return Ask(
        request=a_request(
            f"ada/{key}:0@1/run",
            some(cpu=cpu),
            owner=f"c/job/ada/{key}",
            task=f"ada/{key}:0",
            **changes,
        )
    )


def send(
    ledger: Ledger, size: LedgerSize, *messages: Ask | Release | SliceUp, whole: bool = True
) -> Served:
    return serve(ledger, messages, NOON, whole=whole, size=size)


def test_a_full_ledger_refuses_new_requests_with_its_size_and_takes_all_other_messages() -> None:
    """Requests in the ledger may be explained, released and placed. That makes the ledger
    smaller.
    """
    ledger, size = Ledger(), LedgerSize()
    send(ledger, size, ask("before"))
    full = LedgerSize(FULL)
    served = send(
        ledger,
        full,
        ask("before"),
        ask("after"),
        Release(key="ada/other:0@1/run"),
        SliceUp(hosts=(a_host(),)),
    )
    known, refused = served.answers[0], served.answers[1].refusal

    assert known.placement is not None
    assert refused is not None
    assert refused.code is RefusalCode.LEDGER_FULL
    assert (
        refused.message
        == "the scheduler's ledger is full: 1.75 MiB, at most 1.75 MiB; 1 waiting and 0 running"
        " gangs"
    )
    assert list(ledger.live) == ["ada/before:0@1/run"]
    assert not len(ledger.waiting)


def test_a_refusal_of_a_full_ledger_is_never_replaced_by_another_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gang that does not learn that it was refused would wait for a signal for ever."""
    monkeypatch.setattr("iris.planners.ledger_messages.BATCH_BYTES", 1)
    served = send(Ledger(), LedgerSize(FULL), *(ask(f"j{number}") for number in range(5)))

    assert [answer.refusal.code for answer in served.answers if answer.refusal] == [
        RefusalCode.LEDGER_FULL
    ] * 5


def test_during_recovery_no_request_is_refused() -> None:
    """The size of a ledger that is being rebuilt is known when it is complete and the scheduler
    continues as new.
    """
    ledger = Ledger()
    send(ledger, LedgerSize(FULL), ask("job"), whole=False)

    assert len(ledger.waiting) == 1


def test_the_size_is_measured_again_before_the_ledger_is_full_by_estimate() -> None:
    """Additions count before compression. A ledger that is full only by that estimate would refuse
    requests for nothing.
    """
    ledger, size = Ledger(), LedgerSize(FULL - NEAR)
    assert not size.stale
    number = 0
    while not size.stale:
        send(ledger, size, *(ask(f"j{number + each}") for each in range(100)))
        number += 100
    assert not size.full
    assert size.bytes - (FULL - NEAR) >= STEP
    assert len(ledger.waiting) == number


def test_a_full_ledger_is_measured_again_when_enough_was_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise it would refuse requests until its history is long. A request that it does not have
    makes no difference.
    """
    monkeypatch.setattr(ledger_size, "STEP", 100)
    ledger, size = Ledger(), LedgerSize(FULL)
    send(ledger, LedgerSize(), *(ask(f"j{number}") for number in range(20)))
    send(ledger, size, *(Release(key=f"unknown-{number}") for number in range(20)))
    assert not size.stale
    send(ledger, size, *(Release(key=request.key) for request in list(ledger.waiting)))

    assert size.stale


def test_placements_count() -> None:
    """A gang with hosts takes more space than a waiting gang."""
    ledger, size = Ledger(), LedgerSize()
    ledger.hosts_up([a_host()])
    send(ledger, size, ask("a"))
    before = size.bytes
    size.placed(next(iter(ledger.live.values())))

    assert size.bytes > before


@CHEAP
@given(st.integers(1, 200), st.integers(0, 10**6), st.booleans())
def test_the_estimate_is_never_below_the_size_that_travels(
    count: int, seed: int, many_shapes: bool
) -> None:
    """Users choose names and amounts. None of them may make the ledger larger than the estimate."""
    dice = random.Random(seed)
    ledger, size = Ledger(), LedgerSize()
    empty = len(
        bz2.compress(SchedulerStart(cluster="c", ledger=ledger.state()).model_dump_json().encode())
    )
    for number in range(count):
        key = f"{dice.getrandbits(200):x}" if seed % 2 else f"job-{number}"
        cpu = 1 + number / 1000 if many_shapes else 1
        enter(
            ledger, ask(key, cpu=cpu, submitted_at=at(dice.random() * 1e6)), whole=True, size=size
        )
    travels = bz2.compress(
        SchedulerStart(cluster="c", ledger=ledger.state()).model_dump_json().encode()
    )

    assert len(travels) - empty <= size.bytes + 300


async def test_a_large_ledger_is_compressed_more_and_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Smaller payloads keep the faster compression."""
    codec, ledger = connection.CompressionCodec(), Ledger()
    dice = random.Random(1)
    for _ in range(3_000):
        ledger.ask(
            ask(f"job-{dice.getrandbits(32):x}", submitted_at=at(dice.random() * 1e6)).request
        )
    payloads = connection.SharedConverter().to_payloads(
        [SchedulerStart(cluster="c", ledger=ledger.state())]
    )
    (fast,) = await codec.encode(payloads)
    monkeypatch.setattr(compression, "LARGE", 1_000)
    (small,) = await codec.encode(payloads)

    assert len(small.data) < len(fast.data)
    assert await codec.decode([fast]) == await codec.decode([small]) == list(payloads)
