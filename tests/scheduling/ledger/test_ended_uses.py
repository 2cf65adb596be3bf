"""The records of use that the ledger makes: one for each placement, with what it held and until
when.
"""

from datetime import datetime, timedelta
from typing import Any

import pytest

from iris.model.host.constraints import SCALE_GROUP, TPU_NAME
from iris.model.job.requests import Placement
from iris.model.job.spec import Band
from iris.scheduling.ledger import ended_uses
from iris.scheduling.ledger.bounded_memory import REMEMBERED
from iris.scheduling.ledger.codec import LedgerState
from iris.scheduling.ledger.ended_uses import EndedUses
from iris.scheduling.ledger.ledger import Ledger
from iris.usage.lines import to_line
from iris.usage.records import (
    Asked,
    AttemptEnd,
    AttemptUse,
    DroppedUses,
    Record,
    SliceUse,
    UseEnd,
)
from tests.builders import a_gang, a_host, a_placement, a_request, a_slice, at, some

SUCCEEDED = AttemptEnd(
    end=UseEnd.SUCCEEDED,
    started_at=at(5),
    tags={"team": "speech"},
    asked=Asked(at=at(-30), group_by=TPU_NAME),
)


def a_ledger(*hosts: str) -> Ledger:
    """A ledger with hosts of four cores and 8 GiB each."""
    ledger = Ledger()
    ledger.hosts_up([a_host(host, some(cpu=4, memory=8)) for host in hosts])
    return ledger


def place(ledger: Ledger, when: float = 0, **changes: Any) -> Placement:
    """Places a task of the user ada."""
    key = "ada/train:3@1/run"
    request = a_request(key, **changes, task="ada/train:3", user="ada")
    ledger.ask(request)
    ledger.settle(at(when))
    return ledger.live[key]


def renewed(ledger: Ledger) -> Ledger:
    return Ledger(LedgerState.model_validate_json(ledger.state().model_dump_json()))


def records(uses: EndedUses) -> list[Record]:
    """Everything that waits, as if it were stored now."""
    found: list[Record] = []
    while uses:
        found += uses.take_batch()
        uses.stored()
    return found


def the_record(ledger: Ledger) -> AttemptUse:
    (record,) = records(ledger.ended_uses)
    assert isinstance(record, AttemptUse)
    return record


def test_the_record_tells_who_held_what_and_until_when() -> None:
    """All of it is the ledger's own knowledge, but for what only the gang knows."""
    ledger = Ledger()
    hosts = a_slice("pod", attributes={SCALE_GROUP: "tpus", TPU_NAME: "pod"})
    ledger.hosts_up(hosts)
    gang = a_gang("ada/train@2/run", task="ada/train", user="ada", band=Band.BATCH)
    ledger.ask(gang)
    ledger.settle(at(0))
    ledger.forget(gang.key, ended=SUCCEEDED)
    ledger.settle(at(60))

    assert the_record(ledger) == AttemptUse(
        id="ada/train@2/run",
        job="ada/train",
        user="ada",
        band=Band.BATCH,
        group="tpus",
        slices=("pod",),
        hosts=4,
        host_share=4.0,
        tpu_chips=16,
        cpu_millis=4_000,
        memory_bytes=4 * gang.resources.memory_bytes,
        disk_bytes=4 * gang.resources.disk_bytes,
        variant="v5litepod-16",
        asked=SUCCEEDED.asked,
        tags={"team": "speech"},
        placed_at=at(0),
        started_at=at(5),
        ended_at=at(60),
        end=UseEnd.SUCCEEDED,
    )


def test_a_task_holds_the_largest_part_that_it_has_of_any_resource() -> None:
    """A task with one core and half the memory keeps others away from half the host."""
    ledger = a_ledger("h1")
    place(ledger, wants=some(cpu=1, memory=4))
    ledger.forget("ada/train:3@1/run")
    ledger.settle(at(1))
    record = the_record(ledger)
    assert (record.host_share, record.job) == (0.5, "ada/train")


def test_a_request_that_never_had_hosts_makes_no_record() -> None:
    """Its user has used nothing."""
    ledger = a_ledger()
    ledger.ask(a_request("k1"))
    ledger.settle(at(0))
    ledger.forget("k1", ended=AttemptEnd(end=UseEnd.CANCELLED))
    ledger.forget("unknown")
    ledger.settle(at(1))
    assert records(ledger.ended_uses) == []


