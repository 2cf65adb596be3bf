"""What a machine is found to have."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iris.activities.host.runtimes.environment import Accelerators
from iris.activities.host.runtimes.job_users import JobUsers
from iris.model.resources import Device, DeviceKind
from iris.worker_agents.host.agent import _this_host
from iris.worker_agents.host.agent_options import AgentOptions
from iris.worker_agents.host.metadata import Metadata
from iris.worker_agents.host.probe import find_accelerators, gpu_variant, parse_gpus, probe
from tests.fakes.metadata import FakeMetadata
from tests.small_disk import small_disk


@pytest.fixture
def google() -> Iterator[FakeMetadata]:
    with FakeMetadata().started() as fake:
        yield fake


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GB200", "GB200"),
        # Not in the table: whoever asks for them has to spell them so.
        ("NVIDIA A10", "A10"),
        ("NVIDIA GeForce RTX 3090", "RTX3090"),
        ("NVIDIA GH200 480GB", "GH200"),
    ],
)
def test_a_gpu_has_the_name_that_users_ask_for(name: str, variant: str) -> None:
    """The driver's names say more than anybody wants to write."""
    assert gpu_variant(name) == variant


def test_the_gpus_of_a_host_are_counted() -> None:
    """From the driver's own list."""
    listed = "NVIDIA H100 80GB HBM3, 81559 MiB\n" * 8

    assert parse_gpus(listed) == Device(kind=DeviceKind.GPU, variant="H100", count=8)
    assert parse_gpus("") is None
    assert parse_gpus("Tesla T4, 15360 MiB\nNVIDIA L4, 23034 MiB\nTesla T4, 15360 MiB\n") == Device(
        kind=DeviceKind.GPU, variant="T4", count=2
    )


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo 'NVIDIA L4, 23034 MiB'", Device(kind=DeviceKind.GPU, variant="L4")),
        ("echo 'No devices were found'; exit 6", None),
        ("echo 'NVIDIA-SMI has failed because it could not communicate with the driver' >&2; exit 9", None),
        ("\0", None),
        (None, None),
    ],
    ids=["one", "no devices", "no driver", "no program", "no such program"],
)
async def test_a_driver_is_asked_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, found: Device | None
) -> None:
    """A driver that is broken makes a host without GPUs, not an agent that does not start."""
    if script is not None:
        (tmp_path / "nvidia-smi").write_text(script if script == "\0" else f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    assert (await find_accelerators(None)).device == found


async def test_a_tpu_vm_offers_its_chips_and_says_where_it_stands(google: FakeMetadata) -> None:
    """The scheduler finds the hosts of a slice by these attributes, and their order."""
    google.set(
        attributes__accelerator_type="v5litepod-16",
        attributes__agent_worker_number="3",
        attributes__instance_id="train-1",
        zone="projects/7/zones/us-west4-a",
    )
    found = await find_accelerators(Metadata(google.url))

    assert found.device == Device(kind=DeviceKind.TPU, variant="v5litepod-16", count=4)
    assert found.attributes == {
        "region": "us-west4",
        "zone": "us-west4-a",
        "tpu-name": "train-1",
        "tpu-worker-id": 3,
        "tpu-vm-count": 4,
        "tpu-topology": "4x4",
    }


def test_the_smallest_disk_with_files_of_tasks_counts(tmp_path: Path) -> None:
    """A task with a user of its own writes outside of the agent's directory, perhaps on another disk."""
    with small_disk(tmp_path / "small", 2_000) as small:
        for directories in ((small, tmp_path), (tmp_path, small)):
            assert probe(*directories).disk_bytes == 2_000 * 1024


def test_an_agent_offers_no_more_disk_than_there_is_for_tasks_with_users_of_their_own(tmp_path: Path) -> None:
    """Tasks would be placed here for a large disk that they cannot use."""
    given: dict[str, Any] = {"address": "", "namespace": "", "cluster": "", "store": "", "host_id": "h", "directory": tmp_path}
    with small_disk(tmp_path / "small", 2_000) as small:
        users = JobUsers(small, range(61_000, 61_010))
        disks = [_this_host(AgentOptions(**given), Accelerators(), each, "first").resources.disk_bytes for each in (users, None)]

    assert disks[0] == 2_000 * 1024 < disks[1]


def test_what_is_to_be_advertised_is_stronger_than_what_is_there(tmp_path: Path) -> None:
    """Two agents on one machine share it by being told their parts."""
    device = Device(kind=DeviceKind.GPU, variant="L4")
    told = probe(tmp_path, cpu=1500, memory=10, disk=20, device=device)
    found = probe(tmp_path)

    assert (told.cpu_millis, told.memory_bytes, told.disk_bytes, told.device) == (1500, 10, 20, device)
    assert found.device is None
    assert min(found.cpu_millis, found.memory_bytes, found.disk_bytes) > 0
