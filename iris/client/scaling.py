"""The autoscaler and its slices, as operators see them: what there is and why, pauses, and slices that are to go."""

import asyncio
import difflib
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from pydantic import BaseModel, ConfigDict
from temporalio.client import WorkflowExecution, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from iris import names
from iris.client.asking import reaching
from iris.client.client import IrisClient
from iris.client.configuring import tell_planners
from iris.client.identity import signed
from iris.client.views import attribute
from iris.config import ClusterConfig
from iris.errors import NotFound, Rejected, Unreachable
from iris.scale_plan import Drain
from iris.slices import SliceFacts, SliceState, SliceStatus
from iris.workflows.fleet_messages import AutoscalerStatus, CloseDown, PauseScaling
from iris.workflows.slice import SliceWorkflow

#: Between two looks at slices that are being given back.
LOOK_EVERY = timedelta(seconds=0.2)
#: So many names answer one that is not there.
NEAR = 3
_LEAVING = (SliceState.FAILED, SliceState.DELETING, SliceState.DELETED)


class SliceRow(BaseModel):
    """A slice in a list."""

    model_config = ConfigDict(frozen=True)

    id: str
    state: SliceState
    #: Empty for one that joined by itself.
    group: str = ""
    zone: str = ""
    requested_at: datetime
    reason: str = ""

    @property
    def made(self) -> bool:
        """Whether the autoscaler asked for it; else there is nothing to give back."""
        return bool(self.group)

    @classmethod
    def of(cls, facts: SliceFacts) -> Self:
        """A slice that the autoscaler knows."""
        return cls(**facts.model_dump(include=set(cls.model_fields)))


