"""Operators' access to the autoscaler and its slices: status, pauses, and draining of slices."""

import asyncio
import difflib
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from pydantic import BaseModel, ConfigDict
from temporalio.client import WorkflowExecution, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from iris.client.client import IrisClient
from iris.client.connect.identity import signed
from iris.client.connect.rpc import reaching
from iris.client.operate.configuring import tell_planners
from iris.client.views import attribute
from iris.config import ClusterConfig
from iris.messages.autoscaler import AutoscalerStatus, CloseDown, PauseScaling
from iris.model import names
from iris.model.errors import NotFound, Rejected, Unreachable
from iris.model.scaling import Drain
from iris.model.slices import SliceFacts, SliceState, SliceStatus
from iris.workflows.slice import SliceWorkflow

#: The pause between two checks of slices that are being deleted.
POLL_INTERVAL = timedelta(seconds=0.2)
#: The most similar names that an error lists.
NEAR = 3
_LEAVING = (SliceState.FAILED, SliceState.DELETING, SliceState.DELETED)


class SliceRow(BaseModel):
    """A slice in a list."""

    model_config = ConfigDict(frozen=True)

    id: str
    state: SliceState
    #: Empty for a slice that joined by itself.
    group: str = ""
    zone: str = ""
    requested_at: datetime
    reason: str = ""

    @property
    def made(self) -> bool:
        """Returns whether the autoscaler requested it. If not, there is nothing to delete."""
        return bool(self.group)

    @classmethod
    def of(cls, facts: SliceFacts) -> Self:
        """Builds the row of a slice that the autoscaler knows."""
        return cls(**facts.model_dump(include=set(cls.model_fields)))


class FleetClient(IrisClient):
    """A connection to one cluster, for its operators."""

    async def autoscaler(self) -> AutoscalerStatus:
        """Returns the autoscaler's status.

        Raises:
            Unreachable: no control plane answers, or none has ever started.
        """
        handle = self._client.get_workflow_handle(names.autoscaler_workflow(self.cluster.name))
        return await self._query(handle, "status", None, AutoscalerStatus)

    async def pause_scaling(self, reason: str = "") -> None:
        """Stops the autoscaler from requesting and deleting slices."""
        await self._tell_autoscaler("pause", PauseScaling(reason=signed(reason)))

    async def resume_scaling(self) -> None:
        """Lets the autoscaler request and delete slices again."""
        await self._tell_autoscaler("resume")

    async def slices(self) -> list[SliceRow]:
        """Lists all slices by id: those that the autoscaler made, and those that joined by themselves."""
        known = {facts.id: SliceRow.of(facts) for facts in (await self.autoscaler()).slices}
        return [row for _, row in sorted({**await self._listed(), **known}.items())]

    async def slice(self, named: str) -> SliceStatus:
        """Returns the slice with that id, or the only one whose id begins with it. Also finds ended slices that the server keeps.

        Raises:
            NotFound: no slice or several slices match.
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
        """Deletes the slice once its tasks have ended, or at the deadline. Returns its id and what happens to it.

        Args:
            deadline: when running tasks are stopped, after their grace period. None: they may run as long as they need.

        Raises:
            NotFound: there is no such slice.
            Rejected: the slice joined by itself, so there is nothing to delete.
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
        """Deletes all slices, after the grace period of what runs on them, and makes no new ones until the next configuration.

        Args:
            tell: called with the remaining slices whenever they change.

        Returns:
            The slices that are still there after `patience`; empty on success.

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
            if status.closing is None:  # also after the start of a control plane, which has cancelled the closing
                await self._tell_autoscaler("close_down", CloseDown(reason=signed(reason), deadline=datetime.now(UTC)))
            elif not rows or time.monotonic() > give_up:
                return rows
            if rows != told:
                tell(told := rows)
            await asyncio.sleep(POLL_INTERVAL.total_seconds())

    async def reload(self, config: ClusterConfig) -> None:
        """Applies another configuration to the scheduler and the autoscaler."""
        async with reaching(self.cluster):
            await tell_planners(self._client, self.cluster.name, config)

    async def check_is_there(self) -> None:
        """Raises unless this server has the cluster. Another server or namespace has no workflow of the cluster's slices.

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
        """Returns whether the slice has a live workflow. This is current, while the server's lists lag behind."""
        handle = self._client.get_workflow_handle(names.slice_workflow(self.cluster.name, slice_id))
        async with reaching(self.cluster):
            try:
                return (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return False
                raise

    # -- private -------------------------------------------------------------------------------------------------------------

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
        """Returns the slices with a live workflow, as far as the server's lists show them."""
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
        if not group and state is SliceState.REQUESTED:  # not requested: it waits for its agents, and publishes no state
            state = SliceState.BOOTSTRAPPING
        return SliceRow(id=self._id(execution), state=state, group=group, requested_at=execution.start_time)

    def _id(self, execution: WorkflowExecution) -> str:
        return execution.id.removeprefix(names.slice_workflow(self.cluster.name, ""))


def the_one(named: str, ids: Iterable[str]) -> str:
    """Returns the slice with this id, or the only one whose id begins with it.

    Raises:
        NotFound: no slice or several slices match.
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
