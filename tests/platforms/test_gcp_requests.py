"""What Google is asked for: the whole message, so that a reader sees what is paid for."""

from pathlib import Path

import pytest
from google.cloud import compute_v1, tpu_v2
from hypothesis import given
from hypothesis import strategies as st

from iris.model.provisioning import SliceRequest
from iris.model.scale_groups import SliceType
from iris.platforms.base import BadConfig
from iris.platforms.gcp.requests import MAX_METADATA_VALUE, checked_metadata, create_request, printed
from tests.builders import some
from tests.fakes.google.cloud import Cloud
from tests.fakes.google.compute_rules import new_instance
from tests.platforms.gcp_requests import asked, gcp, tpu_group, vm_group
from tests.strategies import CHEAP

LABELS = {
    "iris-uid": "u-1",
    "iris-cluster": "dev",
    "iris-role": "host",
    "iris-managed": "true",
    "iris-slice": "iris-v5e-16-abc",
    "iris-group": "v5e_16",
}
METADATA = {
    "iris-token": "token of iris-v5e-16-abc",
    "iris-group": "v5e_16",
    "iris-hosts": "4",
    "iris-address": "10.0.0.2:10000",
    "startup-script": "#!/bin/bash",
}


def test_a_spot_slice_is_a_node_under_its_own_name() -> None:
    """The name is how a create that is said again finds what the first has made."""
    shown = printed(create_request(gcp(), asked(), "#!/bin/bash"))

    assert shown == {
        "parent": "projects/my-project/locations/europe-west4-b",
        "nodeId": "iris-v5e-16-abc",
        "node": {
            "acceleratorType": "v5litepod-16",
            "runtimeVersion": "v2-alpha-tpuv5-lite",
            "networkConfig": {"network": "default", "enableExternalIps": True},
            "schedulingConfig": {"spot": True},
            "labels": LABELS,
            "metadata": METADATA,
        },
    }


def test_a_cluster_says_where_its_machines_are_and_who_they_are() -> None:
    """A private network, firewall tags and an account of their own are what most companies insist on."""
    settings = gcp(
        network="vpc",
        subnetwork="tpus",
        external_ips=False,
        network_tags=("iris",),
        service_account="w@p.example",
    )
    node = create_request(settings, asked(), "").node
    instance = create_request(settings, asked(vm_group()), "").instance_resource
    subnetwork = "projects/my-project/regions/europe-west4/subnetworks/tpus"

    assert (node.network_config.network, node.network_config.subnetwork) == ("vpc", subnetwork)
    assert not node.network_config.enable_external_ips
    assert (list(node.tags), node.service_account.email) == (["iris"], "w@p.example")
    (interface,) = instance.network_interfaces
    assert (interface.network, interface.subnetwork) == ("projects/my-project/global/networks/vpc", subnetwork)
    assert list(interface.access_configs) == []
    assert (list(instance.tags.items), instance.service_accounts[0].email) == (["iris"], "w@p.example")


def test_only_an_unusual_topology_is_spelled_out() -> None:
    """The API takes a variant's name or its topology, never both."""
    usual = create_request(gcp(), asked(tpu_group(topology="")), "").node
    unusual = create_request(gcp(), asked(tpu_group(accelerator_variant="v4-16", topology="1x2x4", hosts=2)), "").node

    assert (usual.accelerator_type, usual.accelerator_config.topology) == ("v5litepod-16", "")
    assert unusual.accelerator_type == ""
    assert (unusual.accelerator_config.type_, unusual.accelerator_config.topology) == (tpu_v2.AcceleratorConfig.Type.V4, "1x2x4")


