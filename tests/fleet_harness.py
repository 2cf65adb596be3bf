"""A cluster whose machines are asked for: the cluster of `tests.harness` beside a fake platform
that lives by the server's clock.

What is real: the workflows, the platform's contract, what is found out about the machines, what the
scheduler wants. What is played:

1. *Agents.* Whatever machine the platform says is up has an agent. It reports to its slice with the
   slice's token, again to a slice that begins anew, and takes work as the program of its group
   says. Agents wake whenever somebody looks or time passes.
2. *Lists of workflows*, which the time-skipping server does not have: `Lister` describes those that
   it has heard of.
3. *Tenants*: gangs that hold or want hosts without a job. A job's activity stops the server's
   clock; a tenant stays for days.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

from temporalio import activity
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer

from iris.activities.control.observe import FleetObserver
from iris.activities.control.recovery import RecoveryQueries
from iris.activities.control.slices import Slices
from iris.autoscaling.liveness import Silent
from iris.client.connect.plugin import IrisPlugin
from iris.messages.autoscaler import (
    AutoscalerStart,
    AutoscalerStatus,
    FleetReport,
    ObserveFleet,
    ScalingSettings,
)
from iris.messages.scheduler import Ask, Configure, Envelope, Message, Release
from iris.messages.slice import CloudState, HostReady, SliceInput
from iris.model import names
from iris.model.host.hosts import Host
from iris.model.job.requests import Request
from iris.model.slice.keys import derived_key, sign
from iris.model.slice.provisioning import CreateOutcome, SliceRequest
from iris.model.slice.scale_groups import Pace, ScaleGroup
from iris.model.slice.scaling import Drain
from iris.model.slice.status import SliceState, SliceStatus
from iris.platforms.base import Platform
from iris.workflows.autoscaler.autoscaler import AutoscalerWorkflow
from iris.workflows.search_attributes import keywords
from iris.workflows.slices.slice import SliceWorkflow
from tests.builders import a_gang, a_request
from tests.fakes.platform.machines import SECRET
from tests.fakes.platform.platform import FakePlatform
from tests.fleet_played import Lister, Tenant, TenantNotifier
from tests.harness import PATIENCE, Cluster, Notifier, Program, StartSlice, ask, succeeds

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
#: The pace of a group that grows and shrinks at once, however much that is.
EAGER = Pace(scale_up_delay=timedelta(0), scale_ups_per_minute=1000, scale_downs_per_minute=1000)
#: Each look at virtual time costs real milliseconds: tests that watch a fleet for hours need no
#: more looks than this.
STEP, OBSERVE_INTERVAL = 15 * SECOND, 30 * SECOND
#: With what the owners of tenants begin.
TENANT = "tenant/"
_TENANTS = itertools.count(1)


class PlayedFleet(FleetObserver):
    """What is observed: the machines as they are, and the hosts that the test says are silent.

    Args:
        served: the platform as the control plane has it; None: that of the cluster.
    """

    def __init__(
        self, cluster: "FleetCluster", lister: Any, served: Platform | None = None
    ) -> None:
        super().__init__(lister, served or cluster.platform)
        self._of = cluster
        #: These look by look, then that all report.
        self.silent: list[tuple[Silent, ...]] = []
        self.looks = 0

    @activity.defn
    async def observe_fleet(self, look: ObserveFleet) -> FleetReport:
        await self._of.wake()
        self.looks += 1
        return await super().observe_fleet(look)

    async def _owned(self, cluster: str) -> set[str]:
        self._of.lister.heard_of_slices(self._of.platform.machines)
        return await super()._owned(cluster)

    async def _silent_hosts(self, cluster: str) -> tuple[Silent, ...]:
        return self.silent.pop(0) if self.silent else ()


class PlayedSlices(Slices):
    """The real ones; agents of machines that are there at once report at once."""

    def __init__(self, cluster: "FleetCluster", served: Platform | None = None) -> None:
        super().__init__(served or cluster.platform)
        self._of = cluster

    @activity.defn
    async def create_slice(self, request: SliceRequest) -> CreateOutcome:
        self._of.lister.heard_of_slices([request.slice_id])
        outcome = await super().create_slice(request)
        await self._of.wake()
        return outcome


class FleetCluster(Cluster):
    """A cluster with a platform. Leaving it without an error audits it."""

    notifier: TenantNotifier

    def __init__(
        self,
        env: WorkflowEnvironment,
        name: str = "trial",
        notifier: type[Notifier] = TenantNotifier,
    ) -> None:
        super().__init__(env, name, notifier)
        self.platform = FakePlatform(self.now, name)
        self.lister = Lister(env.client, name)
        self.fleet = PlayedFleet(self, self.lister)
        self.slices = PlayedSlices(self)
        #: What runs on the hosts of each group; on those of others everything succeeds.
        self.programs: dict[str, Program] = {}
        #: Whether agents take what is in their queues: without it hundreds of them cost nothing.
        self.hosts_work = True
        #: Slices whose agents are in another life than the first, and in which.
        self.incarnations: dict[str, str] = {}
        #: By host and life: the run of its slice that has heard it.
        self._reported: dict[tuple[str, str], str] = {}
        self._waking = asyncio.Lock()

    def on_machines(self) -> list[Callable[..., Any]]:
        recovery: Any = RecoveryQueries(self.lister)  # type: ignore[arg-type]
        return [
            self.slices.create_slice,
            self.slices.describe_slice,
            self.slices.console_output,
            self.slices.delete_slice,
            self.fleet.observe_fleet,
            self.fleet.query_wanted,
            recovery.query_page,
            recovery.list_slices,
        ]

    # Agents.

    async def wake(self) -> None:
        """Agents of machines that are up report to slices that have not heard them in this life of
        theirs.
        """
        async with self._waking:
            up = [
                each for each in self.platform.up(await self.now()) if each[0].cluster == self.name
            ]
            if not up:
                return
            self.lister.heard_of_slices(request.slice_id for request, _ in up)
            runs = {each.id: each.first_run for each in await self.lister.running()}
            await asyncio.gather(*(self._wake(request, worker, runs) for request, worker in up))

    async def _wake(self, request: SliceRequest, worker: int, runs: dict[str, str]) -> None:
        host = self.host(request, worker)
        run = runs.get(names.slice_workflow(self.name, request.slice_id))
        if run is None or self._reported.get((host.id, host.incarnation)) == run:
            return
        if self.hosts_work:
            await self._agent(host, self.programs.get(request.group.name, succeeds))
        if await self.agent_reports(host, request.token):
            self._reported[host.id, host.incarnation] = run

    def host(self, request: SliceRequest, worker: int = 0) -> Host:
        """A machine as its agent reports it."""
        life = self.incarnations.get(request.slice_id, "first")
        return request.group.slice_hosts(request.slice_id, request.zone, life, f"10.0.0.{worker}")[
            worker
        ]

    async def agent_reports(self, host: Host, token: str) -> bool:
        """Whether there was a slice to be told. The agent signs with the key of the request with
        this token.
        """
        signature = sign(derived_key(SECRET, host.slice_id, token), host)
        try:
            await self.slice(host).signal("host_ready", HostReady(host=host, signature=signature))
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return False
        return True

    async def later(self, time: timedelta) -> None:
        await self.wake()
        await super().later(time)
        await self.wake()

    async def comes_true(
        self, holds: Callable[[], Any], within: timedelta = HOUR, step: timedelta = STEP
    ) -> None:
        """Lets time pass until the condition holds; it may be a coroutine function.

        Args:
            within: virtual time.
            step: the most virtual time between two checks. The first steps are shorter: while a
                program runs, the clock does not jump, and a step takes as long as it says.

        Raises:
            AssertionError: the condition does not hold within that time.
        """
        until, pause = await self.now() + within, min(SECOND, step)
        while True:
            answer = holds()
            if asyncio.iscoroutine(answer):
                answer = await answer
            if answer:
                return
            assert await self.now() < until, f"not true after {within}"
            await self.later(pause)
            pause = min(2 * pause, step)

    async def terminate(self, handle: WorkflowHandle[Any, Any]) -> None:
        """As somebody does in the Web UI. What is terminated with something under way stops the
        server's clock, so not then.
        """
        await self.later(timedelta(0))  # what has been sent to it arrives
        await self.until(lambda: self.rests(handle))
        await handle.terminate("by mistake")

    # Slices.

    async def make(
        self, group: ScaleGroup, slice_id: str = "s1", zone: str = "", **changes: Any
    ) -> WorkflowHandle[Any, Any]:
        """As the autoscaler does that wants a slice."""
        zone = zone or group.zones[0]
        request = SliceRequest(
            slice_id=slice_id,
            cluster=self.name,
            zone=zone,
            token=f"token of {slice_id}",
            group=group,
        )
        self.lister.heard_of_slices([slice_id])
        wanted = {"cluster": self.name, "id": slice_id, "size": group.hosts, "request": request}
        starting = await self.client.start_workflow(
            StartSlice.run,
            SliceInput(**wanted | changes),
            id=f"start-{uuid4()}",
            task_queue=names.control_queue(self.name),
        )
        run_id = await starting.execute_update(StartSlice.started)
        workflow_id = names.slice_workflow(self.name, slice_id)
        return self.client.get_workflow_handle(
            workflow_id, first_execution_run_id=run_id, result_type=SliceStatus
        )

    async def ready(self, group: ScaleGroup, slice_id: str = "s1") -> WorkflowHandle[Any, Any]:
        """A slice that takes work."""
        handle = await self.make(group, slice_id)
        await self.becomes(slice_id, SliceState.READY)
        return handle

    def slice_of(self, slice_id: str) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(names.slice_workflow(self.name, slice_id))

    async def shown(self, slice_id: str = "s1") -> SliceStatus:
        """What the slice says of itself, if it is over too."""
        return await ask(self.slice_of(slice_id), "status", SliceStatus)

    async def becomes(
        self, slice_id: str, state: SliceState, within: timedelta = HOUR
    ) -> SliceStatus:
        """Let time pass until the slice is in the state."""
        await self.comes_true(lambda: self.is_in(slice_id, state), within)
        return await self.shown(slice_id)

    async def is_in(self, slice_id: str, state: SliceState) -> bool:
        """Whether the slice is in the state."""
        return (await self.shown(slice_id)).state is state

    async def look(self, slice_id: str = "s1", *, listed: bool = True) -> None:
        """As the autoscaler does that sees in the platform's list that something has changed."""
        there = self.platform.machines.get(slice_id) if listed else None
        now = await self.now()
        seen = there.observed(now) if there else None
        await self.slice_of(slice_id).signal("cloud_state", CloudState(observation=seen, at=now))

    async def drain(self, slice_id: str = "s1", reason: str = "not wanted", **how: Any) -> None:
        await self.slice_of(slice_id).signal(
            "drain", Drain(slice_id=slice_id, reason=reason, **how)
        )

    # The autoscaler.

    async def scale(
        self, *groups: ScaleGroup, query_slices: bool = False, **settings: Any
    ) -> WorkflowHandle[Any, Any]:
        """As a control plane does with a configuration: the scheduler knows what can be made, and
        the autoscaler begins.
        """
        await self.deliver(Configure(groups=groups))
        settings = {"observe_interval": OBSERVE_INTERVAL} | settings
        await self.client.start_workflow(
            AutoscalerWorkflow.run,
            AutoscalerStart(
                cluster=self.name,
                settings=ScalingSettings(groups=groups, **settings),
                query_slices=query_slices,
            ),
            id=names.autoscaler_workflow(self.name),
            task_queue=names.planner_queue(self.name),
            search_attributes=keywords(
                {names.SA_CLUSTER: self.name, names.SA_KIND: names.KIND_AUTOSCALER}
            ),
        )
        return self.autoscaler

    async def configure(self, *groups: ScaleGroup, **settings: Any) -> None:
        """Another configuration."""
        await self.deliver(Configure(groups=groups))
        await self.autoscaler.signal("configure", ScalingSettings(groups=groups, **settings))

    async def scaling(self) -> AutoscalerStatus:
        return await ask(self.autoscaler, "status", AutoscalerStatus)

    async def in_state(self, *states: SliceState) -> list[str]:
        """The slices that the autoscaler knows in one of these states; READY if none is named."""
        wanted = states or (SliceState.READY,)
        return sorted(each.id for each in (await self.scaling()).slices if each.state in wanted)

    async def has(self, count: int, *states: SliceState) -> bool:
        """Whether it knows so many slices in one of these states."""
        return len(await self.in_state(*states)) == count

    # Tenants.

    async def tenant(self, request: Request | None = None, **asked: Any) -> Tenant:
        """A gang of one that wants a host, or what the request says."""
        key = f"tenant-{next(_TENANTS)}"
        base = request or a_request(key, **asked)
        tenant = Tenant(
            base.model_copy(
                update={"key": key, "owner": TENANT + key, "submitted_at": await self.now()}
            )
        )
        self.notifier.tenants[key] = tenant
        answer = await self.tells(Ask(request=tenant.request))
        tenant.placement, tenant.refusal = answer.placement or tenant.placement, answer.refusal
        return tenant

    async def tenant_gang(self, tasks: int = 4, **asked: Any) -> Tenant:
        """One that wants whole slices."""
        return await self.tenant(a_gang(tasks=tasks, **asked))

    async def leaves(self, tenant: Tenant) -> None:
        """It has ended."""
        await self.tells(Release(key=tenant.request.key, ran=True))

    async def tells(self, message: Message) -> Any:
        """Say something to the scheduler as a workflow does."""
        async with asyncio.timeout(PATIENCE.total_seconds()):
            return await self.outbox.exchange(Envelope(message=message))

    # The end.

    async def audit(self) -> None:
        """What was made is deleted or there; what is there is looked after; and nobody looks after
        what is not there.

        Raises:
            AssertionError: something is left over.
        """
        self.platform.check()
        # A slice may begin or end during the look: a machine that is there before and after it had
        # its workflow throughout.
        before = self._machines()
        self.lister.heard_of_slices([*before, *self.platform.created])
        prefix = names.slice_workflow(self.name, "")
        owned = {each.id.removeprefix(prefix) for each in await self.lister.running()}
        unowned = before & self._machines() - owned
        assert not unowned, f"nobody looks after {sorted(unowned)}"
        await self._audit_uses()

    async def _audit_uses(self) -> None:
        """Each slice whose workflow has ended has a record of its life, which includes that of its
        machines in the platform's own audit log.

        Raises:
            AssertionError: a record is wrong.
            TimeoutError: a record is missing.
        """
        ended = {slice_id for slice_id in self._slices() if await self._has_ended(slice_id)}
        await self.until(lambda: ended <= self.uses.slices.keys())
        for slice_id, use in self.uses.slices.items():
            lived = self.platform.lived(slice_id)
            assert all(use.requested_at <= at <= use.gone_at for at in lived), use

    def _slices(self) -> list[str]:
        """The slices of this cluster that have ever had a workflow, as far as it was heard of."""
        prefix = names.slice_workflow(self.name, "")
        return [each.removeprefix(prefix) for each in self.lister.ever if each.startswith(prefix)]

    async def _has_ended(self, slice_id: str) -> bool:
        """Whether the slice's workflow has ended, and was not terminated."""
        try:
            described = await self.slice_of(slice_id).describe()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return False
        return described.status in (
            WorkflowExecutionStatus.COMPLETED,
            WorkflowExecutionStatus.CANCELED,
        )

    def _machines(self) -> set[str]:
        """The slices of this cluster that have machines."""
        there = self.platform.machines.items()
        return {
            slice_id
            for slice_id, each in there
            if each.request.cluster == self.name and not each.manual
        }

    async def replay(self) -> None:
        """A control plane that has nothing in memory comes to where this one is: with the slices,
        and with the autoscaler.

        Raises:
            NondeterminismError: it decides otherwise.
        """
        replayer = Replayer(workflows=[SliceWorkflow, AutoscalerWorkflow], plugins=[IrisPlugin()])
        for workflow_id in sorted({self.autoscaler.id, *self.lister.ever}):
            with contextlib.suppress(RPCError):  # there has never been any
                await replayer.replay_workflow(
                    await self.client.get_workflow_handle(workflow_id).fetch_history()
                )


class Forgetful(FleetCluster):
    """As if the control plane died again and again: it remembers one workflow at a time, and what
    any other one does next is done by one that has nothing of it in memory. (With none at all the
    SDK loses tasks now and then.)
    """

    async def _work(self, queue: str, **settings: Any) -> None:
        forgets = {"max_cached_workflows": 1} if queue == names.control_queue(self.name) else {}
        await super()._work(queue, **forgets | settings)
