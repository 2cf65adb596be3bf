"""What a cluster of `tests.fleet_harness` plays itself: gangs without jobs, and lists of
workflows.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from iris.messages.scheduler import Batch, EvictionNotices, Notices, Release, Signalled
from iris.model import names
from iris.model.job.requests import Placement, Request
from iris.scheduling.placement.refusals import Refusal
from tests.harness import BlindNotifier


class Tenant:
    """A gang that wants hosts and has no job."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.placement: Placement | None = None
        #: Why it waits, as it was told when it asked.
        self.refusal: Refusal | None = None
        #: Why it had to go; None: it has not.
        self.evicted: str | None = None
        #: Whether it takes its time when it has to go.
        self.lingers = False
        #: Its hosts whose machines are gone, as it was told.
        self.dead: set[str] = set()

    @property
    def slices(self) -> set[str]:
        """Those that it was given."""
        return {seat.slice_id for seat in self.placement.seats} if self.placement else set()


class TenantNotifier(BlindNotifier):
    """Those who tell jobs, and tenants too."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        #: By key.
        self.tenants: dict[str, Tenant] = {}

    @activity.defn
    async def signal_placed(self, notices: Notices) -> Signalled:
        jobs = self._place_tenants(notices.placements)
        return await super().signal_placed(Notices(placements=jobs))

    async def pass_on(self, placements: Sequence[Placement]) -> tuple[str, ...]:
        return await super().pass_on(self._place_tenants(placements))

    def _place_tenants(self, placements: Sequence[Placement]) -> tuple[Placement, ...]:
        """Returns the placements of jobs."""
        for each in placements:
            if each.key in self.tenants:
                self.tenants[each.key].placement = each
        return tuple(each for each in placements if each.key not in self.tenants)

    @activity.defn
    async def signal_evicted(self, notices: EvictionNotices) -> Signalled:
        """A tenant that is told to go releases its hosts, unless it lingers on machines that are
        there.
        """
        tenants = tuple(each for each in notices.evictions if each.key in self.tenants)
        for each in tenants:
            tenant = self.tenants[each.key]
            tenant.dead.update(host_id for host_id, _ in each.gone)
            tenant.evicted = tenant.evicted if each.gone else each.reason
        gone = tuple(
            Release(key=each.key)
            for each in tenants
            if each.gone or not self.tenants[each.key].lingers
        )
        if gone:
            scheduler = activity.info().workflow_id
            assert scheduler is not None
            handle = self._client.get_workflow_handle(scheduler)
            await handle.signal("deliver", Batch(messages=gone))
        jobs = tuple(each for each in notices.evictions if each.key not in self.tenants)
        return await super().signal_evicted(EvictionNotices(evictions=jobs))


class Execution(NamedTuple):
    """A workflow that runs, as lists have it."""

    id: str
    run_id: str
    first_run: str


class Listed:
    """What a list of workflows comes to, on one page."""

    def __init__(self, found: Callable[[], Any]) -> None:
        self._found = found
        self.current_page: list[Execution] | None = None
        self.next_page_token = b""

    async def fetch_next_page(self, **_: object) -> None:
        self.current_page = await self._found()

    async def __aiter__(self) -> AsyncIterator[Execution]:
        for execution in await self._found():
            yield execution


class Lister:
    """A client to whom the workflows that somebody has heard of are listed by looking at each."""

    def __init__(self, client: Client, cluster: str) -> None:
        self._client = client
        self._cluster = cluster
        #: Ids of workflows that may run, and of those that did.
        self.heard_of: set[str] = set()
        self.ever: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def heard_of_slices(self, slice_ids: Iterable[str]) -> None:
        self.heard_of.update(
            names.slice_workflow(self._cluster, slice_id) for slice_id in slice_ids
        )
        self.ever |= self.heard_of

    def list_workflows(self, query: str, **_: object) -> Listed:
        """The slices, or the jobs and tasks too if the query is about them."""
        slices_only = f"{names.SA_KIND} = '{names.KIND_SLICE}'" in query
        return Listed(lambda: self.running(slices_only))

    async def running(self, slices_only: bool = True) -> list[Execution]:
        prefix = names.slice_workflow(self._cluster, "")
        wanted = sorted(
            each for each in self.heard_of if each.startswith(prefix) or not slices_only
        )
        return [each for each in await asyncio.gather(*map(self._look, wanted)) if each is not None]

    async def _look(self, workflow_id: str) -> Execution | None:
        try:
            described = await self._client.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            described = None
        if described is None or described.status is not WorkflowExecutionStatus.RUNNING:
            self.heard_of.discard(workflow_id)
            return None
        first = (
            described.raw_description.workflow_execution_info.first_run_id or described.run_id or ""
        )
        return Execution(workflow_id, described.run_id or "", first)
