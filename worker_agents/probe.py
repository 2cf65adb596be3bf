"""What is this machine? Cores, memory and disk, unless told otherwise."""

import os
import secrets
import shutil
import socket
import time
from pathlib import Path

import psutil

from iris.constraints import Attribute
from iris.hosts import Host
from iris.resources import Device, Resources

#: An address that is nobody's (RFC 5737), so that the way to it is the way to anywhere.
ELSEWHERE = "192.0.2.1"
LOOPBACK = "127.0.0.1"


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
    slice_id: str | None = None,
    address: str | None = None,
    accept_cpu_jobs: bool = False,
) -> Host:
    """This machine as a host, at the beginning of a life of its agent.

    Args:
        slice_id: the slice it is one of the hosts of; else it makes one by itself.
        address: where other hosts reach it; else what the machine's own routes say.
    """
    return Host(
        id=host_id,
        slice_id=slice_id or host_id,
        incarnation=new_incarnation(),
        address=address or default_address(),
        resources=resources,
        attributes=attributes,
        accept_cpu_jobs=accept_cpu_jobs,
    )
