"""Hours of random faults at Google and of the control plane: in the end all gangs have run, every
created machine is deleted, and machines of others are unchanged.

A minute of Google's is a second here, and all timeouts for Google are shorter accordingly.
"""

import asyncio
import contextlib
import os
import random
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from temporalio.common import RetryPolicy
from temporalio.worker import Replayer

from iris.activities.control import observe as looks
from iris.activities.control.observe import made_slices
from iris.autoscaling import availability, failure_memory
from iris.client.connect.plugin import IrisPlugin
from iris.client.operate.delete_slices import delete_all
from iris.messages.autoscaler import CloseDown
from iris.model import names
from iris.model.errors import IrisError
from iris.model.slice import lifecycle
from iris.model.slice.provisioning import SliceRequest
from iris.model.slice.scale_groups import Pace, ScaleGroup
from iris.model.slice.status import SliceState
from iris.platforms.gcp import compute, platform, rate_limiter, tpu
from iris.workflows import policies
from iris.workflows.autoscaler.autoscaler import AutoscalerWorkflow
from iris.workflows.scheduler.scheduler import SchedulerWorkflow
from iris.workflows.slices.slice import SliceWorkflow
from tests.builders import a_gang, a_request, some
from tests.fakes.google.client import FakeGoogle
from tests.fleet_harness import SECOND
from tests.fleet_played import Tenant, TenantNotifier
from tests.harness import dev_server_cluster
from tests.platforms.gcp.requests import tpu_group, vm_group
from tests.workflows.autoscaler.google_cluster import GoogleCluster
from tests.workflows.autoscaler.google_trouble import NEW_STATES, Trouble

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    # A worker that ends has sometimes just done what it is to cancel: the SDK warns, and goes on.
    pytest.mark.filterwarnings("ignore:Cannot find activity to cancel"),
]

#: Another seed is another soak.
SEED = int(os.environ.get("IRIS_SOAK_SEED", "6"))
FAULTS = int(os.environ.get("IRIS_SOAK_FAULTS", "90"))
#: So many slices serve a gang meanwhile.
SERVED = FAULTS // 4
#: At each round.
AT_ONCE = 6
#: The control plane dies in every so many-th round.
DIES_EVERY = 7
#: So long a soak may take to calm down, and to close down. A test that takes longer hangs.
PATIENCE = 300
SPEED = 60

A, B, C = "europe-west4-a", "europe-west4-b", "us-east1-c"
#: As of a cluster whose minutes are seconds.
PACE = Pace(
    scale_up_delay=timedelta(0),
    scale_down_delay=2 * SECOND,
    scale_ups_per_minute=1000,
    scale_downs_per_minute=1000,
    requesting_timeout=2 * SECOND,
    quota_timeout=2 * SECOND,
    backoff=SECOND / 2,
    max_backoff=2 * SECOND,
    stockout_delay=SECOND,
    max_stockout_delay=3 * SECOND,
    boot_timeout=15 * SECOND,
    init_timeout=20 * SECOND,
)
#: What is shorter than it is, in seconds.
SHORTER: dict[Any, dict[str, float]] = {
    policies: {
        "DELETE_CHECK": 0.2,
        "MAX_DELETE_CHECK": 1,
        "EVALUATE_EVERY": 0.5,
        # What a control plane that was killed had begun is begun again after so long.
        "PLATFORM_CALL": 8,
        "EXCHANGE_PATIENT": 6,
        "OBSERVE": 3,
        "QUERY_DEMAND": 4,
        "SIGNAL_OWNERS": 6,
    },
    lifecycle: {
        "DESCRIBE_AGAIN": 1,
        "DRAIN_CHECK": 0.2,
        "MAX_DRAIN_CHECK": 1,
        "MAX_EVICTION_CHECK": 0.5,
        "EVICTION_GRACE": 3,
    },
    availability: {"SHORT_LIFETIME": 3, "LONG_LIFETIME": 6, "CHURN_WINDOW": 20},
    failure_memory: {"ONE_MOMENT": 1},
}
#: The same, of what counts in seconds itself.
QUICKER: dict[Any, dict[str, float]] = {
    rate_limiter: {
        "FIRST_PAUSE": 0.02,
        "MAX_PAUSE": 0.2,
        "QUIET": 0.2,
        "FIRST_UNAVAILABLE_PAUSE": 0.02,
        "MAX_UNAVAILABLE_PAUSE": 0.2,
    },
    platform: {"CALL_TIMEOUT_S": 5.0, "INVISIBLE_TIMEOUT_S": 2.0, "CREATE_TIMEOUT_S": 10.0},
    tpu: {"DEADLINE": 2.0},
    compute: {"DEADLINE": 2.0},
    looks: {"LIST_PATIENCE": 2.5},
    policies: {"CENSUS_EVERY": 5},
}
LOOKS: Any = {"observe_interval": SECOND, "evaluation_interval": SECOND / 2}


