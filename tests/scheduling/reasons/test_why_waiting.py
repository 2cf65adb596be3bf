"""Why a gang waits: one reason, the first to remedy, with exact numbers. By example, and checked
against an oracle.
"""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.host.hosts import ClosedBy, Closure, Host
from iris.model.host.resources import Resources
from iris.model.job.requests import Placement, Request, Shape
from iris.model.job.spec import Band
from iris.model.rules import Rules
from iris.model.units import GIB
from iris.scheduling.placement.cluster_state import ClusterState
from iris.scheduling.placement.host_index import HostIndex
from iris.scheduling.placement.place import place
from iris.scheduling.placement.preemption import evictions
from iris.scheduling.placement.queue import Queue
from iris.scheduling.placement.refusals import INFEASIBLE, LEAVING, Refusal, RefusalCode
from iris.scheduling.placement.usage import Usage
from iris.scheduling.reasons.explain import WaitReasons
from iris.scheduling.reasons.why_waiting import infeasible, reason
from tests.builders import (
    CHIPS,
    a_fleet,
    a_gang,
    a_host,
    a_placement,
    a_request,
    a_slice,
    at,
    demands,
    requests,
    some,
)
from tests.oracle import (
    Amounts,
    amounts,
    could_serve,
    failed,
    fits,
    free_on,
    groups_of,
    lacking,
    left_of,
    right_kind,
    takes,
)
from tests.scheduling.placement.test_placement_properties import HASTY, SOON
from tests.strategies import CHEAP, PATIENT, Situation, situations

Code = RefusalCode

GPU_HOST = a_host("gpu", some(cpu=8, memory=32, device="gpu:A100:8"))
CPU_HOST = a_host("cpu", some(cpu=4, memory=16))


def refused(
    fleet: HostIndex,
    request: Request,
    live: Sequence[Placement] = (),
    reserved: Mapping[int, Shape] | None = None,
    evicting: Sequence[str] = (),
    paused: str | None = None,
) -> Refusal:
    return reason(ClusterState.of(fleet, live, reserved or {}, evicting, paused), request)


def refusal_of(
    state: ClusterState, live: Sequence[Placement], waiting: Queue, request: Request
) -> Refusal:
    """As the ledger answers for a request that waits in it."""
    (refusal,) = WaitReasons(
        waiting, Queue(), {}, lambda: state, lambda: Usage.of(live)
    ).explain_all([request.key])
    return refusal


def text(
    fleet: HostIndex, request: Request, live: Sequence[Placement] = ()
) -> tuple[RefusalCode, str]:
    refusal = refused(fleet, request, live)
    return refusal.code, refusal.message


@pytest.mark.parametrize(
    ("hosts", "wanted", "code", "message"),
    [
        ([], some(), Code.NO_HOSTS, "no host has joined the cluster"),
        (
            [CPU_HOST, GPU_HOST],
            some(device="gpu:H100:1"),
            Code.NO_DEVICE,
            "no host has gpu:H100 (gpu:A100 on 1 host, no devices on 1 host)",
        ),
        (
            [GPU_HOST],
            some(),
            Code.NO_DEVICE,
            "no host accepts tasks without devices (gpu:A100 on 1 host)",
        ),
        (
            [CPU_HOST, a_host("small", some(cpu=1))],
            some(cpu=5, memory=64),
            Code.TOO_BIG,
            (
                "needs 5 cpu, 64 GiB memory; the largest of 2 hosts of this kind has 4 cpu, 16 GiB"
                " memory when empty"
            ),
        ),
        (
            [GPU_HOST],
            some(device="gpu:A100:16"),
            Code.TOO_BIG,
            "needs gpu:A100:16; the only host of this kind has 8 devices when empty",
        ),
    ],
)
def test_whoever_can_never_fit_these_hosts_is_told_why(
    hosts: list[Host], wanted: Resources, code: RefusalCode, message: str
) -> None:
    """The user must be able to tell a typo in a variant from a cluster that is merely full."""
    assert text(a_fleet(*hosts), a_request(wants=wanted)) == (code, message)


