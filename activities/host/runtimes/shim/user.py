"""Prepares the process of a program between fork and exec: it joins cgroups and becomes another
user than the agent. Uses only the standard library, as the shim does.
"""

from __future__ import annotations

import ctypes
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def join(cgroup: str) -> None:
    """Moves the calling process, which must have only one thread, into the cgroup.

    In cgroup v1 this writes to `tasks`, which moves one thread. `cgroup.procs`, the only such file
    of cgroup v2, moves a process with all its threads. For that the kernel waits some 10 ms, until
    no process of the machine forks or ends (`cgroup_threadgroup_rwsem` in kernel/cgroup/cgroup.c).

    Raises:
        OSError: the cgroup does not exist, or the process may not enter it.
    """
    try:
        members = os.open(os.path.join(cgroup, "tasks"), os.O_WRONLY)  # noqa: PTH118
    except FileNotFoundError:
        members = os.open(os.path.join(cgroup, "cgroup.procs"), os.O_WRONLY)  # noqa: PTH118
    try:
        os.write(members, b"0")
    finally:
        os.close(members)


def root_cwd(launch: dict[str, Any]) -> str | None:
    """Returns the working directory that a process enters before `become`; None if `become` enters
    it.
    """
    return launch["cwd"] if launch.get("uid", -1) < 0 else None


def become(launch: dict[str, Any]) -> None:
    """Becomes the user of the launch, between fork and exec, and enters the working directory with
    that user's rights. The process cannot become another user after that.
    """
    if (uid := launch.get("uid", -1)) >= 0:
        os.setgroups(launch["groups"])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        # PR_SET_NO_NEW_PRIVS, linux/prctl.h: no program, such as sudo, gives more rights.
        ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
        os.chdir(launch["cwd"])


def lost_cwd(launch: dict[str, Any]) -> bool:
    """Returns True if a process could not be started because `become` found no working directory.
    The error of `subprocess` says only that something failed between fork and exec.
    """
    return root_cwd(launch) is None and not os.path.isdir(launch["cwd"])  # noqa: PTH112


def let_open(launch: dict[str, Any], *descriptors: int) -> None:
    """Gives pipes and terminals to the user, so that a program can open its standard output again,
    as `/dev/stdout`.
    """
    uid = launch.get("uid", -1)
    for each in descriptors if uid >= 0 else ():
        if stat.S_ISFIFO(os.fstat(each).st_mode) or os.isatty(each):
            os.fchown(each, uid, uid)
