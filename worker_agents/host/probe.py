"""Probes this machine for its cores, memory, disk and accelerators, unless the options give them."""

import asyncio
import contextlib
import itertools
import logging
import os
import re
import secrets
import shutil
import socket
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

import psutil

from iris.activities.host.runtimes.environment import Accelerators
from iris.model.accelerators import GPU_VARIANTS
from iris.model.constraints import TPU_NAME, TPU_TOPOLOGY, TPU_VM_COUNT, TPU_WORKER_ID, Attribute
from iris.model.hosts import Host
from iris.model.resources import Device, DeviceKind, Resources
from iris.worker_agents.host.metadata import Metadata, probe_place, probe_tpu

logger = logging.getLogger(__name__)

#: An address that no host has (RFC 5737), so the route to it is the route to the rest of the world.
ELSEWHERE = "192.0.2.1"
LOOPBACK = "127.0.0.1"
#: Lists the driver's GPUs, one on each line.
NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")
#: A driver that is not loaded yet needs time. One that hangs must not keep the host from reporting.
NVIDIA_PATIENCE = timedelta(seconds=30)
#: Words in the name of a GPU that do not distinguish one kind from another.
_MAKERS = {"NVIDIA", "TESLA", "GEFORCE", "QUADRO", "GRAPHICS", "DEVICE"}


async def find_accelerators(metadata: Metadata | None) -> Accelerators:
    """Returns the TPU chips and GPUs of this machine.

    Args:
        metadata: the machine's metadata server; None: there is none, and so no TPU.
    """
    attributes = await probe_place(metadata) if metadata else {}
    tpu = await probe_tpu(metadata) if metadata else None
    if tpu is None:
        return Accelerators(device=await _gpus(), attributes=attributes)
    attributes |= {TPU_NAME: tpu.name, TPU_WORKER_ID: tpu.worker_id, TPU_VM_COUNT: tpu.hosts}
    if tpu.topology:
        attributes[TPU_TOPOLOGY] = tpu.topology
    device = Device(kind=DeviceKind.TPU, variant=tpu.variant, count=tpu.chips)
    return Accelerators(device=device, tpu=tpu, attributes=attributes)


async def _gpus() -> Device | None:
    """Returns the GPUs that the driver lists; None: there is no driver, or it has none."""
    try:
        asked = await asyncio.create_subprocess_exec(
            *NVIDIA_SMI, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        logger.warning("nvidia-smi cannot be run, so this host offers no GPUs: %s", error)
        return None
    try:
        out, err = await asyncio.wait_for(asked.communicate(), NVIDIA_PATIENCE.total_seconds())
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            asked.kill()  # without waiting: it may hang in the kernel
        logger.warning("nvidia-smi does not answer, so this host offers no GPUs")
        return None
    if asked.returncode == 0:
        return parse_gpus(out.decode(errors="replace"))
    said = (out + err).decode(errors="replace").strip()
    logger.warning("nvidia-smi fails, so this host offers no GPUs: %s", said or f"exit code {asked.returncode}")
    return None


def parse_gpus(listed: str) -> Device | None:
    """Parses nvidia-smi's lines of `name, memory`. A host offers one kind of GPU: of several kinds, the most frequent one."""
    kinds = Counter(gpu_variant(line.rpartition(",")[0] or line) for line in listed.splitlines() if line.strip())
    if not kinds:
        return None
    (variant, count), *others = kinds.most_common()
    if others:
        logger.warning("this host has several kinds of GPU, and offers only its %s: %s", variant, dict(kinds))
    return Device(kind=DeviceKind.GPU, variant=variant, count=count)


def gpu_variant(name: str) -> str:
    """Returns `H100` for `NVIDIA H100 80GB HBM3`. A GPU that the table does not have keeps the rest of its name: `A10`,
    `RTX3090`.
    """
    words = [word for word in re.split(r"[^A-Z0-9]+", name.upper()) if word and word not in _MAKERS]
    together = [first + second for first, second in itertools.pairwise(words)]  # RTX 4090
    known = next((word for word in words + together if word in GPU_VARIANTS), None)
    return known or "".join(word for word in words if not re.fullmatch(r"\d+GB|HBM\d\w*|PCIE|SXM\d*", word)) or "unknown"


def probe(
    *directories: Path,
    cpu: int | None = None,
    memory: int | None = None,
    disk: int | None = None,
    device: Device | None = None,
) -> Resources:
    """Returns the machine's resources: millicores that this process may use, bytes of memory, bytes free where attempts are kept.

    Args:
        directories: existing directories with the attempts' files. The disk with the least space counts.
        cpu, memory, disk, device: values to advertise instead.
    """
    return Resources(
        cpu_millis=_cores() * 1000 if cpu is None else cpu,
        memory_bytes=psutil.virtual_memory().total if memory is None else memory,
        disk_bytes=min(shutil.disk_usage(each).free for each in directories) if disk is None else disk,
        device=device,
    )


def _cores() -> int:
    """Returns the number of cores that this process may use. In a container it can be smaller than the machine's number."""
    affinity = getattr(os, "sched_getaffinity", None)  # macOS lacks it
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def default_host_id() -> str:
    """Returns this machine's name, with the characters and length that an id permits."""
    name = socket.gethostname().partition(".")[0]
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name).strip("-_")[:40] or "host"


def default_address() -> str:
    """Returns this machine's IPv4 address towards the rest of the world; the loopback address if it has no route there.

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
        address: the address at which other hosts reach it; None: the address that the machine's own routes give.
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
