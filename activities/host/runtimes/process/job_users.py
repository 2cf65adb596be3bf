"""Manages the users of jobs that run as processes. If the agent is root, each attempt has a uid and
a gid that no other attempt has at that time. These are the directories of the users:

    attempts/NAME      belongs to root and the attempt's group, with mode 0710; while it exists, the
                       uid of the attempt is reserved
    attempts/NAME/*    the directories to which the job may write: its working directory, outputs,
                       environment, home and temporary files
    environments/      the cache of environments, which belong to root after they are made

The agent's own directory stays closed to jobs. The attempt's directory there contains a link
`files` to `attempts/NAME`.
"""

import contextlib
import ctypes
import fcntl
import os
import platform
import random
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

import psutil

from iris.activities.host.runtimes.base import HostFault
from iris.activities.host.runtimes.cleanup import trees

#: The name of the link in an attempt's directory that leads to the job's files.
FILES = "files"
#: The directories of an attempt that belong to the job's user.
FOLDERS = ("work", "call", "outputs", "checkpoint", "environment", "home", "tmp")
#: The name of the fault if a host has no free uid for a job.
USERS_FAULT = "users"
#: The mode of a directory that other users may enter but not list.
PASSABLE = 0o711
#: The time limit within which the processes of a user must end after SIGKILL, in seconds.
KILL_WAIT = 10.0
#: The time limit within which ended processes must disappear from the process table, in seconds.
#: Until then, their uid is in use.
REAP_WAIT = 1.0
#: A uid that no user of a machine has, and that a C int can hold. The process that signals all
#: processes of a job takes this uid, so that they cannot send signals to it.
NOBODYS = 2**31 - 2
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108
_SHARED = (*_TEMPORARY, "/dev/mqueue", "/run/lock", tempfile.gettempdir())
#: The directories in which every user of the machine may create files.
SHARED = tuple(Path(each) for each in dict.fromkeys(_SHARED))
_PROTECTED_LINKS = Path("/proc/sys/fs/protected_hardlinks")
#: The number of the system call `setgroups`, by architecture, from linux/unistd.h. The call changes
#: only one thread; the C library's function changes all threads.
_SETGROUPS = {"x86_64": 116, "aarch64": 159}


