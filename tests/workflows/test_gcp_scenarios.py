"""The nasty scenarios of Google Cloud, by number, as far as workflows decide them: real slices and a real autoscaler over the
real platform and a fake Google. What the platform alone decides is in `tests/platforms/test_gcp_scenarios.py`.

After each: nobody looks after what is not there, and everything that is there is looked after.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest

from iris.jobs import TaskOutcome
from iris.machines import SliceFault, SliceRequest
from iris.scale_groups import ScaleGroup
from iris.slices import SliceState, SliceStatus
from iris.states import JobState
from iris.workflows import policies
from iris.workflows.messages import RunTask
from tests.builders import CHIPS
from tests.fakes.google.client import FakeGoogle
from tests.fleet_harness import EAGER, SECOND
from tests.fleet_played import TenantCouriers
from tests.harness import dev_server_cluster, hangs, in_turn, succeeds
from tests.platforms.gcp_requests import tpu_group
from tests.workflows.google_cluster import GoogleCluster

pytestmark = pytest.mark.long

S = SliceState
A, B = "europe-west4-b", "europe-west4-a"
QUICK = EAGER.model_copy(
    update={
        "scale_down_delay": 60 * SECOND,
        "stockout_delay": SECOND,
        "max_stockout_delay": 4 * SECOND,
        "backoff": SECOND,
        "max_backoff": 8 * SECOND,
        "init_timeout": 30 * SECOND,
        "boot_timeout": 30 * SECOND,
    }
)
LOOKS: Any = {"observe_interval": SECOND / 5, "evaluation_interval": SECOND / 5}


def a_group(**changes: Any) -> ScaleGroup:
    """Spot slices of four hosts."""
    return tpu_group(**{"name": "tpu", "zones": (A,), "pace": QUICK, "max_slices": 4} | changes)


@pytest.fixture(scope="module")
def google() -> Iterator[FakeGoogle]:
    """One for all: each test has a project of its own."""
    with FakeGoogle() as google:
        yield google


@pytest.fixture
async def fleet(google: FakeGoogle, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GoogleCluster]:
    """On a server whose time passes as it does; so times are shorter."""
    for name in ("DELETE_LOOK", "MOST_DELETE_LOOK", "DRAIN_LOOK", "MOST_DRAIN_LOOK", "EVALUATE_EVERY"):
        monkeypatch.setattr(policies, name, SECOND / 10)
    google.clear()
    google.boot_time(0.3)
    google.delete_time(0.1)
    async with dev_server_cluster(kind=partial(GoogleCluster, google=google), couriers=TenantCouriers) as fleet:
        yield fleet
        google.clear()
        await fleet.audit()


async def first_slice(fleet: GoogleCluster, *states: SliceState) -> str:
    """The id of the first slice that is in one of these states."""

    async def there() -> bool:
        return bool(await fleet.in_state(*states))

    await fleet.until(there)
    return (await fleet.in_state(*states))[0]


async def ended(fleet: GoogleCluster, slice_id: str, fault: SliceFault) -> SliceStatus:
    """Its last word: of this it died, and nothing is left of it."""
    await fleet.until(lambda: fleet.is_in(slice_id, S.DELETED))
    shown = await fleet.shown(slice_id)

    assert shown.facts is not None
    assert shown.facts.fault is fault
    assert slice_id not in fleet.platform.alive
    return shown


async def test_scenario_03_a_control_plane_that_was_away_during_a_creation_goes_on(
    fleet: GoogleCluster, google: FakeGoogle
) -> None:
    """Nobody asked for a second slice meanwhile, and the first is used."""
    google.boot_time(1)
    await fleet.scale(a_group(min_slices=1), **LOOKS)
    slice_id = await first_slice(fleet, S.PROVISIONING)
    await fleet.dies()
    await asyncio.sleep(2)  # it comes up meanwhile
    await fleet.starts_again()
    await fleet.until(lambda: fleet.has(1))

    assert await fleet.in_state() == [slice_id]
    assert fleet.platform.created == [slice_id]


async def test_scenario_04_a_slice_is_ready_though_its_operation_never_ends(fleet: GoogleCluster, google: FakeGoogle) -> None:
    """The original deleted live slices for this."""
    google.operation("stuck")
    await fleet.scale(a_group(min_slices=1), **LOOKS)
    await fleet.until(lambda: fleet.has(1))

    assert len(fleet.platform.created) == 1


async def test_scenario_06_a_stock_out_that_comes_late_sends_those_who_wait_to_the_next_zone(
    fleet: GoogleCluster, google: FakeGoogle
) -> None:
    """At once, and for as long as the zone is out."""
    google.capacity(A, "v5litepod-16", 0, project=fleet.platform.project)
    pace = QUICK.model_copy(update={"stockout_delay": 600 * SECOND, "max_stockout_delay": 600 * SECOND})
    await fleet.scale(a_group(zones=(A, B), pace=pace), **LOOKS)
    tenant = await fleet.tenant_gang(wants=CHIPS)
    await fleet.until(lambda: tenant.placement)
    refused, made = fleet.platform.created

    shown = await ended(fleet, refused, SliceFault.STOCK_OUT)
    assert shown.reason.startswith(f"{A} is out")
    assert "There is no more capacity" in shown.reason
    assert (tenant.slices, (await fleet.shown(made)).facts.zone) == ({made}, B)  # type: ignore[union-attr]


async def test_scenario_07_a_quota_is_shown_by_its_name(fleet: GoogleCluster, google: FakeGoogle) -> None:
    """Waiting does not help; somebody has to ask for more, and needs to know of what."""
    google.quota("v5litepod", "spot", "europe-west4", 0, project=fleet.platform.project)
    await fleet.scale(a_group(zones=(A, B)), **LOOKS)
    await fleet.tenant_gang(wants=CHIPS)

    async def told() -> bool:
        return any("TPUV5sPreemptibleLitepod" in each.reason for each in (await fleet.scaling()).actions)

    await fleet.until(told)
    assert fleet.platform.created == []


async def test_scenario_08_a_stock_out_everywhere_is_asked_about_ever_less_often(
    fleet: GoogleCluster, google: FakeGoogle
) -> None:
    """And not at all once nobody wants it any more."""
    google.capacity("*", "v5litepod-16", 0, project=fleet.platform.project)
    await fleet.scale(a_group(zones=(A, B)), **LOOKS)
    tenant = await fleet.tenant_gang(wants=CHIPS)
    await fleet.until(lambda: len(fleet.platform.created) >= 2)
    await asyncio.sleep(6)
    asked = len(fleet.platform.created)
    await fleet.leaves(tenant)
    await fleet.until(lambda: not fleet.platform.alive)
    after = len(fleet.platform.created)
    await asyncio.sleep(5)

    assert asked <= 12
    assert len(fleet.platform.created) == after


async def test_scenario_09_and_10_taken_back_before_it_was_whole_is_replaced(fleet: GoogleCluster, google: FakeGoogle) -> None:
    """Half of the agents were there already: nothing was given to them, and nothing is left of them."""
    half = True
    fleet.platform.agent_lives = lambda slice_id, worker: not half or worker < 2
    await fleet.scale(a_group(min_slices=1), **LOOKS)
    slice_id = await first_slice(fleet, S.BOOTSTRAPPING)

    async def two() -> bool:
        return len((await fleet.shown(slice_id)).hosts) == 2

    await fleet.until(two)
    assert (await fleet.snapshot()).total_hosts == 0
    half = False
    google.preempt(slice_id, notice=0)
    await ended(fleet, slice_id, SliceFault.PREEMPTED)
    await fleet.until(lambda: fleet.has(1))
    assert slice_id not in await fleet.in_state()


@pytest.mark.parametrize("vanishes", [False, True])
async def test_scenario_11_and_12_a_gang_whose_slice_is_taken_back_runs_again_on_another(
    fleet: GoogleCluster, google: FakeGoogle, monkeypatch: pytest.MonkeyPatch, vanishes: bool
) -> None:
    """Whether the node says so or is just gone; and none of the user's own retries is used up."""
    monkeypatch.setattr(policies, "HEARTBEAT", 3 * SECOND)  # so long a dead agent's attempt is waited for
    begun: set[int] = set()

    async def first(task: RunTask) -> TaskOutcome:
        begun.add(task.index)
        return await hangs(task)

    fleet.programs["tpu"] = in_turn(first, succeeds)
    await fleet.scale(a_group(), **LOOKS)
    job = await fleet.gang(tasks=4, resources=CHIPS, max_retries_failure=0)
    slice_id = await first_slice(fleet, S.READY)

    await fleet.until(lambda: len(begun) == 4)
    if vanishes:
        google.node(slice_id, vanish=True)
    else:
        google.preempt(slice_id, notice=0)
    await ended(fleet, slice_id, SliceFault.VANISHED if vanishes else SliceFault.PREEMPTED)
    assert (await fleet.end(job)).state is JobState.SUCCEEDED
    assert len(fleet.platform.created) == 2


