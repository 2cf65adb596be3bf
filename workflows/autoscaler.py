"""The autoscaler: one workflow per cluster that watches the fleet and decides how many slices each scale group has.

It does nothing itself. Looks at the fleet find out what has changed, and the slices concerned are told (`_watch`). Whenever
something has changed, or is due, it asks the scheduler what is wanted, plans (`iris.scaling`), and starts a slice's workflow or
tells one to go (`_evaluate`). Both go on side by side: a cloud that is slow to list its machines holds up no decision.
"""

import asyncio
import contextlib
from collections import deque
from datetime import datetime

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from iris import availability, details, names, scaling
from iris.activities.fleet import Fleet
from iris.activities.rollcall import RollCall
from iris.liveness import LOOK_AGAIN, LOOK_EVERY, Silent, judge
from iris.machines import MachineState, SliceObservation, SliceRequest
from iris.scale_groups import ScaleGroup, unknown_group
from iris.scale_plan import Action, Drain, Outlook, ScalePlan, Verdict, Wanted
from iris.slices import LIVE, SliceFacts, SliceState
from iris.workflows import policies
from iris.workflows.fleet_messages import (
    AutoscalerStart,
    AutoscalerStatus,
    CloseDown,
    CloudState,
    FleetReport,
    Look,
    PauseScaling,
    ScalingSettings,
    Unowned,
)
from iris.workflows.known_slices import KnownSlices
from iris.workflows.messages import Batch, ClusterRef, HostLost, Message, Outlooks


