"""Probes this machine for its cores, memory, disk and accelerators, unless the options give
them.
"""

import logging
import os
import secrets
import shutil
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from iris.activities.host.machine.accelerators import Accelerators
from iris.activities.host.machine.gpus import read_gpus
from iris.model.host.constraints import (
    GPU_MEMORY,
    GPU_MODEL,
    TPU_NAME,
    TPU_TOPOLOGY,
    TPU_VM_COUNT,
    TPU_WORKER_ID,
    Attribute,
)
from iris.model.host.gpus import Gpu, Reading, device_of
from iris.model.host.hosts import Host
from iris.model.host.resources import Device, DeviceKind, Resources
from iris.model.units import GIB
from iris.worker_agents.host.metadata import Metadata, probe_place, probe_tpu

logger = logging.getLogger(__name__)

#: An address that no host has (RFC 5737). The route to it is the route to all addresses outside of
#: the network.
ELSEWHERE = "192.0.2.1"
LOOPBACK = "127.0.0.1"


async def find_accelerators(metadata: Metadata | None) -> Accelerators:
    """Returns the TPU chips and GPUs of this machine.

    Args:
        metadata: the machine's metadata server; None: there is none, and so no TPU.
    """
    attributes = await probe_place(metadata) if metadata else {}
    tpu = await probe_tpu(metadata) if metadata else None
    if tpu is None:
        reading = await _read_gpus()
        gpus = reading.gpus if reading is not None else ()
        return Accelerators(
            device=device_of(gpus), gpus=gpus, reading=reading, attributes=attributes
        )
    attributes |= {TPU_NAME: tpu.name, TPU_WORKER_ID: tpu.worker_id, TPU_VM_COUNT: tpu.hosts}
    if tpu.topology:
        attributes[TPU_TOPOLOGY] = tpu.topology
    device = Device(kind=DeviceKind.TPU, variant=tpu.variant, count=tpu.chips)
    return Accelerators(device=device, tpu=tpu, attributes=attributes)


async def _read_gpus() -> Reading | None:
    """Returns the GPUs that the driver lists; None: there is no driver."""
    reading = await read_gpus()
    if reading is not None and reading.problem:
        missing = (
            "so this host offers only the GPUs that it lists"
            if reading.gpus
            else "so this host offers no GPUs"
        )
        logger.warning("%s, %s", reading.problem, missing)
    return reading


def gpu_attributes(gpus: Sequence[Gpu]) -> dict[str, Attribute]:
    """Returns the model and the memory of a host's GPUs: of several, the model of the first and the
    least memory.
    """
    if not gpus:
        return {}
    memory = min(gpu.memory_bytes for gpu in gpus)
    return {GPU_MODEL: gpus[0].name, **({GPU_MEMORY: round(memory / GIB)} if memory else {})}


def probe(
    *directories: Path,
    cpu: int | None = None,
    memory: int | None = None,
    disk: int | None = None,
    device: Device | None = None,
) -> Resources:
    """Returns the machine's resources: millicores that this process may use, bytes of memory, bytes
    free where attempts are kept.

    Args:
        directories: existing directories with the attempts' files. The disk with the least space
        counts. cpu, memory, disk, device: values to advertise instead.
    """
    return Resources(
        cpu_millis=_cores() * 1000 if cpu is None else cpu,
        memory_bytes=psutil.virtual_memory().total if memory is None else memory,
        disk_bytes=(
            min(shutil.disk_usage(each).free for each in directories) if disk is None else disk
        ),
        device=device,
    )


def _cores() -> int:
    """Returns the number of cores that this process may use. In a container it can be smaller than
    the machine's number.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # macOS lacks it
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def default_host_id() -> str:
    """Returns this machine's name, with the characters and length that an id permits."""
    name = socket.gethostname().partition(".")[0]
    return (
        "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name).strip(
            "-_"
        )[:40]
        or "host"
    )


def default_address() -> str:
    """Returns this machine's IPv4 address towards the rest of the world; the loopback address if it
    has no route there.

    Nothing is sent: connecting a datagram socket only looks up the route.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way_out:
        try:
            way_out.connect((ELSEWHERE, 9))
        except OSError:
            return LOOPBACK
        return str(way_out.getsockname()[0])


def new_incarnation() -> str:
    """Returns a name for a new incarnation: readable, sortable by time, never used twice."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


def describe_host(
    host_id: str,
    resources: Resources,
    attributes: dict[str, Attribute],
    *,
    incarnation: str,
    slice_id: str | None = None,
    address: str | None = None,
    accept_cpu_jobs: bool = False,
) -> Host:
    """Returns this machine as a host.

    Args:
        slice_id: the slice to which the host belongs; None: the host is a slice by itself.
        address: the address at which other hosts reach it; None: the address that the machine's own
            routes give.
    """
    return Host(
        id=host_id,
        slice_id=slice_id or host_id,
        incarnation=incarnation,
        address=address or default_address(),
        resources=resources,
        attributes=attributes,
        accept_cpu_jobs=accept_cpu_jobs,
    )
