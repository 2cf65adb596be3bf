"""Which slices are deleted, when, and which are kept: `plan`, as far as groups shrink."""

from datetime import datetime, timedelta

from iris.model.slice.scale_groups import Pace
from iris.model.slice.scaling import Drain, GroupMemory, Memory, ScalePlan
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
READY_3 = (S.READY, S.READY, S.READY)
#: s2 for the longest time, then s3, then s1; all for longer than the delay.
IDLE_3 = {"s1": at(-400), "s2": at(-600), "s3": at(-500)}


def shrink(
    idle: dict[str, datetime] | None = None, memory: Memory | None = None, **changes: object
) -> ScalePlan:
    """A decision about three ready slices and no demand."""
    group = a_group(**changes)
    return decide(
        group, slices_of(group, *READY_3), idle=IDLE_3 if idle is None else idle, memory=memory
    )


def test_a_slice_without_work_is_given_back_after_its_delay_and_not_before() -> None:
    """Five minutes, to the moment; until then the plan says when to look again."""
    group = a_group()

    early = decide(group, slices_of(group, S.READY), idle={"s1": at(0)}, now=at(299))
    due = decide(group, slices_of(group, S.READY), idle={"s1": at(0)}, now=at(300))

    assert (early.drains, early.next_at) == ((), at(300))
    assert given_back(due) == ["s1"]


def test_the_scheduler_is_asked_whether_it_is_still_idle() -> None:
    """Between the question and the answer a gang may be placed there: the drain holds only if it
    was idle all along.
    """
    drain, *_ = shrink().drains

    assert drain == Drain(slice_id="s2", reason="idle for 10m", idle_since=at(-300))


def test_the_longest_idle_is_given_back_first_and_several_in_one_decision() -> None:
    """The original gave back one in five minutes while sixty stood idle."""
    assert given_back(shrink()) == ["s2", "s3", "s1"]
    assert given_back(shrink(min_slices=2)) == ["s2"]


def test_never_below_the_least_nor_below_the_reserve() -> None:
    """What would be asked for again at once is not given back."""
    assert given_back(shrink(min_slices=3)) == []
    assert given_back(shrink(buffer_slices=2)) == ["s2"]
    assert given_back(shrink(min_slices=1, buffer_slices=3)) == []


def test_a_slice_on_its_way_is_no_reason_to_give_back_one_that_is_there() -> None:
    """It may fail yet, and then the least is not there."""
    group = a_group(min_slices=1)

    assert (
        given_back(decide(group, slices_of(group, S.READY, S.PROVISIONING), idle={"s1": at(-900)}))
        == []
    )


def test_a_slice_that_has_just_become_ready_gets_its_whole_delay() -> None:
    """It never had work, so its idle time could be counted from any time before: it would be gone
    before the work that it was bought for is placed.
    """
    group = a_group()
    fresh = a_slice_of(group, ready_at=at(-10), changed_at=at(-10))

    made = decide(group, [fresh], idle={"s1": at(-4000)})

    assert (made.drains, made.next_at) == ((), at(290))


def test_nothing_is_given_back_while_the_group_is_wanted() -> None:
    """The idle one does not suit the gang that waits, but a cluster that buys and sells at the same
    moment suits nobody.
    """
    group = a_group(zones=(A, B))
    elsewhere = a_gang(constraints=demands(f"zone = {B}"))

    made = decide(group, slices_of(group, S.READY), elsewhere, idle={"s1": at(-900)})

    assert (given_back(made), asked_groups(made)) == ([], {"tpu": 1})


def test_at_the_limit_an_idle_slice_makes_room_for_the_one_that_is_wanted() -> None:
    """The gang wants another zone, and the group may have no more: kept, the idle slice would block
    it for ever.
    """
    group = a_group(zones=(A, B), max_slices=1)
    elsewhere = a_gang(constraints=demands(f"zone = {B}"))

    assert given_back(
        decide(group, slices_of(group, S.READY), elsewhere, idle={"s1": at(-900)})
    ) == ["s1"]


def test_an_idle_slice_that_a_gang_needs_beside_new_ones_is_kept() -> None:
    """The second slice of two takes minutes to boot; the first must not be gone by then."""
    group = a_group(max_slices=2)
    there = slices_of(group, S.READY, S.PROVISIONING)

    made = decide(group, there, a_gang(tasks=8, groups=2), idle={"s1": at(-900)})

    assert (made.creates, made.drains) == ((), ())
    assert "idle slice s1 kept: a gang needs it and slices on their way" in made.groups[0].why


def test_no_more_are_given_back_in_a_minute_than_the_rate_allows() -> None:
    """And the next when the first of the last minute is forgotten."""
    pace = Pace(scale_downs_per_minute=3)

    made = shrink(
        pace=pace, memory=Memory(groups={"tpu": GroupMemory(scale_downs=(at(-50), at(-20)))})
    )

    assert given_back(made) == ["s2"]
    assert made.next_at == at(10)
    assert made.memory.groups["tpu"].scale_downs == (at(-50), at(-20), NOON)


