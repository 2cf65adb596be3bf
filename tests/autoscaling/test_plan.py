"""What is asked of scale groups, when, and what has to wait: `plan`, as far as it grows."""

from datetime import timedelta

from iris.model.slice.provisioning import SliceFault
from iris.model.slice.scale_groups import Pace, SliceType
from iris.model.slice.scaling import Availability, GroupMemory, Memory, ScalePlan
from iris.model.slice.status import SliceState
from tests.builders import NOON, a_gang, at, demands
from tests.scaling_world import (
    A,
    B,
    a_group,
    a_slice_of,
    asked_groups,
    decide,
    given_back,
    slices_of,
)

S = SliceState
GROUPS = [a_group("first", priority=1), a_group("second", priority=2)]


def remember(**what: object) -> Memory:
    return Memory(groups={"tpu": GroupMemory(**what), "first": GroupMemory(**what)})


def test_several_slices_are_asked_for_in_one_decision() -> None:
    """One slice per evaluation kept the original's users waiting in line for machines that were
    free.
    """
    assert asked_groups(decide(a_group(max_slices=9), (), (7, a_gang()))) == {"tpu": 7}


def test_never_more_slices_are_asked_for_than_the_most_allows() -> None:
    """All that exist count: those that failed or are being deleted are still at the platform."""
    group = a_group(max_slices=6)
    there = slices_of(group, S.READY, S.PROVISIONING, S.DRAINING, S.DELETING, S.FAILED)

    assert asked_groups(decide(group, there, (9, a_gang()))) == {"tpu": 1}


def test_a_slice_that_is_deleted_counts_for_nothing() -> None:
    """The platform has said so."""
    group = a_group(max_slices=1)

    assert asked_groups(decide(group, slices_of(group, S.DELETED), a_gang())) == {"tpu": 1}


def test_a_slice_that_will_be_gone_in_a_moment_lets_the_gang_wait_for_its_place() -> None:
    """A stock-out in one zone of a group with one slice: the next zone of the group comes first,
    not the next group. But when the deletion does not end, the gang goes elsewhere.
    """
    groups = [a_group("first", priority=1, max_slices=1), a_group("second", priority=2)]
    failed = slices_of(
        groups[0], S.FAILED, fault=SliceFault.STOCK_OUT, requested_at=at(0), changed_at=at(2)
    )

    made = decide(groups, failed, a_gang(), now=at(3))

    assert made.creates == ()
    assert made.next_at == at(122)
    assert asked_groups(decide(groups, failed, a_gang(), now=at(122))) == {"second": 1}


def test_a_slice_that_boots_at_the_limit_keeps_its_gang_from_going_to_the_next_group() -> None:
    """In the original the full group sent its own gang away while the slice for it was booting."""
    full = a_group("first", priority=1, max_slices=1)

    assert decide([full, GROUPS[1]], slices_of(full, S.BOOTSTRAPPING), a_gang()).creates == ()


def test_a_group_at_its_limit_sends_the_others_to_the_next() -> None:
    """What it may not have, another may."""
    full = a_group("first", priority=1, max_slices=1)

    assert asked_groups(decide([full, GROUPS[1]], slices_of(full, S.READY), a_gang())) == {
        "second": 1
    }


def test_after_a_scale_up_demand_waits_and_does_not_go_elsewhere() -> None:
    """It is a pause for breath, not a refusal: machines of the second choice would be bought for
    impatience.
    """
    made = decide(GROUPS, (), a_gang(), memory=remember(cooldown_until=at(20)))

    assert made.creates == ()
    assert made.next_at == at(20)


def test_a_request_without_an_answer_lets_demand_wait_and_does_not_send_it_elsewhere() -> None:
    """The answer may be yes."""
    there = slices_of(GROUPS[0], S.REQUESTED, requested_at=at(-1))

    assert decide(GROUPS, there, (2, a_gang())).creates == ()


def test_a_scale_up_begins_the_pause_and_takes_from_the_rate() -> None:
    """What is done now is in the memory that comes back."""
    made = decide(a_group(), (), (2, a_gang()))

    assert made.memory.groups["tpu"].cooldown_until == at(60)
    assert made.memory.groups["tpu"].scale_ups == (NOON, NOON)
    assert [action.what for action in made.memory.actions] == ["scale_up", "scale_up"]


