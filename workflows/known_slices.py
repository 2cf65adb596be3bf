"""The slices that the autoscaler knows: starting their workflows, telling them things, and keeping what they say."""

from collections.abc import Container, Iterable, Mapping
from datetime import datetime

from temporalio import workflow
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

from iris import names
from iris.machines import ANYWHERE, SliceRequest
from iris.scale_plan import Create, Drain
from iris.slices import SliceFacts, SliceState
from iris.workflows import policies
from iris.workflows.attributes import keywords
from iris.workflows.fleet_messages import CloseDown, ScalingSettings, SliceInput
from iris.workflows.slice import SliceWorkflow


class KnownSlices:
    """Every slice that was made and whose machines are not known to be gone."""

    def __init__(self, cluster: str, facts: Iterable[SliceFacts], strays: Mapping[str, int]) -> None:
        self._cluster = cluster
        self.known: dict[str, SliceFacts] = {each.id: each for each in facts}
        #: Those whose workflow was ended by somebody. Until their machines are seen to be gone, they count as being there.
        self.strays = dict(strays)
        #: Those that were told to go and have not answered.
        self.told_to_go: set[str] = set()
        self._told_of_the_end: set[str] = set()

    @property
    def facts(self) -> tuple[SliceFacts, ...]:
        return tuple(self.known.values())

    def with_news(self, news: Iterable[SliceFacts]) -> tuple[SliceFacts, ...]:
        """As slices are by what they have said last, whether it was entered or not."""
        latest = {**self.known, **{each.id: each for each in news}}
        return tuple(each for each in latest.values() if each.state is not SliceState.DELETED)

    @property
    def as_they_will_be(self) -> tuple[SliceFacts, ...]:
        """Those that were told to go count as going, though they have not said so yet."""
        going = {"state": SliceState.DRAINING}
        return tuple(
            each.model_copy(update=going) if each.state is SliceState.READY and each.id in self.told_to_go else each
            for each in self.known.values()
        )

    def heard(self, facts: SliceFacts) -> None:
        """What a slice says of itself."""
        self.told_to_go.discard(facts.id)
        self.strays.pop(facts.id, None)
        if facts.state is SliceState.DELETED:
            self.known.pop(facts.id, None)
        else:
            self.known[facts.id] = facts

    def gathered(self, found: Iterable[SliceFacts]) -> None:
        """What slices said when they were asked; what they have said since is newer."""
        self.known = {**{each.id: each for each in found}, **self.known}

    async def create(self, settings: ScalingSettings, create: Create, now: datetime) -> str:
        """Start the workflow of a slice that is wanted, under an id that nothing ever had; the id."""
        group = next(each for each in settings.groups if each.name == create.group)
        slice_id = names.slice_id(settings.prefix, group.name, workflow.uuid4().hex[:8])
        request = SliceRequest(
            slice_id=slice_id, cluster=self._cluster, zone=create.zone, token=workflow.uuid4().hex, group=group
        )
        await self.start(request, create.reason, now)
        return slice_id

    async def start(self, request: SliceRequest, reason: str, now: datetime, *, adopted: bool = False) -> bool:
        """Whether a workflow was started: a slice that has one already looks after itself."""
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
                # It outlives this run, and whatever becomes of the autoscaler.
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
        child.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # it says itself how it ends
        return True

    async def drain(self, drain: Drain) -> None:
        """Tell a slice to go."""
        self.told_to_go.add(drain.slice_id)
        await self.tell(drain.slice_id, "drain", drain)

    def all_of_them(self, close: CloseDown) -> list[Drain]:
        """For a cluster that closes down: every slice has to go, and is told so once."""
        going = [
            facts.id
            for facts in self.known.values()
            if facts.state not in (SliceState.DELETING, SliceState.FAILED) and facts.id not in self._told_of_the_end
        ]
        self._told_of_the_end.update(going)
        deadline = close.deadline or workflow.now()
        return [Drain(slice_id=slice_id, reason=close.reason, deadline=deadline) for slice_id in going]

    async def tell(self, slice_id: str, signal: str, *news: object) -> bool:
        """Whether the slice's workflow was there to be told."""
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
        """After a look: those whose machines are not there any more either are forgotten. Whether there was one."""
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
