"""Defines the autoscaler: one workflow per cluster that observes the fleet and decides how many
slices each scale group has.

The autoscaler itself creates and deletes no machine: the workflow of each slice does. Two loops run
side by side, so that a platform that lists its machines slowly delays no decision:

- `_watch` observes the fleet and signals the changes to the slices concerned.
- `_evaluate` runs when something has changed or is due. It asks the scheduler for the demand, plans
  (`iris.autoscaling.plan`), and starts the workflow of a new slice or signals `drain` to a slice.
"""

import asyncio
import contextlib
from collections import deque
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from iris.activities.control.observe import FleetObserver
from iris.activities.control.recovery import RecoveryQueries
from iris.autoscaling import failure_memory, missing_hosts, plan
from iris.autoscaling.liveness import HELD, OBSERVE_INTERVAL, Silent, lost_hosts, next_observation
from iris.messages.autoscaler import (
    AutoscalerStart,
    AutoscalerStatus,
    CloseDown,
    FleetReport,
    PauseScaling,
    ScalingSettings,
    Unowned,
)
from iris.messages.scheduler import Batch, Message, Outlooks, SliceEnded
from iris.messages.slice import CloudState
from iris.messages.wire import ClusterName, HostLost
from iris.model import names
from iris.model.slice.provisioning import MachineState, SliceObservation, SliceRequest
from iris.model.slice.scale_groups import ScaleGroup, unknown_group
from iris.model.slice.scaling import Action, Drain, GroupStatus, Outlook, ScalePlan, Wanted
from iris.model.slice.status import LIVE, SliceFacts, SliceState
from iris.usage.slices import slice_use
from iris.workflows import policies, web_ui
from iris.workflows.autoscaler.observations import Observations
from iris.workflows.signals import send_signal
from iris.workflows.slices.slice_registry import SliceRegistry


