"""Builds the create requests for Google from slice requests and the cluster's settings. Makes no
calls.

Each request is one message, which can be printed, compared and sent. It carries no request id: the
resource's name already makes a repeated create harmless, and a create that is repeated after the
slice was deleted has to take effect.

Sources: field tables of cloud.google.com/tpu/docs/reference/rest/v2 and
cloud.google.com/compute/docs/reference/rest/v1, and the docstrings of the client packages.
"""

import json
import re
from typing import Any

from google.cloud import tpu_v2

from iris.config.schema import ALL_APIS
from iris.model.errors import InvalidValue
from iris.model.host.accelerators import tpu
from iris.model.host.machine_types import boot_disk_kind
from iris.model.host.resources import DeviceKind
from iris.model.slice.keys import key_file, public_key
from iris.model.slice.provisioning import SliceRequest
from iris.model.slice.scale_groups import SliceType, region_of
from iris.model.units import GIB
from iris.platforms.base import BadConfig
from iris.platforms.gcp import labels as label_rules
from iris.platforms.gcp.lean_compute import compute_v1
from iris.platforms.gcp.settings import SCOPES, GcpSettings

CreateRequest = (
    tpu_v2.CreateNodeRequest | tpu_v2.CreateQueuedResourceRequest | compute_v1.InsertInstanceRequest
)

#: The OAuth scope that covers all of Google's APIs. The roles of the service account decide what it
#: may do.
CLOUD_PLATFORM = f"{SCOPES}{ALL_APIS}"
#: The boot image of a virtual machine. The startup script installs the programs that the image does
#: not contain.
BOOT_IMAGE = "projects/debian-cloud/global/images/family/debian-12"
#: The boot image of a virtual machine with GPUs. It contains NVIDIA's driver, Docker and the
#: container toolkit, which a startup script would need many minutes to install.
#: Source: cloud.google.com/deep-learning-vm/docs/images
GPU_BOOT_IMAGE = (
    "projects/deeplearning-platform-release/global/images/family/"
    "common-cu129-ubuntu-2404-nvidia-580"
)
MIN_DISK_GB = 10
#: The maximum size of one metadata value, in bytes.
#: Source: cloud.google.com/compute/docs/metadata/setting-custom-metadata#limitations
MAX_METADATA_VALUE = 256 * 1024
#: The maximum size of all metadata of a machine, in bytes. The source is the same as for
#: `MAX_METADATA_VALUE`.
MAX_METADATA = 512 * 1024
#: Matches the names that the TPU API and the Compute API accept (RFC 1035).
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")

#: The name of each TPU family in the API, for requests by family and topology.
_FAMILIES = {
    "v4": tpu_v2.AcceleratorConfig.Type.V4,
    "v5litepod": tpu_v2.AcceleratorConfig.Type.V5LITE_POD,
    "v5p": tpu_v2.AcceleratorConfig.Type.V5P,
    "v6e": tpu_v2.AcceleratorConfig.Type.V6E,
}
#: The API's names of the GPUs that are attached to an n1 machine. Every other GPU is part of a
#: machine type.
_ATTACHABLE = {"T4": "nvidia-tesla-t4", "V100": "nvidia-tesla-v100"}


def create_request(
    settings: GcpSettings,
    request: SliceRequest,
    script: str,
    private_key: str,
    delegation: str = "",
) -> CreateRequest:
    """Returns the request that creates the slice: a TPU node, a queued resource with a TPU node, or
    a virtual machine.

    Args:
        script: the startup script of each host.
        private_key: the slice's, which only its metadata contains.
        delegation: as in `iris.model.slice.keys.key_file`.

    Raises:
        BadConfig: Google would reject the request.
    """
    if _NAME.fullmatch(request.slice_id) is None:
        raise BadConfig(
            f"{request.slice_id!r} is not a valid name in Google Cloud: use at most 63 lower-case"
            " letters, digits and dashes; shorten platform.gcp.label_prefix or the name of the"
            " scale group"
        )
    metadata = host_metadata(settings, request, script, private_key, delegation)
    match request.group.type:
        case SliceType.TPU_VM if request.group.queued:
            return _queued_resource(settings, request, metadata)
        case SliceType.TPU_VM:
            return tpu_v2.CreateNodeRequest(
                parent=location(settings.project, request.zone),
                node_id=request.slice_id,
                node=_node(settings, request, metadata),
            )
        case SliceType.GCE_VM:
            return _insert(settings, request, metadata)
    raise BadConfig(
        f"scale group {request.group.name} has type {request.group.type}; on Google Cloud use"
        " tpu_vm or gce_vm"
    )


def printed(request: CreateRequest) -> dict[str, Any]:
    """Converts the request to the APIs' own JSON, for people. A missing field has Google's
    default.
    """
    written: dict[str, Any] = json.loads(
        type(request).to_json(
            request,
            use_integers_for_enums=False,
            preserving_proto_field_name=False,
            always_print_fields_with_no_presence=False,
        )
    )
    return written


