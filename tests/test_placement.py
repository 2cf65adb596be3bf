"""The scheduling pass by example: who goes where, and what those who wait are told."""

from collections.abc import Sequence

import pytest

from iris.gangs import Placement, Request
from iris.hosts import Host
from iris.jobs import Band
from iris.placement import place
from iris.refusals import RefusalCode, explain
from iris.resources import Resources
from iris.units import GIB
from tests.builders import a_host, a_placement, a_request, at, requests, some


def where(hosts: Sequence[Host], queue: Sequence[Request], live: Sequence[Placement] = ()) -> dict[str, str]:
    """Request key -> host id after one pass."""
    return {placement.key: placement.host_id for placement in place(hosts, live, queue)}


def test_what_does_not_fit_never_blocks_what_does() -> None:
    """Head-of-line blocking starved whole clusters in an earlier life of Iris."""
    queue = requests(some(cpu=64), some(cpu=3), some(cpu=2), some(cpu=1))

    assert where([a_host(offers=some(cpu=4))], queue) == {"k2": "h1", "k4": "h1"}


def test_first_come_first_served_whatever_the_order_of_delivery() -> None:
    """Messages overtake one another; the time of submission counts."""
    queue = [a_request("late", submitted_at=at(2)), a_request("first", submitted_at=at(0)), a_request("next", submitted_at=at(1))]

    assert list(where([a_host(offers=some(cpu=2))], queue)) == ["first", "next"]


def test_a_higher_band_is_served_first_however_late_it_came() -> None:
    """Production does not queue behind a night's worth of batch jobs."""
    queue = [
        a_request("batch", band=Band.BATCH, submitted_at=at(0)),
        a_request("interactive", band=Band.INTERACTIVE, submitted_at=at(1)),
        a_request("production", band=Band.PRODUCTION, submitted_at=at(2)),
    ]

    assert list(where([a_host(offers=some(cpu=2))], queue)) == ["production", "interactive"]


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
    """A machine lost should cost as few tasks as possible; the least used host, by share, comes first."""
    hosts = [a_host("small", some(cpu=2)), a_host("large", some(cpu=8))]

    placed = where(hosts, requests(*[some(cpu=1)] * 5))

    assert sorted(placed.values()) == ["large"] * 4 + ["small"]


def test_tasks_with_devices_are_packed() -> None:
    """Whole hosts stay free for those who need all the devices of one."""
    hosts = [a_host("empty", some(cpu=64, device="gpu:H100:8")), a_host("half", some(cpu=64, device="gpu:H100:8"))]
    live = [a_placement(hosts[1], some(cpu=1, device="gpu:H100:4"))]

    assert where(hosts, requests(*[some(cpu=1, device="gpu:H100:2")] * 2), live) == {"k1": "half", "k2": "half"}


def test_tasks_of_other_shapes_in_the_same_pass_count_for_packing() -> None:
    """What a job of seven leaves of a host is where the next job of one belongs, though it last saw that host empty."""
    hosts = [a_host("eight", some(cpu=64, device="gpu:H100:8")), a_host("five", some(cpu=64, device="gpu:H100:5"))]
    one, seven = some(cpu=1, device="gpu:H100:1"), some(cpu=1, device="gpu:H100:7")

    assert where(hosts, requests(one, seven, one)) == {"k1": "five", "k2": "eight", "k3": "eight"}


def test_cpu_tasks_take_hosts_with_devices_last_and_only_where_allowed() -> None:
    """Accelerators are a hundred times dearer; a CPU task may have what its owner would let idle, and no more."""
    hosts = [
        a_host("kept", some(cpu=8, device="gpu:H100:8")),
        a_host("open", some(cpu=8, device="gpu:H100:8"), accept_cpu_jobs=True),
        a_host("plain", some(cpu=1)),
    ]

    assert where(hosts, requests(some(cpu=1), some(cpu=1))) == {"k1": "plain", "k2": "open"}


def test_work_of_an_earlier_incarnation_holds_nothing() -> None:
    """It died with it; otherwise a host would be smaller after each of its restarts."""
    host = a_host(offers=some(cpu=1), incarnation="second")
    stale = a_placement(a_host(offers=some(cpu=1), incarnation="first"))

    assert where([host], requests(some(cpu=1)), [stale]) == {"k1": "h1"}


def test_a_placement_says_what_is_held_where_and_for_whom() -> None:
    """All that the owner needs to start, and the scheduler to free it with its host's life."""
    host = a_host("h7", incarnation="third", slice_id="s2")
    wanted = a_request("key", wants=some(cpu=2), owner="dev/job/ada/train", task="ada/train:0")

    assert place([host], [], [wanted]) == [
        Placement(
            key="key",
            owner="dev/job/ada/train",
            task="ada/train:0",
            resources=some(cpu=2),
            host_id="h7",
            slice_id="s2",
            incarnation="third",
        )
    ]