def a_tpu_group(
    name: str, variant: str, runtime: str, hosts: int, most: int, **changes: Any
) -> ScaleGroup:
    """In two zones."""
    offers = some(cpu=8, memory=32, disk=100, device=f"tpu:{variant}:{4 if hosts > 1 else 8}")
    settings = {
        "zones": (A, B),
        "hosts": hosts,
        "max_slices": most,
        "pace": PACE,
        "topology": "",
        "resources": offers,
    }
    return tpu_group(
        name=name, accelerator_variant=variant, runtime_version=runtime, **settings | changes
    )


#: Every kind of thing that a slice may be.
GROUPS = (
    a_tpu_group("pods", "v5litepod-16", "v2-alpha-tpuv5-lite", 4, 10),
    a_tpu_group("queued", "v6e-8", "v2-alpha-tpuv6e", 1, 14, queued=True, preemptible=False),
    a_tpu_group("single", "v5litepod-8", "v2-alpha-tpuv5-lite", 1, 18),
    vm_group(name="spot-vms", zones=(A, B, C), preemptible=True, max_slices=18, pace=PACE),
)
#: How many slices are wanted of each: fifty in all.
WANTED = (8, 12, 15, 15)
#: States of machines that can be used, or may be.
THERE = ("READY", "RUNNING", "REPAIRING", *NEW_STATES)
#: What else the project has, and what it is marked with: none of it is the cluster's to touch.
FOREIGN: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("somebodys-node", "node", {}),
    (
        "another-clusters-node",
        "node",
        {"iris-uid": "u-9", "iris-cluster": "dev", "iris-role": "host", "iris-managed": "true"},
    ),
    ("a-persons-node", "node", {"iris-uid": "u-1", "iris-role": "host", "iris-manual": "true"}),
    ("somebodys-queued", "queued", {}),
    (
        "another-clusters-queued",
        "queued",
        {"iris-uid": "u-9", "iris-role": "host", "iris-managed": "true"},
    ),
    ("somebodys-vm", "instance", {"iris-managed": "true"}),
    ("a-persons-vm", "instance", {"iris-uid": "u-1", "iris-role": "host", "iris-manual": "true"}),
)


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGoogle]:
    """One of its own for each test."""
    for module, shorter in SHORTER.items():
        for name, seconds in shorter.items():
            monkeypatch.setattr(module, name, timedelta(seconds=seconds))
    for module, quicker in QUICKER.items():
        for name, value in quicker.items():
            monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(
        policies, "UNTIL_DONE", RetryPolicy(initial_interval=SECOND / 5, maximum_interval=SECOND)
    )
    monkeypatch.setattr(
        policies, "A_FEW_TIMES", RetryPolicy(initial_interval=SECOND / 5, maximum_attempts=3)
    )
    with FakeGoogle() as google:
        google.run(SPEED)
        yield google


@pytest.fixture
def project(google: FakeGoogle) -> str:
    """A project in which others have something, too."""
    project = f"soak-{uuid.uuid4().hex[:8]}"
    for name, kind, labels in FOREIGN:
        google.seed_foreign(name, project, A, kind, labels)
    return project


