"""TPU nodes and queued resources, call by call. The API's operations say whether a create has failed, and nothing else: whether
something exists is asked of the thing itself.

Never read `operation.metadata`: the service sends a type that the client does not have.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from google.cloud import tpu_v2
from google.longrunning import operations_pb2

from iris.machines import MachineState
from iris.platforms.gcp.clients import DEADLINE, Calls, Clients
from iris.platforms.gcp.errors import CallFailed, Trouble, trouble_of_status
from iris.platforms.gcp.limits import Urgency
from iris.platforms.gcp.requests import CreateRequest, location
from iris.platforms.gcp.sights import Sight, node_sight, queued_sight

T = TypeVar("T")

#: In one answer. Each node brings its startup script along.
PAGE = 500
#: In the place of a zone: all of them.
EVERYWHERE = "-"


class Nodes:
    """TPU nodes that were asked for directly."""

    def __init__(self, calls: Calls, project: str) -> None:
        self._calls = calls
        self._project = project

    async def create(self, request: CreateRequest) -> str:
        """Ask for it; the name of the operation that makes it."""
        return await self._calls.make(
            Urgency.CREATE, lambda to: _begun(to.tpu.create_node(request, retry=None, timeout=DEADLINE))
        )

    async def get(self, slice_id: str, zone: str) -> Sight | None:
        name = f"{location(self._project, zone)}/nodes/{slice_id}"
        request = tpu_v2.GetNodeRequest(name=name)
        found = await there(self._calls, lambda to: to.tpu.get_node(request, retry=None, timeout=DEADLINE))
        return node_sight(found) if found is not None else None

    async def delete(self, slice_id: str, zone: str) -> None:
        request = tpu_v2.DeleteNodeRequest(name=f"{location(self._project, zone)}/nodes/{slice_id}")
        await self._calls.make(Urgency.DELETE, lambda to: to.tpu.delete_node(request, retry=None, timeout=DEADLINE))

    async def failure(self, slice_id: str, zone: str, operation: str) -> Trouble | None:
        """See `create_failure`."""
        return await create_failure(self._calls, self._project, zone, f"nodes/{slice_id}", operation)


class QueuedResources:
    """TPU nodes that queued resources make."""

    def __init__(self, calls: Calls, project: str) -> None:
        self._calls = calls
        self._project = project
        self._nodes = Nodes(calls, project)

    async def create(self, request: CreateRequest) -> str:
        """Ask for it; the name of the operation that writes it down, which is done before there is a node."""
        return await self._calls.make(
            Urgency.CREATE, lambda to: _begun(to.tpu.create_queued_resource(request, retry=None, timeout=DEADLINE))
        )

    async def get(self, slice_id: str, zone: str) -> Sight | None:
        """The queued resource and its node, whichever of them is left. The node is looked at last: an active queued resource has
        one."""
        request = tpu_v2.GetQueuedResourceRequest(name=self._name(slice_id, zone))
        found = await there(self._calls, lambda to: to.tpu.get_queued_resource(request, retry=None, timeout=DEADLINE))
        if found is not None and queued_sight(found, looked=False).observation.state is not MachineState.ACTIVE:
            return queued_sight(found)
        node = await self._nodes.get(slice_id, zone)
        return queued_sight(found, node) if found is not None else node

    async def delete(self, slice_id: str, zone: str) -> None:
        """Its node goes with it. A node whose queued resource is gone is deleted by itself."""
        request = tpu_v2.DeleteQueuedResourceRequest(name=self._name(slice_id, zone), force=True)
        try:
            await self._calls.make(Urgency.DELETE, lambda to: _delete_queued(to, request))
        except CallFailed as error:
            if not error.trouble.is_absence:
                raise
            await self._nodes.delete(slice_id, zone)

    async def failure(self, slice_id: str, zone: str, operation: str) -> Trouble | None:
        """See `create_failure`."""
        return await create_failure(self._calls, self._project, zone, f"queuedResources/{slice_id}", operation)

    def _name(self, slice_id: str, zone: str) -> str:
        return f"{location(self._project, zone)}/queuedResources/{slice_id}"


async def list_tpus(calls: Calls, project: str) -> tuple[list[Sight], set[str]]:
    """Every queued resource and node of the project, and the zones that did not answer. A node that a queued resource has made is
    part of it.

    Nodes are listed last, so that an active queued resource without its node in the list has lost it, and not just got it.
    """
    parent = location(project, EVERYWHERE)
    queued, silent = await _pages(
        calls,
        lambda to, token: to.tpu.list_queued_resources(
            tpu_v2.ListQueuedResourcesRequest(parent=parent, page_size=PAGE, page_token=token), retry=None, timeout=DEADLINE
        ),
        lambda page: page.queued_resources,
    )
    nodes, mute = await _pages(
        calls,
        lambda to, token: to.tpu.list_nodes(
            tpu_v2.ListNodesRequest(parent=parent, page_size=PAGE, page_token=token), retry=None, timeout=DEADLINE
        ),
        lambda page: page.nodes,
    )
    unreachable = {_zone_of(place) for place in silent | mute}
    made = {_where(sight): sight for sight in map(node_sight, nodes)}
    seen = {}
    for each in queued:
        alone = queued_sight(each)
        zone, _ = where = _where(alone)
        seen[where] = queued_sight(each, made.get(where), looked=zone not in unreachable)
    return list({**made, **seen}.values()), unreachable


async def there(calls: Calls, call: Callable[[Clients], T]) -> T | None:
    """What a GET finds; None: there is nothing of that name.

    Raises:
        CallFailed: any other answer, or none.
    """
    try:
        return await calls.make(Urgency.LOOK, call)
    except CallFailed as error:
        if error.trouble.is_absence:
            return None
        raise


async def create_failure(calls: Calls, project: str, zone: str, target: str, operation: str) -> Trouble | None:
    """Why there is nothing although it was asked for; None: nothing is known of any failure.

    Args:
        operation: the name of the operation; empty: whoever knew it is gone, and it is looked for among those of the zone.
    """
    if operation:
        request = operations_pb2.GetOperationRequest(name=operation)
        found = await there(calls, lambda to: to.tpu.get_operation(request, retry=None, timeout=DEADLINE))
        candidates = [found] if found is not None else []
    else:
        listing = operations_pb2.ListOperationsRequest(name=location(project, zone), page_size=PAGE)
        page = await there(calls, lambda to: to.tpu.list_operations(listing, retry=None, timeout=DEADLINE))
        candidates = [each for each in page.operations if _is_about(each, target)] if page is not None else []
    failed = [each for each in candidates if each.done and each.error.code]
    return trouble_of_status(failed[0].error) if failed else None


def _is_about(operation: operations_pb2.Operation, target: str) -> bool:
    """Whether the operation's metadata, which no class here can read, names the thing."""
    name = re.escape(f"/{target}".encode())
    return re.search(name + rb"(?![-a-zA-Z0-9_.])", operation.metadata.value) is not None


