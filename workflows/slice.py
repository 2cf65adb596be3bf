"""One slice, from its first host's report to its end.

Until platforms make slices, a slice is one machine that somebody brought: its agent starts this workflow when it reports. The
slice is the one that tells the scheduler which hosts there are, and it speaks in order: a host is taken out before it comes back.
"""

import asyncio
from collections import deque

from temporalio import workflow

from iris import details
from iris.hosts import Host
from iris.slices import SliceState, SliceStatus, move_slice
from iris.workflows.attributes import show_state
from iris.workflows.exchange import exchange, uninterrupted
from iris.workflows.messages import HostLost, HostReady, SliceDown, SliceInput, SliceUp

#: While it is in one of these, its hosts' news count.
LIVE = (SliceState.BOOTSTRAPPING, SliceState.READY)


@workflow.defn
class SliceWorkflow:
    @workflow.init
    def __init__(self, start: SliceInput) -> None:
        self._start = start
        self._state = start.state
        self._reason = ""
        self._hosts: dict[str, Host] = {host.id: host for host in start.hosts}
        self._inbox: deque[HostReady | HostLost] = deque(start.reports)

    @workflow.run
    async def run(self, start: SliceInput) -> SliceStatus:
        try:
            return await self._live(start)
        except asyncio.CancelledError:
            # Somebody's Cancel in the Web UI: its hosts are taken out, and their agents begin anew.
            await uninterrupted(exchange(self._start.cluster, self._down()))
            raise

    async def _live(self, start: SliceInput) -> SliceStatus:
        if self._state is SliceState.REQUESTED:
            self._move(SliceState.BOOTSTRAPPING, f"waits for {start.size} host(s) to report")
        while self._state in LIVE:
            await workflow.wait_condition(lambda: bool(self._inbox) or workflow.info().is_continue_as_new_suggested())
            while self._inbox and self._state in LIVE:
                await self._handle(self._inbox.popleft())
            if workflow.info().is_continue_as_new_suggested() and not self._inbox:
                workflow.continue_as_new(
                    start.model_copy(update={"state": self._state, "hosts": tuple(self._hosts.values()), "reports": ()})
                )
        if any(isinstance(event, HostReady) for event in self._inbox):
            # An agent has come back while its former life was being taken out: that is a new slice of the same name.
            workflow.continue_as_new(SliceInput(cluster=start.cluster, id=start.id, size=start.size, reports=tuple(self._inbox)))
        return self.status()

    @workflow.signal(description="An agent is ready to take work")
    def host_ready(self, ready: HostReady) -> None:
        self._inbox.append(ready)

    @workflow.signal(description="A host is gone: it said so, or it has been silent for too long")
    def host_lost(self, lost: HostLost) -> None:
        self._inbox.append(lost)

    @workflow.query(description="The slice and its hosts as they are now")
    def status(self) -> SliceStatus:
        return SliceStatus(id=self._start.id, state=self._state, reason=self._reason, hosts=tuple(self._hosts.values()))

    async def _handle(self, event: HostReady | HostLost) -> None:
        if isinstance(event, HostReady):
            await self._host_ready(event.host)
        else:
            await self._host_lost(event)

    async def _host_ready(self, host: Host) -> None:
        self._hosts[host.id] = host
        if len(self._hosts) < self._start.size:
            return
        await exchange(self._start.cluster, SliceUp(hosts=tuple(self._hosts.values())))
        if self._state is SliceState.BOOTSTRAPPING:
            self._move(SliceState.READY, "every host takes work")
        self._describe()

    async def _host_lost(self, lost: HostLost) -> None:
        """One host gone is the slice gone: the survivors of a TPU slice cannot compute without it."""
        known = self._hosts.get(lost.host_id)
        if known is None or known.incarnation != lost.incarnation:
            return  # news of an earlier life of the host
        self._move(SliceState.FAILED, lost.reason)
        await exchange(self._start.cluster, self._down())
        self._move(SliceState.DELETING, lost.reason)
        # Nothing to give back for a machine that somebody brought.
        self._move(SliceState.DELETED, lost.reason)

    def _down(self) -> SliceDown:
        return SliceDown(lives=tuple((host.id, host.incarnation) for host in self._hosts.values()))

    def _move(self, state: SliceState, reason: str) -> None:
        self._state = move_slice(self._state, state)
        self._reason = reason
        if state in (SliceState.READY, SliceState.DELETED):
            show_state(state)
        self._describe()

    def _describe(self) -> None:
        workflow.set_current_details(details.slice_details(self.status()))
