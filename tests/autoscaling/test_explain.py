"""The autoscaler's reasons: for each group, and the outlook of each waiting gang."""

import pytest

from iris.model.host.resources import Resources
from iris.model.job.requests import Request
from iris.model.slice.scale_groups import Pace
from iris.model.slice.scaling import GroupMemory, Memory, Outlook, StockedOut
from iris.model.slice.status import SliceState
from tests.builders import NOON, a_gang, a_request, at, demands, some
from tests.scaling_world import A, B, a_cpu_group, a_group, a_slice_of, decide, slices_of

S = SliceState
GROUP = a_group("v5e", zones=(A, B))
KIND = "tpu_vm:v5litepod-16:on-demand"


def why(*args: object, **kwargs: object) -> str:
    return decide(*args, **kwargs).groups[0].why


def outlook(*args: object, **kwargs: object) -> Outlook:
    return decide(*args, **kwargs).outlooks[0]


def told(*args: object, **kwargs: object) -> str:
    return outlook(*args, **kwargs).message


def knows(**what: object) -> Memory:
    return Memory(groups={"v5e": GroupMemory(**what)})


def empty(*zones: str, times: int = 3) -> Memory:
    return Memory(
        stocked_out=tuple(
            StockedOut(zone=zone, kind=KIND, until=at(190), times=times, at=NOON) for zone in zones
        )
    )


def test_a_verdict_counts_what_there_is_and_what_is_wanted() -> None:
    """Slices by state, those that the waiting gangs want, and how many there should be."""
    group = a_group(max_slices=9, buffer_slices=1)

    verdict = decide(
        group, slices_of(group, S.READY, S.PROVISIONING, S.FAILED), (2, a_gang())
    ).groups[0]

    assert verdict.counts == {S.READY: 1, S.PROVISIONING: 1, S.FAILED: 1}
    assert (verdict.demand, verdict.target) == (2, 4)


def test_the_target_stays_within_the_limits() -> None:
    """It is what the group should have, and never what it may not have."""
    group = a_group(min_slices=1, max_slices=2, buffer_slices=1)

    assert decide(group).groups[0].target == 1
    assert decide(group, (), (9, a_gang())).groups[0].target == 2


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        (
            knows(quota_until=at(190), quota_reason="TPUV5 exhausted"),
            "quota used up, retried at 12:03:10 UTC: TPUV5 exhausted",
        ),
        (
            knows(backoff_until=at(190), failures=3, backoff_reason="internal error"),
            "failed 3 times in a row, retried at 12:03:10 UTC: internal error",
        ),
        (
            knows(lives=tuple((at(-60), False) for _ in range(4))),
            "4 of 4 slices were lost within 5m of being ready, retried at 12:29:00 UTC",
        ),
        (
            empty(A, B),
            (
                f"out of stock in {A} until 12:03:10 UTC, tried 3 times; out of stock in {B} until"
                " 12:03:10 UTC, tried 3 times"
            ),
        ),
        (
            knows(cooldown_until=at(20)),
            (
                "grew less than scale_up_delay 1m ago, can grow again at 12:00:20 UTC; 1 more slice"
                " is needed"
            ),
        ),
    ],
)
def test_what_keeps_the_autoscaler_away_is_said_with_its_end(memory: Memory, said: str) -> None:
    """\"Misleading: quota\" was among the loudest complaints: each cause has its own words, the
    platform's own included.
    """
    assert why(GROUP, (), a_gang(), memory=memory).startswith(said)


def test_a_group_that_waits_for_an_answer_says_for_which() -> None:
    """So that somebody can look at that slice."""
    there = slices_of(GROUP, S.REQUESTED, requested_at=at(-12))

    assert (
        "requested slice s1 12s ago, the platform has not answered yet; 1 more slice is needed"
        in why(GROUP, there, (2, a_gang()))
    )


def test_a_group_says_what_it_asks_for_and_for_whom() -> None:
    """Those that wait, the least and the reserve are different reasons to spend money."""
    group = a_group(min_slices=2, buffer_slices=2)

    assert (
        "requests 3 slices: 1 for waiting gangs, 1 for min_slices 2, 1 for buffer_slices 2"
        in why(group, (), a_gang())
    )