class FleetClient(IrisClient):
    """One cluster, as its operators see it."""

    async def autoscaler(self) -> AutoscalerStatus:
        """What the autoscaler knows and does.

        Raises:
            Unreachable: no control plane answers, or none was ever there.
        """
        handle = self._client.get_workflow_handle(names.autoscaler_workflow(self.cluster.name))
        return await self._query(handle, "status", None, AutoscalerStatus)

    async def pause_scaling(self, reason: str = "") -> None:
        """Neither ask for slices nor give any back."""
        await self._tell_autoscaler("pause", PauseScaling(reason=signed(reason)))

    async def resume_scaling(self) -> None:
        """Ask for slices and give them back again."""
        await self._tell_autoscaler("resume")

    async def slices(self) -> list[SliceRow]:
        """All slices there are by their ids: those that were made, and those that joined by themselves."""
        known = {facts.id: SliceRow.of(facts) for facts in (await self.autoscaler()).slices}
        return [row for _, row in sorted({**await self._listed(), **known}.items())]

    async def slice(self, named: str) -> SliceStatus:
        """The slice of that id, or the only one whose id begins so; one that has ended while the server remembers it.

        Raises:
            NotFound: there is none, or there are several.
        """
        names.check_name("slice", named)
        live = [row.id for row in await self.slices()]
        try:
            slice_id = the_one(named, live)
        except NotFound:
            ended = await self._ended(named)
            slice_id = the_one(named, [*live, *ended] if ended else live)
        return await self._slice(slice_id)

    async def drain_slice(self, named: str, reason: str = "", deadline: datetime | None = None) -> tuple[str, str]:
        """Give the slice back once what runs on it has ended, or at the deadline; its id and what it does now.

        Args:
            deadline: what runs then is stopped, after its grace. None: it may run as long as it likes.

        Raises:
            NotFound: there is no such slice.
            Rejected: it joined by itself, so that there is nothing to give back.
        """
        names.check_name("slice", named)
        status = await self._slice(the_one(named, [row.id for row in await self.slices()]))
        if status.facts is None:
            raise Rejected(
                f"slice {status.id} joined by itself: there is nothing to give back; "
                f"stop its agents, or empty its hosts with: iris host drain {' '.join(host.id for host in status.hosts)}".rstrip()
            )
        if status.state in _LEAVING:
            return status.id, f"is {status.state} already"
        drain = Drain(slice_id=status.id, reason=signed(reason), deadline=deadline)
        handle = self._client.get_workflow_handle(names.slice_workflow(self.cluster.name, status.id))
        async with reaching(self.cluster):
            await handle.signal(SliceWorkflow.drain, drain)
        return status.id, "is being drained" if deadline is None or deadline > datetime.now(UTC) else "is being deleted"

    async def close_down(self, reason: str, patience: timedelta, tell: Callable[[Sequence[SliceRow]], None]) -> list[SliceRow]:
        """Give all slices back, what runs on them having its grace, and make no new ones until the next configuration.

        Args:
            tell: is told what is left, whenever that has changed.

        Returns:
            The slices that are still there when the patience is over; none, if all went well.

        Raises:
            Unreachable: no control plane answers.
        """
        give_up = time.monotonic() + patience.total_seconds()
        told: list[SliceRow] = []
        while True:
            status = await self.autoscaler()
            left = {row.id: row for row in (await self._listed()).values() if row.made}
            left |= {facts.id: SliceRow.of(facts) for facts in status.slices}
            rows = sorted(left.values(), key=lambda row: row.id)
            if status.closing is None:  # a control plane that was just started has said that all is as configured
                await self._tell_autoscaler("close_down", CloseDown(reason=signed(reason), deadline=datetime.now(UTC)))
            elif not rows or time.monotonic() > give_up:
                return rows
            if rows != told:
                tell(told := rows)
            await asyncio.sleep(LOOK_EVERY.total_seconds())

    async def reload(self, config: ClusterConfig) -> None:
        """Let the planners plan with another configuration."""
        async with reaching(self.cluster):
            await tell_planners(self._client, self.cluster.name, config)

    async def check_is_there(self) -> None:
        """Raise unless this server has the cluster: another one, or another namespace, knows nothing of what is the cluster's.

        Raises:
            Unreachable: the server does not answer, or the cluster's autoscaler is not there.
        """
        handle = self._client.get_workflow_handle(names.autoscaler_workflow(self.cluster.name))
        async with reaching(self.cluster):
            try:
                there = (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                there = False
        if not there:
            where = f"{self.cluster.address}, namespace {self.cluster.namespace}"
            raise Unreachable(f"the service at {where}, has no cluster {self.cluster.name}")

    async def looked_after(self, slice_id: str) -> bool:
        """Whether a workflow looks after this slice now. The server knows this at once, other than in its lists."""
        handle = self._client.get_workflow_handle(names.slice_workflow(self.cluster.name, slice_id))
        async with reaching(self.cluster):
            try:
                return (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return False
                raise

    # -- inside --------------------------------------------------------------------------------------------------------------

    async def _tell_autoscaler(self, signal: str, *news: Any) -> None:
        handle = self._client.get_workflow_handle(names.autoscaler_workflow(self.cluster.name))
        async with reaching(self.cluster):
            try:
                await handle.signal(signal, args=news)
            except RPCError as error:
                raise self._not_started(error) from None

    async def _slice(self, slice_id: str) -> SliceStatus:
        handle = self._client.get_workflow_handle(names.slice_workflow(self.cluster.name, slice_id))
        return await self._query(handle, "status", None, SliceStatus)

    async def _listed(self) -> dict[str, SliceRow]:
        """The slices that have a workflow, as far as the server's lists tell."""
        rows = {}
        async with reaching(self.cluster):
            async for execution in self._client.list_workflows(f"{self._of(names.KIND_SLICE)} AND ExecutionStatus = 'Running'"):
                row = self._row(execution)
                rows[row.id] = row
        return rows

    async def _ended(self, prefix: str) -> list[str]:
        begins = names.slice_workflow(self.cluster.name, prefix)
        query = f"{self._of(names.KIND_SLICE)} AND ExecutionStatus != 'Running' AND WorkflowId STARTS_WITH '{begins}'"
        async with reaching(self.cluster):
            return [self._id(each) async for each in self._client.list_workflows(query, limit=100)]

    def _row(self, execution: WorkflowExecution) -> SliceRow:
        group, shown = attribute(execution, names.SA_GROUP), attribute(execution, names.SA_STATE)
        state = SliceState(shown) if shown in SliceState.__members__ else SliceState.REQUESTED
        if not group and state is SliceState.REQUESTED:  # it was not: it waits for its agents, and shows that to nobody
            state = SliceState.BOOTSTRAPPING
        return SliceRow(id=self._id(execution), state=state, group=group, requested_at=execution.start_time)

    def _id(self, execution: WorkflowExecution) -> str:
        return execution.id.removeprefix(names.slice_workflow(self.cluster.name, ""))


def the_one(named: str, ids: Iterable[str]) -> str:
    """The slice that has this id, or the only one whose id begins so.

    Raises:
        NotFound: there is none, or there are several.
    """
    there_are = sorted(set(ids))
    if named in there_are:
        return named
    meant = [each for each in there_are if each.startswith(named)]
    if len(meant) == 1:
        return meant[0]
    if meant:
        few = ", ".join(meant[:NEAR]) + (" …" if len(meant) > NEAR else "")
        raise NotFound(f"{named} is the beginning of {len(meant)} slices' ids: {few}; say more of it")
    near = difflib.get_close_matches(named, there_are, n=NEAR)
    hint = f"did you mean {', '.join(near)}?" if near else "`iris slice list` lists them"
    raise NotFound(f"there is no slice {named}; {hint}")