@workflow.defn
class AutoscalerWorkflow:
    @workflow.init
    def __init__(self, start: AutoscalerStart) -> None:
        self._cluster = start.cluster
        self._suspects = list(start.suspects)
        self._settings = start.settings
        self._slices = KnownSlices(start.cluster, start.slices, start.strays)
        self._memory = start.memory
        self._unowned: dict[str, Unowned] = {each.observation.slice_id: each for each in start.unowned}
        self._outlooks: tuple[Outlook, ...] = start.outlooks
        self._paused, self._closing = start.paused, start.closing
        #: What slices have said and has not been learned from.
        self._news: deque[SliceFacts] = deque()
        #: Slices have said something; somebody waits, or has given an order.
        self._changed, self._urgent = False, True
        self._verdicts: tuple[Verdict, ...] = ()
        self._evaluated_at: datetime | None = None
        self._next_at: datetime | None = None
        #: The number of the last report of the fleet, and how many looks there were since the last census.
        self._heard = self._looks = 0
        self._unreachable: dict[str, str] = {}
        self._watching: asyncio.Task[None] | None = None

    @workflow.run
    async def run(self, start: AutoscalerStart) -> None:
        if start.gather:
            await self._gather()
        self._watching = asyncio.create_task(self._watch())
        while not self._ends():
            await self._wait()
            if self._settings is not None and not self._ends():
                await self._evaluate(self._settings)
        if self._watching.done():
            self._watching.result()
        self._watching.cancel()
        self._learn()
        workflow.continue_as_new(
            AutoscalerStart(
                cluster=self._cluster,
                suspects=tuple(self._suspects),
                settings=self._settings,
                slices=self._slices.facts,
                strays=self._slices.strays,
                memory=self._memory,
                unowned=tuple(self._unowned.values()),
                outlooks=self._outlooks,
                paused=self._paused,
                closing=self._closing,
            )
        )

    def _ends(self) -> bool:
        """Whether this run does: the watch ends by itself, between two looks; with groups to decide on that may be too late."""
        assert self._watching is not None
        suggested = workflow.info().is_continue_as_new_suggested()
        return self._watching.done() or (suggested and self._settings is not None)

    async def _wait(self) -> None:
        """Until something has changed or is due."""
        due = self._next_at
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: ((self._changed or self._urgent) and self._settings is not None) or self._ends(),
                timeout=max(policies.MOMENT, due - workflow.now()) if due else None,
            )

    # Signals and queries. Handlers only record and wake.

    @workflow.signal(description="Something else waits for hosts than before; what, is asked")
    def demand(self) -> None:
        self._urgent = True

    @workflow.signal(description="A slice came into another state, or was not given back")
    def slice_changed(self, facts: SliceFacts) -> None:
        self._news.append(facts)
        self._changed = True

    @workflow.signal(description="The cluster's configuration")
    def configure(self, settings: ScalingSettings) -> None:
        self._memory = availability.reconfigured(self._memory, self._settings.groups if self._settings else (), settings.groups)
        self._settings = settings
        self._closing = None
        self._urgent = True

    @workflow.signal(description="Neither ask for slices nor give any back")
    def pause(self, pause: PauseScaling) -> None:
        self._paused = pause.reason
        self._urgent = True

    @workflow.signal(description="Ask for slices and give them back again")
    def resume(self) -> None:
        self._paused = None
        self._urgent = True

    @workflow.signal(description="Give all slices back: the cluster is being stopped")
    def close_down(self, close: CloseDown) -> None:
        self._closing = close
        self._urgent = True

    @workflow.query(description="Scale groups, slices, what was done last and why")
    def status(self) -> AutoscalerStatus:
        return AutoscalerStatus(
            groups=self._verdicts,
            slices=self._slices.with_news(self._news),
            actions=self._memory.actions,
            outlooks=self._outlooks,
            evaluated_at=self._evaluated_at,
            next_at=self._next_at,
            paused=self._paused,
            closing=self._closing.reason if self._closing is not None else None,
            unreachable=self._unreachable,
            unowned=tuple(each.observation for each in self._unowned.values()),
            settings=self._settings,
        )

    # Deciding.

    async def _evaluate(self, settings: ScalingSettings) -> None:
        if self._changed and not self._urgent:
            # A storm of preemptions arrives slice by slice: it is answered as one.
            await workflow.sleep(min(policies.EVALUATE_EVERY, settings.evaluation_interval))
        self._changed = self._urgent = False
        wanted = await self._ask_wanted()
        self._learn()
        if self._closing is not None:
            await asyncio.gather(*(self._slices.drain(drain) for drain in self._slices.all_of_them(self._closing)))
        if wanted is not None:
            await self._carry_out(
                settings, scaling.plan(settings.groups, self._slices.as_they_will_be, wanted, self._memory, wanted.as_of), wanted
            )
        else:
            self._urgent = True  # the scheduler does not answer: nothing can be decided, and it is asked again
        self._describe()
        # What happens meanwhile is evaluated together. Always, not only if it is too soon: no decision may hang on the clock.
        await workflow.sleep(min(policies.EVALUATE_EVERY, settings.evaluation_interval))

    async def _ask_wanted(self) -> Wanted | None:
        try:
            return await workflow.execute_activity_method(
                Fleet.ask_wanted,
                ClusterRef(cluster=self._cluster),
                task_queue=names.control_queue(self._cluster),
                start_to_close_timeout=policies.ASK,
                retry_policy=policies.A_FEW_TIMES,
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            return None

    async def _carry_out(self, settings: ScalingSettings, plan: ScalePlan, wanted: Wanted) -> None:
        """Do what the plan says; a cluster that is paused or closes down has only its reasons."""
        self._verdicts, self._evaluated_at = plan.verdicts, wanted.as_of
        if self._closing is not None or self._paused is not None:
            self._next_at = None
        else:
            self._memory, self._next_at = plan.memory, plan.next_at
            made = await asyncio.gather(*(self._slices.create(settings, create, wanted.as_of) for create in plan.creates))
            self._memory = availability.named(self._memory, made)
            await asyncio.gather(*(self._slices.drain(drain) for drain in plan.drains))
        if plan.outlooks != self._outlooks or (plan.outlooks and not wanted.informed):
            self._outlooks = plan.outlooks
            await self._tell_scheduler(Outlooks(outlooks=plan.outlooks))

    def _learn(self) -> None:
        """What slices have said since the last evaluation."""
        while self._news:
            facts = self._news.popleft()
            before = self._slices.known.get(facts.id)
            breaks = workflow.patched("breaker")
            group = self._group(facts.group)
            self._memory = availability.learn(self._memory, group, facts, before, facts.changed_at, breaks=breaks)
            self._slices.heard(facts)

    def _group(self, name: str) -> ScaleGroup | None:
        groups = self._settings.groups if self._settings is not None else ()
        return next((group for group in groups if group.name == name), None)

    async def _tell_scheduler(self, message: Message) -> bool:
        """Whether there was one to be told."""
        scheduler = workflow.get_external_workflow_handle(names.scheduler_workflow(self._cluster))
        try:
            await scheduler.signal("deliver", Batch(messages=(message,)))
        except ApplicationError:
            return False
        return True

    # Watching.

    async def _watch(self) -> None:
        """Look at hosts and machines at regular times, and tell the slices concerned."""
        while not workflow.info().is_continue_as_new_suggested():
            self._looks += 1
            report = await workflow.execute_activity_method(
                Fleet.observe_fleet,
                Look(
                    cluster=self._cluster,
                    heard=self._heard,
                    machines=self._settings is not None,
                    census=self._settings is not None and self._looks % policies.CENSUS_EVERY == 0,
                ),
                task_queue=names.control_queue(self._cluster),
                start_to_close_timeout=policies.OBSERVE,
                retry_policy=policies.UNTIL_DONE,
            )
            self._suspects, lost = judge(self._suspects, report.silent)
            for host in lost:
                await self._tell_lost(host)
            await self._heed(report)
            self._describe()
            every = LOOK_EVERY if self._settings is None else self._settings.observe_interval
            await workflow.sleep(LOOK_AGAIN if self._suspects else every)

    async def _tell_lost(self, host: Silent) -> None:
        news = HostLost(host_id=host.host_id, incarnation=host.incarnation, reason=host.reason)
        if not await self._slices.tell(host.slice_id, "host_lost", news):
            await self._tell_scheduler(news)  # which the slice cannot have done

    async def _heed(self, report: FleetReport) -> None:
        """What the platform's list says, for the slices that it is about."""
        self._heard, self._unreachable = report.number, report.unreachable
        self._learn()
        coming = {facts.id: facts for facts in self._slices.facts if facts.state in (SliceState.REQUESTED, *LIVE)}
        news: dict[str, SliceObservation | None] = {
            each.slice_id: each for each in report.changed if each.slice_id in coming and _is_news(each, coming[each.slice_id])
        }
        live = {slice_id: facts for slice_id, facts in coming.items() if facts.state in LIVE}
        gone = (each for each in report.absent if each in live and live[each].zone not in report.unreachable)
        news.update(dict.fromkeys(gone))
        await asyncio.gather(
            *(self._slices.tell(slice_id, "cloud_state", CloudState(observation=each)) for slice_id, each in news.items())
        )
        await self._look_after(report)
        if report.owned is not None and report.at is not None:
            settled = report.at - policies.LIST_LAG
            missing = set(self._slices.known) - set(report.owned) - self._slices.strays.keys()
            lost = sorted(each for each in missing if self._slices.known[each].changed_at < settled)
            unheard = sorted(set(report.owned) - self._slices.known.keys())
            await asyncio.gather(*(self._slices.tell(slice_id, "report") for slice_id in (*lost, *unheard)))

    async def _look_after(self, report: FleetReport) -> None:
        """Machines that nobody looks after, look after look, get a workflow: it waits for their agents, or gives them back."""
        before = self._unowned
        self._unowned = {
            each.slice_id: Unowned(observation=each, looks=before[each.slice_id].looks + 1 if each.slice_id in before else 1)
            for each in report.unowned
        }
        if self._slices.forget_strays(self._unowned, report.unreachable):
            self._changed = True
        for slice_id, each in list(self._unowned.items()):
            if each.looks >= policies.ORPHAN_LOOKS:
                await self._adopt(each.observation)
                del self._unowned[slice_id]

    async def _adopt(self, found: SliceObservation) -> None:
        reason = "found without a workflow" + ("" if found.token else ", and of no use: its agents cannot say whose they are")
        request = SliceRequest(
            slice_id=found.slice_id,
            cluster=self._cluster,
            zone=found.zone,
            token=found.token,
            # One that the configuration no longer has is given back by the next plan, when what runs there has ended.
            group=self._group(found.group) or unknown_group(found.group, found.zone, found.hosts),
        )
        if await self._slices.start(request, reason, workflow.now(), adopted=True):
            action = Action(at=workflow.now(), group=found.group, what="adopted", slice_id=found.slice_id, reason=reason)
            self._memory = availability.record(self._memory, action)
            if not found.token:
                await self._slices.drain(Drain(slice_id=found.slice_id, reason=reason, deadline=workflow.now()))
            self._changed = True

    async def _gather(self) -> None:
        """Ask the slices there are where they are: the autoscaler before this one may have been terminated."""
        found = await workflow.execute_activity_method(
            RollCall.list_slices,
            ClusterRef(cluster=self._cluster),
            task_queue=names.control_queue(self._cluster),
            start_to_close_timeout=policies.CALL_ROLL,
            heartbeat_timeout=policies.OBSERVE,
            retry_policy=policies.UNTIL_DONE,
        )
        self._slices.gathered(found.slices)

    # Showing.

    def _describe(self) -> None:
        notes = [f"{host.reason}; looked at again" for host in self._suspects]
        notes += [f"**Paused**: {self._paused}"] if self._paused is not None else []
        notes += [f"**Closing down**: {self._closing.reason}"] if self._closing is not None else []
        notes += [f"Zone {zone} could not be listed: {reason}" for zone, reason in self._unreachable.items()]
        workflow.set_current_details(details.autoscaler_details(self._verdicts, self._memory.actions, notes))


def _is_news(seen: SliceObservation, known: SliceFacts) -> bool:
    """Whether a slice of which this is known does not know it yet."""
    if seen.state is MachineState.ACTIVE:
        return known.state in (SliceState.REQUESTED, SliceState.PROVISIONING) or known.repair_until is not None
    return seen.state is not MachineState.CREATING