@workflow.defn
class AutoscalerWorkflow:
    @workflow.init
    def __init__(self, start: AutoscalerStart) -> None:
        self._cluster = start.cluster
        self._suspects = list(start.suspects)
        self._settings = start.settings
        self._slices = SliceRegistry(start.cluster, start.slices, start.strays)
        self._memory = start.memory
        self._unowned: dict[str, Unowned] = {
            each.observation.slice_id: each for each in start.unowned
        }
        self._missing = start.missing
        self._outlooks: tuple[Outlook, ...] = start.outlooks
        self._paused, self._closing = start.paused, start.closing
        #: The facts that slices have signalled and that `_apply_facts` has not processed yet.
        self._reported_facts: deque[SliceFacts] = deque()
        #: Whether an evaluation is due. `_changed` is set when a slice reports a change. `_urgent`
        #: is set when the demand changes or an operator sends a command: that evaluation is not
        #: delayed.
        self._changed, self._urgent = False, True
        self._group_statuses: tuple[GroupStatus, ...] = ()
        self._evaluated_at: datetime | None = None
        self._next_at: datetime | None = None
        self._fleet = Observations(start.cluster)
        self._watching: asyncio.Task[None] | None = None

    @workflow.run
    async def run(self, start: AutoscalerStart) -> None:
        if start.query_slices:
            await self._query_slices()
        self._watching = asyncio.create_task(self._watch())
        while not self._ends():
            await self._wait()
            if self._settings is not None and not self._ends():
                await self._evaluate(self._settings)
        if self._watching.done():
            self._watching.result()
        self._watching.cancel()
        self._apply_facts()
        workflow.continue_as_new(
            AutoscalerStart(
                cluster=self._cluster,
                suspects=tuple(self._suspects),
                settings=self._settings,
                slices=self._slices.facts,
                strays=self._slices.strays,
                memory=self._memory,
                unowned=tuple(self._unowned.values()),
                missing=self._missing,
                outlooks=self._outlooks,
                paused=self._paused,
                closing=self._closing,
            )
        )

    def _ends(self) -> bool:
        """Returns whether this run continues as new now.

        The loop `_watch` ends by itself between two observations. With scale groups, the history
        may grow too much until then.
        """
        assert self._watching is not None
        suggested = workflow.info().is_continue_as_new_suggested()
        return self._watching.done() or (suggested and self._settings is not None)

    async def _wait(self) -> None:
        """Waits until something has changed or is due."""
        due = self._next_at
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: (
                    ((self._changed or self._urgent) and self._settings is not None) or self._ends()
                ),
                timeout=max(policies.MOMENT, due - workflow.now()) if due else None,
            )

    # Signals and queries. Handlers only record the change and wake the loop.

    @workflow.signal(description="The demand has changed")
    def demand(self) -> None:
        self._urgent = True

    @workflow.signal(description="A slice has changed its state, or was not deleted")
    def slice_changed(self, facts: SliceFacts) -> None:
        self._reported_facts.append(facts)
        self._changed = True

    @workflow.signal(description="The cluster's configuration")
    def configure(self, settings: ScalingSettings) -> None:
        self._memory = failure_memory.reconfigured(
            self._memory, self._settings.groups if self._settings else (), settings.groups
        )
        self._settings = settings
        self._closing = None
        self._urgent = True

    @workflow.signal(description="Stop requesting and deleting slices")
    def pause(self, pause: PauseScaling) -> None:
        self._paused = pause.reason
        self._urgent = True

    @workflow.signal(description="Request and delete slices again")
    def resume(self) -> None:
        self._paused = None
        self._urgent = True

    @workflow.signal(description="Delete all slices: the cluster is being stopped")
    def close_down(self, close: CloseDown) -> None:
        self._closing = close
        self._urgent = True

    @workflow.query(description="Scale groups, slices, and the last actions with their reasons")
    def status(self) -> AutoscalerStatus:
        return AutoscalerStatus(
            groups=self._group_statuses,
            slices=self._slices.latest(self._reported_facts),
            actions=self._memory.actions,
            outlooks=self._outlooks,
            evaluated_at=self._evaluated_at,
            next_at=self._next_at,
            paused=self._paused,
            closing=self._closing.reason if self._closing is not None else None,
            unreachable=self._fleet.unreachable,
            unowned=tuple(each.observation for each in self._unowned.values()),
            stocked_out=self._memory.stocked_out,
            used_up=self._memory.used_up,
            held_hosts=self._fleet.held,
            missing=tuple(each for each in self._missing if each.is_alarm),
            settings=self._settings,
        )

    # Decisions.

    async def _evaluate(self, settings: ScalingSettings) -> None:
        if self._changed and not self._urgent:
            # If many slices are preempted, each reports that by itself. Evaluate them together.
            await workflow.sleep(min(policies.EVALUATE_EVERY, settings.evaluation_interval))
            settings = self._settings or settings
        self._changed = self._urgent = False
        wanted = await self._query_demand()
        self._apply_facts()
        if self._closing is not None:
            await asyncio.gather(
                *(self._slices.drain(drain) for drain in self._slices.close_down(self._closing))
            )
        if wanted is not None:
            made = plan.plan(
                settings.groups, self._slices.expected, wanted, self._memory, wanted.as_of
            )
            await self._carry_out(settings, made, wanted)
        else:
            self._urgent = True  # the scheduler did not answer: decide nothing, and query it again
        self._describe()
        # Changes during this time are evaluated together. The sleep is unconditional, because no
        # decision may depend on the clock.
        await workflow.sleep(min(policies.EVALUATE_EVERY, settings.evaluation_interval))

    async def _query_demand(self) -> Wanted | None:
        try:
            return await workflow.execute_activity_method(
                FleetObserver.query_wanted,
                ClusterName(cluster=self._cluster),
                task_queue=names.control_queue(self._cluster),
                start_to_close_timeout=policies.QUERY_DEMAND,
                retry_policy=policies.A_FEW_TIMES,
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            return None

    async def _carry_out(self, settings: ScalingSettings, plan: ScalePlan, wanted: Wanted) -> None:
        """Creates and drains the slices of the plan, and sends changed outlooks to the scheduler.

        While the cluster is paused or closes down, no slice is created or drained. The plan only
        gives the reasons to show.
        """
        self._group_statuses, self._evaluated_at = plan.groups, wanted.as_of
        if self._closing is not None or self._paused is not None:
            self._next_at = None
        else:
            self._memory, self._next_at = plan.memory, plan.next_at
            made = await asyncio.gather(
                *(self._slices.create(settings, create, wanted.as_of) for create in plan.creates)
            )
            self._memory = failure_memory.named(self._memory, made)
            await asyncio.gather(*(self._slices.drain(drain) for drain in plan.drains))
        if plan.has_news(self._outlooks, wanted):
            self._outlooks = plan.outlooks
            await self._signal_scheduler(Outlooks(outlooks=plan.outlooks))

    def _apply_facts(self) -> None:
        """Records the facts that slices have signalled since the last call."""
        while self._reported_facts:
            facts = self._reported_facts.popleft()
            group = self._group(facts.group)
            self._memory = self._slices.learn(self._memory, group, facts)

    def _group(self, name: str) -> ScaleGroup | None:
        groups = self._settings.groups if self._settings is not None else ()
        return next((group for group in groups if group.name == name), None)

    async def _signal_scheduler(self, message: Message) -> bool:
        """Sends a message to the scheduler. Returns False if no scheduler runs."""
        scheduler = workflow.get_external_workflow_handle(names.scheduler_workflow(self._cluster))
        return await send_signal(scheduler, "deliver", Batch(messages=(message,)))

    # Observation.

    async def _watch(self) -> None:
        """Observes hosts and machines at regular intervals, and signals changes to the slices
        concerned.
        """
        while not workflow.info().is_continue_as_new_suggested():
            report = await self._observe()
            if report is None:
                continue
            self._suspects, lost = lost_hosts(self._suspects, report.silent)
            for host in lost:
                await self._report_lost(host)
            await self._apply_report(report)
            await self._offer_missing(report)
            self._describe()
            await workflow.sleep(next_observation(self._suspects, self._observe_interval))

    async def _observe(self) -> FleetReport | None:
        """Observes the fleet until there is news. Returns None if observations of another kind are
        needed instead.
        """
        interval, machines = self._observe_interval, self._settings is not None
        if not self._is_calm:
            return await self._fleet.observe(machines=machines)
        return await self._fleet.await_news(
            interval,
            machines=machines,
            slices=self._slices.known,
            is_outdated=lambda: (
                (interval, machines) != (self._observe_interval, self._settings is not None)
                or not self._is_calm
                or workflow.info().is_continue_as_new_suggested()
            ),
        )

    @property
    def _observe_interval(self) -> timedelta:
        return OBSERVE_INTERVAL if self._settings is None else self._settings.observe_interval

    @property
    def _is_calm(self) -> bool:
        """Returns whether no decision depends on the number of observations in a row that agree."""
        return not (self._suspects or self._missing or self._unowned or self._slices.strays)

    async def _report_lost(self, host: Silent) -> None:
        news = HostLost(host_id=host.host_id, incarnation=host.incarnation, reason=host.reason)
        if not await self._slices.signal(host.slice_id, "host_lost", news):
            # The slice's workflow is gone and cannot inform the scheduler.
            await self._signal_scheduler(news)

    async def _apply_report(self, report: FleetReport) -> None:
        """Applies a fleet report.

        Signals changes of machines to their slices, and adopts machines without a workflow. After a
        census, it signals `report` to each slice that has lost its workflow or that the autoscaler
        does not know.
        """
        self._apply_facts()
        coming = {
            facts.id: facts
            for facts in self._slices.facts
            if facts.state in (SliceState.REQUESTED, *LIVE)
        }
        ending = {each.id for each in self._slices.facts if each.state is SliceState.FAILED}
        news: dict[str, SliceObservation | None] = {
            each.slice_id: each
            for each in report.changed
            if each.slice_id in coming and _is_new(each, coming[each.slice_id])
        }
        # A slice that lets its tasks end need not wait for them on machines that are switched off.
        news.update(
            (each.slice_id, each)
            for each in report.changed
            if each.stopped and each.slice_id in ending
        )
        live = {slice_id: facts for slice_id, facts in coming.items() if facts.state in LIVE}
        gone = (
            each
            for each in report.absent
            if each in live and live[each].zone not in report.unreachable
        )
        news.update(dict.fromkeys(gone))
        seen_at = report.at or workflow.now()
        await asyncio.gather(
            *(
                self._slices.signal(
                    slice_id, "cloud_state", CloudState(observation=each, at=seen_at)
                )
                for slice_id, each in news.items()
            )
        )
        await self._adopt_unowned(report)
        if report.owned is not None and report.at is not None:
            settled = report.at - policies.LIST_LAG
            missing = set(self._slices.known) - set(report.owned) - self._slices.strays.keys()
            lost = sorted(each for each in missing if self._slices.known[each].changed_at < settled)
            unknown = sorted(set(report.owned) - self._slices.known.keys())
            await asyncio.gather(
                *(self._slices.signal(slice_id, "report") for slice_id in (*lost, *unknown))
            )

    async def _offer_missing(self, report: FleetReport) -> None:
        """Signals the slices of hosts that the ledger does not have to offer their hosts again."""
        if report.missing is not None:
            self._missing = missing_hosts.still_missing(
                self._missing, report.missing, workflow.now()
            )
            slices = sorted({each.slice_id for each in self._missing if each.is_alarm})
            await asyncio.gather(
                *(self._slices.signal(slice_id, "offer_hosts") for slice_id in slices)
            )

    async def _adopt_unowned(self, report: FleetReport) -> None:
        """Starts a workflow for each slice of machines that had none in
        `policies.ORPHAN_OBSERVATIONS` observations in a row.

        The workflow waits for the agents, or deletes the machines.
        """
        before = self._unowned
        self._unowned = {
            each.slice_id: Unowned(
                observation=each,
                looks=before[each.slice_id].looks + 1 if each.slice_id in before else 1,
            )
            for each in report.unowned
        }
        for facts in self._slices.forget_deleted_strays(self._unowned, report.unreachable):
            self._changed = True
            # The workflow of the slice was terminated, and so cannot report its life.
            use = slice_use(facts, report.at or workflow.now(), self._group(facts.group))
            await self._signal_scheduler(SliceEnded(use=use))
        for slice_id, each in list(self._unowned.items()):
            if each.looks >= policies.ORPHAN_OBSERVATIONS:
                await self._adopt(each.observation)
                del self._unowned[slice_id]

    async def _adopt(self, found: SliceObservation) -> None:
        useless = (
            " and without a token, so its agents cannot identify themselves"
            if not found.token
            else ""
        )
        reason = f"found without a workflow{useless}"
        request = SliceRequest(
            slice_id=found.slice_id,
            cluster=self._cluster,
            zone=found.zone,
            token=found.token,
            # If the configuration no longer has the group, a later plan drains the slice when its
            # tasks have ended.
            group=self._group(found.group) or unknown_group(found.group, found.zone, found.hosts),
        )
        if await self._slices.start(request, reason, workflow.now(), adopted=found):
            action = Action(
                at=workflow.now(),
                group=found.group,
                what="adopted",
                slice_id=found.slice_id,
                reason=reason,
            )
            self._memory = failure_memory.record(self._memory, action)
            if not found.token:
                await self._slices.drain(
                    Drain(slice_id=found.slice_id, reason=reason, deadline=workflow.now())
                )
            self._changed = True

    async def _query_slices(self) -> None:
        """Queries the running slices for their facts. A new autoscaler has none."""
        found = await workflow.execute_activity_method(
            RecoveryQueries.list_slices,
            ClusterName(cluster=self._cluster),
            task_queue=names.control_queue(self._cluster),
            start_to_close_timeout=policies.RECOVERY_QUERIES,
            heartbeat_timeout=policies.OBSERVE,
            retry_policy=policies.UNTIL_DONE,
        )
        self._slices.add_queried(found.slices)

    # Display.

    def _describe(self) -> None:
        escaped, created = web_ui.escaped, self._slices.known
        notes = [f"{escaped(host.reason)}; checked again soon" for host in self._suspects]
        notes += [f"**{HELD.format(self._fleet.held)}**"] if self._fleet.held else []
        notes += [
            f"**{escaped(each.problem(created))}**"
            for each in self._missing[: web_ui.SHOWN]
            if each.is_alarm
        ]
        notes += [f"**Paused**: {escaped(self._paused)}"] if self._paused is not None else []
        notes += (
            [f"**Closing down**: {escaped(self._closing.reason)}"]
            if self._closing is not None
            else []
        )
        unlisted = ((escaped(zone), escaped(why)) for zone, why in self._fleet.unreachable.items())
        notes += [
            f"The machines in zone {zone} could not be listed: {why}" for zone, why in unlisted
        ]
        workflow.set_current_details(
            web_ui.autoscaler_details(self._group_statuses, self._memory.actions, notes)
        )


def _is_new(seen: SliceObservation, known: SliceFacts) -> bool:
    """Returns whether the observation is news for a slice with these facts."""
    if seen.state is MachineState.ACTIVE:
        return (
            known.state in (SliceState.REQUESTED, SliceState.PROVISIONING)
            or known.repair_until is not None
        )
    return seen.state is not MachineState.CREATING