def test_the_remedy_names_no_more_devices_than_a_host_has() -> None:
    """It said "request at most gpu:H100:9" to a job that had asked nine of a host of eight."""
    fleet = a_fleet(a_host(offers=some(cpu=4, device="gpu:H100:8")))
    refusal = infeasible(fleet, a_request(wants=some(cpu=1, device="gpu:H100:9")))

    assert refusal is not None
    assert refusal.remedy == "request at most gpu:H100:8, or add larger hosts"


def test_what_tasks_need_that_share_a_host_is_said_of_all_of_them() -> None:
    """Whoever asked for two cores a task would take "needs 6 cpu" for somebody else's job."""
    refusal = refused(a_fleet(CPU_HOST), a_request(wants=some(cpu=6), tasks_per_host=3))

    assert (
        refusal.message
        == "needs 6 cpu for 3 tasks on one host; the only host of this kind has 4 cpu when empty"
    )
    assert refusal.remedy == "request at most 4 cpu for 3 tasks on one host, or add larger hosts"


def test_of_several_constraints_the_one_that_excludes_most_is_named() -> None:
    """It is the one to drop; the numbers of the others are there for those who ask."""
    hosts = [
        a_host(f"h{i}", attributes={"zone": zone, "fast": i > 1}) for i, zone in enumerate("aab")
    ]

    refusal = refused(
        a_fleet(*hosts), a_request(constraints=demands("fast = true", "zone = c", "?zone = d"))
    )

    assert refusal.code is Code.CONSTRAINTS
    assert (
        refusal.message
        == "zone = c excludes 3 of 3 hosts that are large enough (zone is a, b); 2 constraints"
        " in all"
    )
    assert (refusal.excluded, refusal.hosts) == ({"zone = c": 3, "fast = true": 2}, 3)
    assert refusal.remedy == "drop or widen the constraint zone = c"


def test_an_attribute_of_a_gang_that_no_host_has_is_named_with_its_option() -> None:
    """A user who wrote `--gang-by slice` searched their command for a constraint that was not in
    it.
    """
    refusal = refused(
        a_fleet(a_host(attributes={"zone": "a"})), a_request(tasks=2, group_by="slice")
    )

    assert refusal.code is Code.CONSTRAINTS
    assert refusal.message.endswith("(none has slice)")
    assert (
        refusal.remedy == "give --gang-by an attribute that hosts have, such as zone; slice is none"
    )


def test_a_gang_that_is_too_large_for_every_slice_is_told_how_large_they_are() -> None:
    """Waiting for a slice of eight to become one of sixteen takes for ever."""
    fleet = a_fleet(*a_slice("a", 2), *a_slice("b", 4), cordoned=["b-1"])

    assert text(fleet, a_gang(tasks=5)) == (
        Code.NO_GROUP,
        "needs 5 hosts in one slice; the largest of 2 slices has 4",
    )
    two_of_three = a_gang(tasks=6, groups=2)
    assert text(fleet, two_of_three) == (
        Code.NO_GROUP,
        "needs 2 slices of 3 hosts; 1 of 2 slices has that many",
    )


def test_a_gang_waits_for_one_group_to_be_free_enough() -> None:
    """Eight free hosts in four slices are no comfort for a gang of four."""
    hosts = a_slice("a", 4) + a_slice("b", 4)
    live = [
        a_placement(hosts[0], CHIPS, "1"),
        a_placement(hosts[4], CHIPS, "2"),
        a_placement(hosts[5], CHIPS, "3"),
    ]

    refusal = refused(a_fleet(*hosts), a_gang(), live)

    assert (refusal.code, refusal.group_needs, refusal.group_has, refusal.hosts) == (
        Code.BUSY,
        4,
        3,
        8,
    )
    assert refusal.message == "needs 4 free hosts in one slice; the best of 2 slices has 3"


