"""Into which slices, and how many, the waiting gangs are packed."""

from hypothesis import given
from hypothesis import strategies as st

from iris.autoscaling.packing import DemandResult, PlannedSlice, Supply, pack
from iris.model.host.resources import AMOUNTS
from iris.model.job.requests import Request, request_for
from iris.model.job.spec import Band, Coscheduling
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.slice.scaling import Demand
from iris.model.slice.status import SliceState
from iris.scheduling.placement.catalog import Catalog
from tests.builders import NOON, TPU_HOST, a_gang, a_request, a_spec, at, demands, some
from tests.scaling_world import (
    A,
    B,
    C,
    a_cpu_group,
    a_group,
    a_slice_of,
    asked,
    asked_groups,
    decide,
    given_back,
    slices_of,
)
from tests.strategies import CHEAP

S = SliceState
BIG = a_group(
    "big", hosts=16, resources=some(cpu=8, memory=32, disk=100, device="tpu:v5litepod-64:4")
)
CHIPS_64 = some(cpu=1, device="tpu:v5litepod-64:4")


def test_a_gang_gets_a_slice_of_exactly_its_number_of_hosts() -> None:
    """A gang of four in a slice of sixteen wastes twelve machines, and in one of two it never
    starts.
    """
    large = a_group("large", hosts=8, priority=1)

    assert asked_groups(decide([large, a_group("exact")], (), a_gang(tasks=4))) == {"exact": 1}


def test_a_gang_over_two_slices_gets_two_slices_of_one_group() -> None:
    """Slices of two groups may be an ocean apart; they are no place for one gang."""
    groups = [a_group("one", max_slices=1, priority=1), a_group("two", max_slices=2, priority=2)]

    assert asked_groups(decide(groups, (), a_gang(tasks=8, groups=2))) == {"two": 2}


def test_a_gang_over_two_slices_asks_for_one_when_another_is_idle() -> None:
    """After the loss of one of two slices the other one stands there: to ask for two would exceed
    the limit, for ever.
    """
    group = a_group(max_slices=2)

    made = decide(
        group, [a_slice_of(group, "other")], a_gang(tasks=8, groups=2), idle={"other": at(-3000)}
    )

    assert asked_groups(made) == {"tpu": 1}
    assert made.drains == ()


def test_a_gang_that_lacks_a_slice_its_group_may_not_have_goes_to_the_next_group() -> None:
    """One idle, one busy, and no third: waiting for the busy one could take days."""
    first, second = a_group("first", max_slices=2, priority=1), a_group("second", priority=2)

    made = decide(
        [first, second],
        slices_of(first, S.READY, S.READY),
        a_gang(tasks=8, groups=2),
        idle={"s1": at(-9)},
    )

    assert asked_groups(made) == {"second": 2}


def test_a_gang_that_all_its_idle_slices_have_not_helped_gets_another() -> None:
    """Something keeps it from them that the autoscaler does not know; with a new one for each gang
    it gets on in the end.
    """
    group = a_group()

    made = decide(
        group,
        slices_of(group, S.READY, S.READY),
        a_gang(tasks=8, groups=2),
        idle={"s1": at(-9), "s2": at(-9)},
    )

    assert asked_groups(made) == {"tpu": 1}


def test_each_of_several_gangs_gets_whole_slices_of_its_own() -> None:
    """Two gangs on one slice would each wait for the other's hosts."""
    assert asked_groups(decide(a_group(), (), (3, a_gang(wants=some(device="tpu:auto:1"))))) == {
        "tpu": 3
    }


def test_small_tasks_share_a_host_until_one_of_the_four_amounts_is_used_up() -> None:
    """Packing by cores alone starts too few machines when memory is what is short, and nobody sees
    why nothing runs.
    """
    cpu = a_cpu_group()

    assert asked_groups(decide(cpu, (), (16, a_request(wants=some(cpu=1))))) == {"cpu": 2}
    assert asked_groups(decide(cpu, (), (4, a_request(wants=some(cpu=1, memory=20))))) == {"cpu": 4}
    assert asked_groups(decide(cpu, (), (4, a_request(wants=some(cpu=1, disk=50))))) == {"cpu": 2}


