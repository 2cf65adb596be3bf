"""The fake Google as the official clients see it; the shapes are those of recordings of the real
services.
"""

import itertools
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.longrunning import operations_pb2

from iris.platforms.gcp.lean_compute import InstancesClient
from tests.fakes.google.callers import (
    ZONE,
    a_node,
    a_queued,
    an_instance,
    instances_client,
    location,
    operations_client,
    tpu_client,
)
from tests.fakes.google.client import FakeGoogle

_numbers = itertools.count()
State = tpu_v2.Node.State


@pytest.fixture
def project(google: FakeGoogle) -> Iterator[str]:
    """One of its own for every test; in the end the books of all balance."""
    name = f"project-{next(_numbers)}"
    yield name
    google.clear()
    google.check(name)


@pytest.fixture
def tpus(google: FakeGoogle) -> tpu_v2.TpuClient:
    return tpu_client(google)


@pytest.fixture
def vms(google: FakeGoogle) -> InstancesClient:
    return instances_client(google)


def node_path(project: str, name: str = "n1") -> str:
    return f"{location(project)}/nodes/{name}"


def read(google: FakeGoogle, path: str) -> tuple[int, Any]:
    """(status, body) of a plain GET."""
    try:
        with urllib.request.urlopen(f"{google.compute}/compute/v1/{path}") as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_node_is_created_and_deleted_as_recorded(tpus: tpu_v2.TpuClient, project: str) -> None:
    """The create's reply has no health, the next read has it; network names are returned in
    full.
    """
    creating = tpus.create_node(
        parent=location(project), node_id="n1", node=a_node("v5p-8"), timeout=60
    )
    assert tpus.get_node(name=node_path(project)).state is State.CREATING

    made, seen = creating.result(timeout=60), tpus.get_node(name=node_path(project))

    assert re.fullmatch(
        rf"{location(project)}/operations/operation-\d{{13}}-[0-9a-f]+", creating.operation.name
    )
    assert (made.state, made.health, seen.health) == (State.READY, 0, tpu_v2.Node.Health.HEALTHY)
    assert (seen.accelerator_config.topology, seen.api_version, seen.id == made.id) == (
        "2x2x1",
        tpu_v2.Node.ApiVersion.V2,
        True,
    )
    assert seen.network_config.network == f"projects/{project}/global/networks/default"
    assert (
        seen.network_config.subnetwork
        == f"projects/{project}/regions/europe-west4/subnetworks/default"
    )
    assert [
        (each.port, bool(each.access_config.external_ip)) for each in seen.network_endpoints
    ] == [(8470, True)]
    assert len(seen.service_account.scope) == 6

    tpus.delete_node(name=node_path(project)).result(timeout=60)
    with pytest.raises(exceptions.NotFound, match=f"Resource '{node_path(project)}' was not found"):
        tpus.get_node(name=node_path(project))


def test_the_metadata_of_operations_is_unreadable(tpus: tpu_v2.TpuClient, project: str) -> None:
    """The client has no class for its type, as with the real service: code that reads it must fail
    here.
    """
    creating = tpus.create_node(parent=location(project), node_id="n1", node=a_node(), timeout=60)

    assert (
        creating.operation.metadata.type_url
        == "type.googleapis.com/google.cloud.common.OperationMetadata"
    )
    assert node_path(project).encode() in creating.operation.metadata.value
    with pytest.raises(TypeError):
        _ = creating.metadata


@pytest.mark.parametrize(
    ("kind", "hosts"), [("v5litepod-8", 1), ("v5litepod-16", 4), ("v5p-16", 2), ("v6e-1", 1)]
)
def test_a_node_has_an_endpoint_for_each_vm(
    tpus: tpu_v2.TpuClient, project: str, kind: str, hosts: int
) -> None:
    """Eight chips of v5e are one VM, sixteen are four."""
    made = tpus.create_node(
        parent=location(project), node_id="n1", node=a_node(kind), timeout=60
    ).result(timeout=60)

    assert len({each.ip_address for each in made.network_endpoints}) == hosts


def test_a_name_is_taken_until_its_node_is_gone(
    google: FakeGoogle, tpus: tpu_v2.TpuClient, project: str
) -> None:
    """Also during the deletion; the next node of the name is another one."""
    google.delete_time(None, "n-taken")
    first = tpus.create_node(
        parent=location(project), node_id="n-taken", node=a_node(), timeout=60
    ).result(timeout=60)
    tpus.delete_node(name=node_path(project, "n-taken"), timeout=60)

    with pytest.raises(exceptions.AlreadyExists):
        tpus.create_node(parent=location(project), node_id="n-taken", node=a_node(), timeout=60)
    with pytest.raises(exceptions.Aborted, match="unable to queue the operation"):
        tpus.delete_node(name=node_path(project, "n-taken"), timeout=60)
    google.node("n-taken", vanish=True)
    assert (
        first.id
        != tpus.create_node(parent=location(project), node_id="n-taken", node=a_node(), timeout=60)
        .result(timeout=60)
        .id
    )