def test_no_more_are_asked_for_in_a_minute_than_the_rate_allows_and_the_rest_waits() -> None:
    """A job array must not become a thousand calls in a second, nor go to the next group for that
    reason.
    """
    pace = Pace(scale_ups_per_minute=3, scale_up_delay=timedelta(0))
    groups = [a_group("first", priority=1, pace=pace), a_group("second", priority=2)]
    memory = remember(scale_ups=(at(-70), at(-20)))

    made = decide(groups, (), (4, a_gang()), memory=memory)

    assert asked_groups(made) == {"first": 2}
    assert made.next_at == at(40)
    later = decide(
        groups,
        slices_of(groups[0], S.PROVISIONING, S.PROVISIONING),
        (4, a_gang()),
        memory=made.memory,
        now=at(40),
    )
    assert asked_groups(later) == {"first": 1}


def test_the_least_is_restored_whatever_the_pause() -> None:
    """min_slices is a promise, and the pause after a scale-up, or a request under way, is only
    about demand.
    """
    group = a_group(min_slices=3)
    there = slices_of(group, S.READY, S.REQUESTED, requested_at=at(-1))

    assert asked_groups(decide(group, there, memory=remember(cooldown_until=at(20)))) == {"tpu": 1}


def test_the_least_waits_for_the_rate_and_not_for_what_only_holds_up_demand() -> None:
    """With two a minute the third comes after a minute, though the platform may take two to answer
    the first request.
    """
    group = a_group(min_slices=3, pace=Pace(scale_ups_per_minute=2))
    first = decide(group)
    there = slices_of(group, S.REQUESTED, S.REQUESTED, requested_at=at(0), changed_at=at(0))

    assert asked_groups(first) == {"tpu": 2}
    assert decide(group, there, memory=first.memory, now=at(1)).next_at == at(60)
    assert asked_groups(decide(group, there, memory=first.memory, now=at(60))) == {"tpu": 1}


def test_the_least_counts_what_can_be_used_or_will_be() -> None:
    """A failed slice, or one that is going, is none; one that boots is."""
    group = a_group(min_slices=2, max_slices=9)

    assert decide(group, slices_of(group, S.READY, S.PROVISIONING)).creates == ()
    assert asked_groups(decide(group, slices_of(group, S.READY, S.DRAINING, S.FAILED))) == {
        "tpu": 1
    }


def test_the_least_is_not_restored_while_a_quota_or_a_failure_forbids_it() -> None:
    """A promise to the user is no reason to hammer the platform; it is kept when the time is
    over.
    """
    group = a_group(min_slices=1)

    for blocked in (remember(quota_until=at(30)), remember(backoff_until=at(30), failures=1)):
        made = decide(group, (), memory=blocked)
        assert (made.creates, made.next_at) == ((), at(30))
        assert asked_groups(decide(group, (), memory=blocked, now=at(30))) == {"tpu": 1}


def test_new_slices_for_demand_restore_the_least_as_well() -> None:
    """Two for gangs are two of the three that there have to be."""
    assert asked_groups(decide(a_group(min_slices=3), (), (2, a_gang()))) == {"tpu": 3}


def test_the_reserve_is_kept_beyond_what_is_used() -> None:
    """buffer_slices are slices without work, there or on their way; min_slices are slices with or
    without.
    """
    group = a_group(buffer_slices=1, max_slices=9)

    assert asked_groups(decide(group)) == {"tpu": 1}
    assert asked_groups(decide(group, slices_of(group, S.READY))) == {"tpu": 1}
    assert decide(group, slices_of(group, S.READY), idle={"s1": at(-1)}).creates == ()
    assert decide(group, slices_of(group, S.READY, S.PROVISIONING)).creates == ()
    assert asked_groups(decide(group, slices_of(group, S.READY, S.PROVISIONING), a_gang())) == {
        "tpu": 1
    }
    assert asked_groups(decide(group, (), (2, a_gang()))) == {"tpu": 3}


def test_one_slice_can_be_the_least_and_the_reserve() -> None:
    """With a least of one and a reserve of one, an idle cluster holds one."""
    assert asked_groups(decide(a_group(min_slices=1, buffer_slices=1))) == {"tpu": 1}