def _begun(operation: Any) -> str:
    """The name of an operation that has just begun.

    Raises:
        CallFailed: it has failed already.
    """
    raw: operations_pb2.Operation = operation.operation
    if raw.done and raw.error.code:
        raise CallFailed(trouble_of_status(raw.error))
    return str(raw.name)


def _delete_queued(to: Clients, request: tpu_v2.DeleteQueuedResourceRequest) -> None:
    try:
        to.tpu.delete_queued_resource(request, retry=None, timeout=DEADLINE)
    except TypeError:
        # The service and the client are not of one mind what the operation of a delete answers with. It was understood.
        return


async def _pages(
    calls: Calls, ask: Callable[[Clients, str], Any], items: Callable[[Any], Iterator[T]]
) -> tuple[list[T], set[str]]:
    """All that is listed, and the places that did not answer; an iteration over the client's own pager would not tell them."""
    found: list[T] = []
    unreachable: set[str] = set()
    token = ""
    while True:

        def call(to: Clients, token: str = token) -> Any:
            return next(iter(ask(to, token).pages))

        page = await calls.make(Urgency.LOOK, call)
        found += items(page)
        unreachable |= set(page.unreachable)
        if not page.next_page_token:
            return found, unreachable
        token = page.next_page_token


def _zone_of(place: str) -> str:
    return place.rpartition("/")[2]


def _where(sight: Sight) -> tuple[str, str]:
    return sight.observation.zone, sight.observation.slice_id
