"""Defines what a task's container may do on its host: the rights of its processes, and which of the
host's directories it may mount. A program is root in its container, but must not be root on the
host.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from iris.activities.host.runtimes.base import HostFault
from iris.activities.host.runtimes.container import engine
from iris.activities.host.runtimes.process_limit import most_processes
from iris.model.host import mounts

#: The capabilities of every container. Package managers and the entry points of images need them:
#: they change owners, write to files of other users, and become another user. Docker's other
#: default capabilities are not given: NET_RAW (raw sockets on the host's network), MKNOD (devices),
#: NET_BIND_SERVICE (ports below 1024 of the host), SYS_CHROOT, AUDIT_WRITE, FSETID, SETFCAP,
#: SETPCAP.
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
#: The memory that libtpu may lock, in bytes.
_MEMLOCK = 64 * 1024**3
#: The additional capability of containers with TPUs. It allows libtpu to raise its limits.
TPU_CAPABILITIES = ("SYS_RESOURCE",)
#: The additional limit of containers with TPUs: the memory that libtpu may lock.
TPU_ULIMITS = ({"Name": "memlock", "Soft": _MEMLOCK, "Hard": _MEMLOCK},)
#: The end of the sentence that says why a directory of the agent is not mounted.
_OWN = "where the agent has its files"
#: The end of the sentence that says why the directory of the engine's socket is not mounted.
_SOCKET = "which is the socket of the container engine"


def rights(*, tpu: bool) -> dict[str, Any]:
    """Returns the engine's options for the rights and the number of processes of a container.

    Args:
        tpu: True if the container gets TPUs.
    """
    return {
        "cap_drop": ["ALL"],
        "cap_add": [*CAPABILITIES, *(TPU_CAPABILITIES if tpu else ())],
        # No program gains rights by a setuid bit or by capabilities of its file.
        "security_opt": ["no-new-privileges"],
        "pids_limit": most_processes(),
        **({"ulimits": list(TPU_ULIMITS)} if tpu else {}),
    }


def places_of(directories: Iterable[Path], own: Iterable[Path]) -> Mapping[Path, Path]:
    """Returns the directories to mount, each with its place on this host.

    A place has no links. So a link that is changed after this check has no effect. The check of the
    configuration has only seen names: on the host, a link may lead elsewhere, and the agent's own
    directories differ between hosts. The place of a directory that does not exist here is its own
    name, because an agent in a container sees the links of its image and not those of the machine.

    Args:
        own: the agent's own directories and files.

    Raises:
        HostFault: a container would get one of `own`, the engine's socket, or a directory that no
            container may have.
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
            raise HostFault(
                f"no container gets {directory}: it{leads} {why}; remove it from bootstrap.mounts",
                engine.FAULT,
            )
    return {directory: place if place.exists() else directory for directory, place in found.items()}