def test_a_repeated_release_makes_no_second_record() -> None:
    """Messages arrive at least once."""
    ledger = a_ledger("h1")
    place(ledger)
    for when in (10, 20):
        ledger.forget("ada/train:3@1/run", ended=SUCCEEDED)
        ledger.settle(at(when))
    assert the_record(ledger).ended_at == at(10)


@pytest.mark.parametrize("kept", [True, False], ids=["one run", "continued as new"])
def test_the_use_of_lost_hosts_ends_with_them(kept: bool) -> None:
    """The gang releases them a minute later, when it knows, and tells then how it ended. By then
    the ledger does not have the host any more, of which the gang held a quarter.
    """
    ledger = a_ledger("h1")
    place(ledger)
    ledger.host_lost("h1", "first")
    ledger.settle(at(30))
    assert records(ledger.ended_uses) == []
    ledger = ledger if kept else renewed(ledger)
    ledger.settle(at(80))
    ledger.forget("ada/train:3@1/run", ended=AttemptEnd(end=UseEnd.PREEMPTED, started_at=at(50)))
    ledger.settle(at(90))

    record = the_record(ledger)
    assert (record.end, record.ended_at, record.host_share) == (UseEnd.PREEMPTED, at(30), 0.25)
    assert record.started_at == at(30), "the clock of the host is ahead"


def test_a_gang_that_lost_one_host_has_used_all_until_it_releases_them() -> None:
    """The others could not be given to anyone else."""
    ledger = a_ledger()
    ledger.hosts_up(a_slice("pod", hosts=2))
    ledger.ask(a_gang("g", tasks=2))
    ledger.settle(at(0))
    ledger.host_lost("pod-0", "first")
    ledger.settle(at(10))
    ledger.forget("g", ended=AttemptEnd(end=UseEnd.PREEMPTED))
    ledger.settle(at(70))
    record = the_record(ledger)
    assert (record.hosts, record.host_share, record.ended_at) == (2, 2.0, at(70))


def test_hosts_that_a_terminated_gang_left_one_by_one_make_one_record() -> None:
    """Each host says when the last program there has ended."""
    ledger = a_ledger()
    ledger.hosts_up(a_slice("pod", hosts=2))
    ledger.ask(a_gang("g", tasks=2))
    ledger.settle(at(0))
    chips = ledger.ended_uses.open(ledger.live["g"], ledger.hosts, at(1)).tpu_chips
    ledger.vacate("g", "pod-0", "first", at(10))
    ledger.vacate("g", "pod-0", "first", at(11))
    assert records(ledger.ended_uses) == []
    ledger.vacate("g", "pod-1", "first", at(20))
    ledger.vacate("g", "pod-1", "first", at(21))
    ledger.forget("g")
    ledger.settle(at(90))
    record = the_record(ledger)
    assert (record.end, record.hosts, record.ended_at) == (UseEnd.UNKNOWN, 2, at(20))
    assert record.tpu_chips == chips > 0


def test_a_gang_that_does_not_release_its_lost_hosts_has_a_record_when_it_is_forgotten() -> None:
    """Its workflow was terminated. The ledger remembers so many, and no more."""
    ledger = a_ledger()
    for number in range(REMEMBERED + 1):
        host = a_host("h1", some(cpu=1), incarnation=f"{number}")
        ledger.hosts_up([host])
        ledger.adopt(a_placement(host, key=f"k{number}", task="ada/a:0"))
        ledger.host_lost("h1", host.incarnation)
        ledger.settle(at(number))
    record = the_record(ledger)
    assert (record.id, record.end, record.ended_at) == ("k0", UseEnd.UNKNOWN, at(0))


def test_a_gang_that_gets_hosts_twice_with_one_key_has_two_records() -> None:
    """It lost the first ones before it knew of them, and asked again. Both were taken from others."""
    ledger = a_ledger("h1")
    place(ledger)
    ledger.host_lost("h1", "first")
    ledger.settle(at(10))
    ledger.hosts_up([a_host("h1", some(cpu=4, memory=8), incarnation="second")])
    place(ledger, when=20)
    ledger.forget("ada/train:3@1/run", ended=SUCCEEDED)
    ledger.settle(at(30))

    first, second = sorted(records(ledger.ended_uses), key=lambda each: each.ended_at)
    assert (first.placed_at, first.ended_at, first.end) == (at(0), at(10), UseEnd.UNKNOWN)
    assert (second.placed_at, second.ended_at, second.end) == (at(20), at(30), UseEnd.SUCCEEDED)
    assert second.id == "ada/train:3@1/run" != first.id