def test_no_more_accelerators_are_packed_into_a_machine_than_it_has() -> None:
    """A busy accelerator is the loudest of all failures; a task that wants all chips has the
    machine to itself.
    """
    single = a_group("single", hosts=1)
    whole, half = some(cpu=1, device="tpu:v5litepod-16:4"), some(cpu=1, device="tpu:v5litepod-16:2")

    assert asked_groups(decide(single, (), (3, a_request(wants=whole)))) == {"single": 3}
    assert asked_groups(decide(single, (), (3, a_request(wants=half)))) == {"single": 2}


def test_tasks_with_chips_that_are_no_gang_share_the_hosts_of_a_slice() -> None:
    """Four tasks with the chips of one host each fill a slice of four hosts; four slices would be
    twelve hosts too many.
    """
    one, three = (
        a_request("one", some(cpu=2, device="tpu:auto:4")),
        a_request("three", some(cpu=1, device="tpu:auto:4")),
    )

    assert asked_groups(decide(a_group(), (), (4, three))) == {"tpu": 1}
    assert asked_groups(decide(a_group(), (), (1, one), (3, three))) == {"tpu": 1}


def test_small_tasks_fill_what_large_ones_leave() -> None:
    """First-fit decreasing: whatever the order in which they wait."""
    small, large = a_request("small", some(cpu=2)), a_request("large", some(cpu=6))

    assert asked_groups(decide(a_cpu_group(), (), (2, small), (2, large))) == {"cpu": 2}


def test_slices_on_their_way_come_before_new_ones_of_any_group() -> None:
    """A slice that boots has been paid for; a better group than its own would be paid for in
    addition.
    """
    better, worse = a_group("better", priority=1), a_group("worse", priority=2)

    made = decide([better, worse], slices_of(worse, S.PROVISIONING), a_gang())

    assert made.creates == ()


def test_the_rest_of_a_slice_on_its_way_is_used_too() -> None:
    """Eight tasks of one core for a machine of eight cores that boots, and one more for a ninth."""
    cpu = a_cpu_group()

    assert decide(cpu, slices_of(cpu, S.BOOTSTRAPPING), (8, a_request())).creates == ()
    assert asked_groups(decide(cpu, slices_of(cpu, S.BOOTSTRAPPING), (9, a_request()))) == {
        "cpu": 1
    }


def test_a_slice_that_became_ready_after_the_scheduler_was_asked_counts_as_on_its_way() -> None:
    """The demand is older than the slice; a second one would be bought for work that has just
    started.
    """
    group = a_group()
    ready = a_slice_of(group, requested_at=at(-100), ready_at=at(-1), changed_at=at(-1))

    assert decide(group, [ready], a_gang(), as_of=at(-2)).creates == ()
    assert asked_groups(decide(group, [ready], a_gang(), as_of=at(0))) == {"tpu": 1}


def test_groups_with_a_lower_number_are_asked_first_and_equals_by_name() -> None:
    """The operator's order is the price list."""
    groups = [a_group("b", priority=5), a_group("c", priority=1), a_group("a", priority=5)]

    assert asked_groups(decide(groups, (), a_gang())) == {"c": 1}
    assert asked_groups(decide([groups[0], groups[2]], (), a_gang())) == {"a": 1}


def test_what_a_group_may_not_have_goes_to_the_next_that_can_serve_it() -> None:
    """Three gangs, two slices here, one there."""
    groups = [a_group("first", priority=1, max_slices=2), BIG, a_group("second", priority=2)]

    assert asked_groups(decide(groups, (), (3, a_gang()))) == {"first": 2, "second": 1}