def test_a_full_zone_fails_the_operation_later(
    google: FakeGoogle, tpus: tpu_v2.TpuClient, project: str
) -> None:
    """Without details; no node is left."""
    google.capacity(ZONE, "v5litepod-16", 0, tier="spot", project=project)
    creating = tpus.create_node(
        parent=location(project), node_id="n1", node=a_node(spot=True), timeout=60
    )
    with pytest.raises(
        exceptions.ResourceExhausted, match=f'no more capacity in the zone "{ZONE}"'
    ) as caught:
        creating.result(timeout=60)

    assert caught.value.details == []
    assert google.alive(project) == []
    # Of another tier.
    tpus.create_node(parent=location(project), node_id="n1", node=a_node(), timeout=60).result(
        timeout=60
    )


def test_quota_is_refused_at_once_and_held_until_the_delete(
    google: FakeGoogle, tpus: tpu_v2.TpuClient, project: str
) -> None:
    """A preempted node still counts."""
    google.quota("v5litepod", "spot", "europe-west4", 16, project=project)
    tpus.create_node(
        parent=location(project), node_id="n1", node=a_node(spot=True), timeout=60
    ).result(timeout=60)
    google.preempt(f"{location(project)}/nodes/n1", notice=0)

    with pytest.raises(exceptions.ResourceExhausted) as caught:
        tpus.create_node(parent=location(project), node_id="n2", node=a_node(spot=True), timeout=60)
    words = (
        "Quota 'TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI' exhausted. Limit 16 in region"
        " europe-west4"
    )
    assert [each.description for each in caught.value.details[0].violations] == [words]

    tpus.delete_node(name=node_path(project), timeout=60).result(timeout=60)
    tpus.create_node(
        parent=location(project), node_id="n2", node=a_node(spot=True), timeout=60
    ).result(timeout=60)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("With_Capitals", {}),
        ("n" * 64, {}),
        ("n1", {"accelerator_type": "v5e-16"}),
        ("n1", {"runtime_version": "v2-alpha-tpuv6e"}),
        ("n1", {"labels": {"Key": "v"}}),
        ("n1", {"labels": {"key": "a.b"}}),
        ("n1", {"labels": {f"k{number}": "" for number in range(65)}}),
        ("n1", {"metadata": {"startup-script": "x" * 262_145}}),
        ("n1", {"metadata": {f"k{number}": "x" * 200_000 for number in range(3)}}),
        ("n1", {"network_configs": [{"network": "default"}]}),
        ("n1", {"state": State.READY}),
        ("n1", {"scheduling_config": {"spot": True, "reserved": True}}),
    ],
)
def test_an_invalid_node_is_refused(
    tpus: tpu_v2.TpuClient, project: str, name: str, changes: dict[str, Any]
) -> None:
    """Requests that the fake accepts must be valid for Google, too."""
    node = a_node()
    for field, value in changes.items():
        setattr(node, field, value)
    with pytest.raises(exceptions.InvalidArgument):
        tpus.create_node(parent=location(project), node_id=name, node=node, timeout=60)


def test_an_unknown_zone_is_a_permission_error(tpus: tpu_v2.TpuClient, project: str) -> None:
    """Google does not reveal whether a zone exists."""
    with pytest.raises(exceptions.PermissionDenied, match="not found or access is unauthorized"):
        list(tpus.list_nodes(parent=location(project, "mars-north1-a")))


def test_lists_have_pages_and_name_unreachable_zones(
    google: FakeGoogle, tpus: tpu_v2.TpuClient, project: str
) -> None:
    """A page may be empty and have a next one; a zone without an answer is unreachable, not
    empty.
    """
    for number, zone in enumerate([ZONE, ZONE, ZONE, "us-east1-d"]):
        google.seed_foreign(f"n{number}", project, zone)
    google.page_size(2, empty_pages=1)
    google.zone_down("us-east1-d")
    pages = list(tpus.list_nodes(parent=f"projects/{project}/locations/-").pages)
    google.page_size(500)

    assert [len(each.nodes) for each in pages] == [0, 2, 1]
    assert {zone for each in pages for zone in each.unreachable} == {
        location(project, "us-east1-d")
    }
    with pytest.raises(exceptions.ServiceUnavailable):
        tpus.get_node(name=f"{location(project, 'us-east1-d')}/nodes/n3")


