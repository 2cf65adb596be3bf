"""Builds the request that creates the control plane's virtual machine. Makes no calls."""

import hashlib
import json

from iris.config.controller_settings import Controller, GcpControllerConfig
from iris.model.errors import InvalidValue
from iris.model.units import format_bytes
from iris.platforms.gcp import labels as label_rules
from iris.platforms.gcp.create_requests import (
    CLOUD_PLATFORM,
    boot_disk,
    checked_metadata,
    metadata_items,
    network_interface,
)
from iris.platforms.gcp.lean_compute import compute_v1
from iris.platforms.gcp.settings import GcpSettings
from iris.platforms.gcp.startup import controller_script


def insert_request(
    settings: GcpSettings, controller: Controller, request_id: str
) -> compute_v1.InsertInstanceRequest:
    """Returns the request that creates the machine. Its disk contains Temporal's state; the disk is
    deleted with the machine, and survives a restart.

    Args:
        controller: the controller section of a complete configuration.
        request_id: a UUID. Google executes only one of several calls with the same id. A new
            machine after a deleted one needs a new id.

    Raises:
        InvalidValue: the control plane is not on Google Cloud, or the configuration names no zone.
        BadConfig: Google would reject the request.
    """
    gcp = controller.gcp
    if gcp is None:
        raise InvalidValue(
            "controller", controller.kind, "is not on Google Cloud", "write controller: {gcp: {…}}"
        )
    if not gcp.zone:
        raise InvalidValue(
            "controller.gcp.zone",
            gcp.zone,
            "names no zone for the machine of the control plane",
            "set it, or set platform.gcp.default_zones",
        )
    script = controller_script(settings, image=controller.image, port=gcp.port)
    metadata = checked_metadata(
        {
            label_rules.STARTUP_KEY: script,
            label_rules.CONFIG_KEY: settings.config,
            label_rules.MADE_KEY: json.dumps(made_with(settings, gcp)),
        }
    )
    instance = compute_v1.Instance(
        name=label_rules.controller_name(settings),
        machine_type=f"zones/{gcp.zone}/machineTypes/{gcp.machine_type}",
        disks=[boot_disk(gcp.zone, gcp.machine_type, gcp.boot_disk)],
        network_interfaces=[network_interface(settings, gcp.zone)],
        metadata=compute_v1.Metadata(items=metadata_items(metadata)),
        labels=label_rules.owner_labels(settings, "controller"),
        tags=compute_v1.Tags(items=list(settings.network_tags)),
        service_accounts=[
            compute_v1.ServiceAccount(
                email=gcp.service_account or "default", scopes=[CLOUD_PLATFORM]
            )
        ],
        scheduling=compute_v1.Scheduling(
            provisioning_model="STANDARD", on_host_maintenance="MIGRATE", automatic_restart=True
        ),
    )
    instance.metadata.items.append(
        compute_v1.Items(key=label_rules.BUILD_KEY, value=_build(instance))
    )
    return compute_v1.InsertInstanceRequest(
        project=settings.project, zone=gcp.zone, instance_resource=instance, request_id=request_id
    )


def made_with(settings: GcpSettings, gcp: GcpControllerConfig) -> dict[str, str]:
    """Returns the settings that a machine keeps from its creation to its deletion, by configuration
    key.
    """
    return {
        "controller.gcp.machine_type": gcp.machine_type,
        "controller.gcp.boot_disk": format_bytes(gcp.boot_disk),
        "controller.gcp.service_account": gcp.service_account,
        "platform.gcp.network": settings.network,
        "platform.gcp.subnetwork": settings.subnetwork,
        "platform.gcp.external_ips": str(settings.external_ips).lower(),
        "platform.gcp.network_tags": ", ".join(settings.network_tags),
    }


def build_of(request: compute_v1.InsertInstanceRequest) -> str:
    """Returns the hash of the requested machine's definition."""
    return next(
        str(item.value)
        for item in request.instance_resource.metadata.items
        if item.key == label_rules.BUILD_KEY
    )


def _build(instance: compute_v1.Instance) -> str:
    """Returns a hash of everything that Iris defines about the machine."""
    return hashlib.sha256(
        compute_v1.Instance.to_json(instance, sort_keys=True).encode()
    ).hexdigest()[:16]
