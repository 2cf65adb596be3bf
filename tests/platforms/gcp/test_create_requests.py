"""The complete requests to Google, so that a reader sees what is bought."""

from pathlib import Path

import pytest
import yaml
from google.cloud import tpu_v2
from hypothesis import given
from hypothesis import strategies as st

from iris.config import load_config
from iris.model.slice.keys import public_key, read_key_file
from iris.model.slice.provisioning import SliceRequest
from iris.model.slice.scale_groups import SliceType
from iris.platforms.base import BadConfig
from iris.platforms.gcp.create_requests import (
    MAX_METADATA_VALUE,
    checked_metadata,
    create_request,
    printed,
)
from iris.platforms.gcp.lean_compute import compute_v1
from iris.platforms.gcp.settings import gcp_settings
from tests.builders import some
from tests.fakes.google.cloud import Cloud
from tests.fakes.google.compute_rules import new_instance
from tests.platforms.gcp.requests import KEY, asked, gcp, tpu_group, vm_group
from tests.strategies import CHEAP

LABELS = {
    "iris-uid": "u-1",
    "iris-cluster": "dev",
    "iris-role": "host",
    "iris-managed": "true",
    "iris-slice": "iris-v5e-16-abc",
    "iris-group": "v5e_16",
}
CONFIG = """
platform: {gcp: {project_id: my-project, default_zones: [europe-west4-b]}}
controller: {image: example.com/controller, bundle_prefix: gs://b}
bootstrap: {image: example.com/agent}
"""
ALL = "https://www.googleapis.com/auth/cloud-platform"
SCOPES = [
    f"https://www.googleapis.com/auth/{scope}"
    for scope in ("devstorage.read_write", "logging.write", "monitoring.write")
]
METADATA = {
    "iris-token": "token of iris-v5e-16-abc",
    "iris-private-key": KEY,
    "iris-public-key": public_key(KEY),
    "iris-group": "v5e_16",
    "iris-hosts": "4",
    "iris-address": "10.0.0.2:10000",
    "startup-script": "#!/bin/bash",
}


def test_the_delegation_of_a_slice_follows_its_private_key_in_one_value() -> None:
    """The machine's script writes the value to the file of the key, which the agent reads."""
    node = create_request(gcp(), asked(), "", KEY, "header.claims.signature").node

    assert read_key_file(node.metadata["iris-private-key"]) == (KEY, "header.claims.signature")
    assert node.metadata["iris-public-key"] == public_key(KEY)
    assert read_key_file(f"{KEY}\n") == (KEY, "")


def test_a_spot_slice_is_a_node_with_the_slices_name() -> None:
    """A repeated create finds the node of the first by its name."""
    shown = printed(create_request(gcp(), asked(), "#!/bin/bash", KEY))

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
            "serviceAccount": {"scope": SCOPES},
        },
    }


@pytest.mark.parametrize(
    ("more", "scopes"),
    [
        ("", SCOPES),
        (
            (
                "platform: {gcp: {project_id: my-project, default_zones: [europe-west4-b], scopes:"
                " [cloud-platform]}}"
            ),
            [ALL],
        ),
        ("bootstrap: {secrets: ['gcp:projects/my-project/secrets/wandb']}", [ALL]),
        ("bootstrap: {secrets: ['host-env:*', 'host-file:/run/secrets/*']}", SCOPES),
        (
            (
                "controller: {temporal: {address: 'a:7233', tls: true, api_key: gcp:key}, image: c,"
                " bundle_prefix: gs://b}"
            ),
            [ALL],
        ),
        (
            (
                "controller: {temporal: {address: 'a:7233', tls: true, api_key: file:/k}, image: c,"
                " bundle_prefix: gs://b}"
            ),
            SCOPES,
        ),
    ],
)
def test_a_jobs_tokens_are_for_storage_and_logs_unless_the_configuration_asks_for_more(
    more: str, scopes: list[str]
) -> None:
    """Each job, also in a container, gets its host's tokens from the metadata server. Google
    enforces the scopes of tokens.
    """
    written = yaml.safe_load(CONFIG) | yaml.safe_load(more or "{}")
    settings = gcp_settings(load_config(yaml.safe_dump(written)), "u-1")
    node = create_request(settings, asked(), "", KEY).node
    queued = (
        create_request(settings, asked(tpu_group(queued=True)), "", KEY)
        .queued_resource.tpu.node_spec[0]
        .node
    )
    instance = create_request(settings, asked(vm_group()), "", KEY).instance_resource

    assert (list(node.service_account.scope), list(queued.service_account.scope)) == (
        scopes,
        scopes,
    )
    assert list(instance.service_accounts[0].scopes) == scopes