def test_operations_are_found_by_name_and_in_the_zones_list(
    tpus: tpu_v2.TpuClient, project: str
) -> None:
    """By name, and in the list of the zone."""
    creating = tpus.create_node(parent=location(project), node_id="n1", node=a_node(), timeout=60)
    creating.result(timeout=60)

    again = tpus.get_operation(operations_pb2.GetOperationRequest(name=creating.operation.name))
    listed = tpus.list_operations(operations_pb2.ListOperationsRequest(name=location(project)))
    assert again.done
    assert [each.name for each in listed.operations] == [creating.operation.name]


def test_a_queued_resource_waits_for_capacity_and_is_suspended_by_a_preemption(
    google: FakeGoogle, tpus: tpu_v2.TpuClient, project: str
) -> None:
    """It does not queue again by itself, holds its quota, and needs force while it has nodes."""
    path = f"{location(project)}/queuedResources/q1"
    states = tpu_v2.QueuedResourceState.State

    def state() -> Any:
        return tpus.get_queued_resource(name=path).state.state

    def until(wanted: Any) -> None:
        for _ in range(500):
            if state() is wanted:
                return
            google.advance(0.1)
        raise AssertionError(f"{state()} is not {wanted}")

    google.capacity(ZONE, "v5litepod-16", 0, project=project)
    asked = a_queued(project, "q1", spot={})
    tpus.create_queued_resource(
        parent=location(project), queued_resource_id="q1", queued_resource=asked, timeout=60
    )
    until(states.WAITING_FOR_RESOURCES)
    google.capacity(ZONE, "v5litepod-16", 1, project=project)
    until(states.ACTIVE)
    assert tpus.get_node(name=node_path(project, "q1")).queued_resource == path
    with pytest.raises(exceptions.FailedPrecondition):
        tpus.delete_queued_resource(name=path)

    google.preempt(node_path(project, "q1"))
    assert state() is states.SUSPENDING
    google.advance(31)
    until(states.SUSPENDED)
    tpus.delete_queued_resource(request={"name": path, "force": True}, timeout=60).result(
        timeout=60
    )
    assert google.alive(project) == []


def test_the_delete_of_a_queued_resource_returns_an_unexpected_type(
    google: FakeGoogle, tpus: tpu_v2.TpuClient, project: str
) -> None:
    """As the real service does; the resource is deleted all the same."""
    path = f"{location(project)}/queuedResources/q1"
    tpus.create_queued_resource(
        parent=location(project),
        queued_resource_id="q1",
        queued_resource=a_queued(project, "q1"),
        timeout=60,
    )
    google.operation("mistyped", verb="delete")
    with pytest.raises(TypeError):
        tpus.delete_queued_resource(request={"name": path, "force": True}, timeout=60).result(
            timeout=60
        )

    assert google.alive(project) == []


def test_an_instance_is_created_and_deleted_as_recorded(
    google: FakeGoogle, vms: InstancesClient, project: str
) -> None:
    """Operations, instances and errors have the keys of Google's."""
    place: dict[str, Any] = {"project": project, "zone": ZONE}
    inserting = vms.insert_unary(instance_resource=an_instance("vm1"), **place)
    path = f"projects/{project}/zones/{ZONE}"
    _, running = read(google, f"{path}/operations/{inserting.name}")
    done = operations_client(google).wait(operation=inserting.name, **place)
    _, seen = read(google, f"{path}/instances/vm1")

    keys = {
        "id",
        "insertTime",
        "kind",
        "name",
        "operationType",
        "progress",
        "selfLink",
        "startTime",
        "status",
        "targetId",
    }
    assert set(running) == keys | {"targetLink", "user", "zone"}
    assert (running["status"], running["operationType"], done.status.name) == (
        "RUNNING",
        "insert",
        "DONE",
    )
    keys = {
        "creationTimestamp",
        "disks",
        "id",
        "kind",
        "labelFingerprint",
        "machineType",
        "metadata",
        "name",
        "networkInterfaces",
    }
    assert keys | {"selfLink", "status", "zone"} <= set(seen)
    assert (seen["status"], seen["kind"]) == ("RUNNING", "compute#instance")

    deleting = vms.delete_unary(instance="vm1", **place)
    operations_client(google).wait(operation=deleting.name, **place)
    words = f"The resource '{path}/instances/vm1' was not found"
    error = {"domain": "global", "message": words, "reason": "notFound"}
    assert read(google, f"{path}/instances/vm1") == (
        404,
        {"error": {"code": 404, "errors": [error], "message": words}},
    )


