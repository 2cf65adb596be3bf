"""A quiet fleet is observed as often as ever and adds next to nothing to the autoscaler's
history.
"""

import pytest

from iris.model.slice.status import SliceState
from tests.fleet_harness import EAGER, HOUR, MINUTE, OBSERVE_INTERVAL, SECOND, FleetCluster
from tests.scaling_world import a_cpu_group

QUIET = EAGER.model_copy(update={"scale_down_delay": 10 * HOUR})


@pytest.mark.long
async def test_an_hour_in_which_nothing_happens_is_observed_and_adds_few_events(
    fleet: FleetCluster,
) -> None:
    """The page of the autoscaler would have 2,640 events an hour of observations, and what it
    decided among them.
    """
    autoscaler = await fleet.scale(a_cpu_group(pace=QUIET, min_slices=1))
    await fleet.comes_true(lambda: fleet.has(1))
    await fleet.later(MINUTE)
    before, looks = (await autoscaler.describe()).history_length, fleet.fleet.looks
    await fleet.later(HOUR)

    assert fleet.fleet.looks - looks >= HOUR // OBSERVE_INTERVAL - 5
    assert (await autoscaler.describe()).history_length - before < 100


async def test_a_slice_that_vanishes_in_a_quiet_hour_is_missed_at_the_next_observation(
    fleet: FleetCluster,
) -> None:
    """To wait for news costs no time when there is some, and a new interval applies at once."""
    autoscaler = await fleet.scale(a_cpu_group(pace=QUIET, min_slices=1), observe_interval=HOUR)
    await fleet.comes_true(lambda: fleet.has(1))
    await fleet.later(3 * HOUR)
    (slice_id,) = await fleet.in_state()
    await fleet.configure(a_cpu_group(pace=QUIET, min_slices=1), observe_interval=10 * SECOND)
    await fleet.platform.vanish(slice_id)
    await fleet.becomes(slice_id, SliceState.DELETED, within=MINUTE)

    assert await fleet.shown_end(autoscaler) == "RUNNING"