def test_the_reserve_does_not_grow_around_the_pause_of_those_that_wait() -> None:
    """Those that wait would take each slice of the reserve as it is asked for, and the next would
    be asked for at once.
    """
    group = a_group(buffer_slices=1)

    assert decide(group, (), a_gang(), memory=remember(cooldown_until=at(20))).creates == ()
    assert asked_groups(
        decide(group, (), a_gang(), memory=remember(cooldown_until=at(20)), now=at(20))
    ) == {"tpu": 2}


def test_the_reserve_ignores_the_pause_when_nobody_waits() -> None:
    """It was used up by the scale-up before; that is what it is for."""
    assert asked_groups(
        decide(a_group(buffer_slices=1), (), memory=remember(cooldown_until=at(20)))
    ) == {"tpu": 1}


def test_a_broken_slice_is_deleted_when_its_work_has_ended_and_counts_for_nothing_until_then() -> (
    None
):
    """A host in quarantine takes the slice with it; what runs on its other hosts is let run."""
    group = a_group(min_slices=1, max_slices=2)

    made = decide(group, slices_of(group, S.READY), broken={"s1": "host s1-w-0 is quarantined"})

    (drain,) = made.drains
    assert (drain.slice_id, drain.deadline, drain.idle_since) == ("s1", None, None)
    assert "quarantined" in drain.reason
    assert asked_groups(made) == {"tpu": 1}


def test_a_broken_machine_of_ones_own_stays_leased() -> None:
    """Given back, it would be leased again, broken as before. Another machine takes its place, if
    the group has one.
    """
    group = a_group(type=SliceType.MANUAL_VM, min_slices=1, max_slices=2)

    made = decide(group, slices_of(group, S.READY), broken={"s1": "host s1-w-0 is quarantined"})

    assert made.drains == ()
    assert asked_groups(made) == {"tpu": 1}


def test_a_broken_slice_is_replaced_only_as_far_as_the_most_permits() -> None:
    """It exists until it is gone."""
    group = a_group(min_slices=1, max_slices=1)

    assert (
        decide(group, slices_of(group, S.READY), a_gang(), broken={"s1": "quarantined"}).creates
        == ()
    )


def test_a_paused_group_is_asked_for_nothing_and_its_slices_help_nobody() -> None:
    """Its hosts take nothing new as long as an operator says so: the demand goes to the next
    group.
    """
    made = decide(GROUPS, slices_of(GROUPS[0], S.PROVISIONING), a_gang(), paused=("first",))

    assert asked_groups(made) == {"second": 1}
    assert "paused" in made.groups[0].why
    over_two = decide(
        GROUPS,
        slices_of(GROUPS[0], S.READY),
        a_gang(tasks=8, groups=2),
        idle={"s1": at(-9)},
        paused=("first",),
    )
    assert asked_groups(over_two) == {"second": 2}


def test_a_gang_that_no_group_can_serve_stops_nobody() -> None:
    """One impossible request broke the whole loop of a well-known autoscaler."""
    made = decide(a_group(), (), a_gang("never", tasks=64), a_gang("fine"))

    assert asked_groups(made) == {"tpu": 1}
    assert [outlook.possible for outlook in made.outlooks] == [False, True]


def test_a_zone_without_stock_sends_only_those_to_the_next_group_that_need_it() -> None:
    """The others are served in the zone that has some."""
    first, second = (
        a_group("first", zones=(A, B), priority=1),
        a_group("second", zones=(A,), priority=2, preemptible=True),
    )
    memory = Memory.model_validate(
        {
            "stocked_out": [
                {"zone": A, "kind": "tpu_vm:v5litepod-16:on-demand", "until": at(30), "at": NOON}
            ]
        }
    )

    made = decide(
        [first, second],
        (),
        a_gang("here", constraints=demands(f"zone = {A}")),
        a_gang("any"),
        memory=memory,
    )

    assert {(create.group, create.zone) for create in made.creates} == {("first", B), ("second", A)}


def test_what_waits_for_a_blocked_group_wakes_the_autoscaler_when_that_ends() -> None:
    """The first of them: quota, backoff, pause and empty zones each end by themselves, and nobody
    says so.
    """
    memory = Memory(
        groups={
            "first": GroupMemory(quota_until=at(90)),
            "second": GroupMemory(backoff_until=at(40), failures=3),
        }
    )

    assert decide(GROUPS, (), a_gang(), memory=memory).next_at == at(40)
    assert decide(GROUPS, (), memory=memory).next_at is None