@pytest.mark.parametrize(
    ("changes", "tier"),
    [
        ({"preemptible": True}, {"spot": {}}),
        ({"preemptible": False}, {}),
        (
            {"preemptible": False, "reservation": "mine"},
            {"guaranteed": {}, "reservationName": "projects/my-project/locations/europe-west4-b/reservations/mine"},
        ),
        (
            {"preemptible": False, "reservation": "projects/theirs/reservations/ours"},
            {"guaranteed": {}, "reservationName": "projects/theirs/locations/europe-west4-b/reservations/ours"},
        ),
    ],
)
def test_a_queued_slice_is_a_queued_resource_that_makes_the_same_node(
    changes: dict[str, object], tier: dict[str, object]
) -> None:
    """Whatever is known of a slice is known of its node: its agents ask that for their token."""
    shown = printed(create_request(gcp(), asked(tpu_group(queued=True, **changes)), "#!/bin/bash"))
    spec = shown["queuedResource"]["tpu"]["nodeSpec"]

    assert (shown["queuedResourceId"], [each["nodeId"] for each in spec]) == ("iris-v5e-16-abc", ["iris-v5e-16-abc"])
    assert (spec[0]["node"]["labels"], spec[0]["node"]["metadata"]) == (LABELS, METADATA)
    assert {key: value for key, value in shown["queuedResource"].items() if key != "tpu"} == tier


def test_a_reserved_slice_says_so() -> None:
    """Else it is paid for twice."""
    node = create_request(gcp(), asked(tpu_group(preemptible=False, reservation="mine")), "").node
    instance = create_request(gcp(), asked(vm_group(reservation="mine")), "").instance_resource

    assert (node.scheduling_config.reserved, node.scheduling_config.spot) == (True, False)
    assert (instance.reservation_affinity.consume_reservation_type, list(instance.reservation_affinity.values)) == (
        "SPECIFIC_RESERVATION",
        ["mine"],
    )


