"""The virtual machine of the control plane, as a value: what Google is asked for. Nothing here calls anybody."""

import hashlib
import json

from google.cloud import compute_v1

from iris.config_models import Controller, GcpController
from iris.errors import InvalidValue
from iris.platforms.gcp import marks
from iris.platforms.gcp.requests import CLOUD_PLATFORM, boot_disk, checked_metadata, metadata_items, network_interface
from iris.platforms.gcp.settings import GcpSettings
from iris.platforms.gcp.startup import controller_script
from iris.units import format_bytes


def insert_request(settings: GcpSettings, controller: Controller, request_id: str) -> compute_v1.InsertInstanceRequest:
    """The call that makes the machine. Its disk, on which Temporal has its state, goes with it; a restart leaves it.

    Args:
        controller: of a complete configuration.
        request_id: a UUID, the same for the same intent: of two such calls Google does one. A machine that is made after another
            was deleted is another intent.

    Raises:
        InvalidValue: the control plane is to be elsewhere, or the configuration does not say where.
        BadConfig: Google would not take it.
    """
    gcp = controller.gcp
    if gcp is None:
        raise InvalidValue("controller", controller.kind, "is not on Google Cloud", "write controller: {gcp: {…}}")
    if not gcp.zone:
        raise InvalidValue("controller.gcp.zone", gcp.zone, "names no zone", "name one, or platform.gcp.default_zones")
    script = controller_script(settings, image=controller.image, port=gcp.port)
    told = checked_metadata(
        {
            marks.STARTUP_KEY: script,
            marks.CONFIG_KEY: settings.config,
            marks.MADE_KEY: json.dumps(made_with(settings, gcp)),
        }
    )
    instance = compute_v1.Instance(
        name=marks.controller_name(settings),
        machine_type=f"zones/{gcp.zone}/machineTypes/{gcp.machine_type}",
        disks=[boot_disk(gcp.zone, gcp.machine_type, gcp.boot_disk)],
        network_interfaces=[network_interface(settings, gcp.zone)],
        metadata=compute_v1.Metadata(items=metadata_items(told)),
        labels=marks.owner_labels(settings, "controller"),
        tags=compute_v1.Tags(items=list(settings.network_tags)),
        service_accounts=[compute_v1.ServiceAccount(email=gcp.service_account or "default", scopes=[CLOUD_PLATFORM])],
        scheduling=compute_v1.Scheduling(provisioning_model="STANDARD", on_host_maintenance="MIGRATE", automatic_restart=True),
    )
    instance.metadata.items.append(compute_v1.Items(key=marks.BUILD_KEY, value=_build(instance)))
    return compute_v1.InsertInstanceRequest(
        project=settings.project, zone=gcp.zone, instance_resource=instance, request_id=request_id
    )


def made_with(settings: GcpSettings, gcp: GcpController) -> dict[str, str]:
    """What a machine has from its birth to its end, by the keys of the configuration that say it."""
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
    """What tells the machine that is asked for from every other."""
    return next(str(item.value) for item in request.instance_resource.metadata.items if item.key == marks.BUILD_KEY)


def _build(instance: compute_v1.Instance) -> str:
    """Another one for every other machine, as far as Iris decides about it."""
    return hashlib.sha256(compute_v1.Instance.to_json(instance, sort_keys=True).encode()).hexdigest()[:16]
