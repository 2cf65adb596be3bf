"""The official clients, connected to the fake, and short calls for tests."""

from typing import Any

import grpc
from google.auth.credentials import AnonymousCredentials
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports.grpc import TpuGrpcTransport

from iris.platforms.gcp.lean_compute import InstancesClient, ZoneOperationsClient, compute_v1
from tests.fakes.google.client import FakeGoogle

ZONE = "europe-west4-b"
RUNTIMES = {
    "v5litepod": "v2-alpha-tpuv5-lite",
    "v6e": "v2-alpha-tpuv6e",
    "v5p": "v2-alpha-tpuv5",
    "v4": "tpu-ubuntu2204-base",
}


def tpu_client(google: FakeGoogle) -> tpu_v2.TpuClient:
    # As the client sets it for channels that it opens itself.
    anything = [("grpc.max_receive_message_length", -1)]
    channel = grpc.insecure_channel(google.tpu.removeprefix("grpc://"), anything)
    return tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))


def instances_client(google: FakeGoogle) -> InstancesClient:
    return InstancesClient(
        credentials=AnonymousCredentials(), client_options={"api_endpoint": google.compute}
    )


def operations_client(google: FakeGoogle) -> ZoneOperationsClient:
    return ZoneOperationsClient(
        credentials=AnonymousCredentials(), client_options={"api_endpoint": google.compute}
    )


def location(project: str, zone: str = ZONE) -> str:
    return f"projects/{project}/locations/{zone}"


def a_node(kind: str = "v5litepod-16", *, spot: bool = False, **fields: Any) -> tpu_v2.Node:
    """A node as it is asked for."""
    settings: dict[str, Any] = {
        "accelerator_type": kind,
        "runtime_version": RUNTIMES[kind.partition("-")[0]],
        "network_config": {"network": "default", "enable_external_ips": True},
        "scheduling_config": {"spot": spot},
    }
    return tpu_v2.Node(**settings | fields)


def a_queued(project: str, name: str, **fields: Any) -> tpu_v2.QueuedResource:
    """A queued resource with one node of the same name."""
    spec = {"parent": location(project), "node_id": name, "node": a_node(scheduling_config=None)}
    return tpu_v2.QueuedResource(**{"tpu": {"node_spec": [spec]}} | fields)


def an_instance(
    name: str, zone: str = ZONE, kind: str = "n2-standard-8", **fields: Any
) -> compute_v1.Instance:
    """An instance as it is asked for."""
    image = "projects/debian-cloud/global/images/family/debian-12"
    settings: dict[str, Any] = {
        "name": name,
        "machine_type": f"zones/{zone}/machineTypes/{kind}",
        "disks": [
            {
                "boot": True,
                "auto_delete": True,
                "initialize_params": {"source_image": image, "disk_size_gb": 50},
            }
        ],
        "network_interfaces": [{"network": "global/networks/default"}],
    }
    return compute_v1.Instance(**settings | fields)
