"""Random demand and random faults for hours: finally all gangs have run, and no machine is left."""

from collections.abc import Callable
from datetime import timedelta
from typing import Literal, get_args

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from iris.model.job.requests import Placement
from iris.model.slice.scale_groups import Pace
from iris.platforms.base import RateLimited, StockOut
from iris.usage.records import AttemptUse, SliceUse
from iris.workflows import policies
from tests.builders import some
from tests.fakes.platform.cloud import Verb
from tests.fakes.platform.machines import Shortage
from tests.fleet_harness import MINUTE, SECOND, FleetCluster, Forgetful
from tests.fleet_played import Tenant, TenantNotifier
from tests.harness import time_skipping_cluster
from tests.scaling_world import A, B, a_cpu_group, a_group
from tests.usage.made_uses import summed

pytestmark = pytest.mark.long

TICK = 3 * MINUTE
TICKS = 20
PACE = Pace(scale_up_delay=20 * SECOND)
GROUPS = (
    a_cpu_group(max_slices=3, zones=(A, B), pace=PACE),
    a_group(max_slices=2, zones=(A, B), hosts=2, pace=PACE),
)
Kind = Literal[
    "core",
    "whole",
    "gang",
    "preempt",
    "break_",
    "vanish",
    "stock_out",
    "outage",
    "lost",
    "limit",
    "slow",
    "no_store",
]


#: The platform answers each call at once, and knows each machine until it is deleted.
Plain = Literal["core", "whole", "gang", "preempt", "break_", "slow"]
#: The most time that passes on the clock of the cluster during a few calls, on a busy machine.
SKEW = 10 * SECOND


class Event(BaseModel):
    """What happens at one tick."""

    tick: int
    kind: Kind
    #: Which slice or zone; for how many ticks.
    number: int
    ticks: int


def events(*kinds: str) -> st.SearchStrategy[list[Event]]:
    """Demand, and events of these kinds."""
    each = st.builds(
        Event,
        tick=st.integers(0, TICKS - 1),
        kind=st.sampled_from(["core", "whole", "whole", "gang", "gang", *kinds]),
        number=st.integers(0, 5),
        ticks=st.integers(1, 5),
    )
    return st.lists(each, min_size=8, max_size=30)


class Play:
    """The cluster, the gangs that need hosts, and the faults."""

    def __init__(self, fleet: FleetCluster) -> None:
        self.fleet = fleet
        self.tick = 0
        #: With the tick after which each has had enough, counted from its placement.
        self.tenants: dict[str, tuple[Tenant, int]] = {}
        self.began: dict[str, int] = {}
        self.served = 0
        #: The placements of all gangs that have had hosts, by key.
        self.held: dict[str, Placement] = {}
        self.until: list[tuple[int, Callable[[], object]]] = []

    async def happens(self, event: Event) -> None:
        fleet, platform = self.fleet, self.fleet.platform
        alive = sorted(platform.alive)
        victim = alive[event.number % len(alive)] if alive else None
        zone = (A, B)[event.number % 2]
        match event.kind:
            case "core" | "whole":
                await self.comes(
                    await fleet.tenant(wants=some(cpu=1 if event.kind == "core" else 8)),
                    event.ticks,
                )
            case "gang":
                await self.comes(await fleet.tenant_gang(tasks=2), event.ticks)
            case "preempt" | "break_" | "vanish" if victim:
                await getattr(platform, event.kind)(victim)
            case "stock_out":
                now = await fleet.now()
                platform.shortages.append(
                    Shortage(zone=zone, since=now, until=now + event.ticks * TICK)
                )
                platform.fail_next(Verb.CREATE, StockOut("none left"))
            case "outage":
                platform.unreachable[zone] = "backend error"
                self.until.append(
                    (self.tick + event.ticks, lambda: platform.unreachable.pop(zone, None))
                )
            case "lost":
                platform.lose_next_reply(Verb.CREATE)
                platform.lose_next_reply(Verb.DELETE)
            case "limit":
                platform.fail_next(list(Verb)[event.number % 4], RateLimited("too many"), 3)
            case "no_store":
                fleet.uses.away = True
                self.until.append((self.tick + event.ticks, self._mount))
            case "slow":
                platform.boot_delay, platform.delete_delay = (
                    event.number * MINUTE,
                    event.ticks * MINUTE,
                )

    def _mount(self) -> None:
        self.fleet.uses.away = False

    async def comes(self, tenant: Tenant, ticks: int) -> None:
        self.tenants[tenant.request.key] = (tenant, ticks)

    async def go_on(self) -> None:
        """One tick passes. Gangs whose slice was lost request another; gangs that have run for
        their time leave.
        """
        self.tick += 1
        for end in [end for at, end in self.until if at == self.tick]:
            end()
        await self.fleet.later(TICK)
        there = {view.host.id for view in (await self.fleet.snapshot()).hosts}
        for key, (tenant, ticks) in list(self.tenants.items()):
            if tenant.placement is None:
                continue
            self.held[key] = tenant.placement
            began = self.began.setdefault(key, self.tick)
            lost = any(seat.host_id not in there for seat in tenant.placement.seats)
            if lost or self.tick >= began + ticks:
                await self.fleet.leaves(tenant)
                del self.tenants[key]
                self.served += not lost
            if lost:
                await self.comes(await self.fleet.tenant(tenant.request), ticks)

    def calm(self) -> None:
        """Nothing goes wrong any more."""
        platform = self.fleet.platform
        platform.shortages.clear()
        platform.unreachable.clear()
        self._mount()
        platform.boot_delay = platform.delete_delay = MINUTE


