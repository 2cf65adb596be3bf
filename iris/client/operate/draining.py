"""Drains hosts by a deadline. Running tasks may end before the deadline and are evicted at the deadline.

A slice that the autoscaler made is drained as a whole, by its own workflow. On a host that joined by itself, an activity without
a workflow does the eviction. The service delays that activity until the deadline, so no Iris client has to keep running.
"""

from datetime import UTC, datetime, timedelta

from temporalio.service import RPCError, RPCStatusCode

from iris.client.client import IrisClient
from iris.client.connect.identity import signed
from iris.client.connect.rpc import reaching
from iris.client.operate import scheduling
from iris.client.operate.scaling import FleetClient
from iris.messages.scheduler import Close, Envelope
from iris.model import names
from iris.model.hosts import ClosedBy, Closure
from iris.model.slices import SliceStatus
from iris.model.units import format_duration
from iris.workflows import policies

#: The control plane's activity that sends one message to the scheduler.
_SAY = "exchange"
#: The service's answers when no later eviction is planned, when it is done, or when the service is too old to plan one.
_NO_PLAN = (RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.UNIMPLEMENTED)


class DrainClient(IrisClient):
    """A connection to one cluster, for draining hosts."""

    async def drain(self, host: str, reason: str = "", deadline: timedelta | None = None) -> str:
        """Closes the host to new work and evicts what runs there: now, or what still runs after `deadline`.

        Returns:
            What was done, as a message for the user.

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
        """Opens the host to work again, whatever closed it, and cancels a planned eviction.

        Raises:
            NotFound: there is no such host.
        """
        await self._forget(host)
        await scheduling.uncordon(self, host)

    # -- private -------------------------------------------------------------------------------------------------------------

    async def _was_made(self, slice_id: str) -> bool:
        """Returns whether the autoscaler made the slice. If not, its hosts joined by themselves and nothing has to be deleted."""
        handle = self._client.get_workflow_handle(names.slice_workflow(self.cluster.name, slice_id))
        return (await self._query(handle, "status", None, SliceStatus)).facts is not None

    async def _forget(self, host: str) -> None:
        """Cancels the planned eviction, if there is one."""
        async with reaching(self.cluster):
            try:
                await self._client.get_activity_handle(self._id(host)).terminate(reason="there is another plan")
            except RPCError as error:
                if error.status not in _NO_PLAN:
                    raise

    def _id(self, host: str) -> str:
        return f"{names.host_queue(self.cluster.name, host)}/drain"