def test_a_group_says_how_many_wait_for_what_is_on_its_way() -> None:
    """And what is on its way for nobody."""
    there = slices_of(a_group(max_slices=2), S.PROVISIONING, S.BOOTSTRAPPING)

    assert "at max_slices 2; 1 slice on its way for 1 gang; 1 slice on its way in reserve" in why(
        a_group(max_slices=2), there, a_gang()
    )


def test_a_group_says_why_an_idle_slice_is_kept() -> None:
    """The question of whoever pays for it."""
    one = slices_of(GROUP, S.READY)

    assert "idle slice s1 kept: min_slices 1" in why(
        GROUP.model_copy(update={"min_slices": 1}), one, idle={"s1": at(-900)}
    )
    assert "idle slice s1 kept: buffer_slices 1" in why(
        GROUP.model_copy(update={"buffer_slices": 1}), one, idle={"s1": at(-900)}
    )
    assert "idle slice s1 kept: to be deleted at 12:04:50 UTC" in why(
        GROUP, one, idle={"s1": at(-10)}
    )
    assert "deletes s1: idle for 15m" in why(GROUP, one, idle={"s1": at(-900)})


def test_a_group_of_which_nothing_is_wanted_says_so() -> None:
    """Silence could mean anything."""
    assert why(GROUP) == "no demand"


def test_a_gang_whose_slice_is_on_its_way_is_told_which_where_and_since_when() -> None:
    """The best of all reasons to wait."""
    there = slices_of(GROUP, S.PROVISIONING, requested_at=at(-40))

    it = outlook(GROUP, there, a_gang())

    assert it.message == f"slice s1 of scale group v5e is on its way (PROVISIONING in {A})"
    assert it.since == at(-40)


def test_a_gang_for_which_a_slice_is_asked_now_is_told_so() -> None:
    """And how many, when it is over several."""
    assert told(GROUP, (), a_gang()) == "scale group v5e requests a slice now"
    assert told(GROUP, (), a_gang(tasks=8, groups=2)) == "scale group v5e requests 2 slices now"


def test_a_gang_that_has_to_wait_for_its_group_is_told_until_when() -> None:
    """A pause, an answer that is due, a rate, a slice that is still being deleted."""
    assert (
        told(GROUP, (), a_gang(), memory=knows(cooldown_until=at(20)))
        == "scale group v5e will request a slice: grew less than scale_up_delay 1m ago, can grow"
        " again at 12:00:20 UTC"
    )
    slow = GROUP.model_copy(update={"pace": Pace(scale_ups_per_minute=1)})
    assert "scale_ups_per_minute allows 1, the next at 12:01:00 UTC" in told(
        slow, (), (2, a_gang())
    )
    full = GROUP.model_copy(update={"max_slices": 1})
    deleting = slices_of(full, S.DELETING, changed_at=at(-1))
    assert "at max_slices 1 until a slice that is being deleted is gone" in told(
        full, deleting, a_gang()
    )


@pytest.mark.parametrize(
    ("machines", "said"),
    [(1, "uses the only machine of its pool"), (2, "uses all 2 machines of its pool")],
)
def test_a_pool_whose_machines_are_all_used_says_so(machines: int, said: str) -> None:
    """Its max_slices is not the limit: there is no machine to lease."""
    pool = a_group(max_slices=machines, machines=machines)

    assert why(pool, slices_of(pool, *[S.READY] * machines), a_gang()).startswith(said)
    assert told(pool, slices_of(pool, *[S.READY] * machines), a_gang()).endswith(
        f"blocked: tpu {said}"
    )


def test_gangs_of_one_shape_with_different_fates_are_counted() -> None:
    """Three wait: one for what boots, one for what is asked for now, one for nothing."""
    group = GROUP.model_copy(update={"max_slices": 2})

    assert (
        told(group, slices_of(group, S.BOOTSTRAPPING), (3, a_gang()))
        == f"1 of 3: slice s1 of scale group v5e is on its way (BOOTSTRAPPING in {A}); "
        "1 of 3: scale group v5e requests a slice now; 1 of 3: blocked: v5e at max_slices 2"
    )


