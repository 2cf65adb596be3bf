"""The difficult scenarios of Google Cloud, by number, as far as workflows decide them: real slices
and a real autoscaler over the real platform and a fake Google.
`tests/platforms/gcp/test_scenarios.py` has what the platform alone decides.

After each scenario, every machine has a workflow, and every workflow has its machines.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from iris.autoscaling import failure_memory
from iris.client.connect.connection import connect
from iris.client.connect.plugin import IrisPlugin
from iris.messages.task import RunTask
from iris.model import names
from iris.model.errors import Rejected, Unreachable
from iris.model.job.attempts import TaskOutcome
from iris.model.slice import lifecycle
from iris.model.slice.keys import derived_key
from iris.model.slice.provisioning import SliceFault, SliceRequest
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.slice.status import SliceState, SliceStatus
from iris.model.states import JobState
from iris.processes.process import free_ports
from iris.worker_agents.host.membership import Membership
from iris.worker_agents.local.temporal_server import DATABASE, server_command
from iris.workflows import policies
from iris.workflows.slices import slice as slice_workflow
from tests.builders import CHIPS
from tests.fakes.google.client import FakeGoogle
from tests.fakes.platform.machines import SECRET
from tests.fleet_harness import EAGER, MINUTE, SECOND
from tests.fleet_played import TenantNotifier
from tests.harness import PATIENCE, dev_server_cluster, hangs, in_turn, succeeds
from tests.platforms.gcp.requests import tpu_group, vm_group
from tests.workflows.autoscaler.google_cluster import GoogleCluster

pytestmark = pytest.mark.long

S = SliceState
A, B, ELSEWHERE = "europe-west4-b", "europe-west4-a", "us-east1-c"
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


@pytest.fixture
def quick(google: FakeGoogle, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Time passes as it does; so times are shorter."""
    for name in ("DELETE_CHECK", "MAX_DELETE_CHECK", "EVALUATE_EVERY"):
        monkeypatch.setattr(policies, name, SECOND / 10)
    for name in ("DRAIN_CHECK", "MAX_DRAIN_CHECK"):
        monkeypatch.setattr(lifecycle, name, SECOND / 10)
    google.clear()
    google.boot_time(0.3)
    google.delete_time(0.1)
    yield
    google.clear()


@pytest.fixture
async def fleet(google: FakeGoogle, quick: None) -> AsyncIterator[GoogleCluster]:
    """On a server of its own."""
    async with dev_server_cluster(
        kind=partial(GoogleCluster, google=google), notifier=TenantNotifier
    ) as fleet:
        yield fleet
        google.clear()
        await fleet.audit()


class LastingServer:
    """A Temporal server with its state in a file."""

    env: WorkflowEnvironment

    def __init__(self, directory: Path) -> None:
        port, ui_port = free_ports()
        self._address = f"127.0.0.1:{port}"
        self._command = server_command(
            port, f"127.0.0.1:{ui_port}", directory / DATABASE, safe=True
        )
        self._log = directory / "temporal.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """It answers, with whatever it knew before."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, cwd=self._log.parent, stdout=log, stderr=log
            )
        deadline = time.monotonic() + PATIENCE.total_seconds()
        while True:
            try:
                client = await connect(self._address, timeout=2 * SECOND, plugins=[IrisPlugin()])
                break
            except Unreachable:
                assert time.monotonic() < deadline, self._log.read_text()[-2000:]
            await asyncio.sleep(0.1)
        if not hasattr(self, "env"):
            self.env = WorkflowEnvironment.from_client(client)

    async def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()


@contextlib.asynccontextmanager
async def a_lasting_server(directory: Path) -> AsyncIterator[LastingServer]:
    """One that runs, and does not outlive the block."""
    server = LastingServer(directory)
    try:
        await server.start()
        yield server
    finally:
        await server.kill()


async def first_slice(fleet: GoogleCluster, *states: SliceState) -> str:
    """The id of the first slice that is in one of these states."""

    async def there() -> bool:
        return bool(await fleet.in_state(*states))

    await fleet.until(there)
    return (await fleet.in_state(*states))[0]


