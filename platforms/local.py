"""Machines on a laptop: a host is an agent in a process of its own, and offers whatever it is told to.

A simulated TPU slice has the hosts, the sizes and the attributes of a real one, so that a job that would fit there fits here.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from iris import constraints
from iris.accelerators import Tpu
from iris.constraints import Attribute
from iris.errors import InvalidValue
from iris.names import MAX_NAME
from iris.resources import Device, DeviceKind
from iris.units import GIB

#: What a local host offers unless told otherwise: more than anybody asks for, so that a laptop runs whatever a fleet would.
LOCAL_CPU_MILLIS = 1000 * 1000
LOCAL_MEMORY = 1000 * GIB
LOCAL_DISK = 1000 * GIB
#: Each is a process of some 100 MB.
MAX_LOCAL_HOSTS = 500
#: Every host of a local cluster is at the same address.
LOCAL_ADDRESS = "127.0.0.1"
LOCAL_PLACE: Mapping[str, Attribute] = {
    constraints.REGION: "local",
    constraints.ZONE: "local-a",
    constraints.PREEMPTIBLE: False,
}


class LocalHost(BaseModel):
    """A simulated machine and what it claims to have."""

    model_config = ConfigDict(frozen=True)

    id: str
    #: None: it is a slice by itself.
    slice_id: str | None = None
    slice_size: int = 1
    address: str = LOCAL_ADDRESS
    cpu_millis: int = LOCAL_CPU_MILLIS
    memory_bytes: int = LOCAL_MEMORY
    disk_bytes: int = LOCAL_DISK
    device: Device | None = None
    attributes: dict[str, Attribute] = Field(default_factory=dict)
    accept_cpu_jobs: bool = False


def local_hosts(
    cluster: str,
    count: int,
    *,
    cpu_millis: int = LOCAL_CPU_MILLIS,
    memory_bytes: int = LOCAL_MEMORY,
    disk_bytes: int = LOCAL_DISK,
    device: Device | None = None,
    attributes: Mapping[str, Attribute] | None = None,
) -> tuple[LocalHost, ...]:
    """So many hosts, each a slice by itself. One with a device takes other jobs too: there may be no other host.

    Raises:
        InvalidValue: the cluster's name is too long to be part of theirs.
    """
    return tuple(
        LocalHost(
            id=_host_id(cluster, str(number)),
            cpu_millis=cpu_millis,
            memory_bytes=memory_bytes,
            disk_bytes=disk_bytes,
            device=device,
            attributes={**LOCAL_PLACE, constraints.SCALE_GROUP: "local-cpu", **(attributes or {})},
            accept_cpu_jobs=device is not None,
        )
        for number in range(count)
    )


def local_slices(
    cluster: str,
    kind: Tpu,
    count: int = 1,
    *,
    cpu_millis: int | None = None,
    memory_bytes: int | None = None,
    disk_bytes: int = LOCAL_DISK,
) -> tuple[LocalHost, ...]:
    """The hosts of so many TPU slices, slice by slice, in the order of their worker ids.

    Args:
        cpu_millis, memory_bytes: of each host, instead of what a host of such a slice really has.

    Raises:
        InvalidValue: the cluster's name is too long to be part of theirs.
    """
    return tuple(
        LocalHost(
            id=_host_id(cluster, f"{kind.variant}-{number}-w-{worker}"),
            slice_id=f"{cluster}-{kind.variant}-{number}",
            slice_size=kind.hosts,
            cpu_millis=kind.host_cpu_millis if cpu_millis is None else cpu_millis,
            memory_bytes=kind.host_memory_bytes if memory_bytes is None else memory_bytes,
            disk_bytes=disk_bytes,
            device=Device(kind=DeviceKind.TPU, variant=kind.variant, count=kind.chips_per_host),
            attributes={
                **LOCAL_PLACE,
                constraints.SCALE_GROUP: f"local-{kind.variant}",
                constraints.TPU_NAME: f"{cluster}-{kind.variant}-{number}",
                constraints.TPU_WORKER_ID: worker,
                constraints.TPU_TOPOLOGY: kind.topology,
                constraints.TPU_VM_COUNT: kind.hosts,
            },
        )
        for number in range(count)
        for worker in range(kind.hosts)
    )


def agent_command(host: LocalHost, cluster: str, directory: Path) -> list[str]:
    """The command line of the agent that is this host."""
    command = [sys.executable, "-m", "iris.cli.main", "--cluster", cluster, "agent", "--join"]
    command += ["--host-id", host.id, "--address", host.address, "--dir", str(directory)]
    command += ["--cpu", f"{host.cpu_millis}m", "--memory", str(host.memory_bytes), "--disk", str(host.disk_bytes)]
    if host.slice_id is not None:
        command += ["--slice", host.slice_id, "--slice-size", str(host.slice_size)]
    if host.device is not None:
        command += ["--device", str(host.device)]
    if host.accept_cpu_jobs:
        command.append("--accept-cpu-jobs")
    for key, value in host.attributes.items():
        command += ["--attribute", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    return command


def _host_id(cluster: str, rest: str) -> str:
    host_id = f"{cluster}-{rest}"
    if len(host_id) > MAX_NAME:
        problem = f"makes a host's id, {host_id!r}, longer than {MAX_NAME} characters"
        raise InvalidValue("name", cluster, problem, "choose a shorter one")
    return host_id
