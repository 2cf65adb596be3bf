"""The validation of requests for instances, and their conversion to resources."""

import json
import re
import secrets
from typing import Any

from iris.platforms.gcp.lean_compute import compute_v1
from tests.fakes.google import catalog, rules
from tests.fakes.google.cloud import Cloud
from tests.fakes.google.records import INSTANCE, ON_DEMAND, RESERVED, SPOT, Resource
from tests.fakes.google.refusals import Refusal, invalid

_OUTPUT_ONLY = (
    "id",
    "status",
    "statusMessage",
    "creationTimestamp",
    "selfLink",
    "cpuPlatform",
    "kind",
    "labelFingerprint",
)


def new_instance(cloud: Cloud, project: str, zone: str, body: bytes) -> Resource:
    """The instance that is asked for.

    Raises:
        Refusal: it may not be.
    """
    asked = _parsed(body)
    rules.check_name(asked.get("name", ""), "resource.name")
    for field in _OUTPUT_ONLY:
        if field in asked:
            raise invalid(f"Invalid value for field 'resource.{field}': it is output only")
    kind, family, cores = _machine_type(cloud, asked.get("machineType", ""), zone)
    _check_disks(asked.get("disks", []), zone, kind)
    if not asked.get("networkInterfaces"):
        raise invalid(
            "Invalid value for field 'resource.networkInterfaces': ''. At least one network"
            " interface is required."
        )
    rules.check_labels(asked.get("labels", {}))
    rules.check_metadata(
        (each.get("key", ""), each.get("value", ""))
        for each in asked.get("metadata", {}).get("items", [])
    )
    rules.check_tags(asked.get("tags", {}).get("items", []))
    if len(asked.get("serviceAccounts", [])) > 1:
        raise invalid(
            "Invalid value for field 'resource.serviceAccounts': at most one service account"
        )
    tier = _tier(asked, family)
    instance = Resource(
        kind=INSTANCE,
        project=project,
        zone=zone,
        name=asked["name"],
        uid=secrets.randbits(62),
        created=cloud.clock.now(),
        body=json.dumps(asked),
        state="PROVISIONING",
        labels=asked.get("labels", {}),
        type=kind,
        family=family,
        tier=tier,
        units=cores,
        hosts=1,
    )
    instance.endpoints = [cloud.address()]
    if cloud.get(instance.key) is not None:
        raise Refusal("ALREADY_EXISTS", f"The resource '{instance.path}' already exists")
    return instance


def _parsed(body: bytes) -> dict[str, Any]:
    """The message, which must not have a field that Google does not know."""
    try:
        message = compute_v1.Instance.from_json(body.decode(), ignore_unknown_fields=False)
    except Exception as error:  # whatever the parser raises, it is the client's fault
        raise invalid(f"Invalid JSON payload received: {error}") from None
    parsed: dict[str, Any] = json.loads(
        compute_v1.Instance.to_json(
            message, use_integers_for_enums=False, always_print_fields_with_no_presence=False
        )
    )
    return parsed


def _machine_type(cloud: Cloud, text: str, zone: str) -> tuple[str, str, int]:
    match = re.fullmatch(r"(?:.*/)?zones/([^/]+)/machineTypes/([^/]+)", text)
    if match is None or match[1] != zone:
        raise invalid(
            f"Invalid value for field 'resource.machineType': '{text}'. The URL is malformed, or of"
            " another zone."
        )
    found = catalog.machine(match[2])
    if found is None:
        raise invalid(
            f"Invalid value for field 'resource.machineType': '{text}'. Machine type with name"
            f" '{match[2]}' does not exist."
        )
    rules.check_offered(cloud.knobs, zone, match[2])
    return match[2], *found


def _check_disks(disks: list[dict[str, Any]], zone: str, machine: str) -> None:
    boot = [each for each in disks if each.get("boot")]
    if len(boot) != 1 or disks[0] is not boot[0]:
        raise invalid(
            "Invalid value for field 'resource.disks': ''. No boot disk is attached, or it is not"
            " the first."
        )
    for disk in disks:
        params = disk.get("initializeParams")
        if (params is None) == ("source" not in disk):
            raise invalid(
                "Invalid value for field 'resource.disks': one of source and initializeParams is"
                " needed"
            )
        if params is None:
            continue
        image = params.get("sourceImage", "")
        if disk.get("boot") and not catalog.IMAGES.fullmatch(image):
            raise invalid(
                "Invalid value for field 'resource.disks[0].initializeParams.sourceImage':"
                f" '{image}' was not found"
            )
        if int(params.get("diskSizeGb", 10)) < 10:
            raise invalid(
                "Invalid value for field 'resource.disks[0].initializeParams.diskSizeGb': must be"
                " at least 10"
            )
        _check_disk_type(
            params.get("diskType", f"zones/{zone}/diskTypes/pd-standard"), zone, machine
        )


def _check_disk_type(text: str, zone: str, machine: str) -> None:
    match = re.fullmatch(r"(?:.*/)?zones/([^/]+)/diskTypes/([^/]+)", text)
    if match is None or match[1] != zone or match[2] not in catalog.DISKS:
        raise invalid(
            f"Invalid value for field 'resource.disks[0].initializeParams.diskType': '{text}'"
        )
    if not catalog.takes_disk(machine, match[2]):
        raise invalid(f"[{match[2]}, {machine}] features are not compatible for creating instance.")


def _tier(asked: dict[str, Any], family: str) -> str:
    scheduling = asked.get("scheduling", {})
    model, host = (
        scheduling.get("provisioningModel", "STANDARD"),
        scheduling.get("onHostMaintenance", ""),
    )
    spot = model == "SPOT" or scheduling.get("preemptible", False)
    if model not in ("SPOT", "STANDARD", "RESERVATION_BOUND"):
        raise invalid(f"Invalid value for field 'resource.scheduling.provisioningModel': '{model}'")
    if spot and scheduling.get("automaticRestart", False):
        raise invalid("Scheduling options for spot instances must have automatic restart off")
    if host == "MIGRATE" and (spot or family in catalog.GPU_FAMILIES):
        raise invalid(
            "Instances with guest accelerators, and spot instances, do not support live migration"
        )
    if family in catalog.GPU_FAMILIES and host != "TERMINATE":
        raise invalid(
            "Instances with guest accelerators must have onHostMaintenance set to TERMINATE"
        )
    if (
        scheduling.get("instanceTerminationAction")
        and not spot
        and "maxRunDuration" not in scheduling
    ):
        raise invalid("instanceTerminationAction needs a spot instance or maxRunDuration")
    affinity = asked.get("reservationAffinity", {}).get("consumeReservationType", "")
    if spot and affinity == "SPECIFIC_RESERVATION":
        raise invalid("Spot instances cannot consume a reservation")
    if spot:
        return SPOT
    return RESERVED if affinity == "SPECIFIC_RESERVATION" else ON_DEMAND