@pytest.mark.parametrize("account", ["", "hosts@my-project.iam.gserviceaccount.com"])
def test_the_credentials_of_hosts_have_no_more_than_the_scopes_of_the_configuration(
    account: str,
) -> None:
    """A job gets its host's tokens from the metadata server; narrower scopes limit what Google
    accepts them for.
    """
    scope = "https://www.googleapis.com/auth/devstorage.read_write"
    settings = gcp(service_account=account, scopes=(scope,))
    node = create_request(settings, asked(), "", KEY).node
    instance = create_request(settings, asked(vm_group()), "", KEY).instance_resource

    assert (node.service_account.email, list(node.service_account.scope)) == (account, [scope])
    (own,) = instance.service_accounts
    assert (own.email, list(own.scopes)) == (account or "default", [scope])


def test_machines_have_the_network_the_tags_and_the_account_of_the_configuration() -> None:
    """Most companies require a private network, firewall tags and a separate account."""
    settings = gcp(
        network="vpc",
        subnetwork="tpus",
        external_ips=False,
        network_tags=("iris",),
        service_account="w@p.example",
    )
    node = create_request(settings, asked(), "", KEY).node
    instance = create_request(settings, asked(vm_group()), "", KEY).instance_resource
    subnetwork = "projects/my-project/regions/europe-west4/subnetworks/tpus"

    assert (node.network_config.network, node.network_config.subnetwork) == ("vpc", subnetwork)
    assert not node.network_config.enable_external_ips
    assert (list(node.tags), node.service_account.email) == (["iris"], "w@p.example")
    (interface,) = instance.network_interfaces
    assert (interface.network, interface.subnetwork) == (
        "projects/my-project/global/networks/vpc",
        subnetwork,
    )
    assert list(interface.access_configs) == []
    assert (list(instance.tags.items), instance.service_accounts[0].email) == (
        ["iris"],
        "w@p.example",
    )


def test_only_a_topology_other_than_the_default_is_sent() -> None:
    """The API takes a variant's name or its topology, never both."""
    usual = create_request(gcp(), asked(tpu_group(topology="")), "", KEY).node
    unusual = create_request(
        gcp(), asked(tpu_group(accelerator_variant="v4-16", topology="1x2x4", hosts=2)), "", KEY
    ).node

    assert (usual.accelerator_type, usual.accelerator_config.topology) == ("v5litepod-16", "")
    assert unusual.accelerator_type == ""
    assert (unusual.accelerator_config.type_, unusual.accelerator_config.topology) == (
        tpu_v2.AcceleratorConfig.Type.V4,
        "1x2x4",
    )


@pytest.mark.parametrize(
    ("changes", "tier"),
    [
        ({"preemptible": True}, {"spot": {}}),
        ({"preemptible": False}, {}),
        (
            {"preemptible": False, "reservation": "mine"},
            {
                "guaranteed": {},
                "reservationName": "projects/my-project/locations/europe-west4-b/reservations/mine",
            },
        ),
        (
            {"preemptible": False, "reservation": "projects/theirs/reservations/ours"},
            {
                "guaranteed": {},
                "reservationName": "projects/theirs/locations/europe-west4-b/reservations/ours",
            },
        ),
    ],
)
def test_a_queued_slice_is_a_queued_resource_with_the_same_node(
    changes: dict[str, object], tier: dict[str, object]
) -> None:
    """The slice's facts are in its node, where agents read their token."""
    shown = printed(
        create_request(gcp(), asked(tpu_group(queued=True, **changes)), "#!/bin/bash", KEY)
    )
    spec = shown["queuedResource"]["tpu"]["nodeSpec"]

    assert (shown["queuedResourceId"], [each["nodeId"] for each in spec]) == (
        "iris-v5e-16-abc",
        ["iris-v5e-16-abc"],
    )
    assert (spec[0]["node"]["labels"], spec[0]["node"]["metadata"]) == (LABELS, METADATA)
    assert {key: value for key, value in shown["queuedResource"].items() if key != "tpu"} == tier