def test_stock_outs_and_quotas_of_compute_are_in_the_operation(
    google: FakeGoogle, vms: InstancesClient, project: str
) -> None:
    """A stock-out is a 503 and a quota a 403, both with Google's names; nothing is left."""
    place: dict[str, Any] = {"project": project, "zone": ZONE}

    def outcome(name: str) -> tuple[str, int]:
        operation = operations_client(google).wait(
            operation=vms.insert_unary(instance_resource=an_instance(name), **place).name, **place
        )
        return operation.error.errors[0].code, operation.http_error_status_code

    google.capacity(ZONE, "n2-standard-8", 0, project=project)
    assert outcome("vm1") == ("ZONE_RESOURCE_POOL_EXHAUSTED", 503)
    google.quota("n2", "on-demand", "europe-west4", 7, project=project)
    assert outcome("vm2") == ("QUOTA_EXCEEDED", 403)
    google.advance(1)
    assert google.alive(project) == []


def test_an_insert_is_idempotent_by_request_id(
    google: FakeGoogle, vms: InstancesClient, project: str
) -> None:
    """Without one the name is taken."""
    place: dict[str, Any] = {
        "project": project,
        "zone": ZONE,
        "instance_resource": an_instance("vm1"),
    }
    request = {**place, "request_id": "6b6f8f1e-2f5c-4d0e-8a5b-0d9a3c1f2e4d"}

    assert vms.insert_unary(request=request).name == vms.insert_unary(request=request).name
    with pytest.raises(exceptions.Conflict):
        vms.insert_unary(**place)


def test_labels_filter_lists_and_change_only_with_the_latest_fingerprint(
    google: FakeGoogle, vms: InstancesClient, project: str
) -> None:
    """A caller with outdated labels may not overwrite them."""
    place: dict[str, Any] = {"project": project, "zone": ZONE}
    for name, labels in {"vm1": {"a": "1", "b": "2"}, "vm2": {"a": "1"}, "vm3": {"a": "2"}}.items():
        vms.insert_unary(instance_resource=an_instance(name, labels=labels), **place)

    def listed(words: str) -> set[str]:
        found = vms.aggregated_list(request={"project": project, "filter": words})
        return {instance.name for _, zone in found for instance in zone.instances}

    assert listed("labels.a=1") == {"vm1", "vm2"}
    assert listed("labels.a=1 AND labels.b:*") == listed("(labels.a = 1) (labels.b:*)") == {"vm1"}
    assert listed('labels.a!="1"') == {"vm3"}
    with pytest.raises(exceptions.BadRequest):
        listed("labels.a eq 1 or so")
    seen = vms.get(instance="vm1", **place)
    change = {"labels": {"a": "9"}, "label_fingerprint": seen.label_fingerprint}
    vms.set_labels_unary(instance="vm1", instances_set_labels_request_resource=change, **place)
    assert vms.get(instance="vm1", **place).labels == {"a": "9"}
    with pytest.raises(exceptions.PreconditionFailed):
        vms.set_labels_unary(instance="vm1", instances_set_labels_request_resource=change, **place)


@pytest.mark.parametrize("kind", ["c3-standard-8", "n4-standard-8"])
def test_the_default_disk_type_fits_only_old_machine_types(
    vms: InstancesClient, project: str, kind: str
) -> None:
    """From the real service: [pd-standard, …, n4-standard-16] features are not compatible for
    creating instance.
    """
    with pytest.raises(
        exceptions.BadRequest, match=rf"\[pd-standard, {kind}\] features are not compatible"
    ):
        vms.insert_unary(
            project=project, zone=ZONE, instance_resource=an_instance("vm1", kind=kind)
        )


def test_an_instance_with_an_unknown_value_is_refused(
    google: FakeGoogle, vms: InstancesClient, project: str
) -> None:
    """Machine types, GPUs without a maintenance setting, zones that do not match."""
    place: dict[str, Any] = {"project": project, "zone": ZONE}
    for instance in (
        an_instance("vm1", kind="n2-standard-7"),
        an_instance("vm1", kind="a3-highgpu-8g"),
        an_instance("vm1", zone="us-east1-d"),
        an_instance("vm1", network_interfaces=[]),
        an_instance("vm1", scheduling={"provisioning_model": "SPOT", "automatic_restart": True}),
    ):
        with pytest.raises(exceptions.BadRequest):
            vms.insert_unary(instance_resource=instance, **place)
