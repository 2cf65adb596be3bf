"""The scheduling pass by example: tasks that run by themselves, and who goes where."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from iris.model.host.hosts import Host
from iris.model.host.resources import Resources
from iris.model.job.requests import Placement, Request, Seat
from iris.model.job.spec import Band
from iris.model.rules import Rules
from iris.scheduling.placement.place import place
from iris.scheduling.placement.queue import Queue
from tests.builders import a_fleet, a_host, a_placement, a_request, at, demands, requests, some


def where(
    hosts: Sequence[Host],
    queue: Sequence[Request],
    live: Sequence[Placement] = (),
    **closed: Sequence[str],
) -> dict[str, str]:
    """Request key -> host id after one pass, in the order of the decisions."""
    done = place(a_fleet(*hosts, **closed), live, Queue(queue), at(60), Rules())
    return {placement.key: placement.seats[0].host_id for placement in done.placed}


def test_what_does_not_fit_never_blocks_what_does() -> None:
    """Head-of-line blocking starved whole clusters in an earlier life of Iris."""
    queue = requests(some(cpu=64), some(cpu=3), some(cpu=2), some(cpu=1))

    assert where([a_host(offers=some(cpu=4))], queue) == {"k2": "h1", "k4": "h1"}


def test_first_come_first_served_whatever_the_order_of_delivery() -> None:
    """Messages overtake one another; the time of submission counts."""
    queue = [
        a_request("late", submitted_at=at(2)),
        a_request("first", submitted_at=at(0)),
        a_request("next", submitted_at=at(1)),
    ]

    assert list(where([a_host(offers=some(cpu=2))], queue)) == ["first", "next"]


def test_a_higher_band_is_served_first_however_late_it_came() -> None:
    """Production does not queue behind a night's worth of batch jobs."""
    queue = [
        a_request("batch", band=Band.BATCH, submitted_at=at(0)),
        a_request("interactive", band=Band.INTERACTIVE, submitted_at=at(1)),
        a_request("production", band=Band.PRODUCTION, submitted_at=at(2)),
    ]

    assert list(where([a_host(offers=some(cpu=2))], queue)) == ["production", "interactive"]


def test_what_a_pass_gives_to_stronger_bands_counts_in_the_weaker_ones() -> None:
    """Otherwise a user would get, in one pass, the best of both bands."""
    queue = [
        a_request("production", user="a", band=Band.PRODUCTION),
        a_request("batch of a", user="a", band=Band.BATCH, submitted_at=at(0)),
        a_request("batch of b", user="b", band=Band.BATCH, submitted_at=at(1)),
    ]

    assert list(where([a_host(offers=some(cpu=2))], queue)) == ["production", "batch of b"]


def test_capacity_given_in_a_pass_is_gone_for_the_rest_of_it() -> None:
    """The head room of the start of the pass would be given to everybody."""
    assert len(where([a_host(offers=some(cpu=4))], requests(*[some(cpu=1)] * 6))) == 4


@pytest.mark.parametrize(
    ("offers", "wanted"),
    [
        (some(cpu=1), some(cpu=1.001)),
        (some(cpu=8, memory=1), some(cpu=1, memory=1.001)),
        (some(cpu=8, disk=1), some(cpu=1, disk=1.001)),
        (some(cpu=8, device="gpu:H100:7"), some(cpu=1, device="gpu:H100:8")),
    ],
)
def test_every_dimension_can_keep_a_task_off_a_host(offers: Resources, wanted: Resources) -> None:
    """One forgotten dimension is an out-of-memory kill of somebody else's program."""
    assert where([a_host(offers=offers)], [a_request(wants=wanted)]) == {}
    assert where([a_host(offers=offers)], [a_request(wants=offers)]) == {"k1": "h1"}


def test_tasks_without_devices_are_spread() -> None:
    """A machine lost should cost as few tasks as possible; the least used host, by share, comes
    first.
    """
    hosts = [a_host("small", some(cpu=2)), a_host("large", some(cpu=8))]

    placed = where(hosts, requests(*[some(cpu=1)] * 5))

    assert sorted(placed.values()) == ["large"] * 4 + ["small"]


def test_tasks_with_devices_are_packed() -> None:
    """Whole hosts stay free for those who need all the devices of one."""
    hosts = [
        a_host("empty", some(cpu=64, device="gpu:H100:8")),
        a_host("half", some(cpu=64, device="gpu:H100:8")),
    ]
    live = [a_placement(hosts[1], some(cpu=1, device="gpu:H100:4"))]

    assert where(hosts, requests(*[some(cpu=1, device="gpu:H100:2")] * 2), live) == {
        "k1": "half",
        "k2": "half",
    }


def test_tasks_of_other_shapes_in_the_same_pass_count_for_packing() -> None:
    """What a job of seven leaves of a host is where the next job of one belongs, though it last saw
    that host empty.
    """
    hosts = [
        a_host("eight", some(cpu=64, device="gpu:H100:8")),
        a_host("five", some(cpu=64, device="gpu:H100:5")),
    ]
    one, seven = some(cpu=1, device="gpu:H100:1"), some(cpu=1, device="gpu:H100:7")

    assert where(hosts, requests(one, seven, one)) == {"k1": "five", "k2": "eight", "k3": "eight"}


