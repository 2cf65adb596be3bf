"""What stops requests from a group of existing machines, which has its own pool."""

from iris.autoscaling.failure_memory import learn
from iris.model.slice.provisioning import SliceFault
from iris.model.slice.scale_groups import ScaleGroup, SliceType
from iris.model.slice.scaling import Availability, Memory
from iris.model.slice.status import SliceState
from tests.builders import NOON, a_gang, at
from tests.scaling_world import a_group, a_slice_of, asked_groups, decide

WHY = "no machine is free (2 of 3 serve this cluster, 10.0.0.3: is leased to cluster other)"


def a_pool(name: str = "desks") -> ScaleGroup:
    return a_group(name, type=SliceType.MANUAL_VM)


def exhausted() -> Memory:
    """The memory after no machine of the pool was free."""
    refused = a_slice_of(
        a_pool(), state=SliceState.FAILED, requested_at=NOON, fault=SliceFault.STOCK_OUT, reason=WHY
    )
    return learn(Memory(), a_pool(), refused, None, NOON)


def test_an_exhausted_pool_says_who_has_its_machines_and_when_it_is_asked_again() -> None:
    """The user may switch a machine on, or ask the other cluster: no cloud will bring new ones."""
    made = decide(a_pool(), (), a_gang(), memory=exhausted())

    assert made.groups[0].availability is Availability.BACKOFF
    assert made.groups[0].why.startswith(f"{WHY}, tried once, again at 12:00:30 UTC")


def test_an_exhausted_pool_keeps_no_other_pool_from_work() -> None:
    """All pools are in one zone, but each has machines of its own."""
    made = decide([a_pool(), a_pool("racks")], (), a_gang(), memory=exhausted())

    assert asked_groups(made) == {"racks": 1}


def test_a_slice_that_was_deleted_leaves_a_free_machine() -> None:
    """So its pool is asked at once; a slice that was never ready may not have had a machine."""
    ended = a_slice_of(a_pool(), state=SliceState.DELETED, ready_at=at(-60))

    after = learn(
        exhausted(), a_pool(), ended, ended.model_copy(update={"state": SliceState.DELETING}), at(1)
    )
    assert asked_groups(decide(a_pool(), (), a_gang(), memory=after, now=at(1))) == {"desks": 1}

    never = ended.model_copy(update={"ready_at": None})
    after = learn(
        exhausted(), a_pool(), never, never.model_copy(update={"state": SliceState.DELETING}), at(1)
    )
    assert asked_groups(decide(a_pool(), (), a_gang(), memory=after, now=at(1))) == {}