GPU_HOST = a_host("gpu", some(cpu=8, memory=32, device="gpu:A100:8"))
CPU_HOST = a_host("cpu", some(cpu=4, memory=16))


@pytest.mark.parametrize(
    ("hosts", "wanted", "code", "message"),
    [
        ([], some(), RefusalCode.NO_HOSTS, "no host has joined the cluster"),
        (
            [CPU_HOST, GPU_HOST],
            some(device="gpu:H100:1"),
            RefusalCode.NO_DEVICE,
            "needs gpu:H100; no host has it (gpu:A100 on 1, no devices on 1)",
        ),
        (
            [GPU_HOST],
            some(),
            RefusalCode.NO_DEVICE,
            "needs a host for tasks without devices; all hosts keep theirs for tasks that use them (gpu:A100 on 1)",
        ),
        (
            [CPU_HOST, a_host("small", some(cpu=1))],
            some(cpu=5, memory=64),
            RefusalCode.TOO_BIG,
            "needs 5 cpu, 64 GiB memory; even when empty, the largest of 2 hosts of its kind has 4 cpu, 16 GiB memory",
        ),
        (
            [GPU_HOST],
            some(device="gpu:A100:16"),
            RefusalCode.TOO_BIG,
            "needs gpu:A100:16; even when empty, the largest of 1 host of its kind has 8 devices",
        ),
    ],
)
def test_whoever_can_never_fit_these_hosts_is_told_why(
    hosts: list[Host], wanted: Resources, code: RefusalCode, message: str
) -> None:
    """The user must be able to tell a typo in a variant from a cluster that is merely full."""
    request = a_request(wants=wanted)

    refusal = explain(hosts, [], [request], request)

    assert (refusal.code, refusal.message) == (code, message)


def test_whoever_waits_for_others_is_told_what_is_missing_and_how_many_are_ahead() -> None:
    """ "Why does my job wait?" is the question a scheduler is asked most."""
    host = a_host(offers=some(cpu=4, memory=16))
    queue = requests(some(cpu=3), some(cpu=2), some(cpu=3))

    refusal = explain([host], [a_placement(host, some(cpu=3))], queue, queue[2])

    assert refusal.code is RefusalCode.BUSY
    assert refusal.message == "needs 3 cpu; the best of 1 host of its kind has 1 cpu free; 2 tasks ahead of it"
    assert (refusal.needed, refusal.free, refusal.hosts, refusal.ahead) == ({"cpu": 3000}, {"cpu": 1000}, 1, 2)


def test_busy_speaks_only_of_hosts_that_could_take_the_task() -> None:
    """A tiny idle host is no comfort to a large task, and its free room no explanation."""
    hosts = [a_host("large", some(cpu=8)), a_host("tiny", some(cpu=1))]

    refusal = explain(hosts, [a_placement(hosts[0], some(cpu=8))], [], a_request(wants=some(cpu=4)))

    assert (refusal.code, refusal.needed, refusal.free, refusal.hosts) == (RefusalCode.BUSY, {"cpu": 4000}, {"cpu": 0}, 1)


def test_a_shortfall_too_small_for_the_unit_is_still_seen() -> None:
    """ "Needs 8 GiB; has 8 GiB free" explains nothing: a machine sold with 8 GiB never offers quite as much."""
    host = a_host(offers=some(cpu=4).model_copy(update={"memory_bytes": 8 * GIB - 1}))

    refusal = explain([host], [], [], a_request(wants=some(cpu=1, memory=8)))

    assert refusal.message == "needs 8 GiB memory; even when empty, the largest of 1 host of its kind has 1 B too little memory"


def test_a_host_that_shrank_under_its_tasks_takes_only_what_needs_nothing_of_what_it_lacks() -> None:
    """A disk filled up, a limit was lowered: the scheduler answers on; an exception here would stop every job of the cluster."""
    shrunk = a_host(offers=some(cpu=4, memory=4))
    live = [a_placement(shrunk, some(cpu=1, memory=8))]
    light, heavy = requests(some(cpu=1, memory=0), some(cpu=1, memory=1))

    assert where([shrunk], [light, heavy], live) == {"k1": "h1"}
    assert explain([shrunk], live, [light], light).code is RefusalCode.QUEUED
    assert explain([shrunk], live, [heavy], heavy).free == {"memory": 0}
