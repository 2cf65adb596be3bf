"""How the fake cloud misbehaves when it is told to, and that its books are right whatever happens: other tests rely on both."""

import asyncio
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.provisioning import DeleteResult, MachineState
from iris.platforms.base import BadConfig, PlatformError, QuotaExceeded, RateLimited, StockOut, Unavailable
from iris.platforms.fake.cloud import FOREVER, SettableClock, Verb
from iris.platforms.fake.machines import EventKind, Shortage
from iris.platforms.fake.platform import CloudAccount, FakePlatform
from tests.builders import NOON, at
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
    return [(event.slice_id, (event.at - NOON).total_seconds()) for event in fake.audit if event.what is what]


# -- Slowness ------------------------------------------------------------------------------------------------------------------


async def test_machines_boot_for_as_long_as_it_says(fake: FakePlatform, clock: SettableClock) -> None:
    """For the slice itself before its group before its zone before all; and agents can be where machines are, no sooner."""
    fake.boot_delay = timedelta(seconds=40)
    fake.boot_delays = {"slow": timedelta(seconds=70), "b": timedelta(seconds=60), "west4-b": timedelta(seconds=50)}
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


async def test_only_some_of_a_slices_machines_may_come_up(fake: FakePlatform, clock: SettableClock) -> None:
    """The cloud calls that ready all the same."""
    fake.partial["b"] = 3
    await fake.create_slice(wanted("half", a_group("b", hosts=4)))
    await fake.create_slice(wanted("whole", a_group("a", hosts=2)))

    up = [(request.slice_id, worker) for request, worker in fake.up(clock.now)]
    assert up == [("half", 0), ("half", 1), ("half", 2), ("whole", 0), ("whole", 1)]
    assert await state_of(fake, "half") is MachineState.ACTIVE


async def test_a_delete_takes_as_long_as_it_says(fake: FakePlatform, clock: SettableClock) -> None:
    """Asking again does not make it longer; and it is in the books for the time at which it was over."""
    fake.delete_delay = MINUTE
    await fake.create_slice(wanted("one"))
    for second in (0, 30, 59):
        clock.now = at(second)
        assert await fake.delete_slice("one", ZONE) is DeleteResult.GOING
    assert (fake.alive, fake.deleted, fake.up(clock.now)) == (["one"], [], [])

    clock.now = at(90)
    assert await fake.delete_slice("one", ZONE) is DeleteResult.GONE
    assert (fake.alive, fake.deleted) == ([], ["one"])
    assert (events(fake, EventKind.DELETING), events(fake, EventKind.DELETED)) == ([("one", 0)], [("one", 60)])


async def test_a_new_slice_may_be_missing_in_lists_for_a_while(fake: FakePlatform, clock: SettableClock) -> None:
    """A list is a hint; whoever asks for the slice itself is told."""
    fake.list_lag = timedelta(seconds=10)
    await fake.create_slice(wanted("new"))

    assert (await listed(fake), await state_of(fake, "new")) == ([], MachineState.ACTIVE)
    clock.advance(timedelta(seconds=10))
    assert await listed(fake) == ["new"]


# -- Shortage ------------------------------------------------------------------------------------------------------------------


async def test_a_zone_holds_so_many_of_a_kind(fake: FakePlatform) -> None:
    """Of this kind, in this zone; what is preempted has made room, what is broken has not."""
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


async def test_a_zone_runs_out_from_one_time_to_another(fake: FakePlatform, clock: SettableClock) -> None:
    """Of one kind, or of everything."""
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
async def test_a_quota_is_of_a_region_or_a_group_and_dead_machines_count(fake: FakePlatform, scope: str) -> None:
    """They hold it until somebody deletes them."""
    fake.quota[scope] = 2
    await fake.create_slice(wanted("one", zone="west4-a"))
    await fake.create_slice(wanted("two", zone="west4-b"))
    await fake.preempt("one")

    with pytest.raises(QuotaExceeded, match=f"Limit 2 in {scope}"):
        await fake.create_slice(wanted("three"))
    await fake.create_slice(wanted("another", a_group("b"), zone="east1-c"))

    await fake.delete_slice("one", ZONE)
    await fake.create_slice(wanted("three"))


async def test_a_create_that_is_refused_makes_nothing_and_is_in_the_books(fake: FakePlatform, clock: SettableClock) -> None:
    """With its time and its reason: that nothing is asked while a quota is used up can be seen by this."""
    fake.quota["west4"] = 0
    clock.now = at(5)
    with pytest.raises(QuotaExceeded):
        await fake.create_slice(wanted("one"))

    assert (fake.created, fake.alive, await state_of(fake, "one")) == ([], [], None)
    assert events(fake, EventKind.NOT_CREATED) == [("one", 5)]
    assert fake.audit[-1].reason == "QuotaExceeded: Quota 'v5litepod-16' exhausted. Limit 0 in west4"


async def test_more_calls_than_a_minute_has_are_turned_away_and_do_not_count(fake: FakePlatform, clock: SettableClock) -> None:
    """A storm of tries would never end otherwise."""
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