async def first_created(fleet: GoogleCluster) -> str:
    """The id of the first slice that was created. A look may miss a state that lasts a moment."""
    await fleet.until(lambda: fleet.platform.created)
    return fleet.platform.created[0]


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
    """It does not request a second slice, and the first one is used."""
    google.boot_time(1)
    await fleet.scale(a_group(min_slices=1), **LOOKS)
    slice_id = await first_slice(fleet, S.PROVISIONING)
    await fleet.dies()
    await asyncio.sleep(2)  # it comes up meanwhile
    await fleet.starts_again()
    await fleet.until(lambda: fleet.has(1))

    assert await fleet.in_state() == [slice_id]
    assert fleet.platform.created == [slice_id]


@pytest.mark.parametrize("comes_up", [True, False])
async def test_scenario_03_a_control_plane_and_a_service_that_were_away_go_on_where_they_were(
    google: FakeGoogle, quick: None, tmp_path: Path, comes_up: bool
) -> None:
    """The deadline passed in that time. Machines that exist by now are used, and the others are
    deleted.
    """
    google.boot_time(1 if comes_up else None)
    pace = QUICK.model_copy(update={"boot_timeout": 3 * SECOND})
    async with (
        a_lasting_server(tmp_path) as server,
        GoogleCluster(server.env, TenantNotifier, google) as fleet,
    ):
        await fleet.scale(a_group(min_slices=1, max_slices=1, pace=pace), **LOOKS)
        slice_id = await first_slice(fleet, S.PROVISIONING)
        await fleet.dies()
        await server.kill()
        await asyncio.sleep(4)
        await server.start()
        await fleet.starts_again()
        if comes_up:
            await fleet.until(lambda: fleet.has(1))
            assert await fleet.in_state() == [slice_id]
            assert fleet.platform.created == [slice_id]
        else:
            google.boot_time(None, slice_id)
            google.boot_time(0.3)
            await ended(fleet, slice_id, SliceFault.BOOT_TIMEOUT)
            await fleet.until(lambda: fleet.has(1))
        await fleet.audit()


async def test_scenario_04_a_slice_is_ready_though_its_operation_never_ends(
    fleet: GoogleCluster, google: FakeGoogle
) -> None:
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
    pace = QUICK.model_copy(
        update={"stockout_delay": 600 * SECOND, "max_stockout_delay": 600 * SECOND}
    )
    await fleet.scale(a_group(zones=(A, B), pace=pace), **LOOKS)
    tenant = await fleet.tenant_gang(wants=CHIPS)
    await fleet.until(lambda: tenant.placement)
    refused, made = fleet.platform.created

    shown = await ended(fleet, refused, SliceFault.STOCK_OUT)
    assert shown.reason.startswith(f"{A} is out")
    assert "There is no more capacity" in shown.reason
    facts = (await fleet.shown(made)).facts
    assert facts is not None
    assert (tenant.slices, facts.zone) == ({made}, B)


async def test_scenario_07_a_quota_is_shown_by_its_name(
    fleet: GoogleCluster, google: FakeGoogle
) -> None:
    """Waiting does not help: the user has to request more of this quota."""
    google.quota("v5litepod", "spot", "europe-west4", 0, project=fleet.platform.project)
    await fleet.scale(a_group(zones=(A, B)), **LOOKS)
    job = await fleet.gang(tasks=4, resources=CHIPS)

    async def told() -> bool:
        return (
            "TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI"
            in (await fleet.users.jobs.explain(job)).message
        )

    await fleet.until(told)
    assert any(
        "TPUV5sPreemptibleLitepod" in each.reason for each in (await fleet.scaling()).actions
    )
    assert fleet.platform.created == []
    await fleet.cancel(job)


@pytest.mark.parametrize("scope", ["zone", "region"])
async def test_scenario_07_another_zone_is_asked_where_the_quota_does_not_count(
    fleet: GoogleCluster, google: FakeGoogle, scope: str
) -> None:
    """A zone's quota leaves the group's next zone, a region's leaves only another region."""
    google.quota(
        "v5litepod",
        "spot",
        A if scope == "zone" else "europe-west4",
        0,
        project=fleet.platform.project,
    )
    await fleet.scale(a_group(zones=(A, B, ELSEWHERE)), **LOOKS)
    tenant = await fleet.tenant_gang(wants=CHIPS)
    await fleet.until(lambda: tenant.placement)
    (made,) = fleet.platform.created

    facts = (await fleet.shown(made)).facts
    assert facts is not None
    assert facts.zone == (B if scope == "zone" else ELSEWHERE)
    asked = [path for path in google.calls("CreateNode") if f"/{fleet.platform.project}/" in path]
    assert [path.split("/")[3] for path in asked] == ([A, B] if scope == "zone" else [A, ELSEWHERE])