def test_closed_hosts_are_the_reason_only_when_they_alone_would_do() -> None:
    """The user must not be sent to an operator while the job merely has to wait, nor wait while
    nobody will open the host.
    """
    hosts = [a_host("large", some(cpu=8)), a_host("small", some(cpu=1))]
    fleet = a_fleet(*hosts, cordoned=["large"])

    assert text(fleet, a_request(wants=some(8))) == (
        Code.CLOSED,
        "1 of 1 suitable host accepts no new tasks: 1 cordoned",
    )
    assert refused(fleet, a_request(), [a_placement(hosts[1])]).code is Code.BUSY


def test_nobody_is_sent_to_open_hosts_whose_slice_is_taken_back() -> None:
    """They are deleted within a minute; a job that is placed there meanwhile would lose its host at
    once.
    """
    host = a_host()
    fleet = HostIndex([host], {host.id: Closure(by=ClosedBy.LEAVING, reason="preempted")})
    refusal = refused(fleet, a_request())

    assert refusal.message == "1 of 1 suitable host accepts no new tasks: 1 leaving: preempted"
    assert refusal.remedy == LEAVING


def test_a_paused_group_and_a_paused_cluster_say_who_paused_them() -> None:
    """Else everybody asks the operator who has just written down the reason."""
    host = a_host(attributes={"scale-group": "tpus"})

    assert (
        "scale group tpus is paused: new image"
        in refused(a_fleet(host, paused_groups={"tpus": "new image"}), a_request()).message
    )
    assert (
        refused(a_fleet(host), a_request(), paused="upgrade").message
        == "the cluster is paused: upgrade"
    )
    assert refused(a_fleet(host), a_request(), paused="").message == "the cluster is paused"


def test_whoever_waits_for_others_is_told_what_is_missing_and_how_many_are_ahead() -> None:
    """ "Why does my job wait?" is the question a scheduler is asked most."""
    host = a_host(offers=some(cpu=4, memory=16))
    queue = requests(some(cpu=3), some(cpu=2), some(cpu=3))

    live = [a_placement(host, some(cpu=3))]
    refusal = refusal_of(ClusterState.of(a_fleet(host), live, {}), live, Queue(queue), queue[2])

    assert refusal.code is Code.BUSY
    assert (
        refusal.message
        == "needs 3 cpu; the only suitable host has 1 cpu free; 2 requests ahead of it in band"
        " interactive and above"
    )
    assert (refusal.needed, refusal.free, refusal.hosts, refusal.ahead) == (
        {"cpu": 3000},
        {"cpu": 1000},
        1,
        2,
    )


def test_busy_speaks_only_of_hosts_that_could_take_the_task() -> None:
    """A tiny idle host is no comfort to a large task, and its free room no explanation."""
    hosts = [a_host("large", some(cpu=8)), a_host("tiny", some(cpu=1))]

    refusal = refused(
        a_fleet(*hosts), a_request(wants=some(cpu=4)), [a_placement(hosts[0], some(cpu=8))]
    )

    assert (refusal.code, refusal.needed, refusal.free, refusal.hosts) == (
        Code.BUSY,
        {"cpu": 4000},
        {"cpu": 0},
        1,
    )


def test_a_shortfall_too_small_for_the_unit_is_still_seen() -> None:
    """ "Needs 8 GiB; has 8 GiB free" explains nothing: a machine sold with 8 GiB never offers quite
    as much.
    """
    host = a_host(offers=Resources(cpu_millis=4000, memory_bytes=8 * GIB - 1))

    refusal = refused(a_fleet(host), a_request(wants=some(cpu=1, memory=8)))

    assert (
        refusal.message
        == "needs 8 GiB memory; the only host of this kind has 1 B too little memory when empty"
    )