def test_cpu_tasks_take_hosts_with_devices_last_and_only_where_allowed() -> None:
    """Accelerators are a hundred times dearer; a CPU task may have what its owner would let idle,
    and no more.
    """
    hosts = [
        a_host("kept", some(cpu=8, device="gpu:H100:8")),
        a_host("open", some(cpu=8, device="gpu:H100:8"), accept_cpu_jobs=True),
        a_host("plain", some(cpu=1)),
    ]

    assert where(hosts, requests(some(cpu=1), some(cpu=1))) == {"k1": "plain", "k2": "open"}


def test_a_required_constraint_always_holds_and_a_preferred_one_if_a_host_meets_it() -> None:
    """Data that must stay in a region stays; a region that is merely nearer is not worth waiting
    for.
    """
    hosts = [
        a_host("far", some(cpu=8), attributes={"region": "us"}),
        a_host("near", some(cpu=1), attributes={"region": "eu"}),
    ]
    strict = [
        a_request(f"strict-{i}", constraints=demands("region = eu"), submitted_at=at(i))
        for i in range(2)
    ]
    easy = [
        a_request(f"easy-{i}", constraints=demands("?region = eu"), submitted_at=at(i))
        for i in range(2)
    ]

    assert where(hosts, strict) == {"strict-0": "near"}
    assert where(hosts, easy) == {"easy-0": "near", "easy-1": "far"}


def test_a_closed_host_gets_nothing_new() -> None:
    """Cordoned, drained or quarantined: an operator is about to pull its plug, or attempts fail
    there.
    """
    hosts = [a_host("closed", some(cpu=64)), a_host("open", some(cpu=1))]

    assert where(hosts, requests(some(), some()), cordoned=["closed"]) == {"k1": "open"}


def test_work_of_an_earlier_incarnation_holds_nothing() -> None:
    """It died with it; otherwise a host would be smaller after each of its restarts."""
    host = a_host(offers=some(cpu=1), incarnation="second")
    stale = a_placement(a_host(offers=some(cpu=1), incarnation="first"))

    assert where([host], requests(some(cpu=1)), [stale]) == {"k1": "h1"}


def test_a_host_that_shrank_under_its_tasks_takes_only_what_needs_nothing_of_what_it_lacks() -> (
    None
):
    """A disk filled up, a limit was lowered: the scheduler goes on; an exception here would stop
    every job of the cluster.
    """
    shrunk = a_host(offers=some(cpu=4, memory=4))
    live = [a_placement(shrunk, some(cpu=1, memory=8))]

    assert where([shrunk], requests(some(cpu=1, memory=0), some(cpu=1, memory=1)), live) == {
        "k1": "h1"
    }


def test_a_placement_says_what_is_held_where_and_for_whom() -> None:
    """All that the owner needs to start, and the scheduler to free it with its host's life."""
    host = a_host("h7", incarnation="third", slice_id="s2")
    wanted = a_request(
        "key",
        some(cpu=2),
        owner="dev/job/ada/train",
        task="ada/train:0",
        user="ada",
        band=Band.BATCH,
    )

    assert place(a_fleet(host), [], Queue([wanted]), at(5), Rules()).placed == [
        Placement(
            key="key",
            owner="dev/job/ada/train",
            task="ada/train:0",
            user="ada",
            resources=some(cpu=2),
            band=Band.BATCH,
            seats=(Seat("h7", "s2", "third"),),
            placed_at=at(5),
        )
    ]


def test_a_pass_stops_at_its_limit_and_says_so() -> None:
    """A workflow task may not take long; whoever asks for a pass must know to ask again."""
    fleet, queue = a_fleet(a_host(offers=some(cpu=4))), requests(*[some()] * 3)

    stopped = place(fleet, [], Queue(queue), at(5), Rules(), most=2)
    done = place(fleet, [], Queue(queue), at(5), Rules(), most=3)

    assert ([placement.key for placement in stopped.placed], stopped.stopped) == (
        ["k1", "k2"],
        True,
    )
    assert ([placement.key for placement in done.placed], done.stopped) == (
        ["k1", "k2", "k3"],
        False,
    )


def test_hosts_are_not_kept_for_those_who_came_just_now() -> None:
    """An older twin that starts in this very pass has stopped waiting: on its account nobody else
    may be kept waiting.
    """
    hosts = [a_host("a", some(cpu=4)), a_host("b", some(cpu=4))]
    busy = a_placement(hosts[1], some(cpu=2), user="elsewhere")
    old = a_request("old", some(cpu=4), user="x", submitted_at=at(0))
    young = a_request("young", some(cpu=4), user="y", submitted_at=at(3000))
    small = a_request("small", some(cpu=1), user="z", submitted_at=at(3001))

    done = place(
        a_fleet(*hosts),
        [busy],
        Queue([old, young, small]),
        at(3002),
        Rules(patience=timedelta(minutes=10)),
    )

    assert {placement.key: placement.seats[0].host_id for placement in done.placed} == {
        "old": "a",
        "small": "b",
    }
