"""The validation of TPU requests, and their conversion to resources."""

import base64
import re
import secrets
from typing import Any

from iris.model.host.accelerators import tpu
from tests.fakes.google import catalog, rules
from tests.fakes.google.cloud import Cloud
from tests.fakes.google.records import NODE, ON_DEMAND, QUEUED, RESERVED, SPOT, Resource, key
from tests.fakes.google.refusals import Refusal, invalid
from tests.fakes.google.tpu_messages import Node, node_names

#: The service says these; nobody tells it.
_OUTPUT_ONLY = (
    "state",
    "health",
    "health_description",
    "create_time",
    "network_endpoints",
    "id",
    "api_version",
    "symptoms",
    "queued_resource",
    "multislice_node",
)


def place_of(parent: str) -> tuple[str, str]:
    """(project, zone) of `projects/…/locations/…`."""
    if not (match := re.fullmatch("projects/([^/]+)/locations/([^/]+)", parent)):
        raise invalid(f"Invalid resource name '{parent}'")
    return match[1], match[2]


def key_of(path: str) -> str:
    """Of a node's or a queued resource's path."""
    if not (
        match := re.fullmatch(
            "projects/([^/]+)/locations/([^/]+)/(nodes|queuedResources)/([^/]+)", path
        )
    ):
        raise invalid(f"Invalid resource name '{path}'")
    return key(NODE if match[3] == "nodes" else QUEUED, match[1], match[2], match[4])


def _variant(node: Any) -> str:
    config = node.accelerator_config
    if node.accelerator_type and node.HasField("accelerator_config"):
        raise invalid("Only one of accelerator_type and accelerator_config may be set")
    if node.HasField("accelerator_config"):
        kind = (
            config.DESCRIPTOR.fields_by_name["type_"].enum_type.values_by_number[config.type_].name
        )
        variant = catalog.variant_of(kind, config.topology)
        if variant is None:
            raise invalid(f"Invalid accelerator_config: {kind} has no topology '{config.topology}'")
        return variant
    if node.accelerator_type not in catalog.ACCELERATORS:
        raise invalid(
            f"Invalid value for field 'node.accelerator_type': '{node.accelerator_type}' is unknown"
        )
    return str(node.accelerator_type)


def _check_node(cloud: Cloud, node: Any, zone: str) -> str:
    """The accelerator type of a node that may be made."""
    for field in _OUTPUT_ONLY:
        descriptor = Node.DESCRIPTOR.fields_by_name[field]
        value = getattr(node, field)
        if node.HasField(field) if descriptor.has_presence else value:
            raise invalid(f"Field 'node.{field}' is output only")
    if node.name:
        raise invalid("Field 'node.name' is output only: the name is node_id")
    variant = _variant(node)
    rules.check_offered(cloud.knobs, zone, variant)
    if not catalog.runs(node.runtime_version, variant):
        raise invalid(
            f"Invalid value for field 'node.runtime_version': '{node.runtime_version}' is not for"
            f" {variant}"
        )
    if node.HasField("network_config") and node.network_configs:
        raise invalid("Only one of network_config and network_configs may be set")
    rules.check_labels(node.labels)
    rules.check_metadata(node.metadata.items())
    rules.check_tags(node.tags)
    email = node.service_account.email
    if email and not re.fullmatch(r"[^@\s]+@[^@\s]+\.gserviceaccount\.com", email):
        raise invalid(f"Invalid value for field 'node.service_account.email': '{email}'")
    return variant


