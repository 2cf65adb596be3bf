"""What is this machine? Cores, memory, disk and accelerators, unless told otherwise."""

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

from iris.accelerators import GPU_VARIANTS
from iris.activities.environment import Accelerators
from iris.constraints import TPU_NAME, TPU_TOPOLOGY, TPU_VM_COUNT, TPU_WORKER_ID, Attribute
from iris.hosts import Host
from iris.resources import Device, DeviceKind, Resources
from iris.worker_agents.metadata import Metadata, probe_place, probe_tpu

logger = logging.getLogger(__name__)

#: An address that is nobody's (RFC 5737), so that the way to it is the way to anywhere.
ELSEWHERE = "192.0.2.1"
LOOPBACK = "127.0.0.1"
#: How the driver lists what it has, a line for each.
NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")
#: A driver that is not loaded yet takes its time; one that hangs must not keep the host from reporting.
NVIDIA_PATIENCE = timedelta(seconds=30)
#: Words of a name that do not tell one kind from another.
_MAKERS = {"NVIDIA", "TESLA", "GEFORCE", "QUADRO", "GRAPHICS", "DEVICE"}


async def find_accelerators(metadata: Metadata | None) -> Accelerators:
    """Look for TPU chips and GPUs.

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
    """The GPUs that the driver lists; None: there is no driver, or it has none."""
    try:
        asked = await asyncio.create_subprocess_exec(
            *NVIDIA_SMI, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        logger.warning("nvidia-smi cannot be run, and this host offers no GPUs: %s", error)
        return None
    try:
        out, err = await asyncio.wait_for(asked.communicate(), NVIDIA_PATIENCE.total_seconds())
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            asked.kill()  # one that hangs in the kernel ends when it can: nobody waits for that
        logger.warning("nvidia-smi does not answer, and this host offers no GPUs")
        return None
    if asked.returncode == 0:
        return parse_gpus(out.decode(errors="replace"))
    said = (out + err).decode(errors="replace").strip()
    logger.warning("nvidia-smi fails, and this host offers no GPUs: %s", said or f"exit code {asked.returncode}")
    return None


def parse_gpus(listed: str) -> Device | None:
    """The GPUs of nvidia-smi's lines of `name, memory`. A host offers one kind: of several the one it has most of."""
    kinds = Counter(gpu_variant(line.rpartition(",")[0] or line) for line in listed.splitlines() if line.strip())
    if not kinds:
        return None
    (variant, count), *others = kinds.most_common()
    if others:
        logger.warning("this host has several kinds of GPU, and offers only its %s: %s", variant, dict(kinds))
    return Device(kind=DeviceKind.GPU, variant=variant, count=count)


def gpu_variant(name: str) -> str:
    """`H100` for `NVIDIA H100 80GB HBM3`; what the table does not know keeps the rest of its name: `A10`, `RTX3090`."""
    words = [word for word in re.split(r"[^A-Z0-9]+", name.upper()) if word and word not in _MAKERS]
    together = [first + second for first, second in itertools.pairwise(words)]  # RTX 4090
    known = next((word for word in words + together if word in GPU_VARIANTS), None)
    return known or "".join(word for word in words if not re.fullmatch(r"\d+GB|HBM\d\w*|PCIE|SXM\d*", word)) or "unknown"


def probe(
    directory: Path,
    *,
    cpu: int | None = None,
    memory: int | None = None,
    disk: int | None = None,
    device: Device | None = None,
) -> Resources:
    """What the machine has: millicores this process may use, bytes of memory, bytes free where attempts are kept.

    Args:
        directory: an existing directory on the disk that counts.
        cpu, memory, disk, device: what to advertise instead.
    """
    return Resources(
        cpu_millis=_cores() * 1000 if cpu is None else cpu,
        memory_bytes=psutil.virtual_memory().total if memory is None else memory,
        disk_bytes=shutil.disk_usage(directory).free if disk is None else disk,
        device=device,
    )


def _cores() -> int:
    """The cores this process may use, which in a container can be fewer than the machine has."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def default_host_id() -> str:
    """This machine's name, as far as it may be part of an id."""
    name = socket.gethostname().partition(".")[0]
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name).strip("-_")[:40] or "host"


def default_address() -> str:
    """The IPv4 address this machine has towards the rest of the world; one that has no way there is alone, so: its loopback.

    Nothing is sent: that a datagram socket is connected means only that the way out has been looked up.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way_out:
        try:
            way_out.connect((ELSEWHERE, 9))
        except OSError:
            return LOOPBACK
        return str(way_out.getsockname()[0])


def new_incarnation() -> str:
    """A name for one life of an agent: readable, sortable by time, never used twice."""
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
    """This machine as a host.

    Args:
        slice_id: the slice it is one of the hosts of; else it makes one by itself.
        address: where other hosts reach it; else what the machine's own routes say.
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