async def test_scenario_14_a_slice_that_does_not_go_away_is_asked_for_until_it_does(
    fleet: GoogleCluster, google: FakeGoogle
) -> None:
    """Its group has no room for another as long as it is there."""
    await fleet.scale(a_group(min_slices=1, max_slices=1), **LOOKS)
    slice_id = await first_slice(fleet, S.READY)
    google.delete_time(None)
    google.preempt(slice_id, notice=0)
    await fleet.until(lambda: fleet.is_in(slice_id, S.DELETING))
    await asyncio.sleep(2)
    assert fleet.platform.alive == [slice_id]
    google.node(slice_id, vanish=True)
    google.delete_time(0.1)

    await ended(fleet, slice_id, SliceFault.PREEMPTED)
    await fleet.until(lambda: fleet.has(1))


async def test_scenario_16_a_slice_with_three_of_four_agents_is_given_back_whole(fleet: GoogleCluster) -> None:
    """Three of four hosts of a slice cannot compute; which one was missing is told."""
    fleet.platform.agent_lives = lambda slice_id, worker: worker != 3
    pace = QUICK.model_copy(update={"init_timeout": 2 * SECOND})
    await fleet.scale(a_group(min_slices=1, max_slices=1, pace=pace), **LOOKS)
    slice_id = await first_slice(fleet, S.BOOTSTRAPPING)

    shown = await ended(fleet, slice_id, SliceFault.INIT_TIMEOUT)
    assert shown.reason == "3 of 4 agents have reported within 2s"