def test_the_best_host_is_not_passed_over_for_lacking_what_is_not_wanted() -> None:
    """A host whose disk has shrunk under its tasks is still the closest for a task that needs no
    disk.
    """
    shrunk, full = a_host("shrunk", some(cpu=4, disk=10)), a_host("full", some(cpu=4, disk=100))
    live = [a_placement(shrunk, some(cpu=2, disk=20), "a"), a_placement(full, some(cpu=3), "b")]

    assert refused(a_fleet(shrunk, full), a_request(wants=some(cpu=3)), live).free == {"cpu": 2000}


def test_reserved_capacity_is_not_called_busy_however_often_one_asks() -> None:
    """ "Busy" beside an idle host reads like a bug; and the second who asks must not be told
    something else than the first.
    """
    hosts = [a_host("a"), a_host("b")]
    state = ClusterState.of(a_fleet(*hosts), [a_placement(hosts[1], some(4))], {0: a_gang().shape})

    for _ in range(2):
        refusal = reason(state, a_request())
        assert refusal.code is Code.KEPT
        assert (
            refusal.message
            == "the free capacity on 1 host is reserved for gangs ahead of this one in the queue"
        )


def test_only_bands_above_the_victims_wait_for_the_eviction() -> None:
    """Batch work waits for the end of a batch job, not for its eviction: that capacity is for
    another gang.
    """
    host = a_host()
    live = [a_placement(host, some(4), "victim", band=Band.BATCH)]

    def code(band: Band) -> RefusalCode:
        return refused(a_fleet(host), a_request(band=band), live, evicting=["victim"]).code

    assert [code(band) for band in Band] == [Code.EVICTING, Code.EVICTING, Code.BUSY]
    assert (
        refused(a_fleet(host), a_request(), live, evicting=["victim"]).message
        == "1 lower-priority gang is being evicted to free capacity for it"
    )


def check(
    refusal: Refusal,
    request: Request,
    fleet: HostIndex,
    live: Sequence[Placement],
    reserved: Mapping[int, Shape],
) -> None:
    """Every code, word and number against hosts and placements."""
    wanted, hosts = request.resources, fleet.hosts
    suited = [host for host in hosts if right_kind(host, wanted)]
    large = [host for host in suited if not lacking(wanted, amounts(host.resources))]
    could = [host for host in large if could_serve(host, request)]
    open_ = [host for host in could if fleet.closed(host) is None]
    each = request.tasks // request.groups
    match refusal.code:
        case Code.NO_HOSTS:
            assert not hosts
        case Code.NO_DEVICE:
            assert hosts
            assert not suited
        case Code.TOO_BIG:
            assert suited
            assert not large
            check_numbers(refusal, wanted, [amounts(host.resources) for host in suited])
        case Code.CONSTRAINTS:
            assert large
            assert not could
            assert refusal.hosts == len(large)
            grouped = [f"{request.group_by} exists"] if request.group_by else []
            named = [str(each) for each in request.constraints if not each.preferred]
            excluded = {
                name: sum(name in failed(host, request) for host in large) for name in named
            }
            excluded |= {
                name: sum(request.group_by not in host.attributes for host in large)
                for name in grouped
            }
            assert refusal.excluded == excluded
            assert refusal.message.startswith(
                f"{next(iter(refusal.excluded))} excludes {max(excluded.values())} of {len(large)} "
            )
        case Code.NO_GROUP:
            sizes = [len(members) for members in groups_of(could, request).values()]
            assert sum(size >= each for size in sizes) < request.groups
            assert (refusal.group_needs, refusal.group_has, refusal.hosts) == (
                each,
                max(sizes),
                len(could),
            )
        case Code.CLOSED:
            closed = len(could) - len(open_)
            suitable, accept = (
                f"{len(could)} suitable host{'s' * (len(could) != 1)}",
                f"accept{'s' * (closed == 1)}",
            )
            assert refusal.message.startswith(f"{closed} of {suitable} {accept} no new tasks: ")
            if request.group_by is None:
                assert not open_
            else:
                assert (
                    sum(len(m) >= each for m in groups_of(open_, request).values()) < request.groups
                )
        case Code.BUSY | Code.EVICTING:
            assert not fits(fleet, request, live)
            assert refusal.hosts == len(open_) > 0
            if request.group_by is None:
                check_numbers(refusal, wanted, [free_on(host, live) for host in open_])
            else:
                free = [
                    sum(takes(fleet, h, request, live) for h in m)
                    for m in groups_of(open_, request).values()
                    if len(m) >= each
                ]
                assert (refusal.group_needs, refusal.group_has) == (each, max(free))
        case Code.KEPT:
            barred = {
                hosts[number].id for number, shape in reserved.items() if shape != request.shape
            }
            assert fits(fleet, request, live)
            assert not fits(fleet, request, live, without=barred)
            count = len(barred & {host.id for host in open_})
            assert refusal.message.startswith(
                f"the free capacity on {count} host{'s' * (count != 1)} is reserved"
            )
        case Code.QUEUED:
            assert fits(fleet, request, live)
        case other:
            pytest.fail(f"a pass does not answer {other}")
    assert (refusal.code in INFEASIBLE) == (infeasible(fleet, request) is not None)


