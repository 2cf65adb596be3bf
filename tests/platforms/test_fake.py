"""The failures that a test can trigger in the fake cloud, and its audit log. Other tests rely on
both.
"""

import asyncio
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.slice.provisioning import DeleteResult, MachineState
from iris.platforms.base import (
    BadConfig,
    PlatformError,
    QuotaExceeded,
    RateLimited,
    StockOut,
    Unavailable,
)
from tests.builders import NOON, at
from tests.fakes.platform.cloud import FOREVER, SettableClock, Verb
from tests.fakes.platform.machines import EventKind, Shortage
from tests.fakes.platform.platform import CloudAccount, FakePlatform
from tests.platforms.worlds import a_group, wanted
from tests.strategies import CHEAP

ZONE = "west4-a"
MINUTE = timedelta(minutes=1)


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock(NOON)


@pytest.fixture
def fake(clock: SettableClock) -> FakePlatform:
    return FakePlatform(clock, "dev")


async def state_of(fake: FakePlatform, slice_id: str, zone: str = ZONE) -> MachineState | None:
    seen = await fake.describe_slice(slice_id, zone)
    return seen and seen.state


async def listed(fake: FakePlatform) -> list[str]:
    return [each.slice_id for each in (await fake.list_slices()).slices]


def events(fake: FakePlatform, what: EventKind) -> list[tuple[str, float]]:
    """To which slices it happened, and how many seconds after noon."""
    return [
        (event.slice_id, (event.at - NOON).total_seconds())
        for event in fake.audit
        if event.what is what
    ]


# -- Slowness
# --------------------------------------------------------------------------------------------------


async def test_machines_exist_after_the_boot_delay(
    fake: FakePlatform, clock: SettableClock
) -> None:
    """The delay of a slice overrides that of its group, its zone and the cloud; agents can run only
    where machines exist.
    """
    fake.boot_delay = timedelta(seconds=40)
    fake.boot_delays = {
        "slow": timedelta(seconds=70),
        "b": timedelta(seconds=60),
        "west4-b": timedelta(seconds=50),
    }
    await fake.create_slice(wanted("usual"))
    await fake.create_slice(wanted("in-zone", zone="west4-b"))
    await fake.create_slice(wanted("in-group", a_group("b"), zone="west4-b"))
    await fake.create_slice(wanted("slow", a_group("b")))

    came: dict[str, int] = {}
    for second in range(35, 80, 5):
        clock.now = at(second)
        for request, _ in fake.up(clock.now):
            came.setdefault(request.slice_id, second)
    assert came == {"usual": 40, "in-zone": 50, "in-group": 60, "slow": 70}


async def test_only_some_machines_of_a_slice_may_start(
    fake: FakePlatform, clock: SettableClock
) -> None:
    """The cloud reports the slice as ready all the same."""
    fake.partial["b"] = 3
    await fake.create_slice(wanted("half", a_group("b", hosts=4)))
    await fake.create_slice(wanted("whole", a_group("a", hosts=2)))

    up = [(request.slice_id, worker) for request, worker in fake.up(clock.now)]
    assert up == [("half", 0), ("half", 1), ("half", 2), ("whole", 0), ("whole", 1)]
    assert await state_of(fake, "half") is MachineState.ACTIVE


async def test_a_delete_takes_the_delete_delay(fake: FakePlatform, clock: SettableClock) -> None:
    """A repeated delete does not take longer; the audit log has the time of its end."""
    fake.delete_delay = MINUTE
    await fake.create_slice(wanted("one"))
    for second in (0, 30, 59):
        clock.now = at(second)
        assert await fake.delete_slice("one", ZONE) is DeleteResult.GOING
    assert (fake.alive, fake.deleted, fake.up(clock.now)) == (["one"], [], [])

    clock.now = at(90)
    assert await fake.delete_slice("one", ZONE) is DeleteResult.GONE
    assert (fake.alive, fake.deleted) == ([], ["one"])
    assert (events(fake, EventKind.DELETING), events(fake, EventKind.DELETED)) == (
        [("one", 0)],
        [("one", 60)],
    )


