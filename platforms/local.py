"""Machines on a laptop: a host is an agent in a process of its own."""

import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from iris.resources import Device
from iris.units import GIB

#: What a local host offers unless told otherwise: more than anybody asks for, so that a laptop runs whatever a fleet would.
LOCAL_CPU_MILLIS = 1000 * 1000
LOCAL_MEMORY = 1000 * GIB
LOCAL_DISK = 1000 * GIB


class LocalHost(BaseModel):
    """A simulated machine and what it claims to have."""

    model_config = ConfigDict(frozen=True)

    id: str
    cpu_millis: int = LOCAL_CPU_MILLIS
    memory_bytes: int = LOCAL_MEMORY
    disk_bytes: int = LOCAL_DISK
    device: Device | None = None


def agent_command(host: LocalHost, cluster: str, directory: Path) -> list[str]:
    """The command line of the agent that is this host."""
    command = [sys.executable, "-m", "iris.cli.main", "--cluster", cluster, "agent", "--join"]
    command += ["--host-id", host.id, "--dir", str(directory), *offer_options(host)]
    if host.device is not None:
        command.append("--accept-cpu-jobs")
    return command


def offer_options(host: LocalHost) -> list[str]:
    """The options, of `iris agent` and of `iris cluster start` alike, that say what the machine claims to have."""
    options = ["--cpu", f"{host.cpu_millis}m", "--memory", str(host.memory_bytes), "--disk", str(host.disk_bytes)]
    if host.device is not None:
        options += ["--device", str(host.device)]
    return options