def test_a_gang_that_every_group_turns_away_is_told_why_each_does() -> None:
    """Names, numbers and times: nothing to guess."""
    memory = Memory(groups={"a": GroupMemory(quota_until=at(190))})
    groups = [a_group("a"), a_group("b", max_slices=1)]

    it = outlook(groups, [a_slice_of(groups[1])], a_gang(), memory=memory)

    assert it.possible
    assert (
        it.message
        == "every scale group that has v5litepod-16 is blocked: a quota used up, retried at"
        " 12:03:10 UTC; b at max_slices 1"
    )


def test_a_gang_that_wants_a_zone_without_stock_is_told_of_that_zone() -> None:
    """The group as a whole is available, and would be a riddle."""
    made = told(GROUP, (), a_gang(constraints=demands(f"zone = {A}")), memory=empty(A))

    assert f"v5e out of stock in {A} until 12:03:10 UTC, tried 3 times" in made


IMPOSSIBLE: list[tuple[Request, str]] = [
    (
        a_gang(tasks=16, wants=some(device="tpu:v5litepod-64:4")),
        (
            "no scale group has tpu:v5litepod-64 (tpu:v5litepod-16 in scale group v5e, no devices"
            " in scale group cpu)"
        ),
    ),
    (a_gang(tasks=8), "needs 8 hosts in one slice; the slices of scale group v5e have 4"),
    (a_gang(tasks=40, groups=10), "needs 10 slices; scale group v5e has max_slices 4"),
    (
        a_request(wants=some(cpu=96, memory=64)),
        (
            "needs 96 cpu, 64 GiB memory; a host of scale group cpu has 8 cpu, 32 GiB memory when"
            " empty"
        ),
    ),
    (
        a_request(wants=some(device="gpu:H100:8")),
        (
            "no scale group has gpu:H100 (tpu:v5litepod-16 in scale group v5e, no devices in scale"
            " group cpu)"
        ),
    ),
    (
        a_gang(constraints=demands("region = mars")),
        (
            "region = mars excludes 2 of 2 zones of scale group v5e (region is europe-west4); 2"
            " constraints in all"
        ),
    ),
    (
        a_request(constraints=demands("rack exists")),
        "rack exists excludes 1 of 1 zone of scale group cpu (none has rack)",
    ),
    (
        a_gang(constraints=demands(f"zone = {A}", f"zone = {B}")),
        (
            f"zone = {A} excludes 1 of 2 zones of scale group v5e (zone is {A}, {B}); 3 constraints"
            " in all"
        ),
    ),
    (
        a_request(wants=some(cpu=8), tasks=6, group_by="zone"),
        "needs 1 x 6 hosts that share zone; all scale groups together may not have that many",
    ),
]


@pytest.mark.parametrize(("request_", "said"), IMPOSSIBLE, ids=[said for _, said in IMPOSSIBLE])
def test_what_can_never_be_served_is_told_why_with_the_nearest_that_could(
    request_: Request, said: str
) -> None:
    """A typing error must not wait for ever in the belief that machines are short."""
    it = outlook([GROUP, a_cpu_group()], (), request_)

    assert (it.message, it.possible) == (said, False)


def test_without_groups_nothing_can_be_made() -> None:
    """A cluster of machines that people bring themselves."""
    assert told([], (), a_gang()) == "the configuration has no scale group"
    assert "no scale group accepts tasks without devices" in told(GROUP, (), a_request())
    for request in (a_gang(), a_request(wants=some(device="tpu:auto:4"))):
        assert "has max_slices 0" in told(a_group(max_slices=0), (), request)


def test_no_outlook_is_longer_than_a_line_of_a_table() -> None:
    """Under three hundred characters, however many groups there are and however long their
    stories.
    """
    groups = [a_group(f"a-group-with-a-long-name-{i}", max_slices=1) for i in range(50)]
    there = [a_slice_of(group, f"s-{group.name}") for group in groups]

    for request in (a_gang(), a_gang(tasks=8), a_gang(constraints=demands(f"zone = {'x' * 300}"))):
        assert 0 < len(told(groups, there, request)) < 300


def test_a_shape_is_told_even_when_nothing_is_asked_of_the_amounts() -> None:
    """A task that wants nothing fits anywhere, and any number of them on one machine."""
    nothing = a_request(wants=Resources(cpu_millis=0))

    made = decide(a_cpu_group(), (), (1000, nothing))

    assert len(made.creates) == 1
    assert made.outlooks[0].message == "scale group cpu requests a slice now"