def test_where_slices_die_young_the_idle_ones_are_kept() -> None:
    """They would have to be fought for again."""
    died = Memory(
        groups={"tpu": GroupMemory(lives=((at(-100), False), (at(-90), False), (at(-80), True)))}
    )

    made = shrink(memory=died)

    assert (made.drains, made.next_at) == ((), at(1700))
    assert "2 of 3 recent slices were short-lived" in made.groups[0].why


def test_a_busy_slice_that_may_go_is_looked_at_again_after_the_delay() -> None:
    """Nobody says when its work has ended; it cannot have been idle for long enough before."""
    assert shrink(idle={}).next_at == at(300)
    assert shrink(idle={}, min_slices=3).next_at is None
    assert shrink(idle={}, buffer_slices=3, max_slices=3).next_at is None


def test_a_quiet_fleet_at_its_least_is_left_alone() -> None:
    """Nothing to do, and nothing that could change by itself: the autoscaler sleeps until somebody
    calls.
    """
    for least in ({"min_slices": 3}, {"buffer_slices": 3}, {"min_slices": 1, "buffer_slices": 3}):
        made = shrink(**least)
        assert (made.creates, made.drains, made.next_at) == ((), (), None)
    assert decide(a_group()).next_at is None
    assert decide([]).next_at is None


def test_a_slice_whose_drain_may_be_refused_is_looked_at_again() -> None:
    """If it has found work in the last moment nothing happens, and nobody would say so."""
    assert shrink().next_at == at(300)


def test_a_smaller_most_gives_back_the_idle_first_and_at_once() -> None:
    """The operator's word needs no delay, but it stops nothing that runs while idle ones are
    there.
    """
    made = shrink(idle={"s2": at(-1)}, max_slices=2)

    assert made.drains == (Drain(slice_id="s2", reason="max_slices is 2", idle_since=NOON),)
    assert decide([], slices_of(a_group("gone"), S.READY), idle={"s1": at(-1)}).next_at == at(300)


def test_after_the_idle_those_on_their_way_go_the_youngest_first_and_then_the_busy() -> None:
    """Work is lost nowhere: what boots has none, and what is busy takes nothing new and goes when
    its work has ended.
    """
    group = a_group(max_slices=1)
    there = [
        a_slice_of(group, "old", ready_at=at(-900)),
        a_slice_of(group, "young", ready_at=at(-600)),
        a_slice_of(group, "idle"),
        a_slice_of(group, "booting", S.BOOTSTRAPPING, requested_at=at(-100)),
        a_slice_of(group, "asked", S.REQUESTED, requested_at=at(-5)),
    ]

    made = decide(group, there, a_gang(), idle={"idle": at(-1)})

    assert [(drain.slice_id, drain.idle_since, drain.deadline) for drain in made.drains] == [
        ("idle", NOON, None),
        ("asked", None, None),
        ("booting", None, None),
        ("young", None, None),
    ]
    assert made.creates == ()


def test_slices_that_are_going_already_are_not_counted_as_excess() -> None:
    """Else a smaller most would take one slice for each that is on its way out."""
    group = a_group(max_slices=1)

    assert given_back(decide(group, slices_of(group, S.READY, S.DRAINING, S.DELETING))) == []


def test_a_slice_that_is_ready_but_not_counted_in_yet_is_not_torn_away_from_its_work() -> None:
    """By now it may have some: the scheduler is asked, as for any other."""
    group = a_group(max_slices=0)
    fresh = a_slice_of(group, requested_at=at(-90), ready_at=at(-1), changed_at=at(-1))

    (drain,) = decide(group, [fresh], as_of=at(-5)).drains

    assert (drain.idle_since, drain.deadline) == (NOON, None)


def test_a_group_that_is_no_longer_in_the_configuration_gives_everything_back() -> None:
    """Nobody would ever look after its slices again."""
    gone = a_group("gone")
    there = [*slices_of(gone, S.READY, S.READY, S.PROVISIONING, S.DRAINING)]

    made = decide(a_group(), there, idle={"s1": at(-1)})

    assert given_back(made) == ["s1", "s3", "s2"]
    assert {drain.reason for drain in made.drains} == {
        "scale group gone is no longer in the configuration"
    }
    assert made.groups[-1].group == "gone"
    assert "no longer in the configuration" in made.groups[-1].why
    assert [action.group for action in made.memory.actions] == ["gone"] * 3


def test_each_group_has_its_own_delay() -> None:
    """Reserved machines cost nothing while they stand idle; what is preemptible is hard to get
    again.
    """
    hasty, patient = (
        a_group("hasty", pace=Pace(scale_down_delay=timedelta(minutes=1))),
        a_group("patient"),
    )
    there = [a_slice_of(hasty, "h"), a_slice_of(patient, "p")]

    made = decide([hasty, patient], there, idle={"h": at(-60), "p": at(-60)})

    assert given_back(made) == ["h"]
    assert made.next_at == at(60)
