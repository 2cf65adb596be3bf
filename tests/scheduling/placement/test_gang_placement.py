"""Gangs in the scheduling pass: a host for each task in one group, or none at all; and where they
meet.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.host.constraints import Attribute
from iris.model.host.hosts import Host
from iris.model.job.requests import Placement, Request, request_for
from iris.model.job.spec import Coscheduling
from iris.model.rules import Rules
from iris.scheduling.placement.place import FIRST_PORT, LAST_PORT, Pass, place
from iris.scheduling.placement.queue import Queue
from tests.builders import (
    CHIPS,
    a_fleet,
    a_gang,
    a_gang_placement,
    a_host,
    a_placement,
    a_request,
    a_slice,
    a_spec,
    at,
    demands,
    some,
)
from tests.strategies import CHEAP, PATIENT, Situation, situations


def after(
    hosts: Sequence[Host],
    queue: Sequence[Request],
    live: Sequence[Placement] = (),
    cordoned: Sequence[str] = (),
) -> Pass:
    return place(a_fleet(*hosts, cordoned=cordoned), live, Queue(queue), at(60), Rules())


def where(
    hosts: Sequence[Host],
    queue: Sequence[Request],
    live: Sequence[Placement] = (),
    cordoned: Sequence[str] = (),
) -> dict[str, list[str]]:
    """Request key -> the hosts of its tasks, in their order."""
    return {
        each.key: [seat.host_id for seat in each.seats]
        for each in after(hosts, queue, live, cordoned).placed
    }


def test_task_i_is_on_the_host_with_worker_id_i_whatever_the_order_in_which_hosts_came() -> None:
    """The TPU runtime counts its processes by worker id; a program that counts otherwise hangs at
    its first collective.
    """
    hosts = a_slice("s", 12)

    assert where([*hosts[7:], *hosts[:7]], [a_gang(tasks=12)]) == {
        "gang": [f"s-{i}" for i in range(12)]
    }


def test_a_gang_is_not_put_together_from_parts_of_two_slices() -> None:
    """Chips of two slices are not wired to one another."""
    hosts = a_slice("one", 2) + a_slice("two", 2)

    assert where(hosts, [a_gang(tasks=4)]) == {}
    assert where(hosts, [a_gang(tasks=2)]) == {"gang": ["one-0", "one-1"]}


def test_one_busy_or_closed_host_keeps_the_whole_gang_waiting() -> None:
    """Half a gang waits in its first collective for ever, and holds what others could use."""
    hosts = a_slice("s", 4)

    assert where(hosts, [a_gang()], [a_placement(hosts[2], CHIPS)]) == {}
    assert where(hosts, [a_gang()], cordoned=["s-2"]) == {}
    assert where(hosts, [a_gang()]) == {"gang": ["s-0", "s-1", "s-2", "s-3"]}


def test_a_job_over_two_slices_gets_both_or_none() -> None:
    """Its tasks are split evenly, the first half on one slice; and each placement says which task
    is in which.
    """
    one, two = a_slice("one", 2), a_slice("two", 2)
    gang = a_gang(tasks=4, groups=2)

    assert where(one, [gang]) == {}
    assert where([*one, *two], [gang], [a_placement(two[1], CHIPS)]) == {}
    [placed] = after([*one, *two], [gang]).placed
    assert [(seat.host_id, seat.group) for seat in placed.seats] == [
        ("one-0", 0),
        ("one-1", 0),
        ("two-0", 1),
        ("two-1", 1),
    ]


def test_a_gang_takes_the_group_in_which_the_least_is_left_over() -> None:
    """A slice of four that serves a gang of two cannot serve the gang of four behind it."""
    hosts = a_slice("large", 4) + a_slice("small", 2)

    assert where(hosts, [a_gang("two", 2), a_gang("four", 4, submitted_at=at(1))]) == {
        "two": ["small-0", "small-1"],
        "four": ["large-0", "large-1", "large-2", "large-3"],
    }


def _of_tasks(tasks: int, each: int, cpu: float = 1, gpus: int = 0) -> Request:
    """The request of a gang that shares hosts, in one rack."""
    spec = a_spec(
        replicas=tasks,
        resources=some(cpu=cpu, device=f"gpu:L4:{gpus}" if gpus else "cpu"),
        coscheduling=Coscheduling(group_by="rack", tasks_per_host=each),
    )
    return request_for(spec, index=0, attempt=1, run_id="run", owner="job", submitted_at=at(0))


def test_tasks_of_a_gang_that_share_a_host_have_room_there_together() -> None:
    """Two small tasks must not occupy two machines, and a host for one of them is not a host for
    two.
    """
    hosts = [
        a_host(f"h{number}", attributes={"rack": 1}, address=f"10.0.0.{number}")
        for number in range(3)
    ]

    [one] = after(hosts, [_of_tasks(2, 2)]).placed
    assert [seat.host_id for seat in one.seat_of_each_task] == ["h0", "h0"]
    assert one.coordinator.startswith("10.0.0.0:")
    [two] = after(hosts, [_of_tasks(4, 2, cpu=2)]).placed
    assert [seat.host_id for seat in two.seat_of_each_task] == ["h0", "h0", "h1", "h1"]
    assert where(hosts, [_of_tasks(2, 2, cpu=3)]) == {}
    [third] = after(hosts, [_of_tasks(2, 2, cpu=2)], [one]).placed
    assert [seat.host_id for seat in third.seats] == ["h1"]


def test_tasks_that_share_a_host_have_devices_of_their_own() -> None:
    """Four tasks with two GPUs each need all eight of a host."""
    hosts = [
        a_host(name, some(cpu=8, device="gpu:L4:8"), attributes={"rack": 1}) for name in ("a", "b")
    ]

    [placed] = after(hosts, [_of_tasks(4, 4, gpus=2)]).placed
    assert [seat.host_id for seat in placed.seat_of_each_task] == ["a"] * 4
    assert where(hosts, [_of_tasks(8, 8, gpus=2)]) == {}


def test_what_others_take_in_the_same_pass_counts_for_packing_gangs_too() -> None:
    """The large slice of which single tasks have just taken two hosts is now the smallest one that
    is enough.
    """
    hosts = a_slice("a", 2) + a_slice("four", 4) + a_slice("three", 3)
    pin = demands("tpu-name = four")
    queue = [
        a_gang("first", 2, submitted_at=at(0)),
        a_request("pinned-1", CHIPS, constraints=pin, submitted_at=at(1)),
        a_request("pinned-2", CHIPS, constraints=pin, submitted_at=at(2)),
        a_gang("second", 2, submitted_at=at(3)),
    ]

    placed = where(hosts, queue)

    assert placed["first"] == ["a-0", "a-1"]
    assert {host.partition("-")[0] for host in placed["second"]} == {"four"}


def test_single_tasks_on_a_slice_and_gangs_never_share_chips() -> None:
    """Both are served from the same hosts, in one pass, in whatever order they came."""
    hosts = a_slice("s", 2)

    first = where(
        hosts, [a_request("task", CHIPS, submitted_at=at(0)), a_gang(tasks=2, submitted_at=at(1))]
    )
    second = where(
        hosts, [a_request("task", CHIPS, submitted_at=at(2)), a_gang(tasks=2, submitted_at=at(1))]
    )

    assert (first, second) == ({"task": ["s-0"]}, {"gang": ["s-0", "s-1"]})


def test_a_gang_prefers_the_group_that_meets_its_wishes_but_does_not_wait_for_it() -> None:
    """Preferred constraints choose among groups; a tighter group does not outweigh them."""
    hosts = a_slice("tight", 2, attributes={"zone": "a"}) + a_slice(
        "loose", 3, attributes={"zone": "b"}
    )
    gangs = [
        a_gang(f"g{i}", 2, constraints=demands("?zone = b"), submitted_at=at(i)) for i in range(2)
    ]

    assert where(hosts, gangs) == {"g0": ["loose-0", "loose-1"], "g1": ["tight-0", "tight-1"]}


def test_hosts_without_the_attribute_belong_to_no_group() -> None:
    """Machines that somebody brought are in no slice; they are not one great slice without a
    name.
    """
    hosts = [a_host(f"h{i}", some(cpu=8, device="tpu:v5litepod-16:4")) for i in range(4)]

    assert where(hosts, [a_gang(tasks=2)]) == {}


@pytest.mark.parametrize("values", [(True, "true"), (1, "1"), (True, 1), (1, 1.0)])
def test_hosts_whose_attributes_differ_in_their_kind_are_in_different_groups(
    values: tuple[Attribute, Attribute],
) -> None:
    """A gang must not be put together from a rack named "1" and one whose number is 1."""
    hosts = [
        a_host(f"h{number}", attributes={"rack": value}) for number, value in enumerate(values)
    ]
    gang = a_gang(tasks=2, wants=some(cpu=1), group_by="rack")

    assert where(hosts, [gang]) == {}
    assert where([*hosts, a_host("h2", attributes={"rack": values[0]})], [gang]) == {
        "gang": ["h0", "h2"]
    }


def test_gangs_that_share_a_host_meet_on_different_ports() -> None:
    """Two coordinators on one port: the second gang would join the first. A port is free again when
    its gang is gone.
    """
    hosts = [
        host.model_copy(update={"address": f"10.0.0.{i}"}) for i, host in enumerate(a_slice("s", 2))
    ]
    one_chip = some(cpu=1, device="tpu:v5litepod-16:1")
    queue = [a_gang(f"g{i}", 2, one_chip, submitted_at=at(i)) for i in range(2)]
    [wanted] = after(hosts, queue[:1]).placed
    running = a_gang_placement(hosts, one_chip, coordinator=wanted.coordinator)

    met = [placed.coordinator for placed in after(hosts, queue, [running]).placed]

    assert len({wanted.coordinator, *met}) == 3
    assert all(FIRST_PORT <= int(each.removeprefix("10.0.0.0:")) <= LAST_PORT for each in met)
    assert [placed.coordinator for placed in after(hosts, [a_request(wants=one_chip)]).placed] == [
        ""
    ]


def test_gangs_of_two_clusters_on_one_machine_and_attempts_of_one_gang_have_different_ports() -> (
    None
):
    """No scheduler knows the ports of another, and an attempt that found its port in use must not
    get it again.
    """
    hosts = [a_host("h0", address="10.0.0.0", attributes={"rack": 1})]

    met = [
        after(hosts, [_of_tasks(2, 2).model_copy(update={"key": f"gang/{n}/run"})])
        .placed[0]
        .coordinator
        for n in range(3)
    ]

    assert len(set(met)) == 3


@CHEAP
@given(situations())
def test_no_two_gangs_meet_at_one_place(situation: Situation) -> None:
    """Of all that run and all that a pass starts; and each meets on the host of its task 0, where
    nobody else could be meant.
    """
    placed = place(situation.fleet, situation.live, Queue(situation.queue), at(6), PATIENT).placed

    met = [each.coordinator for each in [*situation.live, *placed] if each.coordinator]
    assert len(set(met)) == len(met)
    for each in placed:
        assert each.coordinator.partition(":")[0] == (
            each.seats[0].host_id if len(each.seats) > 1 else ""
        )


@CHEAP
@given(
    st.lists(st.integers(1, 5), max_size=5), st.integers(1, 4), st.integers(1, 2), st.integers(1, 6)
)
def test_as_many_gangs_are_placed_as_empty_slices_can_hold(
    sizes: list[int], each: int, groups: int, count: int
) -> None:
    """Twins on empty slices: none waits while there are enough groups with enough hosts left, the
    tightest taken first.
    """
    hosts = [host for i, size in enumerate(sizes) for host in a_slice(f"s{i}", size)]
    gangs = [
        a_gang(f"g{i}", each * groups, groups=groups, submitted_at=at(i)) for i in range(count)
    ]

    placed = where(hosts, gangs)

    left = list(sizes)
    for _ in placed:
        tightest = sorted((size, i) for i, size in enumerate(left) if size >= each)[:groups]
        assert len(tightest) == groups
        for _, i in tightest:
            left[i] -= each
    assert len(placed) == count or sum(size >= each for size in left) < groups
