"""Keeps the slices that the autoscaler knows: starts their workflows, signals them, and keeps their facts."""

from collections.abc import Container, Iterable, Mapping
from datetime import datetime

from temporalio import workflow
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

from iris.messages.autoscaler import CloseDown, ScalingSettings
from iris.messages.slice import SliceInput
from iris.model import names
from iris.model.provisioning import ANYWHERE, SliceRequest
from iris.model.scaling import Create, Drain
from iris.model.slices import SliceFacts, SliceState
from iris.workflows import policies
from iris.workflows.search_attributes import keywords
from iris.workflows.slice import SliceWorkflow


class SliceRegistry:
    """The slices that were made and whose machines are not known to be gone."""

    def __init__(self, cluster: str, facts: Iterable[SliceFacts], strays: Mapping[str, int]) -> None:
        self._cluster = cluster
        self.known: dict[str, SliceFacts] = {each.id: each for each in facts}
        #: The slices whose workflow was ended from outside, and how many observations in a row have not found their machines.
        #: Until the machines are known to be gone, such a slice counts as existing.
        self.strays = dict(strays)
        #: The slices that were signalled to drain and have not answered.
        self.told_to_go: set[str] = set()
        self._told_of_the_end: set[str] = set()

    @property
    def facts(self) -> tuple[SliceFacts, ...]:
        return tuple(self.known.values())

    def with_news(self, news: Iterable[SliceFacts]) -> tuple[SliceFacts, ...]:
        """Returns the latest facts of all slices, those that were not entered yet included."""
        latest = {**self.known, **{each.id: each for each in news}}
        return tuple(each for each in latest.values() if each.state is not SliceState.DELETED)

    @property
    def as_they_will_be(self) -> tuple[SliceFacts, ...]:
        """The facts of all slices; one that was signalled to drain counts as DRAINING, though it has not answered yet."""
        going = {"state": SliceState.DRAINING}
        return tuple(
            each.model_copy(update=going) if each.state is SliceState.READY and each.id in self.told_to_go else each
            for each in self.known.values()
        )

    def heard(self, facts: SliceFacts) -> None:
        """Enters the facts that a slice reports."""
        self.told_to_go.discard(facts.id)
        self.strays.pop(facts.id, None)
        if facts.state is SliceState.DELETED:
            self.known.pop(facts.id, None)
        else:
            self.known[facts.id] = facts

    def gathered(self, found: Iterable[SliceFacts]) -> None:
        """Enters the facts that slices returned when they were queried; what they have reported since is newer."""
        self.known = {**{each.id: each for each in found}, **self.known}

    async def create(self, settings: ScalingSettings, create: Create, now: datetime) -> str:
        """Starts the workflow of a new slice, under an id that was never used. Returns the id."""
        group = next(each for each in settings.groups if each.name == create.group)
        slice_id = names.slice_id(settings.prefix, group.name, workflow.uuid4().hex[:8])
        request = SliceRequest(
            slice_id=slice_id, cluster=self._cluster, zone=create.zone, token=workflow.uuid4().hex, group=group
        )
        await self.start(request, create.reason, now)
        return slice_id

    async def start(self, request: SliceRequest, reason: str, now: datetime, *, adopted: bool = False) -> bool:
        """Starts a slice's workflow. Returns False if the slice has one already."""
        slice_id, group, zone = request.slice_id, request.group, request.zone
        facts = SliceFacts(
            id=slice_id,
            group=group.name,
            zone=zone,
            state=SliceState.REQUESTED,
            requested_at=now,
            changed_at=now,
            reason=reason,
        )
        before, self.known[slice_id] = self.known.get(slice_id), facts
        try:
            child = await workflow.start_child_workflow(
                SliceWorkflow.run,
                SliceInput(cluster=self._cluster, id=slice_id, size=group.hosts, request=request, facts=facts, adopted=adopted),
                id=names.slice_workflow(self._cluster, slice_id),
                task_queue=names.control_queue(self._cluster),
                # The slice outlives this run and the autoscaler.
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                search_attributes=keywords(
                    {
                        names.SA_CLUSTER: self._cluster,
                        names.SA_KIND: names.KIND_SLICE,
                        names.SA_STATE: SliceState.REQUESTED,
                        names.SA_GROUP: group.name,
                    }
                ),
                static_summary=f"slice of scale group {group.name} in {zone}: {reason}",
            )
        except WorkflowAlreadyStartedError:
            self.known.pop(slice_id)
            if before is not None:
                self.known[slice_id] = before
            return False
        self.strays.pop(slice_id, None)
        child.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # the slice reports its end itself
        return True

    async def drain(self, drain: Drain) -> None:
        """Signals a slice to drain."""
        self.told_to_go.add(drain.slice_id)
        await self.tell(drain.slice_id, "drain", drain)

    def all_of_them(self, close: CloseDown) -> list[Drain]:
        """Returns the drains for a cluster that closes down: one for every slice, and only once for each."""
        going = [
            facts.id
            for facts in self.known.values()
            if facts.state not in (SliceState.DELETING, SliceState.FAILED) and facts.id not in self._told_of_the_end
        ]
        self._told_of_the_end.update(going)
        deadline = close.deadline or workflow.now()
        return [Drain(slice_id=slice_id, reason=close.reason, deadline=deadline) for slice_id in going]

    async def tell(self, slice_id: str, signal: str, *news: object) -> bool:
        """Signals a slice's workflow. Returns False if the workflow is gone; the slice counts as FAILED then."""
        concerned = workflow.get_external_workflow_handle(names.slice_workflow(self._cluster, slice_id))
        try:
            await concerned.signal(signal, args=news)
        except ApplicationError:
            self.told_to_go.discard(slice_id)
            if slice_id in self.known:
                told = {"state": SliceState.FAILED, "changed_at": workflow.now(), "reason": "its workflow was ended by somebody"}
                self.known[slice_id] = self.known[slice_id].model_copy(update=told)
                self.strays.setdefault(slice_id, 0)
            return False
        return True

    def forget_strays(self, unowned: Container[str], unreachable: Container[str]) -> bool:
        """Counts the strays that an observation has not found, and forgets those whose machines are gone, too.

        Returns whether any was forgotten.
        """
        gone = []
        for slice_id in self.strays:
            unknown = self.known[slice_id].zone in unreachable or ANYWHERE in unreachable
            if slice_id in unowned:
                self.strays[slice_id] = 0
            elif not unknown:
                self.strays[slice_id] += 1
                if self.strays[slice_id] >= policies.ORPHAN_LOOKS:
                    gone.append(slice_id)
        for slice_id in gone:
            del self.strays[slice_id], self.known[slice_id]
        return bool(gone)
