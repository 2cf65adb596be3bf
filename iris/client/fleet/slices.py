"""Operations on slices: listing, draining and deleting them."""

import asyncio
import contextlib
import difflib
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Self

from temporalio.client import WorkflowExecution

from iris.client.connect.identity import signed
from iris.client.connect.rpc import Connection
from iris.client.fleet.autoscaler import AutoscalerClient
from iris.client.jobs.rows import attribute
from iris.messages.scheduler import Totals
from iris.model import names
from iris.model.errors import NotFound, Rejected, Unreachable
from iris.model.frozen import Frozen
from iris.model.slice.scaling import Drain
from iris.model.slice.status import SliceFacts, SliceState, SliceStatus

#: The pause between two checks of slices that are being deleted.
POLL_INTERVAL = timedelta(seconds=0.2)
#: How long a deletion waits until the records of use of the deleted slices are stored. Storing them
#: takes a second if the store answers.
RECORDS_PATIENCE = timedelta(seconds=10)
#: The maximum number of slices with similar names that an error lists.
NEAR = 3
_LEAVING = (SliceState.FAILED, SliceState.DELETING, SliceState.DELETED)


class SliceRow(Frozen):
    """A slice in a list."""

    id: str
    state: SliceState
    #: The scale group of the slice. Empty for a slice that joined the cluster by itself.
    group: str = ""
    zone: str = ""
    requested_at: datetime
    reason: str = ""

    @property
    def made(self) -> bool:
        """Whether the autoscaler requested the slice. Only such a slice can be deleted."""
        return bool(self.group)

    @classmethod
    def of(cls, facts: SliceFacts) -> Self:
        """Returns the row of a slice that the autoscaler knows."""
        return cls(**facts.model_dump(include=set(cls.model_fields)))


