"""The times at which idle slices are given back, as operators see them."""

from iris.autoscaling.idle_slices import expected_returns
from tests.builders import at
from tests.scaling_world import a_group


def test_the_longest_idle_slice_is_given_back_first_after_the_delay() -> None:
    """The delay of the group counts from the moment at which its last task ended."""
    found = expected_returns(a_group(), ready=3, idle={"s2": at(60), "s1": at(0)})

    assert [(each.slice_id, each.due) for each in found] == [("s1", at(300)), ("s2", at(360))]


def test_as_many_slices_are_kept_as_the_limits_say() -> None:
    """An operator must not expect them to go."""
    idle = {"s1": at(0), "s2": at(60), "s3": at(120)}
    least = expected_returns(a_group(min_slices=2), ready=4, idle=idle)
    reserve = expected_returns(a_group(buffer_slices=1), ready=3, idle=idle)
    full = expected_returns(a_group(min_slices=4), ready=3, idle=idle)

    assert [each.due for each in least] == [at(300), at(360), None]
    assert [each.kept for each in least] == ["", "", "min_slices 2"]
    assert [each.kept for each in reserve] == ["", "", "buffer_slices 1"]
    assert {each.kept for each in full} == {"min_slices 4"}
