"""Decides as which users a host's process jobs run, and how these users reach the host's directories and devices."""

import logging
import os
import pwd
import stat
from collections.abc import Iterable
from pathlib import Path

from iris.activities.host.runtimes.job_users import JobUsers
from iris.model.errors import Rejected
from iris.model.run_as import choose_uids

logger = logging.getLogger(__name__)

#: The device files of TPUs and GPUs, below /dev.
DEVICES = ("accel[0-9]*", "vfio/*", "nvidia*", "dri/render*")
_ALL, _GROUP = stat.S_IROTH | stat.S_IWOTH, stat.S_IRGRP | stat.S_IWGRP


def job_users(run_as: str, directory: Path, *, simulated: bool) -> JobUsers | None:
    """Returns the users of the host's process jobs, whose directory exists then; None: jobs run as the user of the agent.

    Args:
        run_as: the setting, as `iris.model.run_as` reads it.
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
    try:
        known = next((each for each in pwd.getpwall() if each.pw_uid in uids), None)
        problem = f"uid {known.pw_uid} belongs to {known.pw_name}" if known is not None else users.make_directory()
    except OSError as error:
        problem = f"{users.directory} cannot be created: {error.strerror}"
    if problem:
        remedy = "name other uids with --run-as or another directory with --jobs-dir, or use --run-as root for the agent's user"
        raise Rejected(f"tasks cannot run as users of their own: {problem}; {remedy}")
    return users


def device_groups(root: Path = Path("/dev")) -> tuple[int, ...]:
    """Returns the groups with which a process reaches the machine's accelerators. Warns of devices that only root reaches."""
    groups: set[int] = set()
    for path in _devices(root):
        status = path.stat()
        if status.st_mode & _ALL == _ALL:
            continue
        if status.st_gid != 0 and status.st_mode & _GROUP == _GROUP:
            groups.add(status.st_gid)
        else:
            logger.warning("tasks cannot use %s, which only root may; let others use it (chmod a+rw), or use --run-as root", path)
    return tuple(sorted(groups))


def _devices(root: Path) -> Iterable[Path]:
    return (path for pattern in DEVICES for path in root.glob(pattern) if path.is_char_device())