async def test_scenario_07_what_is_dead_is_deleted_first_and_then_the_quota_is_tried_again(
    fleet: GoogleCluster, google: FakeGoogle
) -> None:
    """A preempted slice counts until it is deleted. Its successor is not kept waiting for the
    quota's own five minutes.
    """
    google.quota("v5litepod", "spot", "europe-west4", 16, project=fleet.platform.project)
    google.delete_time(2)
    assert QUICK.quota_timeout >= 300 * SECOND
    await fleet.scale(a_group(zones=(A, B)), **LOOKS)
    first = await fleet.tenant_gang(wants=CHIPS)
    await fleet.until(lambda: first.placement)
    (dead,) = fleet.platform.created
    google.preempt(dead, notice=0)
    second = await fleet.tenant_gang(wants=CHIPS)
    await fleet.until(lambda: second.placement)

    await fleet.until(lambda: fleet.is_in(dead, S.DELETED))
    assert any(each.what == "quota_exceeded" for each in (await fleet.scaling()).actions)
    assert second.slices == {fleet.platform.created[1]}


async def test_scenario_08_a_stock_out_everywhere_is_asked_about_ever_less_often(
    fleet: GoogleCluster, google: FakeGoogle
) -> None:
    """The autoscaler stops asking when no gang waits any more."""
    google.capacity("*", "v5litepod-16", 0, project=fleet.platform.project)
    await fleet.scale(a_group(zones=(A, B)), **LOOKS)
    tenant = await fleet.tenant_gang(wants=CHIPS)
    await fleet.until(lambda: len(fleet.platform.created) >= 2)
    await asyncio.sleep(6)
    asked = len(fleet.platform.created)
    await fleet.leaves(tenant)

    async def unwanted() -> bool:
        return sum(group.demand for group in (await fleet.scaling()).groups) == 0

    await fleet.until(unwanted)  # until then, one more request may be under way
    await fleet.until(lambda: not fleet.platform.alive)
    after = len(fleet.platform.created)
    await asyncio.sleep(5)

    assert asked <= 12
    assert len(fleet.platform.created) == after


async def test_scenario_09_and_10_taken_back_before_it_was_whole_is_replaced(
    fleet: GoogleCluster, google: FakeGoogle
) -> None:
    """Half of the agents have reported: no gang was placed on them, and no machine of the slice is
    left.
    """
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
    """Whether the node says so or is just gone. None of the user's own retries is used up, and the
    lease of the fleet does not delay the next attempt: Google has confirmed that the node is gone.
    """
    monkeypatch.setattr(slice_workflow, "TIME_TO_LEAVE", SECOND)
    await fleet.rules(lease=5 * MINUTE)
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
    shown = await ended(fleet, slice_id, SliceFault.VANISHED if vanishes else SliceFault.PREEMPTED)
    assert (await fleet.end(job)).state is JobState.SUCCEEDED
    first_attempt, _ = await fleet.attempts(fleet.job(job))
    assert abs(first_attempt.ended_at - shown.steps[-1].at) < MINUTE  # the lease is five
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


async def test_scenario_16_a_slice_with_three_of_four_agents_is_given_back_whole(
    fleet: GoogleCluster,
) -> None:
    """Three of four hosts of a slice are of no use. The reason names the missing host."""
    fleet.platform.agent_lives = lambda slice_id, worker: worker != 3
    # Long enough for the three agents of a busy machine.
    pace = QUICK.model_copy(update={"init_timeout": 5 * SECOND})
    await fleet.scale(a_group(min_slices=1, max_slices=1, pace=pace), **LOOKS)
    slice_id = await first_created(fleet)

    shown = await ended(fleet, slice_id, SliceFault.INIT_TIMEOUT)
    assert shown.reason.startswith("3 of 4 agents ")


