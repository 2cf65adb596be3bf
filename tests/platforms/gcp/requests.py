"""Settings and slice requests of a cluster on Google Cloud."""

from typing import Any

from iris.model.slice.provisioning import SliceRequest
from iris.model.slice.scale_groups import ScaleGroup, SliceType
from iris.platforms.gcp.settings import GcpSettings
from tests.builders import some

ZONE = "europe-west4-b"
#: A private key of a slice.
KEY = "0123456789abcdef" * 4


def gcp(**changes: Any) -> GcpSettings:
    """The settings of cluster `dev` in project `my-project`."""
    settings = {
        "project": "my-project",
        "cluster": "dev",
        "uid": "u-1",
        "label_prefix": "iris",
        "network": "default",
        "address": "10.0.0.2:10000",
        "image": "registry/agent:1",
    }
    return GcpSettings(**settings | changes)


def tpu_group(**changes: Any) -> ScaleGroup:
    """Spot slices of four hosts."""
    settings = {
        "name": "v5e_16",
        "type": SliceType.TPU_VM,
        "zones": (ZONE, "europe-west4-a"),
        "hosts": 4,
        "resources": some(cpu=112, memory=192, disk=100, device="tpu:v5litepod-16:4"),
        "accelerator_variant": "v5litepod-16",
        "topology": "4x4",
        "runtime_version": "v2-alpha-tpuv5-lite",
        "preemptible": True,
        "max_slices": 10,
    }
    return ScaleGroup(**settings | changes)


def vm_group(**changes: Any) -> ScaleGroup:
    """Machines without accelerators."""
    settings = {
        "name": "cpu",
        "type": SliceType.GCE_VM,
        "zones": (ZONE,),
        "resources": some(cpu=8, memory=32, disk=100),
        "machine_type": "n2-standard-8",
        "max_slices": 10,
    }
    return ScaleGroup(**settings | changes)


def asked(
    group: ScaleGroup | None = None, slice_id: str = "iris-v5e-16-abc", **changes: Any
) -> SliceRequest:
    """A request for a slice in the group's first zone."""
    group = group or tpu_group()
    settings = {"cluster": "dev", "zone": group.zones[0], "token": f"token of {slice_id}"} | changes
    return SliceRequest(slice_id=slice_id, group=group, **settings)