# -- Silence -------------------------------------------------------------------------------------------------------------------


async def test_a_create_whose_reply_is_lost_has_been_carried_out(fake: FakePlatform) -> None:
    """And is found by the same call."""
    fake.lose_next_reply(Verb.CREATE)
    with pytest.raises(Unavailable):
        await fake.create_slice(wanted("one"))
    assert (fake.created, fake.alive) == (["one"], ["one"])

    await fake.create_slice(wanted("one"))
    assert fake.created == ["one"]


async def test_a_delete_whose_reply_is_lost_has_been_carried_out(fake: FakePlatform) -> None:
    """As often as it was said; the next one is told that nothing is left."""
    await fake.create_slice(wanted("one"))
    await fake.create_slice(wanted("two"))
    fake.lose_next_reply(Verb.DELETE, times=2)
    for slice_id in ("one", "two"):
        with pytest.raises(Unavailable):
            await fake.delete_slice(slice_id, ZONE)

    assert (fake.alive, fake.deleted) == ([], ["one", "two"])
    assert await fake.delete_slice("one", ZONE) is DeleteResult.GONE


async def test_a_zone_that_does_not_answer_is_unknown_and_not_empty(fake: FakePlatform) -> None:
    """Its machines run on meanwhile."""
    await fake.create_slice(wanted("here", zone="west4-a"))
    await fake.create_slice(wanted("there", zone="west4-b"))
    fake.unreachable["west4-b"] = "503 backend error"

    listing = await fake.list_slices()
    assert ([each.slice_id for each in listing.slices], listing.unreachable) == (["here"], {"west4-b": "503 backend error"})
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
async def test_any_call_can_be_made_to_fail_before_it_does_anything(fake: FakePlatform, verb: Verb) -> None:
    """So often, and only calls of that verb."""
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


# -- Loss ----------------------------------------------------------------------------------------------------------------------


async def test_preempted_machines_are_seen_until_they_are_deleted(fake: FakePlatform, clock: SettableClock) -> None:
    """All at once, if need be; also some that are still being made."""
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


async def test_what_breaks_says_why_and_what_vanishes_says_nothing(fake: FakePlatform) -> None:
    """Both are in the books, and the books balance."""
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


# -- What is not ours ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cluster", "manual"), [("other", False), ("", False), ("dev", True)])
async def test_what_is_anothers_nobodys_or_peoples_own_is_not_there_for_a_cluster(
    fake: FakePlatform, cluster: str, manual: bool
) -> None:
    """It is neither listed nor deleted, and its name is taken."""
    await fake.plant(wanted("theirs", cluster=cluster), manual=manual)

    assert (await listed(fake), await state_of(fake, "theirs")) == ([], None)
    assert await fake.delete_slice("theirs", ZONE) is DeleteResult.GONE
    with pytest.raises(BadConfig, match="theirs already exists"):
        await fake.create_slice(wanted("theirs"))
    assert (fake.alive, fake.created, fake.deleted) == (["theirs"], [], [])
    fake.check()


async def test_what_was_left_behind_under_this_clusters_name_can_be_deleted(fake: FakePlatform) -> None:
    """By whoever sweeps up; unless people have said that it is theirs."""
    await fake.plant(wanted("orphan"))
    await fake.plant(wanted("pet"))
    fake.mark_manual("pet")

    assert await listed(fake) == ["orphan"]
    assert await fake.delete_slice("orphan", ZONE) is DeleteResult.GONE
    assert fake.alive == ["pet"]
    fake.check()


async def test_a_control_plane_that_asks_for_another_clusters_slice_is_refused(fake: FakePlatform) -> None:
    """It could neither see nor delete what it was given."""
    with pytest.raises(BadConfig, match="cluster 'other': this platform serves cluster 'dev'"):
        await fake.create_slice(wanted("theirs", cluster="other"))


# -- Books ---------------------------------------------------------------------------------------------------------------------


async def test_the_most_that_lived_at_once_is_remembered(fake: FakePlatform) -> None:
    """By group; what was taken, broke or goes does not count: its replacement may be asked for before it is gone."""
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


def test_books_that_do_not_balance_are_noticed(fake: FakePlatform) -> None:
    """A check that lets everything pass would look just as green."""
    asyncio.run(fake.create_slice(wanted("one")))
    fake.machines.clear()

    with pytest.raises(AssertionError, match="one"):
        fake.check()


@CHEAP
@given(st.integers(0, 2**32).map(Random))
def test_the_books_balance_whatever_happens(dice: Random) -> None:
    """Whatever is done, in whatever order: what was made is deleted, vanished or there, and what is another's is there."""
    asyncio.run(_live_through_anything(dice))


async def _live_through_anything(dice: Random) -> None:
    clock = SettableClock(NOON)
    fake = FakePlatform(clock, "dev")
    other = CloudAccount(fake, "other")
    await other.create_slice(wanted("other-1", cluster="other"))
    fake.delete_delay, fake.boot_delay = dice.choice([timedelta(0), MINUTE]), dice.choice([timedelta(0), MINUTE])
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