async def test_scenario_16_and_17_the_reason_has_the_console_output(
    fleet: GoogleCluster, google: FakeGoogle
) -> None:
    """The output is deleted with the machine, so the slice stores it."""
    fleet.platform.agent_lives = lambda slice_id, worker: False
    pace = QUICK.model_copy(update={"init_timeout": 2 * SECOND})
    group = vm_group(zones=(A,), machine_type="n2-highmem-8", min_slices=1, max_slices=1, pace=pace)
    said = (
        "startup-script: [iris-init] pulling registry/agent:1\nstartup-script: [iris-init] FAILED:"
        " no such image\n"
    )
    google.say("n2-highmem-8", said)
    await fleet.scale(group, **LOOKS)
    slice_id = await first_created(fleet)

    shown = await ended(fleet, slice_id, SliceFault.INIT_TIMEOUT)
    assert shown.reason.endswith("[iris-init] FAILED: no such image")
    assert shown.last_words.splitlines() == [
        "[iris-init] pulling registry/agent:1",
        "[iris-init] FAILED: no such image",
    ]

    async def told_by_the_group() -> bool:  # once it is gone: until then the group is at its most
        return "[iris-init] FAILED: no such image" in (await fleet.scaling()).groups[0].why

    await fleet.until(told_by_the_group)


async def test_scenario_16_and_17_a_machine_whose_words_cannot_be_had_is_deleted_all_the_same(
    fleet: GoogleCluster, google: FakeGoogle
) -> None:
    """They are for people; the machine costs."""
    google.boot_time(None)
    google.fail("instances.getSerialPortOutput", 503, times=None)
    pace = QUICK.model_copy(update={"boot_timeout": 2 * SECOND})
    await fleet.scale(vm_group(zones=(A,), min_slices=1, max_slices=1, pace=pace), **LOOKS)
    slice_id = await first_created(fleet)

    shown = await ended(fleet, slice_id, SliceFault.BOOT_TIMEOUT)
    assert shown.last_words == ""