def a_cluster(
    google: FakeGoogle, project: str, uid: str = "u-1"
) -> AbstractAsyncContextManager[GoogleCluster]:
    """On a server of its own. Its hosts do no work: there are many."""
    return dev_server_cluster(
        kind=partial(GoogleCluster, google=google, project=project, uid=uid),
        notifier=TenantNotifier,
    )


async def until(holds: Callable[[], Any], every: float = 0.2) -> None:
    """Wait until the condition holds, however slow the machine is.

    Raises:
        TimeoutError: it does not come to hold.
    """
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = holds()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(every)


async def nothing_left(fleet: GoogleCluster) -> bool:
    """Neither machines nor workflows."""
    return not (
        fleet.platform.alive
        or (await fleet.scaling()).slices
        or [each async for each in slice_workflows(fleet)]
    )


def slice_workflows(fleet: GoogleCluster) -> AsyncIterator[Any]:
    """Those that are under way, as the server itself has it."""
    return fleet.client.list_workflows(made_slices(fleet.name))


async def replayed(fleet: GoogleCluster) -> None:
    """Every run of every workflow comes to where it is by its history.

    Raises:
        NondeterminismError: it decides otherwise.
    """
    kinds = (names.KIND_SLICE, names.KIND_AUTOSCALER, names.KIND_SCHEDULER)
    query = " OR ".join(f"{names.SA_KIND} = '{kind}'" for kind in kinds)
    replayer = Replayer(
        workflows=[SliceWorkflow, AutoscalerWorkflow, SchedulerWorkflow], plugins=[IrisPlugin()]
    )
    await replayer.replay_workflows(fleet.client.list_workflows(query).map_histories())


def others_are_as_they_were(google: FakeGoogle, project: str) -> bool:
    """Returns whether exactly the machines of others exist."""
    return sorted(each["name"] for each in google.resources(project)) == sorted(
        name for name, _, _ in FOREIGN
    )


# -- the soak
# --------------------------------------------------------------------------------------------------


class Soak:
    """The cluster, fifty that want a slice each, and what goes wrong."""

    def __init__(self, fleet: GoogleCluster, google: FakeGoogle, project: str) -> None:
        self.fleet, self.google = fleet, google
        self.dice = random.Random(SEED)
        self.trouble = Trouble(google, project, (A, B, C), self.dice)
        self.happened: Counter[str] = self.trouble.happened
        self.rounds = self.lost = 0
        self.tenants: list[Tenant] = []

    async def begin(self) -> None:
        """All ask at once."""
        await self.fleet.scale(*GROUPS, **LOOKS)
        for group, count in zip(GROUPS, WANTED, strict=True):
            wants = (
                some(cpu=8, device=group.resources.device)
                if group.accelerator_variant
                else some(cpu=8)
            )
            asked = (
                a_gang(tasks=group.hosts, wants=wants)
                if group.hosts > 1
                else a_request(wants=wants)
            )
            self.tenants += [await self.fleet.tenant(asked) for _ in range(count)]

    async def passes(self, *, deadly: bool = False) -> None:
        """One round: gangs whose slice was lost request another. In a deadly round, the control
        plane is killed while it works, and more faults happen while it is away.
        """
        self.rounds += 1
        self.trouble.passes()
        if deadly:
            await asyncio.sleep(self.dice.random())
            await self.fleet.dies(at_once=True)
            self.happened["control plane killed"] += 1
            self.trouble.goes_wrong()
            await self.fleet.starts_again()
        await asyncio.sleep(1)
        placed = {tenant.request.key: tenant.placement for tenant in self.tenants}
        hosts = {
            (view.host.id, view.host.incarnation) for view in (await self.fleet.snapshot()).hosts
        }
        seats = [
            (seat.host_id, seat.incarnation)
            for placement in placed.values()
            if placement
            for seat in placement.seats
        ]
        assert len(seats) == len(set(seats)), "a host was given to two at once"
        for number, tenant in enumerate(self.tenants):
            placement = placed[tenant.request.key]
            if placement and any(
                (seat.host_id, seat.incarnation) not in hosts for seat in placement.seats
            ):
                await self.fleet.leaves(tenant)
                self.tenants[number] = await self.fleet.tenant(tenant.request)
                self.lost += 1

    async def has_served(self, count: int) -> bool:
        """After another round."""
        await self.passes()
        return self.served >= count

    @property
    def served(self) -> int:
        """How many have machines that are there."""
        there = {each["name"] for each in self.fleet.platform.resources if each["state"] in THERE}
        return sum(
            tenant.placement is not None and tenant.slices <= there for tenant in self.tenants
        )

    async def killed_google(self) -> None:
        """It is away for a moment, and knows everything when it comes back."""
        await asyncio.to_thread(self.google.restart)
        self.happened["Google restarted"] += 1

    async def told(self) -> str:
        """Where it stands."""
        scaling = await self.fleet.scaling()
        lines = [
            f"round {self.rounds}; served {self.served} of {len(self.tenants)}; lost {self.lost};"
            f" {dict(self.happened)}"
        ]
        lines += [f"{each.group}: {each.availability} {each.why}" for each in scaling.groups]
        lines += [
            f"{each.id} in {each.zone}: {each.state}, {each.reason}" for each in scaling.slices
        ]
        return "\n".join(lines)


