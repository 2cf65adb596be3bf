"""Starts and signals the workflows of the autoscaler's slices, and keeps the facts that they
report.
"""

from collections.abc import Container, Iterable, Mapping
from datetime import datetime

from temporalio import workflow
from temporalio.exceptions import WorkflowAlreadyStartedError

from iris.messages.autoscaler import CloseDown, ScalingSettings
from iris.messages.slice import SliceInput
from iris.model import names
from iris.model.slice.provisioning import ANYWHERE, SliceObservation, SliceRequest
from iris.model.slice.scaling import Create, Drain
from iris.model.slice.status import SliceFacts, SliceState
from iris.planners.known_slices import KnownSlices, slice_input
from iris.workflows import policies
from iris.workflows.search_attributes import keywords
from iris.workflows.signals import send_signal
from iris.workflows.slices.slice import SliceWorkflow


class SliceRegistry(KnownSlices):
    """The known slices. Starts the workflows of slices, and sends them signals."""

    def __init__(
        self, cluster: str, facts: Iterable[SliceFacts], strays: Mapping[str, int]
    ) -> None:
        super().__init__(facts)
        self._cluster = cluster
        #: The slices whose workflow was terminated, with the number of observations in a row that
        #: did not find their machines. Such a slice counts as existing until its machines are known
        #: to be deleted.
        self.strays = dict(strays)
        #: The slices that `close_down` has already drained because the cluster closes down. It
        #: drains each slice only once.
        self._closed: set[str] = set()

    def latest(self, reported: Iterable[SliceFacts]) -> tuple[SliceFacts, ...]:
        """Returns the facts of all slices, together with reports that `update` has not recorded."""
        latest = {**self.known, **{each.id: each for each in reported}}
        return tuple(each for each in latest.values() if each.state is not SliceState.DELETED)

    def update(self, facts: SliceFacts) -> None:
        """Records the facts that a slice reports."""
        super().update(facts)
        self.strays.pop(facts.id, None)

    def add_queried(self, found: Iterable[SliceFacts]) -> None:
        """Records the results of queries. Facts that slices have already reported are newer."""
        self.known = {**{each.id: each for each in found}, **self.known}

    async def create(self, settings: ScalingSettings, create: Create, now: datetime) -> str:
        """Starts the workflow of a new slice, under an id that was never used. Returns the id."""
        group = next(each for each in settings.groups if each.name == create.group)
        slice_id = names.slice_id(settings.prefix, group.name, workflow.uuid4().hex[:8])
        request = SliceRequest(
            slice_id=slice_id,
            cluster=self._cluster,
            zone=create.zone,
            token=workflow.uuid4().hex,
            group=group,
        )
        await self.start(request, create.reason, now)
        return slice_id

    async def start(
        self,
        request: SliceRequest,
        reason: str,
        now: datetime,
        *,
        adopted: SliceObservation | None = None,
    ) -> bool:
        """Starts a slice's workflow. Returns False if the slice already has one.

        Args:
            adopted: the slice's machines, if they were found without a workflow; None for a slice
                whose machines have to be requested.
        """
        slice_id = request.slice_id
        before = self.known.get(slice_id)
        start = slice_input(request, reason, now, before, adopted)
        assert start.facts is not None
        self.known[slice_id] = start.facts
        try:
            await self._start_workflow(start, start.facts)
        except WorkflowAlreadyStartedError:
            self.known.pop(slice_id)
            if before is not None:
                self.known[slice_id] = before
            return False
        self.strays.pop(slice_id, None)
        return True

    async def _start_workflow(self, start: SliceInput, facts: SliceFacts) -> None:
        child = await workflow.start_child_workflow(
            SliceWorkflow.run,
            start,
            id=names.slice_workflow(self._cluster, facts.id),
            task_queue=names.control_queue(self._cluster),
            # The slice outlives this run and the autoscaler.
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            search_attributes=keywords(
                {
                    names.SA_CLUSTER: self._cluster,
                    names.SA_KIND: names.KIND_SLICE,
                    names.SA_STATE: SliceState.REQUESTED,
                    names.SA_GROUP: facts.group,
                }
            ),
            static_summary=f"slice of scale group {facts.group} in {facts.zone}: {facts.reason}",
        )
        # The slice itself reports its end, so an error of its workflow is ignored here.
        child.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    async def drain(self, drain: Drain) -> None:
        """Signals a slice to drain."""
        self.draining.add(drain.slice_id)
        await self.signal(drain.slice_id, "drain", drain)

    def close_down(self, close: CloseDown) -> list[Drain]:
        """Returns the drains for a cluster that closes down: one for each slice that has received
        none yet.
        """
        going = [
            facts.id
            for facts in self.known.values()
            if facts.state not in (SliceState.DELETING, SliceState.FAILED)
            and facts.id not in self._closed
        ]
        self._closed.update(going)
        return [
            Drain(slice_id=slice_id, reason=close.reason, deadline=close.deadline)
            for slice_id in going
        ]

    async def signal(self, slice_id: str, signal: str, *payload: object) -> bool:
        """Signals a slice's workflow. Returns False if the workflow is gone; the slice counts as
        FAILED then.
        """
        handle = workflow.get_external_workflow_handle(
            names.slice_workflow(self._cluster, slice_id)
        )
        if await send_signal(handle, signal, *payload):
            return True
        self.draining.discard(slice_id)
        if slice_id in self.known:
            lost = {
                "state": SliceState.FAILED,
                "changed_at": workflow.now(),
                "reason": "its workflow was terminated",
            }
            self.known[slice_id] = self.known[slice_id].model_copy(update=lost)
            self.strays.setdefault(slice_id, 0)
        return False

    def forget_deleted_strays(
        self, unowned: Container[str], unreachable: Container[str]
    ) -> list[SliceFacts]:
        """Counts the observations that have not found each stray, and forgets and returns strays
        whose machines are deleted.
        """
        gone = []
        for slice_id in self.strays:
            unknown = self.known[slice_id].zone in unreachable or ANYWHERE in unreachable
            if slice_id in unowned:
                self.strays[slice_id] = 0
            elif not unknown:
                self.strays[slice_id] += 1
                if self.strays[slice_id] >= policies.ORPHAN_OBSERVATIONS:
                    gone.append(slice_id)
        for slice_id in gone:
            del self.strays[slice_id]
        return [self.known.pop(slice_id) for slice_id in gone]