def location(project: str, zone: str) -> str:
    """Returns the TPU API's path of a zone."""
    return f"projects/{project}/locations/{zone}"


def zone_of(place: str) -> str:
    """Returns the zone at the end of a path or URL of either API."""
    return place.rpartition("/")[2]


# -- TPU
# --------------------------------------------------------------------------------------------------


def _node(settings: GcpSettings, request: SliceRequest, metadata: dict[str, str]) -> tpu_v2.Node:
    group = request.group
    shape = _shape(group.accelerator_variant, group.topology)
    node = tpu_v2.Node(
        runtime_version=group.runtime_version,
        network_config=tpu_v2.NetworkConfig(
            network=settings.network,
            subnetwork=_subnetwork(settings, request.zone),
            enable_external_ips=settings.external_ips,
        ),
        # For a queued resource, spot is a field of the queued resource itself.
        scheduling_config=tpu_v2.SchedulingConfig(
            spot=group.preemptible and not group.queued,
            reserved=bool(group.reservation) and not group.preemptible,
        ),
        labels=label_rules.slice_labels(settings, request),
        metadata=metadata,
        tags=list(settings.network_tags),
        service_account=tpu_v2.ServiceAccount(
            email=settings.service_account, scope=list(settings.scopes)
        ),
    )
    if isinstance(shape, str):
        node.accelerator_type = shape
    else:
        node.accelerator_config = shape
    return node


def _shape(variant: str, topology: str) -> str | tpu_v2.AcceleratorConfig:
    """Returns the variant's name for its default topology; for any other topology, the family and
    the topology.
    """
    try:
        kind = tpu(variant)
    except InvalidValue as error:
        raise BadConfig(str(error)) from None
    family = _FAMILIES[kind.variant.partition("-")[0]]
    return (
        kind.variant
        if topology in ("", kind.topology)
        else tpu_v2.AcceleratorConfig(type_=family, topology=topology)
    )


def _queued_resource(
    settings: GcpSettings, request: SliceRequest, metadata: dict[str, str]
) -> tpu_v2.CreateQueuedResourceRequest:
    group, parent = request.group, location(settings.project, request.zone)
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(
        parent=parent, node_id=request.slice_id, node=_node(settings, request, metadata)
    )
    queued = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]))
    if group.preemptible:
        queued.spot = tpu_v2.QueuedResource.Spot()
    elif group.reservation:
        queued.guaranteed = tpu_v2.QueuedResource.Guaranteed()
        queued.reservation_name = _reservation(parent, group.reservation)
    return tpu_v2.CreateQueuedResourceRequest(
        parent=parent,
        queued_resource_id=request.slice_id,
        queued_resource=queued,
    )


def _reservation(parent: str, name: str) -> str:
    """Returns the full path of a reservation.

    A plain name is a reservation of the same project. `projects/OWNER/reservations/NAME` is one of
    another project, and gets the zone added.
    """
    if "/" not in name:
        return f"{parent}/reservations/{name}"
    owner, _, own = name.partition("/reservations/")
    return f"{owner}/locations/{parent.rpartition('/')[2]}/reservations/{own}"


# -- Virtual machines
# --------------------------------------------------------------------------------------------------


def _insert(
    settings: GcpSettings, request: SliceRequest, metadata: dict[str, str]
) -> compute_v1.InsertInstanceRequest:
    group = request.group
    if not group.machine_type:
        raise BadConfig(
            f"scale group {group.name} has no machine_type; set one, such as n2-standard-8"
        )
    device = group.resources.device
    gpus = device if device is not None and device.kind is DeviceKind.GPU else None
    instance = compute_v1.Instance(
        name=request.slice_id,
        machine_type=f"zones/{request.zone}/machineTypes/{group.machine_type}",
        disks=[
            boot_disk(
                request.zone,
                group.machine_type,
                group.resources.disk_bytes,
                GPU_BOOT_IMAGE if gpus else BOOT_IMAGE,
            )
        ],
        network_interfaces=[network_interface(settings, request.zone)],
        metadata=compute_v1.Metadata(items=metadata_items(metadata)),
        labels=label_rules.slice_labels(settings, request),
        tags=compute_v1.Tags(items=list(settings.network_tags)),
        service_accounts=[
            compute_v1.ServiceAccount(
                email=settings.service_account or "default", scopes=list(settings.scopes)
            )
        ],
        scheduling=_scheduling(group.preemptible, gpus is not None),
    )
    if gpus is not None and group.machine_type.startswith("n1-"):
        if gpus.variant not in _ATTACHABLE:
            raise BadConfig(
                f"scale group {group.name}: {group.machine_type} cannot have {gpus.variant}; set a"
                " machine_type that can"
            )
        zone = f"projects/{settings.project}/zones/{request.zone}"
        kind = f"{zone}/acceleratorTypes/{_ATTACHABLE[gpus.variant]}"
        instance.guest_accelerators = [
            compute_v1.AcceleratorConfig(accelerator_type=kind, accelerator_count=gpus.count)
        ]
    if group.reservation:
        instance.reservation_affinity = compute_v1.ReservationAffinity(
            consume_reservation_type="SPECIFIC_RESERVATION",
            key="compute.googleapis.com/reservation-name",
            values=[group.reservation],
        )
    return compute_v1.InsertInstanceRequest(
        project=settings.project,
        zone=request.zone,
        instance_resource=instance,
    )


