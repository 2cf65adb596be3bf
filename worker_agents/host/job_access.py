"""Decides as which users a host's process jobs run, and how these users reach the host's
directories and devices.
"""

import errno
import functools
import logging
import os
import pwd
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from iris.activities.host.runtimes.process.job_users import JobUsers
from iris.activities.host.runtimes.shim.user import become
from iris.model.errors import Rejected
from iris.model.host.run_as import choose_uids

logger = logging.getLogger(__name__)

#: The patterns of the device files of TPUs and GPUs, below /dev.
DEVICES = ("accel[0-9]*", "vfio/*", "nvidia*", "dri/render*")
#: The numbers of the system's errors that show that the agent cannot act as another user: root
#: lacks a right, or the user does not exist in root's container.
_REFUSALS = {errno.EPERM, errno.EACCES, errno.EINVAL}
_ALL, _GROUP = stat.S_IROTH | stat.S_IWOTH, stat.S_IRGRP | stat.S_IWGRP


def job_users(run_as: str, directory: Path, *, simulated: bool) -> JobUsers | None:
    """Returns the users of the host's process jobs, whose directory exists then; None: jobs run as
    the user of the agent.

    A root that may not change users, as in some containers, is not the machine's root. Without a
    setting, jobs run as its user.

    Args:
        run_as: the setting, as `iris.model.host.run_as` reads it.
        directory: for the files of these users.
        simulated: the host belongs to a local cluster.

    Raises:
        Rejected: jobs cannot run as other users here; the message says what to do.
        InvalidValue: the setting is invalid, or needs an agent that is root.
    """
    uids = choose_uids(run_as, root=os.geteuid() == 0, simulated=simulated)
    if uids is None:
        return None
    users = JobUsers(directory, uids)
    lacking = next((why for each in (uids[0], uids[-1]) if (why := _why_not_as(each))), "")
    if lacking and not run_as:
        logger.warning(
            "tasks run as the agent's user, not as users of their own: this root is not the"
            " machine's: %s",
            lacking,
        )
        return None
    try:
        known = next((each for each in pwd.getpwall() if each.pw_uid in uids), None)
        problem = (
            f"uid {known.pw_uid} belongs to {known.pw_name}"
            if known is not None
            else lacking or users.make_directory()
        )
    except OSError as error:
        problem = f"{users.directory} cannot be created: {error.strerror}"
    if problem := problem or _why_not_in(users):
        raise _rejected(problem)
    return users


def _rejected(problem: str) -> Rejected:
    remedy = (
        "name other uids with --run-as or another directory with --jobs-dir, or use --run-as root"
        " for the agent's user"
    )
    return Rejected(f"tasks cannot run as users of their own: {problem}; {remedy}")


def _why_not_as(uid: int) -> str:
    """Changes a file and a process of this user. Returns which right the agent lacks for that;
    empty: none.

    Other failures, such as that of a user whose running job has all the processes it may have, show
    no lack of a right.

    Raises:
        Rejected: this system has no such users.
    """
    if sys.platform != "linux":
        raise _rejected("only Linux allows this, and this machine runs another system")
    launch = {"uid": uid, "groups": [], "cwd": "/"}
    command = ("/bin/sh", "-c", "read line")  # waits
    try:
        # Not on a disk: whether that lets root give files away is another question.
        with os.fdopen(os.memfd_create("trial"), "wb") as file:
            os.fchown(file.fileno(), uid, uid)
            os.fchmod(file.fileno(), 0o600)
            os.close(os.open(f"/proc/self/fd/{file.fileno()}", os.O_WRONLY | os.O_CLOEXEC))
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, preexec_fn=functools.partial(become, launch)
        ) as process:
            process.kill()
    except subprocess.SubprocessError:
        return f"the agent may not start processes as uid {uid}"
    except OSError as error:
        if error.errno in _REFUSALS:
            return f"the agent may not manage processes and files of uid {uid}: {error.strerror}"
    return ""


def _why_not_in(users: JobUsers) -> str:
    """Returns why the directory cannot hold files of these users; empty: it can. A shared file
    system may refuse root.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="trial-", dir=users.directory) as trial:
            for uid in (users.uids[0], users.uids[-1]):
                os.chown(trial, uid, uid)
                (Path(trial) / str(uid)).touch()
    except OSError as error:
        return f"{users.directory} cannot hold files of other users: {error.strerror}"
    return ""


def device_groups(root: Path = Path("/dev")) -> tuple[int, ...]:
    """Returns the groups with which a process reaches the machine's accelerators. Warns of devices
    that only root reaches.
    """
    groups: set[int] = set()
    for path in _devices(root):
        status = path.stat()
        if status.st_mode & _ALL == _ALL:
            continue
        if status.st_gid != 0 and status.st_mode & _GROUP == _GROUP:
            groups.add(status.st_gid)
        else:
            logger.warning(
                "tasks cannot use %s, which only root may; let others use it (chmod a+rw), or use"
                " --run-as root",
                path,
            )
    return tuple(sorted(groups))


def _devices(root: Path) -> Iterable[Path]:
    return (path for pattern in DEVICES for path in root.glob(pattern) if path.is_char_device())