def test_tasks_without_devices_do_not_go_to_hosts_that_keep_theirs() -> None:
    """A TPU slice bought for a shell script is the most expensive shell there is."""
    assert decide(a_group(), (), a_request()).creates == ()
    assert asked_groups(decide(a_group(accept_cpu_jobs=True), (), a_request())) == {"tpu": 1}


def test_tasks_without_devices_go_to_plain_machines_before_those_with_devices_that_take_them() -> (
    None
):
    """Whatever the priorities say: they are there to choose among accelerators."""
    groups = [
        a_group("tpu", priority=1, accept_cpu_jobs=True),
        a_cpu_group("cpu", priority=2, max_slices=1),
    ]

    assert asked_groups(decide(groups, (), (8, a_request()))) == {"cpu": 1}
    assert asked_groups(decide(groups, (), (9, a_request()))) == {"cpu": 1, "tpu": 1}


def test_the_variant_has_to_be_one_of_those_asked_for() -> None:
    """`auto` takes any, a list any of its members, in any case of letters."""
    groups = [a_group("v5e"), BIG]

    assert asked_groups(decide(groups, (), a_gang(tasks=16, wants=CHIPS_64))) == {"big": 1}
    assert asked_groups(decide(groups, (), a_gang(wants=some(device="tpu:auto:4")))) == {"v5e": 1}
    assert asked_groups(
        decide(groups, (), a_gang(wants=some(device="tpu:V6E-16,V5LITEPOD-16:4")))
    ) == {"v5e": 1}


def test_a_zone_that_is_demanded_is_the_zone_that_is_asked() -> None:
    """A slice in the group's preferred zone would not take the gang that it was bought for."""
    group = a_group(zones=(A, B, C))

    assert asked(decide(group, (), a_gang())) == {("tpu", A): 1}
    assert asked(decide(group, (), a_gang(constraints=demands(f"zone = {B}")))) == {("tpu", B): 1}
    assert asked(decide(group, (), a_gang(constraints=demands("region = us-east1")))) == {
        ("tpu", C): 1
    }
    assert asked(decide(group, (), a_gang(constraints=demands(f"zone != {A}")))) == {("tpu", B): 1}


def test_a_slice_on_its_way_in_another_zone_than_demanded_helps_nobody() -> None:
    """Counted as help, it would let the gang wait for ever."""
    group = a_group(zones=(A, B))

    made = decide(
        group, slices_of(group, S.PROVISIONING), a_gang(constraints=demands(f"zone = {B}"))
    )

    assert asked(made) == {("tpu", B): 1}


def test_preferred_constraints_choose_among_zones_and_among_groups_of_one_priority() -> None:
    """A preference is no demand: it never overrules the operator's order, and never leaves a gang
    without a slice.
    """
    here, there = (
        a_group("here", zones=(A, B), priority=1),
        a_group("there", zones=(C,), priority=1),
    )

    assert asked(decide([here], (), a_gang(constraints=demands(f"?zone = {B}")))) == {
        ("here", B): 1
    }
    assert asked(decide([here, there], (), a_gang(constraints=demands("?region = us-east1")))) == {
        ("there", C): 1
    }
    dearer = there.model_copy(update={"priority": 2})
    assert asked(decide([here, dearer], (), a_gang(constraints=demands("?region = us-east1")))) == {
        ("here", A): 1
    }


def test_constraints_on_the_group_and_on_preemption_are_held_against_the_hosts_there_would_be() -> (
    None
):
    """What follows from the group is as good as what a host says of itself."""
    groups = [
        a_group("spot", preemptible=True, priority=1),
        a_group("firm", attributes={"rack": "r9"}),
    ]

    assert asked_groups(decide(groups, (), a_gang(constraints=demands("preemptible = false")))) == {
        "firm": 1
    }
    assert asked_groups(decide(groups, (), a_gang(constraints=demands("scale-group = firm")))) == {
        "firm": 1
    }
    assert asked_groups(decide(groups, (), a_gang(constraints=demands("rack = r9")))) == {"firm": 1}


