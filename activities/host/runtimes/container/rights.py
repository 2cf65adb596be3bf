"""Defines what a task's container may do: a program in it is root there, but must not be root on its host."""

from typing import Any

from iris.activities.host.runtimes.process_limit import most_processes

#: The capabilities of every container. Package managers and the entry points of images need them: they change owners, write to
#: files of other users, and become another user. The others of Docker's default are missing: NET_RAW (raw sockets on the host's
#: network), MKNOD (devices), NET_BIND_SERVICE (ports below 1024 of the host), SYS_CHROOT, AUDIT_WRITE, FSETID, SETFCAP, SETPCAP.
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
        # No program gains rights when it is started: neither by a setuid bit nor by capabilities of its file.
        "security_opt": ["no-new-privileges"],
        "pids_limit": most_processes(),
        **({"ulimits": list(TPU_ULIMITS)} if tpu else {}),
    }
