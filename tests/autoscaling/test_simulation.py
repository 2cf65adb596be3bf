"""The autoscaler's decision over virtual days: whatever slices do, the limits hold, the work is
done, and the fleet grows quiet.

What must never happen after any decision (`tests.scaling_world`): more slices than allowed, a
request while a quota or a failure forbids it, a look ahead into the past, a slice asked for after
an idle one was given back although nobody wants anything new.
"""

from datetime import datetime, timedelta
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from iris.model.job.requests import Request
from iris.model.slice.provisioning import SliceFault
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.slice.scaling import Availability
from iris.model.slice.status import SliceState
from tests.builders import NOON, a_gang, a_request, at, demands, some
from tests.scaling_world import BRISK, A, B, C, Cloud, World, a_cpu_group, a_group
from tests.strategies import CHEAP, examples

HOUR = timedelta(hours=1)
#: A virtual day takes some tens of milliseconds.
DAYS = settings(CHEAP, max_examples=examples(40))


def all_done(world: World) -> bool:
    return not world.waiting and not world.live


def least(world: World) -> dict[str, int]:
    return {group.name: max(group.min_slices, group.buffer_slices) for group in world.groups}


def alive(world: World) -> dict[str, int]:
    return {
        group.name: sum(each.group == group.name for each in world.slices.values())
        for group in world.groups
    }


def a_day(random: Random) -> World:
    """Three groups with limits of all kinds, a cloud with bad hours, and work of several shapes."""

    def pace() -> dict[str, int]:
        low = random.randint(0, 1)
        return {
            "min_slices": low,
            "buffer_slices": random.randint(0, 1),
            "max_slices": random.randint(2, 4),
        }

    preferred = a_group(
        "preferred", zones=(A, B), priority=10, pace=BRISK, preemptible=True, **pace()
    )
    other = a_group("other", zones=(C,), priority=20, pace=BRISK, **pace())
    cpu = a_cpu_group("cpu", zones=(A, B), pace=BRISK, **pace())
    empty = {zone: random.choice([0, 0, 1, 3]) * HOUR for zone in (A, B, C)}
    quota = random.choice([0, 0, 2]) * HOUR
    fragile = random.choice([0, 0, 0.1, 0.4])

    def refuses(group: ScaleGroup, zone: str, now: datetime) -> SliceFault | None:
        if group is preferred and now < NOON + quota:
            return SliceFault.QUOTA
        return SliceFault.STOCK_OUT if now < NOON + empty[zone] else None

    def breaks(group: ScaleGroup) -> SliceFault | None:
        return (
            random.choice([SliceFault.BOOT_TIMEOUT, SliceFault.PREEMPTED])
            if random.random() < fragile
            else None
        )

    def takes_back(group: ScaleGroup) -> timedelta | None:
        minutes = random.choice([2, 7, 40, 300])
        return (
            timedelta(minutes=minutes) if group.preemptible and random.random() < fragile else None
        )

    world = World(
        [preferred, other, cpu], Cloud(refuses=refuses, breaks=breaks, takes_back=takes_back)
    )
    for i in range(random.randint(1, 20)):
        runs, after = (
            timedelta(minutes=random.choice([1, 10, 60])),
            timedelta(minutes=random.randint(0, 600)),
        )
        world.submit(some_work(random, f"w{i}"), runs, after)
    return world


def some_work(random: Random, key: str) -> Request:
    kind = random.randrange(5)
    if kind == 0:
        return a_gang(key, 8, groups=2)
    if kind == 1:
        return a_gang(
            key,
            constraints=random.choice([demands(f"zone = {B}"), demands("region = us-east1"), ()]),
        )
    if kind == 2:
        return a_request(key, some(cpu=random.choice([1, 3, 8]), memory=random.choice([1, 20])))
    return a_gang(key)


@DAYS
@given(st.integers(0, 2**32).map(Random))
def test_everything_is_served_and_the_fleet_becomes_quiet(random: Random) -> None:
    """Stock-outs, quotas, failures and preemptions delay work, they do not strand it; afterwards
    there is exactly the least that is configured, nothing more is planned, and no slice is
    unaccounted for.
    """
    world = a_day(random)

    world.run(until=NOON + timedelta(days=3))

    assert all_done(world)
    assert alive(world) == least(world)
    assert world.last.next_at is None
    assert world.created == world.deleted + len(world.slices)


@DAYS
@given(st.integers(0, 2**32).map(Random))
def test_the_autoscaler_sleeps_most_of_the_time(random: Random) -> None:
    """A decision that is due again at once, for ever, would burn the workflow's history; each has
    to wait for something.
    """
    world = a_day(random)

    world.run(until=NOON + timedelta(days=3))

    assert world.decisions < 40 + 15 * world.created + 12 * len(world.began)