async def test_a_new_slice_may_be_missing_in_lists_for_a_while(
    fake: FakePlatform, clock: SettableClock
) -> None:
    """A list is a hint; describe shows the slice."""
    fake.list_lag = timedelta(seconds=10)
    await fake.create_slice(wanted("new"))

    assert (await listed(fake), await state_of(fake, "new")) == ([], MachineState.ACTIVE)
    clock.advance(timedelta(seconds=10))
    assert await listed(fake) == ["new"]


# -- Shortage
# --------------------------------------------------------------------------------------------------


async def test_a_zone_has_a_capacity_per_kind(fake: FakePlatform) -> None:
    """Preempted machines free capacity, broken ones do not."""
    fake.capacity[ZONE, "v5litepod-16"] = 2
    cpu = a_group("cpu", hosts=1, accelerator_variant="", machine_type="n2-standard-8")
    await fake.create_slice(wanted("one"))
    await fake.create_slice(wanted("two"))

    with pytest.raises(StockOut, match=f'no more capacity in the zone "{ZONE}"'):
        await fake.create_slice(wanted("three"))
    await fake.create_slice(wanted("elsewhere", zone="west4-b"))
    await fake.create_slice(wanted("of another kind", cpu))
    await fake.create_slice(wanted("two"))

    await fake.break_("one")
    with pytest.raises(StockOut):
        await fake.create_slice(wanted("three"))
    await fake.preempt("two")
    await fake.create_slice(wanted("three"))


async def test_a_zone_has_a_shortage_between_two_times(
    fake: FakePlatform, clock: SettableClock
) -> None:
    """Of one kind, or of all."""
    fake.shortages.append(Shortage(zone=ZONE, since=at(60), until=at(120)))
    fake.shortages.append(Shortage(zone=ZONE, since=at(0), until=at(10), kind="v4-8"))
    refused = []
    for second in (0, 59, 60, 119, 120):
        clock.now = at(second)
        try:
            await fake.create_slice(wanted(f"at-{second}"))
        except StockOut:
            refused.append(second)

    assert refused == [60, 119]


@pytest.mark.parametrize("scope", ["west4", "v5e-16"])
async def test_a_quota_is_of_a_region_or_a_group_and_dead_machines_count(
    fake: FakePlatform, scope: str
) -> None:
    """They count until they are deleted."""
    fake.quota[scope] = 2
    await fake.create_slice(wanted("one", zone="west4-a"))
    await fake.create_slice(wanted("two", zone="west4-b"))
    await fake.preempt("one")

    with pytest.raises(QuotaExceeded, match=f"Limit 2 in {scope}"):
        await fake.create_slice(wanted("three"))
    await fake.create_slice(wanted("another", a_group("b"), zone="east1-c"))

    await fake.delete_slice("one", ZONE)
    await fake.create_slice(wanted("three"))


async def test_a_refused_create_creates_nothing_and_is_logged(
    fake: FakePlatform, clock: SettableClock
) -> None:
    """With time and reason: tests check that Iris requests nothing while a quota is used up."""
    fake.quota["west4"] = 0
    clock.now = at(5)
    with pytest.raises(QuotaExceeded):
        await fake.create_slice(wanted("one"))

    assert (fake.created, fake.alive, await state_of(fake, "one")) == ([], [], None)
    assert events(fake, EventKind.NOT_CREATED) == [("one", 5)]
    assert (
        fake.audit[-1].reason == "QuotaExceeded: Quota 'v5litepod-16' exhausted. Limit 0 in west4"
    )


async def test_calls_above_the_rate_limit_are_refused_and_do_not_count(
    fake: FakePlatform, clock: SettableClock
) -> None:
    """Otherwise a storm of retries would never end."""
    fake.calls_per_minute = 2
    await fake.create_slice(wanted("one"))
    clock.now = at(30)
    await fake.list_slices()
    for second in (30, 45, 59):
        clock.now = at(second)
        with pytest.raises(RateLimited):
            await fake.delete_slice("one", ZONE)

    clock.now = at(60)
    assert await fake.delete_slice("one", ZONE) is DeleteResult.GONE
    with pytest.raises(RateLimited):
        await fake.list_slices()


# -- Silence
# --------------------------------------------------------------------------------------------------


async def test_a_create_takes_effect_although_its_reply_is_lost(fake: FakePlatform) -> None:
    """The same call finds the slice."""
    fake.lose_next_reply(Verb.CREATE)
    with pytest.raises(Unavailable):
        await fake.create_slice(wanted("one"))
    assert (fake.created, fake.alive) == (["one"], ["one"])

    await fake.create_slice(wanted("one"))
    assert fake.created == ["one"]


