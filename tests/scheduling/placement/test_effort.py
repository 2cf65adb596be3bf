"""The scheduler's count of its own work, which limits what a replay of its history costs."""

import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from random import Random
from types import FrameType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from iris.messages.scheduler import Ask, Close, Message, Release, SliceUp
from iris.messages.wire import HostLost
from iris.model.host.hosts import ClosedBy, Closure
from iris.model.job.spec import Band
from iris.model.rules import Rules
from iris.planners.ledger_messages import serve
from iris.scheduling.ledger.codec import LedgerState
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.ledger.size import LedgerSize
from tests.builders import a_gang, a_host, a_request, a_slice, at, demands, some
from tests.strategies import examples

#: Lines of the scheduling code that run for each look that is counted. A pass that examines hosts
#: runs one or two.
MOST_LINES = 3
#: Lines that a message may take whatever the size of the cluster.
FIXED = 3_000
CONSTRAINTS = [(), (), ("zone = x",), ("zone exists", "?zone = y")]


def lines_of(act: Callable[[], Any]) -> int:
    """How many lines of `iris` run in the call: work without a clock."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if (
            "/iris/" not in frame.f_code.co_filename
            and "/workflows/" not in frame.f_code.co_filename
        ):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def a_ledger(
    random: Random, hosts: int, slices: int, shapes: int, waiting: int, patience: int
) -> Ledger:
    """A ledger after its first passes: full, with requests of many shapes that wait."""
    ledger = Ledger(
        LedgerState(rules=Rules(patience=timedelta(seconds=patience), min_run_time=timedelta(0)))
    )
    ledger.hosts_up(
        [
            a_host(
                f"h{n}", some(random.choice([2, 4]), 16), attributes={"zone": random.choice("xy")}
            )
            for n in range(hosts)
        ]
    )
    for n in range(slices):
        ledger.hosts_up(a_slice(f"s{n}", random.choice([2, 4])))
    for n in range(waiting):
        ledger.ask(_request(random, f"w{n}", shapes))
    while ledger.settle(at(0)).stopped:
        pass
    return ledger


def _request(random: Random, key: str, shapes: int) -> Any:
    shape = random.randrange(shapes)
    changes = {
        "user": random.choice("abc"),
        "band": random.choice(list(Band)),
        "constraints": demands(*CONSTRAINTS[shape % 4]),
    }
    if shape % 3 == 0:
        return a_gang(key, tasks=2, **changes)
    return a_request(key, some(1 + shape % 4, 1 + shape // 4), **changes)


def a_batch(random: Random, ledger: Ledger, number: int, shapes: int) -> Sequence[Message]:
    host_id = random.choice(sorted(ledger.hosts))
    messages: list[Message] = [
        Ask(request=_request(random, f"m{number}-{n}", shapes))
        for n in range(random.choice([1, 5]))
    ]
    messages += [
        Release(key=key, ran=True)
        for key in random.sample(sorted(ledger.live), min(len(ledger.live), 2))
    ]
    match random.randrange(4):
        case 0:
            messages.append(Close(host_id=host_id, closure=Closure(by=ClosedBy.CORDON), evict=True))
        case 1:
            messages.append(
                HostLost(host_id=host_id, incarnation=ledger.hosts[host_id].incarnation)
            )
        case 2:
            messages.append(SliceUp(hosts=(a_host(f"new{number}"),)))
    return messages


@settings(max_examples=examples(40), deadline=None, print_blob=True)
@given(
    random=st.integers(0, 2**32).map(Random),
    hosts=st.integers(4, 120),
    slices=st.integers(0, 8),
    shapes=st.integers(1, 30),
    waiting=st.integers(0, 60),
    patience=st.sampled_from([0, 10**6]),
)
def test_no_message_takes_more_work_than_is_counted(
    random: Random, hosts: int, slices: int, shapes: int, waiting: int, patience: int
) -> None:
    """Whatever the messages: a limit on the count is a limit on what their replay costs."""
    ledger = a_ledger(random, hosts, slices, shapes, waiting, patience)
    for number in range(3):
        batch, before = a_batch(random, ledger, number, shapes), ledger.effort.looks

        lines = lines_of(lambda: serve(ledger, batch, at(number), size=LedgerSize(), whole=True))  # noqa: B023

        assert lines <= MOST_LINES * (ledger.effort.looks - before) + FIXED