async def test_scenario_17_a_group_whose_agents_never_come_is_stopped_and_says_why(
    fleet: GoogleCluster, google: FakeGoogle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After several such slices in a row, no more are created until an operator reloads the
    configuration.
    """
    monkeypatch.setattr(failure_memory, "BREAKS_AFTER", 3)
    fleet.platform.agent_lives = lambda slice_id, worker: False
    pace = QUICK.model_copy(update={"init_timeout": SECOND / 2, "backoff": SECOND / 4})
    group = a_group(min_slices=1, max_slices=1, pace=pace)
    await fleet.scale(group, **LOOKS)

    async def stopped() -> bool:
        whys = [each.why for each in (await fleet.scaling()).groups]
        return any(
            why.startswith("stopped after 3 slices in a row whose agents never reported")
            for why in whys
        )

    await fleet.until(stopped)
    await asyncio.sleep(3)
    assert len(fleet.platform.created) == 3
    fleet.platform.agent_lives = lambda slice_id, worker: True
    await fleet.configure(group, **LOOKS)
    await fleet.until(lambda: fleet.has(1))
    assert len(fleet.platform.created) == 4


async def test_scenario_17_a_group_whose_agents_never_come_is_made_ever_more_rarely(
    fleet: GoogleCluster,
) -> None:
    """A wrong image would otherwise buy machines all night."""
    fleet.platform.agent_lives = lambda slice_id, worker: False
    pace = QUICK.model_copy(
        update={"init_timeout": SECOND, "backoff": 2 * SECOND, "max_backoff": 60 * SECOND}
    )
    await fleet.scale(a_group(min_slices=1, max_slices=1, pace=pace), **LOOKS)

    async def told() -> bool:
        return any(
            "0 of 4 agents have reported" in each.why for each in (await fleet.scaling()).groups
        )

    await fleet.until(told)
    await fleet.until(lambda: len(fleet.platform.created) >= 2)
    await asyncio.sleep(8)
    assert len(fleet.platform.created) <= 4


async def test_scenario_18_an_agent_with_another_slice_s_token_is_not_let_in(
    fleet: GoogleCluster,
) -> None:
    """The agent belongs to an earlier use of the machine, or to another cluster."""
    fleet.platform.agent_lives = lambda slice_id, worker: False
    await fleet.scale(a_group(min_slices=1), **LOOKS)
    slice_id = await first_slice(fleet, S.BOOTSTRAPPING)
    request: SliceRequest = fleet.platform.machines[slice_id].request
    host = fleet.host(request)
    await fleet.agent_reports(host, "of somebody else")
    shown = await fleet.shown(slice_id)

    assert (shown.hosts, shown.refused) == ((), (host.id,))
    assert (await fleet.snapshot()).total_hosts == 0


@pytest.mark.parametrize("whose", ["an earlier life", "another cluster", "an earlier slice"])
async def test_scenario_18_an_agent_that_is_not_of_the_slice_s_present_life_is_told_to_stop(
    fleet: GoogleCluster, google: FakeGoogle, whose: str
) -> None:
    """What the agent itself asks and hears: one that was overtaken by its own reboot, one that has
    another's token, one whose machine has outlived its slice.
    """
    await fleet.scale(a_group(min_slices=1), **LOOKS)
    slice_id = await first_slice(fleet, S.READY)
    request: SliceRequest = fleet.platform.machines[slice_id].request
    host = fleet.host(request)
    if whose == "another cluster":
        host = host.model_copy(
            update={"id": names.host_of_slice(slice_id, 4, 5), "incarnation": "theirs"}
        )
    key = derived_key(SECRET, slice_id, "of u-2" if whose == "another cluster" else request.token)
    agent = Membership(fleet.client, fleet.name, host, key, 4)
    agent.expected = True
    if whose == "an earlier life":
        assert await agent.given_up() == ""
        fleet.incarnations[slice_id] = "second"
        await fleet.agent_reports(fleet.host(request), request.token)
    elif whose == "another cluster":
        await agent.report()
    else:
        google.preempt(slice_id, notice=0)
        await ended(fleet, slice_id, SliceFault.PREEMPTED)

    async def told_to_stop() -> str:
        try:
            return await agent.given_up()
        except Rejected as error:
            return str(error)

    await fleet.until(told_to_stop)
    assert {
        "an earlier life": (f"host {host.id} (incarnation second)"),
        "another cluster": (f"slice {slice_id} refused this machine"),
        "an earlier slice": "has ended",
    }[whose] in await told_to_stop()
    known = [view.host for view in (await fleet.snapshot()).hosts]
    assert all(each.incarnation != "theirs" for each in known)
    if whose == "an earlier life":
        assert host not in known


@pytest.mark.parametrize("mended", [True, False])
async def test_scenario_19_machines_in_repair_have_a_grace_and_are_then_given_back(
    fleet: GoogleCluster, google: FakeGoogle, monkeypatch: pytest.MonkeyPatch, mended: bool
) -> None:
    """Most repairs take minutes, and tasks can run on. A repair that does not end counts as a
    preemption, at no cost to the job.
    """
    monkeypatch.setattr(lifecycle, "REPAIR_GRACE", 10 * SECOND)
    await fleet.scale(a_group(min_slices=1, max_slices=1), **LOOKS)
    slice_id = await first_slice(fleet, S.READY)
    google.node(slice_id, state="REPAIRING", health=5, note="in maintenance")

    async def noted(words: str) -> bool:
        return any(words in step.reason for step in (await fleet.shown(slice_id)).steps)

    told = "in repair; deleted if that takes longer than 10s: TPU node is REPAIRING: in maintenance"
    await fleet.until(lambda: noted(told))
    assert await fleet.in_state() == [slice_id]
    if mended:
        google.node(slice_id, state="READY", health=1)
        await fleet.until(lambda: noted("the platform has repaired its machines"))
        await asyncio.sleep(11)
        assert await fleet.in_state() == [slice_id]
        return
    shown = await ended(fleet, slice_id, SliceFault.PREEMPTED)
    assert "10s" in shown.reason
    await fleet.until(lambda: fleet.has(1))
    (lost,) = (each for each in (await fleet.scaling()).actions if each.what in ("lost", "failed"))
    assert (lost.what, lost.slice_id) == ("lost", slice_id)


async def test_scenario_20_a_zone_that_is_down_keeps_its_slices(
    fleet: GoogleCluster, google: FakeGoogle
) -> None:
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


async def test_scenario_21_a_long_storm_of_refusals_fails_no_workflow_and_loses_no_machine(
    fleet: GoogleCluster, google: FakeGoogle
) -> None:
    """Everything is refused for seconds on end, while six slices have to be deleted and made again.
    It is answered by fewer calls, not by more; and afterwards all is done that was wanted.
    """
    await fleet.scale(a_group(min_slices=6, max_slices=6), **LOOKS)
    await fleet.until(lambda: fleet.has(6))
    first = await fleet.in_state()
    google.delete_time(1)
    google.preempt(first[0], notice=0)
    await fleet.until(lambda: fleet.is_in(first[0], S.DELETING))
    for slice_id in first[1:]:
        google.preempt(slice_id, notice=0)
    begun = len(google.audit())
    google.fail("*", 429, times=None, details="rate", retry_after=1)
    await asyncio.sleep(6)
    slowed = [each for each in google.audit()[begun:] if each["what"] == "call"]
    google.clear()
    google.fail("*", 503, times=None)
    await asyncio.sleep(4)
    google.clear()
    calm = len(google.audit())
    await fleet.until(lambda: not set(first) & set(fleet.platform.alive))
    await fleet.until(lambda: fleet.has(6))

    # A second's rest after each refusal: those that were under way, and one or two in each second.
    assert len(slowed) <= 30
    assert len(fleet.platform.created) == 12
    done = [
        each["method"]
        for each in google.audit()[calm:]
        if each["what"] == "call" and each.get("status") == "OK"
    ]
    assert done.index("DeleteNode") < done.index("CreateNode")
    failed = [
        each.id
        async for each in fleet.client.list_workflows(
            "ExecutionStatus IN ('Failed', 'Terminated', 'TimedOut')"
        )
    ]
    assert failed == []


async def test_scenario_22_a_queued_resource_without_a_node_that_nobody_looks_after_is_deleted(
    fleet: GoogleCluster, google: FakeGoogle
) -> None:
    """No agents can report for it, and Google might create its machines much later."""
    google.capacity(A, "v5litepod-16", 0, project=fleet.platform.project)
    group = a_group(
        max_slices=1, queued=True, pace=QUICK.model_copy(update={"boot_timeout": 2 * SECOND})
    )
    await fleet.platform.create_slice(
        SliceRequest(slice_id="iris-tpu-orphan", cluster="dev", zone=A, token="t1", group=group)
    )
    await fleet.scale(group, **LOOKS)
    await fleet.until(lambda: fleet.has(1, S.PROVISIONING))

    shown = await ended(fleet, "iris-tpu-orphan", SliceFault.BOOT_TIMEOUT)
    assert shown.reason.endswith("WAITING_FOR_RESOURCES")


async def test_scenario_22_a_slice_that_nobody_looks_after_is_adopted_and_used(
    fleet: GoogleCluster,
) -> None:
    """Its control plane died before it wrote anything down; its agents have the token."""
    group = a_group(max_slices=1)
    orphan = SliceRequest(
        slice_id="iris-tpu-orphan", cluster="dev", zone=A, token="t1", group=group
    )
    await fleet.platform.create_slice(orphan)
    await fleet.scale(group, **LOOKS)
    await fleet.until(lambda: fleet.has(1))
    tenant = await fleet.tenant_gang(wants=CHIPS)
    await fleet.until(lambda: tenant.placement)

    assert tenant.slices == {"iris-tpu-orphan"}
    assert fleet.platform.created == ["iris-tpu-orphan"]


async def test_scenario_25_machines_that_come_up_after_their_deadline_do_not_come_back(
    fleet: GoogleCluster, google: FakeGoogle
) -> None:
    """They are being deleted, so reports of their agents are ignored, and the deletion continues
    until they are gone.
    """
    google.boot_time(None)
    google.delete_time(None)
    pace = QUICK.model_copy(
        update={"boot_timeout": SECOND, "backoff": 60 * SECOND, "max_backoff": 60 * SECOND}
    )
    await fleet.scale(a_group(min_slices=1, max_slices=1, pace=pace), **LOOKS)
    slice_id = await first_slice(fleet, S.DELETING)
    await fleet.until(lambda: [each["state"] for each in fleet.platform.resources] == ["DELETING"])
    google.delete_time(0.5)
    google.node(slice_id, state="READY", health=1)

    shown = await ended(fleet, slice_id, SliceFault.BOOT_TIMEOUT)
    assert S.READY not in {step.state for step in shown.steps}
    assert (await fleet.snapshot()).total_hosts == 0
    assert fleet.platform.created == [slice_id]
