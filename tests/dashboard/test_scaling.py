"""What the autoscaler's status means for operators."""

from datetime import timedelta

from iris.dashboard.scaling import blocked, coming, existing, limits, returns
from iris.messages.autoscaler import AutoscalerStatus, ScalingSettings
from iris.model.slice.provisioning import ANYWHERE
from iris.model.slice.scaling import Action, StockedOut, UsedUp
from iris.model.slice.status import SliceState
from tests.builders import at
from tests.scaling_world import a_cpu_group, a_group, a_slice_of, slices_of

TPUS = a_group()
KIND = "tpu_vm:v5litepod-16:preemptible"


def a_status(*states: SliceState, **changes: object) -> AutoscalerStatus:
    settings = {
        "settings": ScalingSettings(groups=(TPUS, a_cpu_group(min_slices=1))),
        "slices": tuple(slices_of(TPUS, *states)),
    }
    return AutoscalerStatus.model_validate(settings | changes)


def test_slices_on_their_way_have_the_reason_of_their_request() -> None:
    """The oldest one is the next."""
    old = a_slice_of(TPUS, "old", SliceState.PROVISIONING, requested_at=at(-500))
    new = a_slice_of(TPUS, "new", SliceState.BOOTSTRAPPING, requested_at=at(-100))
    ready = a_slice_of(TPUS, "ready")
    why = Action(at=at(-100), group="tpu", what="scale_up", slice_id="new", reason="for ada/x")
    found = coming(a_status(slices=(new, ready, old), actions=(why,)))

    assert [(each.facts.id, each.purpose) for each in found] == [("old", ""), ("new", "for ada/x")]


def test_idle_slices_are_given_back_after_the_delay_of_their_group() -> None:
    """Those that the limits keep come last, with the limit."""
    cpu = a_slice_of(a_cpu_group(), "cpu")
    status = a_status(slices=(*slices_of(TPUS, *[SliceState.READY] * 2), cpu))
    found = returns(status, {"s2": at(0), "cpu": at(-60), "gone": at(0)})

    assert [(each.slice_id, each.due, each.kept) for each in found] == [
        ("s2", at(300), ""),
        ("cpu", None, "min_slices 1"),
    ]


def test_a_slice_counts_as_idle_only_from_the_time_at_which_it_was_ready() -> None:
    """The scheduler sees the first host of a slice before the last one."""
    slice = a_slice_of(TPUS, "s1", ready_at=at(100))
    found = returns(a_status(slices=(slice,)), {"s1": at(50)})

    assert found[0].due == at(400)


def test_a_paused_autoscaler_gives_nothing_back() -> None:
    """A time would be a wrong promise."""
    found = returns(a_status(SliceState.READY, paused="upgrade"), {"s1": at(0)})

    assert [(each.due, each.kept) for each in found] == [(None, "the autoscaler is paused")]


def test_blocked_zones_end_with_their_time() -> None:
    """Records of blocks that are over stay in the memory of the autoscaler for a while."""
    over = StockedOut(zone="a", kind=KIND, until=at(-1), at=at(-60))
    stock = StockedOut(zone="b", kind=KIND, until=at(60), times=3, at=at(-60))
    quota = UsedUp(scope=ANYWHERE, kind=KIND, until=at(30), reason="CPUS", asked_at=at(-5))
    found = blocked(a_status(stocked_out=(over, stock), used_up=(quota,)), at(0))

    assert [(each.zone, each.what, each.until) for each in found] == [
        ("all zones", "quota used up", at(30)),
        ("b", "stock-out, 3 in a row", at(60)),
    ]
    assert found[1].kind == "v5litepod-16, preemptible"
    assert found[1].until - found[1].since == timedelta(minutes=2)


def test_the_limits_of_a_group_are_its_least_and_most_slices_and_its_reserve() -> None:
    """Groups without a reserve show none."""
    groups = (a_group(buffer_slices=1), a_cpu_group(min_slices=2))

    assert limits(a_status(settings=ScalingSettings(groups=groups))) == {
        "tpu": "0 to 4, 1 in reserve",
        "cpu": "2 to 4",
    }


def test_slices_that_failed_do_not_count_towards_the_limit_of_their_group() -> None:
    """A group that scales from zero has none at first, and its limit tells what it can have."""
    status = a_status(SliceState.READY, SliceState.REQUESTED, SliceState.FAILED)

    assert existing(status) == [("tpu", 2, 4), ("cpu", 0, 4)]