def check_numbers(refusal: Refusal, wanted: Resources, available: Sequence[Amounts]) -> None:
    """The numbers are all that one real host is short of, and no other host is short of nothing."""
    assert refusal.hosts == len(available)
    assert refusal.needed
    assert refusal.needed == {name: amounts(wanted)[name] for name in refusal.needed}
    assert any(
        lacking(wanted, free) == set(refusal.needed)
        and refusal.free == {name: max(0, free[name]) for name in refusal.needed}
        for free in available
    )


@CHEAP
@given(situations(), st.sampled_from([PATIENT, HASTY]), st.integers(0, 3), st.booleans())
def test_whoever_is_left_is_told_the_truth(
    situation: Situation, rules: Rules, going: int, preempting: bool
) -> None:
    """Each refusal after a pass: the code, and every number in it. Nobody is told that there is
    room for him.
    """
    evicting = {placement.key for placement in situation.live[:going]}
    done = place(
        situation.fleet, situation.live, Queue(situation.queue), SOON, rules, evicting=evicting
    )
    live, left = [*situation.live, *done.placed], left_of(situation.queue, done.placed)
    waiting = Queue(left)
    if preempting:
        evicting |= {
            victim.key
            for victim in evictions(situation.fleet, live, waiting, evicting, SOON, rules).victims
        }
    state = ClusterState.of(situation.fleet, live, done.capacity.reserved, evicting)

    for request in left:
        refusal = refusal_of(state, live, waiting, request)

        assert refusal.code is not Code.QUEUED
        check(refusal, request, situation.fleet, live, done.capacity.reserved)
        lower = [
            each for each in live if each.key in evicting and each.band.rank > request.band.rank
        ]
        assert refusal.code is not Code.EVICTING or lower
        if refusal.code is Code.EVICTING:
            assert refusal.message.startswith(f"{len(lower)} lower-priority gang")
            assert fits(
                situation.fleet, request, [each for each in live if each.key not in evicting]
            )


@CHEAP
@given(situations())
def test_whoever_asks_before_the_pass_is_told_the_truth(situation: Situation) -> None:
    """A question may come at any moment: room that there is must not be called busy, nor the other
    way round.
    """
    state = ClusterState.of(situation.fleet, situation.live, {})

    for request in situation.queue:
        check(reason(state, request), request, situation.fleet, situation.live, {})


@CHEAP
@given(situations())
def test_what_could_never_run_does_not_run_when_everything_is_empty_and_open(
    situation: Situation,
) -> None:
    """The warning at submission is right in both directions: what it calls impossible is, and all
    else can run some day.
    """
    empty = HostIndex(situation.fleet.hosts)

    for request in situation.queue:
        assert (infeasible(situation.fleet, request) is None) == fits(empty, request, [])
        assert bool(place(empty, [], Queue([request]), at(6), PATIENT).placed) == fits(
            empty, request, []
        )