class SlicesClient:
    """Lists, drains and deletes the slices of one cluster."""

    def __init__(self, connection: Connection, autoscaler: AutoscalerClient) -> None:
        self._connection = connection
        self._autoscaler = autoscaler

    async def show(self, prefix: str) -> SliceStatus:
        """Returns a slice. Also finds ended slices that the service still knows.

        Args:
            prefix: the id of the slice, or a beginning of it that no other id has.

        Raises:
            NotFound: no slice or several slices match.
            Unreachable: no control plane answers.
        """
        names.check_name("slice", prefix)
        live = [row.id for row in await self.list()]
        try:
            slice_id = matching_id(prefix, live)
        except NotFound:
            ended = await self._ended_ids(prefix)
            slice_id = matching_id(prefix, [*live, *ended] if ended else live)
        return await self._status(slice_id)

    async def drain(
        self, prefix: str, reason: str = "", deadline: datetime | None = None
    ) -> tuple[str, str]:
        """Places no new tasks on a slice, and deletes it when its tasks have ended.

        Args:
            prefix: as for `show`.
            reason: a text for the people who look at the slice.
            deadline: the time at which running tasks are stopped, with their grace period. None
                waits until they end.

        Returns:
            The id of the slice, and its state as the rest of a sentence: `is being drained`, `is
            being deleted` or `is DELETED already`.

        Raises:
            NotFound: there is no such slice.
            Rejected: the slice joined by itself, so it cannot be deleted; or it has just ended.
            Unreachable: no control plane answers.
        """
        names.check_name("slice", prefix)
        status = await self._status(matching_id(prefix, [row.id for row in await self.list()]))
        if status.facts is None:
            raise Rejected(
                f"slice {status.id} joined by itself, so Iris has no machine to delete; stop its"
                " agents, or drain its hosts with: iris host drain"
                f" {' '.join(host.id for host in status.hosts)}".rstrip()
            )
        if status.state in _LEAVING:
            return status.id, f"is {status.state} already"
        drain = Drain(slice_id=status.id, reason=signed(reason), deadline=deadline)
        await self._connection.check_keys()
        with self._connection.signal_errors(f"slice {status.id}"):
            await self._connection.workflow(self._workflow_id(status.id)).signal("drain", drain)
        return status.id, (
            "is being drained"
            if deadline is None or deadline > datetime.now(UTC)
            else "is being deleted"
        )

    async def delete(self, prefix: str, reason: str = "") -> tuple[str, str]:
        """Deletes a slice now, after the grace period of its tasks.

        Args:
            prefix: as for `show`.
            reason: a text for the people who look at the slice.

        Returns:
            The id of the slice and its state, as `drain` returns them.

        Raises:
            NotFound: there is no such slice.
            Rejected: the slice joined by itself, so it cannot be deleted; or it has just ended.
            Unreachable: no control plane answers.
        """
        return await self.drain(prefix, reason, datetime.now(UTC))

    async def delete_all(
        self,
        reason: str,
        timeout: Callable[[SliceRow], timedelta],
        progress: Callable[[Sequence[SliceRow]], None],
    ) -> Sequence[SliceRow]:
        """Deletes all slices, after the grace period of their tasks.

        The autoscaler requests no slices until its next configuration. When the slices are gone,
        their records of use are stored, unless the store does not answer.

        Args:
            reason: a text for the people who look at the slices.
            timeout: returns the maximum time to wait for a slice.
            progress: called with the remaining slices whenever they change.

        Returns:
            The slices that still exist after their timeouts. Empty on success.

        Raises:
            Unreachable: no control plane answers.
        """
        began = time.monotonic()
        reported: list[SliceRow] = []
        while True:
            status = await self._autoscaler.status()
            left = {row.id: row for row in (await self._listed()).values() if row.made}
            left |= {facts.id: SliceRow.of(facts) for facts in status.slices}
            rows = sorted(left.values(), key=lambda row: row.id)
            # A control plane that starts cancels the closing, so it is repeated.
            if status.closing is None:
                await self._autoscaler.close_down(reason)
            elif all(time.monotonic() > began + timeout(row).total_seconds() for row in rows):
                if not rows:
                    await self._await_records()
                return rows
            if rows != reported:
                progress(reported := rows)
            await asyncio.sleep(POLL_INTERVAL.total_seconds())

    async def _await_records(self) -> None:
        """Waits until the slices that have ended have stored records of use, for a limited time:
        the service that has the records may be deleted next.
        """
        until = time.monotonic() + RECORDS_PATIENCE.total_seconds()
        with contextlib.suppress(Unreachable):
            while time.monotonic() < until:
                scheduler = self._connection.scheduler
                totals = await self._connection.query(scheduler, "totals", Totals)
                if not totals.unstored_slices:
                    return
                await asyncio.sleep(POLL_INTERVAL.total_seconds())

    async def was_requested(self, slice_id: str) -> bool:
        """Returns whether the autoscaler requested a slice. If not, its hosts joined by themselves.

        Args:
            slice_id: the whole id.

        Raises:
            NotFound: there is no such slice.
            Unreachable: no control plane answers.
        """
        return (await self._status(slice_id)).facts is not None

    async def has_workflow(self, slice_id: str) -> bool:
        """Returns whether a running workflow owns a slice.

        Args:
            slice_id: the whole id.

        Raises:
            Unreachable: the service does not answer.
        """
        return await self._connection.is_running(self._workflow_id(slice_id))

    async def list(self) -> list[SliceRow]:
        """Lists all slices by id, including slices that joined by themselves.

        Raises:
            Unreachable: no control plane answers.
        """
        known = {facts.id: SliceRow.of(facts) for facts in (await self._autoscaler.status()).slices}
        return [row for _, row in sorted({**await self._listed(), **known}.items())]

    async def listed(self) -> Sequence[SliceRow]:
        """Lists all slices by id, without zones and reasons.

        Asks only the service, so it works while no control plane answers.

        Raises:
            Unreachable: the service does not answer.
        """
        return [row for _, row in sorted((await self._listed()).items())]

    async def _status(self, slice_id: str) -> SliceStatus:
        return await self._connection.query(self._workflow_id(slice_id), "status", SliceStatus)

    async def _listed(self) -> dict[str, SliceRow]:
        """Returns the slices with a running workflow. The service's list may be a moment behind."""
        rows = {}
        query = f"{self._connection.list_query(names.KIND_SLICE)} AND ExecutionStatus = 'Running'"
        with self._connection.rpc_errors():
            async for execution in self._connection.client.list_workflows(query):
                row = self._row(execution)
                rows[row.id] = row
        return rows

    async def _ended_ids(self, prefix: str) -> tuple[str, ...]:
        query = (
            f"{self._connection.list_query(names.KIND_SLICE)} AND ExecutionStatus != 'Running' "
            f"AND WorkflowId STARTS_WITH '{self._workflow_id(prefix)}'"
        )
        with self._connection.rpc_errors():
            return tuple(
                [
                    self._id(each)
                    async for each in self._connection.client.list_workflows(query, limit=100)
                ]
            )

    def _row(self, execution: WorkflowExecution) -> SliceRow:
        group, shown = attribute(execution, names.SA_GROUP), attribute(execution, names.SA_STATE)
        state = SliceState(shown) if shown in SliceState.__members__ else SliceState.REQUESTED
        # A slice without a group was not requested: it waits for its agents and publishes no state.
        if not group and state is SliceState.REQUESTED:
            state = SliceState.BOOTSTRAPPING
        return SliceRow(
            id=self._id(execution), state=state, group=group, requested_at=execution.start_time
        )

    def _workflow_id(self, slice_id: str) -> str:
        return names.slice_workflow(self._connection.record.name, slice_id)

    def _id(self, execution: WorkflowExecution) -> str:
        return execution.id.removeprefix(self._workflow_id(""))


def matching_id(prefix: str, ids: Iterable[str]) -> str:
    """Returns the id of the only slice whose id begins with this text. A whole id always wins.

    Raises:
        NotFound: no slice or several slices match.
    """
    existing = sorted(set(ids))
    if prefix in existing:
        return prefix
    matching = [each for each in existing if each.startswith(prefix)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        few = ", ".join(matching[:NEAR]) + (" …" if len(matching) > NEAR else "")
        raise NotFound(
            f"{prefix} is the beginning of {len(matching)} slices' ids: {few}; give more of the id"
        )
    near = difflib.get_close_matches(prefix, existing, n=NEAR)
    hint = f"did you mean {', '.join(near)}?" if near else "`iris slice list` lists them"
    raise NotFound(f"there is no slice {prefix}; {hint}")