async def test_a_delete_takes_effect_although_its_reply_is_lost(fake: FakePlatform) -> None:
    """The next delete returns GONE."""
    await fake.create_slice(wanted("one"))
    await fake.create_slice(wanted("two"))
    fake.lose_next_reply(Verb.DELETE, times=2)
    for slice_id in ("one", "two"):
        with pytest.raises(Unavailable):
            await fake.delete_slice(slice_id, ZONE)

    assert (fake.alive, fake.deleted) == ([], ["one", "two"])
    assert await fake.delete_slice("one", ZONE) is DeleteResult.GONE


async def test_a_zone_that_does_not_answer_is_unknown_and_not_empty(fake: FakePlatform) -> None:
    """Its machines continue to run."""
    await fake.create_slice(wanted("here", zone="west4-a"))
    await fake.create_slice(wanted("there", zone="west4-b"))
    fake.unreachable["west4-b"] = "503 backend error"

    listing = await fake.list_slices()
    assert ([each.slice_id for each in listing.slices], listing.unreachable) == (
        ["here"],
        {"west4-b": "503 backend error"},
    )
    for call in (
        fake.create_slice(wanted("new", zone="west4-b")),
        fake.describe_slice("there", "west4-b"),
        fake.delete_slice("there", "west4-b"),
    ):
        with pytest.raises(Unavailable, match="503 backend error"):
            await call

    del fake.unreachable["west4-b"]
    assert await listed(fake) == ["here", "there"]


@pytest.mark.parametrize("verb", Verb)
async def test_any_call_can_fail_without_effect(fake: FakePlatform, verb: Verb) -> None:
    """As often as the test sets, and only calls of that verb."""
    await fake.create_slice(wanted("there"))
    calls = {
        Verb.CREATE: lambda: fake.create_slice(wanted("new")),
        Verb.DESCRIBE: lambda: fake.describe_slice("there", ZONE),
        Verb.LIST: fake.list_slices,
        Verb.DELETE: lambda: fake.delete_slice("there", ZONE),
    }
    fake.fail_next(verb, BadConfig("no rights"), times=2)
    for _ in range(2):
        with pytest.raises(BadConfig, match="no rights"):
            await calls[verb]()

    assert (fake.created, fake.deleted) == (["there"], [])
    for call in calls.values():
        await call()


# -- Loss
# --------------------------------------------------------------------------------------------------


async def test_preempted_machines_are_visible_until_their_deletion(
    fake: FakePlatform, clock: SettableClock
) -> None:
    """Several at once, also machines that are still being created."""
    fake.boot_delays["young"] = FOREVER
    for slice_id in ("old", "young", "lucky"):
        await fake.create_slice(wanted(slice_id))
    clock.now = at(7)
    await fake.preempt("old", "young")

    assert [await state_of(fake, each) for each in ("old", "young")] == [MachineState.PREEMPTED] * 2
    assert await listed(fake) == ["old", "young", "lucky"]
    assert {request.slice_id for request, _ in fake.up(clock.now)} == {"lucky"}
    assert events(fake, EventKind.PREEMPTED) == [("old", 7), ("young", 7)]
    assert await fake.delete_slice("old", ZONE) is DeleteResult.GONE


async def test_broken_machines_have_a_reason_and_vanished_ones_have_none(
    fake: FakePlatform,
) -> None:
    """The audit log has both, and matches the machines."""
    await fake.create_slice(wanted("broken"))
    await fake.create_slice(wanted("lost"))
    await fake.break_("broken", reason="host error")
    await fake.vanish("lost")

    seen = await fake.describe_slice("broken", ZONE)
    assert seen is not None
    assert (seen.state, seen.reason) == (MachineState.FAILED, "host error")
    assert (await state_of(fake, "lost"), await listed(fake)) == (None, ["broken"])
    assert await fake.delete_slice("lost", ZONE) is DeleteResult.GONE
    assert (fake.created, fake.deleted, fake.alive) == (["broken", "lost"], [], ["broken"])
    fake.check()


