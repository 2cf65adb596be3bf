"""The JSON messages of the Compute API."""

import base64
import hashlib
import json
import re
from typing import Any

from iris.model.slice.scale_groups import region_of
from tests.fakes.google.clock import stamp
from tests.fakes.google.records import Operation, Resource
from tests.fakes.google.refusals import Refusal

ROOT = "https://www.googleapis.com/compute/v1/"


def instance_message(of: Resource) -> dict[str, Any]:
    """The instance, with all that only the service says."""
    asked = json.loads(of.body)
    zone = f"{ROOT}projects/{of.project}/zones/{of.zone}"
    message: dict[str, Any] = {
        **asked,
        "kind": "compute#instance",
        "id": str(of.uid),
        "creationTimestamp": stamp(of.created),
        "zone": zone,
        "selfLink": ROOT + of.path,
        "status": of.state,
        "machineType": f"{zone}/machineTypes/{of.type}",
        "cpuPlatform": "Unknown CPU Platform",
        "labelFingerprint": fingerprint(of, "labels"),
        "labels": of.labels,
        "metadata": {
            "kind": "compute#metadata",
            "fingerprint": fingerprint(of, "metadata"),
            **asked.get("metadata", {}),
        },
        "disks": [_disk(number, disk, of) for number, disk in enumerate(asked["disks"])],
        "networkInterfaces": [
            _interface(number, each, of)
            for number, each in enumerate(asked.get("networkInterfaces", []))
        ],
    }
    if of.note:
        message["statusMessage"] = of.note
    return message


def _disk(number: int, asked: dict[str, Any], of: Resource) -> dict[str, Any]:
    name = of.name if number == 0 else f"{of.name}-{number}"
    source = f"{ROOT}projects/{of.project}/zones/{of.zone}/disks/{name}"
    kept = {key: value for key, value in asked.items() if key != "initializeParams"}
    return {
        "source": source,
        "deviceName": name,
        "index": number,
        "kind": "compute#attachedDisk",
        **kept,
    }


def _interface(number: int, asked: dict[str, Any], of: Resource) -> dict[str, Any]:
    private, public = of.endpoints[0]
    network = asked.get("network", "global/networks/default").rpartition("/")[2]
    region = f"{ROOT}projects/{of.project}/regions/{region_of(of.zone)}"
    made: dict[str, Any] = {
        "kind": "compute#networkInterface",
        "name": f"nic{number}",
        "networkIP": private,
        "network": f"{ROOT}projects/{of.project}/global/networks/{network}",
        "subnetwork": f"{region}/subnetworks/{asked.get('subnetwork', network).rpartition('/')[2]}",
    }
    if configs := asked.get("accessConfigs"):
        made["accessConfigs"] = [
            {"name": "External NAT", "type": "ONE_TO_ONE_NAT", "natIP": public, **each}
            for each in configs
        ]
    return made


def fingerprint(of: Resource, what: str) -> str:
    """Changes with every change."""
    return base64.b64encode(
        hashlib.sha256(f"{what} {of.uid} {of.version}".encode()).digest()[:8]
    ).decode()


def operation_message(of: Operation) -> dict[str, Any]:
    zone = f"{ROOT}projects/{of.project}/zones/{of.zone}"
    message: dict[str, Any] = {
        "kind": "compute#operation",
        "id": str(int(hashlib.sha256(of.name.encode()).hexdigest()[:15], 16)),
        "name": of.name,
        "operationType": of.verb,
        "progress": 100 if of.ended else 0,
        "status": "DONE" if of.ended else "RUNNING",
        "insertTime": stamp(of.created),
        "startTime": stamp(of.created),
        "selfLink": f"{zone}/operations/{of.name}",
        "targetId": str(of.target_id),
        "targetLink": ROOT + of.target,
        "user": "user@example.com",
        "zone": zone,
    }
    if of.ended is not None:
        message["endTime"] = stamp(of.ended)
    if of.ended is not None and of.error is not None:
        error = {
            "code": of.error["error_code"],
            "message": of.error["message"],
            **of.error.get("more", {}),
        }
        message["error"] = {"errors": [error]}
        message["httpErrorStatusCode"] = of.error["http"]
        message["httpErrorMessage"] = {403: "FORBIDDEN", 503: "SERVICE UNAVAILABLE"}.get(
            of.error["http"], "BAD REQUEST"
        )
    return message


def error_message(refusal: Refusal) -> dict[str, Any]:
    """The body of a refused call."""
    one = {"message": refusal.message, "domain": "global", "reason": refusal.reason}
    return {"error": {"code": refusal.http_status, "message": refusal.message, "errors": [one]}}


_TERM = re.compile(
    r'(?P<field>[a-zA-Z.]+?(?:\.[a-z0-9_-]+)?)\s*(?P<sign>=|!=|:)\s*(?P<value>"[^"]*"|\S+)'
)


def matches(message: dict[str, Any], text: str) -> bool:
    """Whether the instance passes a filter: terms `field=value`, `field!=value`, `field:*`, joined
    by AND.

    Raises:
        Refusal: the filter is something else.
    """
    for part in re.split(r"\s+AND\s+|(?<=\))\s+(?=\()", text.strip()):
        term = re.fullmatch(r"\((.*)\)", part.strip())
        match = _TERM.fullmatch((term[1] if term else part).strip())
        if match is None:
            raise Refusal(
                "INVALID_ARGUMENT",
                f"Invalid value for field 'filter': '{text}'. Invalid list filter expression.",
            )
        value, wanted = _field(message, match["field"]), match["value"].strip('"')
        if match["sign"] == ":":
            holds = value is not None and (wanted == "*" or wanted in value)
        else:
            holds = (value == wanted) is (match["sign"] == "=")
        if not holds:
            return False
    return True


def _field(message: dict[str, Any], path: str) -> str | None:
    first, _, rest = path.partition(".")
    found = message.get(first)
    if rest:
        found = found.get(rest) if isinstance(found, dict) else None
    return None if found is None else str(found)