async def test_scenario_17_a_group_whose_agents_never_come_is_made_ever_more_rarely(fleet: GoogleCluster) -> None:
    """A wrong image would otherwise buy machines all night."""
    fleet.platform.agent_lives = lambda slice_id, worker: False
    pace = QUICK.model_copy(update={"init_timeout": SECOND, "backoff": 2 * SECOND, "max_backoff": 60 * SECOND})
    await fleet.scale(a_group(min_slices=1, max_slices=1, pace=pace), **LOOKS)

    async def told() -> bool:
        return any("0 of 4 agents have reported" in each.why for each in (await fleet.scaling()).groups)

    await fleet.until(told)
    await asyncio.sleep(10)
    assert 2 <= len(fleet.platform.created) <= 4


async def test_scenario_18_an_agent_with_another_slice_s_token_is_not_let_in(fleet: GoogleCluster) -> None:
    """It is of an earlier life of the machine, or of another cluster."""
    fleet.platform.agent_lives = lambda slice_id, worker: False
    await fleet.scale(a_group(min_slices=1), **LOOKS)
    slice_id = await first_slice(fleet, S.BOOTSTRAPPING)
    request: SliceRequest = fleet.platform.machines[slice_id].request
    host = fleet.host(request)
    await fleet.agent_reports(host, "of somebody else")
    shown = await fleet.shown(slice_id)

    assert (shown.hosts, shown.refused) == ((), (host.id,))
    assert (await fleet.snapshot()).total_hosts == 0


async def test_scenario_20_a_zone_that_is_down_keeps_its_slices(fleet: GoogleCluster, google: FakeGoogle) -> None:
    """Their agents report: nothing else is known, and nothing is done."""
    await fleet.scale(a_group(min_slices=1), **LOOKS)
    slice_id = await first_slice(fleet, S.READY)
    google.zone_down(A)

    async def known() -> bool:
        return A in (await fleet.scaling()).unreachable

    await fleet.until(known)
    await asyncio.sleep(2)
    assert await fleet.in_state() == [slice_id]
    google.zone_down(A, False)


async def test_scenario_22_a_slice_that_nobody_looks_after_is_adopted_and_used(fleet: GoogleCluster) -> None:
    """Its control plane died before it wrote anything down; its agents have the token."""
    group = a_group(max_slices=1)
    orphan = SliceRequest(slice_id="iris-tpu-orphan", cluster="dev", zone=A, token="t1", group=group)
    await fleet.platform.create_slice(orphan)
    await fleet.scale(group, **LOOKS)
    await fleet.until(lambda: fleet.has(1))
    tenant = await fleet.tenant_gang(wants=CHIPS)
    await fleet.until(lambda: tenant.placement)

    assert tenant.slices == {"iris-tpu-orphan"}
    assert fleet.platform.created == ["iris-tpu-orphan"]
