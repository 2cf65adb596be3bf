"""The contents of the startup scripts, and the request for the control plane's machine."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from iris.config.controller_settings import Controller, GcpControllerConfig
from iris.model.errors import InvalidValue
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.units import GIB
from iris.platforms.base import BadConfig
from iris.platforms.gcp import labels as label_rules
from iris.platforms.gcp.controller_vm import insert_request
from iris.platforms.gcp.lean_compute import compute_v1
from iris.platforms.gcp.startup import controller_script, host_script
from tests.builders import some
from tests.platforms.gcp.boots import some_settings
from tests.platforms.worlds import a_group, wanted

ROOT = Path(__file__).parent.parent.parent.parent
#: What a shell, a shebang or a here-document could trip over.
ODD = "'\"; $HOME `id` $(id) \\ \n#!/bin/sh\nEOF\tIRIS_CONFIG_EOF é ☃ {{x}} !! * ~"

GROUPS = {
    "tpu": a_group(),
    "one host": a_group(hosts=1),
    "gpu": a_group("h100", 1, resources=some(device="gpu:H100:8"), accelerator_variant="H100x8"),
    "cpu": a_group(
        "cpu",
        1,
        resources=some(),
        accelerator_variant="",
        task_image="example.com/task:2",
        accept_cpu_jobs=True,
    ),
    "odd": a_group("odd", attributes={"pool": ODD, "fast": True}, task_image=ODD),
}


def shellcheck(script: str) -> str:
    """What it has to say against the script."""
    program = Path(sys.executable).parent / "shellcheck"
    return subprocess.run(
        [program, "-"], input=script, capture_output=True, text=True, check=False, timeout=60
    ).stdout


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS.keys())
def test_shellcheck_accepts_a_hosts_script(group: ScaleGroup) -> None:
    """The script runs where it cannot be inspected."""
    assert shellcheck(host_script(some_settings(config=ODD), wanted(group=group))) == ""


def test_shellcheck_accepts_the_control_planes_script() -> None:
    """As for hosts."""
    assert shellcheck(controller_script(some_settings(config=ODD), image=ODD, port=10000)) == ""


def test_shellcheck_finds_an_error() -> None:
    """A missing or always successful program would pass the tests above."""
    assert "SC2086" in shellcheck("#!/bin/bash\nrm $1\n")


def test_a_script_is_deterministic() -> None:
    """A repeated request must be the same request."""
    assert host_script(some_settings(), wanted()) == host_script(some_settings(), wanted())


def test_without_an_image_there_is_no_script() -> None:
    """Google's machines have no Iris installed; they would boot and never report."""
    with pytest.raises(BadConfig, match=r"bootstrap\.image"):
        host_script(some_settings(image=""), wanted())
    with pytest.raises(BadConfig, match=r"controller\.image"):
        controller_script(some_settings(), image="", port=10000)


def a_controller(**changes: object) -> Controller:
    gcp = {"zone": "europe-west4-b", "boot_disk": 50 * GIB} | changes
    return Controller(
        image="example.com/iris-controller:1", gcp=GcpControllerConfig.model_validate(gcp)
    )


def metadata(request: compute_v1.InsertInstanceRequest) -> dict[str, str]:
    return {item.key: item.value for item in request.instance_resource.metadata.items}


def test_the_control_planes_machine_matches_the_configuration() -> None:
    """Later commands find it by its name and labels."""
    settings = some_settings(external_ips=False, subnetwork="private", network_tags=("iris",))

    request = insert_request(
        settings, a_controller(machine_type="e2-small", service_account="ops@x"), "an id"
    )
    machine = request.instance_resource

    assert (request.project, request.zone, request.request_id) == (
        "my-project",
        "europe-west4-b",
        "an id",
    )
    assert machine.name == label_rules.controller_name(settings)
    assert machine.machine_type == "zones/europe-west4-b/machineTypes/e2-small"
    assert dict(machine.labels) == label_rules.owner_labels(settings, "controller")
    assert machine.disks[0].initialize_params.disk_size_gb == 50
    assert list(machine.network_interfaces[0].access_configs) == []
    assert machine.network_interfaces[0].subnetwork.endswith(
        "regions/europe-west4/subnetworks/private"
    )
    assert list(machine.tags.items) == ["iris"]
    assert machine.service_accounts[0].email == "ops@x"
    assert metadata(request)[label_rules.STARTUP_KEY] == controller_script(
        settings, image="example.com/iris-controller:1", port=10000
    )


@pytest.mark.parametrize(
    ("machine_type", "kind"),
    [("n2-standard-4", "pd-balanced"), ("c4-standard-4", "hyperdisk-balanced")],
)
def test_the_control_planes_disk_type_fits_the_machine_type(machine_type: str, kind: str) -> None:
    """As for hosts."""
    (disk,) = insert_request(
        some_settings(), a_controller(machine_type=machine_type), "an id"
    ).instance_resource.disks

    assert disk.initialize_params.disk_type == f"zones/europe-west4-b/diskTypes/{kind}"


def test_another_configuration_has_another_build_hash() -> None:
    """A restart compares the hash to see whether the machine has to be updated."""

    def build(config: str, **changes: object) -> str:
        return metadata(
            insert_request(some_settings(config=config), a_controller(**changes), "an id")
        )[label_rules.BUILD_KEY]

    assert build("a: 1") == build("a: 1")
    assert len({build("a: 1"), build("a: 2"), build("a: 1", machine_type="e2-small")}) == 3


def test_a_control_plane_elsewhere_creates_no_machine_on_google() -> None:
    """Someone would pay for a machine on which nothing runs."""
    with pytest.raises(InvalidValue, match="controller"):
        insert_request(some_settings(), Controller(), "an id")
    with pytest.raises(InvalidValue, match=r"controller\.gcp\.zone"):
        insert_request(some_settings(), a_controller(zone=""), "an id")


def test_a_configuration_too_large_for_metadata_is_refused() -> None:
    """Google's own error would not name the configuration."""
    with pytest.raises(BadConfig):
        insert_request(some_settings(config="#" * 200 * 1024), a_controller(), "an id")


def test_the_scripts_user_id_matches_the_image() -> None:
    """The number is in two files that cannot refer to each other."""
    user = re.search(r"^ARG UID=(\d+)$", (ROOT / "docker/Dockerfile").read_text(), re.MULTILINE)

    assert user is not None
    assert f"chown {user[1]}:{user[1]}" in controller_script(some_settings(), image="i", port=1)
