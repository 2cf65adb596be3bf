"""Operations on hosts: listing, and closing them to new work.

A host can be drained by a deadline: running tasks may end before it and are evicted at it. A slice
that the autoscaler requested is drained as a whole, by its own workflow. On a host that joined by
itself, the scheduler does the eviction, so no Iris client has to keep running.
"""

import difflib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from iris.client.connect.identity import signed
from iris.client.connect.rpc import Connection
from iris.client.fleet.slices import SlicesClient
from iris.messages.scheduler import Close, HostView, Open, Snapshot, SnapshotPage
from iris.model import names
from iris.model.errors import NotAllowed, NotFound, Rejected
from iris.model.host.hosts import ClosedBy, Closure, Host
from iris.model.units import format_duration


class HostsClient:
    """Lists, cordons and drains the hosts of one cluster."""

    def __init__(self, connection: Connection, slices: SlicesClient) -> None:
        self._connection = connection
        self._slices = slices

    async def cordon(self, host: str, reason: str = "") -> None:
        """Closes a host to new work. Its running tasks continue.

        Args:
            host: the id of the host.
            reason: a text for the people who look at the host.

        Raises:
            NotFound: there is no such host.
            Unreachable: no control plane answers.
        """
        await self._update(
            Close(host_id=host, closure=Closure(by=ClosedBy.CORDON, reason=signed(reason)))
        )

    async def uncordon(self, host: str) -> None:
        """Opens a host to new work, even after a drain or a quarantine.

        Cancels a scheduled eviction.

        Args:
            host: the id of the host.

        Raises:
            NotFound: there is no such host.
            Rejected: its agent reports a fault of the machine. The quarantine ends with the fault.
            Unreachable: no control plane answers.
        """
        await self._update(Open(host_id=host))

    async def drain(self, host: str, reason: str = "", deadline: timedelta | None = None) -> str:
        """Closes a host to new work and evicts its tasks.

        The tasks get their grace period and return to the queue.

        Args:
            host: the id of the host.
            reason: a text for the people who look at the host.
            deadline: the time that running tasks have to end. None evicts them at once.

        Returns:
            A message for the user.

        Raises:
            NotFound: there is no such host.
            Unreachable: no control plane answers.
        """
        closure = Closure(by=ClosedBy.DRAIN, reason=signed(reason))
        if deadline is None:
            await self._update(Close(host_id=host, closure=closure, evict=True))
            return f"host {host} is being drained"
        later = f"tasks that still run in {format_duration(deadline)} are stopped"
        slice_id = next(
            (view.host.slice_id for view in await self.list() if view.host.id == host), None
        )
        if slice_id is not None and await self._slices.was_requested(slice_id):
            _, state = await self._slices.drain(slice_id, reason, datetime.now(UTC) + deadline)
            done = f"{state}; {later}" if state == "is being drained" else state
            return (
                f"host {host} belongs to slice {slice_id}, which is drained as a whole: it {done}"
            )
        closure = Closure(
            by=ClosedBy.CORDON, reason=signed(reason), evict_at=datetime.now(UTC) + deadline
        )
        await self._update(Close(host_id=host, closure=closure))
        return f"host {host} takes no new tasks; {later}"

    async def polls(self, host: Host) -> bool:
        """Returns whether this incarnation of the host polls its task queue.

        After a power cut, the scheduler can still list old incarnations.

        Args:
            host: a host of `list`, which has its incarnation.

        Raises:
            Unreachable: the service does not answer.
        """
        queue = names.host_queue(self._connection.record.name, host.id)
        return names.worker_identity(host.id, host.incarnation) in await self._connection.pollers(
            queue, activities=True
        )

    async def show(self, host: str) -> HostView:
        """Returns one host.

        Args:
            host: the id of the host.

        Raises:
            NotFound: there is no such host.
            Unreachable: no control plane answers.
        """
        views = await self.list()
        for view in views:
            if view.host.id == host:
                return view
        raise NotFound(f"there is no host {host}; {_hint(host, views)}")

    async def list(self) -> list[HostView]:
        """Lists the hosts by id, with their free resources and their tasks.

        Raises:
            Unreachable: no control plane answers.
        """
        hosts: list[HostView] = []
        while True:
            page = await self._connection.query(
                self._connection.scheduler, "snapshot", Snapshot, SnapshotPage(offset=len(hosts))
            )
            hosts.extend(page.hosts)
            if not page.hosts or len(hosts) >= page.total_hosts:
                return sorted(hosts, key=lambda view: view.host.id)

    async def _update(self, message: Close | Open) -> None:
        try:
            await self._connection.update_scheduler(message)
        except NotAllowed:
            raise
        except Rejected as error:
            views = await self.list()
            if any(view.host.id == message.host_id for view in views):
                raise
            raise NotFound(f"{error}; {_hint(message.host_id, views)}") from None


def _hint(host: str, views: Iterable[HostView]) -> str:
    """Returns the remedy for an unknown host."""
    near = difflib.get_close_matches(host, [view.host.id for view in views], n=3)
    return f"did you mean {', '.join(near)}?" if near else "`iris host list` lists them"
