"""The messages of the TPU API."""

import base64
from typing import Any

from google.cloud.tpu_v2.types import cloud_tpu
from google.longrunning import operations_pb2
from google.protobuf import any_pb2, empty_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

from iris.model.host.accelerators import tpu
from iris.model.slice.scale_groups import region_of
from tests.fakes.google.clock import stamp
from tests.fakes.google.records import Operation, Resource
from tests.fakes.google.refusals import Refusal

#: The messages as they are on the wire, without proto-plus around them.
Node, QueuedResource = cloud_tpu.Node.pb(), cloud_tpu.QueuedResource.pb()
_STATES = Node.State
_QUEUED_STATES = cloud_tpu.QueuedResourceState.pb().State
_SCOPES = (
    "devstorage.read_write",
    "logging.write",
    "service.management",
    "servicecontrol",
    "cloud-platform",
    "pubsub",
)
_CONFIG_TYPES = {"v4": "V4", "v5litepod": "V5LITE_POD", "v5p": "V5P", "v6e": "V6E"}


def node_message(of: Resource, *, health: bool = True) -> Any:
    """The node, with all that only the service says. The answer to a create is without health."""
    node = Node.FromString(base64.b64decode(of.body))
    node.name, node.id, node.api_version = of.path, of.uid, cloud_tpu.Node.ApiVersion.V2
    node.state = int(of.state) if of.state.isdecimal() else _STATES.Value(of.state)
    if health:
        node.health = of.health  # a number that no client knows is allowed
    node.health_description = of.note
    node.create_time.FromJsonString(stamp(of.created))
    config = tpu(of.type)
    node.accelerator_type = of.type
    node.accelerator_config.type_ = cloud_tpu.AcceleratorConfig.pb().Type.Value(
        _CONFIG_TYPES[of.family]
    )
    node.accelerator_config.topology = node.accelerator_config.topology or config.topology
    node.cidr_block = node.cidr_block or "10.20.30.0/24"
    for network in node.network_configs or [node.network_config]:
        _expand(network, of)
    if not node.service_account.email:
        node.service_account.email = "123456789012-compute@developer.gserviceaccount.com"
    if not node.service_account.scope:
        node.service_account.scope.extend(
            f"https://www.googleapis.com/auth/{each}" for each in _SCOPES
        )
    for private, public in of.endpoints:
        endpoint = node.network_endpoints.add(ip_address=private, port=8470)
        if node.network_config.enable_external_ips:
            endpoint.access_config.external_ip = public
    node.labels.clear()
    node.labels.update(of.labels)
    node.queued_resource = of.owner
    return node


def _expand(network: Any, of: Resource) -> None:
    name = network.network or "default"
    if "/" not in name:
        network.network = f"projects/{of.project}/global/networks/{name}"
    subnetwork = network.subnetwork or name.rpartition("/")[2]
    if "/" not in subnetwork:
        network.subnetwork = (
            f"projects/{of.project}/regions/{region_of(of.zone)}/subnetworks/{subnetwork}"
        )


def queued_message(of: Resource) -> Any:
    """The queued resource."""
    queued = QueuedResource.FromString(base64.b64decode(of.body))
    queued.name = of.path
    queued.create_time.FromJsonString(stamp(of.created))
    queued.state.state = int(of.state) if of.state.isdecimal() else _QUEUED_STATES.Value(of.state)
    queued.state.state_initiator = cloud_tpu.QueuedResourceState.StateInitiator.SERVICE
    if of.state == "FAILED":
        queued.state.failed_data.error.CopyFrom(
            status_pb2.Status(code=code_pb2.RESOURCE_EXHAUSTED, message=of.note)
        )
    return queued


def node_names(of: Resource) -> list[str]:
    """The names of the nodes that a queued resource makes."""
    names: list[str] = []
    for spec in QueuedResource.FromString(base64.b64decode(of.body)).tpu.node_spec:
        if spec.node_id:
            names.append(spec.node_id)
        else:
            prefix = spec.multislice_params.node_id_prefix or of.name
            names += [f"{prefix}-{each}" for each in range(spec.multislice_params.node_count)]
    return names


def operation_message(of: Operation) -> operations_pb2.Operation:
    """The operation. The type of its metadata is one that clients do not know."""
    message = operations_pb2.Operation(name=of.name, done=of.ended is not None)
    message.metadata.CopyFrom(_metadata(of))
    if of.ended is None:
        return message
    if of.error is not None:
        message.error.CopyFrom(
            status_pb2.Status(code=of.error["code"], message=of.error["message"])
        )
    elif of.response == "empty":
        message.response.Pack(empty_pb2.Empty())
    else:
        kind = {"node": "Node", "queued": "QueuedResource"}[of.response]
        url = f"type.googleapis.com/google.cloud.tpu.v2.{kind}"
        message.response.CopyFrom(
            any_pb2.Any(type_url=url, value=base64.b64decode(of.response_body))
        )
    return message


def _metadata(of: Operation) -> any_pb2.Any:
    texts = {3: of.target, 4: of.verb, 7: "v2"}
    value = b"".join(_written(number, text.encode()) for number, text in texts.items())
    return any_pb2.Any(
        type_url="type.googleapis.com/google.cloud.common.OperationMetadata", value=value
    )


def _written(number: int, text: bytes) -> bytes:
    """A field of bytes on the wire."""
    size, length = len(text), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + text


def status_message(refusal: Refusal, subject: str) -> status_pb2.Status:
    """The error of a call, with the details that Google sends."""
    status = status_pb2.Status(code=refusal.code, message=refusal.message)
    detail: Any = None
    if refusal.details == "quota":
        violation = error_details_pb2.QuotaFailure.Violation(
            subject=subject, description=refusal.message
        )
        detail = error_details_pb2.QuotaFailure(violations=[violation])
    elif refusal.details == "rate":
        detail = error_details_pb2.ErrorInfo(reason="RATE_LIMIT_EXCEEDED", domain="googleapis.com")
        detail.metadata.update(
            {"service": "tpu.googleapis.com", "quota_metric": "tpu.googleapis.com/default_requests"}
        )
    elif refusal.details == "SERVICE_DISABLED":
        detail = error_details_pb2.ErrorInfo(reason=refusal.details, domain="googleapis.com")
        detail.metadata.update({"service": "tpu.googleapis.com"})
    if detail is not None:
        status.details.add().Pack(detail)
    if refusal.retry_after:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromSeconds(refusal.retry_after)
        status.details.add().Pack(retry)
    return status


def stockout_words(of: Resource) -> str:
    """What the TPU API says when a zone is full."""
    if of.tier == "reserved":
        return (
            "Insufficient reserved capacity. Contact customer support to increase your reservation."
        )
    return (
        f'There is no more capacity in the zone "{of.zone}"; you can try in another zone where'
        " Cloud TPU Nodes are offered (see https://cloud.google.com/tpu/docs/regions) [EID:"
        f" 0x{of.uid:016x}]"
    )
