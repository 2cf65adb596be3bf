"""Defines what a task's container may do: a program in it is root there, but must not be root on
its host.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from iris.activities.host.runtimes.base import HostFault
from iris.activities.host.runtimes.container import engine
from iris.activities.host.runtimes.process.cgroups import most_processes
from iris.model.host import mounts

#: The capabilities of every container. Package managers and the entry points of images need them:
#: they change owners, write to files of other users, and become another user. The others of
#: Docker's default are missing: NET_RAW (raw sockets on the host's network), MKNOD (devices),
#: NET_BIND_SERVICE (ports below 1024 of the host), SYS_CHROOT, AUDIT_WRITE, FSETID, SETFCAP,
#: SETPCAP.
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
#: The memory that libtpu may lock, in bytes.
_MEMLOCK = 64 * 1024**3
#: What containers with TPUs get in addition. The capability allows libtpu to raise its limits.
TPU_CAPABILITIES = ("SYS_RESOURCE",)
TPU_ULIMITS = ({"Name": "memlock", "Soft": _MEMLOCK, "Hard": _MEMLOCK},)


def rights(*, tpu: bool) -> dict[str, Any]:
    """Returns the engine's options for the rights and the number of processes of a container.

    Args:
        tpu: the container gets TPUs.
    """
    return {
        "cap_drop": ["ALL"],
        "cap_add": [*CAPABILITIES, *(TPU_CAPABILITIES if tpu else ())],
        # No program gains rights when it is started: neither by a setuid bit nor by capabilities of
        # its file.
        "security_opt": ["no-new-privileges"],
        "pids_limit": most_processes(),
        **({"ulimits": list(TPU_ULIMITS)} if tpu else {}),
    }


_OWN = "where the agent has its files"
_SOCKET = "which is the socket of the container engine"


def places(directories: Iterable[Path], own: Iterable[Path]) -> Mapping[Path, Path]:
    """Returns the directories, each with its place on this host.

    A place has no links, so a container never gets what a link leads to after this check. The
    configuration was checked by names
    only: a link may lead elsewhere, and each host has the agent's directories at other places. A
    directory that does not exist here is its own place: an agent in a container sees the links of
    its image, and not those of the machine.

    Args:
        own: the agent's own directories and files.

    Raises:
        HostFault: a container would get one of them, the engine's socket, or a directory that no
            container gets.
    """
    found = {directory: directory.resolve() for directory in directories}
    if not found:
        return found
    closed = {path.resolve(): content for path, content in mounts.CLOSED.items()}
    closed |= {path.resolve(): _OWN for path in own} | {
        Path(engine.docker_socket()).resolve(): _SOCKET
    }
    for directory, place in found.items():
        if why := mounts.why_not(place, closed):
            leads = "" if place == directory else f" leads to {place}, which"
            reason = (
                f"no container gets {directory}: it{leads} {why}; remove it from bootstrap.mounts"
            )
            raise HostFault(reason, engine.FAULT)
    return {directory: place if place.exists() else directory for directory, place in found.items()}