class JobUsers(NamedTuple):
    """The uids of the jobs that run as processes on this machine, and the directory for the files
    of these jobs. All agents of a machine may share the directory.
    """

    directory: Path
    uids: range

    @property
    def environments(self) -> Path:
        return self.directory / "environments"

    def make_directory(self) -> str:
        """Creates the directory. Returns the reason why jobs cannot use it; empty if they can.

        Raises:
            OSError: the directory cannot be created.
        """
        for path in (self.directory, self.directory / "attempts", self.environments):
            for missing in reversed([each for each in (path, *path.parents) if not each.exists()]):
                missing.mkdir()
                missing.chmod(0o755 if missing != path else PASSABLE)
            path.chmod(PASSABLE)
        if self.directory.stat().st_uid != os.geteuid():
            return f"{self.directory} belongs to another user"
        closed = [
            each
            for each in self.directory.resolve().parents
            if not each.stat().st_mode & stat.S_IXOTH
        ]
        return f"{closed[-1]} is closed to other users" if closed else ""

    def make_files(self, attempt: Path) -> Path:
        """Creates the directory of the attempt's files, with a uid that no other attempt or process
        has. Removes an earlier directory of this attempt.

        Raises:
            HostFault: all uids are in use.
            OSError: the disk is full.
        """
        remove_files(attempt)
        files = self.directory / "attempts" / attempt.name
        trees.remove(files)  # may exist although the link to it was lost
        (attempt / FILES).symlink_to(files)
        with _lock_file(self.directory / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            uid = self._unused()
            # The directory gets its name after its group. With root's group, other agents would
            # take root for the user of the job.
            new = self.directory / "new"
            trees.remove(new)  # may be left from an agent that died
            new.mkdir(0o700)
            os.chown(new, 0, uid)
            new.rename(files)
        clear_shared(uid)
        for name in FOLDERS:
            (files / name).mkdir(0o700)
            os.chown(files / name, uid, uid)
        files.chmod(0o710)
        return files

    def _unused(self) -> int:
        taken = set(_owners((self.directory / "attempts").glob("*"))) | set(
            _owners(self.environments.glob("entries/uv-*/*"))
        )
        first = random.choice(self.uids)  # noqa: S311
        for uid in chain(range(first, self.uids.stop), range(self.uids.start, first)):
            if uid not in taken and not has_processes(uid):
                return uid
        raise HostFault(
            f"all {len(self.uids)} user ids for jobs (bootstrap.run_as or --run-as) are in use on"
            " this host; configure a larger range",
            USERS_FAULT,
        )


def files_of(attempt: Path) -> Path:
    """Returns the directory to which the attempt's job may write. If the job has no user of its
    own, this is the attempt's directory.
    """
    try:
        return (attempt / FILES).readlink()
    except OSError:
        return attempt


def owner_of(attempt: Path) -> int | None:
    """Returns the uid of the attempt's job, which is also its gid; None if the job runs as the user
    of the agent, or in a container.

    Raises:
        OSError: the directory with the job's files was deleted, or is not made yet.
    """
    files = files_of(attempt)
    return None if files == attempt else files.stat().st_gid


def remove_files(attempt: Path) -> None:
    """Ends the processes of the user of the attempt's job, and then removes the job's files. After
    that, the uid is free, so the user must have no process.
    """
    files = files_of(attempt)
    if files != attempt:
        with contextlib.suppress(FileNotFoundError):
            end_user(files.stat().st_gid)
        trees.remove(files)
        (attempt / FILES).unlink(missing_ok=True)


def remove(attempt: Path) -> None:
    """Removes the attempt's directory and its job's files."""
    remove_files(attempt)
    trees.remove(attempt)


def end_user(uid: int) -> None:
    """Kills all processes of an attempt's user, and removes the user's files from the directories
    that all users share.
    """
    if uid == 0:
        return
    begun = new = time.monotonic()
    known: set[int] = set()
    while has_processes(uid) and (now := time.monotonic()) < begun + KILL_WAIT:
        signal_all(uid, signal.SIGKILL)
        found = {each.pid for each in psutil.process_iter() if _belongs(each, uid)}
        if found - known:
            known, new = known | found, now
        elif now > new + REAP_WAIT:
            break
        time.sleep(0.005)
    clear_shared(uid)


def signal_all(uid: int, number: signal.Signals) -> bool:
    """Sends a signal to all processes of a user with one system call. Processes that fork and exit
    repeatedly would escape a loop over a list of processes. Does nothing if the user is root.

    Returns:
        False if the signal may not have been sent, because the machine can start no process.
    """
    if uid == 0:
        return False
    try:
        sender = os.fork()
    except OSError:
        return False
    if sender == 0:
        failed = 1
        try:
            # The effective uid decides to which processes the sender may send signals. The other
            # uids decide which processes may send signals to the sender: none.
            try:
                os.setresuid(NOBODYS if not has_processes(NOBODYS) else uid, uid, NOBODYS)
            except OSError:  # the system does not have such large uids
                os.setresuid(uid, uid, uid)
            with contextlib.suppress(ProcessLookupError):  # the user has no process
                os.kill(-1, number)
            failed = 0
        finally:
            os._exit(failed)
    return os.waitpid(sender, 0)[1] == 0


def has_processes(uid: int) -> bool:
    """Returns True if any process has this real uid."""
    try:
        os.getpriority(os.PRIO_USER, uid)
    except ProcessLookupError:
        return False
    return True


def clear_shared(uid: int) -> None:
    """Removes the user's files from the directories that all users share, and the user's System V
    shared memory, semaphores and message queues. The next job with this uid must not find them.
    """
    _remove_ipc(uid)
    for directory in SHARED:
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid == uid:
                        trees.remove(Path(entry.path))


def _remove_ipc(uid: int) -> None:
    libc = ctypes.CDLL(None)
    removals: dict[str, Callable[[int], object]] = {  # IPC_RMID is 0, linux/ipc.h
        "shm": lambda number: libc.shmctl(number, 0, None),
        "sem": lambda number: libc.semctl(number, 0, 0),
        "msg": lambda number: libc.msgctl(number, 0, None),
    }
    for kind, remove_one in removals.items():
        with contextlib.suppress(OSError):
            names, *rows = Path("/proc/sysvipc", kind).read_text().splitlines()
            for row in rows:
                fields = dict(zip(names.split(), row.split(), strict=False))
                if str(uid) in (fields["uid"], fields["cuid"]):
                    remove_one(int(row.split()[1]))


@contextlib.contextmanager
def acting_as(uid: int | None) -> Iterator[None]:
    """Gives the calling thread the user's access to files, so that it cannot follow a link to a
    file that the user may not read.

    Args:
        uid: the uid and gid of the user; None to change nothing.
    """
    if uid is None:
        yield
        return
    groups = os.getgroups()
    libc = ctypes.CDLL(None, use_errno=True)
    _set_groups(libc, [])
    try:
        libc.setfsgid(uid)
        libc.setfsuid(uid)
        # A call with an invalid uid changes nothing and returns the current uid.
        if libc.setfsuid(-1) != uid or libc.setfsgid(-1) != uid:
            raise PermissionError(f"this thread cannot act as user {uid}")
        yield
    finally:
        libc.setfsuid(os.geteuid())
        libc.setfsgid(os.getegid())
        _set_groups(libc, groups)


def give(tree: Path, uid: int, *, of: int | None = None) -> None:
    """Gives the files of a directory tree to a user.

    Args:
        of: the user whose files are given; others may then read them. If it is None, all files are
            given except root's files and files with several hard links, which may also be outside
            of the tree.
    """

    def hand_over(name: str, directory: int) -> None:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        several = status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode)
        if status.st_uid != of if of is not None else status.st_uid == 0 or several:
            return
        os.chown(name, uid, uid, dir_fd=directory, follow_symlinks=False)
        if of is not None and not stat.S_ISLNK(status.st_mode):
            mode = 0o555 if status.st_mode & stat.S_IXUSR else 0o444
            os.chmod(name, mode | status.st_mode & stat.S_IWUSR, dir_fd=directory)

    for visit in trees.visits(tree):
        for name in () if visit.left else (*visit.names, *visit.folders):
            hand_over(name, visit.at)
    os.chown(tree, uid, uid)
    tree.chmod(0o700 if of is None else 0o755)


@contextlib.contextmanager
def lent(cache: Path, uid: int) -> Iterator[bool]:
    """Lends a cache directory to the user of one job, until the block ends.

    Yields False, and lends nothing, if another job has the directory, or if the system lets users
    make hard links to other users' files.
    """
    with _lock_file(cache.parent / "lent") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            safe = _PROTECTED_LINKS.read_text().strip() == "1"
        except OSError:
            safe = False
        if not safe:
            yield False
            return
        try:
            give(cache, uid)
            yield True
        finally:
            os.chown(cache, 0, 0)


def _lock_file(path: Path) -> IO[bytes]:
    # The file is private, because a job that can open the file can also lock it.
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")


def _owners(paths: Iterable[Path]) -> Iterator[int]:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            yield path.stat().st_gid


def _belongs(process: psutil.Process, uid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return uid in process.uids()
    return False


def _set_groups(libc: ctypes.CDLL, groups: list[int]) -> None:
    numbers = (ctypes.c_uint32 * len(groups))(*groups)
    if libc.syscall(_SETGROUPS[platform.machine()], len(groups), numbers) != 0:
        raise PermissionError(ctypes.get_errno(), "the Unix groups of a thread cannot be changed")