@contextlib.asynccontextmanager
async def explained(soak: Soak) -> AsyncIterator[None]:
    """How to have the same again, and where it stood, go with every error."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"IRIS_SOAK_SEED={SEED} IRIS_SOAK_FAULTS={FAULTS}")
        with contextlib.suppress(Exception):  # the error counts
            error.add_note(await soak.told())
        raise


async def test_after_faults_of_every_kind_all_gangs_are_served_and_google_has_nothing_left_of_them(
    google: FakeGoogle, project: str
) -> None:
    """Every created machine is deleted, although processes died in between: a forgotten machine
    costs money.
    """
    async with a_cluster(google, project) as fleet:
        fleet.hosts_work = False
        soak = Soak(fleet, google, project)
        async with explained(soak):
            await soak.begin()
            await until(partial(soak.has_served, SERVED // 2))
            while soak.happened.total() < FAULTS:
                for _ in range(min(AT_ONCE, FAULTS - soak.happened.total())):
                    soak.trouble.goes_wrong()
                await soak.passes(deadly=soak.rounds % DIES_EVERY == 0)
                if soak.rounds % (2 * DIES_EVERY) == DIES_EVERY // 2:
                    await soak.killed_google()
            soak.trouble.calm()
            await until(partial(soak.has_served, SERVED))
            assert soak.lost >= FAULTS // 10

            google.fail("Delete*", 503, times=20)
            google.fail("instances.delete", 429, times=10, details="rate")
            google.commit_then_drop("*elete*", times=10)
            await fleet.autoscaler.signal(
                "close_down", CloseDown(reason="the soak is over", deadline=await fleet.now())
            )
            await asyncio.sleep(soak.dice.random())
            await fleet.dies(at_once=True)
            await fleet.starts_again()
            await until(partial(nothing_left, fleet))

            google.check(project)
            assert others_are_as_they_were(google, project)
            await fleet.audit()
            await replayed(fleet)


# -- two clusters
# --------------------------------------------------------------------------------------------------


#: That both clusters have, three slices of each; which cluster's a slice is nobody can tell but by
#: the uid.
SAME = tuple(
    group.model_copy(update={"min_slices": 3, "max_slices": 5})
    for group in GROUPS
    if group.name != "single"
)


async def whole(*fleets: GoogleCluster) -> bool:
    """Whether each has all that it wants, and nothing else is there."""
    for fleet in fleets:
        slices = (await fleet.scaling()).slices
        if [each.state for each in slices] != [SliceState.READY] * 9:
            return False
        if sorted(each.id for each in slices) != fleet.platform.alive:
            return False
    return True


async def orphaned(fleet: GoogleCluster) -> None:
    """Three slices that only a sweep finds: two that never had a workflow, one of them of use, and
    one that has lost its own.
    """
    for token in ("t", ""):
        orphan = SliceRequest(
            slice_id=f"iris-pods-{fleet.platform.uid}{token}",
            cluster=fleet.name,
            zone=A,
            token=token,
            group=SAME[0],
        )
        await fleet.platform.create_slice(orphan)
    await fleet.slice_of((await fleet.in_state())[0]).terminate("by mistake")


async def only_its_own(fleet: GoogleCluster) -> bool:
    """Whether it has ever asked for the end of, or looks after, nothing but what it has made."""
    made = set(fleet.platform.created)
    looked_after = {each.id async for each in slice_workflows(fleet)}
    return fleet.platform.unwanted <= made and looked_after <= {
        names.slice_workflow(fleet.name, each) for each in made
    }


async def test_two_clusters_of_one_name_and_prefix_in_one_project_never_touch_each_other(
    google: FakeGoogle, project: str
) -> None:
    """Names and prefixes are chosen by people, often the same ones: one team's stop must not take
    the other's machines.
    """
    trouble = Trouble(google, project, (A, B, C), random.Random(SEED))
    async with a_cluster(google, project, "u-1") as one, a_cluster(google, project, "u-2") as two:
        for fleet in (one, two):
            fleet.hosts_work = False
            await fleet.scale(*SAME, **LOOKS)
        await until(partial(whole, one, two))
        for fleet in (one, two):
            await orphaned(fleet)
        for _ in range(6):
            for _ in range(AT_ONCE):
                trouble.goes_wrong("preempt", "vanish", "drop", "lists")
            await asyncio.sleep(1)
        trouble.calm()
        await until(partial(whole, one, two))

        of_the_other = two.platform.alive
        await one.autoscaler.signal(
            "close_down", CloseDown(reason="stopped", deadline=await one.now())
        )
        await until(partial(nothing_left, one))
        assert two.platform.alive == await two.in_state() == of_the_other
        await two.autoscaler.signal(
            "close_down", CloseDown(reason="stopped", deadline=await two.now())
        )
        await until(partial(nothing_left, two))
        for fleet in (one, two):
            assert await only_its_own(fleet)
            await fleet.audit()
        google.check(project)
        assert others_are_as_they_were(google, project)


# -- no control plane
# --------------------------------------------------------------------------------------------------


async def test_a_stop_without_a_control_plane_deletes_all_of_the_cluster_and_nothing_else(
    google: FakeGoogle, project: str
) -> None:
    """It died in the middle of things: some were just asked for, others were going, and lists are
    late.
    """
    trouble = Trouble(google, project, (A, B, C), random.Random(SEED))
    async with a_cluster(google, project) as fleet:
        fleet.hosts_work = False
        await fleet.scale(
            *(group.model_copy(update={"min_slices": 4}) for group in GROUPS), **LOOKS
        )
        await until(lambda: len(fleet.platform.alive) >= 12)
        for _ in range(3):
            for _ in range(AT_ONCE):
                trouble.goes_wrong()
            await asyncio.sleep(1)
        google.latency("Create*", 0.3)
        await fleet.dies(at_once=True)
        trouble.calm()
        google.stale_lists(ghosts=60, lag=60)

        stop = partial(delete_all, fleet.platform.another())
        google.zone_down(A)
        with pytest.raises(IrisError, match="run the command again"):
            await stop(timedelta(seconds=5))
        assert fleet.platform.alive != []
        google.zone_down(A, False)
        google.fail("*elete*", 503, times=20)
        google.commit_then_drop("*elete*", times=5)
        await stop(timedelta(seconds=PATIENCE))

        assert fleet.platform.alive == []
        assert len(set(fleet.platform.created)) >= 12
        google.check(project)
        assert others_are_as_they_were(google, project)