def _scheduling(preemptible: bool, gpus: bool) -> compute_v1.Scheduling:
    """Returns the scheduling options. A preempted machine is deleted: a stopped one would keep its
    disk and its name.
    """
    if preemptible:
        return compute_v1.Scheduling(
            provisioning_model="SPOT",
            instance_termination_action="DELETE",
            on_host_maintenance="TERMINATE",
            automatic_restart=False,
        )
    # Machines with GPUs cannot be migrated live.
    return compute_v1.Scheduling(
        provisioning_model="STANDARD",
        on_host_maintenance="TERMINATE" if gpus else "MIGRATE",
        automatic_restart=True,
    )


def boot_disk(
    zone: str, machine_type: str, size_bytes: int, image: str = BOOT_IMAGE
) -> compute_v1.AttachedDisk:
    """Returns a boot disk that is deleted with its machine, of a disk type that the machine type
    supports.
    """
    params = compute_v1.AttachedDiskInitializeParams(
        source_image=image,
        disk_size_gb=max(MIN_DISK_GB, -(-size_bytes // GIB)),
        disk_type=f"zones/{zone}/diskTypes/{boot_disk_kind(machine_type)}",
    )
    return compute_v1.AttachedDisk(boot=True, auto_delete=True, initialize_params=params)


def network_interface(settings: GcpSettings, zone: str) -> compute_v1.NetworkInterface:
    """Returns the network interface of a virtual machine, with a public address if the settings ask
    for external IPs.
    """
    network = (
        settings.network
        if "/" in settings.network
        else f"projects/{settings.project}/global/networks/{settings.network}"
    )
    interface = compute_v1.NetworkInterface(network=network)
    if settings.subnetwork:
        interface.subnetwork = _subnetwork(settings, zone)
    if settings.external_ips:
        interface.access_configs = [
            compute_v1.AccessConfig(name="External NAT", type_="ONE_TO_ONE_NAT")
        ]
    return interface


def _subnetwork(settings: GcpSettings, zone: str) -> str:
    name = settings.subnetwork
    return (
        name
        if "/" in name or not name
        else f"projects/{settings.project}/regions/{region_of(zone)}/subnetworks/{name}"
    )


# -- Metadata
# --------------------------------------------------------------------------------------------------


def host_metadata(
    settings: GcpSettings,
    request: SliceRequest,
    script: str,
    private_key: str,
    delegation: str = "",
) -> dict[str, str]:
    """Returns the metadata of a slice's hosts.

    Raises:
        BadConfig: the metadata exceeds Google's limits.
    """
    return checked_metadata(
        {
            label_rules.TOKEN_KEY: request.token,
            label_rules.PUBLIC_KEY: public_key(private_key),
            label_rules.PRIVATE_KEY: key_file(private_key, delegation),
            label_rules.GROUP_KEY: request.group.name,
            label_rules.HOSTS_KEY: str(request.group.hosts),
            label_rules.ADDRESS_KEY: settings.address,
            label_rules.STARTUP_KEY: script,
        }
    )


def checked_metadata(metadata: dict[str, str]) -> dict[str, str]:
    """Returns a machine's metadata unchanged.

    Raises:
        BadConfig: the metadata exceeds Google's limits. Nearly all of it is the startup script,
            which contains the configuration.
    """
    sizes = {key: len(value.encode()) for key, value in metadata.items()}
    total = sum(len(key) + size for key, size in sizes.items())
    if max(sizes.values()) > MAX_METADATA_VALUE or total > MAX_METADATA:
        raise BadConfig(
            "the startup script, which contains the configuration, has"
            f" {sizes.get(label_rules.STARTUP_KEY, 0)} bytes (limit: {MAX_METADATA_VALUE}), and all"
            f" metadata {total} (limit: {MAX_METADATA}); shorten the configuration"
        )
    return metadata


def metadata_items(metadata: dict[str, str]) -> list[compute_v1.Items]:
    """Converts metadata to Compute Engine's messages."""
    return [compute_v1.Items(key=key, value=value) for key, value in metadata.items()]