def test_a_reserved_slice_names_its_reservation() -> None:
    """Otherwise its capacity is paid for twice."""
    node = create_request(
        gcp(), asked(tpu_group(preemptible=False, reservation="mine")), "", KEY
    ).node
    instance = create_request(gcp(), asked(vm_group(reservation="mine")), "", KEY).instance_resource

    assert (node.scheduling_config.reserved, node.scheduling_config.spot) == (True, False)
    assert (
        instance.reservation_affinity.consume_reservation_type,
        list(instance.reservation_affinity.values),
    ) == (
        "SPECIFIC_RESERVATION",
        ["mine"],
    )


def test_a_machine_without_accelerators_is_an_instance() -> None:
    """A repeated request is the same."""
    wanted = asked(vm_group(), "iris-cpu-abc")
    first, again = (create_request(gcp(), wanted, "#!/bin/bash", KEY) for _ in range(2))
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
        "serviceAccounts": [{"email": "default", "scopes": SCOPES}],
        "scheduling": {
            "provisioningModel": "STANDARD",
            "onHostMaintenance": "MIGRATE",
            "automaticRestart": True,
        },
        "tags": {},
    }


@pytest.mark.parametrize(
    ("machine_type", "device", "attached"),
    [("a3-highgpu-8g", "gpu:H100:8", []), ("n1-standard-8", "gpu:T4:2", [("nvidia-tesla-t4", 2)])],
)
def test_machines_with_gpus_cannot_move_and_start_with_a_driver(
    machine_type: str, device: str, attached: list[object]
) -> None:
    """Google rejects migration for them; and only n1 types have separate GPUs."""
    group = vm_group(
        machine_type=machine_type, resources=some(cpu=8, memory=32, disk=100, device=device)
    )
    instance = create_request(gcp(), asked(group), "", KEY).instance_resource
    cards = [
        (each.accelerator_type.rpartition("/")[2], each.accelerator_count)
        for each in instance.guest_accelerators
    ]

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
def test_a_machine_has_a_boot_disk_that_fits_its_type(
    tmp_path: Path, machine_type: str, kind: str
) -> None:
    """Newer types reject Google's default disk type, and the group would never grow."""
    device = "gpu:H100:8" if machine_type[0] in "ag" else None
    group = vm_group(
        machine_type=machine_type, resources=some(cpu=8, memory=32, disk=100, device=device)
    )

    instance = create_request(gcp(), asked(group), "#!/bin/bash", KEY).instance_resource

    assert (
        instance.disks[0].initialize_params.disk_type == f"zones/{group.zones[0]}/diskTypes/{kind}"
    )
    body = compute_v1.Instance.to_json(instance).encode()
    assert new_instance(Cloud(tmp_path), "my-project", group.zones[0], body).type == machine_type


def test_a_preempted_spot_machine_is_deleted() -> None:
    """A stopped one would keep its disk, its quota and its name."""
    scheduling = create_request(
        gcp(), asked(vm_group(preemptible=True)), "", KEY
    ).instance_resource.scheduling

    assert (scheduling.provisioning_model, scheduling.instance_termination_action) == (
        "SPOT",
        "DELETE",
    )
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
        (
            asked(vm_group(machine_type="n1-standard-8", resources=some(device="gpu:H100:8"))),
            "",
            "H100",
        ),
    ],
)
def test_invalid_requests_are_refused_before_the_call(
    wanted: SliceRequest, script: str, why: str
) -> None:
    """Google's errors come late, and name no key of the configuration."""
    with pytest.raises(BadConfig, match=why):
        create_request(gcp(), wanted, script, KEY)


def test_metadata_above_the_total_limit_is_refused() -> None:
    """The keys count too."""
    half = {"a" * 24: "#" * (MAX_METADATA_VALUE - 24)}

    assert checked_metadata(half | {"b": "#" * (MAX_METADATA_VALUE - 1)})
    with pytest.raises(BadConfig, match="shorten the configuration"):
        checked_metadata(half | {"b": "#" * MAX_METADATA_VALUE})


@CHEAP
@given(st.text(max_size=80), st.text(max_size=80))
def test_labels_are_valid_for_any_name(cluster: str, group: str) -> None:
    """A rejected label would keep a whole group from growing."""
    labels = create_request(gcp(cluster=cluster), asked(tpu_group(name=group)), "", KEY).node.labels

    assert all(
        set(value) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-") and len(value) <= 63
        for value in labels.values()
    )