def new_node(cloud: Cloud, request: Any) -> Resource:
    """The node that is asked for.

    Raises:
        Refusal: it may not be.
    """
    project, zone = place_of(request.parent)
    rules.check_place(cloud.knobs, project, zone)
    rules.check_name(request.node_id, "node_id")
    scheduling = request.node.scheduling_config
    if scheduling.spot + scheduling.preemptible + scheduling.reserved > 1:
        raise invalid("Only one of spot, preemptible and reserved may be set in scheduling_config")
    tier = (
        SPOT
        if scheduling.spot or scheduling.preemptible
        else RESERVED
        if scheduling.reserved
        else ON_DEMAND
    )
    variant = _check_node(cloud, request.node, zone)
    node = _resource(cloud, NODE, project, zone, request.node_id, request.node, variant, tier)
    node.labels = dict(request.node.labels)
    _check_new(cloud, node)
    return node


def new_queued(cloud: Cloud, request: Any) -> Resource:
    """The queued resource that is asked for.

    Raises:
        Refusal: it may not be.
    """
    project, zone = place_of(request.parent)
    rules.check_place(cloud.knobs, project, zone)
    rules.check_name(request.queued_resource_id, "queued_resource_id")
    asked = request.queued_resource
    if not asked.tpu.node_spec:
        raise invalid("Field 'queued_resource.tpu.node_spec' is empty")
    variants = set()
    for spec in asked.tpu.node_spec:
        if spec.parent != request.parent:
            raise invalid(
                f"Field 'node_spec.parent' must be '{request.parent}', not '{spec.parent}'"
            )
        if spec.HasField("multislice_params") and spec.node_id:
            raise invalid("Only one of node_id and multislice_params may be set")
        if spec.HasField("multislice_params") and spec.multislice_params.node_count < 2:
            raise invalid("multislice_params.node_count must be more than 1")
        if not spec.HasField("multislice_params"):
            rules.check_name(spec.node_id, "node_spec.node_id")
        if any((spec.node.scheduling_config.spot, spec.node.scheduling_config.preemptible)):
            raise invalid(
                "The tier of a queued resource is its own: leave node.scheduling_config alone"
            )
        variants.add(_check_node(cloud, spec.node, zone))
    if len(variants) > 1:
        raise invalid("All nodes of a queued resource must have one accelerator type")
    tier = SPOT if asked.HasField("spot") else RESERVED if asked.reservation_name else ON_DEMAND
    if tier == SPOT and asked.reservation_name:
        raise invalid("A reservation has no spot capacity")
    if asked.reservation_name and not re.fullmatch(
        rf"projects/[^/]+/locations/{zone}/reservations/[^/]+", asked.reservation_name
    ):
        raise invalid(
            "Invalid value for field 'queued_resource.reservation_name':"
            f" '{asked.reservation_name}'"
        )
    queued = _resource(
        cloud, QUEUED, project, zone, request.queued_resource_id, asked, variants.pop(), tier
    )
    queued.reservation = asked.reservation_name
    names = node_names(queued)
    queued.units, queued.hosts = queued.units * len(names), queued.hosts * len(names)
    queued.labels = dict(asked.tpu.node_spec[0].node.labels)
    for name in names:
        if cloud.get(key(NODE, project, zone, name)) is not None:
            raise Refusal(
                "ALREADY_EXISTS", f"Resource '{request.parent}/nodes/{name}' already exists"
            )
    _check_new(cloud, queued)
    return queued


def _resource(
    cloud: Cloud, kind: str, project: str, zone: str, name: str, body: Any, variant: str, tier: str
) -> Resource:
    return Resource(
        kind=kind,
        project=project,
        zone=zone,
        name=name,
        uid=secrets.randbits(62),
        created=cloud.clock.now(),
        body=base64.b64encode(body.SerializeToString()).decode(),
        state="CREATING",
        labels={},
        type=variant,
        family=catalog.tpu_family(variant),
        tier=tier,
        units=tpu(variant).chips,
        hosts=tpu(variant).hosts,
    )


def _check_new(cloud: Cloud, resource: Resource) -> None:
    if cloud.get(resource.key) is not None:
        raise Refusal("ALREADY_EXISTS", f"Resource '{resource.path}' already exists")
    if words := cloud.quota_words(resource):
        raise Refusal("RESOURCE_EXHAUSTED", words, "quota")
