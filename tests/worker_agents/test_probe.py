"""What a machine is found to have."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iris.activities.host.machine.accelerators import Accelerators
from iris.activities.host.runtimes.process.job_users import JobUsers
from iris.model.host.gpus import parse_gpus
from iris.model.host.resources import Device, DeviceKind
from iris.worker_agents.host.agent import _this_host
from iris.worker_agents.host.agent_options import AgentOptions
from iris.worker_agents.host.metadata import Metadata
from iris.worker_agents.host.probe import find_accelerators, gpu_attributes, probe
from tests.fakes.metadata import FakeMetadata
from tests.small_disk import small_disk


@pytest.fixture
def google() -> Iterator[FakeMetadata]:
    with FakeMetadata().started() as fake:
        yield fake


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (
            "echo '0, GPU-1e7c, NVIDIA L4, 23034, 00000000:00:04.0, [N/A]'",
            Device(kind=DeviceKind.GPU, variant="L4"),
        ),
        ("echo 'No devices were found'; exit 6", None),
        (
            (
                "echo 'NVIDIA-SMI has failed because it could not communicate with the driver' >&2;"
                " exit 9"
            ),
            None,
        ),
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


def test_a_host_says_which_gpus_it_has_and_how_large_they_are() -> None:
    """An A100 has 40 or 80 GB: a job can require the larger one. Of several sizes the least counts,
    as a task may get any.
    """
    lines = (
        "0, GPU-a, NVIDIA A100-SXM4-80GB, 81920, b, Disabled",
        "1, GPU-b, NVIDIA A100-SXM4-40GB, 40960, c, Disabled",
    )

    assert gpu_attributes(parse_gpus("\n".join(lines))) == {
        "gpu-model": "NVIDIA A100-SXM4-80GB",
        "gpu-memory-gib": 40,
    }
    assert gpu_attributes(parse_gpus("0, GPU-a, NVIDIA GB10, [N/A]")) == {
        "gpu-model": "NVIDIA GB10"
    }


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
    """A task with a user of its own writes outside of the agent's directory, perhaps on another
    disk.
    """
    with small_disk(tmp_path / "small", 2_000) as small:
        for directories in ((small, tmp_path), (tmp_path, small)):
            assert probe(*directories).disk_bytes == 2_000 * 1024


def test_an_agent_offers_no_more_disk_than_there_is_for_tasks_with_users_of_their_own(
    tmp_path: Path,
) -> None:
    """Tasks would be placed here for a large disk that they cannot use."""
    given: dict[str, Any] = {
        "address": "",
        "namespace": "",
        "cluster": "",
        "store": "",
        "host_id": "h",
        "directory": tmp_path,
    }
    with small_disk(tmp_path / "small", 2_000) as small:
        users = JobUsers(small, range(61_000, 61_010))
        disks = [
            _this_host(AgentOptions(**given), Accelerators(), each, "first").resources.disk_bytes
            for each in (users, None)
        ]

    assert disks[0] == 2_000 * 1024 < disks[1]


def test_what_is_to_be_advertised_is_stronger_than_what_is_there(tmp_path: Path) -> None:
    """Two agents on one machine share it by being told their parts."""
    device = Device(kind=DeviceKind.GPU, variant="L4")
    told = probe(tmp_path, cpu=1500, memory=10, disk=20, device=device)
    found = probe(tmp_path)

    assert (told.cpu_millis, told.memory_bytes, told.disk_bytes, told.device) == (
        1500,
        10,
        20,
        device,
    )
    assert found.device is None
    assert min(found.cpu_millis, found.memory_bytes, found.disk_bytes) > 0