def test_a_demand_on_the_worker_id_is_met_by_the_slice_that_has_such_a_host() -> None:
    """For one task any host of the slice will do; a gang needs all of them, and only one of them is
    number 2.
    """
    group, second = a_group(), demands("tpu-worker-id = 2")

    assert asked_groups(
        decide(group, (), a_request(wants=some(device="tpu:auto:4"), constraints=second))
    ) == {"tpu": 1}
    assert decide(group, (), a_gang(constraints=second)).creates == ()


def test_a_gang_by_zone_gets_machines_of_one_zone() -> None:
    """Machines that share a zone and nothing else: three at hand in one zone and one new one there
    make four.
    """
    cpu = a_cpu_group(zones=(A, B))
    gang = a_request(wants=some(cpu=8), tasks=4, group_by="zone")

    assert asked(decide(cpu, (), gang)) == {("cpu", A): 4}
    there = slices_of(cpu, S.READY, S.READY, S.PROVISIONING, zone=B)
    assert asked(decide(cpu, there, gang, idle={"s1": at(-9), "s2": at(-9)})) == {("cpu", B): 1}


def test_a_gang_whose_tasks_share_a_host_gets_one_machine() -> None:
    """Two tasks of four cores fit on a machine of eight: a second one would be bought for
    nothing.
    """
    cpu = a_cpu_group(zones=(A, B))
    spec = a_spec(
        replicas=2,
        resources=some(cpu=4),
        coscheduling=Coscheduling(group_by="zone", tasks_per_host=2),
    )
    gang = request_for(spec, index=0, attempt=1, run_id="run", owner="job", submitted_at=NOON)

    assert asked(decide(cpu, (), gang)) == {("cpu", A): 1}


def test_a_gang_over_two_zones_gets_machines_in_both() -> None:
    """Equal parts in different zones; a group that has only one of them cannot serve it."""
    gang = a_request(wants=some(cpu=8), tasks=4, group_by="zone", groups=2)

    cpu = a_cpu_group(zones=(A, B))
    there = [a_slice_of(cpu, f"{zone}{i}", zone=zone) for zone in (A, B) for i in (1, 2)]

    assert asked(decide(cpu, (), gang)) == {("cpu", A): 2, ("cpu", B): 2}
    assert (
        len(
            decide(
                cpu.model_copy(update={"max_slices": 9}),
                there,
                gang,
                idle={each.id: at(-9) for each in there},
            ).creates
        )
        == 1
    )
    assert not decide(a_cpu_group(zones=(A,)), (), gang).outlooks[0].possible


def test_a_gang_by_zone_gets_machines_of_several_groups() -> None:
    """No group may have six, and together they may: the scheduler places across groups, so the
    machines are worth their price.
    """
    cpu, more = a_cpu_group(zones=(B, A)), a_cpu_group("more", zones=(A,), max_slices=2)
    gang = a_request(wants=some(cpu=8), tasks=6, group_by="zone")

    assert asked(decide([cpu, more], (), gang)) == {("cpu", A): 4, ("more", A): 2}
    there = [a_slice_of(cpu, "s1", zone=A), a_slice_of(more, "s2", state=S.PROVISIONING, zone=A)]
    made = decide([cpu, more], there, gang, idle={"s1": at(-9)})
    assert asked(made) == {("cpu", A): 3, ("more", A): 1}
    assert made.outlooks[0].message == "scale group cpu requests 3 slices now"
    assert not given_back(made)

    busy = decide([cpu, more], [a_slice_of(cpu, "s1", zone=A)], gang)
    assert not busy.creates
    assert (
        busy.outlooks[0].message
        == "every scale group that has hosts for it is blocked: cpu may have only 3 more; more may"
        " have only 2 more"
    )


def test_the_stronger_band_is_packed_first() -> None:
    """With room for one slice it is the production gang's."""
    group = a_group(max_slices=1)
    batch, production = a_gang("batch", band=Band.BATCH), a_gang("production", band=Band.PRODUCTION)

    made = decide(group, (), batch, production)

    assert [create.reason for create in made.creates] == ["for task of production"]


