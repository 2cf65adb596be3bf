"""Hosts that are to be empty by a moment: what runs there may end until then, and is evicted at it.

A slice that was made goes as a whole, and its own workflow sees to that. On a host that joined by itself the eviction is an
activity of no workflow, which the service holds back until its time: nothing of Iris has to be there meanwhile.
"""

from datetime import UTC, datetime, timedelta

from temporalio.service import RPCError, RPCStatusCode

from iris import names
from iris.client import scheduling
from iris.client.asking import reaching
from iris.client.client import IrisClient
from iris.client.identity import signed
from iris.client.scaling import FleetClient
from iris.hosts import ClosedBy, Closure
from iris.slices import SliceStatus
from iris.units import format_duration
from iris.workflows import policies
from iris.workflows.messages import Close, Envelope

#: The control plane's activity that says one thing to the scheduler.
_SAY = "exchange"
#: What the service says when nothing is to be evicted later, or that was done, or it is too old for such plans.
_NO_PLAN = (RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.UNIMPLEMENTED)


class DrainClient(IrisClient):
    """One cluster, as somebody sees it who empties hosts."""

    async def drain(self, host: str, reason: str = "", deadline: timedelta | None = None) -> str:
        """Place nothing new on the host, and evict what runs there: now, or what still runs after this time. What was done.

        Raises:
            NotFound: there is no such host.
        """
        if deadline is None:
            await scheduling.drain(self, host, reason)
            await self._forget(host)
            return f"host {host} is being drained"
        later = f"what still runs in {format_duration(deadline)} is stopped"
        slice_id = next((view.host.slice_id for view in await self.hosts() if view.host.id == host), None)
        if slice_id is not None and await self._was_made(slice_id):
            _, what = await FleetClient.of(self).drain_slice(slice_id, reason, datetime.now(UTC) + deadline)
            done = f"{what}; {later}" if what == "is being drained" else what
            return f"host {host} belongs to slice {slice_id}, which goes as a whole: it {done}"
        closure = Closure(by=ClosedBy.DRAIN, reason=signed(reason))
        empty_by = f"to be empty by {datetime.now(UTC) + deadline:%Y-%m-%d %H:%M} UTC"
        await scheduling.cordon(self, host, f"{empty_by}: {reason}" if reason else empty_by)
        await self._forget(host)
        async with reaching(self.cluster):
            await self._client.start_activity(
                _SAY,
                Envelope(message=Close(host_id=host, closure=closure, evict=True)),
                id=self._id(host),
                task_queue=names.control_queue(self.cluster.name),
                start_delay=deadline,
                start_to_close_timeout=policies.EXCHANGE_PATIENT,
                retry_policy=policies.UNTIL_DONE,
                summary=f"evict what runs on {host}: {closure.reason}",
            )
        return f"host {host} takes nothing new; {later}"

    async def uncordon(self, host: str) -> None:
        """Let the host take work again, whoever closed it; what was to be evicted later is not.

        Raises:
            NotFound: there is no such host.
        """
        await self._forget(host)
        await scheduling.uncordon(self, host)

    # -- inside --------------------------------------------------------------------------------------------------------------

    async def _was_made(self, slice_id: str) -> bool:
        """Else its hosts joined by themselves, and there is nothing to give back."""
        handle = self._client.get_workflow_handle(names.slice_workflow(self.cluster.name, slice_id))
        return (await self._query(handle, "status", None, SliceStatus)).facts is not None

    async def _forget(self, host: str) -> None:
        """What was to be evicted later is not, or no longer then."""
        async with reaching(self.cluster):
            try:
                await self._client.get_activity_handle(self._id(host)).terminate(reason="there is another plan")
            except RPCError as error:
                if error.status not in _NO_PLAN:
                    raise

    def _id(self, host: str) -> str:
        return f"{names.host_queue(self.cluster.name, host)}/drain"