def test_a_better_group_that_is_free_again_sooner_wakes_it_too() -> None:
    """The gang waits for the second choice, which may grow again in a minute; the first choice's
    quota ends before.
    """
    memory = Memory(
        groups={
            "first": GroupMemory(quota_until=at(30)),
            "second": GroupMemory(cooldown_until=at(60)),
        }
    )

    assert decide(GROUPS, (), a_gang(), memory=memory).next_at == at(30)
    assert asked_groups(decide(GROUPS, (), a_gang(), memory=memory, now=at(30))) == {"first": 1}


def test_a_zone_that_may_have_stock_again_wakes_those_that_need_just_that_zone() -> None:
    """The group as a whole is available, so its own standing has no end."""
    memory = Memory.model_validate(
        {
            "stocked_out": [
                {"zone": A, "kind": "tpu_vm:v5litepod-16:on-demand", "until": at(30), "at": NOON}
            ]
        }
    )
    made = decide(
        a_group(zones=(A, B)), (), a_gang(constraints=demands(f"zone = {A}")), memory=memory
    )

    assert (made.creates, made.next_at) == ((), at(30))


def test_demand_that_is_met_wakes_nobody() -> None:
    """The slices that were asked for will say themselves when they are ready."""
    made = decide(a_group(), (), a_gang())

    assert made.next_at is None
    assert decide(a_group(), slices_of(a_group(), S.PROVISIONING), a_gang()).next_at is None


def test_nothing_is_done_twice_for_the_same_gang() -> None:
    """The same question again, with what has been done since, is answered with nothing."""
    group = a_group()
    first = decide(group, (), (2, a_gang()))
    there = slices_of(group, S.REQUESTED, S.REQUESTED, requested_at=NOON, changed_at=NOON)

    again = decide(group, there, (2, a_gang()), memory=first.memory, now=at(1))

    assert (again.creates, again.drains) == ((), ())


def test_the_same_facts_in_another_order_give_the_same_plan() -> None:
    """A workflow is replayed, and what it lists comes from maps."""
    group = a_group("tpu", zones=(A, B), max_slices=9)
    there = [
        *slices_of(group, S.READY, S.READY, S.PROVISIONING, S.BOOTSTRAPPING, S.FAILED),
        a_slice_of(GROUPS[0], "other", S.PROVISIONING),
    ]
    idle = {"s1": at(-400), "s2": at(-500)}

    def made(reverse: bool) -> ScalePlan:
        turn = reversed if reverse else iter
        ids = dict(turn(list(idle.items())))
        return decide(list(turn([group, *GROUPS])), list(turn(there)), (6, a_gang()), idle=ids)

    assert made(False) == made(True)


def test_the_memory_forgets_what_counts_no_more() -> None:
    """It is carried from run to run of the workflow, for ever."""
    old = GroupMemory(
        quota_until=at(-1),
        quota_reason="long ago",
        backoff_until=at(-1),
        backoff_reason="long ago",
        cooldown_until=at(-1),
        failures=2,
        scale_ups=(at(-61), at(-59)),
        scale_downs=(at(-61),),
        lives=((at(-1800), False), (at(-1799), True)),
    )

    memory = decide(a_group(), (), memory=Memory(groups={"tpu": old, "gone": old})).memory

    assert decide(a_group()).memory == Memory()
    assert memory.groups == {
        "tpu": GroupMemory(failures=2, scale_ups=(at(-59),), lives=((at(-1799), True),))
    }


def test_only_the_last_hundred_actions_are_kept() -> None:
    """Whatever happens in one decision."""
    pace = Pace(scale_ups_per_minute=500)

    made = decide(a_group(max_slices=500, min_slices=300, pace=pace))

    assert (len(made.creates), len(made.memory.actions)) == (300, 100)


def test_a_group_whose_slices_are_all_on_their_way_stands_as_available() -> None:
    """What is on its way blocks nothing by itself."""
    group = a_group()

    assert (
        decide(group, slices_of(group, S.PROVISIONING)).groups[0].availability
        is Availability.AVAILABLE
    )
    assert given_back(decide(group, slices_of(group, S.PROVISIONING))) == []