def shapes() -> st.SearchStrategy[list[tuple[int, Request]]]:
    """Up to six shapes, of one task or of a gang."""
    singles = st.builds(
        lambda cpu, memory, chips: a_request(
            wants=some(cpu, memory, device=f"tpu:auto:{chips}" if chips else "cpu")
        ),
        st.sampled_from([0, 0.5, 1, 3, 8]),
        st.integers(0, 32),
        st.sampled_from([0, 0, 1, 2, 4]),
    )
    gangs = st.builds(lambda groups: a_gang(tasks=4 * groups, groups=groups), st.integers(1, 2))
    return st.lists(st.tuples(st.integers(1, 40), singles | gangs), max_size=6)


def packed(
    groups: list[ScaleGroup], coming: int, waiting: list[tuple[int, Request]]
) -> tuple[list[DemandResult], dict[str, Supply]]:
    supplies = {}
    for group in groups:
        some_coming = [
            PlannedSlice(group, A, a_slice_of(group, f"{group.name}-{i}", S.PROVISIONING))
            for i in range(coming)
        ]
        supplies[group.name] = Supply(
            group, coming={A: some_coming}, free=group.max_slices, zones=frozenset(group.zones)
        )
    results = pack(
        Catalog(groups),
        supplies,
        [Demand(count=number, example=request) for number, request in waiting],
    )
    return results, supplies


@CHEAP
@given(shapes(), st.integers(0, 3))
def test_nobody_is_promised_what_a_slice_does_not_have_and_nobody_is_lost(
    waiting: list[tuple[int, Request]], coming: int
) -> None:
    """All that wait are either served or left; what is put on a slice is within what its hosts
    have; a whole slice is for one gang alone; and nothing is left while its group has room.
    """
    groups = [a_group(max_slices=3, accept_cpu_jobs=True), a_cpu_group(max_slices=2)]

    results, supplies = packed(groups, coming, waiting)

    load: dict[int, list[int]] = {}
    gangs: dict[int, int] = {}
    hosts = {
        id(slice): slice.group
        for result in results
        for slices, _ in result.served
        for slice in slices
    }
    for (number, request), result in zip(waiting, results, strict=True):
        assert sum(count for _, count in result.served) + result.left == number
        for slices, count in result.served:
            assert len({id(slice) for slice in slices}) == request.groups
            for slice in slices:
                each = load.setdefault(id(slice), [0, 0, 0, 0])
                for place in range(len(AMOUNTS)):
                    each[place] += count * request.shape.amounts[place] * request.group_size
                gangs[id(slice)] = gangs.get(id(slice), 0) + (
                    count if request.group_by is None else 10**6
                )
        if result.left and request.groups == 1:
            assert all(supplies[candidate.group.name].free == 0 for candidate in result.candidates)
    for key, amounts in load.items():
        vector = hosts[key].resources.vector
        assert all(
            there * hosts[key].hosts >= used for there, used in zip(vector, amounts, strict=True)
        )
        assert gangs[key] < 10**6 or gangs[key] == 10**6
    assert all(len(supply.wanted) <= supply.group.max_slices for supply in supplies.values())


def test_a_hundred_thousand_that_wait_are_packed_by_shape() -> None:
    """One by one they would take seconds, and the workflow task has two."""
    cpu = a_cpu_group(max_slices=20_000)

    results, supplies = packed([cpu], 0, [(100_000, a_request())])

    assert results[0].left == 0
    assert len(supplies["cpu"].wanted) == 12_500


def test_the_host_of_a_slice_is_the_limit_and_not_the_slice() -> None:
    """Four hosts with eight cores each take no task of nine."""
    group = a_group(resources=TPU_HOST, accept_cpu_jobs=True)

    assert decide(group, (), a_request(wants=some(cpu=9))).creates == ()