def test_a_machine_without_accelerators_is_an_instance() -> None:
    """The request is the same whenever it is said."""
    wanted = asked(vm_group(), "iris-cpu-abc")
    first, again = (create_request(gcp(), wanted, "#!/bin/bash") for _ in range(2))
    assert isinstance(first, compute_v1.InsertInstanceRequest)
    instance = printed(first)["instanceResource"]
    del instance["metadata"], instance["labels"]

    assert first == again
    assert (first.project, first.zone) == ("my-project", "europe-west4-b")
    assert instance == {
        "name": "iris-cpu-abc",
        "machineType": "zones/europe-west4-b/machineTypes/n2-standard-8",
        "disks": [
            {
                "boot": True,
                "autoDelete": True,
                "initializeParams": {
                    "sourceImage": "projects/debian-cloud/global/images/family/debian-12",
                    "diskSizeGb": "100",
                    "diskType": "zones/europe-west4-b/diskTypes/pd-balanced",
                },
            }
        ],
        "networkInterfaces": [
            {
                "network": "projects/my-project/global/networks/default",
                "accessConfigs": [{"name": "External NAT", "type": "ONE_TO_ONE_NAT"}],
            }
        ],
        "serviceAccounts": [{"email": "default", "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}],
        "scheduling": {"provisioningModel": "STANDARD", "onHostMaintenance": "MIGRATE", "automaticRestart": True},
        "tags": {},
    }


@pytest.mark.parametrize(
    ("machine_type", "device", "attached"),
    [("a3-highgpu-8g", "gpu:H100:8", []), ("n1-standard-8", "gpu:T4:2", [("nvidia-tesla-t4", 2)])],
)
def test_machines_with_gpus_cannot_move_and_start_with_a_driver(machine_type: str, device: str, attached: list[object]) -> None:
    """Google refuses one that may be moved; and only n1 has GPUs that are not part of the type."""
    group = vm_group(machine_type=machine_type, resources=some(cpu=8, memory=32, disk=100, device=device))
    instance = create_request(gcp(), asked(group), "").instance_resource
    cards = [(each.accelerator_type.rpartition("/")[2], each.accelerator_count) for each in instance.guest_accelerators]

    assert instance.scheduling.on_host_maintenance == "TERMINATE"
    assert "nvidia" in instance.disks[0].initialize_params.source_image
    assert cards == attached


@pytest.mark.parametrize(
    ("machine_type", "kind"),
    [
        ("e2-small", "pd-balanced"),
        ("n2-standard-8", "pd-balanced"),
        ("c3-standard-8", "pd-balanced"),
        ("g2-standard-8", "pd-balanced"),
        ("a3-highgpu-8g", "pd-balanced"),
        ("n4-standard-8", "hyperdisk-balanced"),
        ("c4-standard-16", "hyperdisk-balanced"),
        ("a3-ultragpu-8g", "hyperdisk-balanced"),
        ("a4-highgpu-8g", "hyperdisk-balanced"),
    ],
)
def test_a_machine_starts_from_a_disk_that_its_type_takes(tmp_path: Path, machine_type: str, kind: str) -> None:
    """Of the one that Google chooses unasked, newer types say that it is not compatible, and a group would never grow."""
    device = "gpu:H100:8" if machine_type[0] in "ag" else None
    group = vm_group(machine_type=machine_type, resources=some(cpu=8, memory=32, disk=100, device=device))

    instance = create_request(gcp(), asked(group), "#!/bin/bash").instance_resource

    assert instance.disks[0].initialize_params.disk_type == f"zones/{group.zones[0]}/diskTypes/{kind}"
    body = compute_v1.Instance.to_json(instance).encode()
    assert new_instance(Cloud(tmp_path), "my-project", group.zones[0], body).type == machine_type


def test_a_spot_machine_that_is_taken_back_leaves_nothing() -> None:
    """A stopped one would keep its disk, its quota and its name."""
    scheduling = create_request(gcp(), asked(vm_group(preemptible=True)), "").instance_resource.scheduling

    assert (scheduling.provisioning_model, scheduling.instance_termination_action) == ("SPOT", "DELETE")
    assert (scheduling.automatic_restart, scheduling.on_host_maintenance) == (False, "TERMINATE")


@pytest.mark.parametrize(
    ("wanted", "script", "why"),
    [
        (asked(slice_id="Iris_A"), "", "label_prefix"),
        (asked(slice_id="x" * 64), "", "label_prefix"),
        (asked(), "#" * (MAX_METADATA_VALUE + 1), "startup script"),
        (asked(tpu_group(accelerator_variant="v9-16")), "", "v9-16"),
        (asked(vm_group(machine_type="")), "", "machine_type"),
        (asked(tpu_group(type=SliceType.MANUAL_VM)), "", "manual_vm"),
        (asked(vm_group(machine_type="n1-standard-8", resources=some(device="gpu:H100:8"))), "", "H100"),
    ],
)
def test_what_google_would_not_take_is_refused_before_it_is_asked(wanted: SliceRequest, script: str, why: str) -> None:
    """Its own words for these come late, and name no key of the configuration."""
    with pytest.raises(BadConfig, match=why):
        create_request(gcp(), wanted, script)


def test_metadata_that_is_too_much_together_is_refused() -> None:
    """Google counts the keys, too."""
    half = {"a" * 24: "#" * (MAX_METADATA_VALUE - 24)}

    assert checked_metadata(half | {"b": "#" * (MAX_METADATA_VALUE - 1)})
    with pytest.raises(BadConfig, match="shorten the configuration"):
        checked_metadata(half | {"b": "#" * MAX_METADATA_VALUE})


@CHEAP
@given(st.text(max_size=80), st.text(max_size=80))
def test_labels_are_such_that_google_takes_them_whatever_things_are_called(cluster: str, group: str) -> None:
    """A name from a user that is refused as a label would keep a whole group from growing."""
    labels = create_request(gcp(cluster=cluster), asked(tpu_group(name=group)), "").node.labels

    assert all(set(value) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-") and len(value) <= 63 for value in labels.values())
