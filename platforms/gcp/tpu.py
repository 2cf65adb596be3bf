"""Makes the calls on TPU nodes and queued resources.

An operation of the API tells only whether a create failed. To know whether a resource exists, code
here gets the resource.

Never read `operation.metadata`: the service sends a type that the client does not have.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from google.cloud import tpu_v2
from google.longrunning import operations_pb2

from iris.model.slice.provisioning import MachineState
from iris.platforms.gcp.clients import DEADLINE, Calls, Clients, get_or_none, pages
from iris.platforms.gcp.create_requests import CreateRequest, location, zone_of
from iris.platforms.gcp.diagnostics import node_problems, queued_state
from iris.platforms.gcp.errors import CallFailed, api_error_of_status
from iris.platforms.gcp.observe import (
    CreateOperation,
    ObservedResource,
    observed_node,
    observed_queued,
)
from iris.platforms.gcp.rate_limiter import Urgency

T = TypeVar("T")

#: The maximum number of items per page of an answer of the TPU API. Pages are large, because each
#: node includes its startup script.
PAGE = 500
#: The maximum number of pages of a zone's operations that are searched. Only recent operations are
#: needed.
MOST_PAGES = 5
#: The name that stands for all zones in the TPU API.
EVERYWHERE = "-"


class Nodes:
    """The calls that manage TPU nodes which Iris creates directly."""

    def __init__(self, calls: Calls, project: str) -> None:
        self._calls = calls
        self._project = project

    async def create(self, request: CreateRequest) -> str:
        """Requests the node. Returns the name of the operation that creates it."""
        return await self._calls.make(
            Urgency.CREATE,
            lambda to: _begun(to.tpu.create_node(request, retry=None, timeout=DEADLINE)),
        )

    async def get(self, slice_id: str, zone: str) -> ObservedResource | None:
        name = f"{location(self._project, zone)}/nodes/{slice_id}"
        request = tpu_v2.GetNodeRequest(name=name)
        found = await get_or_none(
            self._calls, lambda to: to.tpu.get_node(request, retry=None, timeout=DEADLINE)
        )
        return observed_node(found) if found is not None else None

    async def delete(self, slice_id: str, zone: str) -> None:
        request = tpu_v2.DeleteNodeRequest(name=f"{location(self._project, zone)}/nodes/{slice_id}")
        await self._calls.make(
            Urgency.DELETE, lambda to: to.tpu.delete_node(request, retry=None, timeout=DEADLINE)
        )

    async def find_create_operation(
        self, slice_id: str, zone: str, operation: str
    ) -> CreateOperation | None:
        return await _find_create_operation(
            self._calls, self._project, zone, re.escape(f"nodes/{slice_id}"), operation
        )

    async def last_output(self, slice_id: str, zone: str) -> str:
        """Returns the problems of the node."""
        request = tpu_v2.GetNodeRequest(name=f"{location(self._project, zone)}/nodes/{slice_id}")
        found = await get_or_none(
            self._calls, lambda to: to.tpu.get_node(request, retry=None, timeout=DEADLINE)
        )
        return node_problems(found) if found is not None else ""


class QueuedResources:
    """The calls that manage queued resources and the TPU nodes that Google creates for them."""

    def __init__(self, calls: Calls, project: str) -> None:
        self._calls = calls
        self._project = project
        self._nodes = Nodes(calls, project)

    async def create(self, request: CreateRequest) -> str:
        """Requests the queued resource. Returns the name of the operation that creates it, which
        ends before the node exists.
        """
        return await self._calls.make(
            Urgency.CREATE,
            lambda to: _begun(to.tpu.create_queued_resource(request, retry=None, timeout=DEADLINE)),
        )

    async def get(self, slice_id: str, zone: str) -> ObservedResource | None:
        """Returns the queued resource with its node, or whichever of the two is left.

        The node is read last, so that the node of an ACTIVE queued resource exists by then.
        """
        request = tpu_v2.GetQueuedResourceRequest(name=self._name(slice_id, zone))
        found = await get_or_none(
            self._calls,
            lambda to: to.tpu.get_queued_resource(request, retry=None, timeout=DEADLINE),
        )
        if (
            found is not None
            and observed_queued(found, node_checked=False).observation.state
            is not MachineState.ACTIVE
        ):
            return observed_queued(found)
        node = await self._nodes.get(slice_id, zone)
        return observed_queued(found, node) if found is not None else node

    async def delete(self, slice_id: str, zone: str) -> None:
        """Deletes the queued resource and its node. If the queued resource is gone, deletes the
        node.
        """
        request = tpu_v2.DeleteQueuedResourceRequest(name=self._name(slice_id, zone), force=True)
        try:
            await self._calls.make(Urgency.DELETE, lambda to: _delete_queued(to, request))
        except CallFailed as error:
            if not error.api_error.is_absence:
                raise
            await self._nodes.delete(slice_id, zone)

    async def find_create_operation(
        self, slice_id: str, zone: str, operation: str
    ) -> CreateOperation | None:
        """Returns the operation that creates the queued resource or a node of the name.

        It covers both kinds, because a process without memory of the create does not know which
        kind the slice is.
        """
        target = f"(queuedResources|nodes)/{re.escape(slice_id)}"
        return await _find_create_operation(self._calls, self._project, zone, target, operation)

    async def last_output(self, slice_id: str, zone: str) -> str:
        """Returns the problems of the node, or the state of the queued resource while it has no
        node.
        """
        request = tpu_v2.GetQueuedResourceRequest(name=self._name(slice_id, zone))
        found = await get_or_none(
            self._calls,
            lambda to: to.tpu.get_queued_resource(request, retry=None, timeout=DEADLINE),
        )
        waits = queued_state(found) if found is not None else ""
        return waits or await self._nodes.last_output(slice_id, zone)

    def _name(self, slice_id: str, zone: str) -> str:
        return f"{location(self._project, zone)}/queuedResources/{slice_id}"


async def list_tpus(calls: Calls, project: str) -> tuple[list[ObservedResource], set[str]]:
    """Returns all queued resources and nodes of the project, and the zones that did not answer. A
    queued resource and its node are one entry.

    Nodes are listed last. If an ACTIVE queued resource has no node in that list, it has therefore
    lost its node.
    """
    parent = location(project, EVERYWHERE)
    queued, silent_queued = await _listed(
        calls,
        lambda to, token: to.tpu.list_queued_resources(
            tpu_v2.ListQueuedResourcesRequest(parent=parent, page_size=PAGE, page_token=token),
            retry=None,
            timeout=DEADLINE,
        ),
        lambda page: page.queued_resources,
    )
    nodes, silent_nodes = await _listed(
        calls,
        lambda to, token: to.tpu.list_nodes(
            tpu_v2.ListNodesRequest(parent=parent, page_size=PAGE, page_token=token),
            retry=None,
            timeout=DEADLINE,
        ),
        lambda page: page.nodes,
    )
    unreachable = {zone_of(place) for place in silent_queued | silent_nodes}
    made = {_where(resource): resource for resource in map(observed_node, nodes)}
    seen = {}
    for each in queued:
        alone = observed_queued(each)
        zone, _ = where = _where(alone)
        seen[where] = observed_queued(each, made.get(where), node_checked=zone not in unreachable)
    return list({**made, **seen}.values()), unreachable


async def _find_create_operation(
    calls: Calls, project: str, zone: str, target: str, operation: str
) -> CreateOperation | None:
    """Returns the operation that creates the resource; None if there is none or it is lost.

    Args:
        target: a pattern of the resource's name, without its zone.
        operation: the name of the operation; empty: the function searches the zone's operations.
    """
    if operation:
        request = operations_pb2.GetOperationRequest(name=operation)
        found = await get_or_none(
            calls, lambda to: to.tpu.get_operation(request, retry=None, timeout=DEADLINE)
        )
        return _made(found) if found is not None else None

    def page(to: Clients, token: str) -> operations_pb2.ListOperationsResponse:
        listing = operations_pb2.ListOperationsRequest(
            name=location(project, zone), page_size=PAGE, page_token=token
        )
        return to.tpu.list_operations(listing, retry=None, timeout=DEADLINE)

    listed = pages(calls, page, MOST_PAGES)
    creates = [each async for one in listed for each in one.operations if _creates(each, target)]
    return _made(max(creates, key=_begun_at)) if creates else None


def _made(operation: operations_pb2.Operation) -> CreateOperation:
    api_error = (
        api_error_of_status(operation.error) if operation.done and operation.error.code else None
    )
    return CreateOperation(operation.name, operation.done, api_error)


def _creates(operation: operations_pb2.Operation, target: str) -> bool:
    """Returns True if the operation creates the resource. Searches the metadata's raw bytes: the
    client has no class for them.

    Source: google/cloud/common/operation_metadata.proto, where the verb is field 4
    """
    wire = operation.metadata.value
    named = re.search(f"/{target}(?![-a-zA-Z0-9_.])".encode(), wire)
    return named is not None and b'"\x06create' in wire  # the field, its length, its text


def _begun_at(operation: operations_pb2.Operation) -> int:
    """Returns the start time of the operation in milliseconds, which is a part of its name."""
    found = re.search(r"/operation-([0-9]+)-", operation.name)
    return int(found[1]) if found else 0


def _begun(operation: Any) -> str:
    """Returns the name of an operation that has just started.

    Raises:
        CallFailed: the operation has failed already.
    """
    raw: operations_pb2.Operation = operation.operation
    if raw.done and raw.error.code:
        raise CallFailed(api_error_of_status(raw.error))
    return str(raw.name)


def _delete_queued(to: Clients, request: tpu_v2.DeleteQueuedResourceRequest) -> None:
    try:
        to.tpu.delete_queued_resource(request, retry=None, timeout=DEADLINE)
    except TypeError:
        # Service and client disagree on the response type of a delete operation. The service has
        # accepted the delete.
        return


async def _listed(
    calls: Calls, ask: Callable[[Clients, str], Any], items: Callable[[Any], Iterator[T]]
) -> tuple[list[T], set[str]]:
    """Returns all items, and the locations that did not answer, which an iteration over the
    client's own pager would drop.
    """
    found: list[T] = []
    unreachable: set[str] = set()
    async for page in pages(calls, lambda to, token: next(iter(ask(to, token).pages))):
        found += items(page)
        unreachable |= set(page.unreachable)
    return found, unreachable


def _where(resource: ObservedResource) -> tuple[str, str]:
    return resource.observation.zone, resource.observation.slice_id
