"""Slices that are smaller than their group promises: no slice is requested for gangs that do not
fit on such slices.
"""

from collections.abc import Iterator
from datetime import timedelta
from itertools import chain, repeat

import pytest

from iris.autoscaling.failure_memory import reconfigured
from iris.autoscaling.sizes import RETRY_DEVICES_AFTER
from iris.model.host.resources import Resources
from iris.model.slice.scale_groups import ScaleGroup
from iris.scheduling.placement.catalog import Catalog
from tests.builders import NOON, TPU_HOST, a_gang, a_request, some
from tests.scaling_world import Cloud, World, a_cpu_group, a_group

HOUR = timedelta(hours=1)
SMALLER = some(cpu=8, memory=31, disk=80)
NO_CHIPS = TPU_HOST.model_copy(update={"device": None})


def finding(*sizes: Resources, then: Resources) -> Cloud:
    """A cloud whose slices have these sizes, one after the other."""
    following: Iterator[Resources] = chain(sizes, repeat(then))
    return Cloud(finds=lambda group: next(following))


def test_a_shape_that_no_ready_slice_could_take_is_bought_once() -> None:
    """32 GiB of a machine that has 31 for tasks made and deleted 36 machines an hour, for ever."""
    world = World([a_cpu_group()], finding(then=SMALLER))
    world.submit(a_request("large", some(cpu=1, memory=32)))

    world.run(until=NOON + 6 * HOUR)

    assert world.created == 1
    assert not world.slices
    (outlook,) = world.last.outlooks
    assert not outlook.possible
    assert (
        outlook.message
        == "needs 32 GiB memory; a host of scale group cpu has 31 GiB memory when empty; slice"
        " cpu-1 of scale group cpu offers 31 GiB memory, 80 GiB disk of the promised 32 GiB"
        " memory, 100 GiB disk"
    )
    assert "slice cpu-1 of scale group cpu offers 31 GiB" in world.last.groups[0].why


def test_what_smaller_slices_can_take_is_still_bought() -> None:
    """Two tasks of 16 GiB shared a machine on paper; they need two."""
    world = World([a_cpu_group()], finding(then=SMALLER))
    for name in ("first", "second", "third", "fourth"):
        world.submit(a_request(name, some(cpu=1, memory=16)))

    world.run(until=NOON + HOUR)

    assert len(world.began) == 4


def test_missing_devices_cost_one_slice_an_hour() -> None:
    """A driver that fails on every machine costs one slice an hour, not one each two minutes for
    each gang.
    """
    world = World([a_group(max_slices=9)], finding(then=NO_CHIPS))
    for number in range(3):
        world.submit(a_gang(f"train{number}"))

    world.run(until=NOON + 6 * HOUR)

    assert world.created <= 3 + 6
    assert not world.began


def test_one_broken_machine_does_not_stop_its_group() -> None:
    """The largest of the last sizes counts."""
    world = World([a_group()], finding(TPU_HOST, NO_CHIPS, then=TPU_HOST))
    for number in range(4):
        world.submit(a_gang(f"train{number}"), runs=3 * HOUR)

    world.run(until=NOON + HOUR)

    assert len(world.began) == 4
    assert world.created == 5


def test_a_driver_that_works_again_is_found() -> None:
    """After the pause the promise counts again, and the slice that keeps it ends the doubt."""
    world = World([a_group()], finding(NO_CHIPS, then=TPU_HOST))
    for number in range(4):
        world.submit(a_gang(f"train{number}"), runs=3 * HOUR)

    world.run(until=NOON + RETRY_DEVICES_AFTER + HOUR)

    assert len(world.began) == 4


def test_sizes_of_a_changed_group_are_forgotten() -> None:
    """The configuration now has another machine type. A reload of the same group changes only what
    another image could.
    """
    small, other = a_cpu_group(), a_group()
    world = World(
        [small, other], Cloud(finds=lambda group: SMALLER if group is small else NO_CHIPS)
    )
    world.submit(a_request("large", some(cpu=1, memory=32)))
    world.submit(a_gang("train"))
    world.run(until=NOON + timedelta(minutes=30))

    def sizes(*after: ScaleGroup) -> dict[str, int]:
        return {
            name: len(each.sizes)
            for name, each in reconfigured(world.memory, [small, other], after).groups.items()
        }

    assert sizes(small, other) == {"cpu": 1, "tpu": 0}
    assert sizes(small.model_copy(update={"machine_type": "n2-highmem-8"}), other) == {
        "cpu": 0,
        "tpu": 0,
    }


@pytest.mark.parametrize(("memory", "fits"), [(30, True), (32, False)])
def test_the_reserve_is_not_promised(memory: int, fits: bool) -> None:
    """A machine of 32 GiB has less for tasks, so a request for all of it is refused instead of
    buying a machine.
    """
    group = a_cpu_group(reserved_memory=some(memory=2).memory_bytes)

    assert bool(Catalog([group]).candidates(a_request("k", some(memory=memory)))) == fits