async def played(fleet: FleetCluster, events: list[Event]) -> Play:
    """Plays the events, and then lets all gangs run and all machines go."""
    fleet.hosts_work = False
    await fleet.scale(*GROUPS, observe_interval=MINUTE)
    play = Play(fleet)
    for tick in range(TICKS):
        for event in [event for event in events if event.tick == tick]:
            await play.happens(event)
        await play.go_on()
    play.calm()
    for _ in range(60):
        if not play.tenants and not fleet.platform.alive:
            break
        await play.go_on()
    await fleet.later(5 * MINUTE)
    return play


@settings(max_examples=3, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
@given(events(*get_args(Kind)))
async def test_after_hours_of_demand_and_faults_all_are_served_and_nothing_is_left(
    events: list[Event],
) -> None:
    """Four promises at once: all gangs get hosts, no machine is leaked or created twice, the limits
    hold, and each use has one record, although the store was away.
    """
    async with time_skipping_cluster(Forgetful, TenantNotifier) as fleet:
        play = await played(fleet, events)

        assert play.tenants == {}
        assert play.served == sum(event.kind in ("core", "whole", "gang") for event in events)
        assert fleet.platform.alive == []
        assert (await fleet.scaling()).slices == ()
        assert all(fleet.platform.most_alive[group.name] <= group.max_slices for group in GROUPS)
        await fleet.audit()
        await fleet.replay()
        assert await fleet.lister.running() == []
        # The records of slices include the lives in the platform's own log, as the audit has seen.
        assert set(fleet.platform.created) <= fleet.uses.slices.keys()
        attempts = [use for use in fleet.uses.stored if isinstance(use, AttemptUse)]
        assert {use.id for use in attempts} == play.held.keys()
        ends = {(use.id, use.ended_at) for use in attempts}
        assert len(ends) == len(play.held), "a use was stored with two ends"


@settings(max_examples=3, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
@given(events(*get_args(Plain)))
async def test_the_sums_of_the_records_are_those_of_the_platforms_own_log(
    events: list[Event],
) -> None:
    """With a control plane that forgets everything again and again, and machines that are lost.

    The sums of machines cannot be equal. No platform tells when a machine was gone: Iris asks, and
    learns that it is, at most `MAX_DELETE_CHECK` later. A record begins with the request of the
    slice, just before the call that creates it. So each record is a little longer than the life of
    the machines, never shorter, and the bound of the difference is that of the question. While a
    platform does not answer, there is no bound; the other test has those faults. What an attempt
    held is the scheduler's own, and exact.
    """
    async with time_skipping_cluster(Forgetful, TenantNotifier) as fleet:
        play = await played(fleet, events)
        await fleet.audit()

    # A record may be stored several times, always the same.
    slices = {use for use in fleet.uses.stored if isinstance(use, SliceUse)}
    lives = {use.id: fleet.platform.lived(use.id) for use in slices}
    assert sorted(use.id for use in slices) == sorted(fleet.platform.created)
    since, until = min(use.requested_at for use in slices), max(use.gone_at for use in slices)
    sums, hour = summed(*slices, since=since, until=until).slices, timedelta(hours=1)
    assert sums is not None
    truth = sum(use.hosts * (lives[use.id][-1] - lives[use.id][0]) / hour for use in slices)
    longer = sum(use.hosts * (policies.MAX_DELETE_CHECK + SKEW) / hour for use in slices)
    assert truth <= sums.host_hours <= truth + longer

    attempts = {use.id: use for use in fleet.uses.stored if isinstance(use, AttemptUse)}
    assert attempts.keys() == play.held.keys()
    assert {key: use.placed_at for key, use in attempts.items()} == {
        key: placement.placed_at for key, placement in play.held.items()
    }
    assert all(
        each.requested_at < use.placed_at <= use.ended_at <= each.gone_at
        for use in attempts.values()
        for each in slices
        if each.id in use.slices
    )
