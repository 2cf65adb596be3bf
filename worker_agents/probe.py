"""What is this machine? Cores, memory and disk, unless told otherwise."""

import os
import secrets
import shutil
import socket
import time
from pathlib import Path

import psutil

from iris.hosts import Attribute, Host
from iris.resources import Device, Resources


def probe(
    directory: Path, *, cpu: int | None = None, memory: int | None = None, disk: int | None = None, device: Device | None = None
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


def new_incarnation() -> str:
    """A name for one life of an agent: readable, sortable by time, never used twice."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


def describe_host(host_id: str, resources: Resources, attributes: dict[str, Attribute], *, accept_cpu_jobs: bool) -> Host:
    """A host that makes a slice of one by itself."""
    return Host(
        id=host_id,
        slice_id=host_id,
        incarnation=new_incarnation(),
        resources=resources,
        attributes=attributes,
        accept_cpu_jobs=accept_cpu_jobs,
    )