def test_a_forecast_makes_no_record() -> None:
    """It tries a pass on a copy of the ledger."""
    ledger = a_ledger("h1")
    place(ledger)
    ledger.forget("ada/train:3@1/run", ended=SUCCEEDED)
    ledger.forecast(a_request("what if"), at(5))
    ledger.settle(at(10))
    assert the_record(ledger).ended_at == at(10)


# -- storing


def an_attempt(number: int, **changes: Any) -> AttemptUse:
    return AttemptUse(
        **{
            "id": f"k{number}",
            "job": "ada/a",
            "user": "ada",
            "band": Band.BATCH,
            "hosts": 1,
            "host_share": 1,
            "placed_at": at(number),
            "ended_at": at(number + 1),
            "end": UseEnd.FAILED,
            **changes,
        }
    )


def end(uses: EndedUses, *records: Record) -> None:
    """Adds records as an earlier run of the scheduler passes them on."""
    state = uses.state()
    uses.__init__(state.model_copy(update={"waiting": [*state.waiting, *records]}))  # type: ignore[misc]


def test_records_that_are_being_stored_when_a_run_ends_are_stored_again() -> None:
    """The run does not know whether they were. A record may be stored twice, and none is lost."""
    uses = EndedUses()
    end(uses, an_attempt(1), an_attempt(2))
    sent = uses.take_batch()
    end(uses)
    assert records(uses) == list(sent)


def test_a_batch_has_a_limit() -> None:
    """It is a payload of the scheduler's history."""
    uses = EndedUses()
    end(uses, *(an_attempt(number) for number in range(ended_uses.MOST_AT_ONCE + 1)))
    assert uses.is_urgent
    assert len(uses.take_batch()) == ended_uses.MOST_AT_ONCE
    uses.stored()
    assert len(uses.take_batch()) == 1

    uses, long = EndedUses(), {"tag": "x" * (ended_uses.MOST_BYTES_AT_ONCE // 3)}
    end(uses, *(an_attempt(number, tags=long) for number in range(4)))
    assert uses.is_urgent
    assert len(uses.take_batch()) == 2
    uses, long = EndedUses(), {"tag": "x" * (ended_uses.MOST_BYTES_AT_ONCE * 2)}
    end(uses, an_attempt(1, tags=long), an_attempt(2))
    assert len(uses.take_batch()) == 1, "a record larger than that is stored, too"


def test_the_record_of_a_slice_is_stored_at_once() -> None:
    """The last slices of a cluster end just before the cluster does."""
    uses = EndedUses()
    end(uses, an_attempt(1))
    assert not uses.is_urgent
    life = {"group": "g", "zone": "z", "machine": "m", "hosts": 1}
    uses.add(SliceUse(id="s1", **life, requested_at=at(0), gone_at=at(9)))
    assert uses.is_urgent
    assert len(uses.take_batch()) == 2
    assert not uses.is_urgent


@pytest.mark.parametrize("bound", ["MOST_WAITING", "MOST_WAITING_BYTES"])
def test_records_that_are_too_many_are_dropped_and_that_is_recorded(
    monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """The store does not answer for hours. The ledger must still fit into a payload, and a reader
    has to learn that records are missing, from when to when.
    """
    each = 1 if bound == "MOST_WAITING" else len(to_line(an_attempt(10)))
    monkeypatch.setattr(ended_uses, bound, 3 * each)
    uses = EndedUses()
    end(uses, *(an_attempt(number) for number in range(10, 15)))
    assert uses.dropped == 2
    end(uses, an_attempt(15))
    assert uses.dropped == 3

    dropped, *kept = records(uses)
    assert isinstance(dropped, DroppedUses)
    assert (dropped.count, dropped.since, dropped.until) == (3, at(10), at(13))
    assert [each.id for each in kept] == ["k13", "k14", "k15"]
    assert uses.dropped == 0


def test_open_uses_are_shown_with_the_present_as_their_end() -> None:
    """`iris usage` counts what runs now."""
    ledger = a_ledger("h1")
    placement = place(ledger)
    now: datetime = at(0) + timedelta(hours=3)
    use = ledger.ended_uses.open(placement, ledger.hosts, now)
    assert (use.end, use.placed_at, use.ended_at, use.host_share) == (
        UseEnd.OPEN,
        at(0),
        now,
        0.25,
    )
