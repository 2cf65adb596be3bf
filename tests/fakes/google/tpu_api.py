"""The TPU API, v2, over gRPC: the official messages, no generated stubs."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.cloud.tpu_v2.types import cloud_tpu
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2
from grpc_status import rpc_status

from tests.fakes.google import nodes, rules
from tests.fakes.google.cloud import Cloud
from tests.fakes.google.faults import Dropped, Gate
from tests.fakes.google.pages import page
from tests.fakes.google.records import NODE, QUEUED, Operation, Resource
from tests.fakes.google.refusals import Refusal, not_found
from tests.fakes.google.tpu_messages import (
    node_message,
    operation_message,
    queued_message,
    status_message,
)
from tests.fakes.google.tpu_rules import key_of, new_node, new_queued, place_of

SERVICE = "google.cloud.tpu.v2.Tpu"
OPERATIONS = "google.longrunning.Operations"


class TpuApi:
    """What each method does; every one is given its request and returns its answer."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def create_node(self, request: Any) -> operations_pb2.Operation:
        return operation_message(nodes.create_node(self._cloud, new_node(self._cloud, request)))

    def get_node(self, request: Any) -> Any:
        return node_message(self._there(request.name))

    def list_nodes(self, request: Any) -> Any:
        found, token, unreachable = self._listed(NODE, request)
        answer = cloud_tpu.ListNodesResponse.pb()(next_page_token=token, unreachable=unreachable)
        answer.nodes.extend(node_message(each) for each in found)
        return answer

    def delete_node(self, request: Any) -> operations_pb2.Operation:
        node = self._there(request.name)
        self._guard(node)
        return operation_message(nodes.delete_node(self._cloud, node))

    def create_queued_resource(self, request: Any) -> operations_pb2.Operation:
        return operation_message(nodes.create_queued(self._cloud, new_queued(self._cloud, request)))

    def get_queued_resource(self, request: Any) -> Any:
        return queued_message(self._there(request.name))

    def list_queued_resources(self, request: Any) -> Any:
        found, token, unreachable = self._listed(QUEUED, request)
        answer = cloud_tpu.ListQueuedResourcesResponse.pb()(
            next_page_token=token, unreachable=unreachable
        )
        answer.queued_resources.extend(queued_message(each) for each in found)
        return answer

    def delete_queued_resource(self, request: Any) -> operations_pb2.Operation:
        queued = self._there(request.name)
        self._guard(queued)
        return operation_message(nodes.delete_queued(self._cloud, queued, force=request.force))

    def get_operation(self, request: Any) -> operations_pb2.Operation:
        return operation_message(self._operation(request.name))

    def list_operations(self, request: Any) -> Any:
        project, zone = place_of(request.name)
        rules.check_place(self._cloud.knobs, project, zone)
        found = [
            each
            for each in self._operations()
            if (each.project, each.zone) == (project, zone) and not each.lost
        ]
        some, token = page(self._cloud.knobs, found, request.page_size, request.page_token)
        answer = operations_pb2.ListOperationsResponse(next_page_token=token)
        answer.operations.extend(operation_message(each) for each in some)
        return answer

    def cancel_operation(self, request: Any) -> empty_pb2.Empty:
        self._operation(request.name)
        return empty_pb2.Empty()

    def _operations(self) -> list[Operation]:
        return [each for each in self._cloud.operations.values() if each.api == "tpu"]

    def _operation(self, name: str) -> Operation:
        operation = self._cloud.operations.get(name)
        if operation is None or operation.lost or operation.api != "tpu":
            raise not_found(name)
        rules.check_place(self._cloud.knobs, operation.project, operation.zone)
        return operation

    def _there(self, path: str) -> Resource:
        name = key_of(path)
        rules.check_place(self._cloud.knobs, *name.partition(":")[2].split("/")[:2])
        resource = self._cloud.shown(name)
        if resource is None:
            raise not_found(path)
        return resource

    def _guard(self, resource: Resource) -> None:
        if resource.foreign:
            self._cloud.complain(f"{resource.path} was deleted, and is somebody else's")

    def _listed(self, kind: str, request: Any) -> tuple[list[Resource], str, list[str]]:
        """(the page, the token of the next, zones that do not answer)"""
        project, zone = place_of(request.parent)
        down: list[str] = []
        if zone == "-":
            down = [f"projects/{project}/locations/{each}" for each in self._cloud.knobs.zones_down]
            found = self._cloud.listed(kind, project)
            found = [each for each in found if each.zone not in self._cloud.knobs.zones_down]
        else:
            rules.check_place(self._cloud.knobs, project, zone)
            found = self._cloud.listed(kind, project, [zone])
        some, token = page(self._cloud.knobs, found, request.page_size, request.page_token)
        return some, token, down


def subject_of(request: Any) -> str:
    """The path that the request is about."""
    parent = getattr(request, "parent", "")
    if not parent:
        return str(request.name)
    if node := getattr(request, "node_id", ""):
        return f"{parent}/nodes/{node}"
    queued = getattr(request, "queued_resource_id", "")
    return f"{parent}/queuedResources/{queued}" if queued else str(parent)


def handlers(cloud: Cloud, gate: Gate) -> list[grpc.GenericRpcHandler]:
    """Both services."""
    api = TpuApi(cloud)
    types = cloud_tpu
    methods = {
        "CreateNode": (types.CreateNodeRequest.pb(), api.create_node),
        "GetNode": (types.GetNodeRequest.pb(), api.get_node),
        "ListNodes": (types.ListNodesRequest.pb(), api.list_nodes),
        "DeleteNode": (types.DeleteNodeRequest.pb(), api.delete_node),
        "CreateQueuedResource": (
            types.CreateQueuedResourceRequest.pb(),
            api.create_queued_resource,
        ),
        "GetQueuedResource": (types.GetQueuedResourceRequest.pb(), api.get_queued_resource),
        "ListQueuedResources": (types.ListQueuedResourcesRequest.pb(), api.list_queued_resources),
        "DeleteQueuedResource": (
            types.DeleteQueuedResourceRequest.pb(),
            api.delete_queued_resource,
        ),
    }
    operations = {
        "GetOperation": (operations_pb2.GetOperationRequest, api.get_operation),
        "ListOperations": (operations_pb2.ListOperationsRequest, api.list_operations),
        "CancelOperation": (operations_pb2.CancelOperationRequest, api.cancel_operation),
    }
    return [
        grpc.method_handlers_generic_handler(
            service,
            {
                name: grpc.unary_unary_rpc_method_handler(
                    _answering(gate, name, does),
                    request_deserializer=request.FromString,
                    response_serializer=lambda message: message.SerializeToString(),
                )
                for name, (request, does) in each.items()
            },
        )
        for service, each in ((SERVICE, methods), (OPERATIONS, operations))
    ]


def _answering(
    gate: Gate, name: str, does: Callable[[Any], Any]
) -> Callable[[Any, Any], Awaitable[Any]]:
    async def answer(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        subject = subject_of(request)
        try:
            return await gate.call(name, subject, lambda: does(request))
        except Refusal as refusal:
            await context.abort_with_status(rpc_status.to_status(status_message(refusal, subject)))
        except Dropped:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "recvmsg:Connection reset by peer")

    return answer