def test_a_stock_out_of_seventy_minutes_ends_with_the_work_done_in_another_zone() -> None:
    """The original's users watched a group try the same zone for an hour while another had
    stock.
    """
    empty_until = NOON + timedelta(minutes=70)
    world = World(
        [a_group(zones=(A, B), max_slices=1)],
        Cloud(
            refuses=lambda group, zone, now: (
                SliceFault.STOCK_OUT if zone == A and now < empty_until else None
            )
        ),
    )
    world.submit(a_gang("train"))

    world.run(until=at(300))

    began, zones = world.began["task of train"]
    assert zones == {B}
    assert began < at(200)


def test_with_one_zone_the_work_waits_for_the_end_of_the_stock_out_and_one_longest_delay() -> None:
    """Delays that double without limit turn a stock-out of an hour into one of two."""
    group = a_group()
    world = World(
        [group],
        Cloud(
            refuses=lambda group, zone, now: (
                SliceFault.STOCK_OUT if now < NOON + timedelta(minutes=70) else None
            )
        ),
    )
    world.submit(a_gang("train"))

    world.run(until=NOON + timedelta(hours=3))

    began, _ = world.began["task of train"]
    assert began < NOON + timedelta(minutes=70) + group.pace.max_stockout_delay + timedelta(
        minutes=3
    )
    assert world.created < 15


def test_while_a_quota_is_used_up_the_next_group_does_the_work() -> None:
    """A quota is the platform's word for a project: waiting for it with free machines next door is
    waste.
    """
    world = World(
        [a_group("first", priority=1), a_group("second", priority=2)],
        Cloud(refuses=lambda group, zone, now: SliceFault.QUOTA if group.name == "first" else None),
    )
    world.submit(a_gang("train"))

    world.run(until=NOON + timedelta(minutes=10))

    began, _ = world.began["task of train"]
    assert began < NOON + timedelta(minutes=3)
    assert [action.group for action in world.memory.actions if action.what == "quota_exceeded"] == [
        "first"
    ]


def test_sixty_slices_taken_back_at_once_are_replaced_within_one_decision_and_the_rate() -> None:
    """A storm is one event, not sixty: no failure of theirs is counted against the group as long as
    they had lived.
    """
    group = a_group(max_slices=60, min_slices=60)
    world = World([group])
    world.run(until=NOON + timedelta(minutes=30))
    assert len(world.slices) == 60
    asked_before = world.created

    for slice_id in list(world.slices):
        world._fails(slice_id, SliceFault.PREEMPTED)
    world.run(until=world.now + timedelta(seconds=30))

    assert world.created - asked_before == group.pace.scale_ups_per_minute
    assert {verdict.availability for verdict in world.last.groups} <= {
        Availability.AVAILABLE,
        Availability.REQUESTING,
        Availability.COOLDOWN,
    }
    world.run(until=world.now + timedelta(minutes=30))
    assert len(world.slices) == 60


def test_a_reload_that_allows_less_gives_back_the_idle_first_and_stops_no_work() -> None:
    """Four slices, two at work; two are allowed from now on, and then none: who runs there is let
    run.
    """
    world = World([a_group()])
    for key, hours in (("short", 0.2), ("also short", 0.2), ("long", 3), ("also long", 3)):
        world.submit(a_gang(key), runs=hours * HOUR)
    world.run(until=NOON + timedelta(minutes=15))
    assert len(world.slices) == 4
    assert len(world.live) == 2

    world.groups = [a_group(max_slices=2)]
    world.run(until=world.now + timedelta(seconds=10))
    assert len(world.slices) == 2
    world.groups = []
    world.run(until=world.now + timedelta(hours=1))
    assert world.states() == {SliceState.DRAINING: 2}
    world.run()

    assert world.slices == {}
    assert world.began.keys() == {
        f"task of {key}" for key in ("short", "also short", "long", "also long")
    }
    assert all(began < NOON + timedelta(minutes=3) for began, _ in world.began.values())


def test_a_cold_cluster_starts_one_slice_for_one_gang_and_gives_it_back_after_the_idle_delay() -> (
    None
):
    """The shortest story there is: from nothing to nothing, and each step when it is due."""
    world = World([a_group()])
    world.submit(a_gang("train"), runs=timedelta(minutes=20))

    world.run()

    assert (world.created, world.deleted) == (1, 1)
    ready = world.cloud.answer + world.cloud.boot
    given_back = next(action for action in world.memory.actions if action.what == "scale_down")
    assert given_back.at == NOON + ready + timedelta(minutes=20) + timedelta(minutes=5)