# -- What is not ours
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cluster", "manual"), [("other", False), ("", False), ("dev", True)])
async def test_a_cluster_sees_only_its_own_unmarked_slices(
    fake: FakePlatform, cluster: str, manual: bool
) -> None:
    """It neither lists nor deletes others, but their ids are taken."""
    await fake.plant(wanted("theirs", cluster=cluster), manual=manual)

    assert (await listed(fake), await state_of(fake, "theirs")) == ([], None)
    assert await fake.delete_slice("theirs", ZONE) is DeleteResult.LEFT
    with pytest.raises(BadConfig, match="theirs already exists"):
        await fake.create_slice(wanted("theirs"))
    assert (fake.alive, fake.created, fake.deleted) == (["theirs"], [], [])
    fake.check()


async def test_leftovers_of_the_cluster_can_be_deleted(fake: FakePlatform) -> None:
    """Unless a person marked them as manual."""
    await fake.plant(wanted("orphan"))
    await fake.plant(wanted("pet"))
    fake.mark_manual("pet")

    assert await listed(fake) == ["orphan"]
    assert await fake.delete_slice("orphan", ZONE) is DeleteResult.GONE
    assert fake.alive == ["pet"]
    fake.check()


async def test_a_create_for_another_cluster_is_refused(fake: FakePlatform) -> None:
    """The caller could neither see nor delete the slice."""
    with pytest.raises(BadConfig, match="cluster 'other': this platform serves cluster 'dev'"):
        await fake.create_slice(wanted("theirs", cluster="other"))


# -- Books
# --------------------------------------------------------------------------------------------------


async def test_the_highest_number_of_live_slices_is_recorded(fake: FakePlatform) -> None:
    """By group. Preempted, broken and deleted slices do not count: their replacement may be
    requested before they are gone.
    """
    fake.delete_delay = MINUTE
    for slice_id in ("one", "two", "three"):
        await fake.create_slice(wanted(slice_id))
    await fake.create_slice(wanted("alone", a_group("b")))
    await fake.preempt("one")
    await fake.break_("two")
    await fake.delete_slice("three", ZONE)
    for slice_id in ("four", "five"):
        await fake.create_slice(wanted(slice_id))

    assert fake.most_alive == {"v5e-16": 3, "b": 1}


def test_check_detects_a_mismatch(fake: FakePlatform) -> None:
    """A check that accepts everything would also pass."""
    asyncio.run(fake.create_slice(wanted("one")))
    fake.machines.clear()

    with pytest.raises(AssertionError, match="one"):
        fake.check()


@CHEAP
@given(st.integers(0, 2**32).map(Random))
def test_the_audit_log_matches_the_machines_after_any_events(dice: Random) -> None:
    """Every created slice is deleted, vanished or present, and other owners' slices are present."""
    asyncio.run(_live_through_anything(dice))


async def _live_through_anything(dice: Random) -> None:
    clock = SettableClock(NOON)
    fake = FakePlatform(clock, "dev")
    other = CloudAccount(fake, "other")
    await other.create_slice(wanted("other-1", cluster="other"))
    fake.delete_delay, fake.boot_delay = (
        dice.choice([timedelta(0), MINUTE]),
        dice.choice([timedelta(0), MINUTE]),
    )
    fake.capacity[ZONE, "v5litepod-16"], fake.quota["west4"] = 4, 6
    for _ in range(40):
        clock.advance(timedelta(seconds=dice.choice([0, 1, 30])))
        slice_id = f"dev-{dice.randrange(8)}"
        zone = dice.choice(["west4-a", "west4-b"])
        if dice.random() < 0.2:
            fake.lose_next_reply(dice.choice([Verb.CREATE, Verb.DELETE]))
        try:
            match dice.randrange(6):
                case 0 | 1 | 2:
                    await fake.create_slice(wanted(slice_id, zone=zone))
                case 3 | 4:
                    await fake.delete_slice(dice.choice([slice_id, "other-1"]), zone)
                case 5 if slice_id in fake.machines:
                    await dice.choice([fake.preempt, fake.vanish, fake.break_])(slice_id)
        except PlatformError:
            pass
        fake.check()
        seen = {each.slice_id for each in (await fake.list_slices()).slices}
        assert seen | {"other-1"} == set(fake.alive)
        assert {request.slice_id for request, _ in fake.up(clock.now)} <= set(fake.alive)
        assert fake.most_alive["v5e-16"] <= 6
